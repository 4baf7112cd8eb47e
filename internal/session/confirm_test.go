package session

import (
	"testing"

	"pgregory.net/rapid"

	"holdfast/internal/broker"
	"holdfast/internal/wire"
)

// TestConfirmsTellEachPublishOnce publishes, settles in any order and compares
// what the publisher is told with what became of each publish. R84, R87.
func TestConfirmsTellEachPublishOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newConfirms()
		type publish struct {
			left    int // answers to come
			refused bool
			told    bool
		}
		publishes := map[uint64]*publish{}
		next := uint64(1)
		settle := func(seq uint64, o broker.Outcome) {
			p := publishes[seq]
			p.left--
			p.refused = p.refused || o == broker.Refused || o == broker.Unknown
		}
		take := func() {
			out := c.take(nil, 1)
			for len(out) > 0 {
				size := int(wire.ParseFrameHead(out).Size)
				m, err := decodeMethod(out[wire.FrameHeaderSize : wire.FrameHeaderSize+size])
				if err != nil {
					t.Fatal(err)
				}
				out = out[size+wire.FrameOverhead:]
				var tag uint64
				var multiple, nack bool
				switch m := m.(type) {
				case *wire.BasicAck:
					tag, multiple = m.DeliveryTag, m.Multiple
				case *wire.BasicNack:
					tag, multiple, nack = m.DeliveryTag, m.Multiple, true
				}
				first := tag
				if multiple {
					first = 1
				}
				if publishes[tag].told {
					t.Fatalf("publish %d told twice", tag)
				}
				for seq := first; seq <= tag; seq++ {
					p := publishes[seq]
					if p.told {
						continue // a client does not look at these again
					}
					if p.left > 0 || p.refused != nack {
						t.Fatalf("publish %d told as nack=%v: %+v", seq, nack, p)
					}
					p.told = true
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"publish": func(t *rapid.T) {
				var queues []uint32
				for _, n := range rapid.SliceOfN(rapid.IntRange(0, 3), 1, 20).Draw(t, "queues") {
					queues = append(queues, uint32(n))
					publishes[next] = &publish{left: n}
					next++
				}
				c.add(queues)
			},
			"settle": func(t *rapid.T) {
				first := rapid.Uint64Range(1, next).Draw(t, "first")
				o := rapid.SampledFrom([]broker.Outcome{broker.Accepted, broker.Accepted, broker.Refused, broker.Unknown, broker.Gone}).Draw(t, "outcome")
				last := first
				for publishes[last] != nil && publishes[last].left > 0 && last-first < 10 {
					settle(last, o)
					last++
				}
				if last > first {
					c.Settled(first, last-1, o)
				}
			},
			"take": func(t *rapid.T) { take() },
			"": func(t *rapid.T) {
				open := 0
				for _, p := range publishes {
					if p.left > 0 {
						open++
					}
				}
				if c.unsettled() != open {
					t.Fatalf("%d unsettled, want %d", c.unsettled(), open)
				}
			},
		})
		take()
		for seq, p := range publishes {
			if p.told != (p.left == 0) {
				t.Fatalf("publish %d: %+v", seq, p)
			}
		}
	})
}

func newConfirms() *confirms {
	c := &conn{}
	c.out.wake = make(chan struct{}, 1)
	ch := &channel{conn: c, number: 1}
	ch.confirms = &confirms{ch: ch, base: 1}
	return ch.confirms
}

// A thousand publishes settled in order are told with one frame.
func TestConfirmsAreJoined(t *testing.T) {
	c := newConfirms()
	queues := make([]uint32, 1000)
	for i := range queues {
		queues[i] = 1
	}
	c.add(queues)
	for seq := uint64(1); seq <= 1000; seq++ {
		c.Settled(seq, seq, broker.Accepted)
	}
	want := wire.AppendMethod(nil, 1, &wire.BasicAck{DeliveryTag: 1000, Multiple: true})
	if got := c.take(nil, 1); string(got) != string(want) {
		t.Errorf("%d bytes, want one frame", len(got))
	}
}

func BenchmarkConfirms(b *testing.B) {
	c := newConfirms()
	queues := make([]uint32, 100)
	for i := range queues {
		queues[i] = 1
	}
	var buf []byte
	b.ReportAllocs()
	for first := uint64(1); b.Loop(); first += 100 {
		c.add(queues)
		c.Settled(first, first+99, broker.Accepted)
		buf = c.take(buf[:0], 1)
		c.ch.conn.out.batch.reset()
	}
	b.ReportMetric(100, "msg/op")
}
