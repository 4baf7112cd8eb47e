package queuehost

import (
	"strings"
	"testing"
	"time"

	"holdfast/internal/message"
	"holdfast/internal/queue"
	"holdfast/internal/replica"
	"holdfast/internal/vfs"
	"holdfast/internal/wire"
)

// sized is n messages with bodies of so many bytes.
func sized(n, bytes int) (ms []message.Message) {
	for range n {
		ms = append(ms, body(strings.Repeat("x", bytes), wire.PropertySet{}))
	}
	return ms
}

// A limit of bytes that comes later counts what is there already, in memory and on disk, persistent or not.
func TestLimitOfBytesCountsWhatIsThere(t *testing.T) {
	for _, def := range []QueueDef{durable(7), transient(7)} {
		r := newSpillRig(t, 50_000, 2000, 1<<20, def)
		reg := r.host(7).reg
		reg.o.Stepped, reg.o.Level = true, func() uint16 { return 2 }
		h := r.queue(7)
		putBodies(h, nil, false, sized(1500, 100)...)
		r.rest()
		putBodies(h, nil, false, sized(1500, 200)...)
		r.rest()
		if s := h.Stats(); s.BodiesSpilled < 200_000 || s.BodiesInMemory < 10_000 {
			t.Fatalf("%d bytes on disk, %d in memory", s.BodiesSpilled, s.BodiesInMemory)
		}
		finish := func() {
			for r.rest(); reg.StepLoop(); {
				r.rest()
			}
		}
		reg.SetSettings(7, Settings{Settings: queue.Settings{MaxBytes: queue.Most(400_000)}})
		finish()
		want(t, "ready", h.Stats().Ready, uint64(1500+1000))
		want(t, "bytes that count", r.host(7).m.ReadyBytes(), uint64(400_000))
		want(t, "messages of unknown size", len(r.host(7).m.Unweighed(nil)), 0)
		if a := r.host(7).aside; a != nil && a.weighing != nil {
			t.Error("it goes on with nothing to do")
		}

		// One that leaves meanwhile does not matter, nor does a limit that goes meanwhile.
		reg.SetSettings(7, Settings{})
		r.rest()
		reg.SetSettings(7, Settings{Settings: queue.Settings{MaxBytes: queue.Most(1000)}})
		r.rest()
		h.Purge(func(uint64, error) {})
		putBodies(h, nil, false, sized(3, 300)...)
		finish()
		want(t, "ready after a purge", h.Stats().Ready, uint64(3))
		reg.SetSettings(7, Settings{})
		r.rest()
		reg.SetSettings(7, Settings{Settings: queue.Settings{MaxBytes: queue.Most(1)}})
		reg.SetSettings(7, Settings{})
		finish()
		want(t, "ready without a limit", h.Stats().Ready, uint64(3))
		h.Purge(func(uint64, error) {})
		finish()
		r.empty()
	}
}

// After a restart sizes are found out that were not known before: first the queue hears of a limit, then it stops before
// it knows them.
func TestSizesAfterARestart(t *testing.T) {
	stepped := func(_ *replica.Options, o *Options) { o.Level, o.Stepped = func() uint16 { return 2 }, true }
	r := newRig(t, newFakeLog(), []QueueDef{durable(7)}, stepped)
	putBodies(r.queue(7), nil, true, sized(10, 100)...)
	r.settle()
	limited := []QueueDef{set(durable(7), queue.Settings{MaxBytes: queue.Most(450)})}
	for range 2 {
		r = newRig(t, r.log.crashed(), limited, stepped)
		r.settle()
		want(t, "settings", r.host(7).m.Settings(), limited[0].Settings.Settings)
		w := r.host(7).aside.weighing
		if w == nil || w.load == nil {
			t.Fatal("nothing is read")
		}
		want(t, "messages to be read", len(w.load.pins), 10)
	}
}

// A quorum queue does it, too, and a leader that could not has left it to the next one.
func TestNextLeaderFindsOutSizes(t *testing.T) {
	level := func(o *Options) { o.Level = func() uint16 { return 2 } }
	x := newTrioWith(t, 3, level, func(int) (vfs.FS, string) { return vfs.NewMem(), "data" }, durable(7))
	defer x.close(t)
	h := x.nodes[0].reg.Get(7)
	tk := &countTicket{ready: make(chan struct{}, 1)}
	for _, m := range sized(50, 1000) {
		h.Publish([]Publish{{Message: m, Persistent: true, Ticket: tk}})
	}
	tk.wait(50)
	leads := func(v *liveNode) bool { return v.reg.member(7).lead.leads() }
	lead := func(next *liveNode) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !leads(next); time.Sleep(time.Millisecond) {
			for _, v := range x.nodes {
				if leads(v) {
					v.rep.Group(7).TransferLeader(next.id)
				}
			}
			if time.Now().After(end) {
				t.Fatal("nobody hands over")
			}
		}
	}
	bad := x.nodes[1]
	bad.reg.o.NewReader = func() *Reader { return &Reader{} }
	for _, v := range x.nodes {
		keepNothing(v.reg.member(7))
	}
	lead(bad)
	for _, v := range x.nodes {
		v.reg.SetSettings(7, Settings{Settings: queue.Settings{MaxBytes: queue.Most(20_000)}})
	}
	within := func(v *liveNode, what string, f func(*host) bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			m, done := v.reg.member(7), make(chan bool)
			m.group.Do(func() { done <- f(m) })
			if <-done {
				return
			}
			if time.Now().After(end) {
				t.Fatal(what)
			}
		}
	}
	within(bad, "it does not end", func(m *host) bool {
		return m.m.Settings().MaxBytes > 0 && (m.aside == nil || m.aside.weighing == nil) && m.alert.Load() == 0
	})
	lead(x.nodes[0])
	within(x.nodes[0], "nothing is dropped", func(m *host) bool { return m.m.Ready() == 20 && m.m.ReadyBytes() == 20_000 })
}
