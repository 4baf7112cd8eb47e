package blackbox

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// What becomes of messages that clients of a node hold that is lost, and of the queue.
func TestQuorumHolderIsLost(t *testing.T) {
	t.Parallel()
	w := newWeb(t, 3)
	t.Run("getters", func(t *testing.T) { manyGetters(t, w) })
	t.Run("next get", func(t *testing.T) { nextGetOfALostNode(t, w) })
	t.Run("limit", func(t *testing.T) { lostNodesAreNoFailures(t, w) })
	t.Run("patience", func(t *testing.T) { patienceWithALostNode(t, w) })
}

// both declares a queue of each type, which the first node serves.
func both(t *testing.T, w *web, name string) []string {
	t.Helper()
	ch := w.node[0].open()
	must(ch.QueueDeclare("classic-"+name, true, false, false, false, nil))(t)
	q := w.quorum(0, "quorum-"+name)
	return []string{"classic-" + name, q}
}

// R16: fifty getters on all nodes, at a time: each message comes once, nobody is told that there is none while there is one.
func manyGetters(t *testing.T, w *web) {
	const getters, messages = 50, 500
	for _, q := range both(t, w, "gotten") {
		publishes(t, w.node[0].confirming(), "", q, several("g", messages)...)
		var conns []*amqp.Connection
		for _, m := range w.node {
			conns = append(conns, dialURL(t, m.URL()))
		}
		var mu sync.Mutex
		seen := map[string]int{}
		var all sync.WaitGroup
		for i := range getters {
			ch := channel(t, conns[i%len(conns)])
			all.Go(func() {
				for {
					d, there, err := ch.Get(q, true)
					if err != nil {
						t.Errorf("%s: %v", q, err)
					}
					if err != nil || !there {
						return
					}
					mu.Lock()
					seen[string(d.Body)]++
					mu.Unlock()
				}
			})
		}
		all.Wait()
		twice := 0
		for _, n := range seen {
			twice += n - 1
		}
		equal(t, q, fmt.Sprint(len(seen), " messages, ", twice, " twice"), fmt.Sprint(messages, " messages, 0 twice"))
	}
}

// R14 R15: the node is killed through which the last get was; the next one, through another node, gets the next message: there is no lock that
// somebody would have to give back.
func nextGetOfALostNode(t *testing.T, w *web) {
	queues := both(t, w, "held")
	for _, q := range queues {
		publishes(t, w.node[0].confirming(), "", q, "1", "2", "3")
		equal(t, q, string(get(t, w.node[2].open(), q, false).Body), "1")
	}
	ok(t, w.node[2].Kill())
	got := map[string]map[string]bool{}
	for _, q := range queues { // what was held may be back at once
		got[q] = map[string]bool{}
		for range 2 {
			d := get(t, w.node[1].open(), q, true)
			got[q][string(d.Body)] = d.Redelivered
		}
	}
	ok(t, w.node[2].Start())
	for _, q := range queues {
		ch := w.node[0].open()
		until(t, "what was held is back", func() bool { return depth(t, ch, q) == 1 })
		d := get(t, ch, q, true)
		got[q][string(d.Body)] = d.Redelivered
		equal(t, q, fmt.Sprint(got[q]), "map[1:true 2:false 3:false]")
	}
}

// R20 R32 T18: what was held by clients of a node that is lost comes back, through whichever node leads, and that is no failure of theirs: it counts for
// no limit, and shows in x-acquired-count alone.
func lostNodesAreNoFailures(t *testing.T, w *web) {
	q := w.quorum(0, "limited", "x-delivery-limit", 2)
	publishes(t, w.node[0].confirming(), "", q, "x")
	for n := range 5 {
		want := "false <nil> <nil>"
		if n > 0 {
			want = fmt.Sprintf("true %d <nil>", n)
		}
		at := 2 - n%2 // the first node leads, at first
		if w.node[0].listing(q).Leader == w.node[at].name {
			w.lead(q, 0)
		}
		d := next(t, consume(t, w.node[at].open(), q))
		equal(t, fmt.Sprint("delivery ", n), countsOf(d), want)
		ok(t, w.node[at].Kill())
		if n == 3 { // the leader changes before it would notice
			other := slices.IndexFunc(w.node[1:], func(m *member) bool { return m != w.node[at] }) + 1
			_, _ = w.node[0].Ctl("transfer_leadership", q, w.node[other].name)
		}
		ok(t, w.node[at].Start())
		until(t, "it is back", func() bool { l := w.node[0].listing(q); return l.Ready == 1 && l.Unacked == 0 })
	}
	d := get(t, w.node[1].open(), q, false)
	equal(t, "the last delivery", countsOf(d), "true 5 <nil>")
	ok(t, d.Ack(false))
}

// R660: how long consumers on a node that is lost keep what they hold is said by the queue, or by a policy, which counts at once.
func patienceWithALostNode(t *testing.T, w *web) {
	const key = "x-consumer-disconnected-timeout"
	queues := []string{w.quorum(0, "impatient", key, 300), w.quorum(0, "patient", key, 3600_000)}
	for _, q := range queues {
		publishes(t, w.node[0].confirming(), "", q, "x")
		next(t, consume(t, w.node[2].open(), q))
	}
	ok(t, w.node[2].Kill())
	for i, q := range queues {
		if i == 1 {
			equal(t, "held of the patient one", w.node[0].listing(q).Unacked, 1)
			w.node[0].does("set_policy", "patience", "^"+q+"$", `{"consumer-disconnected-timeout":1}`)
		}
		d := next(t, consume(t, w.node[1].open(), q))
		equal(t, q, countsOf(d), "true 1 <nil>")
		ok(t, d.Ack(false))
	}
	w.node[0].does("clear_policy", "patience")
	ok(t, w.node[2].Start())
}
