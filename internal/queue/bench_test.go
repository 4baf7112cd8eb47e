package queue

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
)

// rig drives a machine as a host does: one entry after the other, effects reused.
type rig struct {
	m  *Machine
	fx Effects
	e  Entry
}

func newRig(commands ...Command) *rig {
	r := &rig{m: New()}
	r.apply(append([]Command{{Kind: SessionOpen, Session: 1}}, commands...)...)
	return r
}

func (r *rig) apply(cs ...Command) []Effect {
	r.fx.Reset()
	r.e.Index++
	r.e.Time += 1000
	r.e.Commands = append(r.e.Commands[:0], cs...)
	r.m.Apply(&r.e, &r.fx)
	return r.fx.List
}

func attach(c ConsumerID, noAck bool) Command {
	return Command{Kind: Attach, Session: 1, Consumer: c, Credit: Unlimited, NoAck: noAck}
}

func perMessage(b *testing.B, n int) {
	b.ReportMetric(float64(n), "msg/op")
}

// A message through the queue: enqueued, delivered, acked.
func BenchmarkFlow(b *testing.B) {
	for _, batch := range []int{1, 10, 100, 1000} {
		for _, consumers := range []int{1, 4} {
			b.Run(fmt.Sprintf("batch=%d/consumers=%d/acks=one", batch, consumers), func(b *testing.B) { benchFlow(b, batch, consumers, false) })
		}
		b.Run(fmt.Sprintf("batch=%d/consumers=1/acks=multiple", batch), func(b *testing.B) { benchFlow(b, batch, 1, true) })
	}
}

func benchFlow(b *testing.B, batch, consumers int, multiple bool) {
	r := newRig()
	for c := range consumers {
		r.apply(attach(ConsumerID(c+1), false))
	}
	b.ReportAllocs()
	settles := make([]Command, 0, batch)
	for range b.N {
		settles = settles[:0]
		for _, e := range r.apply(Command{Kind: Enqueue, Count: uint32(batch), Persistent: true}) {
			n := uint64(e.Last - e.First)
			if multiple {
				settles = append(settles, Command{Kind: Settle, Session: 1, Consumer: e.Consumer, First: e.Delivery, Last: e.Delivery + n})
				continue
			}
			for k := range n + 1 {
				settles = append(settles, Command{Kind: Settle, Session: 1, Consumer: e.Consumer, First: e.Delivery + k, Last: e.Delivery + k})
			}
		}
		r.apply(settles...)
	}
	if r.m.Unacked() != 0 {
		b.Fatal("messages are left")
	}
	perMessage(b, batch)
}

// The same for a queue with a limit, a time to live and dead letters.
func BenchmarkFlowWithSettings(b *testing.B) {
	set := &Settings{MaxLength: Most(1e6), TTL: Most(60_000), DeadLetter: DeadLetterHeld, DeliveryLimit: Most(20)}
	for _, batch := range []int{1, 10, 100} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			r := newRig(Command{Kind: Set, Terms: &Terms{Set: set}}, attach(1, false))
			b.ReportAllocs()
			settles := make([]Command, 0, batch)
			for range b.N {
				settles = settles[:0]
				for _, e := range r.apply(Command{Kind: Enqueue, Count: uint32(batch), Persistent: true}) {
					for k := range e.Numbers().Len() {
						settles = append(settles, Command{Kind: Settle, Session: 1, Consumer: 1, First: e.Delivery + k, Last: e.Delivery + k})
					}
				}
				r.apply(settles...)
			}
			perMessage(b, batch)
		})
	}
}

// Messages that wait for a time of their own come in, and are due one after the other.
func BenchmarkDelayed(b *testing.B) {
	at := rand.New(rand.NewPCG(1, 1))
	r := newRig(attach(1, true))
	add := func() {
		r.apply(Command{Kind: Enqueue, Count: 1, Persistent: true, Terms: &Terms{Delay: at.Uint64N(1e12)}})
	}
	for range 100_000 {
		add()
	}
	b.ReportAllocs()
	for b.Loop() {
		add()
		r.e.Time, _ = r.m.NextDeadline()
		r.apply(Command{Kind: Due})
	}
	perMessage(b, 1)
}

// The same without acks.
func BenchmarkFlowNoAck(b *testing.B) {
	for _, batch := range []int{1, 100} {
		for _, consumers := range []int{1, 4} {
			b.Run(fmt.Sprintf("batch=%d/consumers=%d", batch, consumers), func(b *testing.B) {
				r := newRig()
				for c := range consumers {
					r.apply(attach(ConsumerID(c+1), true))
				}
				b.ReportAllocs()
				for range b.N {
					r.apply(Command{Kind: Enqueue, Count: uint32(batch)})
				}
				perMessage(b, batch)
			})
		}
	}
}

// A million messages held and acked in random order. // R25
func BenchmarkRandomAcks(b *testing.B) {
	const n = 1_000_000
	order := rand.New(rand.NewPCG(1, 1)).Perm(n)
	b.ReportAllocs()
	for range b.N {
		b.StopTimer()
		r := newRig(attach(1, false))
		r.apply(Command{Kind: Enqueue, Count: n, Persistent: true})
		b.StartTimer()
		for _, i := range order {
			r.apply(Command{Kind: Settle, Session: 1, Consumer: 1, First: uint64(i + 1), Last: uint64(i + 1)})
		}
		if r.m.Unacked() != 0 {
			b.Fatal("messages are left")
		}
	}
	perMessage(b, n)
}

// A hundred messages nacked and delivered again, with a backlog behind them.
func BenchmarkRequeue(b *testing.B) {
	r := newRig(attach(1, false))
	r.apply(Command{Kind: Credit, Consumer: 1, Drain: true}, Command{Kind: Credit, Consumer: 1, Credit: 100},
		Command{Kind: Enqueue, Count: 1 << 20})
	b.ReportAllocs()
	id := uint64(1)
	for range b.N {
		r.apply(Command{Kind: Settle, Session: 1, Consumer: 1, How: Requeue, First: id, Last: id + 99},
			Command{Kind: Credit, Consumer: 1, Credit: 100})
		id += 100
	}
	perMessage(b, 100)
}

// heap returns the bytes in use after f has built something, which is kept alive meanwhile.
func heap(build func() any) float64 {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	x := build()
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(x)
	return float64(after.HeapAlloc) - float64(before.HeapAlloc)
}

// memory is what n messages of a queue take in each state, in bytes a message.
var memory = []struct {
	name string
	n    int
	most float64 // bytes a message
	make func(n int) *rig
}{
	{"ready", 10_000_000, 0.001, func(n int) *rig { return filled(n, true) }},
	{"unacked", 1_000_000, 32, func(n int) *rig {
		r := filled(n, true)
		r.apply(attach(1, false))
		return r
	}},
	{"unacked-every-50th", 20_000, 80, func(n int) *rig {
		r := filled(50*n, true)
		r.apply(attach(1, false))
		for id := 1; id <= 50*n; id += 50 {
			r.apply(Command{Kind: Settle, Session: 1, Consumer: 1, First: uint64(id + 1), Last: uint64(id + 49)})
		}
		return r
	}},
	{"unacked-4-consumers", 1_000_000, 32, func(n int) *rig {
		r := newRig(attach(1, false), attach(2, false), attach(3, false), attach(4, false))
		for range n / 100 {
			r.apply(Command{Kind: Enqueue, Count: 100})
		}
		return r
	}},
	{"returned-apart", 500_000, 56, func(n int) *rig { // every second of 1 M comes back, in random order, the others are acked
		r := filled(2*n, true)
		r.apply(attach(1, false))
		r.apply(Command{Kind: Credit, Consumer: 1, Drain: true})
		for _, i := range rand.New(rand.NewPCG(1, 1)).Perm(n) {
			r.apply(Command{Kind: Settle, Session: 1, Consumer: 1, How: Requeue, First: uint64(2*i + 1), Last: uint64(2*i + 1)})
		}
		r.apply(Command{Kind: Settle, Session: 1, Consumer: 1, First: 0, Last: ^uint64(0)})
		return r
	}},
	{"delayed", 1_000_000, 14, func(n int) *rig { // each until a time of its own, within years
		r := newRig()
		at := rand.New(rand.NewPCG(1, 1))
		for range n {
			r.apply(Command{Kind: Enqueue, Count: 1, Persistent: true, Terms: &Terms{Delay: at.Uint64N(1e17)}})
		}
		return r
	}},
	{"delayed-frozen", 1_000_000, 14, func(n int) *rig { // the same, with its state frozen now and then
		r := newRig()
		at := rand.New(rand.NewPCG(1, 1))
		for i := range n {
			r.apply(Command{Kind: Enqueue, Count: 1, Persistent: true, Terms: &Terms{Delay: at.Uint64N(1e17)}})
			if i%60_000 == 0 {
				r.m.Freeze()
			}
		}
		return r
	}},
	{"delayed-alike", 1_000_000, 9, func(n int) *rig {
		r := newRig()
		for range n / 10 {
			r.apply(Command{Kind: Enqueue, Count: 10, Persistent: true, Terms: &Terms{Delay: 1e15}})
		}
		return r
	}},
	{"ready-with-ttl", 1_000_000, 3, func(n int) *rig { // a thousand a millisecond, each millisecond has its own deadline
		r := newRig(Command{Kind: Set, Terms: &Terms{Set: &Settings{TTL: Most(1e9)}}})
		for range n / 10 {
			r.e.Time += 9000
			r.apply(Command{Kind: Enqueue, Count: 10, Persistent: true})
		}
		return r
	}},
	{"ready-mixed", 1_000_000, 32, func(n int) *rig { // transient and persistent in turn
		r := newRig()
		for i := range n {
			r.apply(Command{Kind: Enqueue, Count: 1, Persistent: i%2 == 0})
		}
		return r
	}},
}

func filled(n int, persistent bool) *rig {
	r := newRig()
	for n > 0 {
		k := min(n, 10_000)
		r.apply(Command{Kind: Enqueue, Count: uint32(k), Persistent: persistent})
		n -= k
	}
	return r
}

// Memory stays within its budget in every state.
func TestMemory(t *testing.T) {
	for _, tc := range memory {
		per := heap(func() any { return tc.make(tc.n).m }) / float64(tc.n)
		if per > tc.most {
			t.Errorf("%s: %.4f bytes a message, at most %v wanted", tc.name, per, tc.most)
		}
	}
	// A restored machine takes no more.
	sparse := memory[2]
	snap := sparse.make(sparse.n).m.AppendSnapshot(nil)
	per := heap(func() any {
		m := New()
		if err := m.Restore(snap); err != nil {
			t.Fatal(err)
		}
		return m
	}) / float64(sparse.n)
	if per > sparse.most {
		t.Errorf("%s, restored: %.1f bytes a message, at most %v wanted", sparse.name, per, sparse.most)
	}
	const queues = 1000
	per = heap(func() any {
		var rs []*Machine
		for range queues {
			r := newRig(Command{Kind: Configure}, attach(1, false))
			r.apply(Command{Kind: Enqueue, Count: 1})
			r.apply(Command{Kind: Settle, Session: 1, Consumer: 1, First: 1, Last: 1})
			rs = append(rs, r.m)
		}
		return rs
	}) / queues
	t.Logf("an idle queue with a consumer takes %.0f bytes", per)
	if per > 1200 {
		t.Errorf("an idle queue with a consumer takes %.0f bytes", per)
	}
}

func BenchmarkMemory(b *testing.B) {
	for _, tc := range memory {
		b.Run(tc.name, func(b *testing.B) {
			for range b.N {
				b.ReportMetric(heap(func() any { return tc.make(tc.n).m })/float64(tc.n), "B/message")
			}
		})
	}
}

func BenchmarkSnapshot(b *testing.B) {
	for _, tc := range memory {
		m := tc.make(tc.n).m
		snap := m.AppendSnapshot(nil)
		b.Run("append/"+tc.name, func(b *testing.B) {
			for b.Loop() {
				snap = m.AppendSnapshot(snap[:0])
			}
			b.ReportMetric(float64(len(snap))/float64(tc.n), "B/message")
		})
		b.Run("restore/"+tc.name, func(b *testing.B) {
			for b.Loop() {
				if err := New().Restore(snap); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// The hot path does not allocate for each message.
func TestFlowAllocations(t *testing.T) {
	for _, noAck := range []bool{false, true} {
		for _, consumers := range []int{1, 3} {
			r := newRig()
			for c := range consumers {
				r.apply(attach(ConsumerID(c+1), noAck))
			}
			settles := make([]Command, 0, 100)
			got := testing.AllocsPerRun(200, func() {
				settles = settles[:0]
				for _, e := range r.apply(Command{Kind: Enqueue, Count: 100}) {
					if e.Kind == Deliver && !noAck {
						settles = append(settles, Command{Kind: Settle, Session: 1, Consumer: e.Consumer,
							First: e.Delivery, Last: e.Delivery + uint64(e.Last-e.First)})
					}
				}
				r.apply(settles...)
			})
			if got > 2 { // for 100 messages
				t.Errorf("no-ack %v, %d consumers: %v allocations for 100 messages", noAck, consumers, got)
			}
		}
	}
}
