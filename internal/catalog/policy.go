package catalog

import (
	"cmp"
	"iter"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"

	"holdfast/internal/wire"
)

// Policy gives settings to all queues and exchanges of a vhost whose names its pattern matches, present and future ones. Of
// the policies that match only one holds, and beside it one operator policy, which bounds what the first one allows. It is
// immutable.
type Policy struct {
	VHost, Name string
	Operator    bool   // an operator's: its names are a set of their own
	Pattern     string // a regular expression; it matches a name that contains a match
	ApplyTo     string // what kind of thing it is for, as [MakePolicy] checks it
	Priority    int64  // the highest is tried first, of equal ones the name that sorts first
	Definition  wire.Table

	matcher *regexp.Regexp // nil: the pattern is none that can be read here, and matches nothing
	not     string         // the queue types that it does not hold for because of its settings: c(lassic), q(uorum), s(tream)
}

// prepared returns the policy ready to be matched.
func (p *Policy) prepared() *Policy {
	p.matcher, _ = regexp.Compile(p.Pattern)
	for _, t := range []QueueType{Classic, Quorum, Stream} {
		for key := range p.Definition.All() {
			if strings.Contains(policyKeys[key].not, t.letter()) {
				p.not += t.letter()
				break
			}
		}
	}
	return p
}

// letter stands for a type in the tables of arguments and settings: c(lassic), q(uorum), s(tream).
func (t QueueType) letter() string {
	if t == "" {
		return "c"
	}
	return string(t[:1])
}

// The things that a policy can be for.
const (
	ApplyToAll           = "all"
	ApplyToQueues        = "queues"
	ApplyToClassicQueues = "classic_queues"
	ApplyToQuorumQueues  = "quorum_queues"
	ApplyToStreams       = "streams"
	ApplyToExchanges     = "exchanges"
)

// kindOf names the queues of one type as policies do.
func kindOf(t QueueType) string {
	switch t {
	case Quorum:
		return ApplyToQuorumQueues
	case Stream:
		return ApplyToStreams
	}
	return ApplyToClassicQueues
}

// holdsFor reports whether the policy is for queues of type t with this name. As in RabbitMQ one that has any setting that the
// type cannot have is not for it at all: the policy of the next lower priority holds then.
func (p *Policy) holdsFor(t QueueType, name string) bool {
	switch p.ApplyTo {
	case ApplyToAll, ApplyToQueues, kindOf(t):
	default:
		return false
	}
	return !strings.Contains(p.not, t.letter()) && p.matcher != nil && p.matcher.MatchString(name)
}

// holdsForExchange reports whether the policy is for exchanges with this name.
func (p *Policy) holdsForExchange(name string) bool {
	return (p.ApplyTo == ApplyToAll || p.ApplyTo == ApplyToExchanges) && p.matcher != nil && p.matcher.MatchString(name)
}

// same reports whether two policies are one and the same.
func (p *Policy) same(o *Policy) bool {
	return p.VHost == o.VHost && p.Name == o.Name && p.Operator == o.Operator && p.Pattern == o.Pattern && p.ApplyTo == o.ApplyTo &&
		p.Priority == o.Priority && string(p.Definition) == string(o.Definition)
}

// tried sorts policies as they are tried: the one of highest priority first.
func tried(a, b *Policy) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Name, b.Name))
}

// policySet is the policies of a vhost. It is immutable, but for what it remembers. nil: there are none.
type policySet struct {
	policies, operators []*Policy // as they are tried
	alternates          bool      // any of them names an alternate exchange

	// shared is what queues have that were declared without settings of their own: nearly all of them. The map is never changed,
	// but replaced by one with more in it.
	shared atomic.Pointer[map[sharedKey]*Effective]
}

type sharedKey struct {
	typ              QueueType
	policy, operator *Policy
}

func newPolicySet(policies, operators []*Policy) *policySet {
	if len(policies)+len(operators) == 0 {
		return nil
	}
	s := &policySet{policies: policies, operators: operators}
	for _, p := range policies {
		if _, is := p.Definition.Get(keyAlternate); is {
			s.alternates = true
		}
	}
	return s
}

// lists returns the policies and the operator policies as they are tried.
func (s *policySet) lists() (policies, operators []*Policy) {
	if s == nil {
		return nil, nil
	}
	return s.policies, s.operators
}

// without returns the set without the policy of a name.
func (s *policySet) without(name string, operator bool) *policySet {
	policies, operators := s.lists()
	drop := func(list []*Policy) []*Policy {
		return slices.DeleteFunc(slices.Clone(list), func(p *Policy) bool { return p.Name == name })
	}
	if operator {
		return newPolicySet(policies, drop(operators))
	}
	return newPolicySet(drop(policies), operators)
}

// with returns the set with a policy instead of the one of its name.
func (s *policySet) with(p *Policy) *policySet {
	policies, operators := s.without(p.Name, p.Operator).lists()
	add := func(list []*Policy) []*Policy {
		at, _ := slices.BinarySearchFunc(list, p, tried)
		return slices.Insert(slices.Clone(list), at, p)
	}
	if p.Operator {
		return newPolicySet(policies, add(operators))
	}
	return newPolicySet(add(policies), operators)
}

// get returns the policy of a name, nil if there is none.
func (s *policySet) get(name string, operator bool) *Policy {
	list, operators := s.lists()
	if operator {
		list = operators
	}
	for _, p := range list {
		if p.Name == name {
			return p
		}
	}
	return nil
}

// of returns the policies that hold for a queue.
func (s *policySet) of(q *Queue) (policy, operator *Policy) {
	if q.Of != 0 {
		return nil, nil
	}
	policies, operators := s.lists()
	return first(policies, func(p *Policy) bool { return p.holdsFor(q.Type, q.Name) }),
		first(operators, func(p *Policy) bool { return p.holdsFor(q.Type, q.Name) })
}

// ofExchange returns the policies that hold for an exchange.
func (s *policySet) ofExchange(name string) (policy, operator *Policy) {
	policies, operators := s.lists()
	return first(policies, func(p *Policy) bool { return p.holdsForExchange(name) }),
		first(operators, func(p *Policy) bool { return p.holdsForExchange(name) })
}

func first(list []*Policy, is func(*Policy) bool) *Policy {
	if i := slices.IndexFunc(list, is); i >= 0 {
		return list[i]
	}
	return nil
}

// policySetOf returns the policies of a vhost.
func (v *View) policySetOf(vhost string) *policySet {
	if vh := v.VHost(vhost); vh != nil {
		return vh.policies
	}
	return nil
}

// HasPolicy reports whether the very policy is set.
func (v *View) HasPolicy(p *Policy) bool {
	old := v.policySetOf(p.VHost).get(p.Name, p.Operator)
	return old != nil && old.same(p)
}

// Policies lists the policies of a vhost as they are tried: the highest priority first.
func (v *View) Policies(vhost string) []*Policy {
	policies, _ := v.policySetOf(vhost).lists()
	return slices.Clone(policies)
}

// OperatorPolicies lists the operator policies of a vhost as they are tried.
func (v *View) OperatorPolicies(vhost string) []*Policy {
	_, operators := v.policySetOf(vhost).lists()
	return slices.Clone(operators)
}

// ExchangePolicies returns the policies that hold for an exchange, nil for none.
func (v *View) ExchangePolicies(x *Exchange) (policy, operator *Policy) {
	return v.policySetOf(x.VHost).ofExchange(x.Name)
}

// alternate returns the name of the exchange that gets what x has no queue for, "" for none. What it was declared with counts,
// then a policy.
func (v *View) alternate(x *Exchange) string {
	if x.Alternate != "" {
		return x.Alternate
	}
	s := v.policySetOf(x.VHost)
	if s == nil || !s.alternates {
		return ""
	}
	if p, _ := s.ofExchange(x.Name); p != nil {
		name, _ := p.Definition.Get(keyAlternate)
		text, _ := name.Str()
		return text
	}
	return ""
}

// PolicyChange says that other policies hold in a vhost than before, or that a queue of it was paused or goes on.
type PolicyChange struct {
	VHost         string
	before, after *policySet
	queue         QueueID // the one that was paused or goes on; 0: policies have changed
}

// Queues lists the queues that have other settings by it, as far as they are in v.
func (c *PolicyChange) Queues(v *View) iter.Seq[*Queue] {
	return func(yield func(*Queue) bool) {
		if c.queue != 0 {
			if q := v.QueueByID(c.queue); q != nil {
				yield(q)
			}
			return
		}
		for q := range v.Queues(c.VHost).All() {
			if c.before.settle(q).Settings != c.after.settle(q).Settings && !yield(q) {
				return
			}
		}
	}
}

// SetPolicy returns the command that sets a policy, or replaces the one of its name; Result.Created tells which. p is one that
// [MakePolicy] has made. 404 if there is no such vhost. It belongs to level 2.
func SetPolicy(p *Policy) []byte {
	e := begin(cmdSetPolicy, len(p.VHost)+len(p.Name)+len(p.Pattern)+len(p.ApplyTo)+len(p.Definition)+16)
	e.string(p.VHost)
	e.policy(p)
	return e.b
}

// ClearPolicy returns the command that removes a policy; 404 if there is none of that name. It belongs to level 2.
func ClearPolicy(vhost, name string, operator bool) []byte {
	e := begin(cmdClearPolicy, len(vhost)+len(name))
	e.string(vhost)
	e.string(name)
	e.flags(operator)
	return e.b
}

func (e *encoder) policy(p *Policy) {
	e.string(p.Name)
	e.flags(p.Operator)
	e.string(p.Pattern)
	e.string(p.ApplyTo)
	e.uint(uint64(p.Priority)<<1 ^ uint64(p.Priority>>63)) // small numbers of either sign are short
	e.bytes(p.Definition)
}

func (d *decoder) policy(vhost string) *Policy {
	p := &Policy{VHost: vhost, Name: d.Text()}
	d.Flags(&p.Operator)
	p.Pattern, p.ApplyTo = d.Text(), d.Text()
	n := d.Uint()
	p.Priority = int64(n>>1) ^ -int64(n&1)
	p.Definition = d.table()
	return p.prepared()
}
