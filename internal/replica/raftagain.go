package replica

import (
	"slices"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
)

// When a node is lost that led thousands of groups, their elections take a while: votes are written to the disk, and the
// groups have their turns one after the other. Who comes next must not take that for a failure: two that ask at the
// same time take each other's votes, or depose each other. So who has given its vote, or promised it, waits anew; and of two
// that ask, the one that comes later gives way.

// mostDoublings bounds how much longer than at first is waited in the end; every second attempt doubles it.
const mostDoublings = 2

// awaitElection has this member ask for an election if there is no leader for a while. Later attempts take longer:
// who is too slow, or alone, has no use for more of them.
func (x *raftGroup) awaitElection() {
	x.campaign = 0
	if rank, voter := x.rank(); voter {
		x.campaign = (campaignAgain + rank*campaignStep) << min(x.attempts/2, mostDoublings)
	}
}

// seekVotes asks for an election.
func (x *raftGroup) seekVotes() {
	x.gaveWay = false
	_ = x.rn.Campaign()
}

// givesWay is called when raft has seen a message: a member that waits for its turn, and one that asks whether it would get votes, wait anew
// if another has been given this one's vote, or was promised it.
func (x *raftGroup) givesWay(m *pb.Message) {
	t := m.GetType()
	if x.campaign == 0 || t != pb.MsgPreVote && t != pb.MsgVote {
		return
	}
	switch st := x.rn.BasicStatus(); {
	case st.RaftState == raft.StateFollower && st.GetTerm() == m.GetTerm() && st.GetVote() == m.GetFrom():
		x.awaitElection()
	case t == pb.MsgVote || st.Lead != 0 || m.GetTerm() <= st.GetTerm() || x.lacks(m):
	case st.RaftState == raft.StateFollower:
		x.awaitElection()
	case st.RaftState == raft.StatePreCandidate && x.comesBefore(m.GetFrom()):
		x.gaveWay = true
		x.awaitElection()
	}
}

// unwanted reports whether a message brings the promise of a vote that this member has no use for, as it has given way.
func (x *raftGroup) unwanted(m *pb.Message) bool {
	return x.gaveWay && m.GetType() == pb.MsgPreVoteResp && !m.GetReject() && x.rn.BasicStatus().RaftState == raft.StatePreCandidate
}

// lacks says whether who sent this lacks something that this member has.
func (x *raftGroup) lacks(m *pb.Message) bool {
	term := x.store.lastTerm()
	return m.GetLogTerm() < term || m.GetLogTerm() == term && m.GetIndex() < x.store.last()
}

// comesBefore says whether another member comes before this one when a leader is sought.
func (x *raftGroup) comesBefore(other uint64) bool {
	voters := x.conf.Voters
	if !slices.Contains(voters, other) || !slices.Contains(voters, x.self) {
		return false
	}
	first := x.first()
	place := func(id uint64) int { return (slices.Index(voters, id) - first + len(voters)) % len(voters) }
	return place(other) < place(x.self)
}

// first is the place among the voters of the one that comes first when a leader is sought.
func (x *raftGroup) first() int {
	if i := slices.Index(x.conf.Voters, x.begins); i >= 0 && x.store.last() <= 1 {
		return i
	}
	return int(uint64(x.g.id) % uint64(len(x.conf.Voters)))
}
