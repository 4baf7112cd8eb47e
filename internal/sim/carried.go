package sim

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"holdfast/internal/catalog"
	"holdfast/internal/clock"
	"holdfast/internal/cluster"
	"holdfast/internal/message"
	"holdfast/internal/queue"
	"holdfast/internal/queuehost"
	"holdfast/internal/routing"
	"holdfast/internal/seglog"
	"holdfast/internal/wire"
)

// Where messages are carried to, with Options.Carried: the product's own carriers bring the letters of all queues to the exchange "dead", and what the
// exchange "late" has delayed, to the first two targets, and the letters of the second one to the third. The first and the third
// keep what comes; the second has limits, times and whatever else there is.
const (
	lettersExchange = "dead"
	delayExchange   = "late"
	targets         = 3
)

// copyKey is what a queue has of a message that was published to another one.
type copyKey struct {
	id uint64
	q  *simQueue
}

// carried is what is known of a message that is carried on from another queue.
type carried struct {
	from   *simQueue
	owed   bool   // it has to arrive
	tells  int    // how often its source has told of it, but for those times after which it cannot have been sent again
	firsts int    // deliveries that say that they are the first
	teller teller // who has told last, when nothing went wrong any more
}

// teller is a start of a node, and the letter that it has told of.
type teller struct{ node, start, letter uint64 }

// wire has people declare what dead letters and delayed messages go through, one thing at a time, and reports whether all is there.
func (w *World) wire(n *node) bool {
	v := n.view()
	for _, x := range []string{lettersExchange, delayExchange} {
		if v.Exchange("/", x) != nil {
			continue
		}
		d := catalog.ExchangeDecl{VHost: "/", Name: x, Type: "fanout", Durable: true, User: "guest", Conn: catalog.MakeConnID(n.order.inc, 1), Level: v.Level()}
		if x == delayExchange {
			if v.Nodes().Len() < 3 {
				return false
			}
			d.Type, d.Args, d.Members = "x-delayed-message", wire.NewTable(map[string]any{"x-delayed-type": "fanout"}), w.firstThree(v)
		}
		w.trace("exchange %s is declared at node %d", x, n.id)
		n.order.forward.Propose(catalog.DeclareExchange(d), true, func(any, error) {})
		return false
	}
	for i := targets - 1; i >= 0; i-- { // the second one names the third
		if w.target[i] != nil {
			continue
		}
		prefix := fmt.Sprintf("t%d-", i+1)
		if !slices.ContainsFunc(w.orders.decls, func(x *decl) bool { return !x.told && strings.HasPrefix(x.name, prefix) }) {
			w.declareAs(n, fmt.Sprint(prefix, len(w.orders.decls)), i == 2 && w.o.Classic > 0, i+1)
		}
		return false
	}
	for _, x := range []string{lettersExchange, delayExchange} {
		for _, t := range w.target[:2] {
			b := catalog.Binding{VHost: "/", Source: x, Kind: catalog.KindQueue, Destination: t.def.Name}
			if !w.boundTo[[2]string{x, t.def.Name}] {
				n.order.forward.Propose(catalog.Bind(b, 0), true, func(result any, err error) {
					if r, is := result.(*catalog.Result); is && err == nil && r.Err == nil {
						w.boundTo[[2]string{x, t.def.Name}] = true
					}
				})
				return false
			}
		}
	}
	w.wired = true
	return true
}

// fresh has something done when a node has learned of all that was declared before, or cannot: the product's carriers wait for that, and cannot here.
func (n *node) fresh(then func()) {
	if !n.w.wired || n.isWired() {
		then()
		return
	}
	n.barrier(func(err error) { n.soon(then) })
}

// isWired reports whether a node knows of all that letters go through.
func (n *node) isWired() bool {
	v := n.view()
	for _, x := range []string{lettersExchange, delayExchange} {
		e := v.Exchange("/", x)
		if e == nil || len(v.Route(e, &routing.Message{}, nil)) < len(n.w.target[:2]) {
			return false
		}
	}
	return true
}

// firstThree are the nodes that a store lives on.
func (w *World) firstThree(v *catalog.View) []catalog.Member {
	var ids []uint64
	for n := range v.Nodes().All() {
		if ids = append(ids, n.ID); len(ids) == 3 {
			break
		}
	}
	return cluster.AsMembers(ids)
}

// targetArguments are those of a target; the second one has whatever there is.
func (w *World) targetArguments(role int, classic bool) map[string]any {
	if role != 2 {
		args := map[string]any{}
		if !classic {
			args["x-queue-type"], args["x-quorum-initial-group-size"] = "quorum", w.o.Members
		}
		return args
	}
	args := w.arguments(classic)
	delete(args, "x-expires")
	delete(args, "x-delivery-delay")
	if w.rng.IntN(2) == 0 { // which is about what is published to it
		args["x-message-deduplication"], args["x-deduplication-window"] = true, twice
		delete(args, "x-deduplication-key")
	}
	if _, is := args["x-max-length-bytes"]; is { // what never fits is never taken
		args["x-max-length-bytes"] = 2*message.ChunkSize + w.rng.IntN(message.ChunkSize)
	}
	args["x-dead-letter-exchange"], args["x-dead-letter-routing-key"] = "", w.target[2].def.Name
	return args
}

// roleOf says which target a queue is to be, by its name; 0: none.
func roleOf(name string) int {
	if len(name) > 2 && name[0] == 't' && name[2] == '-' {
		return int(name[1] - '0')
	}
	return 0
}

// isTarget reports whether a queue is one that letters go to, or was to be one.
func (q *simQueue) isTarget() bool { return roleOf(q.def.Name) > 0 }

// metStore takes note of the store of an exchange.
func (w *World) metStore(q *catalog.Queue) {
	id := seglog.GroupID(q.ID)
	if w.byID[id] != nil {
		return
	}
	s := &simQueue{def: queuehost.QueueDef{ID: id, Name: q.Name}, store: true, fresh: true, may: may{known: true, letters: true, least: -1, most: -1}}
	if q.Type != catalog.Quorum || w.store != nil {
		w.failf("%s is of the type %s, or there is another one", q.Name, q.Type)
	}
	w.trace("queue %d is the store of an exchange", q.ID)
	w.byID[id], w.store, w.all = s, s, append(w.all, s)
}

// withStores are all queues that there are, and the stores of exchanges.
func (w *World) withStores() []*simQueue {
	if w.store == nil {
		return w.queues
	}
	return append(slices.Clone(w.queues), w.store)
}

// targetsOf are the queues that the letters of one go to.
func (w *World) targetsOf(q *simQueue) []*simQueue {
	switch {
	case !w.o.Carried || q.isTarget() && roleOf(q.def.Name) != 2:
		return nil
	case q.isTarget(): // be it one that was declared when nobody heard of another one; the third was there before
		return w.target[2:]
	case w.target[0] == nil || w.target[1] == nil:
		return nil
	}
	return w.target[:2]
}

// everyRecord are the messages as they were published, and the copies of them in other queues.
func (k *checker) everyRecord() iter.Seq[*record] {
	return func(yield func(*record) bool) {
		for _, list := range [][]*record{k.records, k.copies} {
			for _, r := range list {
				if !yield(r) {
					return
				}
			}
		}
	}
}

// find returns what is known of a message in a queue, nil if it has nothing to do there.
func (k *checker) find(id uint64, q *simQueue) *record {
	if id == 0 || id > uint64(len(k.records)) {
		return nil
	}
	if r := k.records[id-1]; r.by.q == q {
		return r
	}
	return k.copyOf[copyKey{id, q}]
}

// carries notes that a queue tells of a letter, or a store of a message whose time has come: it comes to each target.
func (k *checker) carries(n *node, q *simQueue, r *record, letter uint64) {
	w := k.w
	for _, t := range w.targetsOf(q) {
		c := k.copyOf[copyKey{r.id, t}]
		if c == nil {
			c = &record{id: r.id, by: &client{q: t}, persistent: r.persistent, left: t.left, born: w.clk.Mono(), rank: r.rank, carried: &carried{from: q}}
			if p := t.purge; p != nil && (p.open || w.clk.Mono() < p.until) {
				c.purgeable = true
			}
			k.copyOf[copyKey{r.id, t}] = c
			k.copies = append(k.copies, c)
			k.stats.Carried++
		}
		x := c.carried
		c.crashes = t.crashes
		x.owed = x.owed || q.may.letters && w.wired && !q.deleted
		if by := (teller{n.id, n.starts, letter}); !w.healed || x.teller != by {
			x.tells++
			if x.teller = (teller{}); w.healed {
				x.teller = by
			}
		}
		if x.tells > 1 { // more than one may be there
			c.holder = nil
		}
		w.about(c, "is to come to queue %d from queue %d, told %d times", t.def.ID, q.def.ID, x.tells)
	}
}

// owesNothing notes that letters of a queue may have gone with it.
func (k *checker) owesNothing(q *simQueue) {
	for _, c := range k.copies {
		if c.carried.from == q {
			c.carried.owed = false
		}
	}
}

// isPlural reports whether more than one copy of the message may be in its queue.
func (r *record) isPlural() bool { return r.carried != nil && r.carried.tells > 1 }

// plural checks a delivery of a message that may be in its queue more than once.
func (k *checker) plural(s *consumer, r *record) *record {
	r.delivered++
	r.done = false
	k.stats.Delivered++
	return r
}

// first counts the deliveries of a copy that say that they are the first: there is one for each that was sent, at most.
func (k *checker) first(s *consumer, r *record) {
	x := r.carried
	if x.firsts++; x.firsts > x.tells && !x.from.unread {
		k.w.failf("%s got message %d for the first time for the %dth time, and queue %d has told of it %d times", s.name, r.id, x.firsts, x.from.def.ID, x.tells)
	}
}

// addressed checks what a message says of its way.
func (k *checker) addressed(s *consumer, r *record, m message.Message) {
	w := k.w
	v, err := message.Parse(m.Head)
	if err != nil {
		if !w.o.Carried {
			return
		}
		w.failf("%s got message %d with a head that is none: %v", s.name, r.id, err)
		return
	}
	headers := v.Properties.Headers()
	_, died := headers.Get("x-death")
	switch x := r.carried; {
	case x == nil:
		if died || v.History {
			w.failf("%s got message %d, which says that it has died", s.name, r.id)
		}
	case x.from.store:
		d, has := headers.Get(message.DelayHeader)
		if ms, _ := d.Int(); died || string(v.Exchange) != delayExchange || has && ms > 0 {
			w.failf("%s got message %d, which was delayed: died %v, exchange %s, %v", s.name, r.id, died, v.Exchange, headers.Map())
		}
	default:
		in, _ := headers.Get("x-last-death-queue")
		name, _ := in.Str()
		why, _ := headers.Get("x-last-death-reason")
		reason, _ := why.Str()
		o := k.find(r.id, x.from)
		if !died || !v.History || name != x.from.def.Name || o == nil || !slices.Contains(o.reasons, reason) || v.Properties.Has(wire.Expiration) {
			w.failf("%s got message %d, which has died in queue %s: %v", s.name, r.id, x.from.def.Name, headers.Map())
		}
	}
}

// reasonNames are the reasons of deaths in the headers of letters.
var reasonNames = map[queue.Reason]string{queue.Discarded: "rejected", queue.Expired: "expired", queue.Dropped: "maxlen", queue.Exhausted: "delivery_limit"}

// owed checks that what was told of as a letter, or was delayed, has come to where it was to go, and was settled there.
func (k *checker) owed() {
	for _, c := range k.copies {
		q := c.by.q
		lost := !c.persistent && q.home != 0 && q.crashes > c.crashes // by rights
		if c.carried.owed && !c.done && !c.isSeen() && !c.purgeable && !lost && !c.leftUntold() {
			k.w.failf("message %d has left queue %d for queue %d and is lost", c.id, c.carried.from.def.ID, q.def.ID)
			return
		}
	}
}

// takeAll takes out what is left, again and again, until nothing is on its way any more.
func (w *World) takeAll() {
	w.healed = true
	for idle := 0; idle < 12; idle++ {
		n := w.check.stats.Delivered
		if w.drain(false); w.err != nil {
			return
		}
		waits := w.underWay()
		if waits == "" && w.check.stats.Delivered == n {
			w.drain(true)
			return
		}
		if w.check.stats.Delivered > n {
			idle = 0
		}
		if waits != "" {
			w.rest(200)
		}
	}
	w.failf("letters do not arrive: %s", w.underWay())
}

// underWay says which queues have letters, or delayed messages, that have yet to go; "": none has.
func (w *World) underWay() (waits string) {
	silent := 0 // nobody leads them just now
	for _, q := range w.withStores() {
		if q.expired {
			continue
		}
		silent++
		for _, n := range w.nodes {
			h := n.handle(q)
			if h == nil || q.home == 0 && h.Leader() != n.id || q.home != 0 && q.home != n.id {
				continue
			}
			say := func(dead, late uint64) {
				if silent--; dead+late > 0 {
					waits += fmt.Sprintf("queue %d has %d letters and %d delayed messages; ", q.def.ID, dead, late)
				}
			}
			if q.home != 0 {
				h.Explain(func(x queuehost.Explanation) { say(x.Dead, x.Delayed) })
				continue
			}
			h.MemberState(func(_ uint64, state []byte) {
				m := queue.New()
				if err := m.Restore(state); err != nil {
					w.failf("queue %d: its state cannot be read: %v", q.def.ID, err)
				}
				say(m.DeadCount(), m.Delayed())
			})
		}
	}
	if w.settle(); silent > 0 {
		waits += fmt.Sprintf("%d queues do not say; ", silent)
	}
	return waits
}

// liveClock is the clock of a start of a node: what it has set is void when its process has ended, and waits while it stands still.
type liveClock struct {
	clock.Clock
	n     *node
	start uint64
}

// AfterFunc implements clock.Clock.
func (c liveClock) AfterFunc(d time.Duration, f func()) clock.Timer {
	return c.Clock.AfterFunc(d, func() {
		if c.n.up && c.n.starts == c.start {
			c.n.soon(f)
		}
	})
}
