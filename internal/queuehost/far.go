package queuehost

import (
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
	behind    uint64 // what was sent last waits for those up to this number
	asks      uint64 // number of the last ask
	asked     map[uint64]op
	consumers map[queue.ConsumerID]*farConsumer
	runs      fifo[sentRun]
}

// farConsumer is a consumer or getter of a session.
type farConsumer struct {
	sink     Consumer
	noAck    bool
	attached bool // the home has answered, once
	silent   bool // cancelled: it gets nothing any more, and holds what it has
	getter   bool
	chunks   [][]byte // of the message that is coming

	// Of a quorum queue. Delivery ids are those that the consumer knows; those of the session in the
	// queue are lower by base: sessions that are over have given out as many.
	spec       ConsumerSpec
	cancels    bool // it asked for a cancellation when there is no leader
	leaving    bool // it is being detached
	quits      bool // its client has asked for its cancellation
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
	f.skipTx(o)
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

// tell tells publishes that were sent what became of them, once.
func (f *far) tell(r *sentRun, o Outcome) {
	if r.told {
		return
	}
	r.told, o = true, f.told(o)
	f.handle.nacks.add(o, r.last-r.seq+1)
	if r.ticket != nil {
		r.ticket.Settled(r.first, r.first+(r.last-r.seq), o)
	}
}

// refuse answers an operation that was not carried out, or of which nobody knows.
func (f *far) refuse(o *op, err error, out Outcome) { o.refuse(err, out, *f.stats.Load()) }

// refuseAll answers everything that was taken and not sent.
func (f *far) refuseAll(err error, o Outcome) {
	if f.urgent = f.handle.in.takeUrgent(); f.urgent != nil {
		f.filterUrgent() // an attach that is still in the other line is not refused yet
		f.urgent.recycle()
		f.urgent = nil
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
		f.handle.nacks.add(f.told(o), uint64(len(ps)))
		settleAll(ps, f.told(o))
	}
	f.taken.recycle()
	f.taken = nil
}
