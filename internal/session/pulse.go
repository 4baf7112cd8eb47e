package session

import "time"

// heart watches over a connection: a heartbeat is due when nothing was sent for
// half an interval, and the client counts as gone when nothing came from it for
// two intervals. The second does not hold while the connection is held back and
// not read from, unless writing to the client is stuck as well.
type heart struct {
	sent, received uint64 // bytes, at the last beat
	silent         int    // beats in a row without a byte from the client
}

// beatsUntilGone is how many half intervals make two intervals.
const beatsUntilGone = 4

// startPulse starts the heartbeats that were agreed on, stopPulse ends them.
func (c *conn) startPulse() {
	if c.heartbeat == 0 {
		return
	}
	every := max(c.heartbeat/2, 500*time.Millisecond)
	var h heart
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pulse = c.server.clock.AfterFunc(every, func() {
		if c.beat(&h) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.pulse.Reset(every)
		}
	})
}

func (c *conn) stopPulse() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.pulse != nil {
		c.pulse.Stop()
	}
}

// beat runs every half interval; false: the connection has ended.
func (c *conn) beat(h *heart) bool {
	if c.stopping() {
		return false
	}
	sent, received := c.sentBytes.Load(), c.receivedBytes.Load()
	if received != h.received {
		h.silent = 0
	} else if !c.waiting.Load() || c.writing.Load() {
		h.silent++
	}
	if h.silent >= beatsUntilGone {
		c.log.Error("missed heartbeats from client", "interval", c.heartbeat)
		c.halt()
		c.socket.Close()
		return false
	}
	if sent == h.sent && !c.writing.Load() {
		c.out.heartbeat()
	}
	h.sent, h.received = sent, received
	return true
}
