package catalog

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"holdfast/internal/amqperr"
	"holdfast/internal/wire"
)

// The arguments of queue.declare that RabbitMQ knows: which types of queue take them, which values they take, and whether
// this broker can do what they ask for. An argument that is not in the list is kept and means nothing.

const (
	argQueueType = "x-queue-type"
	argAlternate = "alternate-exchange"

	argGroupSize     = "x-quorum-initial-group-size"
	argTargetSize    = "x-quorum-target-group-size"
	argLeaderLocator = "x-queue-leader-locator"
	argMasterLocator = "x-queue-master-locator"

	argDeduplicate = "x-message-deduplication"

	argRetryMin = "x-" + keyRetryMin
	argRetryMax = "x-" + keyRetryMax
)

type argument struct {
	name  string
	types string // the queue types that take it: c(lassic), q(uorum), s(tream)
	// check returns what is wrong with a value, "" if nothing is; nil takes anything.
	check func(v wire.Value, args wire.Table) string
	// there says that the broker does what the argument asks for, or may leave it be: a hint, a value of no effect.
	there func(v wire.Value) bool
}

var arguments = []argument{
	{"x-expires", "cq", checkExpires, nil},
	{"x-message-ttl", "cq", checkTTL, nil},
	{"x-dead-letter-exchange", "cq", checkString, nil},
	{"x-dead-letter-routing-key", "cq", checkDeadLetterKey, nil},
	{"x-dead-letter-strategy", "q", oneOf("at-most-once", "at-least-once"), nil},
	{"x-max-length", "cq", checkCount, nil},
	{"x-max-length-bytes", "cqs", checkCount, nil},
	{"x-max-in-memory-length", "q", checkCount, nil},
	{"x-max-in-memory-bytes", "q", checkCount, nil},
	{"x-max-priority", "c", checkPriority, nil},
	{"x-overflow", "cq", oneOf("drop-head", "reject-publish", "reject-publish-dlx"), nil},
	{"x-queue-mode", "c", nil, always},
	{"x-queue-version", "c", checkVersion, always},
	{"x-single-active-consumer", "cq", checkBool, isFalse},
	{"x-delivery-limit", "q", nil, nil},
	{"x-consumer-timeout", "q", checkCount, nil},
	{"x-consumer-disconnected-timeout", "q", checkCount, nil},
	{"x-delayed-retry-type", "q", nil, nil},
	{"x-delayed-retry-min", "q", nil, nil},
	{"x-delayed-retry-max", "q", nil, nil},
	{argQueueType, "cqs", nil, always},
	{argGroupSize, "q", checkPositive, always},
	{"x-max-age", "s", checkAge, nil},
	{"x-stream-max-segment-size-bytes", "s", checkCount, nil},
	{"x-stream-filter-size-bytes", "s", checkCount, nil},
	{"x-initial-cluster-size", "s", checkPositive, nil},
	{argMasterLocator, "c", nil, always},
	{argLeaderLocator, "cqs", oneOf("client-local", "balanced", "random", "least-leaders", minMasters), always},
	{"x-member-placement-tag", "q", checkTag, nil},
	// Unknown to the first rules, as to RabbitMQ: kept, and without a meaning.
	{"x-delivery-delay", "cqs", nil, always},
	{argDeduplicate, "cqs", nil, always},
	{"x-" + keyDedupWindow, "cqs", nil, always},
	{"x-" + keyDedupBytes, "cqs", nil, always},
	{"x-" + keyDedupKey, "cqs", nil, always},
}

// since3 are the arguments of which the third rules say something else than the second: what they say, and, where there says
// so, that the broker does what they ask for since then.
var since3 = map[string]argument{
	"x-dead-letter-exchange":    {types: "cq", check: checkString, there: always},
	"x-dead-letter-routing-key": {types: "cq", check: checkDeadLetterKey, there: always},
	"x-dead-letter-strategy":    {types: "cq", check: oneOf("at-most-once", "at-least-once"), there: always},
	"x-delivery-limit":          {types: "cq", check: checkDeliveryLimit, there: always},
	"x-delayed-retry-type":      {types: "q", check: oneOf("all", "failed", "returned", "disabled"), there: always},
	"x-delayed-retry-min":       {types: "q", check: checkPositive, there: always},
	"x-delayed-retry-max":       {types: "q", check: checkPositive, there: always},
	"x-expires":                 {types: "cq", check: checkExpires, there: always},
	"x-message-ttl":             {types: "cq", check: checkTTL, there: always},
	"x-max-length":              {types: "cq", check: checkCount, there: always},
	"x-max-length-bytes":        {types: "cqs", check: checkCount, there: always},
	"x-overflow":                {types: "cq", check: oneOf("drop-head", "reject-publish", "reject-publish-dlx"), there: always},
	"x-max-priority":            {types: "c", check: checkPriority, there: always},
	"x-single-active-consumer":  {types: "cq", check: checkBool, there: always},
	"x-consumer-timeout":        {types: "cq", check: checkCount, there: always},
	"x-delivery-delay":          {types: "cq", check: checkTTL, there: always},
	argDeduplicate:              {types: "cq", check: checkBool, there: always},
	"x-" + keyDedupWindow:       {types: "cq", check: checkTTL, there: always},
	"x-" + keyDedupBytes:        {types: "cq", check: checkCount, there: always},
	"x-" + keyDedupKey:          {types: "cq", check: oneOf(DedupKeys...), there: always},
	"x-max-in-memory-length":    {types: "q", check: checkCount, there: always}, // of no effect, as in RabbitMQ
	"x-max-in-memory-bytes":     {types: "q", check: checkCount, there: always},

	"x-consumer-disconnected-timeout": {types: "q", check: checkCount, there: always},
	// Of no effect: members go where there are fewest.
	"x-member-placement-tag": {types: "q", check: checkTag, there: always},
}

// since4 are those of which the fourth rules say something else again.
var since4 = map[string]argument{
	"x-delayed-retry-type": {types: "cq", check: oneOf("all", "failed", "returned", "disabled"), there: always},
	"x-delayed-retry-min":  {types: "cq", check: checkPositive, there: always},
	"x-delayed-retry-max":  {types: "cq", check: checkPositive, there: always},
}

// by returns what the rules of a version say of the argument.
func (a *argument) by(rules int) *argument {
	newer, is := since4[a.name]
	if !is || rules < 4 {
		newer, is = since3[a.name]
	}
	if is && rules >= 3 {
		newer.name = a.name
		return &newer
	}
	return a
}

// rules is the version of the rules that a declare is proposed with: the least one that says what the newest says.
func (d *QueueDecl) rules() int {
	if d.Level < PolicyLevel {
		return 2
	}
	if t, err := queueType(d); err == nil {
		if _, problem := checkRetryTimes(t, d.Args, 5); problem != "" {
			return 5
		}
		for name := range d.Args.All() {
			if newer, is := since4[name]; is && newer.takenBy(t) && !findArgument(name).by(3).takenBy(t) {
				return 4
			}
		}
	}
	return 3
}

// minMasters is a leader locator that the first rules did not know.
const minMasters = "min-masters"

// RabbitMQ reads x-quorum-target-group-size and has it in no list: on other types it means nothing, and a later declare
// may say something else. So it is not among the arguments; only its value is looked at.

// TypeOf returns the type of queue that arguments ask for, as far as it is one; whatever else they say, a declare is
// refused.
func TypeOf(args wire.Table) QueueType {
	t, _ := queueType(&QueueDecl{Args: args})
	return t
}

// OfType returns the arguments of a request whose queue shall be of type t if they do not say which and it could be of it. A
// quorum queue has a name of its client's choice, and is neither exclusive nor auto-delete nor short-lived.
func (d *QueueDecl) OfType(t QueueType) wire.Table {
	if _, says := d.Args.Get(argQueueType); says || t == Classic || d.ServerNamed || checkProperties(d, t) != nil {
		return d.Args
	}
	return d.Args.Clone().AppendValue(argQueueType, wire.ValueOf(string(t)))
}

// GroupSize returns how many members a new quorum queue shall have, def if the arguments do not say.
func GroupSize(args wire.Table, def int) int { return sizeOf(args, argGroupSize, def) }

func sizeOf(args wire.Table, name string, def int) int {
	v, ok := args.Get(name)
	if !ok || checkPositive(v, args) != "" {
		return def
	}
	n, _ := v.Int()
	return int(min(n, math.MaxInt32))
}

func always(wire.Value) bool { return true }

func isFalse(v wire.Value) bool {
	b, _ := v.Bool()
	return !b
}

// queueType reads x-queue-type. Absent, "" and "undefined" mean classic.
func queueType(d *QueueDecl) (QueueType, *amqperr.Error) {
	v, ok := d.Args.Get(argQueueType)
	if !ok {
		return Classic, nil
	}
	s, ok := v.Str()
	if !ok {
		return "", amqperr.InvalidArg(amqperr.Queue, d.VHost, d.Name, argQueueType, "unacceptable type "+v.TypeName())
	}
	switch t := QueueType(s); t {
	case "", "undefined":
		return Classic, nil
	case Classic, Quorum, Stream:
		return t, nil
	}
	return "", amqperr.UnsupportedQueueType(d.VHost, d.Name, s)
}

// checkArguments decides whether a queue that does not exist may be created as asked. The order is RabbitMQ's: values,
// arguments of other types of queue, properties the type does not allow. What this broker cannot do comes last.
//
// A change of what is possible gets a new version of the rules (declareRules): what was refused when a command was
// written is refused whenever it is read.
func checkArguments(d *QueueDecl, rules int) (QueueType, *amqperr.Error) {
	t, err := queueType(d)
	if err != nil {
		return "", err
	}
	if d.ServerNamed && t != Classic {
		return "", amqperr.InvalidProperty(d.VHost, d.Name, "server-named", string(t))
	}
	for _, a := range arguments {
		a := a.by(rules)
		if v, ok := d.Args.Get(a.name); ok && a.check != nil && a.takenBy(t) {
			if problem := a.check(v, d.Args); problem != "" {
				return "", amqperr.InvalidArg(amqperr.Queue, d.VHost, d.Name, a.name, problem)
			}
		}
	}
	if problem := checkSince(d.Args, rules); problem != "" {
		return "", amqperr.InvalidArg(amqperr.Queue, d.VHost, d.Name, argLeaderLocator, problem)
	}
	if name, problem := checkRetryTimes(t, d.Args, rules); problem != "" {
		return "", amqperr.InvalidArg(amqperr.Queue, d.VHost, d.Name, name, problem)
	}
	if v, ok := d.Args.Get(argTargetSize); ok && t == Quorum {
		if problem := checkPositive(v, d.Args); problem != "" {
			return "", amqperr.InvalidArg(amqperr.Queue, d.VHost, d.Name, argTargetSize, problem)
		}
	}
	for name := range d.Args.All() {
		if a := findArgument(name); a != nil && !a.by(rules).takenBy(t) {
			return "", amqperr.ArgNotForType(d.VHost, d.Name, name, string(t))
		}
	}
	if err := checkProperties(d, t); err != nil {
		return "", err
	}
	if t == Stream || t == Quorum && len(d.Members) == 0 {
		return "", amqperr.UnsupportedQueueType(d.VHost, d.Name, string(t))
	}
	for name, v := range d.Args.All() {
		if a := findArgument(name); a != nil && !a.by(rules).isThere(v) {
			return "", amqperr.UnsupportedArg(amqperr.Queue, d.VHost, d.Name, name)
		}
	}
	return t, nil
}

// checkSince returns what is wrong with a leader locator by rules older than the present ones.
func checkSince(args wire.Table, rules int) string {
	if rules >= 2 {
		return ""
	}
	v, _ := args.Get(argLeaderLocator)
	if s, ok := v.Str(); ok && s == minMasters {
		return fmt.Sprintf("'%s' is unknown", s)
	}
	return ""
}

// checkRetryTimes returns which time of a delayed retry is wrong, and what is wrong with it: rules older than the fifth only want it
// to be positive. A type without a time is in order, as in RabbitMQ: a policy may say the rest.
func checkRetryTimes(t QueueType, args wire.Table, rules int) (name, problem string) {
	if rules < 5 || t == Stream {
		return "", ""
	}
	least, _ := args.Get(argRetryMin)
	most, _ := args.Get(argRetryMax)
	for _, a := range []struct {
		name string
		v    wire.Value
	}{{argRetryMin, least}, {argRetryMax, most}} {
		if n, is := a.v.Int(); is && n > maxPeriod {
			return a.name, checkTTL(a.v, args)
		}
	}
	from, is := least.Int()
	if to, has := most.Int(); is && has && to < from {
		return argRetryMax, fmt.Sprintf("must not be smaller than %s (%d): %d", argRetryMin, from, to)
	}
	return "", ""
}

// checkProperties refuses what replicated queues cannot be.
func checkProperties(d *QueueDecl, t QueueType) *amqperr.Error {
	property := ""
	switch {
	case t == Classic:
	case d.AutoDelete:
		property = "auto-delete"
	case d.Exclusive:
		property = "exclusive-owner"
	case !d.Durable:
		property = "non-durable"
	}
	if property == "" {
		return nil
	}
	return amqperr.InvalidProperty(d.VHost, d.Name, property, string(t))
}

// isThere reports whether the broker does what the argument asks for.
func (a *argument) isThere(v wire.Value) bool { return a.there != nil && a.there(v) }

func findArgument(name string) *argument {
	i := slices.IndexFunc(arguments, func(a argument) bool { return a.name == name })
	if i < 0 {
		return nil
	}
	return &arguments[i]
}

func (a *argument) takenBy(t QueueType) bool { return strings.Contains(a.types, t.letter()) }

func checkInt(v wire.Value) (int64, string) {
	n, ok := v.Int()
	if !ok {
		return 0, "expected integer, got " + v.TypeName()
	}
	return n, ""
}

func checkCount(v wire.Value, _ wire.Table) string {
	n, problem := checkInt(v)
	if problem == "" && n < 0 {
		return fmt.Sprintf("must not be negative: %d", n)
	}
	return problem
}

func checkPositive(v wire.Value, args wire.Table) string {
	problem := checkCount(v, args)
	if n, _ := v.Int(); problem == "" && n == 0 {
		return "must not be zero"
	}
	return problem
}

// maxPeriod is ten years in milliseconds.
const maxPeriod = 315_360_000_000

func checkTTL(v wire.Value, args wire.Table) string {
	problem := checkCount(v, args)
	if n, _ := v.Int(); problem == "" && n > maxPeriod {
		return tooLong(n)
	}
	return problem
}

// tooLong says what is wrong with a time of more than maxPeriod.
func tooLong(n int64) string {
	return fmt.Sprintf("must not be more than ten years in milliseconds: %d", n)
}

// checkDeliveryLimit takes -1 for no limit.
func checkDeliveryLimit(v wire.Value, _ wire.Table) string {
	n, problem := checkInt(v)
	if problem == "" && n < -1 {
		return fmt.Sprintf("must not be less than -1: %d", n)
	}
	return problem
}

func checkExpires(v wire.Value, args wire.Table) string {
	if problem := checkPositive(v, args); problem != "" {
		return problem
	}
	return checkTTL(v, args)
}

func checkPriority(v wire.Value, args wire.Table) string {
	problem := checkCount(v, args)
	if n, _ := v.Int(); problem == "" && n > 255 {
		return fmt.Sprintf("must not be more than 255: %d", n)
	}
	return problem
}

func checkVersion(v wire.Value, _ wire.Table) string {
	n, problem := checkInt(v)
	if problem == "" && n != 1 && n != 2 {
		return fmt.Sprintf("unsupported queue version '%d'", n)
	}
	return problem
}

func checkBool(v wire.Value, _ wire.Table) string {
	if _, ok := v.Bool(); !ok {
		return "unacceptable type " + v.TypeName()
	}
	return ""
}

func checkString(v wire.Value, _ wire.Table) string {
	if _, ok := v.Str(); !ok {
		return "unacceptable type " + v.TypeName()
	}
	return ""
}

func checkTag(v wire.Value, args wire.Table) string {
	if s, ok := v.Str(); ok && s == "" {
		return "must not be empty"
	}
	return checkString(v, args)
}

func checkDeadLetterKey(v wire.Value, args wire.Table) string {
	if problem := checkString(v, args); problem != "" {
		return problem
	}
	if _, ok := args.Get("x-dead-letter-exchange"); !ok {
		return "routing key but no dead-letter exchange defined"
	}
	return ""
}

func oneOf(values ...string) func(wire.Value, wire.Table) string {
	return func(v wire.Value, args wire.Table) string {
		s, ok := v.Str()
		if !ok {
			return "unacceptable type " + v.TypeName()
		}
		if !slices.Contains(values, s) {
			return fmt.Sprintf("'%s' is none of %s", s, strings.Join(values, ", "))
		}
		return ""
	}
}

// checkAge reads an age such as "7D": a positive number and one of the units Y, M, D, h, m, s.
func checkAge(v wire.Value, args wire.Table) string {
	if problem := checkString(v, args); problem != "" {
		return problem
	}
	s, _ := v.Str()
	digits := strings.TrimRight(s, "YMDhms")
	if len(digits) != len(s)-1 || strings.Trim(digits, "0123456789") != "" || strings.Trim(digits, "0") == "" {
		return fmt.Sprintf("'%s' is no age such as 7D", s)
	}
	return ""
}
