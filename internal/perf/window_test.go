package perf

import (
	"testing"

	"pgregory.net/rapid"
)

// A window never lets more out than its limit, and counts every publish once,
// however the confirms are put together.
func TestWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(1, 40).Draw(t, "limit")
		w := newWindow(limit)
		open := map[uint64]bool{}
		var next, acked, nacked uint64 = 1, 0, 0
		t.Repeat(map[string]func(*rapid.T){
			"take": func(t *rapid.T) {
				if len(open) == limit {
					t.Skip("full")
				}
				if low := lowest(open, next); next-low >= uint64(len(w.sent)) {
					t.Skip("an old one holds the ring")
				}
				n, at, err := w.take(rapid.IntRange(1, 60).Draw(t, "n"))
				if err != nil || n < 1 || at == 0 {
					t.Fatalf("took %d at %d: %v", n, at, err)
				}
				for range n {
					open[next] = true
					next++
				}
			},
			"answer": func(t *rapid.T) {
				tag := rapid.Uint64Range(0, next+2).Draw(t, "tag")
				multiple, ack := rapid.Bool().Draw(t, "multiple"), rapid.Bool().Draw(t, "ack")
				w.answer(tag, multiple, ack, now())
				if tag >= next {
					return
				}
				for o := range open {
					if o == tag || multiple && o < tag {
						delete(open, o)
						if ack {
							acked++
						} else {
							nacked++
						}
					}
				}
			},
			"": func(t *rapid.T) {
				if w.unanswered() != len(open) || len(open) > limit || w.confirmed != acked || w.nacked != nacked {
					t.Fatalf("in flight %d, want %d; confirmed %d, want %d; nacked %d, want %d",
						w.inflight, len(open), w.confirmed, acked, w.nacked, nacked)
				}
				if w.latency.Count() != acked+nacked {
					t.Fatalf("%d latencies of %d answers", w.latency.Count(), acked+nacked)
				}
			},
		})
	})
}

func lowest(open map[uint64]bool, next uint64) uint64 {
	low := next
	for o := range open {
		low = min(low, o)
	}
	return low
}

// A producer that waits for room goes on when the window is ended.
func TestWindowEnds(t *testing.T) {
	w := newWindow(1)
	if n, _, err := w.take(5); n != 1 || err != nil {
		t.Fatalf("took %d: %v", n, err)
	}
	ended := make(chan error)
	go func() {
		_, _, err := w.take(1)
		ended <- err
	}()
	w.end(errStopped)
	if err := <-ended; err != errStopped {
		t.Fatal(err)
	}
}

// The bytes of a ring are whole publishes with the stamps where bodies begin.
func TestRing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := message{size: rapid.IntRange(0, 20_000).Draw(t, "size"), frameMax: 4096}
		var routes []route
		for i := range rapid.IntRange(1, 9).Draw(t, "routes") {
			routes = append(routes, route{"", "queue" + string(rune('a'+i))})
		}
		r := newRing(m, routes, rapid.IntRange(1, 20).Draw(t, "batch"))
		if len(r.bodies)%len(routes) != 0 {
			t.Fatalf("%d publishes for %d routes", len(r.bodies), len(routes))
		}
		s, err := ListenEcho("127.0.0.1:0", "")
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		var got []delivery
		c := &conn{buf: make([]byte, 1<<20)}
		whole := 0
		ch := &echoChannel{}
		server := &echoConn{server: s, conn: c, channels: map[uint16]*echoChannel{1: ch}}
		for whole < 3*len(r.bodies) {
			n := min(r.most(), rapid.IntRange(1, 7).Draw(t, "n"))
			for i := range n {
				r.stamp(i, int64(whole+i), messageID(3, uint64(whole+i)))
			}
			c.buf = append(c.buf[:0], r.take(n)...)
			c.r, c.w = 0, len(c.buf)
			for {
				f, ok, err := c.next()
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					break
				}
				if !server.frame(f) {
					t.Fatal("not a publish")
				}
				if int(ch.published) > len(got) {
					if want := routes[len(got)%len(routes)].key; string(ch.message.key) != want {
						t.Fatalf("publish %d went to %s, want %s", len(got), ch.message.key, want)
					}
					got = append(got, delivery{})
				}
			}
			if c.r != c.w {
				t.Fatalf("%d bytes are left over", c.w-c.r)
			}
			whole += n
		}
		if len(got) != whole {
			t.Fatalf("%d publishes, want %d", len(got), whole)
		}
	})
}
