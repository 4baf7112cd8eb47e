package queuehost

import (
	"fmt"
	"testing"
)

// R16: many getters at a time cost no tries: each get is one command, and those that come together are one entry.
func TestManyGettersAtATime(t *testing.T) {
	const getters, each = 50, 4
	r := newRig(t, newFakeLog(), []QueueDef{durable(7)})
	h := r.queue(7)
	var bodies []string
	for i := range getters * each {
		bodies = append(bodies, fmt.Sprint(i))
	}
	publish(h, nil, true, bodies...)
	r.settle()
	before := len(r.log.records)
	var got []string
	for range getters {
		g := h.Getter(ConsumerSpec{}, &sink{})
		for range each {
			h.Get(g, false, func(d Delivery, _ uint64, ok bool, err error) {
				if !ok || err != nil {
					t.Errorf("there are messages, and a get finds none: %v", err)
				}
				got = append(got, string(d.Message.Head))
			})
		}
	}
	r.settle()
	want(t, "messages", got, bodies)
	want(t, "entries", len(r.log.records)-before, 1)
}

// R47: a get through another node is one message to the node that has the queue, and one back.
func TestGetThroughAnotherNodeIsOneRoundTrip(t *testing.T) {
	r := newFarRig(t, newFakeLog(), []QueueDef{durable(7)})
	h := r.queue(7)
	publish(h, nil, true, "a", "b")
	r.settle()
	g := h.Getter(ConsumerSpec{}, &sink{})
	var got []string
	get := func() {
		h.Get(g, true, func(d Delivery, _ uint64, ok bool, err error) {
			got = append(got, fmt.Sprint(string(d.Message.Head), " ", ok, " ", err))
		})
	}
	get() // opens the session, if there is none
	r.settle()
	sent := func(from, to uint64) (n int) {
		for _, bulk := range []bool{false, true} {
			if line := r.net.lines[route{from, to, bulk}]; line != nil {
				n += len(line.messages)
			}
		}
		return n
	}
	get()
	for r.entry.Shard(0).Step() {
	}
	want(t, "messages there", sent(entryNode, homeNode), 1)
	for r.net.deliver(route{entryNode, homeNode, false}) || r.net.deliver(route{entryNode, homeNode, true}) {
	}
	for r.node.Shard(0).Step() {
	}
	for len(r.log.batches) > 0 {
		r.log.sync()
		for r.node.Shard(0).Step() {
		}
	}
	want(t, "messages back", sent(homeNode, entryNode), 1)
	r.settle()
	want(t, "gets", got, []string{"a true <nil>", "b true <nil>"})
}
