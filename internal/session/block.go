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
type block struct {
	c     *conn
	alarm atomic.Bool

	mu       sync.Mutex
	reason   string
	released chan struct{} // not nil: held back, until it is closed
}

// notePublish is called for every publish.
func (b *block) notePublish() {
	if b.alarm.Load() {
		b.hold()
	}
}

// set turns the alarm on or off.
func (b *block) set(on bool, reason string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.alarm.Store(on)
	b.reason = reason
	if on || b.released == nil {
		return
	}
	close(b.released)
	b.released = nil
	if b.c.client.blocked {
		b.c.out.method(nil, &wire.ConnectionUnblocked{})
	}
	b.c.log.Info("connection is let go on")
}

// hold holds the connection back.
func (b *block) hold() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.released != nil || !b.alarm.Load() {
		return
	}
	b.released = make(chan struct{})
	if b.c.client.blocked {
		b.c.out.method(nil, &wire.ConnectionBlocked{Reason: b.reason})
	}
	b.c.log.Warn("connection is held back", "reason", b.reason)
}

// held returns what to wait for before reading on, nil for nothing.
func (b *block) held() <-chan struct{} {
	if !b.alarm.Load() {
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
