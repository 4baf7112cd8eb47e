package sim

import (
	"time"

	"holdfast/internal/catalog"
	"holdfast/internal/queue"
	"holdfast/internal/seglog"
)

// flipsApart is how long people leave a queue alone that they have paused, or had go on.
const flipsApart = int64(10 * time.Second)

// seen is a state of a queue that was seen.
type seen struct {
	index   uint64
	paused  bool
	unacked uint64
	flipped int64 // of the queue
	known   bool  // to all nodes: nobody can have it go on
}

// pause has people pause a queue, or have one go on.
func (w *World) pause() {
	n := w.anyNode()
	if n == nil || len(w.queues) == 0 || n.view().Level() < catalog.PolicyLevel {
		return
	}
	q := w.queues[w.rng.IntN(len(w.queues))]
	if def := n.view().QueueByID(q.id()); def != nil && w.clk.Mono()-q.flipped >= flipsApart {
		w.flip(n, q, !def.Paused)
	}
}

func (w *World) flip(n *node, q *simQueue, on bool) {
	w.trace("queue %d: paused %v is ordered at node %d", q.def.ID, on, n.id)
	w.check.stats.Pauses++
	q.flipped = w.clk.Mono()
	n.order.forward.Propose(catalog.PauseQueue("/", q.def.Name, on), true, func(_ any, err error) {
		w.trace("queue %d: paused %v: %v", q.def.ID, on, err)
	})
}

// goOn has people have all queues go on that are paused.
func (w *World) goOn() {
	n := w.nodes[0]
	for _, q := range w.queues {
		if def := n.view().QueueByID(q.id()); def != nil && def.Paused {
			w.flip(n, q, false)
		}
	}
	w.rest(20)
}

// seesPaused checks that nothing of a queue is handed out while it is paused: two states with few entries between.
func (w *World) seesPaused(n *node, id seglog.GroupID, index uint64, m *queue.Machine) {
	q := w.queue(id)
	if q == nil {
		return
	}
	is := seen{index: index, paused: m.Settings().Paused, unacked: m.Unacked(), flipped: q.flipped, known: w.allPause(q)}
	if was := q.seen; was.paused && was.known && is.paused && was.flipped == is.flipped && was.index+stateEvery == index && is.unacked > was.unacked {
		w.failf("node %d, queue %d: at entry %d it is paused, and %d messages are held after %d", n.id, id, index, is.unacked, was.unacked)
	}
	if q.home == 0 && index > q.seen.index || q.home != 0 {
		q.seen = is
	}
}

// allPause reports whether all nodes know that a queue is paused.
func (w *World) allPause(q *simQueue) bool {
	for _, n := range w.nodes {
		if def := n.view().QueueByID(q.id()); n.up && (def == nil || !def.Paused) {
			return false
		}
	}
	return true
}

// waited checks that a message has waited as long as it should before it is handed out.
func (k *checker) waited(s *consumer, r *record) {
	if age := k.w.clk.Mono() - r.born; age < (r.delay-20)*int64(time.Millisecond) {
		k.w.failf("%s got message %d after %v, which is to wait for %d ms", s.name, r.id, time.Duration(age), r.delay)
	}
}
