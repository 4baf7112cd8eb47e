package queuehost

import (
	"errors"
	"time"

	"holdfast/internal/amqperr"
	"holdfast/internal/bytecodec"
	"holdfast/internal/planted"
	"holdfast/internal/queue"
	"holdfast/internal/seglog"
	"holdfast/internal/wire"
)

// A message between the node where a client is (the entry) and the node that
// serves a queue (its home). Numbers are uvarints.
//
//	version      u8
//	kind         u8
//	incarnation  of the entry's process   \ the life of the link, as the entry
//	epoch        counts its links up      / counts it: answers carry it back
//	queue        0: about the whole link
//	try          of a quorum queue: counts the entry's attempts to resume its session; else 0
//	...          as the kind says, to the end
//
// The messages of one path (Link.Send: bulk or not) come in order, the two paths
// do not know of each other. What has to stay behind bodies goes with them.

// farVersion is the version of these messages.
const farVersion = 1

type farKind uint8

// The values are spoken between nodes of different age: they keep their meaning.
const (
	// From the entry.
	farBegin   farKind = 1 // a link begins: sessions of earlier ones are over
	farPublish farKind = 2 // bulk: up to which number the outcomes are known (0 but of a quorum queue), first number, then publishes to the end
	farChunk   farKind = 3 // bulk: a piece of the next publish's body, to the end
	farAsk     farKind = 4 // bulk: an operation, see ask
	farUrgent  farKind = 5 // number from 1 up, then settlements and credit to the end
	farClose   farKind = 6 // bulk: the session is not needed any more; after which number of farUrgent (nothing: none)
	farResume  farKind = 7 // bulk, of a quorum queue: the epoch of the publishing half that is to be opened
	farBehind  farKind = 8 // bulk: after which number of farUrgent, then as farPublish

	// From the home.
	farRoom         farKind = 16 // credit given back since the link began, and how much may be out
	farOver         farKind = 17 // the sessions of this life of the link are over
	farOutcomes     farKind = 18 // credit given back, then outcomes to the end
	farDeliver      farKind = 19 // bulk: consumer, then deliveries to the end
	farDeliverChunk farKind = 20 // bulk: consumer, then a piece of a body of its next delivery to the end
	farEvent        farKind = 21 // bulk: about a consumer, see event
	farAnswer       farKind = 22 // see answer
	farResumed      farKind = 23 // answers farResume: the session in the queue, the last publish in the epoch before, then those of them that were refused: first number, how many more
	farElsewhere    farKind = 24 // the try is over: the queue is led by the node that is named (0: nobody known to lead)
	farSettled      farKind = 25 // the settlements up to this number (of farUrgent) are carried out
)

// fromEntry reports whether a message is for the side that serves queues.
func (k farKind) fromEntry() bool { return k < farRoom }

// publishes reports whether a message has publishes.
func (k farKind) publishes() bool { return k == farPublish || k == farBehind }

// life names one life of a link, as the entry counts it.
type life struct{ incarnation, epoch uint64 }

func (l life) before(m life) bool {
	return l.incarnation < m.incarnation || l.incarnation == m.incarnation && l.epoch < m.epoch
}

// farHead is what every message begins with.
type farHead struct {
	kind  farKind
	life  life
	queue seglog.GroupID
	try   uint64
}

func (h farHead) append(dst []byte) []byte {
	dst = append(dst, farVersion, byte(h.kind))
	dst = bytecodec.AppendUint(dst, h.life.incarnation)
	dst = bytecodec.AppendUint(dst, h.life.epoch)
	dst = bytecodec.AppendUint(dst, uint64(h.queue))
	return bytecodec.AppendUint(dst, h.try)
}

// head reads the head of a message; what is left in c follows it.
func (c *cut) head() (h farHead, ok bool) {
	if c.Byte() != farVersion {
		return h, false
	}
	h.kind = farKind(c.Byte())
	h.life = life{c.Uint(), c.Uint()}
	h.queue = seglog.GroupID(c.Uint())
	h.try = c.Uint()
	return h, !c.Bad()
}

// cut cuts values off the front of a message. It borrows.
type cut struct{ bytecodec.Cursor }

func newCut(msg []byte) cut { return cut{bytecodec.Over(msg)} }

// ranges cuts ranges of numbers, in order, to the end.
func (c *cut) ranges() (list []queue.Range, ok bool) {
	for last := uint64(0); len(c.Rest) > 0 && !c.Bad(); {
		r := queue.Range{First: c.Uint()}
		if r.Last = r.First + c.Uint(); r.First <= last || r.Last < r.First {
			return nil, false
		}
		last = r.Last
		list = append(list, r)
	}
	return list, !c.Bad()
}

// ended reports whether everything was there and nothing is left.
func (c *cut) ended() bool { return c.End() == nil }

// A publish: flags (persistent, hurried, chunked, those of a transaction, carried, screened), the number of its chunks if it
// is chunked, its screen if it has one (exchange, window, keys), its head. The chunks have come before.
const (
	pubPersistent = 1 << iota
	pubHurried
	pubChunked
	pubPart   // of a transaction
	pubBare   // its head is settlements of one; others of it follow
	pubCloses // the same, and it is the last one
	pubCarried
	pubScreened
)

// appendPublish appends a publish, but for its chunks.
func appendPublish(dst []byte, p *Publish) []byte {
	n, at := len(p.Message.Chunks), len(dst)
	dst = append(dst, bytecodec.Flags(p.Persistent, p.hurried(), n > 0))
	if p.part != 0 {
		dst[len(dst)-1] |= bytecodec.Flags(false, false, false, true, p.part&txBare != 0, p.closes())
	}
	if p.Carried {
		dst[len(dst)-1] |= pubCarried
	}
	if n > 0 {
		dst = bytecodec.AppendUint(dst, uint64(n))
	}
	if s := p.Screen; s != nil && (p.part == 0 || !planted.Is(planted.ScreenUnsent)) {
		dst[at] |= pubScreened
		dst = bytecodec.AppendUint(bytecodec.AppendUint(bytecodec.AppendUint(dst, s.Exchange), uint64(s.Window)), s.Keys)
	}
	dst = bytecodec.AppendUint(dst, uint64(p.headSize()))
	if p.For != nil {
		dst = append(dst, p.For.head...)
	}
	return append(dst, p.Message.Head...)
}

// publish cuts a publish. chunks are the pieces that have come; a publish in chunks
// takes them all.
func (c *cut) publish(p *Publish, chunks *[][]byte) {
	flags := c.Byte()
	p.Carried = flags&pubCarried != 0
	screened := flags&pubScreened != 0
	flags &^= pubCarried | pubScreened
	p.Persistent = flags&pubPersistent != 0
	p.Unhurried = flags&pubHurried == 0
	if flags >= pubPart {
		p.part = unnumbered
		switch flags & (pubBare | pubCloses | pubChunked) {
		case 0, pubChunked:
		case pubBare:
			p.part |= txBare
		case pubCloses:
			p.part |= txCloses
		default:
			c.Fail()
		}
		if flags&pubPart == 0 {
			c.Fail()
		}
	}
	if flags&pubChunked != 0 {
		if n := c.Uint(); n == 0 || n != uint64(len(*chunks)) {
			c.Fail()
			return
		}
		p.Message.Chunks, *chunks = *chunks, nil
	}
	if screened {
		p.Screen = c.screen()
	}
	p.Message.Head = c.Bytes()
}

// screen cuts a screen.
func (c *cut) screen() *Screen {
	s := &Screen{Exchange: c.Uint(), Window: queue.Limit(c.Uint()), Keys: c.Uint()}
	if s.Exchange == 0 || s.Keys == 0 {
		c.Fail()
	}
	return s
}

// skipPublish cuts a publish that nobody needs and says how large it is, without its chunks.
func (c *cut) skipPublish() (size int64, chunked bool) {
	flags := c.Byte()
	chunked = flags&pubChunked != 0
	if chunked {
		c.Uint()
	}
	if flags&pubScreened != 0 {
		c.screen()
	}
	return int64(len(c.Bytes())), chunked
}

// A delivery: flags (redelivered, chunked), id, how often it came back, the number
// of chunks if it is chunked, the head of the message.
const (
	dlvRedelivered = 1 << iota
	dlvChunked
	dlvCounted
	dlvFlags
)

// appendDelivery appends a delivery whose message has this head, and its body in
// so many chunks.
func appendDelivery(dst []byte, d *Delivery, head []byte, chunks int) []byte {
	dst = append(dst, bytecodec.Flags(d.Redelivered, chunks > 0, d.Counted))
	dst = bytecodec.AppendUint(dst, d.ID)
	dst = bytecodec.AppendUint(dst, uint64(d.Count))
	if d.Counted {
		dst = bytecodec.AppendUint(dst, uint64(d.Acquired))
	}
	if chunks > 0 {
		dst = bytecodec.AppendUint(dst, uint64(chunks))
	}
	return bytecodec.AppendBytes(dst, head)
}

// delivery cuts a delivery. chunks are the pieces that have come: the last of them
// are its, those before are of one that did not come.
func (c *cut) delivery(d *Delivery, chunks *[][]byte) {
	flags := c.Byte()
	if flags >= dlvFlags {
		c.Fail()
		return
	}
	d.Redelivered = flags&dlvRedelivered != 0
	d.ID = c.Uint()
	d.Count = c.Uint32()
	if d.Counted = flags&dlvCounted != 0; d.Counted {
		d.Acquired = c.Uint32()
	}
	have := *chunks
	*chunks = nil
	if flags&dlvChunked != 0 {
		n := c.Uint()
		if n == 0 || n > uint64(len(have)) {
			c.Fail()
			return
		}
		d.Message.Chunks = have[uint64(len(have))-n:]
	}
	d.Message.Head = c.Bytes()
}

// appendUrgent appends a settlement or credit: what (how it is settled, or 16 for
// credit, 17 with drain), the consumer, and first id and how many more, or the credit.
func appendUrgent(dst []byte, o *op) []byte {
	if o.kind == opCredit {
		dst = append(dst, urgentCredit|bytecodec.Flags(o.flag))
		dst = bytecodec.AppendUint(dst, uint64(o.consumer))
		return bytecodec.AppendUint(dst, uint64(o.n))
	}
	dst = append(dst, byte(o.how))
	dst = bytecodec.AppendUint(dst, uint64(o.consumer))
	dst = bytecodec.AppendUint(dst, o.first)
	return bytecodec.AppendUint(dst, o.last-o.first)
}

const urgentCredit = 16

func (c *cut) urgent() op {
	what := c.Byte()
	o := op{kind: opSettle, how: queue.Settlement(what), consumer: queue.ConsumerID(c.Uint())}
	switch {
	case what&^1 == urgentCredit:
		o.kind, o.how, o.flag, o.n = opCredit, 0, what&1 != 0, c.Uint32()
	case o.how == queue.Ack || o.how == queue.Requeue || o.how == queue.Discard || o.how == Return || o.how == Decline:
		o.first = c.Uint()
		o.last = o.first + c.Uint()
		if o.last < o.first {
			c.Fail()
		}
	default:
		c.Fail()
	}
	return o
}

// askKind names an operation between nodes.
type askKind uint8

const (
	askAttach    askKind = 1
	askGetter    askKind = 2
	askGet       askKind = 3
	askCancel    askKind = 4
	askDetach    askKind = 5
	askCredit    askKind = 6 // behind an attach that is not answered yet
	askPurge     askKind = 7
	askSeal      askKind = 8
	askUnseal    askKind = 9
	askExplain   askKind = 10
	askConsumers askKind = 11
	askCount     askKind = 12
	askBarrier   askKind = 13
)

// ask is an operation that is neither a publish nor urgent. It is carried out when
// the settlements and credit up to number after are.
type ask struct {
	kind     askKind
	after    uint64
	req      uint64 // the answer names it
	consumer queue.ConsumerID
	flag     bool
	flag2    bool
	n        uint32
	resume   uint64 // attach: the last delivery that is known (0)
	limit    uint64 // attach: the last delivery that it may get, if credit is counted; of a quorum queue
	spec     ConsumerSpec
}

func (a *ask) append(dst []byte) []byte {
	dst = bytecodec.AppendUint(dst, a.after)
	dst = append(dst, byte(a.kind), bytecodec.Flags(a.flag, a.flag2))
	dst = bytecodec.AppendUint(dst, a.req)
	dst = bytecodec.AppendUint(dst, uint64(a.consumer))
	dst = bytecodec.AppendUint(dst, uint64(a.n))
	if a.kind == askAttach || a.kind == askGetter {
		dst = bytecodec.AppendUint(dst, a.resume)
		dst = bytecodec.AppendUint(dst, a.limit)
		dst = appendSpec(dst, &a.spec)
	}
	return dst
}

func (c *cut) ask() (a ask) {
	a.after = c.Uint()
	a.kind = askKind(c.Byte())
	flags := c.Byte()
	a.flag, a.flag2 = flags&1 != 0, flags&2 != 0
	a.req = c.Uint()
	a.consumer = queue.ConsumerID(c.Uint())
	a.n = c.Uint32()
	if a.kind == askAttach || a.kind == askGetter {
		a.resume, a.limit = c.Uint(), c.Uint()
		a.spec = c.spec()
	}
	if a.kind < askAttach || a.kind > askBarrier || flags > 3 {
		c.Fail()
	}
	return a
}

func appendSpec(dst []byte, s *ConsumerSpec) []byte {
	dst = append(dst, bytecodec.Flags(s.NoAck, s.Exclusive, s.Wake))
	dst = bytecodec.AppendUint(dst, uint64(s.Prefetch))
	dst = bytecodec.AppendUint(dst, uint64(s.Credit))
	dst = bytecodec.AppendUint(dst, uint64(uint32(s.Priority)))
	dst = bytecodec.AppendUint(dst, s.Node)
	dst = bytecodec.AppendUint(dst, s.Connection)
	dst = bytecodec.AppendUint(dst, uint64(s.Channel))
	dst = bytecodec.AppendBytes(dst, s.Tag)
	return bytecodec.AppendBytes(dst, s.Arguments)
}

// spec cuts a consumer's specification; it does not borrow, for it stays.
func (c *cut) spec() (s ConsumerSpec) {
	flags := c.Byte()
	s.NoAck, s.Exclusive, s.Wake = flags&1 != 0, flags&2 != 0, flags&4 != 0
	s.Prefetch, s.Credit, s.Priority = c.Uint32(), c.Uint32(), int32(c.Uint32())
	s.Node, s.Connection = c.Uint(), c.Uint()
	channel := c.Uint()
	s.Channel = uint16(channel)
	s.Tag = c.Text()
	args, err := wire.ParseTable(c.Bytes())
	if flags > 7 || channel > 1<<16-1 || err != nil {
		c.Fail()
	}
	s.Arguments = args.Clone()
	return s
}

// Errors between nodes.
const (
	errNone = iota
	errClient
	errOther
	errAbsent
	errDeleted
)

// What a home answers that does not run the queue.
var (
	errQueueAbsent  = errors.New("the node does not run the queue")
	errQueueDeleted = errors.New("the queue was deleted")
)

func appendError(dst []byte, err error) []byte {
	var e *amqperr.Error
	switch {
	case err == nil:
		return append(dst, errNone)
	case err == errQueueAbsent:
		return append(dst, errAbsent)
	case err == errQueueDeleted:
		return append(dst, errDeleted)
	case errors.As(err, &e):
		dst = append(dst, errClient, byte(e.Scope))
		return bytecodec.AppendBytes(bytecodec.AppendUint(dst, uint64(e.Code)), e.Text)
	}
	return bytecodec.AppendBytes(append(dst, errOther), err.Error())
}

func (c *cut) fault() error {
	switch c.Byte() {
	case errNone:
		return nil
	case errClient:
		scope, code := c.Byte(), c.Uint()
		if scope > uint8(amqperr.Connection) || code > 1<<16-1 {
			c.Fail()
		}
		return amqperr.Told(amqperr.Scope(scope), uint16(code), c.Text())
	case errOther:
		return errors.New(c.Text())
	case errAbsent:
		return errQueueAbsent
	case errDeleted:
		return errQueueDeleted
	}
	c.Fail()
	return nil
}

type eventKind uint8

const (
	eventAttached  eventKind = 1 // answers an attach: err
	eventCancel    eventKind = 2 // answers a cancel
	eventDetach    eventKind = 3 // answers a detach
	eventCancelled eventKind = 4 // err says why
	eventDrained   eventKind = 5 // n
	eventWake      eventKind = 6
	eventGot       eventKind = 7 // answers a get: err, ok; with ok n messages are left, and the delivery follows
)

// event is what happened to a consumer. Events and deliveries of one consumer come in order.
type event struct {
	kind     eventKind
	consumer queue.ConsumerID
	req      uint64
	n        uint64
	ok       bool
	err      error
	d        Delivery
}

// append appends an event; of one with a delivery, the message has head and chunks.
func (e *event) append(dst []byte, head []byte, chunks int) []byte {
	dst = append(dst, byte(e.kind), bytecodec.Flags(e.ok))
	dst = bytecodec.AppendUint(dst, uint64(e.consumer))
	dst = bytecodec.AppendUint(dst, e.req)
	dst = bytecodec.AppendUint(dst, e.n)
	dst = appendError(dst, e.err)
	if e.kind == eventGot && e.ok {
		dst = appendDelivery(dst, &e.d, head, chunks)
	}
	return dst
}

// event cuts an event, up to the delivery that may follow.
func (c *cut) event() (e event) {
	e.kind = eventKind(c.Byte())
	ok := c.Byte()
	e.ok = ok == 1
	e.consumer = queue.ConsumerID(c.Uint())
	e.req, e.n = c.Uint(), c.Uint()
	e.err = c.fault()
	if e.kind < eventAttached || e.kind > eventGot || ok > 1 {
		c.Fail()
	}
	return e
}

// outcomes is the same fate of neighbours, by their numbers in the session.
type outcomes struct {
	first, last uint64
	o           Outcome
}

func (r *outcomes) append(dst []byte) []byte {
	dst = append(dst, byte(r.o))
	dst = bytecodec.AppendUint(dst, r.first)
	return bytecodec.AppendUint(dst, r.last-r.first)
}

func (c *cut) outcomes() (r outcomes) {
	r.o = Outcome(c.Byte())
	r.first = c.Uint()
	r.last = r.first + c.Uint()
	if r.o > Gone || r.last < r.first {
		c.Fail()
	}
	return r
}

type answerKind uint8

const (
	answerCount     answerKind = 1 // of purge and seal: n
	answerTotals    answerKind = 2 // n ready, m consumers
	answerExplained answerKind = 3 // n dead, m bytes of them
	answerListed    answerKind = 4
	answerBarrier   answerKind = 5 // n is the outcome
)

// answer answers an ask that is not about a consumer.
type answer struct {
	kind      answerKind
	req       uint64
	n, m      uint64 // what they say depends on the kind
	err       error
	explained Explanation
	listed    []ConsumerInfo
}

func (a *answer) append(dst []byte) []byte {
	dst = append(dst, byte(a.kind))
	for _, v := range []uint64{a.req, a.n, a.m} {
		dst = bytecodec.AppendUint(dst, v)
	}
	dst = appendError(dst, a.err)
	switch a.kind {
	case answerExplained:
		dst = appendExplanation(dst, &a.explained)
	case answerListed:
		for i := range a.listed {
			l := &a.listed[i]
			dst = append(dst, byte(l.Is))
			dst = bytecodec.AppendUint(dst, uint64(l.ID))
			dst = bytecodec.AppendUint(dst, l.Unacked)
			dst = appendSpec(dst, &l.Spec)
		}
	}
	return dst
}

func (c *cut) answer() (a answer) {
	a.kind = answerKind(c.Byte())
	a.req, a.n, a.m = c.Uint(), c.Uint(), c.Uint()
	a.err = c.fault()
	switch a.kind {
	case answerCount, answerTotals:
	case answerExplained:
		a.explained = c.explanation()
	case answerListed:
		for len(c.Rest) > 0 {
			is := Activity(c.Byte())
			l := ConsumerInfo{Is: is, ID: queue.ConsumerID(c.Uint()), Unacked: c.Uint(), Spec: c.spec()}
			if is >= activities {
				c.Fail()
			}
			if !c.Bad() {
				a.listed = append(a.listed, l)
			}
		}
	case answerBarrier:
		if a.n > uint64(Gone) {
			c.Fail()
		}
	default:
		c.Fail()
	}
	return a
}

// each calls fn for all counters, in the order in which they are sent: new ones come last.
func (s *Stats) each(fn func(*uint64)) {
	for _, p := range []*uint64{
		&s.Ready, &s.Unacked, &s.Consumers, &s.Published, &s.Delivered, &s.Acked, &s.Redelivered,
		&s.Gets, &s.GetsEmpty, &s.BodiesInMemory, &s.BodiesSpilled, &s.Unstable,
	} {
		fn(p)
	}
}

func appendExplanation(dst []byte, x *Explanation) []byte {
	x.Stats.each(func(p *uint64) { dst = bytecodec.AppendUint(dst, *p) })
	dst = bytecodec.AppendUint(dst, uint64(x.OldestUnacked))
	dst = bytecodec.AppendBytes(dst, x.BlockedBy)
	for _, l := range x.Lines {
		dst = bytecodec.AppendBytes(dst, l)
	}
	if x.Delayed > 0 { // a line that is none: there are such messages only where all nodes know of it
		dst = bytecodec.AppendBytes(dst, bytecodec.AppendUint([]byte{0}, x.Delayed))
	}
	return dst
}

func (c *cut) explanation() (x Explanation) {
	x.Stats.each(func(p *uint64) { *p = c.Uint() })
	x.OldestUnacked = time.Duration(c.Uint())
	x.BlockedBy = c.Text()
	for len(c.Rest) > 0 {
		l := c.Bytes()
		switch {
		case c.Bad():
		case len(l) > 0 && l[0] == 0:
			d := bytecodec.Over(l[1:])
			if x.Delayed = d.Uint(); d.End() != nil {
				c.Fail()
			}
		default:
			x.Lines = append(x.Lines, string(l))
		}
	}
	return x
}
