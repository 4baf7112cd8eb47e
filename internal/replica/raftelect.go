package replica

import (
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
)

// NotLeaderError says that a command must go to another node. It was not carried out.
type NotLeaderError struct{ Leader uint64 } // the node, or 0: nobody is known to lead

// Error implements error.
func (e *NotLeaderError) Error() string {
	if e.Leader == 0 {
		return "replica: the group has no leader"
	}
	return fmt.Sprintf("replica: node %d leads the group", e.Leader)
}

// ErrUnknown answers a command whose leader lost the leadership before it was
// committed. It may come into effect, or not.
var ErrUnknown = errors.New("replica: the leadership was lost, and nobody knows what became of the command")

// Steps of an election in ticks: how long who comes next waits, and how long all wait
// before they try again.
const (
	campaignStep  = 3
	campaignAgain = 6
)

// PeerDown says that nothing can reach a node, or that it is suspected to be gone.
// Groups that it leads get another leader at once.
func (n *Node) PeerDown(node uint64) { n.news(node, true) }

// PeerUp says that a node is there again.
func (n *Node) PeerUp(node uint64) { n.news(node, false) }

func (n *Node) news(node uint64, down bool) {
	n.downMu.Lock()
	if n.down == nil {
		n.down = map[uint64]bool{}
	}
	n.down[node] = down
	n.downMu.Unlock()
	for _, s := range n.shards {
		if s.hasRafts.Load() {
			s.mu.Lock()
			s.news = append(s.news, peerNews{node, down})
			s.unpark()
		}
	}
}

// SetReluctant says whether this node had better not lead, because its disk or its memory is full: it lets all others ask for
// an election first. What it leads already it keeps; see Relieve.
func (n *Node) SetReluctant(on bool) { n.reluctant.Store(on) }

// SetReluctantPeers says which other nodes had better not lead.
func (n *Node) SetReluctantPeers(nodes []uint64) {
	m := make(map[uint64]bool, len(nodes))
	for _, node := range nodes {
		m[node] = true
	}
	n.reluctantPeers.Store(&m)
}

// shuns says whether another node had better not lead.
func (n *Node) shuns(node uint64) bool {
	m := n.reluctantPeers.Load()
	return m != nil && (*m)[node]
}

// Relieve hands over the leadership of all groups that this node leads, and that a member on a node that may well lead can take over at
// once. It may be called again and again: a group without such a member notices nothing.
func (n *Node) Relieve() {
	if n.Leading() == 0 {
		return
	}
	for _, s := range n.shards {
		for _, g := range n.groupsOf(s) {
			if x := g.raft; x != nil {
				x.ask(func() {
					if x.rn != nil && x.state == raft.StateLeader && !x.isHanding() {
						if to := x.reliever(); to != 0 {
							x.handOver(to)
						}
					}
				})
			}
		}
	}
}

// reliever is the member that can take over at once and has most of the log, on a node that may well lead; 0: there is none.
func (x *raftGroup) reliever() (to uint64) {
	var most uint64
	n, last := x.g.shard.node, x.store.last()
	x.rn.WithProgress(func(id uint64, typ raft.ProgressType, p tracker.Progress) {
		node := x.nodes[id]
		if id == x.self || typ == raft.ProgressTypeLearner || n.isDown(node) || n.shuns(node) || p.State != tracker.StateReplicate || p.Match+caughtUp < last {
			return
		}
		if p.Match > most || to == 0 || p.Match == most && id < to {
			to, most = id, p.Match
		}
	})
	return to
}

// isDown says whether a node is known to be away.
func (n *Node) isDown(node uint64) bool {
	n.downMu.Lock()
	defer n.downMu.Unlock()
	return n.down[node]
}

// peerNews is that a node came or went.
type peerNews struct {
	node uint64
	down bool
}

// peerNews carries out what follows for a group.
func (x *raftGroup) peerNews(p peerNews) {
	if x.rn == nil || x.left {
		return
	}
	if !p.down {
		if x.state == raft.StateLeader {
			for _, node := range x.nodes {
				if node == p.node {
					x.stir()
				}
			}
		}
		return
	}
	for _, m := range x.list() {
		if m.Node != p.node || m.ID == x.self {
			continue
		}
		x.stir()
		if q := x.peers[m.ID]; q != nil {
			q.parked = nil
		}
		if x.state == raft.StateLeader {
			x.rn.ReportUnreachable(m.ID)
			if o := x.sending[m.ID]; o != nil {
				x.failTransfer(o, "it is away")
			}
		}
		if t := x.receiving; t != nil && t.from == m.ID {
			x.receiving = nil
		}
		if x.lead == m.ID {
			_ = x.rn.ForgetLeader()
			x.lead = 0
			x.rankedCampaign()
			x.answerDeferred()
		}
		x.g.touch()
	}
}

// rank says how many members come before this one when a leader is sought: voters in
// order of id, from another one on in each group, without those that are away. As long as nothing
// has been agreed on, the first one is that which was named first.
// A node that had better not lead comes after all others.
func (x *raftGroup) rank() (rank int, voter bool) {
	rank, voter = x.rankOf(x.self)
	if n := len(x.conf.Voters); voter && n > 1 && x.g.shard.node.reluctant.Load() {
		rank += n
	}
	return rank, voter
}

func (x *raftGroup) rankOf(member uint64) (rank int, voter bool) {
	voters := x.conf.Voters
	at := slices.Index(voters, member)
	if at < 0 {
		return 0, false
	}
	for i := x.first(); i != at; i = (i + 1) % len(voters) {
		if !x.g.shard.node.isDown(x.nodes[voters[i]]) {
			rank++
		}
	}
	return rank, true
}

// rankedCampaign asks for an election: at once, or when those that come before have had their turn.
func (x *raftGroup) rankedCampaign() {
	rank, voter := x.rank()
	switch {
	case !voter:
	case rank == 0:
		x.campaign = campaignAgain
		x.seekVotes()
	default:
		x.campaign = rank * campaignStep
	}
}

// tick lets time pass.
func (x *raftGroup) tick(n int, now int64) {
	if x.rn == nil || x.left {
		return
	}
	if len(x.nodes) > 1 || x.state != raft.StateLeader { // who leads alone has nothing to wait for
		idle := !x.rn.HasReady()
		for range n {
			x.rn.Tick()
		}
		if idle && x.rn.HasReady() { // raft may have asked for an election by itself: then the votes are wanted
			x.gaveWay = false
		}
	}
	if x.deferred != nil {
		if x.deferFor -= int32(n); x.deferFor <= 0 {
			x.deferred = nil
		}
	}
	if x.campaign > 0 && x.state != raft.StateLeader {
		if x.campaign -= n; x.campaign <= 0 {
			x.attempts++
			if x.awaitElection(); x.campaign > 0 {
				x.seekVotes()
			}
		}
	}
	if p := x.underWay; p != nil && now-p.since >= int64(x.g.shard.node.o.Overdue) {
		x.host.Overdue(p.entry.Index)
	}
	if len(x.sending) > 0 {
		x.tickTransfers(n)
	}
	if x.reads.any() {
		x.tickReads(n, now)
	}
	if len(x.growing) > 0 {
		x.grow()
	}
	if x.outside {
		x.tickOut(n)
	}
	x.tickTail(n)
	x.outgrown()
	x.tickRest(x.g.shard, n)
	if x.rn.HasReady() || x.handing && !x.isHanding() {
		x.g.touch()
	}
}

// foundAgain takes note of a leader that was forgotten and heard of again before raft had anything to say: then it
// does not say that either.
func (x *raftGroup) foundAgain() {
	if x.lead == 0 {
		if x.lead = x.rn.BasicStatus().Lead; x.lead != 0 {
			x.checkRole()
		}
	}
}

// outran has this member ask for an election at once, if it comes next after one that lacks what this one has: that one
// cannot win. The others wait on, as several that ask at the same time take each other's votes.
func (x *raftGroup) outran(m *pb.Message) {
	if t := m.GetType(); x.campaign == 0 || t != pb.MsgPreVote && t != pb.MsgVote {
		return
	}
	rank, voter := x.rank()
	if theirs, ok := x.rankOf(m.GetFrom()); x.lacks(m) && voter && ok && rank == theirs+1 {
		x.campaign = campaignAgain + rank*campaignStep
		x.seekVotes()
	}
}

// deferVote keeps a request for a vote that raft has ignored because this member believes in a leader: who asked may have noticed
// earlier that the leader is gone. It asks again soon if it still wants to be elected, so the request is not kept for long: nobody must
// wait, or vote, for one that was of an earlier day.
func (x *raftGroup) deferVote(m *pb.Message) {
	if t := m.GetType(); t != pb.MsgPreVote && t != pb.MsgVote {
		return
	}
	if st := x.rn.BasicStatus(); st.Lead != 0 && st.Lead != x.self && m.GetTerm() > st.GetTerm() {
		x.deferred, x.deferFor = m, 2*campaignAgain
	}
}

// answerDeferred takes up what deferVote has kept, now that the leader is forgotten. Otherwise who asked would wait until it
// asks again, and this member for its turn. Raft allows for any delay of a message.
func (x *raftGroup) answerDeferred() {
	m := x.deferred
	x.deferred = nil
	if m != nil && x.rn.BasicStatus().RaftState == raft.StateFollower { // else it asks itself already
		_ = x.rn.Step(m)
		x.givesWay(m)
		x.outran(m)
	}
}

func (x *raftGroup) leaderNode() uint64 {
	if x.lead == 0 {
		return 0
	}
	if x.lead == x.self {
		return x.g.shard.node.o.NodeID
	}
	return x.nodeOf(x.lead)
}

func (x *raftGroup) notLeader() error {
	if x.lead == x.self {
		return &NotLeaderError{}
	}
	return &NotLeaderError{x.leaderNode()}
}

// TransferLeader hands the leadership to a member, or, if to is 0, to the one that has
// most of the log and is not away, on a node that may well lead, if there is one. Meanwhile nothing is packed. Nothing happens if this
// member does not lead.
func (g *Group) TransferLeader(to uint64) { g.TransferLeaderTo(to, nil) }

// ErrNotHandedOver says that the leadership stayed where it was: the member to lead is away, has no vote or does not
// belong to the group, or did not take over in time.
var ErrNotHandedOver = errors.New("replica: the leadership was not handed over")

// TransferLeaderTo is TransferLeader with an answer, which runs on the worker: nil when the member is known to lead; *NotLeaderError if
// another one leads, now or before; ErrNotHandedOver; ErrClosed.
func (g *Group) TransferLeaderTo(to uint64, done func(error)) {
	if done == nil {
		done = func(error) {}
	}
	x := g.raft
	x.ask(func() {
		switch {
		case x.rn == nil:
			done(ErrClosed)
		case x.state != raft.StateLeader:
			done(x.notLeader())
		case to == x.self:
			done(nil)
		default:
			x.handed(ErrNotHandedOver) // an earlier one
			x.hand = done
			if !x.handOver(to) {
				x.handed(ErrNotHandedOver)
			}
		}
	})
}

// handed answers who waits for the leadership to be handed over.
func (x *raftGroup) handed(err error) {
	if done := x.hand; done != nil {
		x.hand = nil
		done(err)
	}
}

// handOver begins to hand the leadership over. It reports whether it has begun.
func (x *raftGroup) handOver(to uint64) bool {
	if m := x.g.shard.node.reluctantPeers.Load(); to == 0 && m != nil && len(*m) > 0 {
		to = x.reliever()
	}
	if to == 0 {
		var most uint64
		x.rn.WithProgress(func(id uint64, typ raft.ProgressType, p tracker.Progress) {
			if id == x.self || typ == raft.ProgressTypeLearner || x.g.shard.node.isDown(x.nodes[id]) {
				return
			}
			if p.Match > most || to == 0 || p.Match == most && id < to {
				to, most = id, p.Match
			}
		})
	}
	if !slices.Contains(x.conf.Voters, to) || x.g.shard.node.isDown(x.nodes[to]) {
		return false
	}
	x.handing, x.handTo = true, to
	x.rn.TransferLeader(to)
	return true
}

// isHanding says whether the leadership is still being handed over. Raft gives up after a while.
func (x *raftGroup) isHanding() bool {
	if x.handing {
		x.handing = x.state == raft.StateLeader && x.rn.BasicStatus().LeadTransferee != 0
		if !x.handing && x.state == raft.StateLeader {
			x.handed(ErrNotHandedOver)
		}
	}
	return x.handing
}

// HandOver hands over the leadership of all groups that this node leads, before it
// stops. Leading tells how many are left.
func (n *Node) HandOver() {
	for _, s := range n.shards {
		for _, g := range n.groupsOf(s) {
			if g.raft != nil {
				g.TransferLeader(0)
			}
		}
	}
}

// Leading returns how many raft groups this node leads and serves, or has handed over to a member that does not serve yet. That one may
// need this member to learn that a change of the members is committed, without which nobody else's vote may be enough for it.
func (n *Node) Leading() int { return int(n.leading.Load()) }

// leads keeps count of the groups for Leading.
func (n *Node) leads(x *raftGroup, serving bool) {
	if serving != x.counted {
		x.counted = serving
		if serving {
			n.leading.Add(1)
		} else {
			n.leading.Add(-1)
		}
	}
}
