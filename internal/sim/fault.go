package sim

import (
	"slices"
	"time"

	"holdfast/internal/vfs"
)

// fault does some harm.
func (w *World) fault() {
	n := w.nodes[w.rng.IntN(len(w.nodes))]
	m := w.nodes[w.rng.IntN(len(w.nodes))]
	switch k := w.rng.IntN(100); {
	case k < 14:
		if n.up {
			w.did("power cut")
			n.crash(true)
		}
	case k < 20: // and is there again at once
		if n.up {
			w.did("crash, back at once")
			n.crash(w.rng.IntN(3) > 0)
			n.restart()
		}
	case k < 29:
		if n.up {
			w.did("kill")
			n.crash(false)
		}
	case k < 45:
		if m == n || !m.up || !n.up {
			return
		}
		w.did("link broken")
		long := w.rng.IntN(2) == 0
		w.trace("link %d-%d breaks (long %v)", n.id, m.id, long)
		w.linkDown(n, m)
		if long {
			w.cut[pair{n.id, m.id}], w.cut[pair{m.id, n.id}] = true, true
		} else if !w.cut[pair{n.id, m.id}] && w.rng.IntN(2) == 0 {
			w.linkUp(n, m)
		}
	case k < 56:
		if m == n || !m.up || !n.up || !w.stands(n, m) {
			return
		}
		w.did("link one-way or slow")
		// Slow, or dead and nobody knows.
		w.trace("nothing of node %d gets to node %d", n.id, m.id)
		w.stuck[pair{n.id, m.id}] = 1 + w.rng.IntN(400)
		w.silent[pair{n.id, m.id}] = w.clk.Mono()
		if w.rng.IntN(3) == 0 { // so that what waits for room there waits too long
			w.flies = 20 + w.rng.IntN(60)
		}
	case k < 66:
		w.did("pause")
		w.trace("node %d pauses", n.id)
		n.paused = 50 + w.rng.IntN(1000)
		for _, x := range w.nodes {
			if p := (pair{n.id, x.id}); x != n && n.up && x.up && w.stands(n, x) && w.silent[p] == 0 {
				w.silent[p] = w.clk.Mono()
			}
		}
	case k < 74:
		if n.up {
			w.did("hand over")
			w.trace("node %d hands over", n.id)
			n.rep.HandOver()
		}
	case k < 79:
		w.did("quarrel")
		w.quarrel(n)
	case k < 83:
		if n.up && !n.disk.broken {
			w.did("disk error")
			w.trace("the disk of node %d breaks", n.id)
			n.disk.hurt(w.rng)
		}
	case k < 87:
		if n.up {
			w.did("disk stalled")
			w.trace("the disk of node %d takes nothing", n.id)
			n.disk.full = 20 + w.rng.IntN(600)
		}
	case k < 90:
		w.did("disk full")
		n.small = 50 + w.rng.IntN(1500)
		room := w.rng.Int64N(200 << 10)
		n.disk.fs.SetCapacity(n.disk.fs.Used() + room)
		w.trace("the disk of node %d has room for %d bytes", n.id, room)
	case k < 94 && w.o.Frail != 0:
		if w.rng.IntN(3) == 0 {
			w.putBack()
		} else {
			w.damage()
		}
	case k < 95:
		w.did("clock jump")
		n.clk.by += time.Duration(w.rng.Int64N(int64(4*time.Hour))) - 2*time.Hour
		w.trace("the wall clock of node %d is off by %v", n.id, n.clk.by)
	default:
		w.did("time flies")
		w.fly(40 + w.rng.IntN(700))
	}
}

// damage damages the log of the frail node while it is off: a bit, a whole sector, the end of a file, or all of it.
func (w *World) damage() {
	n := w.frail()
	if !w.mayHarm(n) || n.disk.Log.Stats().Syncs == 0 {
		return
	}
	// What was told to be stable must be known to have been: a mark is written behind it, which otherwise comes a moment later, and, where
	// the mark may go with it, the log's witness says so after a second.
	n.disk.full = 0
	end, wait := w.rng.IntN(6) == 0, 2
	if end {
		wait = 21
	}
	for range wait {
		w.tick()
	}
	for n.disk.Log.StepCommit() {
	}
	n.disk.full = 1
	n.crash(false)
	fs := n.disk.fs
	names := fs.Names("log/")
	name := names[w.rng.IntN(len(names))]
	what := "lost"
	switch used := sectors(w, fs, name); {
	case len(used) == 0:
		w.trace("the log of node %d is spared", n.id)
		what = ""
	case w.rng.IntN(8) == 0:
		_ = fs.Remove(name)
		_ = fs.SyncDir("log")
	case end:
		what = "cut off"
		overwrite(w, fs, name, used[w.rng.IntN(len(used))])
	default:
		off := used[w.rng.IntN(len(used))]
		what = "flipped"
		_ = fs.Flip(name, off+w.rng.Int64N(vfs.SectorSize), uint(w.rng.IntN(8)))
		for i := int64(0); w.rng.IntN(2) == 0 && i < vfs.SectorSize; i++ {
			_ = fs.Flip(name, off+i, uint(w.rng.IntN(8)))
		}
	}
	if what != "" {
		w.harmed = true
		w.check.stats.Damages++
		w.did("log damaged")
	}
	w.trace("node %d: of %v, %s is damaged: %s", n.id, names, name, what)
	n.restart()
}

// mayHarm reports whether the frail node may lose something: all others are whole, and no members change.
func (w *World) mayHarm(n *node) bool {
	for _, q := range w.withStores() {
		if q.change != nil || q.home == 0 && len(w.membersOf(q)) < 3 {
			return false
		}
	}
	return n.serves() && !w.harmed && !n.disk.broken && n.small == 0
}

// putBack copies the log of the frail node as it is, or, if there is a copy, puts that back. A group cannot know that one of its
// members has forgotten something before its leader says more than the member has, so all else is well meanwhile.
func (w *World) putBack() {
	n := w.frail()
	if n.up && n.copied == nil {
		w.trace("the log of node %d is copied", n.id)
		n.copied = n.disk.fs.KillClone()
		return
	}
	if !w.mayHarm(n) {
		return
	}
	w.allWell()
	w.rest(100)
	if n.crash(false); w.err != nil {
		return
	}
	w.trace("node %d: the copy of its log is put back", n.id)
	n.disk.fs, n.copied, n.disk.ledger = n.copied, nil, nil
	n.disk.fs.SetCapacity(0)
	w.check.stats.PutBack++
	w.did("log put back")
	w.notice(true)
	w.rest(60) // others lead
	n.restart()
	w.harmed = true
	for i := 0; i < 40 && w.harmed && w.err == nil; i++ {
		w.rest(10)
		w.bury()
		w.mend()
		for _, q := range w.withStores() {
			q.goOn(w)
		}
	}
	if w.harmed {
		w.failf("node %d has forgotten something, and is not mended", n.id)
	}
}

// sectors are those of a file that hold something.
func sectors(w *World, fs *vfs.Mem, name string) (used []int64) {
	f, err := fs.Open(name)
	if err != nil {
		w.failf("%v", err)
		return nil
	}
	defer f.Close()
	buf := make([]byte, vfs.SectorSize)
	size, _ := f.Size()
	for off := int64(0); off < size; off += vfs.SectorSize {
		if n, _ := f.ReadAt(buf, off); slices.ContainsFunc(buf[:n], func(b byte) bool { return b != 0 }) {
			used = append(used, off)
		}
	}
	return used
}

// overwrite fills the end of a file with zeros.
func overwrite(w *World, fs *vfs.Mem, name string, from int64) {
	f, err := fs.Open(name)
	if err != nil {
		w.failf("%v", err)
		return
	}
	defer f.Close()
	size, _ := f.Size()
	if _, err = f.WriteAt(make([]byte, size-from), from); err == nil {
		err = f.Sync()
	}
	if err != nil {
		w.failf("%v", err)
	}
}

// fly lets much time pass.
func (w *World) fly(ticks int) {
	w.trace("time flies")
	for range ticks {
		w.tick()
		w.settle()
	}
}

// did counts a fault.
func (w *World) did(kind string) {
	if w.check.stats.Faults == nil {
		w.check.stats.Faults = map[string]int{}
	}
	w.check.stats.Faults[kind]++
}

// quarrel has everybody believe for a while that a node is away: several ask for elections.
func (w *World) quarrel(n *node) {
	w.trace("nobody believes in node %d", n.id)
	for _, m := range w.nodes {
		if m == n || !m.up || !w.stands(n, m) {
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
	w.notice(false)
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
	if w.rng.IntN(8) == 0 {
		w.bury()
	}
	w.mend()
	for _, q := range w.withStores() {
		if q.change != nil && w.rng.IntN(8) == 0 {
			q.goOn(w)
		}
	}
}

// frail is the node whose log is damaged now and then, nil if there is none.
func (w *World) frail() *node {
	if w.o.Frail == 0 {
		return nil
	}
	return w.nodes[w.o.Frail-1]
}
