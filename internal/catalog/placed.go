package catalog

import (
	"hash/fnv"
	"iter"

	"holdfast/internal/routing/ordmap"
)

// NodeIDOf returns the id of a node whose data folder knows only a string: one made before nodes had numbers.
func NodeIDOf(old string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(old))
	return max(h.Sum64(), 1)
}

// hosted is what lives on one node.
type hosted struct {
	queues  ordmap.Map[QueueID, struct{}] // those at home there and those with a member there
	homes   int                           // at home there
	leaders int                           // with the first of their members there
}

// Counts says how much lives on a node.
type Counts struct {
	Homes   int // queues with one copy, which is there
	Members int // copies of quorum queues
	Leaders int // quorum queues whose first member is there: who leads now, only the groups know
}

// Nodes lists the nodes by id.
func (v *View) Nodes() List[*Node] { return listOf(v.nodes, 0, v.nodes.Len()) }

// Node returns a node, nil if it is not in the cluster.
func (v *View) Node(id uint64) *Node {
	n, _ := v.nodes.Get(id)
	return n
}

// NodeByName returns a node, nil if there is none. It looks at all nodes: they are few.
func (v *View) NodeByName(name string) *Node {
	for n := range v.Nodes().All() {
		if n.Name == name {
			return n
		}
	}
	return nil
}

// NodeOf returns the node whose present start this is, nil if it is over or none. It looks at all nodes: they are few.
func (v *View) NodeOf(inc Incarnation) *Node {
	if inc == 0 {
		return nil
	}
	for n := range v.Nodes().All() {
		if n.Incarnation == inc {
			return n
		}
	}
	return nil
}

// Counts says how much lives on a node.
func (v *View) Counts(node uint64) Counts {
	h, _ := v.placed.Get(node)
	return Counts{Homes: h.homes, Members: h.queues.Len() - h.homes, Leaders: h.leaders}
}

// QueuesOn lists the queues that are at home on a node or have a member there, by age. Node 0 stands for no node: on it
// are the queues whose home is not known.
func (v *View) QueuesOn(node uint64) List[*Queue] {
	h, _ := v.placed.Get(node)
	return List[*Queue]{0, h.queues.Len(), func(rank int) iter.Seq[*Queue] {
		return func(yield func(*Queue) bool) {
			for id := range h.queues.From(rank) {
				if !yield(v.QueueByID(id)) {
					return
				}
			}
		}
	}}
}

// MemberOn returns the member on a node, and whether there is one.
func (q *Queue) MemberOn(node uint64) (Member, bool) {
	for _, m := range q.Members {
		if m.Node == node {
			return m, true
		}
	}
	return Member{}, false
}

// enter notes where a queue lives.
func (t *txn) enter(q *Queue) {
	if q.Type != Quorum {
		t.host(q.Home, func(h *hosted) {
			h.queues = h.queues.Set(t.edit, q.ID, struct{}{})
			h.homes++
		})
		return
	}
	for i, m := range q.Members {
		t.host(m.Node, func(h *hosted) {
			h.queues = h.queues.Set(t.edit, q.ID, struct{}{})
			if i == 0 {
				h.leaders++
			}
		})
	}
}

// strike takes back what enter noted.
func (t *txn) strike(q *Queue) {
	if q.Type != Quorum {
		t.host(q.Home, func(h *hosted) {
			h.queues = h.queues.Delete(t.edit, q.ID)
			h.homes--
		})
		return
	}
	for i, m := range q.Members {
		t.host(m.Node, func(h *hosted) {
			h.queues = h.queues.Delete(t.edit, q.ID)
			if i == 0 {
				h.leaders--
			}
		})
	}
}

func (t *txn) host(node uint64, change func(*hosted)) {
	h, _ := t.placed.Get(node)
	change(&h)
	if h.queues.Len() == 0 {
		t.placed = t.placed.Delete(t.edit, node)
		return
	}
	t.placed = t.placed.Set(t.edit, node, h)
}
