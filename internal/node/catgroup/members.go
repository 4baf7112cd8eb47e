package catgroup

import (
	"slices"

	"holdfast/internal/catalog"
	"holdfast/internal/cluster"
	"holdfast/internal/replica"
)

// caughtUp is how many entries a member may lack that is to get a vote, or to lead.
const caughtUp = 64

// IsAble reports whether a member could lead, or have a vote, as the leader says.
func IsAble(st *replica.RaftStatus, x *replica.MemberStatus) bool {
	return x.ID == st.Self || x.Active && x.State == "replicate" && x.Lag <= caughtUp
}

// NextChange says how the members of the catalog's group have to change, one at a time, to be the catalog's nodes with as
// many votes as there should be.
func NextChange(v *catalog.View, st replica.RaftStatus, self uint64, up func(uint64) bool) (c *replica.MemberChange, why string) {
	on := map[uint64]replica.MemberStatus{}
	for _, member := range st.Members {
		on[member.Node] = member
		if v.Node(member.Node) == nil {
			return &replica.MemberChange{Kind: replica.Remove, Member: member.Member}, "a node leaves"
		}
	}
	for n := range v.Nodes().All() {
		if _, is := on[n.ID]; !is {
			return &replica.MemberChange{Kind: replica.AddLearner, Member: replica.Member{ID: n.ID, Node: n.ID}}, "a node comes in"
		}
	}
	ready := func(id uint64) bool {
		member := on[id]
		return up(id) && member.Active && member.Lag <= caughtUp && member.State == "replicate"
	}
	var voters []uint64
	for node, member := range on {
		if !member.Learner {
			voters = append(voters, node)
		}
	}
	slices.Sort(voters)
	switch promote, demote := cluster.NextVote(v, voters, self, up, ready); {
	case promote != 0:
		return &replica.MemberChange{Kind: replica.Promote, Member: on[promote].Member}, "a node gets its vote"
	case demote != 0:
		return &replica.MemberChange{Kind: replica.Demote, Member: on[demote].Member}, "a node gives its vote back, so that their number is odd"
	}
	return nil, ""
}

// Votes are the commands by which the catalog learns who votes in its group, for those who choose.
func Votes(v *catalog.View, st replica.RaftStatus) (cmds [][]byte) {
	return tell(v, st, func(bool) bool { return true })
}

// Untrue are those of Votes that take back what the catalog says: a node does not vote, or not any more. So it is for all others
// when a member was made the only one (replica.Group.ForceSingle). They come before any change of the members: whoever finds in the
// catalog that a node votes relies on it, as who stops the node that was left as soon as enough others vote again.
func Untrue(v *catalog.View, st replica.RaftStatus) (cmds [][]byte) {
	return tell(v, st, func(votes bool) bool { return !votes })
}

func tell(v *catalog.View, st replica.RaftStatus, which func(votes bool) bool) (cmds [][]byte) {
	for n := range v.Nodes().All() {
		votes := slices.ContainsFunc(st.Members, func(member replica.MemberStatus) bool { return member.Node == n.ID && !member.Learner })
		if n.Voter != votes && which(votes) {
			cmds = append(cmds, catalog.SetVoter(n.ID, votes))
		}
	}
	return cmds
}

// NextOf returns the change of members that the group of a quorum queue needs, if any: a member leaves whose node was taken
// out of the cluster, and one that has caught up gets its vote.
func NextOf(v *catalog.View, q *catalog.Queue, st *replica.RaftStatus) (c *replica.MemberChange, why string) {
	for i := range st.Members {
		x := &st.Members[i]
		if v.Node(x.Node) == nil && len(st.Members) > 1 && x.ID != st.Self {
			return &replica.MemberChange{Kind: replica.Remove, Member: x.Member}, "a member leaves with its node"
		}
	}
	for i := range st.Members {
		x := &st.Members[i]
		if x.Learner && Entered(q, x) && IsAble(st, x) {
			return &replica.MemberChange{Kind: replica.Promote, Member: x.Member}, "a member has caught up and gets its vote"
		}
	}
	return nil, ""
}

// Follow returns the command that tells the catalog of the members of a group, nil if it knows. They keep their order there;
// new ones come last. A member on a node that is not in the cluster any more is none to the catalog, nor is a learner that it
// does not have, but for come.
func Follow(v *catalog.View, id catalog.QueueID, st *replica.RaftStatus, come uint64) []byte {
	q := v.QueueByID(id)
	if q == nil {
		return nil
	}
	var list, added []catalog.Member
	for _, x := range q.Members {
		if v.Node(x.Node) != nil && slices.ContainsFunc(st.Members, func(y replica.MemberStatus) bool { return y.ID == x.ID && y.Node == x.Node }) {
			list = append(list, x)
		}
	}
	for i := range st.Members {
		x := &st.Members[i]
		if v.Node(x.Node) != nil && !Entered(q, x) && (!x.Learner || x.ID == come) {
			added = append(added, catalog.Member{ID: x.ID, Node: x.Node})
		}
	}
	list = append(list, added...)
	if len(list) == 0 || slices.Equal(list, q.Members) {
		return nil
	}
	return catalog.SetMembers(q.ID, list)
}

// MemberOn returns the member of a queue (nil: the catalog does not have it) on a node. There are several where an order was repeated and
// came about more than once: the one that the catalog has counts.
func MemberOn(q *catalog.Queue, st *replica.RaftStatus, node uint64) (found *replica.MemberStatus) {
	for i := range st.Members {
		if x := &st.Members[i]; x.Node == node && (found == nil || q != nil && Entered(q, x)) {
			found = x
		}
	}
	return found
}

// Entered reports whether the catalog has a member.
func Entered(q *catalog.Queue, x *replica.MemberStatus) bool {
	return slices.Contains(q.Members, catalog.Member{ID: x.ID, Node: x.Node})
}
