package catgroup

import (
	"slices"

	"holdfast/internal/catalog"
	"holdfast/internal/seglog"
)

// Group is the catalog's own group.
const Group seglog.GroupID = 1

// Begins reports whether a durable queue is to run on a node from its start on; has says whether the log there holds anything
// of a group, and hits what it may have lost. The catalog of the node may lag behind: a member of a quorum queue of which the
// log knows nothing waits until it has caught up, since it may belong to the queue no longer, and then must not vote as if
// nothing had happened.
func Begins(q *catalog.Queue, self uint64, has func(seglog.GroupID) bool, hits []seglog.Hit) bool {
	if q.Type != catalog.Quorum {
		return q.Home == self
	}
	_, member := q.MemberOn(self)
	id := seglog.GroupID(q.ID)
	return member && (has(id) || isHit(id, hits))
}

// isHit reports whether the log may have lost records of a group.
func isHit(id seglog.GroupID, hits []seglog.Hit) bool {
	return slices.ContainsFunc(hits, func(h seglog.Hit) bool { return h.Group == id || h.Group == 0 })
}

// Whose tells what a group that the log of a node holds, and that nothing has taken up, belongs to.
type Whose uint8

// The answers.
const (
	// Unknown is a group with an id that the catalog has never given out. It is kept: nothing but an operator frees it.
	Unknown Whose = iota
	// Used is one that the catalog has, and that is to be on this node: something is wrong.
	Used
	// Deleted is one that the catalog has no more, or that is to be elsewhere: its own end did not reach the disk.
	Deleted
)

// Belongs tells it of a group; alone: the node is in no cluster, and every queue is here.
func Belongs(v *catalog.View, id seglog.GroupID, self uint64, alone bool) Whose {
	if q := v.QueueByID(catalog.QueueID(id)); q != nil {
		_, member := q.MemberOn(self)
		if member || q.Type != catalog.Quorum && (alone || q.Home == self) {
			return Used
		}
	}
	if id > Group && id <= seglog.GroupID(v.LastQueue()) {
		return Deleted
	}
	return Unknown
}
