package session

import (
	"sync"
	"sync/atomic"

	"holdfast/internal/amqperr"
	"holdfast/internal/broker"
	"holdfast/internal/clock"
	"holdfast/internal/wire"
)

// channel is one channel of a connection.
//
// It belongs to one goroutine at a time, its owner, which alone takes frames
// in. The owner is the connection's reader, until a method comes that has to
// wait for the rest of the broker: then a worker goroutine takes over, the
// reader copies further frames of this channel to the backlog and goes on with
// the other channels. The worker gives the channel back when the backlog is
// empty. Fields without a lock belong to the owner; busy orders the hand-over.
type channel struct {
	conn   *conn
	number uint16

	busy       atomic.Bool   // a worker owns the channel; set by the reader, cleared by the worker
	given      chan struct{} // the owner's: closed when the worker has given the channel back; nil before the first
	gone       atomic.Bool   // no longer in the connection's table
	committing atomic.Bool   // a transaction is: set by the owner, cleared by the worker; no method may come
	dirty      bool          // the reader's, not the owner's: in its list of channels to flush
	ended      bool          // closed or failed: nothing more is carried out

	content   content // the publish whose content is coming in
	coming    int64   // bytes of it that are counted
	publisher *broker.Publisher
	queues    []uint32 // confirm mode: queues of each publish since the last flush
	lastSeq   uint64   // confirm mode: sequence number of the last publish
	flushes   uint64   // how often flush ran
	lastQueue string   // the queue declared last, for empty names
	replyTo   string   // what replaces the direct reply-to pseudo queue
	settling  settling // acknowledgements since the last flush

	confirms *confirms // not nil: confirm mode
	tx       *tx       // not nil: transactional

	holds     atomic.Int64 // bytes counted, of content and tx
	vanishing *vanishing   // mandatory publishes under way, not in confirm mode; nil: there were none yet

	// mu guards what others than the owner look at.
	mu        sync.Mutex
	backlog   [][]byte // whole frames that came while a worker owned the channel
	backBytes int
	state     channelState
	consumers map[string]*holder
	prefetch  uint32         // for consumers to come
	doomed    *amqperr.Error // why the worker that owns the channel is to close it

	flow flow

	// dead is the writer's: the last frame of the channel has been written.
	dead bool
	tag  uint64 // the writer's: last delivery tag given out
	tail *tail  // the writer's: a body on its way out in pieces
}

type channelState uint8

const (
	channelOpen channelState = iota
	// channelFailing: a channel error happened; channel.close is to be sent
	// when what the channel held is back in its queues.
	channelFailing
	// channelFailed: channel.close was sent, the client's close-ok is awaited.
	channelFailed
	// channelClosed: closed by the client, before or after a failure.
	channelClosed
)

// receive takes a frame in, on the reader.
func (ch *channel) receive(f wire.Frame) *amqperr.Error {
	if ch.busy.Load() {
		if err := ch.duringCommit(f); err != nil {
			return err
		}
		if ch.putOff(f) {
			return nil
		}
	}
	if f.Type == wire.FrameMethod && ch.content.stage == contentNone {
		if id, _, ok := wire.SplitMethod(f.Payload); ok && waits(id) && !ch.ended {
			ch.handOver(f)
			return nil
		}
	}
	return ch.carryOut(f)
}

// duringCommit is the error of a method that comes while a transaction is committed, as in RabbitMQ: it would have to wait, and it is
// not clear for what. channel.close ends the channel all the same.
func (ch *channel) duringCommit(f wire.Frame) *amqperr.Error {
	if !ch.committing.Load() || f.Type != wire.FrameMethod {
		return nil
	}
	id, _, _ := wire.SplitMethod(f.Payload)
	if id == wire.IDChannelClose {
		return nil
	}
	return amqperr.DuringCommit().ForMethod(id.Class(), id.Method())
}

// commits notes that a transaction is committed, if that is what the method does.
func (ch *channel) commits(id wire.MethodID) {
	if id == wire.IDTxCommit && ch.tx != nil && ch.tx.mayTake() {
		ch.committing.Store(true)
	}
}

// handOver starts a worker with a frame that has to wait.
func (ch *channel) handOver(f wire.Frame) {
	ch.flush()
	id, _, _ := wire.SplitMethod(f.Payload)
	ch.commits(id)
	ch.given = make(chan struct{})
	ch.mu.Lock()
	ch.keep(f)
	ch.busy.Store(true)
	ch.mu.Unlock()
	ch.conn.workers.Add(1)
	go ch.work(ch.given)
}

// work carries out the backlog, then gives the channel back to the reader.
func (ch *channel) work(given chan<- struct{}) {
	defer ch.conn.workers.Done()
	defer close(given)
	for {
		f, ok := ch.next()
		if !ok {
			return
		}
		if id, _, _ := wire.SplitMethod(f.Payload); f.Type == wire.FrameMethod && waits(id) {
			ch.flush() // what came before has its effect first
			ch.commits(id)
		}
		if err := ch.carryOut(f); err != nil {
			ch.conn.Close(err)
		}
		ch.countContent()
		if ch.publisher != nil && ch.publisher.Pending() >= flushPublishes {
			ch.flush()
			ch.conn.credit.Wait(ch.conn.stop)
		}
	}
}

// next takes a frame of the backlog. When there is none, what was collected is
// handed on and the channel given back.
func (ch *channel) next() (wire.Frame, bool) {
	for {
		ch.mu.Lock()
		if err := ch.doomed; err != nil {
			ch.doomed = nil
			ch.mu.Unlock()
			if !ch.ended {
				ch.fail(err)
			}
			continue
		}
		if len(ch.backlog) > 0 && !ch.conn.stopping() {
			b := ch.backlog[0]
			ch.backlog[0] = nil
			ch.backlog = ch.backlog[1:]
			ch.release(backlogCost(b))
			ch.mu.Unlock()
			return wire.Frame{Type: wire.FrameType(b[0]), Channel: ch.number, Payload: b[1:]}, true
		}
		if !ch.unflushed() || ch.conn.stopping() {
			ch.backlog = nil
			ch.busy.Store(false)
			ch.release(ch.backBytes)
			ch.mu.Unlock()
			return wire.Frame{}, false
		}
		ch.mu.Unlock()
		ch.flush()
	}
}

// carryOut carries out one frame on the owner. A channel error closes the
// channel; an error that is returned ends the connection.
func (ch *channel) carryOut(f wire.Frame) *amqperr.Error {
	err := ch.frame(f)
	if err == nil || err.Scope == amqperr.Connection {
		return err
	}
	ch.fail(err)
	return nil
}

// frame sorts out what a frame is.
func (ch *channel) frame(f wire.Frame) *amqperr.Error {
	if ch.ended {
		return ch.frameWhileClosing(f)
	}
	switch f.Type {
	case wire.FrameMethod:
		if ch.content.stage != contentNone {
			return ch.content.unexpected(f.Type)
		}
		return ch.method(f.Payload)
	case wire.FrameHeader:
		return ch.header(f.Payload)
	default:
		return ch.body(f.Payload)
	}
}

// frameWhileClosing: after a channel error everything but the end of the
// closing handshake is ignored. A client that closed the channel itself has to
// wait for the answer before it opens it again: it would wait for ever for the
// answer to that.
func (ch *channel) frameWhileClosing(f wire.Frame) *amqperr.Error {
	if f.Type != wire.FrameMethod {
		return nil
	}
	switch id, _, _ := wire.SplitMethod(f.Payload); id {
	case wire.IDChannelClose:
		ch.mu.Lock()
		defer ch.mu.Unlock()
		if ch.state == channelFailing {
			ch.state = channelClosed // the goroutine of fail answers
			return nil
		}
		// Both sides closed at once: answer, and go on waiting for the answer.
		ch.conn.out.methodOn(itemRaw, nil, ch.number, &wire.ChannelCloseOk{})
	case wire.IDChannelCloseOk:
		ch.mu.Lock()
		failed := ch.state == channelFailed
		ch.mu.Unlock()
		if failed {
			ch.conn.forget(ch)
		}
	case wire.IDChannelOpen:
		ch.mu.Lock()
		defer ch.mu.Unlock()
		if ch.state == channelClosed {
			return amqperr.ChannelAlreadyOpen(ch.number).ForMethod(id.Class(), id.Method())
		}
	}
	return nil
}

// unflushed reports whether something was collected that flush would hand on.
func (ch *channel) unflushed() bool {
	return len(ch.queues) > 0 || len(ch.settling.parts) > 0 || ch.publisher != nil && ch.publisher.Pending() > 0
}

// flush hands on the publishes and acknowledgements that were collected, in one
// put for each queue.
func (ch *channel) flush() {
	ch.flushes++
	ch.noteConfirms()
	if ch.publisher != nil {
		ch.publisher.Flush()
	}
	if len(ch.settling.parts) > 0 {
		ch.flushSettled()
	}
}

// flushSettled hands on the acknowledgements that were collected.
func (ch *channel) flushSettled() {
	ch.settling.flush()
	ch.flow.serve()
}

// noteConfirms enters collected publishes into what the publisher is owed; it
// must come before anybody can settle them.
func (ch *channel) noteConfirms() {
	if len(ch.queues) > 0 {
		ch.confirms.add(ch.queues)
		ch.queues = ch.queues[:0]
	}
}

// touch puts the channel into the reader's list of channels to flush. A worker
// flushes by itself.
func (ch *channel) touch() {
	if !ch.busy.Load() && !ch.dirty {
		ch.dirty = true
		ch.conn.dirty = append(ch.conn.dirty, ch)
	}
}

// fail closes the channel because of a client's mistake: what it did before
// stands, what it held goes back to the queues, and then the client is told.
func (ch *channel) fail(err *amqperr.Error) {
	ch.flush()
	ch.forgetIncomplete()
	ch.ended = true
	ch.mu.Lock()
	ch.state = channelFailing
	ch.mu.Unlock()
	ch.conn.log.Error("channel error", "channel", ch.number, "error", err.Text)
	ch.conn.workers.Add(1)
	given := ch.given
	go func() {
		defer ch.conn.workers.Done()
		ch.letGo()
		ch.awaitConfirms()
		// A client that has been told may open the number again at once. That
		// must meet the reader: in the backlog of a worker it would be taken for
		// a frame of the channel that failed.
		ch.conn.waitFor(given)
		if !ch.tellFailed(err) { // the client was faster
			ch.conn.forget(ch)
			ch.conn.out.methodOn(itemLast, ch, ch.number, &wire.ChannelCloseOk{})
		}
	}()
}

// tellFailed sends channel.close; false: the client has closed the channel
// itself meanwhile.
func (ch *channel) tellFailed(err *amqperr.Error) bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	if ch.state == channelClosed {
		return false
	}
	ch.state = channelFailed
	ch.conn.out.methodOn(itemLast, ch, ch.number, &wire.ChannelClose{
		ReplyCode: err.Code, ReplyText: err.Text, ClassID: err.Class, MethodID: err.Method,
	})
	return true
}

// close answers channel.close: when what the channel held is back in its queues.
func (ch *channel) close() {
	ch.flush()
	ch.forgetIncomplete()
	ch.ended = true
	ch.mu.Lock()
	ch.state = channelClosed
	ch.mu.Unlock()
	ch.letGo()
	// The number is free before the client can know that it is.
	ch.conn.forget(ch)
	ch.conn.out.methodOn(itemLast, ch, ch.number, &wire.ChannelCloseOk{})
}

// letGo returns when everything the channel held is back in its queues.
func (ch *channel) letGo() {
	released := make(chan struct{})
	ch.conn.broker.CloseChannel(ch.number, func() { close(released) })
	ch.conn.await(released)
}

// awaitConfirms gives publishes that came before a channel error the time to be
// confirmed, since nothing follows channel.close.
func (ch *channel) awaitConfirms() {
	if ch.confirms == nil {
		return
	}
	idle := ch.confirms.whenIdle()
	if idle == nil {
		return
	}
	expired, done := clock.After(ch.conn.server.clock, confirmGrace)
	defer done()
	select {
	case <-idle:
	case <-expired:
	case <-ch.conn.stop:
	}
}
