package node

import (
	"holdfast/internal/catalog"
	"holdfast/internal/node/catgroup"
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
	has := func(id seglog.GroupID) bool { return n.groups.Group(id) != nil }
	hits := n.seglog.Quarantined()
	for q := range v.AllQueues().All() {
		if !q.Durable {
			continue // this start's incarnation removes it from the catalog
		}
		if n.mesh != nil && !catgroup.Begins(q, n.mesh.self, has, hits) {
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

// dropOrphans frees groups of queues that were deleted and says how many others the catalog does not know.
func (n *Node) dropOrphans(v *catalog.View) (kept int) {
	for _, o := range n.queues.Orphans() {
		switch catgroup.Belongs(v, o.ID, n.identity.number(), n.mesh == nil) {
		case catgroup.Used:
			n.log.Error("what the log holds of a queue could not be taken up; it is kept", "group", uint64(o.ID), "reason", o.Reason)
			kept++
		case catgroup.Deleted:
			if err := n.queues.Discard(o.ID); err != nil {
				n.log.Error("what is left of a deleted queue is not freed", "group", uint64(o.ID), "error", err)
			}
		default:
			n.log.Warn("the log holds a group that the catalog does not know; it is kept",
				"group", uint64(o.ID), "reason", o.Reason)
			kept++
		}
	}
	return kept
}
