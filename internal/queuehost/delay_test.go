package queuehost

import (
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/internal/message"
	"holdfast/internal/queue"
	"holdfast/internal/replica"
	"holdfast/internal/seglog"
	"holdfast/internal/wire"
)

func delaying(def QueueDef, d time.Duration, s queue.Settings) QueueDef {
	def.Settings = &Settings{Settings: s, Delays: true, Delay: d}
	return def
}

// later makes a message that says for how many milliseconds it wants to wait.
func later(text string, ms any, set wire.PropertySet) message.Message {
	set.Headers = wire.NewTable(nil).Append(message.DelayHeader, ms)
	return body(text, set)
}

// R450: a message is ready as long after it came as its queue says, or its own header, whichever is more; until then it counts as delayed.
func TestQueueDelays(t *testing.T) {
	for _, def := range []QueueDef{durable(7), transient(8)} {
		r := newRig(t, newFakeLog(), []QueueDef{delaying(def, 2*time.Second, queue.Settings{})}, newest)
		h, s := r.queue(def.ID), &sink{}
		h.Attach(unlimited(0), s, func(queue.ConsumerID, error) {})
		tk := &tickets{}
		putBodies(h, tk, true, later("third", int32(5000), wire.PropertySet{}), body("first", wire.PropertySet{}),
			later("second", int32(1), wire.PropertySet{}), later("last", int64(message.MostDelay), wire.PropertySet{}))
		r.settle()
		want(t, "accepted", tk.got, []outcome{{1, 1, Accepted}, {2, 3, Accepted}, {4, 4, Accepted}})
		want(t, "delivered", s.texts(), []string(nil))
		want(t, "stats", []uint64{h.Stats().Ready, h.Stats().Delayed}, []uint64{0, 4})
		pass := func(d time.Duration) {
			r.clock.Advance(d)
			r.host(def.ID).reg.Tick()
			r.settle()
		}
		pass(1900 * time.Millisecond)
		want(t, "after 1.9 s", s.texts(), []string(nil))
		pass(100 * time.Millisecond)
		want(t, "after 2 s", s.texts(), []string{"first", "second"})
		pass(3 * time.Second)
		want(t, "after 5 s", s.texts(), []string{"first", "second", "third"})
		want(t, "stats", []uint64{h.Stats().Ready, h.Stats().Delayed, h.Stats().Unacked}, []uint64{0, 1, 3})

		sealed := error(nil)
		h.Seal(false, true, func(_ uint64, err error) { sealed = err })
		r.settle()
		want(t, "a queue with a delayed message is not empty", sealed != nil, true)
		purged := uint64(0)
		h.Purge(func(n uint64, _ error) { purged = n })
		r.settle()
		want(t, "purged", []uint64{purged, h.Stats().Delayed}, []uint64{1, 0})
	}
}

// R451: what waits goes on waiting over a restart, and its time to live counts from when it is ready.
func TestDelayOverARestart(t *testing.T) {
	def := delaying(durable(7), 10*time.Second, queue.Settings{})
	r := newRig(t, newFakeLog(), []QueueDef{def}, newest)
	putBodies(r.queue(7), nil, true, body("a", wire.PropertySet{}), body("b", wire.PropertySet{Expiration: "3000"}))
	putBodies(r.queue(7), nil, true, body("c", wire.PropertySet{Expiration: "6000"}))
	r.settle()
	again := newRig(t, r.log.crashed(), []QueueDef{def}, newest)
	again.clock.Advance(15 * time.Second)
	again.host(7).reg.Tick()
	again.settle()
	h, s := again.queue(7), &sink{}
	h.Attach(unlimited(0), s, func(queue.ConsumerID, error) {})
	again.settle()
	want(t, "delivered", len(s.got), 2)
	want(t, "given back to the log", again.log.released[7], []seglog.Range{{First: 2, Last: 2}})
}

// A queue without a delay takes no notice of the header, and one that is told of a delay later does so from then on.
func TestDelayIsToldLater(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{durable(7)}, newest)
	h := r.queue(7)
	putBodies(h, nil, true, later("a", int32(5000), wire.PropertySet{}))
	r.settle()
	want(t, "ready", h.Stats().Ready, uint64(1))
	r.host(7).reg.SetSettings(7, Settings{Delays: true})
	putBodies(h, nil, true, later("b", int32(5000), wire.PropertySet{}), body("c", wire.PropertySet{}))
	r.settle()
	want(t, "stats", []uint64{h.Stats().Ready, h.Stats().Delayed}, []uint64{2, 1})
}

// A queue that forwards keeps messages for as long as they say, and hands them on by their times.
func TestQueueForwards(t *testing.T) {
	def := delaying(durable(7), 0, queue.Settings{Forward: true, DeadLetter: queue.DeadLetterHeld})
	r := newRig(t, newFakeLog(), []QueueDef{def}, newest)
	l := &letters{}
	r.host(7).reg.SetOwner(l)
	h := r.queue(7)
	putBodies(h, nil, true, later("b", "3000", wire.PropertySet{Priority: new(uint8(9))}), later("a", float64(2000.7), wire.PropertySet{Expiration: "1"}),
		later("c", int32(3000), wire.PropertySet{}), body("now", wire.PropertySet{}))
	r.settle()
	want(t, "at once", l.got, []string{"1 now ripe"})
	want(t, "delayed", h.Stats().Delayed, uint64(4)) // that of now, too: it is not buried
	r.clock.Advance(4 * time.Second)
	r.host(7).reg.Tick()
	r.settle()
	want(t, "in order", l.got, []string{"1 now ripe", "2 a ripe", "3 b ripe", "4 c ripe"})
	h.Bury([]queue.Range{{First: 1, Last: 4}})
	r.settle()
	want(t, "left", h.Stats().Delayed, uint64(0))
}

// A registry that is prompt needs no tick: queues are woken when something is due, though not more often than makes sense.
func TestDueIsDonePromptly(t *testing.T) {
	prompt := func(_ *replica.Options, o *Options) { o.Prompt = true }
	r := newRig(t, newFakeLog(), []QueueDef{delaying(durable(7), 0, queue.Settings{})}, newest, prompt)
	h := r.queue(7)
	putBodies(h, nil, true, later("a", int32(7), wire.PropertySet{}), later("b", int32(8), wire.PropertySet{}), later("c", int32(60), wire.PropertySet{}))
	r.settle()
	var ready []uint64
	for _, ms := range []int{6, 1, 1, 4, 47, 1} {
		r.clock.Advance(time.Duration(ms) * time.Millisecond)
		r.settle()
		ready = append(ready, h.Stats().Ready)
	}
	want(t, "ready after 6, 7, 8, 12, 59, 60 ms", ready, []uint64{0, 1, 1, 2, 2, 3})
	r.host(7).reg.dues.mu.Lock()
	defer r.host(7).reg.dues.mu.Unlock()
	want(t, "it rests", r.host(7).reg.dues.rings, int64(0))
}

// R585: a header that is no delay is none: the message waits as long as its queue says.
func TestDelayOfWhatIsNone(t *testing.T) {
	const ofQueue = 7e6
	for _, c := range []struct {
		header any
		want   uint64
	}{
		{int32(9), 9e6}, {"9", 9e6}, {int32(3), ofQueue},
		{"soon", ofQueue}, {"", ofQueue}, {int32(-9), ofQueue}, {int64(message.MostDelay + 1), ofQueue}, {nil, ofQueue}, {true, ofQueue},
		{wire.NewTable(map[string]any{"ms": int32(9)}), ofQueue}, {[]any{int32(9)}, ofQueue},
	} {
		var b message.Builder
		b.Begin("", "q", wire.NewProperties(wire.PropertySet{Headers: wire.NewTable(nil).Append(message.DelayHeader, c.header)}), 0, true)
		p := pack{delay: ofQueue}
		want(t, "delay", p.delayOf(b.Message().Head), c.want)
	}
}

// explains checks that a queue's explanation has a line.
func (r *rig) explains(id seglog.GroupID, line string) {
	r.t.Helper()
	var x Explanation
	r.queue(id).Explain(func(e Explanation) { x = e })
	r.settle()
	if !slices.Contains(x.Lines, line) {
		r.t.Errorf("%q is not in:\n%s", line, strings.Join(x.Lines, "\n"))
	}
}

// R618: a queue says when the next message that waits is ready, and whether it waits for a delay or for another try.
func TestWhatIsNextIsExplained(t *testing.T) {
	def := delaying(durable(7), 2*time.Second, queue.Settings{Retry: queue.RetryAll, RetryMin: 500, RetryMax: 500})
	r := newRig(t, newFakeLog(), []QueueDef{def}, newest)
	h, s := r.queue(7), &sink{}
	id := h.Attach(unlimited(0), s, func(queue.ConsumerID, error) {})
	putBodies(h, nil, true, body("a", wire.PropertySet{}), later("b", int32(5000), wire.PropertySet{}))
	r.settle()
	r.explains(7, "Waiting for their time: 2 messages. The next one was delayed when it was published; it is ready in 2s.")
	r.clock.Advance(2 * time.Second)
	r.host(7).reg.Tick()
	r.settle()
	h.Settle(id, ids(1, 1), queue.Requeue)
	r.settle()
	r.explains(7, "Waiting for their time: 2 messages. The next one has come back, and is to be tried again; it is ready in 500ms.")
}

// R625: a leader takes nothing in before the catalog here knows the queue, as nobody knows yet what is to wait: a start may have replayed less of the catalog
// than of the queue.
func TestLeaderWaitsForWhatIsToWait(t *testing.T) {
	x, h := newTrioThatServes(t)
	defer x.close(t)
	h.reg.o.Level = func() uint16 { return 2 }
	do := func(f func()) {
		done := make(chan struct{})
		h.group.Do(func() { f(); close(done) })
		<-done
	}
	do(func() {
		h.stopLeading(0)
		h.expected = true // as after a start
		h.startLeading()
	})
	told := make(awaited, 1)
	x.nodes[0].reg.Get(7).Barrier(told, 1) // who asks has found who leads
	var known bool
	for range 3 {
		do(func() { known = h.lead.leads() || len(told) > 0 })
	}
	want(t, "takes something in", known, false)
	def := delaying(durable(7), time.Hour, queue.Settings{})
	h.reg.mu.Lock()
	_, err := h.reg.adopt(h, def)
	h.reg.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	putBodies(x.nodes[0].reg.Get(7), nil, true, body("a", wire.PropertySet{}))
	<-told
	x.led(7)
	do(func() { want(t, "waits", []uint64{uint64(h.m.Ready()), uint64(h.m.Delayed())}, []uint64{0, 1}) })
}
