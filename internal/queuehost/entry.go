package queuehost

import (
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"holdfast/internal/amqperr"
	"holdfast/internal/bytecodec"
	"holdfast/internal/planted"
	"holdfast/internal/queue"
	"holdfast/internal/replica"
	"holdfast/internal/seglog"
	"holdfast/internal/wire"
)

// entry is what the far of a quorum queue keeps besides: this node's session with the
// queue, which outlives links and leaders. It keeps publishes until their outcome is
// known, settlements until they are known to be carried out, operations until they are
// answered, and of each consumer the last delivery that has come. Whenever the leader is another one, or
// the link to it broke, it resumes the session with whoever leads now, and goes on where it
// was: nothing is lost by it, and nothing done twice.
//
// A try is one attempt to do so. It opens a new epoch of the session's publishing half; the answer
// says how many publishes of the last one the queue has. Those are accepted; the others are sent
// again under numbers from 1 up. If the session is not the one it was before (it died meanwhile,
// because this node was thought to be dead), nobody knows about the publishes that were sent, the queue has
// given what the consumers held to others, and they are attached anew.
//
// Fields without another word belong to the worker.
type entry struct {
	f             *far
	watched, idle bool // it is in the list of neighbours.watch; it need not be. Guarded by its mutex

	news       bool // hint is new; guarded by the far's mutex
	state      entryState
	isWaiting  bool         // as the watch was told
	published  bool         // something was sent in the epoch
	remains    bool         // the leader may have a part of something that no more will come of
	leaderless atomic.Int64 // clock.Mono since when it is needed and there is no leader; 0: there is one
	waiting    atomic.Int64 // consumers that wait for a leader, as of then

	// Guarded by the far's mutex.
	members  []replica.Member
	settings *Settings // that a member would begin with here, if not those of the far's definition
	hint     uint64    // who leads, as was told last

	try        uint64
	epoch      uint64 // open now
	opening    uint64 // the one that the try under way opens
	session    uint64 // in the queue; 0: none yet
	began      int64  // clock.Mono: of the try
	pause      int64  // until then no other begins
	nextTry    int    // which member is asked next, if nobody is known to lead
	unanswered int    // tries in a row that had no answer
	elsewhere  int    // how often in a row a member has named another

	order   uint64 // of publishes and operations as they came
	flight  fifo[flying]
	sent    int    // of them, in the epoch
	base    uint64 // number in the epoch of the last one that left flight
	asks    fifo[asked]
	asksOut int // of them, sent in this try
	settles fifo[settling]
	out     int                // of them, sent in this try
	credits []op               // to be sent; of this try
	again   []queue.ConsumerID // to be attached again
}

type entryState uint8

const (
	away     entryState = iota // no try is under way
	resuming                   // the leader has been asked
	open
)

// flying is a publish without an outcome.
type flying struct {
	p     Publish
	order uint64
	since int64 // clock.Mono
}

// asked is an operation without an answer. What it is stands in farSession.asked, until it is answered.
type asked struct {
	req   uint64
	order uint64
	since int64
}

// settling is a settlement that is not known to be carried out.
type settling struct {
	op
	n uint64 // number of the message in which it was sent in this try
}

const (
	// entryGroup marks the group in whose rounds an entry has its turn: a member of the
	// queue's own group may be on the same node.
	entryGroup seglog.GroupID = 1 << 63
	// tryFor is how long a try waits for its answer: one that was not answered makes the next wait twice as
	// long, up to tryMost, so that a cluster with slow disks answers some day.
	tryFor  = int64(500 * time.Millisecond)
	tryMost = int64(4 * time.Second)
	// tryPause is how long nothing is tried after nobody could help.
	tryPause = int64(20 * time.Millisecond)
	// patience is how often in a row a member may name another before there is a pause.
	patience = 3
	forever  = int64(math.MaxInt64)
)

// newEntry makes a quorum queue reachable here. The registry's mutex is held.
func (r *Registry) newEntry(def QueueDef, members []replica.Member) *Handle {
	f := &far{reg: r, def: def}
	f.handle.far = f
	f.stats.Store(&noStats)
	f.entry = &entry{f: f, members: r.near.lists.same(members)}
	if m := r.hosts[def.ID]; m != nil && m.lead != nil {
		f.entry.hint = m.lead.leaderNode()
	}
	f.home.Store(r.home(r.self()))
	f.handle.group = r.o.Node.NewGroup(def.ID|entryGroup, f, false)
	r.near.mu.Lock()
	r.near.fars[def.ID] = f
	r.near.mu.Unlock()
	return &f.handle
}

// told hears who leads.
func (q *entry) told(leader uint64) {
	q.f.order(func() { q.hint, q.news = leader, true })
}

// leader is the node that is thought to lead; 0: nobody is known to.
func (q *entry) leader() uint64 {
	q.f.mu.Lock()
	defer q.f.mu.Unlock()
	return q.hint
}

// hasMember reports whether a node has a member, as the catalog here knows.
func (q *entry) hasMember(node uint64) bool {
	q.f.mu.Lock()
	defer q.f.mu.Unlock()
	return slices.ContainsFunc(q.members, func(m replica.Member) bool { return m.Node == node })
}

func (q *entry) setMembers(members []replica.Member) {
	q.f.mu.Lock()
	defer q.f.mu.Unlock()
	q.members = q.f.reg.near.lists.same(members)
}

// pack is the far's Pack.
func (q *entry) pack() (more bool) {
	f := q.f
	now := f.reg.o.Clock.Mono()
	f.obey()
	if f.gone {
		f.taken = f.handle.in.take()
		f.nextOp, f.nextPub, f.sentOfRun = 0, 0, 0
		f.refuseAll(f.noQueue(), Gone)
		q.stopWatch()
		return false
	}
	q.look()
	more = f.hear()
	q.take(now)
	q.expire(now)
	if q.state == resuming && now-q.began >= min(tryFor<<min(q.unanswered, 8), tryMost) {
		q.giveUp()
	}
	if q.state == away && now >= q.pause && q.needed() {
		q.seek(now)
	}
	if q.state == open {
		q.send()
	}
	q.watch(now)
	return more
}

func (q *entry) stopWatch() {
	if q.isWaiting {
		q.isWaiting = false
		q.f.reg.near.watch.set(q, false)
	}
	q.leaderless.Store(0)
}

// watch has the entry woken by time as long as it waits for something, and notes since when it has no leader.
func (q *entry) watch(now int64) {
	lost := q.state != open && q.needed()
	f := q.f
	if waits := lost || q.flight.len() > 0 || len(f.session.asked) > 0 || q.settles.len() > 0; waits != q.isWaiting {
		q.isWaiting = waits
		f.reg.near.watch.set(q, waits)
	}
	switch {
	case !lost:
		if q.leaderless.Load() != 0 {
			q.leaderless.Store(0)
		}
		return
	case q.leaderless.Load() == 0:
		q.leaderless.Store(max(now, 1))
	}
	var n int64
	for _, id := range sortedKeys(f.session.consumers) {
		c := f.session.consumers[id]
		if c.getter || c.silent || c.leaving {
			continue
		}
		if c.cancels && c.attached && now-q.leaderless.Load() >= int64(f.reg.o.Wait) {
			// It asked to be told. Should it be attached all the same, it is to leave.
			c.sink.Cancelled(q.lateError())
			c.leaving = true
			c.silence()
			q.order++
			q.ask(&op{kind: opDetach, consumer: id, call: &call{}}, forever)
			continue
		}
		n++
	}
	q.waiting.Store(n)
}

// needed reports whether the session has to be resumed: otherwise that can wait.
func (q *entry) needed() bool {
	s := &q.f.session
	if q.remains || q.flight.len() > 0 || len(s.asked) > 0 || q.settles.len() > 0 {
		return true
	}
	for _, c := range s.consumers {
		if !c.getter && !c.silent {
			return true
		}
	}
	return false
}

// look sees what has changed: who leads, and whether the link to it stands.
func (q *entry) look() {
	f := q.f
	f.mu.Lock()
	hint, news := q.hint, q.news
	q.news = false
	f.mu.Unlock()
	if news {
		q.pause, q.elsewhere, q.unanswered = 0, 0, 0
	}
	if q.state == away {
		return
	}
	h := f.session.home
	if h.standing().epoch != f.session.epoch || news && hint != 0 && hint != h.node {
		q.suspend()
	}
}

// suspend ends the try. What was under way is sent again in the next one.
func (q *entry) suspend() {
	f := q.f
	s := &f.session
	q.state, f.open = away, false
	for _, c := range s.consumers {
		c.sent, c.live, c.chunks = false, false, nil
	}
	for i := range q.asks.len() { // credit is granted anew when a consumer is attached again
		req := q.asks.list[q.asks.head+i].req
		if o, is := s.asked[req]; is && o.kind == opCredit {
			delete(s.asked, req)
		}
	}
	for ; planted.Is(planted.SettlesNotResent) && q.out > 0; q.out-- {
		q.settles.pop()
	}
	q.asksOut, q.out, q.credits, q.again = 0, 0, nil, nil
	f.chunksOfBig = 0
	s.home.leave(f)
}

// giveUp ends a try that was not answered. The next one is with a member that is not known to lead: it may know better.
func (q *entry) giveUp() {
	q.unanswered++
	q.suspend()
	f := q.f
	f.mu.Lock()
	if !q.news {
		q.hint = 0
	}
	f.mu.Unlock()
}

// seek begins a try, with the member that is thought to lead, or one that may know.
func (q *entry) seek(now int64) {
	f := q.f
	f.mu.Lock()
	hint, members := q.hint, q.members
	f.mu.Unlock()
	var h *home
	for range len(members) + 1 {
		node := hint
		if hint = 0; node == 0 && len(members) == 0 {
			break
		} else if node == 0 {
			node = members[q.nextTry%len(members)].Node
			q.nextTry++
		}
		if h = f.reg.home(node); h.standing().up {
			break
		}
		h = nil
	}
	if h == nil {
		q.pause = now + tryPause
		return
	}
	q.try++
	if q.opening = q.epoch; q.published && !planted.Is(planted.EpochNotRaised) || q.epoch == 0 {
		q.opening = q.epoch + 1
	}
	f.home.Store(h)
	h.enter(f)
	s := &f.session
	s.home, s.epoch, s.published, s.urgent, s.behind = h, h.standing().epoch, 0, 0, 0
	q.state, f.open, q.began = resuming, true, now
	head, epoch := q.head(farResume), q.opening
	if !f.reg.send(h.node, true, func(dst []byte) []byte { return bytecodec.AppendUint(head.append(dst), epoch) }) {
		q.suspend()
		q.pause = now + tryPause
	}
}

func (q *entry) head(kind farKind) farHead {
	s := &q.f.session
	h := s.home.head(kind, s.epoch, q.f.def.ID)
	h.try = q.try
	return h
}

// take takes everything out of the inbox.
func (q *entry) take(now int64) {
	f := q.f
	b := f.handle.in.take() // before the urgent line is looked at: see far.Pack
	if u := f.handle.in.takeUrgent(); u != nil {
		for i := range u.ops {
			q.takeUrgent(&u.ops[i])
		}
		u.recycle()
	}
	if b == nil {
		return
	}
	next := 0
	for i := range b.ops {
		o := &b.ops[i]
		q.order++
		if o.kind != opPublish {
			q.takeAsk(o, now)
			continue
		}
		ps := b.publishes[next : next+int(o.n)]
		next += len(ps)
		waits(&f.lane().wait, ps, func(w *wait) { w.applied() })
		for j := range ps {
			q.flight.push(flying{ps[j], q.order, now})
		}
	}
	b.recycle()
}

// takeUrgent takes a settlement or credit.
func (q *entry) takeUrgent(o *op) {
	s := &q.f.session
	c := s.consumers[o.consumer]
	switch {
	case c == nil && o.kind == opCredit:
		q.f.handle.put(*o) // its attach is still in the other line, or it has left
	case c == nil:
	case o.kind == opSettle:
		if o.last <= c.base {
			return // of a session that is over
		}
		in := *o
		in.first, in.last = max(o.first, c.base+1)-c.base, o.last-c.base
		q.settles.push(settling{op: in})
	default:
		q.grant(c, o)
	}
}

// cancelArgument of a consumer asks for a cancellation when the queue has had no leader for
// Options.Wait: else the consumer waits, however long that takes.
const cancelArgument = "x-cancel-without-leader"

func cancels(args wire.Table) bool {
	v, _ := args.Get(cancelArgument)
	on, _ := v.Bool()
	return on
}

// grant notes credit of a consumer, and has it sent, unless it goes with the attach.
func (q *entry) grant(c *farConsumer, o *op) {
	if o.n == Unlimited {
		c.unlimited = true
	} else {
		c.granted += uint64(o.n)
	}
	if o.flag {
		c.drains++
	}
	switch {
	case c.live:
		q.credits = append(q.credits, *o)
	case c.sent: // behind the attach, on the same path; it has no answer that could be late
		q.order++
		q.ask(o, forever)
	}
}

// ask puts an operation in line.
func (q *entry) ask(o *op, now int64) {
	s := &q.f.session
	if s.asked == nil {
		s.asked = map[uint64]op{}
	}
	s.asks++
	s.asked[s.asks] = *o
	q.asks.push(asked{s.asks, q.order, now})
}

// takeAsk takes any other operation.
func (q *entry) takeAsk(o *op, now int64) {
	f := q.f
	s := &f.session
	c := s.consumers[o.consumer]
	switch o.kind {
	case opAttach, opGetter:
		if s.consumers == nil {
			s.consumers = map[queue.ConsumerID]*farConsumer{}
		}
		spec := o.call.spec
		if spec.Node == 0 {
			spec.Node = f.reg.self()
		}
		s.consumers[o.consumer] = &farConsumer{
			sink: o.call.sink, noAck: spec.NoAck, spec: spec, getter: o.kind == opGetter, attached: o.kind == opGetter,
			unlimited: spec.Credit == Unlimited, granted: uint64(spec.Credit), cancels: cancels(spec.Arguments),
		}
		if o.kind == opGetter {
			return // it is attached with its first get
		}
	case opGet:
		if c == nil {
			o.call.got(Delivery{}, 0, false, f.noQueue())
			return
		}
	case opCancel, opDetach:
		if c == nil {
			run0(o.call.done)
			return
		}
		c.leaving = c.leaving || o.kind == opDetach
		c.quits = c.quits || o.kind == opCancel
	case opCredit:
		if c != nil {
			q.grant(c, o)
		}
		return
	case opPurge, opSeal, opUnseal, opExplain, opConsumers, opCount, opBarrier:
	default:
		return
	}
	q.ask(o, now)
}

// expire answers what has waited too long.
func (q *entry) expire(now int64) {
	f := q.f
	s := &f.session
	wait := int64(f.reg.o.Wait)
	n := 0
	leader := uint64(0)
	if q.state == open {
		leader = s.home.node
	}
	for n < q.flight.len() && f.reg.waited(leader, q.flight.list[q.flight.head+n].since, now) >= wait {
		n++
	}
	if n > q.sent && (f.chunksOfBig > 0 && !planted.Is(planted.ChunksKept) || q.wholeTx(q.sent) > q.sent) {
		q.suspend() // some of its chunks, or of its transaction, are with the leader, which would take them for the next one's
	}
	q.noteRemains(n)
	q.tell(n, Unknown)
	var late []uint64
	for i := range q.asks.len() {
		a := &q.asks.list[q.asks.head+i]
		if a.since != forever && now-a.since < wait {
			break
		}
		if a.since != forever {
			late = append(late, a.req)
		}
	}
	for _, req := range late {
		o, is := s.asked[req]
		if !is {
			continue
		}
		delete(s.asked, req)
		err := q.lateError()
		switch o.kind {
		case opDetach, opCancel: // it is to happen all the same
			f.refuse(&o, err, Unknown)
			o.call = &call{}
			if c := s.consumers[o.consumer]; c != nil {
				c.silence()
			}
			q.order++
			q.ask(&o, forever)
			continue
		case opGet: // it may have got a message, and the answer be lost: the getter says what it has when the session is resumed
			if c := s.consumers[o.consumer]; c != nil && c.used {
				q.remains = true
			}
		case opAttach: // it may be attached
			delete(s.consumers, o.consumer)
			q.order++
			q.ask(&op{kind: opDetach, consumer: o.consumer, call: &call{}}, forever)
		case opSeal: // it may be sealed, and nobody would take that back
			q.order++
			q.ask(&op{kind: opUnseal}, forever)
		}
		f.refuse(&o, err, Unknown)
	}
	q.popAsks()
}

// lateError is why an operation was not answered in time.
func (q *entry) lateError() *amqperr.Error {
	f := q.f
	why := "no leader of it was found"
	if q.state == open {
		why = fmt.Sprintf("its leader, node %s, has not answered in time", f.reg.o.Name(f.session.home.node))
	}
	return amqperr.QueueUnavailable(f.def.VHost, f.def.Name, why)
}

// popAsks forgets the oldest operations that are answered.
func (q *entry) popAsks() {
	for q.asks.len() > 0 {
		if _, is := q.f.session.asked[q.asks.front().req]; is {
			return
		}
		q.asks.pop()
		q.asksOut = max(q.asksOut-1, 0)
	}
	q.asks = fifo[asked]{} // rare enough to keep nothing for the next
	if len(q.f.session.asked) == 0 {
		q.f.session.asked = nil
	}
}

// tell tells the outcome of the n oldest publishes.
func (q *entry) tell(n int, o Outcome) {
	if n == 0 {
		return
	}
	q.f.handle.nacks.add(o, uint64(n))
	w := &q.f.lane().wait
	*w = wait{}
	for range n {
		p := &q.flight.front().p
		if !w.join(p) {
			w.settle(o)
			*w = wait{}
			w.join(p)
		}
		q.flight.pop()
	}
	w.settle(o)
	in := min(n, q.sent)
	q.sent -= in
	q.base += uint64(in)
}

// drop ends everything: the queue was deleted.
func (q *entry) drop(reason error) {
	f := q.f
	if q.state != away {
		q.suspend()
	}
	q.remains = false
	s := f.session
	f.session = farSession{home: s.home, epoch: s.epoch}
	q.tell(q.flight.len(), Gone)
	for _, req := range sortedKeys(s.asked) {
		o := s.asked[req]
		switch o.kind {
		case opAttach, opDetach, opCancel:
			delete(s.consumers, o.consumer)
		}
		f.refuse(&o, f.noQueue(), Gone)
	}
	for _, id := range sortedKeys(s.consumers) {
		if c := s.consumers[id]; !c.silent && !c.leaving {
			c.sink.Cancelled(reason)
		}
	}
	q.asks, q.settles = fifo[asked]{}, fifo[settling]{}
}
