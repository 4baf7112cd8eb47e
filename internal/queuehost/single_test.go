package queuehost

import (
	"fmt"
	"testing"
	"time"

	"holdfast/internal/queue"
)

// R404: of a queue with a single active consumer the listing says who that is, who waits, and of any other that its consumers are
// up, whatever they hold.
func TestActivity(t *testing.T) {
	hereAndThere(t, []QueueDef{set(durable(7), queue.Settings{SingleActive: true}), durable(8)}, func(t *testing.T, r *rig, _ func(time.Duration)) {
		list := func(h *Handle) (text string) {
			h.Consumers(func(list []ConsumerInfo) {
				for _, c := range list {
					text += fmt.Sprintf("%s %v %v; ", c.Spec.Tag, c.Is.Active(), c.Is)
				}
			})
			r.settle()
			return text
		}
		attach := func(h *Handle, tag string, priority int32) (queue.ConsumerID, *sink) {
			s := &sink{}
			spec := unlimited(1)
			spec.Tag, spec.Priority = tag, priority
			id := h.Attach(spec, s, func(queue.ConsumerID, error) {})
			r.settle()
			return id, s
		}
		h, changes := r.queue(7), r.host(7).reg.Activations
		first, held := attach(h, "first", 0)
		_, next := attach(h, "second", 0)
		publish(h, nil, true, "a", "b")
		r.settle()
		want(t, "at the limit", list(h), "first true single_active; second false waiting; ")
		want(t, "deliveries", len(held.got)+len(next.got), 1)
		attach(h, "third", 5)
		want(t, "before it gives way", list(h), "first true single_active; second false waiting; third false waiting; ")
		want(t, "changes", changes(), uint64(1))
		h.Settle(first, ids(1, 1), queue.Ack)
		r.settle()
		want(t, "after", list(h), "first false waiting; second false waiting; third true single_active; ")
		want(t, "changes", changes(), uint64(2))

		attach(r.queue(8), "full", 0)
		publish(r.queue(8), nil, true, "a", "b")
		r.settle()
		want(t, "of another queue", list(r.queue(8)), "full true up; ")
	})
}
