package queuehost

import (
	"slices"
	"sync"

	"holdfast/internal/bytecodec"
	"holdfast/internal/queue"
	"holdfast/internal/replica"
)

// A transaction of a channel is, in each queue, a row of publishes: its messages, and then one or more that are bare: they carry
// settlements instead of a message, and the last of them closes it. The row lies in the queue's line without a gap, and goes
// all the ways of publishes. It has one outcome, which is that of its last one. In the machine its publishes and
// settlements are parts, and what closes it is the commit (docs/internals/queue.md).

// Publish.part is 0, or the number of a transaction with one of these.
const (
	txCloses uint32 = 1 << 31 // bare, and the last one
	txBare   uint32 = 1 << 30 // bare, and others come
	txNumber        = txBare - 1

	unnumbered = 1 // the number of one that has come from another node, until it is given one here
)

// tx is the number of the transaction that the publish is part of; 0: none.
func (p *Publish) tx() uint32 { return p.part & txNumber }

// closes reports whether the publish is the last one of a transaction.
func (p *Publish) closes() bool { return p.part&txCloses != 0 }

// bare reports whether the publish carries settlements and no message.
func (p *Publish) bare() bool { return p.part&(txCloses|txBare) != 0 }

// opens reports whether others of the same transaction follow the publish.
func (p *Publish) opens() bool { return p.part != 0 && !p.closes() }

// Settled is how deliveries of one consumer end.
type Settled struct {
	Consumer queue.ConsumerID
	Ranges   []queue.Range
	How      queue.Settlement
}

// Transaction is what is to happen in one queue in one step or not at all.
type Transaction struct {
	Publishes []Publish // without tickets; free after the call
	Settled   []Settled // after all publishes
	// Ticket hears the outcome of all of it as Seq: Accepted when all of it is in the queue, and on disk where it has to be.
	Ticket Ticket
	Seq    uint64
	// Credit, if not nil, is charged with the settlements.
	Credit *Credit
}

// PutTransaction puts a transaction into the queue's line, as Put does: Go must follow. In a cluster of the first level, and for replies to another
// node, there is no such thing: it is done piece by piece then, and the outcome is that of the worst piece.
func (h *Handle) PutTransaction(t *Transaction) {
	if !h.registry().examines() || isMailbox(h.ID()) {
		h.putPieces(t)
		return
	}
	n := h.registry().newTx()
	persistent := len(t.Settled) > 0
	for i := range t.Publishes {
		p := &t.Publishes[i]
		p.part, p.Ticket = n, nil
		persistent = persistent || p.Persistent
	}
	bare := t.bare(n, persistent)
	charge(t.Publishes)
	charge(bare)
	b := h.in.lock()
	if len(t.Publishes) > 0 {
		b.publish(t.Publishes)
	}
	b.publish(bare)
	h.in.mu.Unlock()
	h.group.Mark()
}

// newTx gives out the number of a transaction. It is used again after a thousand million others.
func (r *Registry) newTx() uint32 {
	for {
		if n := r.txs.Add(1) & txNumber; n != 0 {
			return n
		}
	}
}

// bare makes the publishes that carry the settlements.
func (t *Transaction) bare(n uint32, persistent bool) (ps []Publish) {
	parts := uint64(len(t.Publishes))
	for i := range t.Settled {
		parts += uint64(len(t.Settled[i].Ranges))
	}
	head := bytecodec.AppendUint(nil, parts)
	empty, count := len(head), 0
	for _, s := range t.Settled {
		for _, x := range s.Ranges {
			if count == urgentAtOnce {
				ps = append(ps, Publish{part: n | txBare, Credit: t.Credit})
				ps[len(ps)-1].Message.Head = slices.Clone(head)
				head, count = head[:empty], 0
			}
			head = appendTxSettle(head, &txSettle{s.How, s.Consumer, x.First, x.Last})
			count++
		}
	}
	ps = append(ps, Publish{part: n | txCloses, Persistent: persistent, Ticket: t.Ticket, Seq: t.Seq, Credit: t.Credit})
	ps[len(ps)-1].Message.Head = head
	return ps
}

// The head of a bare publish: how many messages and settlements the transaction has altogether, then settlements to the end. A
// consumer takes eight bytes, whatever it is called: it may be called otherwise where the publish goes, and what the publish costs is not to change.
type txSettle struct {
	how         queue.Settlement
	consumer    queue.ConsumerID // 0: nobody
	first, last uint64
}

func appendTxSettle(dst []byte, s *txSettle) []byte {
	dst = append(dst, byte(s.how))
	dst = bytecodec.AppendFixed64(dst, uint64(s.consumer))
	dst = bytecodec.AppendUint(dst, s.first)
	return bytecodec.AppendUint(dst, s.last-s.first)
}

// txSettle cuts one settlement.
func (c *cut) txSettle() (s txSettle) {
	s.how = queue.Settlement(c.Byte())
	s.consumer = queue.ConsumerID(c.Fixed64())
	s.first = c.Uint()
	s.last = s.first + c.Uint()
	if s.how > Decline || s.last < s.first {
		c.Fail()
	}
	return s
}

// renamed returns the head of a bare publish with the consumers and deliveries as they are called elsewhere; false: it
// makes no sense.
func renamed(head []byte, rename func(*txSettle)) ([]byte, bool) {
	c := newCut(head)
	dst := bytecodec.AppendUint(make([]byte, 0, len(head)), c.Uint())
	n := 0
	for ; len(c.Rest) > 0 && !c.Bad(); n++ {
		s := c.txSettle()
		rename(&s)
		dst = appendTxSettle(dst, &s)
	}
	return dst, !c.Bad() && n <= urgentAtOnce
}

// packBare packs the settlements of a bare publish, and the commit if it closes its transaction. It reports whether there was room.
func (h *host) packBare(e *replica.Entry, p *pack, m *Publish, of *leadSession) bool {
	if len(p.cmds)+urgentAtOnce >= replica.MaxEntryCommands {
		return false
	}
	session := h.session
	if of != nil {
		session = of.id
	}
	terms := &queue.Terms{Tx: m.tx()}
	r := run{from: int(h.nextPub), to: int(h.nextPub) + 1, cmd: uint32(len(p.cmds))}
	c := newCut(m.Message.Head)
	parts := c.Uint()
	for len(c.Rest) > 0 {
		s := c.txSettle()
		how, blameless := h.meant(s.how)
		p.cmds = append(p.cmds, queue.Command{
			Kind: queue.Settle, Session: session, Consumer: s.consumer, How: how, Blameless: blameless, First: s.first, Last: s.last, Terms: terms,
		})
	}
	p.bytes += len(m.Message.Head)
	if m.closes() {
		r.persistent, r.cmd = h.isPersistent(m), uint32(len(p.cmds))
		if r.persistent && m.hurried() {
			e.Sync = true
		}
		p.cmds = append(p.cmds, queue.Command{Kind: queue.Commit, Session: session, Terms: &queue.Terms{Tx: m.tx(), Parts: parts, Strict: true}})
		if of != nil {
			p.enqueued(&p.cmds[len(p.cmds)-1], of, m.Seq)
		}
	}
	p.runs = append(p.runs, r)
	if of != nil {
		p.held = append(p.held, h.taken.publishes[r.from:r.to])
	}
	h.nextPub++
	h.packedOfRun++
	return true
}

// partOf makes an Enqueue part of a transaction.
func (h *host) partOf(c *queue.Command, part uint32, of *leadSession) {
	if c.Session = h.session; of != nil {
		c.Session = of.id
	}
	if c.Terms == nil {
		c.Terms = &queue.Terms{}
	}
	c.Terms.Tx = part & txNumber
}

// packAbort packs the end of a transaction of which no more will come.
func (h *host) packAbort(p *pack, n uint32) {
	if h.aside != nil {
		h.aside.parked = slices.DeleteFunc(h.aside.parked, func(m Publish) bool {
			if m.tx() == n {
				settleAll([]Publish{m}, Unknown)
			}
			return m.tx() == n
		})
	}
	if h.session != 0 {
		p.cmds = append(p.cmds, queue.Command{Kind: queue.Abort, Session: h.session, Terms: &queue.Terms{Tx: n}})
	}
}

// silent is the ticket of those publishes of a guest's transaction that do not close it: nobody hears their outcome.
type silent struct{ of *session }

// Settled implements Ticket.
func (t silent) Settled(_, _ uint64, _ Outcome) { t.of.flow.gave() }

// guestOf returns the session of another node's that a publish came by, or nil.
func guestOf(t Ticket) *session {
	switch t := t.(type) {
	case *session:
		return t
	case silent:
		return t.of
	}
	return nil
}

// guestTx is the transactions that a guest has under way with a queue.
type guestTx struct {
	number uint32 // of the one that is coming; 0: none
	first  uint64 // number of its first publish
	closed []queue.Range
}

// transact takes a publish of a transaction in; false: it makes no sense. The mutex is held. If the queue was not here when others of it came, the
// commit finds that they are missing.
func (s *session) transact(p *Publish) bool {
	if s.tx == nil {
		s.tx = &guestTx{}
	}
	t := s.tx
	if t.number == 0 {
		t.number, t.first = s.guest.reg.newTx(), p.Seq
	}
	p.part = p.part&^txNumber | t.number
	p.Ticket = silent{s}
	ok := true
	if p.bare() {
		p.Message.Head, ok = renamed(p.Message.Head, func(x *txSettle) { x.consumer, _ = s.consumer(x.consumer) })
	}
	if p.closes() {
		p.Ticket = s
		t.closed = append(t.closed, queue.Range{First: t.first, Last: p.Seq})
		t.number = 0
	}
	return ok
}

// from returns the first of the publishes that have the outcome of first to last: with that of the one that closes a transaction the
// others of it have theirs, too. The mutex is held.
func (t *guestTx) from(first, last uint64) uint64 {
	from := first
	t.closed = slices.DeleteFunc(t.closed, func(r queue.Range) bool {
		if r.Last < first || r.Last > last {
			return false
		}
		from = min(from, r.First)
		return true
	})
	return from
}

// skipTx answers what is left of a transaction of which a part was sent in a session that is over: it is not for the next one.
func (f *far) skipTx(o Outcome) {
	if f.taken == nil || f.sentOfRun == 0 || !f.taken.publishes[f.nextPub-1].opens() {
		return
	}
	from := f.nextPub
	for {
		closes := f.taken.publishes[f.nextPub].closes()
		f.nextPub++
		f.sentOfRun++
		if closes {
			break
		}
	}
	settleAll(f.taken.publishes[from:f.nextPub], o)
}

// wholeTx returns how many of the oldest publishes are the n oldest ones and what belongs to a transaction with the last of them.
func (q *entry) wholeTx(n int) int {
	for n > 0 && q.flight.list[q.flight.head+n-1].p.opens() {
		n++
	}
	return n
}

// renamed returns the head of a bare publish as it is said to the leader.
func (q *entry) renamed(head []byte) []byte {
	head, _ = renamed(head, func(x *txSettle) {
		c := q.f.session.consumers[x.consumer]
		if c == nil || x.first <= c.base {
			x.consumer = 0 // of a session that is over
			return
		}
		x.first, x.last = x.first-c.base, x.last-c.base
	})
	return head
}

// pieces is the ticket of a transaction that is done piece by piece.
type pieces struct {
	mu     sync.Mutex
	open   uint64
	worst  Outcome
	ticket Ticket
	seq    uint64
}

// Settled implements Ticket.
func (t *pieces) Settled(first, last uint64, o Outcome) {
	t.mu.Lock()
	if t.worst == Accepted || t.worst == Gone && o != Accepted {
		t.worst = o
	}
	t.open -= last - first + 1
	done := t.open == 0
	o = t.worst
	t.mu.Unlock()
	if done && t.ticket != nil {
		t.ticket.Settled(t.seq, t.seq, o)
	}
}

func (h *Handle) putPieces(t *Transaction) {
	all := &pieces{open: uint64(len(t.Publishes)), ticket: t.Ticket, seq: t.Seq}
	for i := range t.Publishes {
		t.Publishes[i].Ticket, t.Publishes[i].Seq = all, uint64(i)
	}
	if isMailbox(h.ID()) { // there is nothing to settle, and no queue that a barrier could be in
		h.Put(t.Publishes)
		return
	}
	all.open++
	h.Put(t.Publishes)
	for _, s := range t.Settled {
		h.settle(s.Consumer, s.Ranges, s.How)
	}
	h.Barrier(all, uint64(len(t.Publishes)))
}
