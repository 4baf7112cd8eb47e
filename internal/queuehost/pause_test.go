package queuehost

import (
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/internal/queue"
)

// R470 R471: nothing of a paused queue is delivered, nor got, whatever there is room for; consumers stay, what they hold can be settled, and
// a get writes nothing. It goes on at once when it may, and is paused still after a restart.
func TestPausedQueue(t *testing.T) {
	hereAndThere(t, []QueueDef{durable(7)}, func(t *testing.T, r *rig, _ func(time.Duration)) {
		h := r.queue(7)
		s, g := &sink{}, &sink{}
		id := h.Attach(unlimited(0), s, func(queue.ConsumerID, error) {})
		getter := h.Getter(ConsumerSpec{}, g)
		publish(h, nil, true, "a")
		r.settle()
		pause := func(on bool) {
			r.host(7).reg.SetSettings(7, Settings{Settings: queue.Settings{Paused: on}})
			r.settle()
		}
		pause(true)
		publish(h, nil, true, "b", "c")
		r.settle()
		n := len(r.log.records)
		there := false
		get := func() {
			h.Get(getter, true, func(d Delivery, _ uint64, ok bool, err error) {
				if there = ok; err != nil {
					t.Error(err)
				}
			})
		}
		get()
		r.settle()
		want(t, "got", there, false)
		want(t, "entries for a get", len(r.log.records), n)
		want(t, "delivered", s.bodies(), []string{"a"})
		h.Settle(id, ids(1, 1), queue.Ack)
		r.settle()
		var x Explanation
		h.Explain(func(e Explanation) { x = e })
		r.settle()
		want(t, "consumers", x.Consumers, uint64(1))
		want(t, "unacked", x.Unacked, uint64(0))
		want(t, "blocked by", x.BlockedBy, "paused")
		if !slices.ContainsFunc(x.Lines, func(l string) bool { return strings.HasPrefix(l, "The queue is paused") }) {
			t.Errorf("explained: %q", x.Lines)
		}
		h.Cancel(id, nil)
		r.settle()
		r.host(7).reg.SetSettings(7, Settings{})
		get() // comes with the settings
		r.settle()
		want(t, "got in the end", there, true)
		h.Attach(unlimited(0), s, func(queue.ConsumerID, error) {})
		r.settle()
		want(t, "delivered in the end", s.bodies(), []string{"a", "c"})
	})
}

// R470: an empty queue says that it is paused, though nothing is written for it before the next entry.
func TestEmptyPausedQueue(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{durable(7)}, newest)
	reg := r.host(7).reg
	reg.SetSettings(7, Settings{Settings: queue.Settings{Paused: true}})
	r.settle()
	n := len(r.log.records)
	r.queue(7).Explain(func(x Explanation) {
		if len(x.Lines) < 2 || x.BlockedBy != "" || !strings.HasPrefix(x.Lines[1], "The queue is paused") {
			t.Errorf("explained: %+v", x)
		}
	})
	r.settle()
	want(t, "entries", len(r.log.records), n)
	s := &sink{}
	r.queue(7).Attach(unlimited(0), s, func(queue.ConsumerID, error) {})
	publish(r.queue(7), nil, true, "a")
	r.settle()
	want(t, "delivered", len(s.got), 0)
}

// R471
func TestPausedQueueIsRestarted(t *testing.T) {
	paused := queue.Settings{Paused: true}
	r := newRig(t, newFakeLog(), []QueueDef{set(durable(7), paused)}, newest)
	publish(r.queue(7), nil, true, "a")
	r.settle()
	r = newRig(t, r.log.crashed(), []QueueDef{set(durable(7), paused)}, newest)
	s := &sink{}
	r.queue(7).Attach(unlimited(0), s, func(queue.ConsumerID, error) {})
	r.settle()
	want(t, "delivered", len(s.got), 0)
	r.reg.SetSettings(7, Settings{})
	r.settle()
	want(t, "delivered when it goes on", len(s.got), 1)
}
