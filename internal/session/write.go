package session

import (
	"errors"
	"io/fs"
	"net"
	"sync"

	"holdfast/internal/broker"
	"holdfast/internal/invariant"
	"holdfast/internal/message"
	"holdfast/internal/queuehost"
	"holdfast/internal/wire"
)

// Sizes of the writer.
const (
	// writeSize is how much is collected for one write to the socket.
	writeSize = 64 << 10
	// copySize is the largest piece of a body that is copied into the buffer;
	// larger ones go to the socket from where they lie.
	copySize = 16 << 10
)

// writeBuffers lends buffers to writers that have something to write, so that
// an idle connection has none.
var writeBuffers = sync.Pool{New: func() any { b := make([]byte, 0, writeSize); return &b }}

// writer writes the outbox to the client. It gives out delivery tags in the
// order in which it writes, and grants consumers more when what they were given
// has left. It runs on a goroutine of its own; while that sleeps, whoever puts
// a little into the outbox is the writer for once (here), so that no thread has
// to be woken for it.
type writer struct {
	c    *conn
	b    batch
	buf  []byte
	lent *[]byte
	err  error // of the socket; nothing is written after it
	end  bool  // the last frame of the connection has been put into buf
	raw  *rawWriter
	kept bool // what is in buf stays there: whoever writes may not wait for the client

	answered int // bytes of answers put into buf and not yet told to the outbox

	tails  []*tail   // bodies on their way out in pieces, one for each channel
	turned []*tail   // the list before the last turn, for reuse
	sent   []*holder // holders with deliveries written since the last grant
	reader *broker.Reader

	// Scratch, so that a method does not escape to the heap.
	deliver  wire.BasicDeliver
	getOk    wire.BasicGetOk
	basicRet wire.BasicReturn
}

// tail is a body of which only a part has been written: a chunk at a time. Other
// frames of its channel wait behind it; those of other channels do not.
type tail struct {
	ch      *channel
	answer  int // what it counts as among the answers
	load    *loadedBody
	chunks  [][]byte // what is left, unless it is loaded
	holder  *holder
	items   []item // what came for the channel meanwhile
	raw     []byte // what raw items name
	confirm bool   // settled publishes wait to be told
}

// loadedBody is a body that is read from the disk piece by piece.
type loadedBody struct {
	loader *queuehost.Loader
	next   int
}

// run writes until the connection ends.
func (w *writer) run() {
	for {
		if !w.c.out.swap(&w.b, len(w.tails) == 0) {
			break
		}
		w.pass(&w.b)
		if w.err != nil || w.end {
			break
		}
		w.release()
	}
	w.release()
	w.c.out.close()
	for i := range w.b.items {
		w.b.items[i].drop()
	}
	for _, t := range w.tails {
		t.drop()
	}
	if w.err != nil {
		w.c.broken(w.err)
	}
}

// pass writes a batch and a piece of each body on its way.
func (w *writer) pass(b *batch) {
	w.borrow()
	w.write(b)
	w.turn()
	w.flush()
	w.c.out.written(w.answered)
	w.answered = 0
	w.grant()
	b.reset()
}

// here writes a batch, which is little, without waiting for the client: what the
// socket does not take is left to the writer's goroutine. Its caller has cleared
// parked and put the batch in place.
func (w *writer) here() {
	w.borrow()
	w.kept = true
	w.write(&w.b)
	w.kept = false
	w.b.reset()
	if w.err == nil && !w.end && len(w.buf) > 0 {
		n, err := w.raw.write(w.buf)
		w.c.sentBytes.Add(uint64(n))
		w.buf = w.buf[:copy(w.buf, w.buf[n:])]
		w.err = err
	}
	left := w.err != nil || w.end || len(w.buf) > 0 || len(w.tails) > 0
	if !left {
		w.c.out.written(w.answered)
		w.answered = 0
		w.grant()
		w.release()
	}
	w.c.out.park(left)
}

// borrow takes a buffer for what is to be written.
func (w *writer) borrow() {
	if w.lent == nil {
		w.lent = writeBuffers.Get().(*[]byte)
		w.buf = (*w.lent)[:0]
	}
}

// fromDisk is what bodies are read from the disk with. It is borrowed like the
// buffer: it keeps what it read last.
func (w *writer) fromDisk() *broker.Reader {
	if w.reader == nil {
		w.reader = w.c.server.readers.Get().(*broker.Reader)
	}
	return w.reader
}

// release returns what was borrowed, so that an idle connection holds nothing.
func (w *writer) release() {
	if w.lent != nil {
		if cap(w.buf) <= 2*writeSize {
			*w.lent = w.buf[:0]
		}
		writeBuffers.Put(w.lent)
		w.lent, w.buf = nil, nil
	}
	if w.reader != nil {
		w.c.server.readers.Put(w.reader)
		w.reader = nil
	}
	w.deliver, w.getOk, w.basicRet = wire.BasicDeliver{}, wire.BasicGetOk{}, wire.BasicReturn{}
}

// write encodes a batch. Confirms come last, so that none overtakes the answer
// to confirm.select; a return settles its publish when it has been written.
func (w *writer) write(b *batch) {
	for i := range b.items {
		if w.end || w.err != nil {
			b.items[i].drop()
			continue
		}
		it := &b.items[i]
		if it.ch != nil && it.ch.tail != nil {
			it.ch.tail.park(it, b.raw)
			continue
		}
		w.item(it, b.raw)
		if len(w.buf) >= writeSize {
			w.flush()
			w.grant()
		}
	}
	w.confirms(b.confirms)
}

// item encodes one item.
func (w *writer) item(it *item, raw []byte) {
	if it.ch != nil && it.ch.dead {
		w.answered += it.answer
		it.drop()
		return
	}
	switch it.kind {
	case itemRaw:
		w.buf = append(w.buf, raw[it.from:it.to]...)
	case itemRecovered:
		it.ch.requeueWritten()
		w.buf = append(w.buf, raw[it.from:it.to]...)
	case itemLast:
		if it.ch.confirms != nil {
			w.buf = it.ch.confirms.take(w.buf, it.ch.number)
		}
		w.buf = append(w.buf, raw[it.from:it.to]...)
		it.ch.dead = true
	case itemEnd:
		w.buf = append(w.buf, raw[it.from:it.to]...)
		w.end = true
	case itemDelivery, itemGot:
		w.message(it)
	case itemReturn:
		w.giveBack(it)
	}
	if it.ch != nil && it.ch.tail != nil {
		it.ch.tail.answer = it.answer // not before it has left
	} else {
		w.answered += it.answer
	}
}

// confirms tells the publishers of channels what was settled.
func (w *writer) confirms(list []*channel) {
	for _, ch := range list {
		switch {
		case w.end || ch.dead:
		case ch.tail != nil:
			ch.tail.confirm = true
		default:
			w.buf = ch.confirms.take(w.buf, ch.number)
		}
		if len(w.buf) >= writeSize {
			w.flush()
		}
	}
}

// message encodes a delivery or the answer of basic.get.
func (w *writer) message(it *item) {
	invariant.Pass("session", "delivery written")
	ch, h, d := it.ch, it.holder, &it.delivery
	m, load := d.Message, d.Load
	if load != nil {
		var err error
		m, err = load.Load(w.fromDisk())
		if queuehost.Lost(err) {
			w.lost(it, err)
			return
		}
		if err != nil {
			w.unreadable(err, load)
			return
		}
	}
	v, err := message.Parse(m.Head)
	if err != nil {
		w.unreadable(err, load)
		return
	}
	ch.tag++
	if !h.noAck {
		ch.flow.mu.Lock()
		ch.flow.unacked.add(ch.tag, checkout{h, d.ID})
		ch.flow.mu.Unlock()
	}
	if it.kind == itemGot {
		close(it.tagged)
		it.tagged = nil
		w.getOk = wire.BasicGetOk{
			DeliveryTag: ch.tag, Redelivered: d.Redelivered,
			Exchange: v.Exchange, RoutingKey: v.RoutingKey, MessageCount: it.left,
		}
		w.buf = wire.AppendMethod(w.buf, ch.number, &w.getOk)
		h = nil
	} else {
		w.deliver = wire.BasicDeliver{
			ConsumerTag: h.tag, DeliveryTag: ch.tag, Redelivered: d.Redelivered,
			Exchange: v.Exchange, RoutingKey: v.RoutingKey,
		}
		w.buf = wire.AppendMethod(w.buf, ch.number, &w.deliver)
	}
	if d.Counted && d.Acquired > 0 {
		v.Properties = withCounts(v.Properties, d, int(w.c.frameMax))
	}
	w.content(ch, h, v, m, load)
}

// content encodes header and body. A body in pieces becomes a tail.
func (w *writer) content(ch *channel, h *holder, v message.View, m message.Message, load *queuehost.Loader) {
	w.buf = wire.AppendContentHeader(w.buf, ch.number, wire.Properties(v.Properties), v.BodySize)
	if v.Chunks == 0 {
		w.piece(ch, v.Body)
		w.delivered(h)
		return
	}
	t := &tail{ch: ch, holder: h, chunks: m.Chunks}
	if load != nil && m.Chunks == nil {
		t.load = &loadedBody{loader: load}
	}
	ch.tail = t
	w.tails = append(w.tails, t)
}

// piece encodes a piece of a body as frames.
func (w *writer) piece(ch *channel, p []byte) {
	most := int(w.c.frameMax) - wire.FrameOverhead
	for len(p) > 0 && w.err == nil {
		n := min(len(p), most)
		if n <= copySize {
			w.buf = wire.AppendBody(w.buf, ch.number, p[:n], 0)
		} else {
			w.buf = wire.AppendFrameHead(w.buf, wire.FrameBody, ch.number, n)
			w.flushWith(p[:n])
			w.buf = append(w.buf, wire.FrameEnd)
		}
		p = p[n:]
		if len(w.buf) >= writeSize {
			w.flush()
		}
	}
}

// giveBack encodes a returned message; after that its publish counts as settled.
func (w *writer) giveBack(it *item) {
	ch, r := it.ch, it.returned
	v, err := message.Parse(r.message.Head)
	if err != nil {
		w.unreadable(err, nil)
		return
	}
	w.basicRet = wire.BasicReturn{ReplyCode: r.code, ReplyText: []byte(r.text), Exchange: v.Exchange, RoutingKey: v.RoutingKey}
	w.buf = wire.AppendMethod(w.buf, ch.number, &w.basicRet)
	w.content(ch, nil, v, r.message, nil)
	if r.seq != 0 {
		ch.confirms.Settled(r.seq, r.seq, broker.Accepted)
	}
}

// lost: a message was nowhere but where it cannot be read any more. The queue gets
// rid of it, and its consumer gets the next one.
func (w *writer) lost(it *item, err error) {
	ch, h := it.ch, it.holder
	if !h.lost { // further ones are counted by the spill's metrics
		h.lost = true
		w.c.log.Error("a message is lost: it was spilled and cannot be read", "queue", h.sub.Queue(), "error", err)
	}
	if !h.noAck {
		ch.giveUp(checkout{h, it.delivery.ID})
	}
	if it.kind == itemDelivery {
		w.delivered(h)
		return
	}
	w.buf = wire.AppendMethod(w.buf, ch.number, &wire.BasicGetEmpty{})
	it.drop()
}

// unreadable: a message that was promised cannot be had, or not the rest of it. Its
// delivery goes back to the queue with the connection, unless it is lost.
func (w *writer) unreadable(err error, load *queuehost.Loader) {
	if load != nil {
		load.Drop()
	}
	if !errors.Is(err, fs.ErrClosed) { // the node has stopped, and not waited for this connection
		w.c.log.Error("message cannot be read", "error", err)
	}
	w.err = err
}

// turn writes one piece of every tail, and what waits behind those that end.
func (w *writer) turn() {
	if len(w.tails) == 0 {
		return
	}
	list := w.tails
	w.tails = w.turned[:0]
	for _, t := range list {
		switch {
		case w.err != nil || w.end || t.ch.dead:
			t.ch.tail = nil
			t.drop()
		case w.step(t):
			w.tails = append(w.tails, t)
		default:
			t.ch.tail = nil
			w.answered += t.answer
			w.delivered(t.holder)
			w.unpark(t)
		}
	}
	clear(list)
	w.turned = list
}

// step writes one piece of a body; false: it was the last.
func (w *writer) step(t *tail) bool {
	if t.load == nil {
		w.piece(t.ch, t.chunks[0])
		t.chunks = t.chunks[1:]
		return len(t.chunks) > 0
	}
	p, err := t.load.loader.Chunk(w.fromDisk(), t.load.next)
	if queuehost.Lost(err) {
		t.ch.giveUpLast()
	}
	if err != nil {
		w.unreadable(err, t.load.loader)
		return false
	}
	w.piece(t.ch, p)
	t.load.next++
	return t.load.next < t.load.loader.Chunks()
}

// park keeps an item behind the tail of its channel.
func (t *tail) park(it *item, raw []byte) {
	if it.to > it.from {
		from := len(t.raw)
		t.raw = append(t.raw, raw[it.from:it.to]...)
		it.from, it.to = from, len(t.raw)
	}
	t.items = append(t.items, *it)
	*it = item{}
}

// unpark writes what waited behind a tail. A further body in pieces becomes the
// next tail of the channel, and the rest waits behind that.
func (w *writer) unpark(t *tail) {
	ch := t.ch
	if t.confirm && !ch.dead {
		w.buf = ch.confirms.take(w.buf, ch.number)
	}
	for i := range t.items {
		if ch.tail != nil {
			ch.tail.park(&t.items[i], t.raw)
		} else {
			w.item(&t.items[i], t.raw)
		}
	}
}

// drop lets go of what a tail holds.
func (t *tail) drop() {
	if t.load != nil {
		t.load.loader.Drop()
	}
	for i := range t.items {
		t.items[i].drop()
	}
}

// delivered counts a delivery that is in the buffer.
func (w *writer) delivered(h *holder) {
	if h == nil {
		return
	}
	if h.inTurn == 0 {
		w.sent = append(w.sent, h)
	}
	h.inTurn++
}

// grant lets consumers have more in place of what has left.
func (w *writer) grant() {
	for i, h := range w.sent {
		n := h.inTurn
		h.inTurn = 0
		w.sent[i] = nil
		if w.err == nil {
			h.ch.flow.sent(h, n)
		}
	}
	w.sent = w.sent[:0]
}

// flush writes the buffer to the socket, unless it is kept.
func (w *writer) flush() {
	if w.kept && w.err == nil {
		return
	}
	if len(w.buf) == 0 || w.err != nil {
		w.buf = w.buf[:0]
		return
	}
	w.c.writing.Store(true)
	n, err := w.c.socket.Write(w.buf)
	w.c.sentBytes.Add(uint64(n))
	w.c.writing.Store(false)
	w.err = err
	w.buf = w.buf[:0]
}

// flushWith writes the buffer and, without copying it, p.
func (w *writer) flushWith(p []byte) {
	if w.err != nil {
		return
	}
	pieces := net.Buffers{w.buf, p}
	w.c.writing.Store(true)
	n, err := pieces.WriteTo(w.c.socket)
	w.c.sentBytes.Add(uint64(n))
	w.c.writing.Store(false)
	w.err = err
	w.buf = w.buf[:0]
}
