package session

import (
	"errors"
	"io"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"holdfast/internal/amqperr"
	"holdfast/internal/broker"
	"holdfast/internal/clock"
	"holdfast/internal/wire"
)

// Bounds of waiting.
const (
	// confirmGrace is what publishes before a channel error get to be confirmed.
	confirmGrace = time.Second
	// answerWait bounds the wait for an answer that cannot fail.
	answerWait = 15 * time.Second
	// lingerWait is what a client gets to close its end after the last frame.
	lingerWait = 2 * time.Second
)

// conn is one client's connection. Its reader goroutine runs it: it parses what
// comes, carries it out or hands it to a channel's worker, and ends it. The
// writer goroutine writes the outbox. Anybody else goes through Control, the
// outbox and the channels' own locks.
type conn struct {
	server *Server
	socket net.Conn
	secure bool
	log    *slog.Logger
	out    outbox
	block  block

	// Set by the handshake, constant after it.
	name        string
	user        *broker.Identity
	broker      *broker.Conn
	credit      *broker.Credit
	vhost       string
	mechanism   string
	client      clientProperties
	frameMax    uint32
	channelMax  uint16
	heartbeat   time.Duration
	connectedAt time.Time
	opened      atomic.Bool // the broker knows the connection

	// The reader's.
	slab   slab
	dirty  []*channel // channels with something to flush
	last   *channel   // the channel of the last frame
	turn   bool       // has one of the server's turns
	frames int        // taken in since others were let run

	mu       sync.Mutex
	channels map[uint16]*channel
	reason   *amqperr.Error // why the server closes the connection
	doomed   []doomed       // channels that the reader is to close

	stop       chan struct{} // closed when the connection begins to end
	stopOnce   sync.Once
	workers    sync.WaitGroup // goroutines of channels
	writerDone chan struct{}

	pulse         clock.Timer // under mu
	waiting       atomic.Bool // the reader waits, and not for the client
	backlog       backlog
	writing       atomic.Bool // the writer waits for the client
	receivedBytes atomic.Uint64
	sentBytes     atomic.Uint64
}

// clientProperties are what a client said of itself.
type clientProperties struct {
	table        wire.Table
	cancelNotify bool // wants basic.cancel when a queue ends its consumer
	blocked      bool // wants connection.blocked
	failureClose bool // wants connection.close when login fails
}

func newConn(s *Server, nc net.Conn, secure bool) *conn {
	c := &conn{
		server: s, socket: nc, secure: secure,
		name:        nc.RemoteAddr().String() + " -> " + nc.LocalAddr().String(),
		frameMax:    handshakeFrameMax,
		connectedAt: s.clock.Now(),
		stop:        make(chan struct{}),
		writerDone:  make(chan struct{}),
	}
	c.log = s.log.With("connection", c.name)
	c.out.wake = make(chan struct{}, 1)
	c.backlog.room = make(chan struct{}, 1)
	c.block.c = c
	return c
}

// run serves the connection until it has ended and everything it held is back.
func (c *conn) run() {
	w := &writer{c: c}
	if w.raw = newRawWriter(c.socket); w.raw != nil {
		c.out.here, c.out.taken = w.here, &w.b
	}
	go func() {
		defer close(c.writerDone)
		w.run()
	}()
	if c.handshake() {
		c.log.Info("connection opened", "vhost", c.vhost, "user", c.user.Name)
		c.serve()
		c.log.Info("connection closed", "vhost", c.vhost, "user", c.user.Name)
	}
	c.finish()
}

// serve takes frames in until the connection ends, and says goodbye.
func (c *conn) serve() {
	for {
		c.takeTurn()
		err := c.takeIn()
		c.flush()
		c.endTurn()
		if err == nil {
			err = c.more()
		}
		if why := c.closing(); why != nil {
			err = why
		}
		if err != nil {
			c.end(err)
			return
		}
	}
}

// more reads more frames, as soon as there is room for them.
func (c *conn) more() error {
	if !c.waitForRoom() {
		return errBrokenOff
	}
	if err := c.fill(); err != nil && !c.closeDoomed(err) {
		return err
	}
	return nil
}

// end ends an open connection: the client closed it, or it is told why, or it
// is no longer there.
func (c *conn) end(err error) {
	var told *amqperr.Error
	switch {
	case errors.Is(err, errClosedByClient):
		c.workers.Wait() // what came before connection.close is carried out
		c.letGo()
		c.agreeToClose()
		return
	case errors.As(err, &told):
		c.goodbye(told)
	default:
		c.logBroken(err)
	}
	c.letGo()
}

// errBrokenOff ends serve: the socket failed or the client fell silent while
// the reader was waiting for something else.
var errBrokenOff = errors.New("broken off")

// errClosedByClient ends serve: the client sent connection.close.
var errClosedByClient = errors.New("closed by the client")

// takeIn carries out the frames that were read.
func (c *conn) takeIn() error {
	for {
		f, ok, err := c.slab.next(c.frameMax)
		if err != nil {
			return err
		}
		if !ok {
			c.countUnfinished()
			return nil
		}
		c.frames++
		if err := c.frame(f); err != nil {
			return err
		}
	}
}

// fill reads more from the client.
func (c *conn) fill() error {
	n, err := c.slab.fill(c.socket)
	c.receivedBytes.Add(uint64(n))
	if n > 0 {
		return nil
	}
	if err == nil {
		return io.ErrNoProgress
	}
	return err
}

// waitForRoom waits until the queues can take more, the client has read what is
// owed to it, and no alarm holds it back. It returns false if the connection is
// to end.
func (c *conn) waitForRoom() bool {
	if c.credit.Enough() && c.out.full() == nil && c.block.held() == nil && c.credit.MayCome() {
		return !c.stopping()
	}
	c.waiting.Store(true)
	defer c.waiting.Store(false)
	if !c.credit.Wait(c.stop) {
		return false
	}
	return c.waitFor(c.out.full()) && c.waitFor(c.block.held()) && c.credit.WaitToCome(c.stop)
}

// waitForCredit waits until the queues can take more, in the middle of what was
// read: one read may hold publishes for very many queues. It runs on the reader.
func (c *conn) waitForCredit() {
	if !c.credit.Enough() {
		c.flush()
		c.aside(func() bool { return c.credit.Wait(c.stop) })
	}
}

// waitFor waits for a channel to be closed, if there is one; false: the
// connection is to end.
func (c *conn) waitFor(wait <-chan struct{}) bool {
	if wait == nil {
		return true
	}
	select {
	case <-wait:
		return true
	case <-c.stop:
		return false
	}
}

// flush hands on what the channels collected.
func (c *conn) flush() {
	for i, ch := range c.dirty {
		ch.dirty = false
		if !ch.busy.Load() {
			ch.flush()
		}
		c.dirty[i] = nil
	}
	c.dirty = c.dirty[:0]
}

// stopping reports whether the connection has begun to end.
func (c *conn) stopping() bool {
	select {
	case <-c.stop:
		return true
	default:
		return false
	}
}

// halt begins to end the connection: nobody waits for anything any more.
func (c *conn) halt() { c.stopOnce.Do(func() { close(c.stop) }) }

// closing returns why the server closes the connection, nil if it does not.
func (c *conn) closing() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reason == nil {
		return nil
	}
	return c.reason
}

// Close starts closing the connection. The first reason counts.
func (c *conn) Close(reason *amqperr.Error) {
	c.mu.Lock()
	first := c.reason == nil
	if first {
		c.reason = reason
	}
	c.mu.Unlock()
	if !first {
		return
	}
	c.halt()
	c.socket.SetReadDeadline(past) // the reader wakes and sees the reason
}

// past is a moment that is over.
var past = time.Unix(1, 0)

// Block holds the connection back from publishing, or lets it go on.
func (c *conn) Block(on bool, reason string) { c.block.set(on, reason) }

// Hold holds the connection back for a queue that another node leads, or lets it go on.
func (c *conn) Hold(on bool, reason string) { c.block.setFar(on, reason) }

// broken is called by the writer when the socket fails.
func (c *conn) broken(err error) {
	c.log.Warn("connection ended while it was written to", "error", err)
	c.halt()
	c.socket.Close()
}

func (c *conn) logBroken(err error) {
	if c.stopping() {
		return // it was broken off here, and that was logged
	}
	c.log.Warn("connection ended without connection.close", "error", err)
}

// goodbye closes the connection from the server's side: connection.close, then
// nothing is taken in but the client's answer.
func (c *conn) goodbye(why error) {
	var e *amqperr.Error
	errors.As(why, &e)
	if e.Code == amqperr.ConnectionForced {
		c.log.Info("connection is closed by the server", "reason", e.Text)
	} else {
		c.log.Error("connection error", "error", e.Text, "class", e.Class, "method", e.Method)
	}
	c.halt()
	if e.Code != amqperr.ConnectionForced { // then the node may not be able to, and is about to end, perhaps
		c.letGo() // who is told can count on it
	}
	timer := c.server.clock.AfterFunc(c.server.options.CloseTimeout, func() { c.socket.Close() })
	defer timer.Stop()
	c.out.method(nil, &wire.ConnectionClose{ReplyCode: e.Code, ReplyText: e.Text, ClassID: e.Class, MethodID: e.Method})
	c.letGo()
	c.awaitCloseOk()
}

// awaitCloseOk drops what comes until the client has answered connection.close.
func (c *conn) awaitCloseOk() {
	c.socket.SetReadDeadline(time.Time{})
	var answer wire.Method
	for waiting := true; waiting; {
		f, ok, err := c.slab.next(c.frameMax)
		switch {
		case err != nil: // what follows garbage cannot be told apart
			waiting = false
		case !ok:
			waiting = c.fill() == nil
		case f.Channel == 0 && f.Type == wire.FrameMethod:
			switch id, _, _ := wire.SplitMethod(f.Payload); id {
			case wire.IDConnectionCloseOk:
				waiting = false
			case wire.IDConnectionClose: // both at once
				waiting = false
				answer = &wire.ConnectionCloseOk{}
			}
		}
	}
	c.sayLast(answer)
}

// letGo gives back what the channels held and deletes the exclusive queues. It
// returns when that has happened.
func (c *conn) letGo() {
	if c.broker == nil || !c.opened.CompareAndSwap(true, false) {
		return
	}
	c.halt()
	c.workers.Wait()
	c.mu.Lock()
	channels := slices.Collect(maps.Values(c.channels))
	c.mu.Unlock()
	for _, ch := range channels {
		ch.forgetIncomplete() // the connection may stay a while, until the client has answered
	}
	c.credit.End()
	gone := make(chan struct{})
	c.broker.Close(func() { close(gone) })
	c.awaitHard(gone)
}

// sayLast writes a last method, if there is one, and gives the client the time
// to close its end: otherwise bytes still under way from it would make the
// kernel throw away what it has not read yet.
func (c *conn) sayLast(m wire.Method) {
	c.out.end(m)
	c.linger(lingerWait, true)
}

// agreeToClose answers connection.close and leaves closing the socket to the
// client, so that no thread of it takes the end for a broken link.
func (c *conn) agreeToClose() {
	c.out.end(&wire.ConnectionCloseOk{})
	c.linger(c.server.options.CloseTimeout, false)
}

// linger waits until everything is written and the client has closed its end,
// or its time is over. With half, this end is closed meanwhile.
func (c *conn) linger(wait time.Duration, half bool) {
	timer := c.server.clock.AfterFunc(wait, func() { c.socket.Close() })
	defer timer.Stop()
	<-c.writerDone
	if half {
		if s, ok := c.socket.(interface{ CloseWrite() error }); !ok || s.CloseWrite() != nil {
			return
		}
	}
	c.socket.SetReadDeadline(time.Time{})
	var sink [512]byte
	for {
		if _, err := c.socket.Read(sink[:]); err != nil {
			return
		}
	}
}

// finish ends what is left of the connection.
func (c *conn) finish() {
	c.halt()
	c.stopPulse()
	c.out.close()
	c.socket.Close()
	<-c.writerDone
	c.mu.Lock()
	left := c.channels
	c.channels = nil
	c.mu.Unlock()
	for _, ch := range left {
		c.server.channelClosed(ch)
	}
}

// await waits for an answer to something a channel asked for, for a bounded
// time and no longer than the connection lasts.
func (c *conn) await(answer <-chan struct{}) { c.awaitUntil(answer, c.stop) }

// awaitHard waits even though the connection ends.
func (c *conn) awaitHard(answer <-chan struct{}) { c.awaitUntil(answer, nil) }

func (c *conn) awaitUntil(answer, stop <-chan struct{}) {
	select { // mostly there is one before a timer would be worth it
	case <-answer:
		return
	default:
	}
	expired, done := clock.After(c.server.clock, answerWait)
	defer done()
	select {
	case <-answer:
	case <-stop:
	case <-expired:
		c.log.Error("no answer within the bounded time")
	}
}
