package node

import (
	"slices"

	"holdfast/internal/catalog"
	"holdfast/internal/seglog"
)

// reconcile brings what the log holds and what the catalog knows together.
//
//   - A durable queue of the catalog runs, with what the log has of it, be it
//     nothing: it was declared and never used.
//   - A group that the catalog does not know, with an id that the catalog has
//     given out, belongs to a queue whose deletion the catalog has applied and
//     whose own end did not reach the disk: it is dropped now.
//   - A group with an id that the catalog has never given out is kept and
//     listed. Nothing but an operator frees it.
func (n *Node) reconcile() error {
	v := n.catalog.View()
	queues := 0
	for q := range v.AllQueues().All() {
		if !q.Durable {
			continue // this start's incarnation removes it from the catalog
		}
		if !n.beginsHere(q) {
			continue
		}
		if err := n.broker.Open(q); err != nil {
			return err
		}
		queues++
	}
	n.report.Queues = queues
	if n.mesh != nil { // what the catalog knows here may be older than what the log holds
		n.queues.Expect()
		return nil
	}
	n.report.Orphans = n.dropOrphans(v)
	return nil
}

// beginsHere reports whether a durable queue is to run from the start on. In a cluster the catalog here may lag behind: a
// member of a quorum queue of which the log knows nothing waits until it has caught up, since it may belong to the queue no
// longer, and then must not vote as if nothing had happened.
func (n *Node) beginsHere(q *catalog.Queue) bool {
	switch {
	case n.mesh == nil:
		return true
	case q.Type == catalog.Quorum:
		_, member := q.MemberOn(n.mesh.self)
		id := seglog.GroupID(q.ID)
		return member && (n.groups.Group(id) != nil || n.isHit(id))
	}
	return q.Home == n.mesh.self
}

// isHit reports whether the log may have lost records of a group.
func (n *Node) isHit(id seglog.GroupID) bool {
	return slices.ContainsFunc(n.seglog.Quarantined(), func(h seglog.Hit) bool { return h.Group == id || h.Group == 0 })
}

// isUsed reports whether the catalog has the queue of a group, and it or a member of it is to be on this node.
func (n *Node) isUsed(v *catalog.View, id seglog.GroupID) bool {
	q := v.QueueByID(catalog.QueueID(id))
	if q == nil {
		return false
	}
	_, member := q.MemberOn(n.identity.number())
	return member || q.Type != catalog.Quorum && (n.mesh == nil || q.Home == n.mesh.self)
}

// dropOrphans frees groups of queues that were deleted and says how many others the catalog does not know.
func (n *Node) dropOrphans(v *catalog.View) (kept int) {
	for _, o := range n.queues.Orphans() {
		if n.isUsed(v, o.ID) {
			n.log.Error("what the log holds of a queue could not be taken up; it is kept", "group", uint64(o.ID), "reason", o.Reason)
			kept++
			continue
		}
		if o.ID > catalogGroup && o.ID <= seglog.GroupID(v.LastQueue()) {
			if err := n.queues.Discard(o.ID); err != nil {
				n.log.Error("what is left of a deleted queue is not freed", "group", uint64(o.ID), "error", err)
			}
			continue
		}
		n.log.Warn("the log holds a group that the catalog does not know; it is kept",
			"group", uint64(o.ID), "reason", o.Reason)
		kept++
	}
	return kept
}
