package replica

import (
	"fmt"
	"sync"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"holdfast/internal/invariant"
	"holdfast/internal/seglog"
)

// Raft counts time in ticks of Options.Tick. Groups beat every beatTicks; without a
// beat for electionTicks to twice that a member asks for an election. That is the slow
// way: mostly a node is known to be gone long before (Node.Down, Node.Suspect).
const (
	beatTicks     = 5
	electionTicks = 20
)

// Bounds of what is on its way to one member.
const (
	maxInflight = 16
	// applyAtOnce is about how many bytes of entries, as raft counts, are applied
	// before others have their turn: some 64 entries.
	applyAtOnce = 64 * entryOverhead
	// inboxBytes is how much may wait in the inbox of a group. More is dropped; raft sends it again.
	inboxBytes = 32 << 20
)

// raftGroup is the third replicator: an entry is applied when a majority has it on
// disk. All but the inbox belongs to the worker of the group's shard.
//
// One entry of the host is under way at a time, and only while this member leads and
// has applied an entry of its own term (docs/decisions/0009). So a host packs
// against the state that its entry will be applied to.
type raftGroup struct {
	g    *Group
	host RaftHost

	inMu    sync.Mutex
	inbox   []incoming
	inBytes int
	asks    []func() // run on the worker

	rn    *raft.RawNode // nil before the start, and after the end
	store store
	members
	self      uint64 // member id
	begins    uint64 // member that is to lead at first; 0: no matter which
	committed uint64 // while replaying: how far the group is known to be committed

	// What raft said last.
	term, lead uint64
	state      raft.StateType
	told       role

	appends  []storageAppend // in the log, not yet stable; oldest first
	taken    []incoming
	payloads map[entryID]*payload // stepped or proposed, not yet in the store; or nil
	out      []*pb.Message        // to other members, sent at the end of the turn
	peers    map[uint64]*peer     // members of which there is more to know than where they are, by id; or nil

	underWay  *packing // what the host packed last and is not applied; nil: nothing
	time      int64    // of the last entry applied
	changes   []change
	reads     *barriers       // or nil: nobody has asked yet
	forced    *forcing        // ForceSingle has been asked for
	settled   uint64          // when this is applied, who the members are is known to a majority
	dismissed map[uint64]bool // members that are to be told that they can go; or nil
	hand      func(error)     // hears what becomes of the transfer of the leadership
	handTo    uint64
	growing   []growing // learners that are to get a vote

	campaign   int                     // ticks until this member asks for an election; 0: it does not
	deferred   *pb.Message             // the last request for a vote that came while there was a leader
	keptTail   int64                   // bytes of the entries kept below the snapshot
	sending    map[uint64]*outTransfer // states on their way to members, by id; or nil
	receiving  *inTransfer
	installing *inTransfer    // all of it is here, and raft has been told
	staged     []seglog.Range // items received that are not part of the state yet
	stagedFor  uint64         // the last entry of the newest state that they belong to

	before     uint64 // what was applied a while ago: all members that are there have it
	lately     uint64 // the same, less long ago
	snapshotAt uint64 // index of the newest snapshot written

	// What is small is together, since there may be many groups: see TestSizes.
	deferFor int32 // ticks until deferred is of no use any more
	attempts int32 // how often it has asked in vain for an election since there was a leader
	outWait  int32 // ticks until it asks whether it can go
	calm     int32 // ticks in which nothing happened
	tailWait int32 // ticks since before and lately were noted
	ahead    int32 // ms: how far the group's time is ahead of that of the shard, as far as is known
	renewed  uint8 // how often it was looked at, at rest, since the leader said that it can
	stirred  bool  // one of asks wakes the group; guarded by inMu
	shut     bool  // there is no worker any more; guarded by inMu
	serving  bool  // leads, and has applied an entry of this term
	gaveWay  bool  // it has asked for an election, and leaves it to another one that does
	counted  bool  // in Node.Leading
	handing  bool  // the leadership is being handed over
	passing  bool  // it was, and the next leader does not serve yet, as far as is known here
	ended    bool
	create   bool // the first snapshot is to be written
	outside  bool // this member was removed by what it has applied
	left     bool // it can go
	settling bool // there will be the entry settled
	keeping  bool // the log was asked to keep entries for members that are away: those above before
	asleep   bool // it rests: no ticks
	ticking  bool // in the shard's list of those that tick
	mayRest  bool // the leader has said that there is nothing to do
}

// packing is an entry that the host has packed.
type packing struct {
	entry Entry
	since int64 // clock.Mono
}

// is reports whether it is this entry.
func (p *packing) is(id entryID) bool {
	return p != nil && id == entryID{p.entry.Index, p.entry.Term}
}

// entryID names an entry, and with it what it carries: in raft two entries of the same
// index and term are the same.
type entryID struct{ index, term uint64 }

// storageAppend is one write to the log and what is to happen when it is stable.
type storageAppend struct {
	responses []*pb.Message
	then      func() // or nil
}

// role is what a host was told last.
type role struct {
	term, leader uint64
	serving      bool
}

// NewRaftGroup adds a group that is replicated to members; one of them is on this
// node. If the log holds the group, it goes on from there and members do not matter;
// else it begins with them: all nodes must name the same. The first of them leads at first, if it is up.
func (n *Node) NewRaftGroup(id seglog.GroupID, h RaftHost, members []Member) *Group {
	return n.addRaft(n.shards[n.ShardOf(id)], id, h, members)
}

// JoinRaftGroup adds an empty member to a group that has been there before. It waits
// until a leader that has added it (Group.ChangeMembers) brings it up to date.
func (n *Node) JoinRaftGroup(id seglog.GroupID, h RaftHost, member uint64) *Group {
	return n.addRaft(n.shards[n.ShardOf(id)], id, h, n.joining(member))
}

// joining is how a group begins that waits for a leader: with a member that has no vote, alone.
func (n *Node) joining(member uint64) []Member {
	return []Member{{ID: member, Node: n.o.NodeID, Learner: true}}
}

func (n *Node) addRaft(s *Shard, id seglog.GroupID, h RaftHost, list []Member) *Group {
	if n.o.NodeID == 0 {
		invariant.Failf("raft group %d on a node without a number", id)
	}
	x := newRaftGroup(h, list, n.o.NodeID)
	started := n.Started()
	x.members = n.shared(x.members)
	x.store.conf = x.conf
	x.g = &Group{id: id, shard: s, host: h, repl: x, raft: x}
	g := n.addWith(s, x.g)
	s.adopt(x)
	n.giveEarly(x)
	if started {
		g.Wake() // the worker starts it
	}
	return g
}

func newRaftGroup(h RaftHost, list []Member, node uint64) *raftGroup {
	x := &raftGroup{
		host:    h,
		members: members{conf: &pb.ConfState{}},
	}
	x.store = store{conf: x.conf, first: 1, of: x}
	for _, m := range list {
		if m.Node == node {
			x.self = m.ID
		}
	}
	if len(list) > 1 || len(list) == 1 && !list[0].Learner {
		x.members, x.create = newMembers(list), true
		x.begins = list[0].ID
	}
	return x
}

// logged implements replicator.
func (x *raftGroup) logged() bool { return true }

// packed implements replicator; the turn of a raft group does without.
func (x *raftGroup) packed(*Shard, *round, *Group, *Entry) {
	invariant.Failf("group %d is packed as if it were not replicated", x.g.id)
}

// put puts a message into the inbox. False: there was no room for it, or no use.
func (x *raftGroup) put(in incoming) bool {
	x.inMu.Lock()
	defer x.inMu.Unlock()
	if x.inBytes+in.size > inboxBytes && in.read == nil {
		return false
	}
	x.inBytes += in.size
	x.inbox = append(x.inbox, in)
	return true
}

// Do has fn run on the worker of a raft group, soon, and whether this member leads or not; on the
// caller's goroutine if the group has ended.
func (g *Group) Do(fn func()) { g.raft.ask(fn) }

// Member is the number that the member of a raft group here has; for a group that was replayed or added.
func (g *Group) Member() uint64 { return g.raft.self }

// ask has fn run on the worker, or here when there is none any more: then rn is nil.
func (x *raftGroup) ask(fn func()) { x.putAsk(fn, true) }

// askQuietly is ask for what leaves a group that rests at rest.
func (x *raftGroup) askQuietly(fn func()) { x.putAsk(fn, false) }

func (x *raftGroup) putAsk(fn func(), stirs bool) {
	x.inMu.Lock()
	if x.shut {
		x.inMu.Unlock()
		fn()
		return
	}
	x.asks = append(x.asks, fn)
	x.stirred = x.stirred || stirs
	x.inMu.Unlock()
	x.g.Wake()
}

// close answers whoever still waits. The worker has ended.
func (x *raftGroup) close() {
	x.rn = nil
	x.inMu.Lock()
	x.shut = true
	asks := x.asks
	x.asks = nil
	x.inMu.Unlock()
	for _, ask := range asks {
		ask()
	}
	x.failChanges(ErrClosed)
	x.failReads(ErrClosed)
	x.forcesDone(ErrClosed)
	x.handed(ErrClosed)
}

// start makes the raft node, from what was replayed or from nothing.
func (x *raftGroup) start(r *round, time int64) error {
	if x.self == 0 {
		return fmt.Errorf("no member of group %d is on this node", x.g.id)
	}
	switch {
	case x.store.last() > 0:
	case x.create:
		x.begin(r, time)
	default:
		x.writeHardState(r, time)
	}
	rn, err := x.newNode()
	if err != nil {
		return err
	}
	x.rn, x.term = rn, x.store.term
	x.heardTime(x.g.shard, x.time)
	x.before, x.lately = x.store.applied, x.store.applied
	x.g.shard.node.raftLog.KeepTail(x.g.id, 0) // what was kept before the start is not known here
	if x.checkLeft(); !x.outside {
		x.rankedCampaign()
	}
	return nil
}

// newNode makes a raft node from what the store has.
func (x *raftGroup) newNode() (*raft.RawNode, error) {
	return raft.NewRawNode(&raft.Config{
		ID: x.self, Storage: &x.store, Applied: x.store.applied,
		ElectionTick: electionTicks, HeartbeatTick: beatTicks, PreVote: true, CheckQuorum: true,
		AsyncStorageWrites: true, DisableProposalForwarding: true, StepDownOnRemoval: true,
		MaxSizePerMsg: 64 * entryOverhead, MaxCommittedSizePerReady: applyAtOnce, MaxInflightMsgs: maxInflight,
		Logger: raftLogger{x.g.shard.node.o.Logger, x.g.id},
	})
}

// begin makes the first snapshot: the empty state with the members it begins with, at
// index 1 of term 1, the same on all of them.
func (x *raftGroup) begin(r *round, time int64) {
	x.store.reset(1, 1, x.conf, func(*slot) {})
	x.store.term = 1
	x.g.index, x.g.term = 1, 1
	// In this order: a crash that leaves only the first must not leave a member that waits for a leader.
	x.writeSnapshot(r, time, false)
	x.writeHardState(r, time)
}

// writeHardState puts what must not be forgotten into the round.
func (x *raftGroup) writeHardState(r *round, time int64) {
	h := hardState{x.self, x.store.term, x.store.vote, x.store.commit}
	r.addRecord(x.g, seglog.Record{
		Kind: seglog.KindHardState, Term: max(x.store.term, 1), Index: x.store.last(), Time: time, Meta: h.append(nil),
	})
}

// writeSnapshot puts a snapshot of the state as it is now into the round; a large one is made later, if it may.
func (x *raftGroup) writeSnapshot(r *round, time int64, mayWait bool) {
	head := snapshotHead{self: x.self, time: x.time, members: x.members}
	rec := seglog.Record{Kind: seglog.KindSnapshot, Term: x.store.appliedTerm, Index: x.store.applied, Time: time}
	meta := head.append(nil)
	if rec.Later = x.g.later(meta, mayWait); rec.Later == nil {
		n := len(meta)
		if rec.Meta = x.host.AppendSnapshot(meta); len(rec.Meta) == n {
			invariant.Failf("group %d: empty snapshot", x.g.id)
		}
		x.g.snapshotTaken(len(rec.Meta))
	}
	r.addRecord(x.g, rec)
	x.snapshotAt = x.store.applied
}

// end lets go of everything but the host.
func (x *raftGroup) end() {
	if x.ended {
		return
	}
	x.abandon()
	x.ended, x.rn, x.serving = true, nil, false
	x.g.shard.node.leads(x, false)
	x.g.shard.node.tailBytes.Add(-x.keptTail)
	x.dropTransfers()
	x.receiving, x.installing = nil, nil
	for i := range x.store.slots {
		x.gone(&x.store.slots[i])
	}
	x.store.slots = nil
	x.payloads, x.out = nil, nil
	x.failChanges(ErrClosed)
	x.failReads(ErrClosed)
	x.forcesDone(ErrClosed)
	x.handed(ErrClosed)
	x.g.shard.leave(x)
}

// gone says that an entry is not in the store any more.
func (x *raftGroup) gone(s *slot) {
	if s.payload != nil {
		x.g.shard.cache.drop(s.payload)
	}
}
