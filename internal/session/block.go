package session

import (
	"sync"
	"sync/atomic"

	"holdfast/internal/wire"
)

// block holds a connection back while the broker runs short of something. A
// connection is held back from its first publish under an alarm on: that publish
// is taken, and nothing more is read, acknowledgements included. One that does
// not publish meanwhile is not touched, so that queues can drain.
//
// An alarm of another node concerns publishes to queues that it leads: the broker
// sees these, and has the connection held back at once.
type block struct {
	c     *conn
	alarm atomic.Bool // of this node
	is    atomic.Bool // held back

	mu       sync.Mutex
	reason   string        // of the alarm
	far      bool          // held back for another node
	released chan struct{} // not nil: held back, until it is closed
}

// notePublish is called for every publish.
func (b *block) notePublish() {
	if b.alarm.Load() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.alarm.Load() {
			b.hold(b.reason)
		}
	}
}

// set turns the alarm on or off.
func (b *block) set(on bool, reason string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.alarm.Store(on)
	b.reason = reason
	b.release()
}

// setFar has the connection held back for another node, or not any more.
func (b *block) setFar(on bool, reason string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.far = on; on {
		b.hold(reason)
	}
	b.release()
}

// hold holds the connection back. The mutex is held.
func (b *block) hold(reason string) {
	if b.released != nil {
		return
	}
	b.released = make(chan struct{})
	b.is.Store(true)
	if b.c.client.blocked {
		b.c.out.method(nil, &wire.ConnectionBlocked{Reason: reason})
	}
	b.c.log.Warn("connection is held back", "reason", reason)
}

// release lets the connection go on that is held back, if nothing speaks against it any more. The mutex is held.
func (b *block) release() {
	if b.released == nil || b.far || b.alarm.Load() {
		return
	}
	if b.c.client.blocked { // before the answers to what it had sent meanwhile
		b.c.out.method(nil, &wire.ConnectionUnblocked{})
	}
	close(b.released)
	b.released = nil
	b.is.Store(false)
	b.c.log.Info("connection is let go on")
}

// held returns what to wait for before reading on, nil for nothing.
func (b *block) held() <-chan struct{} {
	if !b.is.Load() {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.released
}

// state is the connection's state for listings.
func (b *block) state() string {
	switch {
	case b.held() != nil:
		return "blocked"
	case b.alarm.Load():
		return "blocking"
	}
	return "running"
}
