package sim

import "time"

// fault does some harm.
func (w *World) fault() {
	n := w.nodes[w.rng.IntN(len(w.nodes))]
	m := w.nodes[w.rng.IntN(len(w.nodes))]
	w.check.stats.faults++
	switch k := w.rng.IntN(100); {
	case k < 14:
		if n.up {
			n.crash(true)
		}
	case k < 20: // and is there again at once
		if n.up {
			n.crash(w.rng.IntN(3) > 0)
			n.restart()
		}
	case k < 29:
		if n.up {
			n.crash(false)
		}
	case k < 45:
		if m == n || !m.up || !n.up {
			return
		}
		long := w.rng.IntN(2) == 0
		w.trace("link %d-%d breaks (long %v)", n.id, m.id, long)
		w.linkDown(n, m)
		if long {
			w.cut[pair{n.id, m.id}], w.cut[pair{m.id, n.id}] = true, true
		} else if !w.cut[pair{n.id, m.id}] {
			w.linkUp(n, m)
		}
	case k < 56:
		if m == n || !m.up || !n.up || w.cut[pair{n.id, m.id}] {
			return
		}
		// Slow, or dead and nobody knows.
		w.trace("nothing of node %d gets to node %d", n.id, m.id)
		w.stuck[pair{n.id, m.id}] = 1 + w.rng.IntN(400)
		w.silent[pair{n.id, m.id}] = w.clk.Mono()
	case k < 66:
		w.trace("node %d pauses", n.id)
		n.paused = 50 + w.rng.IntN(1000)
		for _, x := range w.nodes {
			if p := (pair{n.id, x.id}); x != n && n.up && x.up && !w.cut[p] && w.silent[p] == 0 {
				w.silent[p] = w.clk.Mono()
			}
		}
	case k < 74:
		if n.up {
			w.trace("node %d hands over", n.id)
			n.rep.HandOver()
		}
	case k < 79:
		w.quarrel(n)
	case k < 83:
		if n.up && !n.disk.broken {
			w.trace("the disk of node %d breaks", n.id)
			n.disk.hurt(w.rng)
		}
	case k < 87:
		if n.up {
			w.trace("the disk of node %d takes nothing", n.id)
			n.disk.full = 20 + w.rng.IntN(600)
		}
	case k < 91:
		n.clk.by += time.Duration(w.rng.Int64N(int64(4*time.Hour))) - 2*time.Hour
		w.trace("the wall clock of node %d is off by %v", n.id, n.clk.by)
	default:
		w.trace("time flies")
		for range 40 + w.rng.IntN(700) {
			w.tick()
			w.settle()
		}
	}
}

// quarrel has everybody believe for a while that a node is away: several ask for elections.
func (w *World) quarrel(n *node) {
	w.trace("nobody believes in node %d", n.id)
	for _, m := range w.nodes {
		if m == n || !m.up || w.cut[pair{n.id, m.id}] {
			continue
		}
		m.rep.PeerDown(n.id)
		if w.rng.IntN(2) == 0 {
			m.work()
			m.rep.PeerUp(n.id)
		}
		p := pair{n.id, m.id}
		if w.silent[p] == 0 {
			w.stuck[p], w.silent[p] = 1+w.rng.IntN(20), w.clk.Mono()
		}
	}
}

// recoverSome brings back what is away, some day.
func (w *World) recoverSome() {
	if w.rng.IntN(60) == 0 {
		for _, n := range w.nodes {
			if !n.up {
				n.restart()
				return
			}
		}
	}
	if w.rng.IntN(80) == 0 {
		for _, a := range w.nodes {
			for _, b := range w.nodes {
				if a.id < b.id && w.cut[pair{a.id, b.id}] {
					w.heal(a, b)
					return
				}
			}
		}
	}
	for _, a := range w.nodes {
		for _, b := range w.nodes {
			p := pair{a.id, b.id}
			left, is := w.stuck[p]
			switch {
			case !is:
			case left > 1:
				w.stuck[p] = left - 1
			case w.rng.IntN(2) == 0:
				w.trace("link %d-%d breaks at last", a.id, b.id)
				w.linkDown(a, b)
				w.linkUp(a, b)
			default:
				w.flow(a, b)
			}
		}
	}
	for _, q := range w.queues {
		if q.change != nil && w.rng.IntN(8) == 0 {
			q.goOn(w)
		}
	}
}

// flow lets what one node sends to another get there again.
func (w *World) flow(a, b *node) {
	w.trace("what node %d sends gets to node %d again", a.id, b.id)
	delete(w.stuck, pair{a.id, b.id})
	delete(w.silent, pair{a.id, b.id})
	if b.up && a.up {
		b.rep.PeerUp(a.id)
		b.follow(b.health.Trust(w.clk.Mono(), a.id))
	}
}

// wakes ends a pause: the others hear of the node again.
func (n *node) wakes() {
	for _, x := range n.w.nodes {
		p := pair{n.id, x.id}
		if n.w.silent[p] == 0 || n.w.stuck[p] > 0 {
			continue
		}
		delete(n.w.silent, p)
		if n.up && x.up {
			x.rep.PeerUp(n.id)
			x.follow(x.health.Trust(n.w.clk.Mono(), n.id))
		}
	}
}

func (w *World) heal(a, b *node) {
	w.trace("link %d-%d heals", a.id, b.id)
	delete(w.cut, pair{a.id, b.id})
	delete(w.cut, pair{b.id, a.id})
	if a.up && b.up {
		w.linkUp(a, b)
	}
}
