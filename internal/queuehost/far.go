package queuehost

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"holdfast/internal/amqperr"
	"holdfast/internal/bytecodec"
	"holdfast/internal/queue"
	"holdfast/internal/replica"
	"holdfast/internal/seglog"
)

// far stands behind the handle of a queue that runs on another node, its home.
// It takes what is in the inbox on the queue's worker here, as a host would, but
// sends it to the home and waits for what comes back. It is the replica.Host of
// a group that never has an entry.
//
// What is under way belongs to a session: one life of the link to the home, and
// this queue. When the link breaks the session is over. Publishes in flight are
// Unknown, those not sent yet Refused, whoever waits is told that the queue is
// unavailable, and consumers are cancelled; the home gives what they held to
// others. Until the link is back, everything fails at once. A consumer of a
// session that is over is not known any more: settlements and credit for it are
// swallowed.
type far struct {
	unhosted
	handle Handle
	reg    *Registry
	def    QueueDef
	home   atomic.Pointer[home] // the worker changes it
	stats  atomic.Pointer[Stats]
	entry  *entry // of a quorum queue; then it has no one home, see entry.go

	mu     sync.Mutex
	came   []heard     // from the home
	ending *call       // the queue was dropped
	down   atomic.Bool // it was dropped

	// The worker's own.
	gone     bool
	open     bool
	filtered bool   // urgent has only what is to be sent
	closing  bool   // the home has yet to be told that the session of epoch is not needed any more
	closes   uint64 // after so many settlements and credits: they go on another path
	session  farSession
	hearing  []heard // taken from came
	next     int     // of hearing

	urgent          *batch
	nextUrgent      int
	taken           *batch
	nextOp, nextPub int
	sentOfRun       int // publishes of the op at nextOp that were sent
	chunksOfBig     int // chunks of the publish at nextPub that were sent
}

// farSession is what is under way.
type farSession struct {
	home      *home
	epoch     uint64
	published uint64 // number of the last publish
	urgent    uint64 // number of the last settlements and credit
	asks      uint64 // number of the last ask
	asked     map[uint64]op
	consumers map[queue.ConsumerID]*farConsumer
	runs      fifo[sentRun]
}

// farConsumer is a consumer or getter of a session.
type farConsumer struct {
	sink     Consumer
	noAck    bool
	attached bool     // the home has answered, once
	silent   bool     // cancelled: it gets nothing any more, and holds what it has
	chunks   [][]byte // of the message that is coming

	// Of a quorum queue. Delivery ids are those that the consumer knows; those of the session in the
	// queue are lower by base: sessions that are over have given out as many.
	spec       ConsumerSpec
	getter     bool
	cancels    bool // it asked for a cancellation when there is no leader
	leaving    bool // it is being detached
	used       bool // its attach was sent in some try
	sent, live bool // its attach was sent, was answered, in this try
	unlimited  bool
	base, last uint64 // last: that has come
	granted    uint64 // the last delivery that it may get
	drains     int    // that are not answered
}

// silence has a consumer hear nothing any more.
func (c *farConsumer) silence() { c.silent, c.sink, c.chunks = true, nobody{}, nil }

// nobody is the sink of a consumer that was told of its end: what the queue still says to it, nobody hears.
type nobody struct{}

func (nobody) Deliver([]Delivery) {}
func (nobody) Cancelled(error)    {}
func (nobody) Drained(uint32)     {}
func (nobody) Wake()              {}

// sentRun is publishes in flight, neighbours in the session and to their ticket.
type sentRun struct {
	seq, last uint64 // in the session
	first     uint64 // what the ticket calls seq
	ticket    Ticket
	told      bool
}

// unhosted are the methods of a replica.Host that a group without entries needs not.
type unhosted struct{}

func (unhosted) Apply(*replica.Entry)                                  {}
func (unhosted) Stable(uint64)                                         {}
func (unhosted) Overdue(uint64)                                        {}
func (unhosted) Replay(seglog.Replayed) error                          { return nil }
func (unhosted) Failed(error)                                          {}
func (unhosted) Restore([]byte) error                                  { return nil }
func (unhosted) AppendSnapshot(dst []byte) []byte                      { return dst }
func (unhosted) Live(dst []seglog.Range) (live []seglog.Range, _ bool) { return dst, false }
func (unhosted) Recover(bool) bool                                     { return false }

// noStats are those of a queue of which nothing has been heard yet.
var noStats Stats

func newFar(r *Registry, def QueueDef, h *home) *far {
	f := &far{reg: r, def: def}
	f.handle.far = f
	f.home.Store(h)
	f.stats.Store(&noStats)
	return f
}

func (f *far) lane() *lane { return f.reg.lanes[f.reg.o.Node.ShardOf(f.handle.group.ID())] }

// order leaves an order for the worker. set runs with the mutex held.
func (f *far) order(set func()) {
	f.mu.Lock()
	set()
	f.mu.Unlock()
	f.handle.group.Wake()
}

// drop ends the queue here.
func (f *far) drop(c *call) {
	f.down.Store(true)
	f.order(func() { f.ending = c })
}

// unavailable says why the queue cannot be reached.
func (f *far) unavailable(h *home, why string) *amqperr.Error {
	return amqperr.QueueUnavailable(f.def.VHost, f.def.Name, fmt.Sprintf("node %s, which serves it, cannot be reached: %s", f.reg.o.Name(h.node), why))
}

func (f *far) noQueue() *amqperr.Error { return amqperr.NoQueue(f.def.VHost, f.def.Name) }

// refusal returns nil, or why the queue cannot be used at the moment; for anyone.
func (f *far) refusal() error {
	if f.down.Load() || f.entry != nil {
		return nil // as of a queue that runs here: it is gone, and answers so
	}
	h := f.home.Load()
	if st := h.standing(); !st.up {
		return f.unavailable(h, st.why)
	}
	return nil
}

// Pack is called on the worker when something is in the inbox, or has come.
func (f *far) Pack(*replica.Entry) (more bool) {
	if f.entry != nil {
		return f.entry.pack()
	}
	f.obey()
	h := f.home.Load()
	st := h.standing()
	if s := &f.session; f.open && (s.home != h || s.epoch != st.epoch) {
		f.over(f.unavailable(s.home, s.home.standing().why), Unknown, nil)
	}
	more = f.hear()
	// What is in the ordinary line was put there before the urgent one is
	// looked at, so nothing overtakes a settlement that came before it.
	if f.taken == nil {
		f.taken = f.handle.in.take()
		f.nextOp, f.nextPub, f.sentOfRun, f.chunksOfBig = 0, 0, 0, 0
	}
	switch {
	case f.gone:
		f.refuseAll(f.noQueue(), Gone)
		f.close()
	case !st.up:
		f.refuseAll(f.unavailable(h, st.why), Refused)
	case f.taken == nil && !f.open && !f.handle.in.waitingUrgent():
		return more
	default:
		f.begin(h, st.epoch)
		if !f.sendUrgent() || !f.sendTaken() {
			return more // somebody wakes us when there is room
		}
	}
	return more || f.handle.in.waiting()
}

// obey carries out orders.
func (f *far) obey() {
	f.mu.Lock()
	ending := f.ending
	f.ending = nil
	f.mu.Unlock()
	if ending == nil {
		return
	}
	switch {
	case f.gone:
	case f.entry != nil:
		f.gone = true
		f.entry.drop(ending.reason)
		f.handle.group.Drop()
	default:
		f.gone, f.closing, f.closes = true, f.open, f.session.urgent
		f.over(f.noQueue(), Gone, ending.reason)
		f.handle.group.Drop()
		f.refuseAll(f.noQueue(), Gone)
		if !f.closing {
			f.home.Load().leave(f)
		}
	}
	run0(ending.done)
}

// begin opens a session, if there is none.
func (f *far) begin(h *home, epoch uint64) {
	if !f.open {
		f.open = true
		f.session = farSession{home: h, epoch: epoch}
	}
}

// over ends the session: who waits is told err, and publishes o; consumers hear reason
// (nil: err).
func (f *far) over(err error, o Outcome, reason error) {
	if !f.open {
		return
	}
	if reason == nil {
		reason = err
	}
	s := f.session
	f.open = false
	f.session = farSession{home: s.home, epoch: s.epoch}
	if f.urgent != nil {
		f.urgent.recycle()
		f.urgent = nil
	}
	f.chunksOfBig = 0
	for ; s.runs.len() > 0; s.runs.pop() {
		f.tell(s.runs.front(), o)
	}
	for _, req := range slices.Sorted(maps.Keys(s.asked)) {
		ask := s.asked[req]
		switch ask.kind { // no more is said to a consumer that is not there, or has left
		case opAttach, opDetach, opCancel:
			delete(s.consumers, ask.consumer)
		}
		f.refuse(&ask, err, o)
	}
	for _, id := range slices.Sorted(maps.Keys(s.consumers)) {
		if c := s.consumers[id]; !c.silent {
			c.sink.Cancelled(reason)
		}
	}
}

// close tells the home that a dropped queue needs no session any more.
func (f *far) close() {
	if !f.closing {
		return
	}
	h, epoch := f.session.home, f.session.epoch
	head, after := h.head(farClose, epoch, f.def.ID), f.closes
	if h.standing().epoch == epoch && !f.send(h, true, func(dst []byte) []byte { return bytecodec.AppendUint(head.append(dst), after) }) {
		return
	}
	f.closing = false
	h.leave(f)
}

// send sends a message to the home; false: the worker is woken when there is room.
func (f *far) send(h *home, bulk bool, append func([]byte) []byte) bool {
	if f.reg.send(h.node, bulk, append) {
		return true
	}
	h.block(f)
	return f.reg.send(h.node, bulk, append) // there was room before we stood in line
}

// tell tells publishes that were sent what became of them, once.
func (f *far) tell(r *sentRun, o Outcome) {
	if r.told {
		return
	}
	r.told = true
	f.handle.nacks.add(o, r.last-r.seq+1)
	if r.ticket != nil {
		r.ticket.Settled(r.first, r.first+(r.last-r.seq), o)
	}
}

// refuse answers an operation that was not carried out, or of which nobody knows.
func (f *far) refuse(o *op, err error, out Outcome) {
	switch o.kind {
	case opAttach:
		o.call.attached(o.consumer, err)
	case opGet:
		o.call.got(Delivery{}, 0, false, err)
	case opPurge, opSeal:
		o.call.counted(0, err)
	case opCancel, opDetach:
		run0(o.call.done)
	case opExplain:
		o.call.explained(Explanation{Stats: *f.stats.Load(), BlockedBy: "unavailable", Lines: []string{err.Error()}})
	case opConsumers:
		o.call.listed(nil)
	case opCount:
		o.call.totals(0, 0, err)
	case opBarrier:
		o.call.ticket.Settled(o.first, o.last, out)
	}
}

// refuseAll answers everything that was taken and not sent.
func (f *far) refuseAll(err error, o Outcome) {
	if b := f.handle.in.takeUrgent(); b != nil {
		b.recycle()
	}
	if f.taken == nil {
		return
	}
	for ; f.nextOp < len(f.taken.ops); f.nextOp++ {
		op := &f.taken.ops[f.nextOp]
		if op.kind != opPublish {
			f.refuse(op, err, o)
			continue
		}
		ps := f.taken.publishes[f.nextPub : f.nextPub+int(op.n)-f.sentOfRun]
		f.nextPub += len(ps)
		f.sentOfRun = 0
		f.handle.nacks.add(o, uint64(len(ps)))
		settleAll(ps, o)
	}
	f.taken.recycle()
	f.taken = nil
}

// urgentAtOnce is how many settlements go into one message.
const urgentAtOnce = 1024

// sendUrgent sends settlements and credit; false: there is no room.
func (f *far) sendUrgent() bool {
	for {
		if f.urgent == nil {
			if f.urgent = f.handle.in.takeUrgent(); f.urgent == nil {
				return true
			}
			f.nextUrgent = 0
			f.filterUrgent()
		}
		for f.nextUrgent < len(f.urgent.ops) {
			s, out := &f.session, f.lane().outgoing()
			out.head = s.home.head(farUrgent, s.epoch, f.def.ID)
			out.ops = f.urgent.ops[f.nextUrgent:min(f.nextUrgent+urgentAtOnce, len(f.urgent.ops))]
			out.first = s.urgent + 1
			if !f.send(s.home, false, out.urgent) {
				return false
			}
			s.urgent++
			f.nextUrgent += len(out.ops)
		}
		f.urgent.recycle()
		f.urgent = nil
	}
}

// filterUrgent drops what is for nobody, and puts credit for a consumer whose
// attach the home has not answered behind that: the two go on different paths.
func (f *far) filterUrgent() {
	kept := f.urgent.ops[:0]
	for _, o := range f.urgent.ops {
		switch c := f.session.consumers[o.consumer]; {
		case o.kind == opCredit && (c == nil || !c.attached):
			f.handle.put(o)
		case c != nil:
			kept = append(kept, o)
		}
	}
	f.urgent.ops = kept
}

// sendTaken sends what was taken from the ordinary line; false: there is no room.
func (f *far) sendTaken() bool {
	for f.taken != nil {
		if f.nextOp == len(f.taken.ops) {
			f.taken.recycle()
			f.taken = nil
			break
		}
		o := &f.taken.ops[f.nextOp]
		if o.kind == opPublish && !f.sendPublishes(o) || o.kind != opPublish && !f.sendAsk(o) {
			return false
		}
		f.nextOp++
	}
	return true
}

// messageSize is about how large messages between nodes get, single bodies apart.
// A body keeps its neighbours in memory, so it is not large.
const messageSize = 64 << 10

// sendPublishes sends a run of publishes.
func (f *far) sendPublishes(o *op) bool {
	s, out := &f.session, f.lane().outgoing()
	for f.sentOfRun < int(o.n) {
		ps := f.taken.publishes[f.nextPub : f.nextPub+int(o.n)-f.sentOfRun]
		if !s.home.mayPublish() && !f.othersWait() {
			s.home.block(f)
			if !s.home.mayPublish() && !f.othersWait() {
				return false
			}
		}
		n := 1
		if chunks := ps[0].Message.Chunks; len(chunks) == 0 {
			for bytes := len(ps[0].Message.Head); n < len(ps) && n < maxMessages && len(ps[n].Message.Chunks) == 0; n++ {
				if bytes += len(ps[n].Message.Head); bytes > messageSize {
					break
				}
			}
		} else if !f.sendChunks(chunks) {
			return false
		}
		out.head = s.home.head(farPublish, s.epoch, f.def.ID)
		out.publishes, out.first = ps[:n], s.published+1
		if !f.send(s.home, true, out.publish) {
			return false
		}
		f.sent(ps[:n])
		f.nextPub += n
		f.sentOfRun += n
		f.chunksOfBig = 0
	}
	f.sentOfRun = 0
	return true
}

// othersWait reports whether something waits behind publishes that must not wait
// for the window: a consumer that will make room, perhaps.
func (f *far) othersWait() bool {
	return f.nextOp+1 < len(f.taken.ops) || f.handle.in.waitingOthers()
}

func (f *far) sendChunks(chunks [][]byte) bool {
	s := &f.session
	for f.chunksOfBig < len(chunks) {
		head, chunk := s.home.head(farChunk, s.epoch, f.def.ID), chunks[f.chunksOfBig]
		if !f.send(s.home, true, func(dst []byte) []byte { return append(head.append(dst), chunk...) }) {
			return false
		}
		f.chunksOfBig++
	}
	return true
}

// sent notes publishes that are in flight from now on.
func (f *far) sent(ps []Publish) {
	s := &f.session
	var credit *Credit
	var cost int64
	for i := range ps {
		p := &ps[i]
		if p.Credit != credit {
			credit.leftInbox(cost)
			credit, cost = p.Credit, 0
		}
		cost += p.cost()
		s.published++
		if s.runs.len() > 0 {
			l := s.runs.last()
			if !l.told && l.last+1 == s.published && l.ticket == p.Ticket && (p.Ticket == nil || l.first+(l.last-l.seq)+1 == p.Seq) {
				l.last = s.published
				continue
			}
		}
		s.runs.push(sentRun{seq: s.published, last: s.published, first: p.Seq, ticket: p.Ticket})
	}
	credit.leftInbox(cost)
	s.home.owe(s.epoch, ps)
}

// leftInbox is applied for a credit that may be nil.
func (c *Credit) leftInbox(n int64) {
	if c != nil {
		c.applied(n)
	}
}

// sendAsk sends any other operation.
func (f *far) sendAsk(o *op) bool {
	s := &f.session
	c := s.consumers[o.consumer]
	a := ask{after: s.urgent, req: s.asks + 1, consumer: o.consumer, flag: o.flag, flag2: o.flag2, n: o.n}
	switch o.kind {
	case opAttach, opGetter:
		a.kind, a.spec = askAttach, o.call.spec
		if o.kind == opGetter {
			a.kind = askGetter
		}
		if a.spec.Node == 0 {
			a.spec.Node = f.reg.self()
		}
	case opGet:
		if c == nil {
			o.call.got(Delivery{}, 0, false, f.unavailable(s.home, "the link was broken meanwhile"))
			return true
		}
		a.kind = askGet
	case opCancel, opDetach:
		if c == nil {
			run0(o.call.done)
			return true
		}
		a.kind = askCancel
		if o.kind == opDetach {
			a.kind = askDetach
		}
	case opCredit:
		if c == nil {
			return true
		}
		a.kind = askCredit
	case opPurge:
		a.kind = askPurge
	case opSeal:
		a.kind = askSeal
	case opUnseal:
		a.kind = askUnseal
	case opExplain:
		a.kind = askExplain
	case opConsumers:
		a.kind = askConsumers
	case opCount:
		a.kind = askCount
	case opBarrier:
		a.kind = askBarrier
	default:
		return true
	}
	head := s.home.head(farAsk, s.epoch, f.def.ID)
	if !f.send(s.home, true, func(dst []byte) []byte { return a.append(head.append(dst)) }) {
		return false
	}
	s.asks++
	switch o.kind {
	case opAttach, opGetter:
		if s.consumers == nil {
			s.consumers = map[queue.ConsumerID]*farConsumer{}
		}
		s.consumers[o.consumer] = &farConsumer{sink: o.call.sink, noAck: o.call.spec.NoAck, attached: o.kind == opGetter}
	}
	if o.kind != opGetter && o.kind != opCredit && o.kind != opUnseal {
		if s.asked == nil {
			s.asked = map[uint64]op{}
		}
		s.asked[s.asks] = *o
	}
	return true
}

// outgoing is what a lane encodes messages from.
type outgoing struct {
	head      farHead
	first     uint64
	publishes []Publish
	ops       []op
	scratch   []op
	sending   []Publish // of entries
	publish   func([]byte) []byte
	urgent    func([]byte) []byte
}

// outgoing returns the lane's; what is in it is good until the next use.
func (l *lane) outgoing() *outgoing {
	if l.out == nil {
		o := &outgoing{}
		o.publish, o.urgent = o.appendPublishes, o.appendUrgent
		l.out = o
	}
	return l.out
}

func (o *outgoing) appendPublishes(dst []byte) []byte {
	dst = binary.AppendUvarint(o.head.append(dst), 0) // the epoch of the publishing half
	dst = binary.AppendUvarint(dst, o.first)
	for i := range o.publishes {
		dst = appendPublish(dst, &o.publishes[i])
	}
	return dst
}

func (o *outgoing) appendUrgent(dst []byte) []byte {
	dst = binary.AppendUvarint(o.head.append(dst), o.first)
	for i := range o.ops {
		dst = appendUrgent(dst, &o.ops[i])
	}
	return dst
}
