package session

import (
	"testing"
	"testing/synctest"

	"holdfast/internal/wire"
)

// keeps returns how many frames the channel keeps.
func (ch *channel) keeps() int {
	ch.mu.Lock()
	defer ch.mu.Unlock()
	return len(ch.backlog)
}

// What busy channels keep is bounded for the connection, however many they are,
// and small frames count as what they cost.
func TestBacklogOfManyChannels(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &conn{stop: make(chan struct{})}
		c.backlog.room = make(chan struct{}, 1)
		channels := make([]*channel, 500)
		for i := range channels {
			channels[i] = &channel{conn: c, number: uint16(i + 1)}
			channels[i].busy.Store(true)
		}
		const frames = 400
		kept, refused := 0, 0
		done := false
		go func() {
			defer func() { done = true }()
			for range frames {
				for _, ch := range channels {
					if ch.putOff(wire.Frame{Type: wire.FrameMethod, Payload: make([]byte, 12)}) {
						kept++
					} else {
						refused++
					}
				}
			}
		}()
		synctest.Wait()
		if n := c.backlog.bytes.Load(); n > connectionBacklog+2*keptFrame || done {
			t.Fatalf("%d bytes are kept of %d frames, and the reader waits: %v", n, kept, !done)
		}
		taken := 0
		for taken < kept {
			for _, ch := range channels { // as workers do
				for ch.keeps() > 0 {
					if _, ok := ch.next(); ok {
						taken++
					}
				}
			}
			synctest.Wait()
		}
		if !done || kept != frames*len(channels) || refused != 0 {
			t.Errorf("the reader has ended: %v, %d frames kept and taken, %d refused", done, kept, refused)
		}
		if n := c.backlog.bytes.Load(); n != 0 {
			t.Errorf("%d bytes are left", n)
		}
	})
}

// A worker that ends lets a waiting reader go on with the frame itself.
func TestBacklogOfAWorkerThatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &conn{stop: make(chan struct{})}
		c.backlog.room = make(chan struct{}, 1)
		ch := &channel{conn: c, number: 1}
		ch.busy.Store(true)
		big := wire.Frame{Type: wire.FrameBody, Payload: make([]byte, channelBacklog)}
		if !ch.putOff(big) {
			t.Fatal("not kept")
		}
		other := &channel{conn: c, number: 2} // keeps the connection's backlog above its half
		other.busy.Store(true)
		for range 3 {
			other.backBytes = 0
			other.putOff(big)
		}
		answer := make(chan bool, 1)
		go func() { answer <- ch.putOff(big) }()
		synctest.Wait()
		if len(answer) != 0 {
			t.Fatal("kept beyond the bound")
		}
		for range 2 { // the frame, and the end
			ch.next()
		}
		if <-answer {
			t.Error("kept for a worker that has ended")
		}
	})
}
