package replica

import (
	"sync"

	"holdfast/internal/seglog"
)

// Bounds of what is kept for groups that are not here yet.
const (
	earlyBytes = 1 << 20
	// earlyTicks is how long a message is kept at least; twice that at most.
	earlyTicks = 10
)

// early keeps messages for groups that are not here. Where groups are made on several nodes at the same time, the
// first one asks the others for their votes before they have made it; its question would be lost, and asked again
// much later. What is not called for is forgotten, and nothing relies on it.
type early struct {
	mu    sync.Mutex
	kept  [2]map[seglog.GroupID][]incoming // lately, and before that
	bytes [2]int
	ticks int
}

// keep keeps a message, unless there is too much already.
func (e *early) keep(in incoming) {
	if in.msg == nil || e.bytes[0]+in.size > earlyBytes {
		return
	}
	if e.kept[0] == nil {
		e.kept[0] = map[seglog.GroupID][]incoming{}
	}
	e.kept[0][in.group] = append(e.kept[0][in.group], in)
	e.bytes[0] += in.size
}

// take returns what came for a group.
func (e *early) take(id seglog.GroupID) (list []incoming) {
	for _, i := range []int{1, 0} {
		list = append(list, e.kept[i][id]...)
		delete(e.kept[i], id)
	}
	return list
}

// tick forgets what is old.
func (e *early) tick() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ticks++; e.ticks%earlyTicks == 0 {
		e.kept[1], e.bytes[1] = e.kept[0], e.bytes[0]
		e.kept[0], e.bytes[0] = nil, 0
	}
}

// keepEarly keeps a message for a group that is about to be made. If it has been made meanwhile, it gets it.
func (n *Node) keepEarly(in incoming) {
	n.early.mu.Lock()
	defer n.early.mu.Unlock()
	if g := n.Group(in.group); g == nil {
		n.early.keep(in)
	} else if g.raft != nil && g.raft.put(in) {
		g.Wake()
	}
}

// giveEarly gives a new group what came for it before.
func (n *Node) giveEarly(x *raftGroup) {
	n.early.mu.Lock()
	defer n.early.mu.Unlock()
	for _, in := range n.early.take(x.g.id) {
		x.put(in)
	}
}
