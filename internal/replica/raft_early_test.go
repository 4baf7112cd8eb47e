package replica

import (
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"

	"holdfast/internal/seglog"
)

// A new group is led by the member that was named first, whatever its id, also if that one asks the others before they
// have made the group.
func TestRaftTheFirstOfTheMembersLeadsFirst(t *testing.T) {
	for first := range 3 {
		c := newCluster(t, 300+uint64(first), 3, 3, Options{})
		c.settle()
		c.group, c.judge = 8+seglog.GroupID(first), newJudge(t)
		list := []Member{c.begin[first], c.begin[(first+1)%3], c.begin[(first+2)%3]}
		for i := range 3 {
			m := c.nodes[(first+i)%3]
			m.h = newLedger(t, c.judge, int(m.id))
			m.h.log = m.disk
			m.h.g = m.n.NewRaftGroup(c.group, m.h, list)
			c.settle() // nothing but what is there already: no time passes
		}
		l := c.leader()
		if l == nil {
			t.Fatal("nobody leads")
		}
		want(t, "leader", l.id, list[0].ID)
		c.propose(c.mustLead())
		c.settleFor(5)
	}
}

// What comes for a group that never is made is forgotten, and is never much.
func TestRaftEarlyMessagesAreForgotten(t *testing.T) {
	c := newCluster(t, 310, 3, 3, Options{})
	c.settle()
	n := c.nodes[1].n
	for range 2000 {
		n.deliver(incoming{group: 99, msg: &pb.Message{Type: pb.MsgPreVote.Enum()}, size: 1000})
	}
	if n.early.bytes[0] > earlyBytes {
		t.Errorf("%d bytes are kept", n.early.bytes[0])
	}
	for range 2 * earlyTicks {
		n.early.tick()
	}
	if got := n.early.take(99); len(got) > 0 {
		t.Errorf("%d messages are kept for a group that was never made", len(got))
	}
}

// aware is a host that looks whether its group can be reached when it is told of it.
type aware struct {
	RaftHost
	node      *Node
	group     *Group
	reachable bool
}

func (h *aware) SetGroup(g *Group) { h.group, h.reachable = g, h.node.Group(g.ID()) != nil }

// A message may come for a group as soon as it is there: its host knows it by then.
func TestAHostKnowsItsGroupFirst(t *testing.T) {
	n := Open(Options{Log: newMemLog(t), Shards: 1, NodeID: 1})
	h := &aware{node: n}
	if g := n.NewRaftGroup(7, h, []Member{{ID: 1, Node: 1}, {ID: 2, Node: 2}}); h.group != g || h.reachable {
		t.Errorf("told of group %p, which is %p and could be reached: %v", h.group, g, h.reachable)
	}
}
