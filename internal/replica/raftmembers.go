package replica

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"google.golang.org/protobuf/proto"

	"holdfast/internal/bytecodec"
)

// MemberChange is a change of the members of a group.
type MemberChange struct {
	Kind   ChangeKind
	Member Member
}

// ChangeKind tells changes apart.
type ChangeKind uint8

// The kinds of changes.
const (
	// AddLearner takes a member in that has no vote: it gets the state and all entries.
	AddLearner ChangeKind = iota + 1
	// Promote gives a learner its vote, or takes a member in with one.
	Promote
	// Remove takes a member out.
	Remove
	// Demote takes a member's vote back: it stays as a learner.
	Demote
)

// Errors of changes. All but the last are ErrChangeRefused, too: nothing has happened.
var (
	ErrChangeRefused = errors.New("replica: the group is not ready for this change of its members")
	ErrLastVoter     = fmt.Errorf("%w: it is the only one with a vote", ErrChangeRefused)
	ErrNoMajority    = fmt.Errorf("%w: too few of the members that would be left are there", ErrChangeRefused)
	ErrBehind        = fmt.Errorf("%w: the member has not caught up, or is no learner", ErrChangeRefused)
	ErrIsVoter       = fmt.Errorf("%w: the member has a vote already", ErrChangeRefused)
	errChange        = errors.New("replica: the change of members makes no sense")
)

// caughtUp is how many entries a learner may lack when it gets its vote.
const caughtUp = 64

// change is one that waits, or is under way.
type change struct {
	MemberChange
	cc   *pb.ConfChangeV2
	id   entryID // zero: not proposed yet
	done func(error)
}

// growing is a learner that gets its vote when it has caught up.
type growing struct {
	member Member
	done   func(error)
}

// AddMember takes a member in without a vote (JoinRaftGroup is what its node does), waits until it has caught up, and gives it
// its vote. done runs on the worker: with an error as of ChangeMembers; ErrUnknown if the leadership was lost
// meanwhile: the member may be in, as a learner or with its vote, which Status of the new leader tells.
// It waits as long as it takes: a member that never comes is taken out by Remove, and done gets ErrBehind.
func (g *Group) AddMember(m Member, done func(error)) {
	x := g.raft
	g.ChangeMembers(MemberChange{AddLearner, m}, func(err error) {
		if err != nil {
			done(err)
			return
		}
		x.growing = append(x.growing, growing{m, done})
	})
}

// grow gives their votes to learners that have caught up.
func (x *raftGroup) grow() {
	for i := 0; i < len(x.growing); i++ {
		l := x.growing[i]
		has := x.has(l.member.ID)
		if has && x.behind(l.member.ID) {
			continue
		}
		x.growing = slices.Delete(x.growing, i, i+1)
		i--
		if !has {
			l.done(ErrBehind)
			continue
		}
		c := MemberChange{Promote, l.member}
		x.changes = append(x.changes, change{MemberChange: c, cc: encodeChange(c), done: l.done})
		x.g.touch()
	}
}

// behind says whether a member has not caught up, or is no learner.
func (x *raftGroup) behind(id uint64) bool {
	behind := true
	x.rn.WithProgress(func(member uint64, typ raft.ProgressType, p tracker.Progress) {
		if member == id && typ == raft.ProgressTypeLearner {
			behind = p.State != tracker.StateReplicate || p.Match+caughtUp < x.store.last()
		}
	})
	return behind
}

// refused says why a change must not be made now, or nil.
func (x *raftGroup) refused(c MemberChange) error {
	id := c.Member.ID
	voter := slices.Contains(x.conf.Voters, id)
	switch c.Kind {
	case AddLearner:
		if voter {
			return ErrIsVoter
		}
	case Promote:
		if !voter && x.behind(id) {
			return ErrBehind
		}
	case Remove, Demote:
		if voter && len(x.conf.Voters) == 1 {
			return ErrLastVoter
		}
		there, left := 0, 0
		for _, v := range x.conf.Voters {
			if v == id {
				continue
			}
			if left++; !x.g.shard.node.isDown(x.nodes[v]) {
				there++
			}
		}
		if voter && there <= left/2 {
			return ErrNoMajority
		}
	}
	return nil
}

// ChangeMembers changes the members of a group, one change after another. done runs on
// the worker when the change is applied here, or with an error: *NotLeaderError or one that is ErrChangeRefused
// (nothing has happened), ErrUnknown. An id that was removed must not be used again.
func (g *Group) ChangeMembers(c MemberChange, done func(error)) {
	x := g.raft
	x.ask(func() {
		switch {
		case x.rn == nil:
			done(ErrClosed)
		case !x.serving:
			done(x.notLeader())
		case c.Member.ID == 0 || c.Kind != Remove && c.Member.Node == 0:
			done(errChange)
		default:
			x.changes = append(x.changes, change{MemberChange: c, cc: encodeChange(c), done: done})
		}
	})
}

// encodeChange gives the change raft's form; member and node go along as its context.
func encodeChange(c MemberChange) *pb.ConfChangeV2 {
	typ := pb.ConfChangeAddNode
	switch c.Kind {
	case AddLearner, Demote:
		typ = pb.ConfChangeAddLearnerNode
	case Remove:
		typ = pb.ConfChangeRemoveNode
	}
	id := c.Member.ID
	ctx := bytecodec.AppendUint(nil, 1)
	ctx = bytecodec.AppendUint(ctx, id)
	ctx = bytecodec.AppendUint(ctx, c.Member.Node)
	return &pb.ConfChangeV2{Changes: []*pb.ConfChangeSingle{{Type: typ.Enum(), NodeId: &id}}, Context: ctx}
}

// proposeChange proposes the first change that waits. It reports whether there was one.
func (x *raftGroup) proposeChange() bool {
	if len(x.changes) == 0 || x.changes[0].id != (entryID{}) || !x.serving || x.isHanding() {
		return false
	}
	c := &x.changes[0]
	if err := x.refused(c.MemberChange); err != nil {
		x.changeDone(err)
		return true // perhaps another one waits
	}
	c.id = entryID{x.store.last() + 1, x.term}
	if err := x.rn.ProposeConfChange(c.cc); err != nil {
		x.changeDone(ErrChangeRefused)
	}
	return true
}

// changeAppended looks whether raft has taken a change as it was proposed: it puts an
// empty entry in its place if it does not fit the members there are.
func (x *raftGroup) changeAppended(id entryID, kind byte) {
	if len(x.changes) > 0 && x.changes[0].id == id && kind != entryConf {
		x.changeDone(ErrChangeRefused)
	}
}

// changeDone answers the first change.
func (x *raftGroup) changeDone(err error) {
	done := x.changes[0].done
	x.changes = slices.Delete(x.changes, 0, 1)
	if done != nil {
		done(err)
	}
}

// failChanges answers all changes: those under way may still happen.
func (x *raftGroup) failChanges(err error) {
	for len(x.changes) > 0 {
		if x.changes[0].id != (entryID{}) {
			x.changeDone(ErrUnknown)
		} else {
			x.changeDone(err)
		}
	}
	for _, l := range x.growing {
		l.done(ErrUnknown)
	}
	x.growing = nil
}

// applyConf carries out a change of members.
func (x *raftGroup) applyConf(id entryID, data []byte) {
	cc := &pb.ConfChangeV2{}
	if err := proto.Unmarshal(data, cc); err != nil {
		x.g.shard.node.fail(x.g, err)
		return
	}
	before := x.nodes
	x.setConf(x.rn.ApplyConfChange(cc), cc.GetContext())
	x.changed()
	for _, member := range slices.Sorted(maps.Keys(before)) {
		if member != x.self && !x.has(member) {
			x.heard(member, before[member])
			x.dismiss(member)
		}
	}
	// A member that is taken in needs a snapshot that knows it.
	x.g.wantSnapshot.Store(true)
	if x.lead != 0 && !x.has(x.lead) {
		_ = x.rn.ForgetLeader()
		x.lead = 0
		if rank, voter := x.rank(); voter {
			x.campaign = 1 + rank*campaignStep // raft does not campaign before this change counts as applied
		}
	}
	if len(x.changes) > 0 && x.changes[0].id == id {
		x.changeDone(nil)
	}
	x.checkLeft()
}

// setConf takes over a configuration, with what it says of the nodes.
func (x *raftGroup) setConf(conf *pb.ConfState, context []byte) {
	x.conf, x.nodes = conf, maps.Clone(x.nodes)
	if x.nodes == nil {
		x.nodes = map[uint64]uint64{}
	}
	d := decoder{bytecodec.Over(context)}
	if len(context) > 0 {
		for n := d.Count(1); n > 0 && !d.Bad(); n-- {
			member := d.Uint()
			if node := d.Uint(); node != 0 {
				x.nodes[member] = node
			}
		}
	}
	for member := range x.nodes {
		if !x.has(member) {
			delete(x.nodes, member)
			delete(x.peers, member)
		}
	}
	x.members = x.g.shard.node.shared(x.members)
	x.store.conf = x.conf
}

// RaftStatus is a picture of a group, as one member sees it.
type RaftStatus struct {
	Term, Lead, Self       uint64 // Lead and Self are members
	LeadNode               uint64 // the node of Lead, 0 if nobody is known to lead
	Serving                bool
	Removed                bool // this member does not belong to the group any more
	Resting                bool // nothing happens, and the members do not beat
	Last, Commit, Applied  uint64
	Snapshot               uint64         // index of the newest snapshot in the log of this member
	Members                []MemberStatus // in order of id
	Unwritten, FirstInTail uint64         // entries that wait for the disk; the first that a member can still be sent
}

// MemberStatus is one member. Only the leader knows more than its name and whether its node is away.
type MemberStatus struct {
	Member
	Match  uint64 // the last entry it is known to have
	Lag    uint64 // how many it lacks
	State  string // probe, replicate or snapshot
	Active bool   // heard of lately
	Down   bool   // its node is known to be away
	Sent   uint64 // parts of a state under way to it that are on its disk
}

// AskRaftStatus has fn called with the status of the group, on its worker.
func (g *Group) AskRaftStatus(fn func(RaftStatus)) {
	g.raft.askQuietly(func() { fn(g.raft.status()) })
}

func (x *raftGroup) status() RaftStatus {
	st := RaftStatus{
		Term: x.term, Lead: x.lead, Self: x.self, Serving: x.serving, Last: x.store.last(), Commit: x.store.commit,
		Applied: x.store.applied, Unwritten: uint64(len(x.appends)), FirstInTail: x.store.first,
		LeadNode: x.leaderNode(), Removed: x.outside || x.left, Resting: x.asleep, Snapshot: x.snapshotAt,
	}
	for _, m := range x.list() {
		down := m.ID != x.self && x.g.shard.node.isDown(m.Node)
		st.Members = append(st.Members, MemberStatus{Member: m, Down: down})
	}
	if x.rn == nil || x.state != raft.StateLeader {
		return st
	}
	x.rn.WithProgress(func(id uint64, _ raft.ProgressType, p tracker.Progress) {
		for i := range st.Members {
			if m := &st.Members[i]; m.ID == id {
				m.Match, m.Active = p.Match, p.RecentActive || x.asleep && !m.Down
				m.Lag = st.Last - min(st.Last, p.Match)
				if o := x.sending[id]; o != nil {
					m.Sent = o.acked
				}
				switch p.State {
				case tracker.StateProbe:
					m.State = "probe"
				case tracker.StateReplicate:
					m.State = "replicate"
				case tracker.StateSnapshot:
					m.State = "snapshot"
				}
			}
		}
	})
	return st
}
