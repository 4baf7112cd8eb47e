package queuehost

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"holdfast/internal/queue"
	"holdfast/internal/replica"
	"holdfast/internal/seglog"
)

// waiter is a consumer that may have lost its credit.
type waiter struct {
	sink
	waits bool
}

func (w *waiter) WaitsForClient() bool { return w.waits }

// stallRig is a rig in which queues count as stalled after a minute, and what it has logged.
func stallRig(t *testing.T, defs ...QueueDef) (r *rig, lines func() int, pass func(time.Duration)) {
	t.Helper()
	log := new(bytes.Buffer)
	r = newRig(t, newFakeLog(), defs, newest, func(_ *replica.Options, o *Options) {
		o.StallAfter, o.Logger = time.Minute, slog.New(slog.NewTextHandler(log, nil))
	})
	lines = func() (n int) {
		for line := range strings.Lines(log.String()) {
			if !strings.Contains(line, "is stalled") {
				continue
			}
			if n++; !strings.Contains(line, `queue=durable`) || !strings.Contains(line, "2 ready, 1 unacked, 1 consumer.") {
				t.Error(line)
			}
		}
		return n
	}
	pass = func(d time.Duration) {
		for ; d > 0; d -= time.Second {
			r.clock.Advance(time.Second)
			r.host(7).reg.Tick()
			r.settle()
		}
	}
	return r, lines, pass
}

// R472 R473: a queue whose consumer has lost its credit is logged once, with how it stands, and counted; once more only when it has gone on in
// between. One whose client is slow, or that is paused, is not.
// R127: it goes by the time since the last delivery.
func TestStall(t *testing.T) {
	r, lines, pass := stallRig(t, durable(7))
	reg := r.host(7).reg
	h, w := r.queue(7), &waiter{waits: true}
	id := h.Attach(ConsumerSpec{Credit: 1}, w, func(queue.ConsumerID, error) {})
	publish(h, nil, true, "a", "b", "c")
	r.settle()
	stalls := func(total uint64, now int) {
		t.Helper()
		n, m := reg.Stalls()
		want(t, "stalls", []any{n, m, lines()}, []any{total, now, int(total)})
	}
	pass(5 * time.Minute) // its client reads slowly
	stalls(0, 0)
	w.waits = false
	reg.SetSettings(7, Settings{Settings: queue.Settings{Paused: true}})
	pass(5 * time.Minute)
	stalls(0, 0)
	reg.SetSettings(7, Settings{})
	pass(5 * time.Minute)
	stalls(1, 1)
	h.Settle(id, ids(1, 1), queue.Requeue)
	h.Credit(id, 1, false)
	pass(59 * time.Second)
	stalls(1, 0)
	pass(5 * time.Minute)
	stalls(2, 1)
	h.Detach(id, nil)
	pass(time.Minute)
	stalls(2, 0)
	want(t, "watched", len(reg.stalls.list), 0)
}

// R472: what is no stall.
func TestNoStall(t *testing.T) {
	for _, c := range []struct {
		what string
		do   func(h *Handle, w *waiter)
	}{
		{"nobody consumes", func(h *Handle, w *waiter) {}},
		{"somebody gets", func(h *Handle, w *waiter) {
			h.Get(h.Getter(ConsumerSpec{}, w), false, func(Delivery, uint64, bool, error) {})
		}},
		{"as many are out as may be", func(h *Handle, w *waiter) { h.Attach(unlimited(1), w, func(queue.ConsumerID, error) {}) }},
		{"nothing is ready", func(h *Handle, w *waiter) { h.Attach(unlimited(0), w, func(queue.ConsumerID, error) {}) }},
		{"nobody can say", func(h *Handle, w *waiter) {
			h.Attach(ConsumerSpec{Credit: 1}, &w.sink, func(queue.ConsumerID, error) {})
		}},
	} {
		r, lines, pass := stallRig(t, durable(7))
		publish(r.queue(7), nil, true, "a", "b", "c")
		r.settle()
		c.do(r.queue(7), &waiter{})
		r.settle()
		pass(5 * time.Minute)
		n, _ := r.host(7).reg.Stalls()
		want(t, c.what, []int{int(n), lines()}, []int{0, 0})
	}
}

// R473: nobody watches a queue that has nothing to deliver, or nobody to deliver to, and a sweep asks none that delivers.
func TestStallsCostNothing(t *testing.T) {
	r, _, pass := stallRig(t, durable(7), transient(8), transient(9))
	reg := r.host(7).reg
	publish(r.queue(8), nil, false, "a")
	r.queue(9).Attach(unlimited(0), &sink{}, func(queue.ConsumerID, error) {})
	h, s := r.queue(7), &sink{}
	id := h.Attach(unlimited(1), s, func(queue.ConsumerID, error) {})
	publish(h, nil, true, "a", "b", "c", "d", "e", "f")
	r.settle()
	want(t, "watched", len(reg.stalls.list), 1)
	for i := range uint64(3) {
		pass(50 * time.Second)
		want(t, "asked", reg.stalls.list[0].asked, false)
		h.Settle(id, ids(i+1, i+1), queue.Ack)
		r.settle()
		want(t, "watched", len(reg.stalls.list), 1)
	}
	h.Purge(func(uint64, error) {})
	pass(time.Minute)
	want(t, "watched in the end", len(reg.stalls.list), 0)
	n, _ := reg.Stalls()
	want(t, "stalls", n, uint64(0))
}

// freeHandler counts lines of the log, and sees whether the watched queues are locked while one is written.
type freeHandler struct {
	slog.Handler
	stalls *stalls
	locked int
	lines  map[string]int
}

func (h *freeHandler) Enabled(context.Context, slog.Level) bool { return true }

func (h *freeHandler) Handle(_ context.Context, rec slog.Record) error {
	if h.stalls.mu.TryLock() {
		h.stalls.mu.Unlock()
	} else {
		h.locked++
	}
	h.lines[rec.Message]++
	return nil
}

// R542: of many queues that stall, and go on, at the same time a few are named in the log, which nobody waits for, and all are counted.
func TestManyStalls(t *testing.T) {
	const n = 3 * stallLines
	var defs []QueueDef
	for i := range n {
		defs = append(defs, durable(seglog.GroupID(100+i)))
	}
	log := &freeHandler{lines: map[string]int{}}
	r := newRig(t, newFakeLog(), defs, newest, func(_ *replica.Options, o *Options) { o.StallAfter, o.Logger = time.Minute, slog.New(log) })
	log.stalls = &r.reg.stalls
	var attached []queue.ConsumerID
	for _, def := range defs {
		h := r.queue(def.ID)
		attached = append(attached, h.Attach(ConsumerSpec{Credit: 1}, &waiter{}, func(queue.ConsumerID, error) {}))
		publish(h, nil, true, "a", "b")
	}
	r.settle()
	pass := func() {
		for range 120 {
			r.clock.Advance(time.Second)
			r.reg.Tick()
			r.settle()
		}
	}
	pass()
	total, now := r.reg.Stalls()
	want(t, "stalls", []int{int(total), now}, []int{n, n})
	for i, def := range defs {
		r.queue(def.ID).Credit(attached[i], 1, false)
	}
	r.settle()
	pass()
	_, now = r.reg.Stalls()
	want(t, "stalls in the end", now, 0)
	want(t, "lines", []int{
		log.lines["a queue is stalled: it does not deliver although it could"], log.lines["more queues are stalled at the same time"],
		log.lines["a queue is not stalled any more"], log.lines["more queues are not stalled any more"], log.locked,
	}, []int{stallLines, 1, stallLines, 1, 0})
	want(t, "verdicts that are kept", len(r.reg.stalls.verdicts), 0)
}
