package perf

import (
	"testing"

	"holdfast/internal/wire"
)

// allocations is what one call allocates. Other goroutines, as those that a former test has left, are counted too: the
// least of several looks counts.
func allocations(f func()) float64 {
	least := testing.AllocsPerRun(50, f)
	for i := 0; i < 10 && least > 0; i++ {
		least = min(least, testing.AllocsPerRun(50, f))
	}
	return least
}

// Sending, confirming and receiving allocate nothing per message.
func TestNothingIsAllocatedPerMessage(t *testing.T) {
	const n = 100
	r, w := newRing(message{size: 100, frameMax: 4096}, []route{{"", "q"}}, n), newWindow(n)
	ack := wire.AppendMethod(nil, 1, &wire.BasicAck{DeliveryTag: n, Multiple: true})
	confirms := &conn{buf: make([]byte, 1024)}
	sending := allocations(func() {
		got, at, err := w.take(n)
		if got != n || err != nil {
			t.Fatal(got, err)
		}
		for i := range n {
			r.stamp(i, at, messageID(0, uint64(i)))
		}
		r.take(n)
		// The tags go on, so the confirm for them is written in place.
		ack[wire.FrameHeaderSize+4+6], ack[wire.FrameHeaderSize+4+7] = byte((w.next-1)>>8), byte(w.next-1)
		confirms.r, confirms.w = 0, copy(confirms.buf, ack)
		if _, err := w.buffered(confirms, now()); err != nil || w.unanswered() != 0 {
			t.Fatal(err, w.unanswered())
		}
	})

	c := &echoConn{conn: &conn{}}
	for range n {
		c.deliver(&echoConsumer{c, 1, []byte("tag")}, echoMessage{key: []byte("q"), properties: wire.NewProperties(wire.PropertySet{DeliveryMode: 1}), body: make([]byte, 100)})
	}
	k := &consumer{conn: &conn{buf: c.out}, full: make(chan struct{})}
	receiving := allocations(func() {
		k.conn.r, k.conn.w, k.acks = 0, len(c.out), k.acks[:0]
		if err := k.buffered(now()); err != nil {
			t.Fatal(err)
		}
	})
	if got := k.received.Load(); got%n != 0 || got == 0 {
		t.Fatalf("%d messages were received", got)
	}
	if sending > 0 || receiving > 0 {
		t.Errorf("%v allocations for %d messages sent, %v for as many received", sending, n, receiving)
	}
}
