package queuehost

import (
	"holdfast/internal/invariant"
	"holdfast/internal/message"
	"holdfast/internal/planted"
	"holdfast/internal/queue"
	"holdfast/internal/replica"
)

// packPublishes packs as many of a run of publishes as the entry takes.
func (h *host) packPublishes(e *replica.Entry, p *pack, o *op) step {
	invariant.Pass("queuehost", "publish packed")
	if h.m == nil || h.refusal() != nil {
		ps := h.taken.publishes[h.nextPub : h.nextPub+int32(o.n)-h.packedOfRun]
		if h.m != nil && h.sealed {
			a := h.besides()
			a.parked = append(a.parked, ps...)
		} else {
			h.turnAway(ps, h.publishRefused())
		}
		h.nextPub += int32(len(ps))
		h.nextOp, h.packedOfRun, h.chunksOfBig = h.nextOp+1, 0, 0
		return next
	}
	for int(h.packedOfRun) < int(o.n) {
		if p.messages >= maxMessages || p.bytes >= replica.MaxEntryBytes ||
			len(p.cmds) >= replica.MaxEntryCommands {
			return full
		}
		m := &h.taken.publishes[h.nextPub]
		var from *leadSession
		if h.lead != nil {
			if from = h.lead.of(guestOf(m.Ticket)); from == nil {
				settleAll(h.taken.publishes[h.nextPub:h.nextPub+1], Unknown) // it comes again
				h.nextPub, h.packedOfRun, h.chunksOfBig = h.nextPub+1, h.packedOfRun+1, 0
				continue
			}
		}
		if m.part != 0 {
			h.openSession(e, p)
		}
		if m.bare() {
			if !h.packBare(e, p, m, from) {
				return full
			}
		} else if len(m.Message.Chunks) > 0 {
			if !h.packBig(e, p, m, from) {
				return full
			}
		} else {
			h.packSmall(e, p, int(o.n)-int(h.packedOfRun), from)
		}
	}
	h.nextOp, h.packedOfRun = h.nextOp+1, 0
	return next
}

// packSmall packs small messages of one kind, at most limit of them, as one Enqueue.
func (h *host) packSmall(e *replica.Entry, p *pack, limit int, of *leadSession) {
	ps := h.taken.publishes
	from := int(h.nextPub)
	persistent := h.isPersistent(&ps[from])
	h.persistent = h.persistent || persistent
	kind, plain, part := h.traits(p, &ps[from]), p.plain(&ps[from]), ps[from].part
	r := run{from: from, persistent: persistent, cmd: uint32(len(p.cmds))}
	n := h.numberAfter(p, kind.lane)
	bytes := 0
	to := from
	if p.keys != queue.NoKey || ps[from].Screen != nil {
		limit = 1
	}
	for to < from+limit {
		m := &ps[to]
		if len(m.Message.Chunks) > 0 || m.part != part || m.Carried != ps[from].Carried || m.Screen != ps[from].Screen || h.isPersistent(m) != persistent || of != nil && m.Ticket != ps[from].Ticket {
			break
		}
		if to > from && (p.plain(m) != plain || !plain && h.traits(p, m) != kind) {
			break
		}
		if to > from && (p.bytes+bytes >= replica.MaxEntryBytes || p.messages+to-from >= maxMessages) {
			break
		}
		h.keep(e, n, m.Message.Head, persistent)
		if persistent && m.hurried() {
			e.Sync = true
		}
		bytes += len(m.Message.Head)
		n++
		to++
	}
	r.to = to
	p.runs = append(p.runs, r)
	count := to - from
	p.cmds = append(p.cmds, queue.Command{
		Kind: queue.Enqueue, Count: uint32(count), Persistent: persistent, Bytes: uint64(bytes), Lane: kind.lane,
	})
	l := &p.cmds[len(p.cmds)-1]
	if p.weigh {
		l.Bytes = kind.size * uint64(count)
	}
	l.Terms = kind.terms()
	p.keyed(l, &ps[from])
	if part != 0 {
		h.partOf(l, part, of)
	} else if kind.delay == 0 {
		p.ready += int64(count)
	}
	if of != nil {
		if part == 0 {
			p.enqueued(l, of, ps[to-1].Seq)
		}
		p.held = append(p.held, ps[from:to])
	}
	p.bytes += bytes
	p.put(kind.lane, count)
	h.nextPub = int32(to)
	h.packedOfRun += int32(count)
}

// isPersistent reports whether a message goes to the log. In a quorum queue all do.
func (h *host) isPersistent(m *Publish) bool { return h.logged && (m.Persistent || h.lead != nil) }

// keep puts an item into memory and, if it is to go there, into the log.
func (h *host) keep(e *replica.Entry, n queue.Number, item []byte, inLog bool) {
	h.bodies.add(h.lane, n, item, !inLog)
	if !inLog {
		return
	}
	h.items = true
	e.Item(uint64(n), item)
	if h.unstable.len() > 0 {
		if l := h.unstable.last(); l.index == e.Index && l.Last+1 == n {
			l.Last = n
			return
		}
	}
	h.unstable.push(logged{e.Index, queue.Numbers{First: n, Last: n}})
}

// numberAfter is the number the next message of a lane gets, after what is packed.
func (h *host) numberAfter(p *pack, lane uint8) queue.Number {
	n := h.m.Next(lane)
	for _, x := range p.lanes {
		if x.lane == lane {
			n += queue.Number(x.n)
		}
	}
	return n
}

// put counts messages of a lane.
func (p *pack) put(lane uint8, n int) {
	p.messages += n
	for i := range p.lanes {
		if p.lanes[i].lane == lane {
			p.lanes[i].n += n
			return
		}
	}
	p.lanes = append(p.lanes, inLane{lane, n})
}

// enqueued says whose the publishes of an Enqueue are, up to number seq, and of which ones before these the machine need not keep in mind
// that it has refused them.
func (p *pack) enqueued(c *queue.Command, ls *leadSession, seq uint64) {
	c.Session, c.Seq = ls.id, seq
	heard := ls.guest.settled.Load()
	if planted.Is(planted.HeardTooFar) && seq > 1 {
		heard = seq - 1
	}
	if (p.refuses || c.Kind == queue.Commit) && heard > 0 { // a commit may be refused by any queue
		if c.Terms == nil {
			c.Terms = &queue.Terms{}
		}
		c.Terms.Heard = heard
	}
}

// traits is what the messages of one Enqueue have in common.
type traits struct {
	lane  uint8
	ttl   queue.Limit
	delay uint64 // ns
	size  uint64 // of the body, if sizes count
}

// terms are those of an Enqueue; nil for most.
func (x *traits) terms() *queue.Terms {
	if x.ttl == 0 && x.delay == 0 {
		return nil
	}
	return &queue.Terms{TTL: x.ttl, Delay: x.delay}
}

// plain reports whether a message has no traits, as most have none: that is seen at a glance.
func (p *pack) plain(m *Publish) bool {
	return !p.weigh && !p.delays && !p.special(m)
}

// special reports whether a message has traits that its queue looks for.
func (p *pack) special(m *Publish) bool {
	return p.examine && !m.Plain && message.Special(m.Message.Head)
}

// traits reads those of a message from its head.
func (h *host) traits(p *pack, m *Publish) (x traits) {
	if p.plain(m) {
		return x
	}
	head := m.Message.Head
	if p.delays {
		x.delay = p.delayOf(head)
		if p.forwards {
			return x
		}
	}
	special := p.special(m)
	if !special && !p.weigh {
		return x
	}
	t := message.ReadTraits(head)
	if p.weigh {
		x.size = t.Size
	}
	if special {
		x.lane = h.laneOf(p, t)
		if t.Expires {
			x.ttl = queue.Most(uint64(t.TTL))
		}
	}
	return x
}

// delayOf returns for how many ns a message waits before it is ready.
func (p *pack) delayOf(head []byte) uint64 {
	v, err := message.Parse(head)
	if err != nil || planted.Is(planted.DelayUnread) {
		return p.delay
	}
	return max(p.delay, uint64(message.Delay(v.Properties))*1e6)
}

// The priorities of a quorum queue, as in RabbitMQ (https://www.rabbitmq.com/docs/quorum-queues#priorities). Lane 0 is that
// of messages that name none; the lower ones have lanes that rank below it.
const (
	quorumTop    = 31
	quorumMiddle = 4
)

// laneOf is where a message goes by its priority.
func (h *host) laneOf(p *pack, t message.Traits) uint8 {
	switch top := p.top; {
	case !t.HasPriority:
		return 0
	case h.lead != nil && t.Priority < quorumMiddle:
		return queue.LowLane + t.Priority
	case h.lead != nil:
		return min(t.Priority, quorumTop) - quorumMiddle
	case top < queue.LowLane:
		return min(t.Priority, top)
	default: // neighbours share a lane
		return uint8(uint(min(t.Priority, top)) * (queue.LowLane - 1) / uint(top))
	}
}

// packBig packs a big message: its chunks first, over as many entries as they
// need, then the message. It reports whether the message is in.
func (h *host) packBig(e *replica.Entry, p *pack, m *Publish, of *leadSession) bool {
	h.openSession(e, p)
	session := h.session
	if of != nil {
		session = of.id
	}
	persistent := h.isPersistent(m)
	h.persistent = h.persistent || persistent
	chunks := m.Message.Chunks
	if h.chunksOfBig == 0 {
		h.uploads++
	}
	n := h.m.Next(queue.ChunkLane) + queue.Number(p.chunks())
	for int(h.chunksOfBig) < len(chunks) {
		if p.bytes > 0 && p.bytes+len(chunks[h.chunksOfBig]) > replica.MaxEntryBytes && h.logged {
			return false
		}
		if len(p.cmds) >= replica.MaxEntryCommands {
			return false
		}
		c := chunks[h.chunksOfBig]
		h.keep(e, n, c, persistent)
		p.cmds = append(p.cmds, queue.Command{
			Kind: queue.Chunk, Count: 1, Session: session, Upload: h.uploads, Bytes: uint64(len(c)),
		})
		p.bytes += len(c)
		h.chunksOfBig++
		n++
	}
	kind := h.traits(p, m)
	h.keep(e, h.numberAfter(p, kind.lane), m.Message.Head, persistent)
	if persistent && m.hurried() {
		e.Sync = true
	}
	p.runs = append(p.runs, run{from: int(h.nextPub), to: int(h.nextPub) + 1, persistent: persistent, cmd: uint32(len(p.cmds))})
	p.cmds = append(p.cmds, queue.Command{
		Kind: queue.Enqueue, Count: 1, Persistent: persistent, Bytes: uint64(m.Message.Size()),
		Chunks: uint32(len(chunks)), Session: session, Upload: h.uploads, Lane: kind.lane,
	})
	c := &p.cmds[len(p.cmds)-1]
	if p.weigh {
		c.Bytes = kind.size
	}
	c.Terms = kind.terms()
	p.keyed(c, m)
	if m.part != 0 {
		h.partOf(c, m.part, of)
	} else if kind.delay == 0 {
		p.ready++
	}
	if of != nil {
		if m.part == 0 {
			p.enqueued(c, of, m.Seq)
		}
		p.held = append(p.held, h.taken.publishes[h.nextPub:h.nextPub+1])
	}
	p.put(kind.lane, 1)
	h.chunksOfBig = 0
	h.nextPub++
	h.packedOfRun++
	return true
}

// chunks counts the chunks in the entry.
func (p *pack) chunks() int {
	n := 0
	for i := range p.cmds {
		if p.cmds[i].Kind == queue.Chunk {
			n += int(p.cmds[i].Count)
		}
	}
	return n
}
