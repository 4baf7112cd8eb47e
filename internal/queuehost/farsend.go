package queuehost

import (
	"encoding/binary"

	"holdfast/internal/queue"
)

// send sends a message to the home; false: the worker is woken when there is room.
func (f *far) send(h *home, bulk bool, append func([]byte) []byte) bool {
	if f.reg.send(h.node, bulk, append) {
		return true
	}
	h.block(f)
	return f.reg.send(h.node, bulk, append) // there was room before we stood in line
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
			for bytes := ps[0].headSize(); n < len(ps) && n < maxMessages && len(ps[n].Message.Chunks) == 0; n++ {
				if bytes += ps[n].headSize(); bytes > messageSize {
					break
				}
			}
		} else if !f.sendChunks(chunks) {
			return false
		}
		out.head = s.home.head(farPublish, s.epoch, f.def.ID)
		out.publishes, out.first, out.known = ps[:n], s.published+1, 0
		f.putBehind(out)
		if !f.send(s.home, true, out.publish) {
			return false
		}
		s.behind = max(s.behind, out.after)
		f.sent(ps[:n])
		f.nextPub += n
		f.sentOfRun += n
		f.chunksOfBig = 0
	}
	f.sentOfRun = 0
	return true
}

// putBehind has publishes that are about to be sent wait, at the home, for the settlements that were sent: they come on another path, and
// whoever settles and then publishes relies on the room that this makes, or a key that it sets free. The other way round nothing waits: as
// in RabbitMQ a settlement may come before publishes that were there first, or it would wait behind their bodies.
func (f *far) putBehind(out *outgoing) {
	out.after = 0
	if s := &f.session; s.urgent > s.behind && f.reg.examines() {
		out.head.kind, out.after = farBehind, s.urgent
	}
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
		s.consumers[o.consumer] = &farConsumer{sink: o.call.sink, noAck: o.call.spec.NoAck, getter: o.kind == opGetter, attached: o.kind == opGetter}
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
	known     uint64 // of publishes
	after     uint64 // of farBehind
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
	dst = o.head.append(dst)
	if o.head.kind == farBehind {
		dst = binary.AppendUvarint(dst, o.after)
	}
	dst = binary.AppendUvarint(dst, o.known)
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
