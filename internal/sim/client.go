package sim

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"holdfast/internal/catalog"
	"holdfast/internal/message"
	"holdfast/internal/queue"
	"holdfast/internal/queuehost"
	"holdfast/internal/wire"
)

// client is a connection to a node that publishes into one queue and consumes from it.
type client struct {
	n      *node
	q      *simQueue
	h      *queuehost.Handle
	credit *queuehost.Credit
	seq    uint64
	under  map[uint64]*record // publishes without an outcome
	txs    map[uint64]*tx     // transactions without one
	sub    *consumer
	getter *consumer
	gone   bool

	publisher, numbered uint64 // its number, and how many it has given to its messages, if its queue tells those apart by that
}

// consumer is a consumer or getter of a client.
type consumer struct {
	c         *client
	id        queue.ConsumerID
	name      string
	noAck     bool
	prefetch  int
	window    *queuehost.Window // nil: unlimited credit
	granted   uint64            // with a window: deliveries that it may get altogether
	got       uint64            // deliveries that have come
	held      []held
	last      map[stream]uint64 // order of the last first delivery
	over      bool              // cancelled, detached, or its process is gone
	drained   int               // drains without an answer
	since     int64             // clock.Mono: when it asked for what it gets, at the earliest
	leaves    bool              // it was asked to leave
	attached  bool
	cancelled bool

	attachedAt int64 // clock.Mono
}

type held struct {
	id    uint64
	r     *record
	stale bool // somebody took the node for dead: the queue may have given it to others
}

// Settled implements queuehost.Ticket.
func (c *client) Settled(first, last uint64, o queuehost.Outcome) {
	for seq := first; seq <= last; seq++ {
		if t := c.txs[seq]; t != nil {
			delete(c.txs, seq)
			t.happened(&c.n.w.check, o)
			continue
		}
		r := c.under[seq]
		if r == nil {
			c.n.w.failf("node %d: publish %d was told %v, and nobody waits for it", c.n.id, seq, o)
			return
		}
		delete(c.under, seq)
		c.n.w.check.told(r, o)
	}
}

func (w *World) newClient(n *node) *client {
	if len(w.queues) == 0 {
		return nil
	}
	if w.store != nil && w.rng.IntN(6) == 0 {
		return w.newClientOf(n, w.store)
	}
	if q := w.queues[w.rng.IntN(len(w.queues))]; !q.unwanted {
		return w.newClientOf(n, q)
	}
	return nil
}

// newClientOf is a client of a queue, nil if the node has not heard of it.
func (w *World) newClientOf(n *node, q *simQueue) *client {
	h := n.handle(q)
	if h == nil {
		return nil
	}
	c := &client{n: n, q: q, h: h, credit: n.reg.NewCredit(), under: map[uint64]*record{}, txs: map[uint64]*tx{}}
	n.clients = append(n.clients, c)
	return c
}

// retire ends a client's part; publishes still wait for their outcomes.
func (n *node) retire(c *client) {
	n.clients = slices.DeleteFunc(n.clients, func(x *client) bool { return x == c })
	n.retired = append(n.retired, c)
	for _, s := range []*consumer{c.sub, c.getter} {
		if s != nil {
			s.over = true
		}
	}
}

// act has some client do something, or the people who run it all.
func (w *World) act() {
	if w.o.Settings && (w.rng.IntN(10) == 0 || w.o.Carried && !w.wired) {
		w.introduceLetters()
	}
	if w.o.Settings && w.rng.IntN(150) == 0 {
		w.policy()
	}
	if w.o.Settings && w.rng.IntN(150) == 0 {
		w.pause()
	}
	switch k := w.rng.IntN(1000); {
	case k < 4 && w.o.Reshapes:
		w.reshape()
	case k < 8 && w.o.Deletes:
		w.manage()
	case k < 12:
		if n := w.anyNode(); n != nil {
			n.barrier(func(error) {})
		}
	}
	n := w.nodes[w.rng.IntN(len(w.nodes))]
	if !n.serves() {
		return
	}
	if len(n.clients) < 4 {
		w.newClient(n)
	}
	if len(n.clients) == 0 {
		return
	}
	c := n.clients[w.rng.IntN(len(n.clients))]
	if w.o.Transactions && w.rng.IntN(6) == 0 {
		c.transact()
		return
	}
	switch k := w.rng.IntN(1000); {
	case c.q.store:
		c.publish(1 + w.rng.IntN(3))
	case k < 50 && w.o.Settings:
		c.commit()
	case k < 450:
		c.publish(1 + w.rng.IntN(6))
	case k < 600:
		if c.sub == nil {
			c.subscribe()
		} else {
			c.settleSome()
		}
	case k < 850:
		c.settleSome()
	case k < 900:
		c.get()
	case k < 940:
		if c.sub != nil {
			c.leave(w.rng.IntN(2) == 0)
		}
	case k < 965:
		c.h.Count(func(uint64, uint64, error) {})
	case k < 970:
		if w.o.Purges {
			w.check.purge(c)
		}
	default:
		if s := c.sub; s != nil && !s.over && s.window != nil {
			n := uint32(w.rng.IntN(3))
			s.drained++
			s.granted += uint64(n)
			c.h.Credit(s.id, n, true)
		}
	}
}

func (c *client) publish(n int) {
	w := c.n.w
	if c.credit.InFlight() > 64<<10 {
		return
	}
	var ps []queuehost.Publish
	for range n {
		persistent := w.rng.IntN(2) == 0
		r := w.check.publish(c, persistent)
		m := w.message(r)
		c.seq++
		c.under[c.seq] = r
		ps = append(ps, queuehost.Publish{Message: m, Persistent: persistent, Screen: r.screen, Ticket: c, Seq: c.seq, Credit: c.credit})
	}
	c.h.Publish(ps)
}

// message makes a message with a body that only it has. Some bodies are in chunks, small ones but for a few: whoever carries
// them does not look into them.
func (w *World) message(r *record) message.Message {
	b, id := &w.builder, r.id
	size := 16 + w.rng.IntN(100)
	switch k := w.rng.IntN(3000); {
	case w.plain:
	case k == 0:
		size = message.ChunkSize + 1000
	case k < 200 || k < 1500 && w.o.Big:
		m := message.Message{Head: binary.BigEndian.AppendUint64([]byte(chunked), id)}
		for i := range 2 + w.rng.IntN(8) {
			m.Chunks = append(m.Chunks, fill(make([]byte, 8+w.rng.IntN(300)), id, i))
		}
		if w.o.Carried {
			return w.inChunks(r, m.Chunks)
		}
		m.Head = binary.BigEndian.AppendUint32(m.Head, uint32(len(m.Chunks)))
		return m
	}
	b.Begin(r.exchange(), "", w.properties(r), uint64(size), !w.o.Carried || r.persistent)
	b.Write(fill(make([]byte, size), id, 0))
	return b.Message()
}

// exchange is the one that a message was published to.
func (r *record) exchange() string {
	if r.by.q.store {
		return delayExchange
	}
	return ""
}

// inChunks makes a message whose head is a real one, and says which chunks there are, small as they may be.
func (w *World) inChunks(r *record, chunks [][]byte) message.Message {
	p := w.properties(r)
	p[1] |= 1 << wire.MessageID
	text := fmt.Sprint(chunked, r.id, " ", len(chunks))
	p = append(append(p, byte(len(text))), text...)
	h := message.Heading{Exchange: []byte(r.exchange()), Properties: p, Persistent: r.persistent}
	return w.builder.Readdress(&h, message.View{BodySize: message.ChunkSize + 1, Chunks: 2}, chunks)
}

// chunked begins the head of a message with small chunks.
const chunked = "chunked "

// fill fills a piece of a body.
func fill(p []byte, id uint64, piece int) []byte {
	binary.BigEndian.PutUint64(p, id)
	for i := 8; i < len(p); i++ {
		p[i] = byte(id)*31 + byte(piece)*7 + byte(i)
	}
	return p
}

func isFilled(p []byte, id uint64, piece int) bool {
	return len(p) >= 8 && bytes.Equal(p, fill(make([]byte, len(p)), id, piece))
}

// idOf reads what was published; false: nobody has published a message with this head and this body.
func idOf(m message.Message) (uint64, bool) {
	if rest, is := bytes.CutPrefix(m.Head, []byte(chunked)); is {
		id, n := binary.BigEndian.Uint64(rest), binary.BigEndian.Uint32(rest[8:])
		for i, p := range m.Chunks {
			if !isFilled(p, id, i) {
				return id, false
			}
		}
		return id, int(n) == len(m.Chunks)
	}
	v, err := message.Parse(m.Head)
	if err != nil {
		return 0, false
	}
	if rest, is := strings.CutPrefix(v.Properties.MessageID(), chunked); is {
		var id uint64
		var n int
		_, err := fmt.Sscan(rest, &id, &n)
		for i, p := range m.Chunks {
			if !isFilled(p, id, i) {
				return id, false
			}
		}
		return id, err == nil && n == len(m.Chunks)
	}
	body := v.Body
	for _, p := range m.Chunks {
		body = append(body, p...)
	}
	if len(body) < 8 {
		return 0, false
	}
	id := binary.BigEndian.Uint64(body)
	return id, isFilled(body, id, 0)
}

// load reads a message of a queue that runs here from the disk.
func (n *node) load(l *queuehost.Loader) (m message.Message, err error) {
	if m, err = l.Load(n.reader); err != nil {
		return m, err
	}
	m.Head = slices.Clone(m.Head)
	for i := range l.Chunks() {
		chunk, err := l.Chunk(n.reader, i)
		if err != nil {
			return m, err
		}
		m.Chunks = append(m.Chunks, slices.Clone(chunk))
	}
	return m, nil
}

func (c *client) subscribe() {
	w := c.n.w
	s := &consumer{c: c, name: w.check.name(), last: map[stream]uint64{}, since: w.clk.Mono()}
	s.noAck = w.rng.IntN(8) == 0 && c.q.home == 0
	s.prefetch = w.rng.IntN(12)
	spec := queuehost.ConsumerSpec{Tag: s.name, Prefetch: uint32(s.prefetch), NoAck: s.noAck, Credit: queuehost.Unlimited}
	if w.rng.IntN(2) == 0 {
		s.window = &queuehost.Window{Size: 4 + uint32(w.rng.IntN(20))}
		spec.Credit, spec.Wake = s.window.Size, true
		s.granted = uint64(spec.Credit)
	}
	if w.o.Settings && !c.q.may.single && w.rng.IntN(4) == 0 {
		spec.Priority = int32(w.rng.IntN(3)) - 1
	}
	c.sub = s
	s.id = c.h.Attach(spec, s, func(_ queue.ConsumerID, err error) {
		s.attached = err == nil
		if s.attached {
			s.attachedAt = w.clk.Mono()
			c.q.used = max(c.q.used, s.since)
		}
		if err != nil {
			c.q.leaving++ // it may have been attached, and is detached then
			s.over = true
			if c.sub == s {
				c.sub = nil
			}
		}
	})
}

// settleSome ends some checkouts.
func (c *client) settleSome() {
	for _, s := range []*consumer{c.sub, c.getter} {
		if s == nil || len(s.held) == 0 || s.over {
			continue
		}
		w := c.n.w
		i := w.rng.IntN(len(s.held))
		j := min(len(s.held), i+1+w.rng.IntN(4))
		how := queue.Ack
		switch k := w.rng.IntN(20); {
		case k == 0:
			how = queue.Discard
		case k < 4:
			how = queue.Requeue
		case k < 6 && w.o.Settings && c.n.view().Level() >= catalog.PolicyLevel:
			how = queuehost.Return
		}
		var ranges []queue.Range
		for _, x := range s.held[i:j] {
			ranges = append(ranges, queue.Range{First: x.id, Last: x.id})
			w.check.settled(s, x.r, how)
		}
		s.held = slices.Delete(s.held, i, j)
		c.h.Settle(s.id, ranges, how)
	}
}

// settleAll acknowledges what was got.
func (c *client) settleAll() {
	s := c.getter
	for _, x := range s.held {
		c.n.w.check.settled(s, x.r, queue.Ack)
		c.h.Settle(s.id, []queue.Range{{First: x.id, Last: x.id}}, queue.Ack)
	}
	s.held = nil
}

// leave ends the consumer: cancelled first, or detached at once.
func (c *client) leave(cancel bool) {
	s := c.sub
	c.sub, s.leaves = nil, true
	if s.attached && !s.over && !c.n.w.check.isLoose(c.n) {
		c.q.used = c.n.w.clk.Mono()
	}
	end := func() { c.detach(s) }
	if cancel {
		c.h.Cancel(s.id, end)
		return
	}
	end()
}

// detach removes a consumer or getter: what it holds goes back.
func (c *client) detach(s *consumer) {
	if s.over {
		return
	}
	s.over = true
	w := c.n.w
	for _, x := range s.held {
		w.check.back(s, x.r)
	}
	s.held = nil
	times := 1
	if s != c.getter && !s.attached { // as long as neither is answered, both are asked for again by each try
		times = 5
	}
	c.q.leaving += times
	asked := w.clk.Mono()
	c.h.Detach(s.id, func() {
		if w.clk.Mono()-asked < int64(patience) {
			c.q.left += times
		}
	})
}

func (c *client) get() {
	if c.getter == nil {
		c.getter = &consumer{c: c, name: c.n.w.check.name(), last: map[stream]uint64{}}
		c.getter.id = c.h.Getter(queuehost.ConsumerSpec{Tag: c.getter.name}, c.getter)
	}
	s, asked := c.getter, c.n.w.clk.Mono()
	c.h.Get(s.id, false, func(d queuehost.Delivery, _ uint64, ok bool, err error) {
		switch {
		case ok && err == nil:
			c.q.used = max(c.q.used, asked)
			s.since = asked
			s.take(d)
		case err != nil: // a message may have been on its way, and goes back
			c.q.leaving++
		}
	})
}

// Deliver implements queuehost.Consumer.
func (s *consumer) Deliver(ds []queuehost.Delivery) {
	for _, d := range ds {
		s.take(d)
	}
	s.got += uint64(len(ds))
	if s.window == nil || s.over {
		return
	}
	if s.got > s.granted {
		s.c.n.w.failf("%s got %d deliveries, and may get %d", s.name, s.got, s.granted)
	}
	if n := s.window.Sent(uint32(len(ds))); n > 0 {
		s.granted += uint64(n)
		s.c.h.Credit(s.id, n, false)
	}
}

func (s *consumer) take(d queuehost.Delivery) {
	w := s.c.n.w
	if d.Load != nil {
		if s.c.q.home != s.c.n.id {
			w.failf("%s: a delivery of another node is to be loaded", s.name)
			return
		}
		m, err := s.c.n.load(d.Load)
		if err != nil {
			w.failf("%s: delivery %d cannot be read: %v", s.name, d.ID, err)
			return
		}
		d.Message = m
	}
	id, ok := idOf(d.Message)
	if !ok {
		w.failf("%s: delivery %d has the head of message %d, and not its body", s.name, d.ID, id)
		return
	}
	r := w.check.delivered(s, id, d)
	switch {
	case r == nil:
	case s.noAck && s.over: // it crossed the detach: it goes back, or it does not
		if !r.done {
			r.done, r.doubt = true, true
		}
	case s.over: // it goes back
	case s.noAck:
		w.check.settled(s, r, queue.Ack)
	default:
		s.held = append(s.held, held{d.ID, r, w.check.isLoose(s.c.n)})
		if n := s.holds(); s.prefetch > 0 && n > s.prefetch {
			w.failf("%s holds %d messages, and may hold %d", s.name, n, s.prefetch)
		}
	}
}

// holds is how many messages it surely holds.
func (s *consumer) holds() (n int) {
	for _, x := range s.held {
		if !x.stale {
			n++
		}
	}
	return n
}

// Cancelled implements queuehost.Consumer.
func (s *consumer) Cancelled(reason error) {
	s.cancelled = true
	s.lost()
	if q := s.c.q; !q.unwanted && q.home == 0 {
		s.c.n.w.failf("%s was cancelled: %v", s.name, reason)
	}
}

// lost ends a consumer that the queue has ended.
func (s *consumer) lost() {
	s.over = true
	s.robbed()
	if s.c.sub == s {
		s.c.sub = nil
	}
	if s.c.getter == s {
		s.c.getter = nil
	}
}

// robbed takes away what a consumer has: its queue has given it to others, or will.
func (s *consumer) robbed() {
	for _, x := range s.held {
		if x.r.holder == s {
			x.r.holder = nil
			x.r.hi++
		}
	}
	s.held = nil
}

// Drained implements queuehost.Consumer.
func (s *consumer) Drained(left uint32) {
	s.drained--
	if s.drained < 0 {
		s.c.n.w.failf("%s: more answers than drains", s.name)
	}
	s.granted -= min(s.granted, uint64(left))
	if s.window != nil && !s.over {
		s.granted += uint64(s.window.Size)
		s.c.h.Credit(s.id, s.window.Size, false)
	}
}

// Wake implements queuehost.Consumer.
func (s *consumer) Wake() {
	if !s.over {
		s.granted++
		s.c.h.Credit(s.id, 1, false)
	}
}
