package queuehost

import (
	"errors"
	"fmt"
	"testing"

	"holdfast/internal/queue"
)

// What was handed in before is on disk when a barrier is settled: acks too,
// which nobody else waits for.
func TestBarrierWaitsForSettlementsOnDisk(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{durable(7)})
	h := r.queue(7)
	s, tk := &sink{}, &tickets{}
	h.Attach(unlimited(0), s, func(queue.ConsumerID, error) {})
	publish(h, nil, true, "a", "b")
	r.step()
	r.settle()
	syncs := r.log.syncs
	h.Settle(1, []queue.Range{{First: 1, Last: 2}}, queue.Ack)
	h.Barrier(tk, 9)
	r.step()
	want(t, "acked", h.Stats().Unacked, uint64(0))
	want(t, "syncs asked for", r.log.syncs, syncs+1)
	want(t, "settled before the sync", len(tk.got), 0)
	r.settle()
	want(t, "settled", tk.got, []outcome{{9, 9, Accepted}})
	want(t, "waiting", h.Stats().Unstable, uint64(0))
}

func TestBarrierOfQueuesThatWriteNothing(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{transient(7)})
	tk := &tickets{}
	r.queue(7).Barrier(tk, 1)
	r.step()
	want(t, "settled", tk.got, []outcome{{1, 1, Accepted}})
	h := r.queue(7)
	r.reg.Drop(7, errors.New("deleted"), nil)
	h.Barrier(tk, 2)
	r.step()
	want(t, "settled after the end", tk.got[1:], []outcome{{2, 2, Gone}})
}

// A count is exact: it knows of everything its caller handed in before.
func TestCountKnowsWhatCameBefore(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{durable(7)})
	h := r.queue(7)
	var got []string
	count := func() {
		h.Count(func(ready, consumers uint64, err error) { got = append(got, fmt.Sprint(ready, consumers, err)) })
	}
	publish(h, nil, true, "a", "b")
	count()
	h.Attach(ConsumerSpec{Prefetch: 1, Credit: Unlimited}, &sink{}, func(queue.ConsumerID, error) {})
	count()
	h.Purge(func(uint64, error) {})
	count()
	for range 4 {
		r.step()
	}
	want(t, "ready, consumers", got, []string{"2 0 <nil>", "1 1 <nil>", "0 1 <nil>"})
}
