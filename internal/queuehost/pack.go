package queuehost

import (
	"holdfast/internal/queue"
	"holdfast/internal/replica"
)

// pack is what one entry is made of, from Pack to Apply.
type pack struct {
	cmds     []queue.Command
	runs     []run     // the publishes, in order
	asks     []pending // commands that somebody waits for
	marks    []mark    // of sessions with a quorum queue
	seals    []op      // of a quorum queue
	ended    []*leadSession
	held     [][]Publish // the publishes, until they are applied, of a quorum queue
	must     bool        // there is something to do though nobody has asked for it
	sets     bool        // there is a Set
	barriers []wait      // of the entry as a whole
	done     *batch      // used up with this entry
	from     *batch      // the publishes of the runs
	// bytes of items and messages, which bound an entry.
	bytes    int
	messages int
	lanes    []inLane // the messages, by lane
	ready    int64    // ready messages after it at least, if nobody consumes
	examine  bool     // what messages say of priority and expiration counts
	weigh    bool     // their sizes count
	delays   bool     // they wait before they are ready, for
	delay    uint64   // ns, or what they say themselves
	forwards bool     // nothing else counts that they say
	refuses  bool     // the machine may refuse publishes
	paused   bool     // nothing is delivered
	top      uint8    // the highest priority there is
	keys     queue.KeySource
}

// inLane is messages of one lane.
type inLane struct {
	lane uint8
	n    int
}

// run is publishes that are enqueued together.
type run struct {
	from, to   int // of the batch's publishes
	persistent bool
	cmd        uint32 // the Enqueue
}

// pending is a command whose effects answer a call.
type pending struct {
	cmd  uint32
	call *call
}

func (p *pack) reset() {
	clear(p.asks)
	clear(p.barriers)
	clear(p.marks)
	clear(p.ended)
	clear(p.seals)
	clear(p.held)
	*p = pack{
		cmds: p.cmds[:0], runs: p.runs[:0], asks: p.asks[:0], barriers: p.barriers[:0],
		marks: p.marks[:0], ended: p.ended[:0], held: p.held[:0], seals: p.seals[:0], lanes: p.lanes[:0],
	}
}

// step says how packing goes on after an op.
type step uint8

const (
	next     step = iota // with the next op
	full                 // with the next entry, at the same op
	followup             // with the next entry, which has to know what this one did
)

// maxMessages is how many messages an entry has at most. More would save
// nothing, and delay who comes after them.
const maxMessages = 1024

// Pack implements replica.Host.
func (h *host) Pack(e *replica.Entry) (more bool) {
	h.lane.arrived()
	if h.lead != nil && !h.lead.serving && h.m != nil {
		h.startLeading() // after an entry that was not taken
	}
	carried := h.taken != nil || h.urgent != nil
	if h.taken == nil {
		h.taken = h.handle.in.take()
		h.nextOp, h.nextPub, h.packedOfRun, h.chunksOfBig = 0, 0, 0, 0
	}
	if h.lead != nil && h.holdBack() {
		return false
	}
	p := h.lane.newPack()
	if h.m != nil {
		p.ready = int64(h.m.Ready())
		p.from = h.taken
		h.begin(e, p)
	}
	preface := len(p.cmds)
	if h.deferred {
		// It has waited for its turn; those that go first would make it wait
		// again, and for ever if they do not stop.
		h.packOp(e, p, preface)
		h.deferred = false
	}
	if h.packUrgent(p) {
		h.packTaken(e, p, preface)
	}
	if h.m == nil || len(p.cmds) == preface && !h.mustRecoverNow() && !p.must {
		p.cmds = p.cmds[:0] // nothing asks for them, or the queue has just ended
	}
	// What came while a batch was carried over from the last round has not woken
	// the group: it was awake.
	more = h.taken != nil || h.urgent != nil || carried && h.handle.in.waiting()
	if len(p.cmds) == 0 {
		h.schedule(e.Time)
		p.tellMarks()
		if p.done != nil {
			p.done.recycle()
		}
		h.lane.freePack(p)
		return more
	}
	h.seal(e, p)
	return more
}

// packTaken packs what was taken from the ordinary line, as far as it goes.
func (h *host) packTaken(e *replica.Entry, p *pack, preface int) {
	if h.taken == nil {
		return
	}
	for int(h.nextOp) < len(h.taken.ops) {
		if how := h.packOp(e, p, preface); how != next {
			h.deferred = how == followup
			return
		}
		if h.taken == nil {
			return // the member has ended, and nothing waits any more
		}
	}
	p.done, h.taken = h.taken, nil
}

// packUrgent packs settlements and credit, all that there are: what was taken from the ordinary
// line before may not overtake them. It reports whether there is room for more.
func (h *host) packUrgent(p *pack) bool {
	for {
		if h.urgent == nil {
			h.urgent, h.nextUrgent = h.handle.in.takeUrgent(), 0
		}
		if h.urgent == nil {
			return true
		}
		if !h.packUrgentBatch(p) {
			return false
		}
	}
}

func (h *host) packUrgentBatch(p *pack) bool {
	for ; int(h.nextUrgent) < len(h.urgent.ops); h.nextUrgent++ {
		if len(p.cmds) >= replica.MaxEntryCommands {
			return false
		}
		switch o := &h.urgent.ops[h.nextUrgent]; {
		case h.m == nil:
		case !h.current(o):
		case o.kind == opMark:
			p.mark(o)
		case o.kind == opSettle:
			h.packSettle(p, o)
		case h.consumers[o.consumer] == nil:
			h.handle.put(*o) // its Attach is still in the other line, or it has left
		default:
			packCredit(p, o)
		}
	}
	h.urgent.recycle()
	h.urgent = nil
	return true
}

func packCredit(p *pack, o *op) {
	p.cmds = append(p.cmds, queue.Command{Kind: queue.Credit, Consumer: o.consumer, Credit: o.n, Drain: o.flag})
}

// begin puts the commands that have to come first into the entry.
func (h *host) begin(e *replica.Entry, p *pack) {
	if h.configure {
		h.packSettings(p)
	}
	if h.lead != nil {
		h.lead.named = 0
		h.packNodes(p)
	}
	if h.recover {
		p.cmds = append(p.cmds, queue.Command{Kind: queue.Recover, Clean: h.clean})
	}
	alerts := h.alert.And(watchedStall)
	h.unset = h.unset || alerts&alertSettings != 0
	if alerts&alertSettings != 0 && h.lead != nil && h.lead.serving && !h.unknown() {
		h.openUp()
	}
	if h.unset && !h.configure {
		h.packSettings(p)
	}
	if alerts&alertDue != 0 {
		h.packDue(e, p)
	}
	if alerts&alertStall != 0 {
		h.lookStalled()
	}
	if alerts&(alertReweigh|alertWeighing) != 0 {
		h.packWeighing(p, alerts&alertReweigh != 0)
	}
	h.packAsSet(p)
}

// seal ends the entry.
func (h *host) seal(e *replica.Entry, p *pack) {
	h.configure, h.recover, h.unset = false, false, false
	if h.logged {
		e.Meta = queue.AppendCommands(e.Meta, p.cmds)
		if h.lead == nil && !h.handedOut && !h.holding && h.mayHandOut(p) {
			e.Sync = true // deliveries will wait for it
		}
	}
	e.Pack()
	h.pack = p
	if h.lead != nil {
		p.plant()
	}
}

// mayHandOut reports whether the entry may be the one that hands out first: a
// persistent message, that is. Transient ones wait for nothing.
func (h *host) mayHandOut(p *pack) bool {
	if !h.persistent {
		return false
	}
	if h.m.Consumers() > 0 {
		return true
	}
	for i := range p.cmds {
		if k := p.cmds[i].Kind; k == queue.Attach || k == queue.Get {
			return true
		}
	}
	return false
}

// packOp packs the op at nextOp, as far as it goes.
func (h *host) packOp(e *replica.Entry, p *pack, preface int) step {
	o := &h.taken.ops[h.nextOp]
	if o.kind == opPublish {
		return h.packPublishes(e, p, o)
	}
	if len(p.cmds) >= replica.MaxEntryCommands {
		return full
	}
	how := h.packCommand(e, p, o, len(p.cmds) > preface || h.mustRecoverNow())
	if how == next {
		h.nextOp++
	}
	return how
}

// packCommand packs or answers anything but publishes. behind says that the
// entry has commands already, so that what the machine says may not be true any more.
func (h *host) packCommand(e *replica.Entry, p *pack, o *op, behind bool) step {
	if h.m == nil {
		h.refuse(o)
		return next
	}
	switch o.kind {
	case opAttach:
		if err := h.refusal(); err != nil {
			o.call.attached(o.consumer, err)
			return next
		}
		if !h.current(o) {
			return next
		}
		h.addConsumer(o, false)
		h.attach(e, p, h.consumers[o.consumer], o)
	case opGetter:
		if h.current(o) {
			h.addConsumer(o, true)
		}
	case opResume:
		return h.packResume(e, p, o)
	case opReattach:
		h.packReattach(p, o)
	case opGet:
		return h.packGet(e, p, o, behind)
	case opCancel:
		p.ask(queue.Command{Kind: queue.Cancel, Consumer: o.consumer}, o.call)
	case opDetach:
		if c := h.consumers[o.consumer]; c != nil && !c.attached {
			delete(h.consumers, o.consumer)
			run0(o.call.done)
			return next
		}
		p.ask(queue.Command{Kind: queue.Detach, Consumer: o.consumer}, o.call)
	case opCredit:
		if h.consumers[o.consumer] != nil && h.current(o) {
			packCredit(p, o)
		}
	case opPurge:
		if p.ready <= 0 && h.m.Delayed() == 0 && !behind {
			o.call.counted(0, nil)
			return next
		}
		p.ask(queue.Command{Kind: queue.Purge}, o.call)
		p.ready = 0
	case opBury:
		p.cmds = append(p.cmds, queue.Command{Kind: queue.Bury, First: o.first, Last: o.last})
	case opAbort:
		h.packAbort(p, o.n)
	case opTellDead:
		if behind {
			return followup
		}
		h.deadAgain()
	case opBarrier:
		if h.handle.in.waitingUrgent() {
			return followup // a settlement that came before it may be among them
		}
		h.packBarrier(e, p, o)
	case opUnseal:
		if behind {
			return followup // a batch begins with it
		}
		h.unseal(p)
	default:
		// What follows looks at the machine, and so waits until the entry is applied.
		if behind {
			return followup
		}
		if o.kind == opSeal && h.lead != nil && h.refusal() == nil {
			// What it decides has to be true of the queue, not only of what a leader
			// believes that others have left meanwhile: it is decided when an entry is applied.
			p.seals = append(p.seals, *o)
			p.cmds = append(p.cmds, queue.Command{Kind: queue.Configure, AutoDelete: h.known().AutoDelete})
			return next
		}
		h.administer(o)
	}
	return next
}

// unseal takes a seal back: what came meanwhile is taken now, before all that
// came later.
func (h *host) unseal(p *pack) {
	h.sealed = false
	parked := h.unpark()
	if len(parked) == 0 {
		return
	}
	b, rest := batches.Get().(*batch), h.taken
	b.ops = append(b.ops, rest.ops[h.nextOp]) // the unseal that is being packed
	b.publish(parked)
	b.ops = append(b.ops, rest.ops[h.nextOp+1:]...)
	b.publishes = append(b.publishes, rest.publishes[h.nextPub:]...)
	rest.recycle()
	h.taken, h.nextOp, h.nextPub, p.from = b, 0, 0, b
}

// packBarrier puts a command into the entry that changes nothing, so that there
// is something to wait for.
func (h *host) packBarrier(e *replica.Entry, p *pack, o *op) {
	p.barriers = append(p.barriers, wait{ticket: o.call.ticket, first: o.first, last: o.last})
	p.cmds = append(p.cmds, queue.Command{Kind: queue.Configure, AutoDelete: h.known().AutoDelete})
	e.Sync = true
}

// ask adds a command that somebody waits for.
func (p *pack) ask(c queue.Command, call *call) {
	p.asks = append(p.asks, pending{uint32(len(p.cmds)), call})
	p.cmds = append(p.cmds, c)
}

func (h *host) addConsumer(o *op, getter bool) {
	if h.consumers == nil {
		h.consumers = map[queue.ConsumerID]*consumer{}
	}
	c := &consumer{id: o.consumer, spec: o.call.spec, sink: o.call.sink, getter: getter}
	h.consumers[o.consumer] = c
	h.limitHolding(c, false)
}

// attach packs the Attach of a consumer or getter. o is what it is needed for.
func (h *host) attach(e *replica.Entry, p *pack, c *consumer, o *op) {
	c.attached = true
	h.touch()
	h.openSession(e, p)
	c.session = h.sessionFor(o)
	answered := o.call
	if c.getter {
		answered = nil
	}
	p.ask(queue.Command{
		Kind: queue.Attach, Consumer: c.id, Session: c.session, Getter: c.getter, Outer: c.spec.outer,
		Prefetch: c.spec.Prefetch, Credit: c.spec.Credit, NoAck: c.spec.NoAck && !c.spec.relayed,
		Exclusive: c.spec.Exclusive, Wake: c.spec.Wake, Priority: c.spec.Priority,
		Terms: h.terms(c),
	}, answered)
}

// openSession packs the SessionOpen of this incarnation, once. The entry's index
// makes its name: no incarnation uses it twice.
func (h *host) openSession(e *replica.Entry, p *pack) {
	if h.session != 0 || h.lead != nil {
		return
	}
	h.session = queue.SessionID(e.Index)
	p.cmds = append(p.cmds, queue.Command{Kind: queue.SessionOpen, Session: h.session})
}

// packGet packs a Get, unless it is plain that there is nothing to get: then
// nothing is written.
func (h *host) packGet(e *replica.Entry, p *pack, o *op, behind bool) step {
	if err := h.refusal(); err != nil {
		o.call.got(Delivery{}, 0, false, err)
		return next
	}
	h.touch()
	c := h.consumers[o.consumer]
	if p.ready <= 0 || c == nil || p.paused {
		if behind {
			return followup
		}
		h.stats.getsEmpty.Add(1)
		h.hand(held{kind: queue.Empty, call: o.call})
		return next
	}
	if !h.current(o) {
		o.call.got(Delivery{}, 0, false, h.noQueue())
		return next
	}
	if !c.attached {
		h.attach(e, p, c, o)
	}
	p.ask(queue.Command{Kind: queue.Get, Session: c.session, Consumer: c.id, NoAck: o.flag}, o.call)
	p.ready--
	return next
}

// meant is how a settlement is said to the machine.
func (h *host) meant(s queue.Settlement) (how queue.Settlement, blameless bool) {
	switch s {
	case Return:
		return queue.Requeue, true
	case Decline: // nobody hears of it but a dead letter
		return queue.Discard, h.m.Settings().DeadLetter != queue.NoDeadLetter
	}
	return s, false
}

// packSettle packs a settlement, joined with the last one if it continues it.
func (h *host) packSettle(p *pack, o *op) {
	session := h.session
	if h.lead != nil {
		session = h.sessionFor(o)
	}
	if session == 0 {
		return // nobody has been given anything
	}
	how, blameless := h.meant(o.how)
	if n := len(p.cmds); n > 0 {
		l := &p.cmds[n-1]
		if l.Kind == queue.Settle && l.Consumer == o.consumer && l.How == how && l.Blameless == blameless && l.Last+1 == o.first {
			l.Last = o.last
			return
		}
	}
	p.cmds = append(p.cmds, queue.Command{
		Kind: queue.Settle, Session: session, Consumer: o.consumer, How: how, Blameless: blameless, First: o.first, Last: o.last,
	})
}
