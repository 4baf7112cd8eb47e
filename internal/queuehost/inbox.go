package queuehost

import (
	"sync"

	"holdfast/internal/queue"
)

// inbox is where commands for one queue wait for its worker. Putting costs one
// lock a call; the worker takes all at once.
//
// Settlements and credit have a line of their own, which goes first: a consumer
// must not wait behind the bodies of a publisher that is faster than it. Nothing
// is lost by it: a settlement names deliveries that were made, and credit for a
// consumer that is still in the other line is put behind it.
type inbox struct {
	mu     sync.Mutex
	b      *batch // nil when empty: an idle queue holds no memory for it
	urgent *batch // settlements and credit; nil when empty
}

// batch is commands in the order in which they came: ops, and for a run of
// publishes one op that stands for the next n of publishes.
type batch struct {
	publishes []Publish
	ops       []op
}

type opKind uint8

const (
	opPublish opKind = iota
	opAttach
	opGetter
	opGet
	opCancel
	opDetach
	opSettle
	opCredit
	opPurge
	opSeal
	opUnseal
	opDrop
	opQuarantine
	opExplain
	opConsumers
	opCount
	opBarrier
	opResume   // the rest: of a session with a quorum queue
	opReattach // first: the last delivery received; last: the last one it may get
	opMark     // settlements up to number first are among those before
	opBury     // first, last: dead letters
	opTellDead
	opAbort // n: the transaction
)

// op is one command. It is a flat union, so that the frequent ones cost no allocation.
type op struct {
	kind        opKind
	how         queue.Settlement // settle
	flag, flag2 bool             // credit: drain; get: no-ack; seal: if unused, if empty
	n           uint32           // publish: how many; credit: how much
	consumer    queue.ConsumerID
	first, last uint64 // settle: delivery ids; barrier: the ticket's numbers
	call        *call  // the rare ones, and all of sessions with quorum queues
}

// call is the part of a rare command that does not fit into an op.
type call struct {
	spec      ConsumerSpec
	sink      Consumer
	reason    error
	attached  func(queue.ConsumerID, error)
	got       func(Delivery, uint64, bool, error)
	counted   func(uint64, error)
	done      func()
	explained func(Explanation)
	listed    func([]ConsumerInfo)
	totals    func(ready, consumers uint64, err error)
	ticket    Ticket   // barrier
	guest     *session // whose it is, of a quorum queue
}

// What a batch may keep for its next use.
const (
	keepPublishes = 8192
	keepOps       = 8192
)

var batches = sync.Pool{New: func() any { return new(batch) }}

// lock returns the batch to append to, with the mutex held.
func (in *inbox) lock() *batch {
	in.mu.Lock()
	if in.b == nil {
		in.b = batches.Get().(*batch)
	}
	return in.b
}

// lockUrgent does the same for the line that goes first.
func (in *inbox) lockUrgent() *batch {
	in.mu.Lock()
	if in.urgent == nil {
		in.urgent = batches.Get().(*batch)
	}
	return in.urgent
}

// take returns everything that waits in the ordinary line, or nil.
func (in *inbox) take() *batch {
	in.mu.Lock()
	b := in.b
	in.b = nil
	in.mu.Unlock()
	return b
}

// takeUrgent returns everything that waits in the line that goes first, or nil.
func (in *inbox) takeUrgent() *batch {
	in.mu.Lock()
	b := in.urgent
	in.urgent = nil
	in.mu.Unlock()
	return b
}

// waitingUrgent reports whether anything waits in the line that goes first.
func (in *inbox) waitingUrgent() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.urgent != nil
}

// waitingOthers reports whether anything but publishes waits in the ordinary line.
func (in *inbox) waitingOthers() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.b != nil && (len(in.b.ops) > 1 || len(in.b.ops) == 1 && in.b.ops[0].kind != opPublish)
}

// waiting reports whether anything waits.
func (in *inbox) waiting() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.b != nil || in.urgent != nil
}

// recycle gives a batch back that nothing refers to any more.
func (b *batch) recycle() {
	if cap(b.publishes) > keepPublishes {
		b.publishes = nil
	}
	if cap(b.ops) > keepOps {
		b.ops = nil
	}
	clear(b.publishes)
	clear(b.ops)
	b.publishes, b.ops = b.publishes[:0], b.ops[:0]
	batches.Put(b)
}

// publish appends publishes; a run of them is one op.
func (b *batch) publish(ps []Publish) {
	b.publishes = append(b.publishes, ps...)
	if n := len(b.ops); n > 0 && b.ops[n-1].kind == opPublish {
		b.ops[n-1].n += uint32(len(ps))
		return
	}
	b.ops = append(b.ops, op{kind: opPublish, n: uint32(len(ps))})
}

// settle appends a settlement; one that continues the last is joined with it.
func (b *batch) settle(id queue.ConsumerID, r queue.Range, how queue.Settlement) {
	if n := len(b.ops); n > 0 {
		l := &b.ops[n-1]
		if l.kind == opSettle && l.consumer == id && l.how == how && l.last+1 == r.First {
			l.last = r.Last
			return
		}
	}
	b.ops = append(b.ops, op{kind: opSettle, how: how, consumer: id, first: r.First, last: r.Last})
}
