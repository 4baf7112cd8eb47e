package session

import (
	"sync"
	"sync/atomic"

	"holdfast/internal/wire"
)

// block holds a connection back while the broker runs short of something. A
// connection is held back from its first publish on: nothing more is read from
// it, its acknowledgements included. One that does not publish is not touched.
type block struct {
	c         *conn
	published atomic.Bool // since the last time it was let go

	mu       sync.Mutex
	alarm    bool
	reason   string
	released chan struct{} // not nil: held back, until it is closed
}

// notePublish is called for every publish.
func (b *block) notePublish() {
	if b.published.Load() {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.published.Store(true)
	if b.alarm {
		b.hold()
	}
}

// set turns the alarm on or off.
func (b *block) set(on bool, reason string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.alarm, b.reason = on, reason
	switch {
	case on && b.published.Load():
		b.hold()
	case !on && b.released != nil:
		close(b.released)
		b.released = nil
		b.published.Store(false)
		if b.c.client.blocked {
			b.c.out.method(nil, &wire.ConnectionUnblocked{})
		}
		b.c.log.Info("connection is let go on")
	}
}

// hold holds the connection back. b.mu is held.
func (b *block) hold() {
	if b.released != nil {
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
	if !b.published.Load() {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.released
}

// state is the connection's state for listings.
func (b *block) state() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.released != nil:
		return "blocked"
	case b.alarm:
		return "blocking"
	}
	return "running"
}
