package queuehost

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	"holdfast/internal/message"
	"holdfast/internal/queue"
	"holdfast/internal/replica"
	"holdfast/internal/seglog"
	"holdfast/internal/vfs"
)

// drain is a consumer that counts, grants credit as it goes and acks what it gets.
type drain struct {
	h     *Handle
	id    queue.ConsumerID
	w     Window
	ack   bool
	n     atomic.Uint64
	ready chan struct{}
	at    atomic.Uint64
}

func (d *drain) Deliver(ds []Delivery) {
	for i := range ds {
		if ds[i].Load != nil {
			ds[i].Load.Drop()
		}
	}
	if d.ack {
		d.h.Settle(d.id, []queue.Range{{First: ds[0].ID, Last: ds[len(ds)-1].ID}}, queue.Ack)
	}
	if g := d.w.Sent(uint32(len(ds))); g > 0 {
		d.h.Credit(d.id, g, false)
	}
	if d.n.Add(uint64(len(ds))) >= d.at.Load() {
		select {
		case d.ready <- struct{}{}:
		default:
		}
	}
}
func (d *drain) Cancelled(error) {}
func (d *drain) Drained(uint32)  {}
func (d *drain) Wake()           {}

// wait waits until n messages have come.
func (d *drain) wait(n uint64) {
	d.at.Store(n)
	for d.n.Load() < n {
		<-d.ready
	}
}

func startNode(b testing.TB, log interface {
	replica.Log
	Log
}, defs ...QueueDef) (*replica.Node, *Registry) {
	n := replica.Open(replica.Options{Log: log})
	r := New(Options{Log: log, Node: n})
	if err := n.Replay(r.Host); err != nil {
		b.Fatal(err)
	}
	for _, d := range defs {
		if _, err := r.Create(d); err != nil {
			b.Fatal(err)
		}
	}
	n.Start()
	return n, r
}

// BenchmarkDirect is publish, deliver, no-ack on a transient queue, per message.
func BenchmarkDirect(b *testing.B) {
	for _, size := range []int{1, 32, 256} {
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
			l := &nullLog{}
			n, r := startNode(b, l, transient(7))
			benchFlow(b, r, size, false, ConsumerSpec{NoAck: true, Credit: 4096})
			n.Close(false)
		})
	}
}

// BenchmarkSoloNull is publish, confirm, deliver, ack on a durable queue whose
// log does nothing and is stable at once: what the room itself costs, per message.
func BenchmarkSoloNull(b *testing.B) {
	for _, size := range []int{1, 32, 256} {
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
			l := &nullLog{}
			n, r := startNode(b, l, durable(7))
			benchFlow(b, r, size, true, ConsumerSpec{Credit: 4096, Prefetch: 2048})
			n.Close(false)
		})
	}
}

// BenchmarkSolo is the same on a log on disk: with one message under way at a
// time (window=1), and with 4096.
func BenchmarkSolo(b *testing.B) {
	for _, c := range []struct{ size, window int }{{1, 1}, {32, 32}, {1, 4096}, {32, 4096}, {256, 4096}} {
		b.Run(fmt.Sprintf("batch=%d/window=%d", c.size, c.window), func(b *testing.B) {
			r := openReal(b, vfs.OS(), b.TempDir(), 0, 64<<20)
			if _, err := r.reg.Create(durable(7)); err != nil {
				b.Fatal(err)
			}
			benchWindow(b, r.reg, c.size, c.window, true, ConsumerSpec{Credit: 4096, Prefetch: 2048})
			b.StopTimer()
			st := r.log.Stats()
			b.ReportMetric(float64(st.Items)/float64(max(st.Syncs, 1)), "msgs/sync")
			r.close(b, true)
		})
	}
}

// benchFlow publishes b.N messages in batches, a window of them at a time.
func benchFlow(b *testing.B, r *Registry, size int, persistent bool, spec ConsumerSpec) {
	benchWindow(b, r, size, 4096, persistent, spec)
}

func benchWindow(b *testing.B, r *Registry, size, window int, persistent bool, spec ConsumerSpec) {
	h := r.Get(7)
	d := &drain{h: h, ack: !spec.NoAck, w: Window{Size: spec.Credit}, ready: make(chan struct{}, 1)}
	attached := make(chan struct{})
	d.id = h.Attach(spec, d, func(queue.ConsumerID, error) { close(attached) })
	<-attached
	credit := r.NewCredit()
	tk := &countTicket{ready: make(chan struct{}, 1)}
	ps := make([]Publish, size)
	body := make([]byte, 1024)
	for i := range ps {
		ps[i] = Publish{Message: message.Message{Head: body}, Persistent: persistent, Ticket: tk, Credit: credit}
	}
	stop := make(chan struct{})
	b.ReportAllocs()
	b.ResetTimer()
	sent := uint64(0)
	for sent < uint64(b.N) {
		k := min(size, b.N-int(sent))
		for i := range k {
			ps[i].Seq = sent + uint64(i)
		}
		h.Publish(ps[:k])
		sent += uint64(k)
		credit.Wait(stop)
		if done := sent - min(sent, uint64(window-size)); done > 0 {
			d.wait(done)
			tk.wait(done)
		}
	}
	d.wait(sent)
	tk.wait(sent)
}

type countTicket struct {
	n     atomic.Uint64
	at    atomic.Uint64
	ready chan struct{}
}

func (t *countTicket) Settled(first, last uint64, o Outcome) {
	if t.n.Add(last-first+1) >= t.at.Load() {
		select {
		case t.ready <- struct{}{}:
		default:
		}
	}
}

func (t *countTicket) wait(n uint64) {
	t.at.Store(n)
	for t.n.Load() < n {
		<-t.ready
	}
}

// nullLog writes nothing and is stable at once.
type nullLog struct{}

func (nullLog) Append(b *seglog.Batch)                         { b.Stable(b) }
func (nullLog) Replay(func(seglog.Replayed) error) error       { return nil }
func (nullLog) Clean() bool                                    { return true }
func (nullLog) SetLive(seglog.GroupID, []seglog.Range) uint64  { return 0 }
func (nullLog) Start()                                         {}
func (nullLog) Release(seglog.GroupID, uint64, []seglog.Range) {}
func (nullLog) Quarantine(seglog.GroupID, string)              {}
func (nullLog) Quarantined() []seglog.Hit                      { return nil }
func (nullLog) PinRange(g seglog.GroupID, first, last uint64) (seglog.Ref, uint64) {
	return seglog.Ref{}, last - first + 1
}

// The budget: an idle classic queue costs at most 4 KB and no goroutine. It has been used.
func TestIdleQueueMemory(t *testing.T) {
	const queues = 10000
	measure := func() (uint64, int) {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse, runtime.NumGoroutine()
	}
	n, r := startNode(t, &nullLog{})
	before, goroutines := measure()
	for id := seglog.GroupID(10); id < 10+queues; id++ {
		def := durable(id)
		def.Name = fmt.Sprintf("queue-%d", id)
		h, err := r.Create(def)
		if err != nil {
			t.Fatal(err)
		}
		publish(h, nil, true, "a", "b")
		c := h.Attach(ConsumerSpec{NoAck: true, Credit: Unlimited}, discard{}, func(queue.ConsumerID, error) {})
		h.Detach(c, nil)
	}
	done := make(chan struct{})
	r.Get(10 + queues - 1).Purge(func(uint64, error) { close(done) })
	<-done
	for h := range r.All() {
		ok := make(chan struct{})
		h.Explain(func(Explanation) { close(ok) })
		<-ok
	}
	after, now := measure()
	per := (after - before) / queues
	t.Logf("%d bytes a queue", per)
	if per > 4096 {
		t.Fatalf("an idle queue costs %d bytes", per)
	}
	if now > goroutines {
		t.Fatalf("%d goroutines more for %d queues", now-goroutines, queues)
	}
	runtime.KeepAlive(r)
	n.Close(false)
}

type discard struct{}

func (discard) Deliver([]Delivery) {}
func (discard) Cancelled(error)    {}
func (discard) Drained(uint32)     {}
func (discard) Wake()              {}
