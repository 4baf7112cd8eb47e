package session

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"holdfast/internal/broker"
	"holdfast/internal/config"
	"holdfast/internal/wire"
)

// session returns the server's side of the only connection.
func (r *rig) session() *conn {
	r.server.mu.Lock()
	defer r.server.mu.Unlock()
	for c := range r.server.conns {
		return c
	}
	return nil
}

// patience bounds every wait for something that must come about. Only what goes
// wrong takes it, and a machine that is slow or busy is not wrong.
const patience = time.Minute

// until waits for something that must come about.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("in vain: %s", what)
		}
	}
}

func (r *rig) client(t testing.TB) *frameClient {
	s := &script{rig: r}
	c := s.dial(t)
	if got := c.tune(map[string]string{}); got != "0 connection.open-ok" {
		t.Fatal(got)
	}
	c.method(1, &wire.ChannelOpen{})
	c.expect(wire.IDChannelOpenOk)
	return c
}

// TestSlowReaderGetsAWindow: a consumer that does not read is given a bounded
// number of messages; the rest stay ready in the queue. When it reads, all come.
func TestSlowReaderGetsAWindow(t *testing.T) {
	t.Run("no ack", func(t *testing.T) { slowReader(t, true) })
	t.Run("common limit", func(t *testing.T) { slowReader(t, false, 60_000) })
	t.Run("common limit taken away", func(t *testing.T) { slowReader(t, false, 10, 0) })
}

// slowReader sets the channel's limit to each of limits before it consumes.
func slowReader(t *testing.T, noAck bool, limits ...uint16) {
	r := newRig(t)
	sub := r.client(t)
	sub.method(1, &wire.QueueDeclare{Queue: "q"})
	sub.expect(wire.IDQueueDeclareOk)
	for _, n := range limits {
		sub.method(1, &wire.BasicQos{PrefetchCount: n, Global: true})
		sub.expect(wire.IDBasicQosOk)
	}
	sub.method(1, &wire.BasicConsume{Queue: "q", ConsumerTag: "c", NoAck: noAck})
	sub.expect(wire.IDBasicConsumeOk)

	const messages, size = 20_000, 4096
	pub := r.dial(t)
	ch, err := pub.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	body := string(make([]byte, size))
	for range messages {
		if err := publishText(ch, "q", body); err != nil {
			t.Fatal(err)
		}
	}
	ready := func() uint64 {
		q, err := r.broker.QueueInfo("/", "q")
		if err != nil {
			t.Fatal(err)
		}
		return q.MessagesReady
	}
	until(t, "all are published", func() bool {
		q, _ := r.broker.QueueInfo("/", "q")
		return q.Counters.Published == messages
	})
	// The kernel's buffers take some megabytes, our window the rest.
	if n := ready(); n < messages/2 {
		t.Errorf("%d of %d messages are ready; the others wait for a client that does not read", n, messages)
	}
	for i := range messages {
		if got := sub.next(); !strings.Contains(got, fmt.Sprintf("delivery-tag=%d ", i+1)) || !strings.HasSuffix(got, " 4096 bytes in 1 frames") {
			t.Fatalf("message %d: %s", i, got)
		}
	}
	if n := ready(); n != 0 {
		t.Errorf("%d messages are left", n)
	}
}

// TestRecoverReturnsWhatComesBeforeItsAnswer: deliveries that were on their way
// when basic.recover came reach the client before the answer, and go back to
// the queue like those before them. T37
func TestRecoverReturnsWhatComesBeforeItsAnswer(t *testing.T) {
	r := newRig(t)
	c := r.client(t)
	c.method(1, &wire.QueueDeclare{Queue: "q"})
	c.expect(wire.IDQueueDeclareOk)
	const messages = 4000
	var out []byte
	for range messages {
		out = wire.AppendMethod(out, 1, &wire.BasicPublish{RoutingKey: []byte("q")})
		out = wire.AppendContent(out, 1, nil, make([]byte, 4000), 4096)
	}
	c.write(out)
	until(t, "all are published", func() bool {
		q, _ := r.broker.QueueInfo("/", "q")
		return q.MessagesReady == messages
	})
	c.method(1, &wire.BasicConsume{Queue: "q", ConsumerTag: "c"})
	until(t, "deliveries wait for the client", func() bool { return r.session().writing.Load() })
	c.method(1, &wire.BasicRecover{Requeue: true})
	before, after := 0, 0
	for recovered := false; after < messages; {
		f, err := c.frame()
		if err != nil {
			t.Fatalf("after %d deliveries before recover-ok and %d after it: %v", before, after, err)
		}
		switch id, _, _ := wire.SplitMethod(f.Payload); {
		case f.Type != wire.FrameMethod:
		case id == wire.IDBasicRecoverOk:
			recovered = true
		case id == wire.IDBasicDeliver && recovered:
			after++
		case id == wire.IDBasicDeliver:
			before++
		}
	}
	if before == 0 {
		t.Error("no delivery came before recover-ok")
	}
}

// TestAnswersWaitForTheClient: a client that asks and does not read the answers
// is not read from, and its answers take bounded memory.
func TestAnswersWaitForTheClient(t *testing.T) {
	r := newRig(t)
	c := r.client(t)
	const questions = 400_000
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		var batch []byte
		for range 1000 {
			batch = wire.AppendMethod(batch, 1, &wire.BasicQos{PrefetchCount: 1})
			batch = wire.AppendMethod(batch, 1, &wire.AccessRequest{})
		}
		for range questions / 2000 {
			c.nc.SetWriteDeadline(time.Now().Add(patience))
			if _, err := c.nc.Write(batch); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	out := &r.session().out
	waiting := func() int {
		out.mu.Lock()
		defer out.mu.Unlock()
		return out.waiting
	}
	for range 50 {
		if n := waiting(); n > fullBytes+4*readMax {
			t.Fatalf("%d bytes of answers wait", n)
		}
		time.Sleep(time.Millisecond)
	}
	for range questions {
		if _, err := c.frame(); err != nil {
			t.Fatal(err)
		}
	}
	<-asked
}

// TestBacklogWaitsForTheWorker: frames for a channel that waits for the broker
// are kept up to a bound, in order.
func TestBacklogWaitsForTheWorker(t *testing.T) {
	r := newRig(t)
	c := r.client(t)
	var out []byte
	const rounds = 2000
	out = wire.AppendMethod(out, 1, &wire.QueueDeclare{Queue: "q"})
	for range rounds {
		out = wire.AppendMethod(out, 1, &wire.QueuePurge{Queue: "q"})
		out = wire.AppendMethod(out, 1, &wire.BasicPublish{RoutingKey: []byte("q")})
		out = wire.AppendContent(out, 1, nil, make([]byte, 1000), 4096)
	}
	go c.nc.Write(out)
	c.expect(wire.IDQueueDeclareOk)
	for i := range rounds {
		f, err := c.frame()
		if err != nil {
			t.Fatal(err)
		}
		m, _ := decodeMethod(f.Payload)
		if ok, is := m.(*wire.QueuePurgeOk); !is || ok.MessageCount != uint32(min(i, 1)) {
			t.Fatalf("purge %d: %s", i, describe(f))
		}
	}
}

// TestWhatAChannelHeldComesBackBeforeCloseOk proves the order: after close-ok
// another connection finds every message, and the exclusive queue gone. R31, T29, T45
func TestWhatAChannelHeldComesBackBeforeCloseOk(t *testing.T) {
	r := newRig(t)
	for _, whole := range []bool{false, true} {
		c := r.client(t)
		c.method(1, &wire.QueueDeclare{Queue: "q"})
		c.expect(wire.IDQueueDeclareOk)
		c.method(1, &wire.QueueDeclare{Queue: "mine", Exclusive: true})
		c.expect(wire.IDQueueDeclareOk)
		c.write(encodeLines(t, "1 queue.purge queue=q\n1 publish key=q body=1\n1 publish key=q body=2\n1 basic.consume queue=q consumer-tag=c\n1 basic.get queue=q"))
		c.expect(wire.IDQueuePurgeOk)
		c.expect(wire.IDBasicConsumeOk)
		for range 3 {
			c.next()
		}
		if whole {
			c.method(0, &wire.ConnectionClose{ReplyCode: 200})
			c.expect(wire.IDConnectionCloseOk)
			if _, err := r.broker.QueueInfo("/", "mine"); err == nil {
				t.Error("the exclusive queue is still there after connection.close-ok")
			}
		} else {
			c.method(1, &wire.ChannelClose{ReplyCode: 200})
			c.expect(wire.IDChannelCloseOk)
		}
		if q, _ := r.broker.QueueInfo("/", "q"); q.MessagesReady != 2 || q.MessagesUnacknowledged != 0 {
			t.Errorf("whole connection %v: %+v", whole, q)
		}
		c.nc.Close()
		until(t, "the connection ends", func() bool { return len(r.broker.ListConnections()) == 0 })
	}
}

// R422: a channel has a bound on its consumers, and a direct reply-to consumer is one.
func TestConsumersOfAChannelAreBounded(t *testing.T) {
	r := newRig(t, func(s *config.Settings, _ *Options, _ *rig) { s.ConsumerMax = 2 })
	for _, last := range []string{"q", broker.ReplyTo} {
		c := r.client(t)
		c.method(1, &wire.QueueDeclare{Queue: "q"})
		c.expect(wire.IDQueueDeclareOk)
		for _, tag := range []string{"a", "b"} {
			c.method(1, &wire.BasicConsume{Queue: "q", ConsumerTag: tag})
			c.expect(wire.IDBasicConsumeOk)
		}
		c.method(1, &wire.BasicCancel{ConsumerTag: "a"}) // makes room
		c.expect(wire.IDBasicCancelOk)
		c.method(1, &wire.BasicConsume{Queue: "q", ConsumerTag: "c"})
		c.expect(wire.IDBasicConsumeOk)
		c.method(1, &wire.BasicConsume{Queue: last, ConsumerTag: "d", NoAck: true})
		f, err := c.frame()
		if err != nil || !strings.Contains(describe(f), "connection.close reply-code=530 reply-text=NOT_ALLOWED - reached maximum (2) of consumers per channel") {
			t.Errorf("%q: %s, %v", last, describe(f), err)
		}
		c.nc.Close()
	}
}

// TestListings: what connections, channels and counters say.
func TestListings(t *testing.T) {
	r := newRig(t)
	c := r.client(t)
	c.write(encodeLines(t, `1 queue.declare queue=q exclusive
1 basic.qos prefetch-count=5
1 basic.qos prefetch-count=7 global
1 confirm.select
1 basic.consume queue=q consumer-tag=c
1 publish key=q body=x`))
	for _, id := range []wire.MethodID{wire.IDQueueDeclareOk, wire.IDBasicQosOk, wire.IDBasicQosOk, wire.IDConfirmSelectOk, wire.IDBasicConsumeOk} {
		c.expect(id)
	}
	c.next()
	c.next()
	channels := r.broker.ListChannels()
	if len(channels) != 1 {
		t.Fatalf("%+v", channels)
	}
	want := broker.ChannelInfo{
		Connection: channels[0].Connection, Number: 1, User: "guest", VHost: "/", Confirm: true,
		Consumers: 1, Unacknowledged: 1, Prefetch: 5, GlobalPrefetch: 7,
	}
	if channels[0] != want {
		t.Errorf("got %+v", channels[0])
	}
	l := r.broker.ListConnections()
	if len(l) != 1 || l[0].State != "running" || l[0].Channels != 1 || l[0].FrameMax != 131072 || l[0].Protocol != "AMQP 0-9-1" ||
		l[0].Mechanism != "PLAIN" || l[0].PeerPort == 0 || l[0].ReceivedBytes == 0 || l[0].SentBytes == 0 {
		t.Errorf("got %+v", l)
	}
	n := r.server.Counters()
	if n.Connections != 1 || n.Channels != 1 || n.ChannelsOpened != 1 || n.Unacked != 1 || n.Confirmed != 1 {
		t.Errorf("got %+v", n)
	}
	c.method(0, &wire.ConnectionClose{})
	c.expect(wire.IDConnectionCloseOk)
	c.nc.Close()
	until(t, "the connection ends", func() bool { return r.server.Counters().Connections == 0 })
	if n := r.server.Counters(); n.Channels != 0 || n.ChannelsClosed != 1 || n.Confirmed != 1 || n.ReceivedBytes == 0 {
		t.Errorf("got %+v", n)
	}
}

// BenchmarkIdleConnection says what an idle connection with a channel takes, the
// client's end of the socket not counted.
func BenchmarkIdleConnection(b *testing.B) {
	r := newRig(b)
	measure := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapInuse + m.StackInuse
	}
	const conns = 500
	for b.Loop() {
		before := measure()
		for range conns {
			c := r.client(b)
			c.in = nil
		}
		b.ReportMetric(float64(measure()-before)/conns, "B/connection")
	}
}
