package queuehost

import (
	"bytes"
	"encoding/binary"
	"errors"
	"slices"
	"sync"

	"holdfast/internal/amqperr"
	"holdfast/internal/queue"
)

// relay is a consumer or getter here that stands for one of a guest: it sends
// what it is given. What the link has no room for, and what has to be read from
// the disk first, waits in a line, with everything behind it. The session's mutex
// guards all of it.
type relay struct {
	session *session
	id      queue.ConsumerID // as the guest calls it
	home    queue.ConsumerID // as the queue here does
	getter  bool
	counted bool // its credit is

	ended   bool // gets nothing more
	waiting bool // with the guest, for the link
	out     fifo[outgoingItem]
	sending []Delivery // being encoded
	scratch []Delivery
	send    func([]byte) []byte

	loading bool   // a loader has the first ones
	blob    []byte // a whole message to be sent first
	pops    int    // how many of the line it is
	bigHead []byte // of the first one, while its chunks are read
}

// outgoingItem waits in a relay's line: an event, or a delivery.
type outgoingItem struct {
	event  *event
	d      Delivery
	chunk  int   // chunks sent
	failed error // it cannot be read
}

// delivery returns the delivery, or nil.
func (it *outgoingItem) delivery() *Delivery {
	switch {
	case it.event == nil:
		return &it.d
	case it.event.kind == eventGot && it.event.ok:
		return &it.event.d
	}
	return nil
}

// keepSending is for how many deliveries a relay keeps room.
const keepSending = 256

// attach adds a consumer or getter for the guest. The mutex is held.
func (s *session) attach(a *ask) {
	r := &relay{session: s, id: a.consumer, getter: a.kind == askGetter, counted: a.spec.Credit != Unlimited}
	r.send = r.appendDeliveries
	home, known := s.known[r.id]
	if s.ref != nil && !known && !r.getter && a.resume > 0 {
		// The queue has ended it for what it held, all of it, and who led then has not come to say so.
		s.tell(&event{kind: eventCancelled, consumer: a.consumer, err: amqperr.DeliveryTimeout(a.spec.Channel, 0)})
		return
	}
	spec := a.spec
	spec.relayed = true
	if s.ref != nil {
		spec.outer = uint64(a.consumer)
	}
	if spec.NoAck {
		spec.Prefetch = 0 // here they are checked out until the guest has them
	}
	if s.relays == nil {
		s.relays = map[queue.ConsumerID]*relay{}
	}
	s.relays[r.id] = r
	req := a.req
	c := &call{guest: s.owner(), spec: spec, sink: r, attached: func(_ queue.ConsumerID, err error) { r.attached(req, err) }}
	o := op{kind: opAttach, consumer: home, first: a.resume, last: a.limit, call: c}
	switch {
	case known:
		o.kind = opReattach
	case r.getter:
		o.kind = opGetter
	}
	if !known {
		o.consumer = s.handle.newConsumer()
	}
	r.home = o.consumer
	s.handle.put(o)
}

func (r *relay) attached(req uint64, err error) {
	r.session.mu.Lock()
	defer r.session.mu.Unlock()
	if err != nil {
		r.session.remove(r)
	}
	r.push(outgoingItem{event: &event{kind: eventAttached, consumer: r.id, req: req, err: err}})
}

// remove forgets a relay that the queue has forgotten. The mutex is held.
func (s *session) remove(r *relay) {
	if s.relays[r.id] == r {
		delete(s.relays, r.id)
	}
}

// Deliver implements Consumer.
func (r *relay) Deliver(ds []Delivery) {
	s := r.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || r.ended {
		for i := range ds {
			ds[i].drop()
		}
		return
	}
	if r.out.len() == 0 && r.blob == nil && !r.loading {
		ds = ds[r.sendNow(ds):]
	}
	for i := range ds {
		r.out.push(outgoingItem{d: ds[i]})
	}
	r.pump()
}

func (d *Delivery) drop() {
	if d.Load != nil {
		d.Load.Drop()
	}
}

// plain is how many deliveries from the first on go into one message as they are.
func plain(ds []Delivery) int {
	n, size := 0, 0
	for n < len(ds) && ds[n].Load == nil && len(ds[n].Message.Chunks) == 0 {
		if size += len(ds[n].Message.Head); n > 0 && size > messageSize {
			break
		}
		n++
	}
	return n
}

// sendNow sends as many deliveries as can be sent at once and says how many.
func (r *relay) sendNow(ds []Delivery) (sent int) {
	for {
		n := plain(ds[sent:])
		if n == 0 {
			return sent
		}
		r.sending = ds[sent : sent+n]
		ok := r.session.guest.reg.send(r.session.guest.node, true, r.send)
		r.sending = nil
		if !ok {
			return sent
		}
		sent += n
	}
}

func (r *relay) appendDeliveries(dst []byte) []byte {
	dst = binary.AppendUvarint(r.session.headOf(farDeliver).append(dst), uint64(r.id))
	for i := range r.sending {
		d := &r.sending[i]
		dst = appendDelivery(dst, d, d.Message.Head, len(d.Message.Chunks))
	}
	return dst
}

// Cancelled implements Consumer.
func (r *relay) Cancelled(reason error) {
	r.session.mu.Lock()
	defer r.session.mu.Unlock()
	if r.ended {
		return
	}
	if !IsDeliveryTimeout(reason) { // else it is still there for what it holds
		r.ended = true
		r.session.remove(r)
	}
	if reason == nil {
		reason = errQueueDeleted
	}
	r.push(outgoingItem{event: &event{kind: eventCancelled, consumer: r.id, err: reason}})
}

// Drained implements Consumer.
func (r *relay) Drained(left uint32) {
	r.happened(&event{kind: eventDrained, consumer: r.id, n: uint64(left)})
}

// Wake implements Consumer.
func (r *relay) Wake() { r.happened(&event{kind: eventWake, consumer: r.id}) }

// got answers a get.
func (r *relay) got(req uint64, d Delivery, left uint64, ok bool, err error) {
	r.happened(&event{kind: eventGot, consumer: r.id, req: req, n: left, ok: ok && err == nil, err: err, d: d})
}

// happened puts an event into the line.
func (r *relay) happened(e *event) {
	r.session.mu.Lock()
	defer r.session.mu.Unlock()
	if e.kind == eventDetach {
		delete(r.session.known, r.id)
	}
	r.push(outgoingItem{event: e})
}

// push puts something into the line. The mutex is held.
func (r *relay) push(it outgoingItem) {
	if r.session.over {
		if d := it.delivery(); d != nil {
			d.drop()
		}
		return
	}
	r.out.push(it)
	r.pump()
}

// resume implements sender.
func (r *relay) resume() {
	r.session.mu.Lock()
	defer r.session.mu.Unlock()
	r.waiting = false
	if !r.session.over {
		r.pump()
	}
}

// forget lets go of everything: the session is over. What a loader has is its to drop.
func (r *relay) forget() {
	r.ended = true
	if !r.loading {
		r.dropAll()
	}
}

func (r *relay) dropAll() {
	for ; r.out.len() > 0; r.out.pop() {
		if d := r.out.front().delivery(); d != nil {
			d.drop()
		}
	}
	r.blob, r.bigHead = nil, nil
}

// pump sends what is in line, as far as it goes. The mutex is held.
func (r *relay) pump() {
	for !r.loading && (r.blob != nil || r.out.len() > 0) {
		if r.step() {
			continue
		}
		if r.loading || r.waiting {
			return
		}
		r.waiting = true
		r.session.guest.wait(r)
	}
}

// step sends one message; false: there is no room, or a loader has to come first.
func (r *relay) step() bool {
	if r.blob != nil {
		if !r.transmit(func(dst []byte) []byte { return append(dst, r.blob...) }) {
			return false
		}
		r.blob = nil
		for ; r.pops > 0; r.pops-- {
			r.out.pop()
		}
		return true
	}
	it := r.out.front()
	d := it.delivery()
	switch {
	case it.failed != nil:
		if !r.leaveToOthers(it) {
			r.unreadable(it)
		}
		return true
	case d != nil && d.Load != nil:
		r.loading = true
		r.session.guest.reg.loads.add(r)
		return false
	case d != nil && it.chunk < len(d.Message.Chunks):
		if !r.transmit(func(dst []byte) []byte { return r.appendChunk(dst, d.Message.Chunks[it.chunk]) }) {
			return false
		}
		it.chunk++
		return true
	case it.event == nil && len(d.Message.Chunks) == 0:
		return r.sendPlain()
	}
	if !r.transmit(func(dst []byte) []byte { return r.appendWhole(dst, it, d) }) {
		return false
	}
	r.out.pop()
	return true
}

func (r *relay) transmit(append func([]byte) []byte) bool {
	return r.session.guest.reg.send(r.session.guest.node, true, append)
}

func (r *relay) appendChunk(dst, chunk []byte) []byte {
	dst = binary.AppendUvarint(r.session.headOf(farDeliverChunk).append(dst), uint64(r.id))
	return append(dst, chunk...)
}

// appendWhole appends the message of an event, or of a single delivery.
func (r *relay) appendWhole(dst []byte, it *outgoingItem, d *Delivery) []byte {
	var head []byte
	chunks := 0
	if d != nil {
		head, chunks = d.Message.Head, len(d.Message.Chunks)
	}
	return r.appendItem(dst, it, head, chunks)
}

func (r *relay) appendItem(dst []byte, it *outgoingItem, head []byte, chunks int) []byte {
	if it.event != nil {
		return it.event.append(r.session.headOf(farEvent).append(dst), head, chunks)
	}
	dst = binary.AppendUvarint(r.session.headOf(farDeliver).append(dst), uint64(r.id))
	return appendDelivery(dst, &it.d, head, chunks)
}

// sendPlain sends the deliveries at the front of the line that are in memory.
func (r *relay) sendPlain() bool {
	ds := r.scratch[:0]
	for i := r.out.head; i < len(r.out.list) && len(ds) < keepSending; i++ {
		if r.out.list[i].event != nil || r.out.list[i].failed != nil {
			break
		}
		ds = append(ds, r.out.list[i].d)
	}
	sent := r.sendNow(ds[:plain(ds)])
	for range sent {
		r.out.pop()
	}
	clear(ds)
	r.scratch = ds
	if r.out.len() == 0 {
		r.scratch = nil
	}
	return sent > 0
}

// leaveToOthers has another member lead a quorum queue if this one cannot read what it has to deliver: others have it, and the
// session goes on with the one that leads next. It reports whether that is so.
func (r *relay) leaveToOthers(it *outgoingItem) bool {
	h := r.session.handle.host
	if h == nil || !h.leaveToOthers(r.session, it.failed) {
		return false
	}
	r.ended = true
	r.dropAll()
	return true
}

// unreadable deals with the first in line, which cannot be read.
func (r *relay) unreadable(it *outgoingItem) {
	s := r.session
	d, err := it.delivery(), it.failed
	h := s.handle
	lost := Lost(err)
	s.guest.reg.o.Logger.Error("a message cannot be read", "vhost", h.Def().VHost, "queue", h.Def().Name, "lost", lost, "error", err)
	one := []queue.Range{{First: d.ID, Last: d.ID}}
	reason := amqperr.QueueUnavailable(h.Def().VHost, h.Def().Name, err.Error())
	r.bigHead = nil
	switch {
	case lost:
		h.Settle(r.home, one, queue.Discard)
	case it.event != nil:
		h.Settle(r.home, one, Return)
	}
	switch {
	case it.event != nil:
		it.event.ok, it.event.d, it.failed = false, Delivery{}, nil
		if !lost {
			it.event.err = reason
		}
	case lost:
		if r.out.pop(); r.counted {
			h.Credit(r.home, 1, false)
		}
	default:
		r.ended = true
		s.remove(r)
		h.Detach(r.home, nil)
		r.dropDeliveries()
		r.out.push(outgoingItem{event: &event{kind: eventCancelled, consumer: r.id, err: reason}})
	}
}

// dropDeliveries takes the deliveries out of the line.
func (r *relay) dropDeliveries() {
	var events []outgoingItem
	for ; r.out.len() > 0; r.out.pop() {
		if it := r.out.front(); it.event != nil {
			events = append(events, *it)
		} else {
			it.d.drop()
		}
	}
	for _, it := range events {
		r.out.push(it)
	}
}

// loads reads messages from the disk for relays, and for who needs their sizes, on a few goroutines
// that live as long as there is something to read. A relay is with one of them at most, so its
// deliveries stay in order.
type loads struct {
	reg     *Registry
	mu      sync.Mutex
	line    []toLoad
	running int
}

// toLoad has something to be read. It reads some of it, with rd and, if it likes, into buf, which it returns.
type toLoad interface {
	load(rd *Reader, buf []byte) []byte
}

const (
	maxLoaders = 2
	loadAtOnce = 64 // messages for one relay, before the others have their turn
)

var errNoReader = errors.New("this node cannot read its log for other nodes")

func (l *loads) add(r toLoad) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.line = append(l.line, r)
	if !l.reg.o.Stepped && l.running < maxLoaders {
		l.running++
		go l.run()
	}
}

func (l *loads) newReader() *Reader {
	if l.reg.o.NewReader == nil {
		return &Reader{}
	}
	return l.reg.o.NewReader()
}

func (l *loads) run() {
	rd := l.newReader()
	var buf []byte
	for l.step(rd, &buf) {
	}
}

// step reads for the first one in line; false: there is none, and the goroutine ends.
func (l *loads) step(rd *Reader, buf *[]byte) bool {
	l.mu.Lock()
	if len(l.line) == 0 {
		l.running--
		l.line = nil
		l.mu.Unlock()
		return false
	}
	r := l.line[0]
	l.line[0] = nil
	l.line = l.line[1:]
	l.mu.Unlock()
	*buf = r.load(rd, (*buf)[:0])
	if cap(*buf) > 4*messageSize {
		*buf = nil
	}
	return true
}

// load reads the first messages in the relay's line and sends them. buf is for use.
func (r *relay) load(rd *Reader, buf []byte) []byte {
	s := r.session
	var items [loadAtOnce]outgoingItem
	s.mu.Lock()
	n := 0
	for i := r.out.head; i < len(r.out.list) && n < loadAtOnce && !s.over; i++ {
		it := r.out.list[i]
		d := it.delivery()
		if n > 0 && (it.event != nil || d.Load == nil || d.Load.Chunks() > 0) {
			break
		}
		items[n] = it
		if n++; it.event != nil || d.Load.Chunks() > 0 {
			break
		}
	}
	s.mu.Unlock()
	loaded, chunks := 0, 0
	var err error
	if n > 0 {
		buf, loaded, chunks, err = r.read(rd, items[:n], buf)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	r.loading = false
	if s.over {
		r.dropAll()
		return buf
	}
	r.out.front().chunk += chunks
	if err != nil {
		r.out.list[r.out.head+loaded].failed = err
	}
	if loaded > 0 || chunks > 0 {
		r.blob, r.pops = buf, loaded
	}
	r.pump()
	if r.blob != nil {
		r.blob = bytes.Clone(r.blob)
	}
	return buf
}

// read makes a message of the items, or of one chunk of the first. It says how many
// items, or chunks, are in it; with err, the one behind them cannot be read.
func (r *relay) read(rd *Reader, items []outgoingItem, buf []byte) (_ []byte, loaded, chunks int, err error) {
	first := &items[0]
	d := first.delivery()
	if rd.log == nil && d.Load.inLog() {
		return buf, 0, 0, errNoReader
	}
	if k := d.Load.Chunks(); k > 0 {
		if r.bigHead == nil {
			m, err := d.Load.Load(rd)
			if err != nil {
				return buf, 0, 0, err
			}
			r.bigHead = bytes.Clone(m.Head)
		}
		if first.chunk < k {
			p, err := d.Load.Chunk(rd, first.chunk)
			if err != nil {
				return buf, 0, 0, err
			}
			return r.appendChunk(buf, p), 0, 1, nil
		}
		buf = r.appendItem(buf, first, r.bigHead, k)
		r.bigHead = nil
		return buf, 1, 0, nil
	}
	if first.event != nil {
		m, err := d.Load.Load(rd)
		if err != nil {
			return buf, 0, 0, err
		}
		return r.appendItem(buf, first, m.Head, 0), 1, 0, nil
	}
	buf = binary.AppendUvarint(r.session.headOf(farDeliver).append(buf), uint64(r.id))
	for i := range items {
		if rd.log == nil && items[i].d.Load.inLog() {
			return buf, i, 0, errNoReader
		}
		m, err := items[i].d.Load.Load(rd)
		if err != nil {
			return buf, i, 0, err
		}
		if buf = appendDelivery(buf, &items[i].d, m.Head, 0); len(buf) > messageSize {
			return buf, i + 1, 0, nil
		}
	}
	return buf, len(items), 0, nil
}

// inLog reports whether anything of the message has to be read from the log.
func (l *Loader) inLog() bool {
	return l.head.log != nil || l.big != nil && slices.ContainsFunc(l.big.chunks, func(c chunk) bool { return c.pin.log != nil })
}
