package queuehost

import (
	"sync/atomic"

	"holdfast/internal/amqperr"
	"holdfast/internal/queue"
	"holdfast/internal/replica"
)

// host is a queue on its worker. It implements replica.Host. Fields without
// another word belong to the worker.
type host struct {
	handle      Handle
	reg         *Registry
	lane        *lane
	group       *replica.Group
	def         QueueDef                 // set before the worker can see the host
	named       atomic.Pointer[QueueDef] // what the catalog says of a queue whose worker was at work before it did; else nil
	unavailable atomic.Pointer[amqperr.Error]
	stats       counters

	lead *lead // of a member of a quorum queue

	m         *queue.Machine // nil once the queue is gone or cannot be read
	consumers map[queue.ConsumerID]*consumer
	bodies    bodies
	session   queue.SessionID // the session of this incarnation; 0: not open yet
	uploads   uint64          // big messages put in so far

	used int64 // clock.Mono when somebody used the queue last, if it expires
	due  int64 // clock.Mono when time has to be looked at, 0: no matter when; guarded by the mutex of Registry.dues

	aside *aside // or nil

	// What was taken from the inbox, and how far it is packed.
	urgent      *batch
	taken       *batch
	alert       atomic.Uint32 // alertDue and others; here, since it is small
	nextPub     int32
	nextOp      int32
	nextUrgent  int32
	packedOfRun int32 // publishes of the op at nextOp that are packed
	chunksOfBig int32 // chunks of the publish at nextPub that are packed
	pack        *pack
	waits       fifo[wait]   // for the disk
	unstable    fifo[logged] // items of entries that are not on disk
	holdUntil   uint64
	held        []held

	// What is small is together, since there may be many queues: see TestSizes.
	logged     bool
	claimed    bool // the catalog knows the queue; guarded by the registry's mutex
	expected   bool // the catalog may come to know it: it recovers, though nobody has claimed it
	configure  bool // the first command has yet to be Configure, or Set
	unset      bool // the machine may not be set as the catalog says
	recover    bool // the first command has yet to be Recover
	clean      bool // what it says about the stop before
	sealed     bool
	gone       bool
	persistent bool // there is, or was in this incarnation, a persistent message
	items      bool // something of the queue's may be in the log: releases have to be told
	consumed   bool // consumers were there, as of the last entry, if the queue expires
	deferred   bool // the op at nextOp has to see the machine as the last entry left it
	holding    bool // effects are held back until entry holdUntil is on disk
	handedOut  bool // the entry that handed out first is on disk
}

// aside is what few hosts have.
type aside struct {
	reason string    // why the queue cannot be read
	parked []Publish // came while it was sealed: whether they are Gone is not decided

	overdue  overdue
	weighing *weighing // nil: no size is to be found out
}

// besides returns h.aside, made if it is not there.
func (h *host) besides() *aside {
	if h.aside == nil {
		h.aside = &aside{}
	}
	return h.aside
}

// unpark takes what was parked.
func (h *host) unpark() (ps []Publish) {
	if h.aside != nil {
		ps, h.aside.parked = h.aside.parked, nil
	}
	return ps
}

// reason is why the queue cannot be read, or "".
func (h *host) reason() string {
	if h.aside == nil {
		return ""
	}
	return h.aside.reason
}

// consumer is a consumer or getter on its host.
type consumer struct {
	id       queue.ConsumerID
	spec     ConsumerSpec
	sink     Consumer // nil: of a quorum queue, and nobody has resumed it
	getter   bool
	attached bool            // its Attach is packed
	ended    bool            // it gets nothing more: a leader before this one saw it end, and it may not have been told
	timeout  int64           // ns for which it may hold a delivery; 0: for ever
	session  queue.SessionID // whose it is, of a quorum queue
	out      []Delivery      // of the effects being carried out
}

// logged is a range of items that entry index has put into the log.
type logged struct {
	index uint64
	queue.Numbers
}

// fifo is a queue that keeps little memory when it is empty.
type fifo[T any] struct {
	list []T
	head int
}

// keepFifo is how many elements an empty fifo keeps room for.
const keepFifo = 4

func (f *fifo[T]) len() int { return len(f.list) - f.head }

func (f *fifo[T]) push(v T) {
	if f.head > 0 && len(f.list) == cap(f.list) && f.head >= len(f.list)/2 {
		n := copy(f.list, f.list[f.head:])
		clear(f.list[n:])
		f.list, f.head = f.list[:n], 0
	}
	f.list = append(f.list, v)
}

func (f *fifo[T]) front() *T { return &f.list[f.head] }

func (f *fifo[T]) last() *T { return &f.list[len(f.list)-1] }

func (f *fifo[T]) pop() {
	var zero T
	f.list[f.head] = zero
	f.head++
	if f.head == len(f.list) {
		f.head = 0
		if f.list = f.list[:0]; cap(f.list) > keepFifo {
			f.list = nil
		}
	}
}

// newHost returns the host of a queue whose group is added by the caller, which tells it.
func (r *Registry) newHost(def QueueDef) *host {
	h := &host{reg: r, def: def, logged: def.logged(), m: queue.New()}
	h.lane = r.lanes[r.o.Node.ShardOf(def.ID)]
	h.handle.host, h.bodies.host = h, h
	return h
}

// known is the queue's definition as far as the catalog has told it.
func (h *host) known() *QueueDef {
	if def := h.named.Load(); def != nil {
		return def
	}
	return &h.def
}

var _ replica.GroupedHost = (*host)(nil)

// SetGroup implements replica.GroupedHost.
func (h *host) SetGroup(g *replica.Group) { h.group, h.handle.group = g, g }

// noQueue is the answer of a queue that is not there any more.
func (h *host) noQueue() error { return amqperr.NoQueue(h.known().VHost, h.known().Name) }

// refusal is why the queue takes nothing, or nil.
func (h *host) refusal() error {
	switch {
	case h.gone || h.sealed:
		return h.noQueue()
	case h.unavailable.Load() != nil:
		return h.unavailable.Load()
	}
	return nil
}
