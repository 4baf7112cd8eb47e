package session

import (
	"sync"

	"holdfast/internal/broker"
	"holdfast/internal/message"
	"holdfast/internal/wire"
)

// outbox is what waits to be written to the client, in order. Anybody puts,
// without ever waiting; the connection's writer swaps it whole.
//
// Deliveries in it are bounded by the credit of their consumers. Everything else
// answers something the client sent, and is bounded by the reader, which stops
// reading while the outbox is full.
type outbox struct {
	mu       sync.Mutex
	batch    batch
	parked   bool          // nobody writes: who clears it is the writer, or wakes it
	handed   bool          // the writer has to go on with what another goroutine began
	here     func()        // writes what is little, in taken, on the goroutine that put it; nil: never
	taken    *batch        // the writer's
	wake     chan struct{} // capacity 1
	closed   bool          // nothing is taken any more
	waiting  int           // bytes of answers put and not yet written
	roomLeft chan struct{} // closed when waiting falls under the limit; nil: nobody waits
}

// fullBytes is how many bytes of answers wait before the client is not read
// from until it has read some of them.
const fullBytes = 1 << 20

// batch is the content of an outbox.
type batch struct {
	items    []item
	raw      []byte     // encoded methods, named by items
	confirms []*channel // channels with settled publishes to tell
	small    int        // how many times in a row it was small
}

type itemKind uint8

const (
	itemRaw       itemKind = iota // raw[from:to], whole frames
	itemDelivery                  // a message for a consumer
	itemGot                       // a message for basic.get
	itemReturn                    // an unroutable message on its way back
	itemRecovered                 // like itemRaw; what was delivered before it goes back to its queue
	itemLast                      // like itemRaw; nothing of the channel follows
	itemEnd                       // like itemRaw; nothing at all follows
)

// item is one thing to write. Which fields count depends on the kind.
type item struct {
	kind     itemKind
	ch       *channel // nil: channel 0
	from, to int
	answer   int             // bytes it counts as among the answers that wait
	holder   *holder         // delivery, got
	delivery broker.Delivery // delivery, got
	left     uint32          // got: messages left in the queue
	tagged   chan struct{}   // got: closed when the delivery has its tag, or never will
	returned *returned
}

// returned is an unroutable message that goes back to its publisher.
type returned struct {
	message message.Message
	code    uint16
	text    string
	seq     uint64 // settled when the return is written; 0: not in confirm mode
}

// put adds an item, made under the lock, and wakes the writer.
func (o *outbox) put(made func(b *batch) item) bool {
	o.mu.Lock()
	if o.closed {
		o.mu.Unlock()
		return false
	}
	it := made(&o.batch)
	o.batch.items = append(o.batch.items, it)
	o.waiting += it.answer
	o.unlockAndWrite()
	return true
}

func (o *outbox) unlockAndWake() {
	wake := o.parked
	o.parked = false
	o.mu.Unlock()
	if wake {
		o.wake <- struct{}{}
	}
}

// method puts one method; ch is nil for channel 0.
func (o *outbox) method(ch *channel, m wire.Method) {
	var number uint16
	if ch != nil {
		number = ch.number
	}
	o.methodOn(itemRaw, ch, number, m)
}

// methodOn puts a method of one of the raw kinds. Without ch it is written
// whatever became of the channel of that number.
func (o *outbox) methodOn(kind itemKind, ch *channel, number uint16, m wire.Method) {
	o.encoded(kind, ch, func(dst []byte) []byte { return wire.AppendMethod(dst, number, m) })
}

// encoded puts what is written as it is.
func (o *outbox) encoded(kind itemKind, ch *channel, encode func(dst []byte) []byte) {
	o.put(func(b *batch) item {
		from := len(b.raw)
		b.raw = encode(b.raw)
		to := len(b.raw)
		return item{kind: kind, ch: ch, from: from, to: to, answer: to - from}
	})
}

// recovered puts the place up to which deliveries of a channel go back to their
// queues, where the client wants no answer.
func (o *outbox) recovered(ch *channel) {
	o.put(func(*batch) item { return item{kind: itemRecovered, ch: ch} })
}

// end puts the end of the connection, behind a last method if there is one.
func (o *outbox) end(m wire.Method) {
	o.encoded(itemEnd, nil, func(dst []byte) []byte {
		if m == nil {
			return dst
		}
		return wire.AppendMethod(dst, 0, m)
	})
}

// rawEnd puts bytes that are no frame, and the end of the connection.
func (o *outbox) rawEnd(bytes []byte) {
	o.encoded(itemEnd, nil, func(dst []byte) []byte { return append(dst, bytes...) })
}

// heartbeat puts a heartbeat frame.
func (o *outbox) heartbeat() { o.encoded(itemRaw, nil, wire.AppendHeartbeat) }

// unlockAndWrite is unlockAndWake for a caller that may write a little itself, if
// the writer sleeps. If that is a delivery or a confirm, it holds no lock of the
// connection's.
func (o *outbox) unlockAndWrite() {
	if !o.parked || o.here == nil || !o.batch.little() {
		o.unlockAndWake()
		return
	}
	// What is parked is empty, so this is what the caller put and no more.
	o.parked = false
	o.batch, *o.taken = *o.taken, o.batch
	o.mu.Unlock()
	o.here()
}

// What is written on the goroutine that put it: no more than that, and nothing that
// must be read from the disk first.
const (
	littleItems = 32
	littleBytes = 16 << 10
)

// little reports whether the batch can be written without waiting, unless the
// socket is full.
func (b *batch) little() bool {
	if len(b.items) > littleItems || len(b.raw) > littleBytes {
		return false
	}
	bytes := 0
	for i := range b.items {
		it := &b.items[i]
		switch {
		case it.kind == itemRaw:
		case it.kind == itemDelivery && it.delivery.Load == nil && len(it.delivery.Message.Chunks) == 0:
			bytes += len(it.delivery.Message.Head)
		default:
			return false
		}
	}
	return bytes <= littleBytes
}

// park gives up being the writer for once: nobody writes, or, if something is left
// to do, the writer's goroutine goes on.
func (o *outbox) park(more bool) {
	o.mu.Lock()
	if !more && !o.closed && len(o.batch.items) == 0 && len(o.batch.confirms) == 0 {
		o.parked = true
		o.mu.Unlock()
		return
	}
	o.handed = true
	o.mu.Unlock()
	o.wake <- struct{}{} // has room: this goroutine had cleared parked
}

// deliver puts messages for a consumer. The caller holds no lock of the connection's.
func (o *outbox) deliver(h *holder, ds []broker.Delivery) {
	o.mu.Lock()
	if o.closed {
		o.mu.Unlock()
		dropAll(ds)
		return
	}
	for i := range ds {
		o.batch.items = append(o.batch.items, item{kind: itemDelivery, ch: h.ch, holder: h, delivery: ds[i]})
	}
	o.unlockAndWrite()
}

// got puts the message that answers a basic.get. tagged is closed when it can be
// acknowledged.
func (o *outbox) got(h *holder, d broker.Delivery, left uint32, tagged chan struct{}) {
	it := item{kind: itemGot, ch: h.ch, holder: h, delivery: d, left: left, tagged: tagged, answer: d.Message.Size()}
	if !o.put(func(*batch) item { return it }) {
		it.drop()
	}
}

// giveBack puts an unroutable message on its way back.
func (o *outbox) giveBack(ch *channel, r *returned) {
	o.put(func(*batch) item {
		return item{kind: itemReturn, ch: ch, returned: r, answer: r.message.Size()}
	})
}

// confirm says that a channel has settled publishes to tell. A channel is
// listed once until the writer has taken what it has. The caller holds no lock of
// the connection's.
func (o *outbox) confirm(ch *channel) {
	o.mu.Lock()
	if o.closed {
		o.mu.Unlock()
		return
	}
	o.batch.confirms = append(o.batch.confirms, ch)
	o.unlockAndWrite()
}

// swap waits until there is something and exchanges it for the empty batch b.
// It returns false when the outbox is closed; with an empty batch when another
// goroutine has begun to write and hands over.
func (o *outbox) swap(b *batch, wait bool) bool {
	for {
		o.mu.Lock()
		if o.closed {
			o.mu.Unlock()
			return false
		}
		if len(o.batch.items) > 0 || len(o.batch.confirms) > 0 || !wait || o.handed {
			o.handed = false
			o.batch, *b = *b, o.batch
			o.mu.Unlock()
			return true
		}
		o.parked = true
		o.mu.Unlock()
		<-o.wake
	}
}

// written notes that n bytes of answers have left.
func (o *outbox) written(n int) {
	if n == 0 {
		return
	}
	o.mu.Lock()
	o.waiting -= n
	if o.roomLeft != nil && o.waiting < fullBytes {
		close(o.roomLeft)
		o.roomLeft = nil
	}
	o.mu.Unlock()
}

// full returns a channel that is closed when there is room again, nil if there
// is room now.
func (o *outbox) full() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.waiting < fullBytes || o.closed {
		return nil
	}
	if o.roomLeft == nil {
		o.roomLeft = make(chan struct{})
	}
	return o.roomLeft
}

// close ends the outbox: what is in it is dropped, what is put later too.
func (o *outbox) close() {
	o.mu.Lock()
	b := o.batch
	o.batch = batch{}
	o.closed = true
	if o.roomLeft != nil {
		close(o.roomLeft)
		o.roomLeft = nil
	}
	o.unlockAndWake()
	for i := range b.items {
		b.items[i].drop()
	}
}

// drop lets go of what an item holds that will never be written.
func (it *item) drop() {
	if l := it.delivery.Load; l != nil {
		l.Drop()
	}
	if it.tagged != nil {
		close(it.tagged)
		it.tagged = nil
	}
}

func dropAll(ds []broker.Delivery) {
	for i := range ds {
		if l := ds[i].Load; l != nil {
			l.Drop()
		}
	}
}

// reset empties a batch that has been written. Its memory is kept for the next
// one, until many small batches in a row show that the burst is over.
func (b *batch) reset() {
	const calm, keepItems, keepRaw = 64, 32, 4 << 10
	if len(b.items) > keepItems || len(b.raw) > keepRaw {
		b.small = 0
	} else if b.small++; b.small > calm && (cap(b.items) > keepItems || cap(b.raw) > keepRaw) {
		*b = batch{}
	}
	clear(b.items)
	b.items = b.items[:0]
	b.raw = b.raw[:0]
	clear(b.confirms)
	b.confirms = b.confirms[:0]
}
