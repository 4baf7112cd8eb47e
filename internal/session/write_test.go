package session

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"testing"

	"holdfast/internal/broker"
	"holdfast/internal/config"
	"holdfast/internal/message"
	"holdfast/internal/wire"
)

// sink is a socket that keeps what is written.
type sink struct {
	net.Conn
	bytes.Buffer
}

func (s *sink) Write(p []byte) (int, error) { return s.Buffer.Write(p) }
func (s *sink) Read(p []byte) (int, error)  { return s.Buffer.Read(p) }
func (s *sink) Close() error                { return nil }

// newWriter returns a writer over a socket that keeps everything.
func newWriter() (*writer, *sink) {
	s := &sink{}
	c := &conn{server: &Server{}, socket: s, frameMax: 131072, stop: make(chan struct{})}
	c.out.wake = make(chan struct{}, 1)
	return &writer{c: c}, s
}

func build(size int) message.Message {
	var b message.Builder
	b.Begin("", "q", nil, uint64(size), false)
	b.Write(make([]byte, size))
	return b.Message()
}

// TestBodiesTakeTurns: while a large body goes out, other channels are served
// between its pieces, and frames of its own channel wait behind it. R39, R40.
func TestBodiesTakeTurns(t *testing.T) {
	w, s := newWriter()
	c := w.c
	one, two := &channel{conn: c, number: 1}, &channel{conn: c, number: 2}
	h1 := &holder{ch: one, tag: []byte("one"), noAck: true}
	h2 := &holder{ch: two, tag: []byte("two"), noAck: true}
	c.out.deliver(h1, []broker.Delivery{{Message: build(3 * message.ChunkSize)}, {Message: build(10)}})
	c.out.deliver(h2, []broker.Delivery{{Message: build(2 * message.ChunkSize)}})
	c.out.method(one, &wire.BasicQosOk{})
	c.out.deliver(h2, []broker.Delivery{{Message: build(20)}})
	c.out.end(nil)
	// The end stands behind it all; it must not cut the bodies short.
	var b batch
	c.out.swap(&b, false)
	end := b.items[len(b.items)-1]
	b.items = b.items[:len(b.items)-1]
	w.borrow()
	w.write(&b)
	for len(w.tails) > 0 {
		w.turn()
	}
	w.item(&end, b.raw)
	w.flush()

	var order strings.Builder
	for out := s.Bytes(); len(out) > 0; {
		head := wire.ParseFrameHead(out)
		payload := out[wire.FrameHeaderSize : wire.FrameHeaderSize+int(head.Size)]
		if head.Type == wire.FrameMethod {
			id, _, _ := wire.SplitMethod(payload)
			fmt.Fprintf(&order, "%d %s\n", head.Channel, id)
		} else {
			fmt.Fprintf(&order, "%d %s %d\n", head.Channel, head.Type, head.Size)
		}
		if out[wire.FrameHeaderSize+int(head.Size)] != wire.FrameEnd {
			t.Fatal("frame without its end")
		}
		out = out[int(head.Size)+wire.FrameOverhead:]
	}
	piece := "content body frame"
	want := fmt.Sprintf(`1 basic.deliver
1 content header frame 14
2 basic.deliver
2 content header frame 14
1 %[1]s 131064
1 %[1]s 131064
1 %[1]s 16
2 %[1]s 131064
2 %[1]s 131064
2 %[1]s 16
1 %[1]s 131064
1 %[1]s 131064
1 %[1]s 16
2 %[1]s 131064
2 %[1]s 131064
2 %[1]s 16
2 basic.deliver
2 content header frame 14
2 %[1]s 20
1 %[1]s 131064
1 %[1]s 131064
1 %[1]s 16
1 basic.deliver
1 content header frame 14
1 %[1]s 10
1 basic.qos-ok
`, piece)
	if order.String() != want {
		t.Errorf("got\n%s", order.String())
	}
}

// What waits behind a large body still counts as waiting: a client that reads
// less than it makes the broker answer is not read from meanwhile.
func TestAnswersBehindABodyAreWaiting(t *testing.T) {
	w, _ := newWriter()
	ch, other := &channel{conn: w.c, number: 1}, &channel{conn: w.c, number: 2}
	out := &w.c.out
	const large = 3 * message.ChunkSize
	for range 3 {
		out.giveBack(ch, &returned{message: build(large)})
		out.method(ch, &wire.BasicQosOk{})
	}
	out.method(other, &wire.BasicQosOk{})
	out.heartbeat()
	out.methodOn(itemLast, ch, 1, &wire.ChannelCloseOk{})
	out.giveBack(ch, &returned{message: build(large)}) // behind the end: dropped
	var b batch
	out.swap(&b, false)
	w.pass(&b)
	if out.waiting < 4*large {
		t.Errorf("%d bytes wait", out.waiting)
	}
	for passes := 0; len(w.tails) > 0; passes++ {
		if passes > 20 {
			t.Fatal("no end")
		}
		out.swap(&b, false)
		w.pass(&b)
	}
	if out.waiting != 0 {
		t.Errorf("%d bytes wait when all is written", out.waiting)
	}
}

// TestNothingFollowsTheEndOfAChannel: deliveries behind channel.close are not
// written, and a channel opened anew under the same number is another one.
func TestNothingFollowsTheEndOfAChannel(t *testing.T) {
	w, s := newWriter()
	old, young := &channel{conn: w.c, number: 1}, &channel{conn: w.c, number: 1}
	h := &holder{ch: old, tag: []byte("c"), noAck: true}
	w.c.out.methodOn(itemLast, old, 1, &wire.ChannelCloseOk{})
	w.c.out.deliver(h, []broker.Delivery{{Message: build(10)}})
	w.c.out.method(young, &wire.ChannelOpenOk{})
	w.c.out.end(nil)
	w.run()
	want := wire.AppendMethod(wire.AppendMethod(nil, 1, &wire.ChannelCloseOk{}), 1, &wire.ChannelOpenOk{})
	if !bytes.Equal(s.Bytes(), want) {
		t.Errorf("%q", s.Bytes())
	}
}

// Connections that read the log one after the other read with the same things:
// an idle one keeps none.
func TestReadersAreBorrowed(t *testing.T) {
	r := newRig(t, func(s *config.Settings, _ *Options, _ *rig) { s.Storage.TailCache = 1 })
	pub := r.client(t)
	pub.method(1, &wire.QueueDeclare{Queue: "q", Durable: true})
	pub.expect(wire.IDQueueDeclareOk)
	pub.method(1, &wire.ConfirmSelect{})
	pub.expect(wire.IDConfirmSelectOk)
	const connections = 200 // a pool may lose a few: to the garbage collector, and on purpose under the race detector
	for range connections {
		pub.write(encodePublish(t, nil, 1, []string{"key=q", "delivery-mode=2", "body=x"}))
		pub.expect(wire.IDBasicAck)
		c := r.client(t)
		c.method(1, &wire.BasicGet{Queue: "q", NoAck: true})
		if got := c.next(); !strings.HasSuffix(got, `"x"`) {
			t.Fatal(got)
		}
	}
	if n := r.readers.Load(); n == 0 || n > connections/2 {
		t.Errorf("%d readers were made", n)
	}
}
