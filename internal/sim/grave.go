package sim

import (
	"fmt"

	"holdfast/internal/catalog"
	"holdfast/internal/vfs"
)

// grave is what becomes of a node whose catalog is of no use: people have it taken out of the cluster, and it comes back
// with an empty disk, as another one.
type grave struct {
	why   string // "": it is well
	taken bool   // out of the cluster
	by    *node  // who was asked, and has not answered
	again bool   // it has come back once
}

// lives is what is between the ids of a node and of the one it comes back as.
const lives = 10

// lose gives a node up, which is off.
func (n *node) lose(why string) {
	w := n.w
	if n != w.frail() {
		w.failf("node %d: its catalog is of no use, and nobody has damaged it: %s", n.id, why)
	}
	w.trace("node %d is given up: %s", n.id, why)
	n.disk.stop()
	n.up, w.harmed = false, true
	n.grave = grave{why: why, again: n.grave.again}
}

// deserted takes note that a node has crashed, which may have been asked.
func (g *grave) deserted(n *node) {
	if g.by == n {
		g.by = nil
	}
}

// bury goes on with a node that was given up.
func (w *World) bury() {
	n := w.frail()
	if n == nil || n.grave.why == "" || n.grave.by != nil {
		return
	}
	by := w.anyNode()
	if by == nil {
		return
	}
	cmd := catalog.RemoveNode(n.id)
	if n.grave.taken {
		cmd = catalog.AddNode(catalog.Node{ID: n.id, Name: fmt.Sprint("node ", n.id), Addr: "anywhere"})
	}
	n.grave.by = by
	by.order.forward.Propose(cmd, true, func(result any, _ error) {
		if n.grave.by != by {
			return
		}
		r, _ := result.(*catalog.Result)
		if is := by.view().Node(n.id) != nil; is != n.grave.taken || r == nil {
			n.grave.by = nil // once more
			return
		}
		by.order.broker.Changed(r, false)
		by.soon(n.goOver)
	})
}

// goOver goes on when a node has been taken out, or in.
func (n *node) goOver() {
	w := n.w
	n.grave.by = nil
	switch {
	case n.grave.why == "":
	case !n.grave.taken:
		w.trace("node %d was taken out of the cluster", n.id)
		for _, m := range w.nodes {
			if m == n {
				continue
			}
			w.endDown(m, n)
			for _, p := range []pair{{n.id, m.id}, {m.id, n.id}} {
				delete(w.cut, p)
				delete(w.stuck, p)
				delete(w.silent, p)
			}
		}
		w.check.stats.Buried++
		n.id += lives
		n.grave.taken, n.founder, n.raised, n.copied = true, false, 0, nil
	default:
		w.trace("node %d begins anew", n.id)
		n.grave = grave{again: true}
		n.disk.full, n.small = 0, 0
		n.start(vfs.NewMem(), nil)
	}
}

// settleIn has queues that have lost a member with the former node get another one here.
func (n *node) settleIn() {
	w := n.w
	for _, q := range w.withStores() {
		if members := w.membersOf(q); q.home == 0 && q.change == nil && len(members) < 3 && !hasMember(members, n.id) {
			q.change = &change{begun: w.steps, node: n.id, add: true, repair: true}
			w.trace("queue %d: a member comes to node %d again", q.def.ID, n.id)
		}
	}
}
