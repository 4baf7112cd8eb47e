package sim

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"holdfast/internal/amqperr"
	"holdfast/internal/catalog"
	"holdfast/internal/message"
	"holdfast/internal/queue"
	"holdfast/internal/queuehost"
	"holdfast/internal/seglog"
	"holdfast/internal/wire"
)

// may is what a queue may do with its messages, as far as anything that its arguments and policies have said up to now allows it.
// When a node learns of a policy nobody knows: what has held once may hold somewhere still.
type may struct {
	known       bool  // something is known of it: the cluster is at the level that this belongs to
	letters     bool  // whatever leaves, but for purges, does so with a letter: it has always had a dead-letter exchange
	refuses     bool  // publishes
	drops       bool  // what is at its head, to keep a limit
	ttl         int64 // the shortest time after which messages have expired, ms; 0: they do not
	least, most int   // the lowest and highest limit of deliveries; -1: there was none
	single      bool  // a single consumer is active
	ttlArgument int64 // of the arguments: a bound that no policy raises; 0: none
}

// note takes note of what holds for a queue.
func (m *may) note(e *catalog.Effective, fresh bool) {
	_, length := e.MaxLength.Value()
	_, bytes := e.MaxBytes.Value()
	limited := length || bytes
	if !m.known {
		*m = may{known: true, letters: fresh, least: -1, most: -1}
	}
	m.letters = m.letters && e.DeadLetter.On
	m.refuses = m.refuses || limited && e.Overflow != catalog.DropHead
	m.drops = m.drops || limited && e.Overflow == catalog.DropHead
	if ms, is := e.MessageTTL.Value(); is && (m.ttl == 0 || int64(ms) < m.ttl) {
		m.ttl = int64(ms)
	}
	if n, is := e.DeliveryLimit.Value(); is {
		if m.least < 0 || int(n) < m.least {
			m.least = int(n)
		}
		m.most = max(m.most, int(n))
	}
	m.single = e.SingleActive
}

// noteAll takes note of what holds for the queues by a view.
func (w *World) noteAll(v *catalog.View) {
	if v.Level() < catalog.PolicyLevel {
		return
	}
	for _, s := range w.queues {
		if q := v.QueueByID(s.id()); q != nil {
			s.may.note(v.Effective(q), s.fresh)
		}
	}
}

// arguments are those of a queue that is declared.
func (w *World) arguments(classic bool) map[string]any {
	args := map[string]any{}
	if !classic {
		args["x-queue-type"], args["x-quorum-initial-group-size"] = "quorum", w.o.Members
	}
	if w.rng.IntN(2) == 0 {
		args["x-max-length"] = 1 + w.rng.IntN(30)
		args["x-overflow"] = overflows[w.rng.IntN(len(overflows))]
	}
	if w.rng.IntN(6) == 0 {
		args["x-max-length-bytes"] = 500 + w.rng.IntN(5000)
		args["x-overflow"] = overflows[w.rng.IntN(len(overflows))]
	}
	if w.rng.IntN(3) == 0 {
		args["x-message-ttl"] = w.someTime()
	}
	if w.rng.IntN(4) == 0 || w.o.Carried && w.rng.IntN(3) == 0 {
		args["x-message-deduplication"], args["x-deduplication-window"] = true, twice
		if w.o.Carried {
			w.otherKeys(args)
		}
	}
	if w.rng.IntN(5) == 0 {
		args["x-delivery-delay"] = w.rng.IntN(2) * w.rng.IntN(8000) // none of its own, and those of the messages
	}
	if !classic && w.rng.IntN(3) == 0 {
		args["x-delivery-limit"] = w.rng.IntN(5)
	}
	if w.rng.IntN(4) == 0 {
		args["x-single-active-consumer"] = true
	}
	if w.rng.IntN(8) == 0 && w.o.Deletes { // then others are declared
		args["x-expires"] = 10000 + w.rng.IntN(30000)
	}
	if classic && w.rng.IntN(3) == 0 {
		args["x-max-priority"] = 1 + w.rng.IntN(10)
	}
	return args
}

var overflows = []string{"drop-head", "reject-publish", "reject-publish", "reject-publish-dlx"}

// someTime is a time after which messages expire, in ms.
func (w *World) someTime() int { return 500 + w.rng.IntN(20000) }

// properties are those of a message, and notes what they say: how it ranks, when it expires, and how long it waits.
func (w *World) properties(r *record) (p []byte) {
	p = []byte{0, 0}
	if !w.o.Settings || w.plain {
		return p
	}
	headers := map[string]any{}
	if q := r.by.q; q.delay >= 0 && w.rng.IntN(3) == 0 || q.store && w.rng.IntN(2) == 0 {
		ms := int64(w.rng.IntN(12000))
		r.delay = max(r.delay, ms)
		headers[message.DelayHeader] = ms
	}
	if q := r.by.q; q.keyed != nil && w.rng.IntN(2) == 0 { // one of the last ones again, perhaps
		switch q.keys {
		case publisherKeys:
			w.number(r, headers)
		case screenKeys:
			w.pass(r, headers)
		default:
			r.key = uint64(len(q.keyed)) + 1
			r.key -= min(r.key-1, uint64(w.rng.IntN(6)))
			headers[message.DeduplicationHeader] = int64(r.key)
		}
		q.keyed[r.key] = append(q.keyed[r.key], r)
	}
	if len(headers) > 0 {
		p[0] |= 1 << (wire.Headers - 8)
		t := wire.NewTable(headers)
		p = append(binary.BigEndian.AppendUint32(p, uint32(len(t))), t...)
	}
	if w.rng.IntN(4) == 0 {
		rank := w.rng.IntN(9)
		p[0] |= 1 << (wire.Priority - 8)
		p = append(p, byte(rank))
		r.rank = rank + 1
	}
	if w.rng.IntN(8) == 0 && !r.by.q.store {
		r.expires = int64(w.someTime())
		p[0] |= 1 << (wire.Expiration - 8)
		text := fmt.Sprint(r.expires)
		p = append(append(p, byte(len(text))), text...)
	}
	return p
}

// lettersPolicy is the policy by which queues whose names end with a d have dead letters from the beginning. Any other policy that holds for
// such a queue says the same.
const lettersPolicy = "letters"

// introduceLetters has people set that policy, as soon as there can be any.
// With Options.Carried they see to what the letters go through before that. It reports whether all is there.
func (w *World) introduceLetters() bool {
	n := w.anyNode()
	if n == nil || n.view().Level() < catalog.PolicyLevel {
		return false
	}
	if n.hasLetters() {
		return true
	}
	if !w.o.Carried || w.wire(n) {
		w.setPolicy(n, lettersPolicy, false, "d$", 0, map[string]any{"dead-letter-exchange": lettersExchange})
	}
	return !w.o.Carried
}

// hasLetters reports whether a node knows of it.
func (n *node) hasLetters() bool {
	return slices.ContainsFunc(n.view().Policies("/"), func(p *catalog.Policy) bool { return p.Name == lettersPolicy })
}

// policy has people set or clear a policy.
func (w *World) policy() {
	n := w.anyNode()
	if n == nil || n.view().Level() < catalog.PolicyLevel {
		return
	}
	name := fmt.Sprint("policy ", 1+w.rng.IntN(3))
	operator := w.rng.IntN(4) == 0
	if w.rng.IntN(3) == 0 {
		n.order.forward.Propose(catalog.ClearPolicy("/", name, operator), true, func(_ any, err error) { w.trace("%s: cleared (%v)", name, err) })
		return
	}
	all, letters := "^q[0-9]+$", w.rng.IntN(4) == 0
	if w.rng.IntN(2) == 0 {
		all, letters = "d$", true
	}
	if len(w.queues) > 0 && w.rng.IntN(2) == 0 {
		q := w.queues[w.rng.IntN(len(w.queues))].def.Name
		if role := roleOf(q); role > 0 && role != 2 { // these keep what comes
			return
		}
		all, letters = "^"+q+"$", letters || strings.HasSuffix(q, "d")
	}
	number := func(n int) json.Number { return json.Number(fmt.Sprint(n)) }
	def := map[string]any{}
	for len(def) == 0 {
		if w.rng.IntN(2) == 0 {
			def["max-length"] = number(1 + w.rng.IntN(30))
		}
		if w.rng.IntN(4) == 0 {
			def["message-ttl"] = number(w.someTime())
		}
		if w.rng.IntN(3) == 0 {
			def["delivery-limit"] = number(w.rng.IntN(5))
		}
		if w.rng.IntN(3) == 0 && !operator {
			def["overflow"] = overflows[w.rng.IntN(len(overflows))]
		}
	}
	if letters && !operator {
		def["dead-letter-exchange"] = lettersExchange
	}
	w.setPolicy(n, name, operator, all, 1+w.rng.IntN(5), def)
}

// setPolicy has people set a policy.
func (w *World) setPolicy(n *node, name string, operator bool, pattern string, priority int, def map[string]any) {
	p, err := catalog.MakePolicy(catalog.Policy{
		VHost: "/", Name: name, Operator: operator, Pattern: pattern, ApplyTo: "queues", Priority: int64(priority),
	}, def)
	if err != nil {
		w.failf("policy %v: %v", def, err)
		return
	}
	w.check.stats.Policies++
	w.trace("%s at node %d, operator %v, for %s: %v", name, n.id, operator, pattern, def)
	n.order.forward.Propose(catalog.SetPolicy(p), true, func(_ any, err error) { w.trace("%s: set (%v)", name, err) })
}

// raise has the cluster go to the latest level, once the time has come.
func (n *node) raise() {
	w := n.w
	if next := n.view().NextLevel(); next != 0 && w.o.Settings && w.steps >= w.o.RaiseAt {
		n.command(catalog.RaiseLevel(next), func() {})
	}
}

// knows has the catalog know which levels a node knows.
func (n *node) knows(then func()) {
	if !n.w.o.Settings {
		then()
		return
	}
	n.ask(catalog.SetLevels(n.id, catalog.KnownLevels()), func(*catalog.Result) { then() })
}

// examined reports whether all nodes are at the level at which it counts what a message says of itself.
func (w *World) examined() bool {
	for _, n := range w.nodes {
		if !n.up || n.view().Level() < catalog.PolicyLevel {
			return false
		}
	}
	return true
}

// leftUntold reports whether a message may have left its queue without anybody's doing, and no letter tells of it.
func (r *record) leftUntold() bool {
	switch m := &r.by.q.may; {
	case r.death != nil || r.mourned:
		return true
	case !m.known || m.letters:
		return false
	case m.ttl > 0 || r.expires > 0 || m.drops:
		return true
	default:
		return m.least >= 0 && (r.by.q.home != 0 || r.mostReturns() > m.least)
	}
}

// mostReturns is how often a message can have come back by the fault of a consumer.
func (r *record) mostReturns() int { return r.count + r.hi + r.by.q.leaving - r.left }

// inTime checks that a message that is handed out has not expired before it was asked for. since is when that was.
func (k *checker) inTime(s *consumer, r *record) {
	bound := r.by.q.may.ttlArgument
	if r.expires > 0 && r.examined && (bound == 0 || r.expires < bound) {
		bound = r.expires
	}
	if bound == 0 || !r.told || r.outcome != queuehost.Accepted || k.isLoose(s.c.n) {
		return
	}
	if late := s.since - r.toldAt - (bound+r.delay)*int64(time.Millisecond); late > int64(100*time.Millisecond) {
		k.w.failf("%s got message %d, which had expired %v before it was asked for", s.name, r.id, time.Duration(late))
	}
}

// alone checks that of a queue with a single active consumer no two get messages.
func (k *checker) alone(s *consumer) {
	q := s.c.q
	if !q.may.single || q.home != 0 || s == s.c.getter || s.leaves {
		return
	}
	if a := q.active; a != nil && a != s && !a.over && !a.leaves && !k.isLoose(a.c.n) {
		k.w.failf("%s gets messages of queue %d, and %s is the active one", s.name, q.def.ID, a.name)
	}
	q.active = s
}

// settingsEnd checks that a queue follows what holds for it in the end, and is no longer than that allows.
func (w *World) settingsEnd(q *simQueue, state []byte) {
	v := w.nodes[0].view()
	def := v.QueueByID(q.id())
	if !w.o.Settings || v.Level() < catalog.PolicyLevel || def == nil {
		return
	}
	m := queue.New()
	if err := m.Restore(state); err != nil {
		w.failf("queue %d: its state cannot be read: %v", q.def.ID, err)
		return
	}
	if q.store {
		if n := m.DeadCount() + m.Delayed(); n > 0 {
			w.failf("queue %d: %d delayed messages are left at the end", q.def.ID, n)
		}
		return
	}
	e, s := v.Effective(def), m.Settings()
	if s.Paused != def.Paused || s.MaxLength != queue.Limit(e.MaxLength) || s.MaxBytes != queue.Limit(e.MaxBytes) || s.Overflow != queue.Overflow(e.Overflow) ||
		s.TTL != queue.Limit(e.MessageTTL) || s.DeliveryLimit != queue.Limit(e.DeliveryLimit) ||
		s.SingleActive != e.SingleActive || (s.DeadLetter != queue.NoDeadLetter) != e.DeadLetter.On {
		w.failf("queue %d: it goes by %+v, and there holds %+v", q.def.ID, s, e.Settings)
	}
	if n := m.DeadCount(); n > 0 {
		w.failf("queue %d: %d dead messages are left at the end", q.def.ID, n)
	}
}

// inspect looks at a state of a queue that was seen first here.
func (n *node) inspect(id seglog.GroupID, index uint64, state []byte) {
	m := queue.New()
	if err := m.Restore(state); err != nil {
		n.w.failf("node %d, queue %d: the state at entry %d cannot be read: %v", n.id, id, index, err)
		return
	}
	s := m.Settings()
	n.w.seesPaused(n, id, index, m)
	if most, is := s.MaxLength.Get(); is && s.Overflow == queue.OverflowDropHead && m.Ready() > 0 && m.Ready()+m.Delayed() > most { // what waits is not dropped
		n.w.failf("node %d, queue %d: at entry %d it has %d ready messages, and may have %d", n.id, id, index, m.Ready(), most)
	}
	if most, is := s.MaxBytes.Get(); is && s.Overflow == queue.OverflowDropHead && m.Ready() > 0 && m.ReadyBytes() > most {
		n.w.failf("node %d, queue %d: at entry %d it has %d bytes of ready messages, and may have %d", n.id, id, index, m.ReadyBytes(), most)
	}
}

// punctual checks that what was due has happened, though nothing else did for a while.
func (w *World) punctual() {
	for _, q := range w.withStores() {
		for _, member := range w.membersOf(q) {
			h := w.node(member.Node).handle(q)
			if !w.o.Settings || h == nil {
				continue
			}
			h.MemberState(func(_ uint64, state []byte) {
				m := queue.New()
				if err := m.Restore(state); err != nil {
					w.failf("queue %d: its state cannot be read: %v", q.def.ID, err)
					return
				}
				if def := w.nodes[0].view().QueueByID(q.id()); def != nil && m.Ready() > 0 && m.Settings().Paused != def.Paused { // else that can wait
					w.failf("queue %d: it is paused: %v, and should be: %v", q.def.ID, m.Settings().Paused, def.Paused)
				}
				if at, is := m.NextDeadline(); is && at < w.clk.Now().Add(-time.Second).UnixNano() {
					w.failf("queue %d: something was due %v ago", q.def.ID, time.Duration(w.clk.Now().UnixNano()-at))
				}
			})
		}
	}
	w.settle()
}

// Expired implements queuehost.Owner: a queue that nobody has used for as long as it may be so is deleted, as the broker's collector does,
// which has a goroutine of its own.
func (o owner) Expired(id seglog.GroupID) {
	n := o.n
	w := n.w
	q := w.queue(id)
	if q == nil || q.expires == 0 {
		w.failf("node %d: queue %d is said to be idle, which does not matter", n.id, id)
		return
	}
	w.check.unused(n, q)
	n.soon(func() {
		def, h := n.view().QueueByID(q.id()), n.handle(q)
		if def == nil || h == nil {
			return
		}
		w.trace("queue %d has expired, as node %d sees it", id, n.id)
		q.unwanted, q.expired = true, true
		o.Broker.Delete(def, h, true, false, func(_ uint64, err error) {
			w.trace("queue %d: its end: %v", id, err)
			var refused *amqperr.Error
			if errors.As(err, &refused) && refused.Code == amqperr.PreconditionFailed { // somebody has come
				q.expired, q.unwanted = false, q.ordered
			}
		})
	})
}

// confirmed is how long ago a leader may have made sure that it leads which says that nobody uses a queue. Should another one lead meanwhile,
// that one knows whether somebody has come since.
const confirmed = time.Second

// anotherLeads reports whether a quorum queue is led by another node than one that led it, or still believes so.
func (w *World) anotherLeads(than *node, q *simQueue) bool {
	return q.home == 0 && slices.ContainsFunc(w.nodes, func(n *node) bool {
		if n == than || !n.up {
			return false
		}
		h := n.handle(q)
		return h != nil && h.Leader() == n.id
	})
}

// unused checks that nobody uses a queue that is about to go, as a node says.
func (k *checker) unused(by *node, q *simQueue) {
	w := k.w
	now, late := w.clk.Mono(), int64(-1)
	if w.anotherLeads(by, q) {
		late = int64(confirmed)
	}
	for _, n := range w.nodes {
		for _, c := range n.clients {
			s := c.sub
			if c.q == q && s != nil && s.attached && now-s.attachedAt > late && !s.over && !s.leaves && !k.isLoose(n) && q.home == 0 {
				w.failf("queue %d is about to expire, and has %s", q.def.ID, s.name)
			}
		}
	}
	if idle := now - q.used; idle > late && idle < int64(q.expires) {
		w.failf("queue %d is about to expire, and was used %v ago", q.def.ID, time.Duration(idle))
	}
}
