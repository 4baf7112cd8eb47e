package catalog

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"

	"holdfast/internal/wire"
)

// The settings that a policy may give, and what may be said of them: RabbitMQ's names, rules and texts. One that is not in the
// list is refused. That is decided before a policy is proposed: the machine takes whatever it is given, so that a later
// version may allow more, or read patterns otherwise.

const (
	keyAlternate          = "alternate-exchange"
	keyDeadLetterExchange = "dead-letter-exchange"
	keyDeadLetterKey      = "dead-letter-routing-key"
	keyDeadLetterStrategy = "dead-letter-strategy"
	keyDeliveryLimit      = "delivery-limit"
	keyRetryType          = "delayed-retry-type"
	keyRetryMin           = "delayed-retry-min"
	keyRetryMax           = "delayed-retry-max"
	keyDelay              = "delivery-delay"
	keyExpires            = "expires"
	keyMessageTTL         = "message-ttl"
	keyMaxLength          = "max-length"
	keyMaxBytes           = "max-length-bytes"
	keyOverflow           = "overflow"
	keyConsumerTimeout    = "consumer-timeout"
	keyDisconnected       = "consumer-disconnected-timeout"
	keyLeaderLocator      = "queue-leader-locator"
	keyTargetSize         = "target-group-size"
	keyPlacementTag       = "member-placement-tag"
	keyMasterLocator      = "queue-master-locator"
	keyDeduplicate        = argDeduplicate
	keyDedupWindow        = "deduplication-window"
	keyDedupBytes         = "deduplication-window-bytes"
	keyDedupKey           = "deduplication-key"
)

// DedupKeys are what duplicates can be found by, the first if nobody says.
var DedupKeys = []string{"header", "message-id", "publisher"}

type policyKey struct {
	ok    func(v any) bool // whether a value, an int64, a string or a bool if it is one of these, may be
	wrong string           // what is told, behind the value, of one that may not; before it, if it ends with a space
	// merge says what holds where a policy and an operator policy give it; nil: operator policies do not give it.
	merge func(policy, operator any) any
	// not are the queue types that cannot have it: c(lassic), q(uorum), s(tream). They are RabbitMQ's, but that a classic queue has
	// a delivery limit and a strategy for dead letters, too.
	not string
}

var policyKeys = map[string]policyKey{
	keyAlternate:          {isText, "is not a valid alternate exchange name", nil, ""},
	keyDisconnected:       {from(0), "is not a valid consumer disconnected timeout", nil, ""},
	keyConsumerTimeout:    {from(0), "is not a valid consumer timeout", nil, ""},
	keyDeadLetterExchange: {isText, "is not a valid dead letter exchange name", nil, "s"},
	keyDeadLetterKey:      {isText, "is not a valid dead letter routing key", nil, "s"},
	keyDeadLetterStrategy: {among("at-most-once", "at-least-once"), "is not a valid dead letter strategy", nil, "s"},
	keyMessageTTL:         {from(0), "is not a valid message TTL", lower, "s"},
	keyExpires:            {from(1), "is not a valid queue expiry", lower, "s"},
	keyMaxLength:          {from(0), "is not a valid maximum length", lower, "s"},
	keyMaxBytes:           {from(0), "is not a valid maximum length in bytes", lower, ""},
	keyOverflow:           {among("drop-head", "reject-publish", "reject-publish-dlx"), "is not a valid overflow value", operators, "s"},
	keyDeliveryLimit:      {isWhole, "is not a valid delivery limit", strictest, "s"},
	keyRetryType:          {among("all", "failed", "returned", "disabled"), "is not a valid delayed retry type. Must be one of: all, failed, returned, disabled", operators, ""},
	keyRetryMin:           {from(1), "is not a valid delayed retry minimum delay. Must be a positive integer", higher, ""},
	keyRetryMax:           {from(1), "is not a valid delayed retry maximum delay. Must be a positive integer", lower, ""},
	keyLeaderLocator:      {among("client-local", "balanced", "random", "least-leaders"), "is not a valid queue leader locator value", nil, ""},
	keyTargetSize:         {from(1), "is not a valid qq target count value", higher, "cs"},
	keyPlacementTag:       {isName, "is not a valid member-placement-tag value. Must be a non-empty string", operators, ""},

	// Not RabbitMQ's.
	keyDelay: {within(0, longestTTL), "is not a valid delivery delay", nil, "s"},

	// The first one is of RabbitMQ's plugin, with its words.
	keyDeduplicate: {isBool, `"x-message-deduplication" must be a boolean, got `, nil, "s"},
	keyDedupWindow: {within(0, longestTTL), "is not a valid deduplication window", nil, "s"},
	keyDedupBytes:  {from(0), "is not a valid deduplication window in bytes", nil, "s"},
	keyDedupKey:    {among("header", "message-id", "publisher"), "is not a valid deduplication key", nil, "s"},

	// These change nothing here.
	"max-in-memory-length":          {from(0), "is not a valid maximum memory in bytes", lower, "cs"},
	"max-in-memory-bytes":           {from(0), "is not a valid maximum memory in bytes", lower, "cs"},
	"queue-mode":                    {among("default", "lazy"), "is not a valid queue-mode value", nil, "qs"},
	"queue-version":                 {among(int64(1), int64(2)), "is not a valid queue-version value", operators, ""},
	"max-age":                       {isAge, "is not a valid max age", nil, "cq"},
	"initial-cluster-size":          {from(0), "is not a valid cluster size", nil, "cq"},
	"stream-max-segment-size-bytes": {within(0, 3_000_000_000), "is not a valid segment size", nil, "cq"},
	"stream-filter-size-bytes":      {within(16, 255), "is not a valid filter size. Valid range is 16-255", nil, ""},
}

func isText(v any) bool  { _, is := v.(string); return is }
func isBool(v any) bool  { _, is := v.(bool); return is }
func isName(v any) bool  { return isText(v) && v != "" }
func isWhole(v any) bool { _, is := v.(int64); return is }

func isAge(v any) bool { return isText(v) && checkAge(wire.ValueOf(v), nil) == "" }

func from(least int64) func(any) bool { return within(least, 1<<63-1) }

func within(least, most int64) func(any) bool {
	return func(v any) bool {
		n, is := v.(int64)
		return is && least <= n && n <= most
	}
}

func among(values ...any) func(any) bool {
	return func(v any) bool { return (isText(v) || isWhole(v)) && slices.Contains(values, v) }
}

func operators(_, operator any) any { return operator }

func lower(a, b any) any {
	x, is := a.(int64)
	y, is2 := b.(int64)
	if is && is2 && x < y || !is2 {
		return a
	}
	return b
}

func higher(a, b any) any {
	if lower(a, b) == a {
		return b
	}
	return a
}

// strictest is the lower of two limits of which a negative one is none.
func strictest(a, b any) any {
	if x, is := a.(int64); is && x < 0 {
		return higher(a, b)
	}
	if y, is := b.(int64); is && y < 0 {
		return higher(a, b)
	}
	return lower(a, b)
}

// longestPattern is how many bytes a policy's pattern may have.
const longestPattern = 1024

// PolicyError says what is wrong with a policy.
type PolicyError struct{ Problems []string }

// Error is what RabbitMQ tells, the headline included.
func (e *PolicyError) Error() string {
	return "Validation failed\n\n" + strings.Join(e.Problems, "\n") + "\n"
}

// MakePolicy checks a policy, of which everything but Definition is filled in, and returns it with the definition, which is as
// encoding/json decodes it, numbers as json.Number. The error is a *PolicyError.
func MakePolicy(p Policy, definition any) (*Policy, error) {
	var problems []string
	add := func(problem string) {
		if problem != "" {
			problems = append(problems, problem)
		}
	}
	settings, problem := checkDefinition(definition, p.Operator)
	add(problem)
	add(checkApplyTo(p.ApplyTo))
	add(checkPattern(p.Pattern))
	if p.Name == "" {
		add("the name of a policy must not be empty")
	}
	if problems != nil {
		return nil, &PolicyError{problems}
	}
	p.Definition = nil
	for _, key := range slices.Sorted(maps.Keys(settings)) {
		p.Definition = p.Definition.Append(key, settings[key])
	}
	return p.prepared(), nil
}

func checkApplyTo(kind string) string {
	switch kind {
	case ApplyToAll, ApplyToQueues, ApplyToClassicQueues, ApplyToQuorumQueues, ApplyToStreams, ApplyToExchanges:
		return ""
	}
	return fmt.Sprintf("apply-to '%s' unrecognised; should be one of: 'queues', 'classic_queues', 'quorum_queues', 'streams', 'exchanges', or 'all'", kind)
}

// checkPattern says what is wrong with a pattern. RabbitMQ's are Perl's; of these Go's, which take no more time than the name
// is long, lack a few.
func checkPattern(pattern string) string {
	if len(pattern) > longestPattern {
		return fmt.Sprintf("pattern must not exceed %d bytes", longestPattern)
	}
	_, err := regexp.Compile(pattern)
	if err == nil {
		return ""
	}
	why := err.Error()
	if known := (*syntax.Error)(nil); errors.As(err, &known) {
		why = fmt.Sprintf("%s: %s", known.Code, known.Expr)
		for _, l := range lacking {
			if l.is.MatchString(known.Expr) {
				why = fmt.Sprintf("%s is not supported: %s", l.what, known.Expr)
				break
			}
		}
	}
	return "pattern should be regular expression but is invalid: " + why
}

// lacking names what Go's expressions lack of Perl's, by how what cannot be read begins.
var lacking = []struct {
	is   *regexp.Regexp
	what string
}{
	{regexp.MustCompile(`^\(\?[=!]`), "look-ahead"},
	{regexp.MustCompile(`^\(\?<[=!]`), "look-behind"},
	{regexp.MustCompile(`^\(\?>`), "an atomic group"},
	{regexp.MustCompile(`^\\[1-9gk]`), "a back reference"},
	{regexp.MustCompile(`[*+?}]\+$`), "a possessive quantifier"},
}

// checkDefinition returns the settings of a definition, each an int64, a string or a bool, or what is wrong: first a value that may not
// be, then what no policy of the kind gives.
func checkDefinition(definition any, operator bool) (map[string]any, string) {
	given, is := definition.(map[string]any)
	if !is {
		return nil, "definition must be a dictionary: " + term(definition)
	}
	if len(given) == 0 {
		return nil, "no policy provided"
	}
	settings := make(map[string]any, len(given))
	var unknown []string
	for _, key := range slices.Sorted(maps.Keys(given)) {
		v := plainNumber(given[key])
		k, known := policyKeys[key]
		switch {
		case key == keyMasterLocator:
			return nil, "use of deprecated queue-master-locator argument is not permitted"
		case !known || operator && k.merge == nil:
			unknown = append(unknown, "{"+term(key)+","+term(v)+"}")
		case !k.ok(v):
			return nil, k.refuse(v)
		default:
			settings[key] = v
		}
	}
	if problem := checkRetry(settings); problem != "" {
		return nil, problem
	}
	if unknown != nil {
		return nil, "[" + strings.Join(unknown, ",") + "] are not recognised policy settings"
	}
	return settings, ""
}

// refuse says what is wrong with a value.
func (k *policyKey) refuse(v any) string {
	if strings.HasSuffix(k.wrong, " ") {
		return k.wrong + term(v)
	}
	return term(v) + " " + k.wrong
}

// checkRetry says what is wrong with the settings of a delayed retry taken together.
func checkRetry(settings map[string]any) string {
	for _, key := range []string{keyRetryMin, keyRetryMax} {
		if n, is := settings[key].(int64); is && n > maxPeriod {
			return key + " " + tooLong(n)
		}
	}
	least, has := settings[keyRetryMin]
	if typ, is := settings[keyRetryType]; is && typ != "disabled" && !has {
		return fmt.Sprintf("delayed-retry-min is required when delayed-retry-type is %v", typ)
	}
	if most, is := settings[keyRetryMax]; is && has && most.(int64) < least.(int64) {
		return fmt.Sprintf("delayed-retry-max (%d) must not be smaller than delayed-retry-min (%d)", most, least)
	}
	return ""
}

// plainNumber makes a whole number of JSON an int64, and any other a float64.
func plainNumber(v any) any {
	n, is := v.(json.Number)
	if !is {
		return v
	}
	if i, err := n.Int64(); err == nil {
		return i
	}
	f, _ := n.Float64()
	return f
}

// term writes a value as RabbitMQ's texts do, as a term of Erlang.
func term(v any) string {
	switch v := v.(type) {
	case string:
		return "<<" + strconv.Quote(v) + ">>"
	case nil:
		return "null"
	case json.Number:
		return v.String()
	case []any:
		parts := make([]string, len(v))
		for i, element := range v {
			parts[i] = term(element)
		}
		return "[" + strings.Join(parts, ",") + "]"
	case map[string]any:
		var parts []string
		for _, key := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, term(key)+" => "+term(v[key]))
		}
		return "#{" + strings.Join(parts, ",") + "}"
	}
	return fmt.Sprint(v)
}
