package replica

import (
	pb "go.etcd.io/raft/v3/raftpb"

	"holdfast/internal/seglog"
)

// Lane tells the streams between two nodes apart, so that an election never
// waits behind bodies.
type Lane uint8

// The lanes.
const (
	LaneControl Lane = iota // votes, heartbeats, answers
	LaneData                // entries
	LaneBulk                // snapshots
)

// Transport carries messages to other nodes. Nodes have numbers, never 0.
type Transport interface {
	// Send has append add one message to dst; append is called at most once, before
	// Send returns, and does not block. False: nothing was sent, because the node
	// cannot be reached or the lane is full. Messages of one lane arrive in order,
	// and are lost only with all that follow until the link stands anew.
	Send(to uint64, lane Lane, append func(dst []byte) []byte) bool
}

// Receive takes a message of another node's Send; it belongs to the replica.
// It decodes, wakes the group that is meant, and never blocks.
func (n *Node) Receive(from uint64, msg []byte) {
	if n.closing.Load() {
		return
	}
	if err := n.receive(from, msg); err != nil {
		n.o.Logger.Warn("a message of another node makes no sense", "node", from, "error", err)
	}
}

func (n *Node) receive(from uint64, msg []byte) error {
	d, kind, err := openMessage(msg)
	if err != nil {
		return err
	}
	switch kind {
	case msgRaft:
		in, err := d.raft()
		if err != nil {
			return err
		}
		in.node = from
		n.deliver(in)
		return nil
	case msgBeats:
		return d.beats(func(in incoming) {
			in.node = from
			n.deliver(in)
		})
	}
	in, err := d.transfer(kind)
	if err != nil {
		return err
	}
	in.node = from
	n.deliver(in)
	return nil
}

// deliver puts a message into the inbox of its group, or keeps it for a while if the group is not here.
func (n *Node) deliver(in incoming) {
	g := n.Group(in.group)
	if g == nil {
		n.keepEarly(in)
	} else if g.raft != nil && g.raft.put(in) {
		g.Mark()
		g.Go(true) // the link's reader is the worker for a round, if that sleeps
	}
}

// incoming is one message for a group, decoded.
type incoming struct {
	group    seglog.GroupID
	node     uint64 // that sent it
	msg      *pb.Message
	transfer *transferMsg
	payloads []*payload // of msg's entries; nil for those without
	read     *readDone  // not from the network: what was read back
	rest     bool       // a heartbeat, the last one while nothing happens
	size     int
}
