package session

import (
	"sync/atomic"

	"holdfast/internal/wire"
)

// Bounds of the frames that busy channels keep because they cannot be carried
// out yet. Where one is reached, the reader waits for a worker, and with it the
// whole connection.
const (
	channelBacklog    = 1 << 20
	connectionBacklog = 4 << 20
	// keptFrame is what a frame costs beside its bytes.
	keptFrame = 64
)

// backlog counts what the busy channels of a connection keep.
type backlog struct {
	bytes  atomic.Int64
	wanted atomic.Bool   // the reader waits for room
	room   chan struct{} // capacity 1
}

// backlogCost is what a kept frame counts as.
func backlogCost(kept []byte) int { return len(kept) + keptFrame }

// putOff keeps a copy of a frame for the worker; false: the worker has given the
// channel back meanwhile.
func (ch *channel) putOff(f wire.Frame) bool {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	for ch.busy.Load() && ch.backlogFull() {
		ch.conn.backlog.wanted.Store(true)
		if !ch.backlogFull() { // a worker that has not seen the wish
			break
		}
		ch.mu.Unlock()
		ok := ch.conn.waitForBacklog()
		ch.mu.Lock()
		if !ok {
			return true
		}
	}
	if !ch.busy.Load() {
		return false
	}
	ch.keep(f)
	return true
}

// waitForBacklog waits until a worker has made room; false: the connection is
// to end. It runs on the reader.
func (c *conn) waitForBacklog() bool {
	return c.aside(func() bool { return c.waitFor(c.backlog.room) })
}

// backlogFull reports whether the channel may keep nothing more. ch.mu is held.
func (ch *channel) backlogFull() bool {
	return ch.backBytes > channelBacklog || ch.conn.backlog.bytes.Load() > connectionBacklog
}

// keep appends a copy of a frame to the backlog. ch.mu is held.
func (ch *channel) keep(f wire.Frame) {
	b := append(make([]byte, 0, len(f.Payload)+1), byte(f.Type))
	b = append(b, f.Payload...)
	ch.backlog = append(ch.backlog, b)
	ch.backBytes += backlogCost(b)
	ch.conn.backlog.bytes.Add(int64(backlogCost(b)))
}

// release takes n off what the channel keeps, and tells the reader when there
// is clearly room again, or this worker makes no more. ch.mu is held.
func (ch *channel) release(n int) {
	ch.backBytes -= n
	l := &ch.conn.backlog
	left := l.bytes.Add(-int64(n))
	room := ch.backBytes <= channelBacklog/2 && left <= connectionBacklog/2
	if (room || !ch.busy.Load()) && l.wanted.CompareAndSwap(true, false) {
		select {
		case l.room <- struct{}{}:
		default:
		}
	}
}
