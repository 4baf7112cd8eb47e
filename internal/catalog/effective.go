package catalog

import (
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"holdfast/internal/wire"
)

// Effective is what holds for a queue: what it was declared with and what policies say, merged. It is immutable.
type Effective struct {
	Policy, Operator *Policy // that hold for it, nil for none
	Settings
}

// Settings say how a queue treats its messages and consumers. The zero value is a queue without any; times are in milliseconds.
type Settings struct {
	Expires             Limit // unused for so long it is deleted
	MessageTTL          Limit
	MaxLength, MaxBytes Limit // of messages that are ready
	Overflow            Overflow
	DeadLetter          DeadLetter
	DeliveryLimit       Limit
	SingleActive        bool  // one consumer at a time
	MaxPriority         uint8 // of a classic queue; 0: its messages have none
	Delay               Limit // before a message is ready
	Deduplicate         Deduplicate
	ConsumerTimeout     Limit // for an acknowledgement
	DisconnectedTimeout Limit // for a consumer whose node is away
	Retry               Retry
	IdleRetry           string // the type of a retry that means nothing, since nobody says how long; "": none
	LeaderLocator       string // where the leader is to be, "" if nobody says
	TargetSize          int    // how many members the queue shall grow to when nodes join, 0 if nobody says
	PlacementTag        string
}

// Limit is a number that need not be there. 0 is none, n+1 the number n.
type Limit uint64

// LimitOf returns the limit n.
func LimitOf(n uint64) Limit { return Limit(n + 1) }

// Value returns the number, and whether there is one.
func (l Limit) Value() (n uint64, is bool) { return uint64(l) - 1, l != 0 }

// Overflow is what becomes of messages beyond a queue's limits.
type Overflow uint8

// Overflow: the oldest message goes, or the new one is refused; with DLX it is dead-lettered besides.
const (
	DropHead Overflow = iota
	RejectPublish
	RejectPublishDLX
)

var overflows = map[string]Overflow{"drop-head": DropHead, "reject-publish": RejectPublish, "reject-publish-dlx": RejectPublishDLX}

// DeadLetter says where the dead messages of a queue go.
type DeadLetter struct {
	On       bool
	Exchange string
	Rekeyed  bool // they get the routing key Key, else they keep theirs
	Key      string
	Strategy string // "at-most-once", "at-least-once"; "" if nobody says
}

// Deduplicate says how messages are found that come twice.
type Deduplicate struct {
	By     string // one of DedupKeys; "": they are not
	Window uint64 // how long keys are kept; 0: as long as their messages are there
	Bytes  uint64 // what is kept at most
}

// DefaultDedupBytes bounds what a queue keeps to find duplicates by, if nobody says otherwise.
const DefaultDedupBytes = 16 << 20

// Retry says which returned messages wait before they are ready again, and how long.
type Retry struct {
	Type     string // "all", "failed", "returned"; "": none
	Min, Max uint64
}

// DefaultDeliveryLimit is how often a quorum queue delivers a message anew, if nobody says otherwise.
const DefaultDeliveryLimit = 20

// longestTTL bounds times as the declaration of a queue does: ten years.
const longestTTL = 315_360_000_000

// memo remembers what holds for a queue, as of the policies of its vhost that were asked for last.
type memo struct{ last atomic.Pointer[settled] }

type settled struct {
	by *policySet
	e  *Effective
}

// Effective returns what holds for a queue. After the first time it costs two loads, until policies change. A queue that is not
// there yet may be asked about, too: VHost, Name, Type and Args are what counts.
func (v *View) Effective(q *Queue) *Effective {
	s := v.policySetOf(q.VHost)
	if q.memo == nil {
		return s.settle(q)
	}
	if last := q.memo.last.Load(); last != nil && last.by == s {
		return last.e
	}
	e := s.settle(q)
	q.memo.last.Store(&settled{s, e})
	return e
}

// settle merges the arguments of a queue with the policies that hold for it.
func (s *policySet) settle(q *Queue) *Effective {
	policy, operator := s.of(q)
	switch none := policy == nil && operator == nil; {
	case hasSettings(q.Args), none && bare[q.Type] == nil:
		return merge(q, policy, operator)
	case none:
		return bare[q.Type]
	}
	return s.share(q, sharedKey{q.Type, policy, operator})
}

// share returns what all queues have that are alike as far as settings go.
func (s *policySet) share(q *Queue, key sharedKey) *Effective {
	for {
		old := s.shared.Load()
		with := map[sharedKey]*Effective{}
		if old != nil {
			if e := (*old)[key]; e != nil {
				return e
			}
			maps.Copy(with, *old)
		}
		e := merge(q, key.policy, key.operator)
		with[key] = e
		if s.shared.CompareAndSwap(old, &with) {
			return e
		}
	}
}

// bare is what holds for a queue for which nobody says anything.
var bare = map[QueueType]*Effective{
	Classic: {},
	Quorum:  {Settings: Settings{DeliveryLimit: LimitOf(DefaultDeliveryLimit)}},
	Stream:  {},
}

// hasSettings reports whether arguments say anything that a policy could, or that is a setting.
func hasSettings(args wire.Table) bool {
	for name := range args.All() {
		if strings.HasPrefix(name, "x-") && name != argQueueType {
			return true
		}
	}
	return false
}

// source gives the values of one queue's settings.
type source struct {
	args             wire.Table
	policy, operator *Policy
}

// policies returns the value that the policies give a setting, nil for none.
func (s *source) policies(key string) any {
	v, w := s.policy.value(key), s.operator.value(key)
	switch {
	case w == nil:
		return v
	case v == nil:
		return w
	}
	if merge := policyKeys[key].merge; merge != nil {
		return merge(v, w)
	}
	return w
}

// value returns the value that a policy gives a setting, nil for none.
func (p *Policy) value(key string) any {
	if p == nil {
		return nil
	}
	v, _ := p.Definition.Get(key)
	return simple(v)
}

// simple is a value as an int64, a string or a bool, nil if it is none of these.
func simple(v wire.Value) any {
	if on, is := v.Bool(); is {
		return on
	}
	if n, is := v.Int(); is {
		return n
	}
	if text, is := v.Str(); is {
		return text
	}
	return nil
}

// value returns the value of a setting, nil for none; resolve chooses where policies and an argument say something.
func (s *source) value(key string, resolve func(policy, argument any) any) any {
	v := s.policies(key)
	arg, _ := s.args.Get("x-" + key)
	w := simple(arg)
	switch {
	case w == nil:
		return v
	case v == nil:
		return w
	}
	return resolve(v, w)
}

func policyWins(policy, _ any) any     { return policy }
func argumentWins(_, argument any) any { return argument }

// limit is the lower value of a setting, but never more than most.
func (s *source) limit(key string, most int64) Limit {
	if n, is := s.value(key, lower).(int64); is && n >= 0 {
		return LimitOf(uint64(min(n, most)))
	}
	return 0
}

func (s *source) text(key string, resolve func(policy, argument any) any) (text string, is bool) {
	text, is = s.value(key, resolve).(string)
	return text, is
}

// merge says what holds for a queue with these policies. Of lengths and times the lower one does, of what is one thing or
// another the argument, or the policy, as RabbitMQ has it for each.
func merge(q *Queue, policy, operator *Policy) *Effective {
	const unbounded = 1<<63 - 1
	s := &source{q.Args, policy, operator}
	e := &Effective{Policy: policy, Operator: operator}
	e.Expires, e.MessageTTL = s.limit(keyExpires, longestTTL), s.limit(keyMessageTTL, longestTTL)
	e.MaxLength, e.MaxBytes = s.limit(keyMaxLength, unbounded), s.limit(keyMaxBytes, unbounded)
	e.ConsumerTimeout, e.DisconnectedTimeout = s.limit(keyConsumerTimeout, longestTTL), s.limit(keyDisconnected, longestTTL)
	if n, is := s.value(keyDelay, argumentWins).(int64); is && n >= 0 {
		e.Delay = LimitOf(uint64(min(n, longestTTL)))
	}
	e.Deduplicate = s.deduplicate()
	overflow := argumentWins
	if q.Type == Quorum {
		overflow = policyWins
	}
	text, _ := s.text(keyOverflow, overflow)
	e.Overflow = overflows[text]
	e.DeadLetter = s.deadLetter()
	e.DeliveryLimit = s.deliveryLimit(q.Type)
	e.Retry, e.IdleRetry = s.retry()
	e.LeaderLocator = s.leaderLocator()
	e.PlacementTag, _ = s.text(keyPlacementTag, policyWins)
	if n, is := s.policies(keyTargetSize).(int64); is {
		e.TargetSize = int(min(n, 1<<31-1))
	}
	e.TargetSize = max(e.TargetSize, sizeOf(q.Args, argTargetSize, 0))
	if v, ok := q.Args.Get("x-single-active-consumer"); ok {
		e.SingleActive, _ = v.Bool()
	}
	if v, ok := q.Args.Get("x-max-priority"); ok && checkPriority(v, nil) == "" {
		n, _ := v.Int()
		e.MaxPriority = uint8(n)
	}
	return e
}

func (s *source) deadLetter() (d DeadLetter) {
	if d.Exchange, d.On = s.text(keyDeadLetterExchange, argumentWins); d.On {
		d.Key, d.Rekeyed = s.text(keyDeadLetterKey, argumentWins)
		d.Strategy, _ = s.text(keyDeadLetterStrategy, argumentWins)
	}
	return d
}

func (s *source) deduplicate() (d Deduplicate) {
	on := s.policies(keyDeduplicate)
	if arg, is := s.args.Get(argDeduplicate); is {
		on = simple(arg)
	}
	if on != true {
		return d
	}
	d.By, d.Bytes = DedupKeys[0], DefaultDedupBytes
	if by, is := s.text(keyDedupKey, argumentWins); is && slices.Contains(DedupKeys, by) {
		d.By = by
	}
	if n, is := s.value(keyDedupWindow, argumentWins).(int64); is && n > 0 {
		d.Window = uint64(min(n, longestTTL))
	}
	if n, is := s.value(keyDedupBytes, argumentWins).(int64); is && n >= 0 {
		d.Bytes = uint64(n)
	}
	return d
}

func (s *source) deliveryLimit(t QueueType) Limit {
	switch n, is := s.value(keyDeliveryLimit, strictest).(int64); {
	case is && n >= 0:
		return LimitOf(uint64(n))
	case is || t != Quorum:
		return 0
	}
	return LimitOf(DefaultDeliveryLimit)
}

func (s *source) leaderLocator() string {
	if text, is := s.text(keyLeaderLocator, policyWins); is {
		return text
	}
	old, _ := s.args.Get(argMasterLocator)
	text, _ := old.Str()
	return text
}

// Balanced reports whether the leader, or the home, is to be where there are fewest; if not, it is the node where the queue is
// declared; def if nobody says. Every name but client-local means balanced, as in RabbitMQ.
func (s *Settings) Balanced(def bool) bool {
	if s.LeaderLocator == "" {
		return def
	}
	return slices.Contains([]string{"balanced", "random", "least-leaders", minMasters}, s.LeaderLocator)
}

func (s *source) retry() (r Retry, idle string) {
	typ, _ := s.text(keyRetryType, policyWins)
	least, is := s.limit(keyRetryMin, longestTTL).Value()
	if !slices.Contains([]string{"all", "failed", "returned"}, typ) {
		return r, ""
	}
	if !is || least == 0 {
		return r, typ
	}
	r = Retry{typ, least, least}
	if most, is := s.limit(keyRetryMax, longestTTL).Value(); is && most > 0 {
		r.Max = most
	}
	return r, ""
}

// Definition returns what the policies say together, empty if none holds.
func (e *Effective) Definition() map[string]any {
	s := &source{policy: e.Policy, operator: e.Operator}
	all := map[string]any{}
	for _, p := range []*Policy{e.Policy, e.Operator} {
		if p != nil {
			maps.Copy(all, p.Definition.Map())
		}
	}
	for key := range all {
		if v := s.policies(key); v != nil {
			all[key] = v
		}
	}
	return all
}
