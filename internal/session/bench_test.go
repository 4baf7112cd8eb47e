package session

import (
	"io"
	"net"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/internal/wire"
)

// benchClient opens a connection with one channel, without checking much.
func benchClient(b *testing.B, r *rig) *frameClient {
	nc, err := net.Dial("tcp", r.addr)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { nc.Close() })
	c := &frameClient{t: b, nc: nc}
	c.write([]byte("AMQP\x00\x00\x09\x01"))
	c.expect(wire.IDConnectionStart)
	c.method(0, &wire.ConnectionStartOk{Mechanism: "PLAIN", Response: []byte("\x00guest\x00guest"), Locale: "en_US"})
	c.expect(wire.IDConnectionTune)
	c.method(0, &wire.ConnectionTuneOk{FrameMax: 131072, ChannelMax: 2047})
	c.method(0, &wire.ConnectionOpen{VirtualHost: "/"})
	c.expect(wire.IDConnectionOpenOk)
	c.method(1, &wire.ChannelOpen{})
	c.expect(wire.IDChannelOpenOk)
	return c
}

// BenchmarkTransient is a message of 1 KiB from a publisher through a queue to a
// consumer that is ready and needs no acknowledgement, both over sockets. The
// budget is two allocations for each message; the client's side makes none.
func BenchmarkTransient(b *testing.B) { benchThrough(b, true) }

// BenchmarkTransientAcked is the same with acknowledgements, many at once.
func BenchmarkTransientAcked(b *testing.B) { benchThrough(b, false) }

func benchThrough(b *testing.B, noAck bool) {
	r := newRig(b)
	sub := benchClient(b, r)
	sub.method(1, &wire.QueueDeclare{Queue: "q", Exclusive: false})
	sub.expect(wire.IDQueueDeclareOk)
	sub.method(1, &wire.BasicConsume{Queue: "q", ConsumerTag: "c", NoAck: noAck})
	sub.expect(wire.IDBasicConsumeOk)
	pub := benchClient(b, r)

	one := wire.AppendMethod(nil, 1, &wire.BasicPublish{RoutingKey: []byte("q")})
	one = wire.AppendContent(one, 1, wire.NewProperties(wire.PropertySet{DeliveryMode: 1}), make([]byte, 1024), 131072)
	var batch []byte
	const perWrite = 50
	for range perWrite {
		batch = append(batch, one...)
	}
	var received atomic.Int64
	done := make(chan struct{})
	go sub.consume(b.N, noAck, &received, done)

	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	b.ResetTimer()
	start := time.Now()
	for sent := 0; sent < b.N; {
		n := min(perWrite, b.N-sent)
		if _, err := pub.nc.Write(batch[:n*len(one)]); err != nil {
			b.Fatal(err)
		}
		sent += n
	}
	<-done
	b.StopTimer()
	runtime.ReadMemStats(&after)
	b.ReportMetric(float64(after.Mallocs-before.Mallocs)/float64(b.N), "mallocs/msg")
	b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "msg/s")
}

// consume counts deliveries in place until n have come.
func (c *frameClient) consume(n int, noAck bool, received *atomic.Int64, done chan struct{}) {
	defer close(done)
	buf := make([]byte, 256<<10)
	var ack []byte
	r, w, tag, acked := 0, 0, uint64(0), uint64(0)
	m := &wire.BasicAck{Multiple: true}
	for int(tag) < n {
		if r > 0 {
			copy(buf, buf[r:w])
			r, w = 0, w-r
		}
		k, err := c.nc.Read(buf[w:])
		if err != nil && err != io.EOF || k == 0 {
			return
		}
		w += k
		for w-r >= wire.FrameHeaderSize {
			head := wire.ParseFrameHead(buf[r:])
			size := int(head.Size) + wire.FrameOverhead
			if w-r < size {
				break
			}
			if head.Type == wire.FrameMethod {
				tag++
			}
			r += size
		}
		received.Store(int64(tag))
		if !noAck && tag > acked {
			m.DeliveryTag, acked = tag, tag
			ack = wire.AppendMethod(ack[:0], 1, m)
			c.nc.Write(ack)
		}
	}
}
