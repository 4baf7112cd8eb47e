package queuehost

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"holdfast/internal/queue"
	"holdfast/internal/replica"
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
