package replica

import (
	"errors"
	"slices"
	"sync"

	pb "go.etcd.io/raft/v3/raftpb"

	"holdfast/internal/seglog"
)

// peer is another member, seen from here.
type peer struct {
	node uint64 // where its last message came from
	// parked are messages in their order, the first of which waits for what its
	// entries carry to be read from the log. Raft bounds them by what it has under way.
	parked []*pb.Message
}

// heard remembers where a member is: a new one may speak before its entry is applied here.
func (x *raftGroup) heard(member, node uint64) {
	switch p := x.peers[member]; {
	case p != nil:
		p.node = node
	case x.nodes[member] != node:
		x.peer(member).node = node
	}
}

func (x *raftGroup) peer(member uint64) *peer {
	p := x.peers[member]
	if p == nil {
		p = &peer{node: x.nodes[member]}
		if x.peers == nil {
			x.peers = map[uint64]*peer{}
		}
		x.peers[member] = p
	}
	return p
}

// nodeOf returns the node a member is on, or 0.
func (x *raftGroup) nodeOf(member uint64) uint64 {
	if n := x.nodes[member]; n != 0 {
		return n
	}
	if p := x.peers[member]; p != nil {
		return p.node
	}
	return 0
}

// send sends one message, or parks it.
func (x *raftGroup) send(s *Shard, m *pb.Message) {
	node := x.nodeOf(m.GetTo())
	if node == 0 {
		return
	}
	switch m.GetType() {
	case pb.MsgHeartbeat, pb.MsgHeartbeatResp:
		s.beat(node, beatOf(x.g.id, m))
		return
	case pb.MsgApp:
		if p := x.peers[m.GetTo()]; p != nil && len(p.parked) > 0 {
			p.parked = append(p.parked, m)
			return
		}
		if missing := x.missing(m); missing != nil {
			p := x.peer(m.GetTo())
			p.parked = append(p.parked, m)
			s.node.reads.put(func() { s.node.readFor(x, m, missing) })
			return
		}
	}
	x.transmit(s, node, m, nil)
}

// transmit hands a message to the transport. read are payloads that are not in the store.
func (x *raftGroup) transmit(s *Shard, node uint64, m *pb.Message, read map[uint64]*payload) {
	lane := LaneControl
	if m.GetType() == pb.MsgApp {
		lane = LaneData
	}
	sent := s.node.o.Transport.Send(node, lane, func(dst []byte) []byte {
		return appendRaft(dst, x.g.id, m, func(e *pb.Entry) *payload {
			if p := read[e.GetIndex()]; p != nil {
				return p
			}
			return x.store.at(e.GetIndex()).payload
		})
	})
	if sent {
		s.stats.sent.Add(1)
		return
	}
	if m.GetType() == pb.MsgApp {
		x.rn.ReportUnreachable(m.GetTo())
	}
}

// missing lists the entries of a message whose payloads are in the log only.
func (x *raftGroup) missing(m *pb.Message) (indexes []uint64) {
	for _, e := range m.GetEntries() {
		if kindOf(e) != entryNormal {
			continue
		}
		l := x.store.at(e.GetIndex())
		if l == nil || l.term != e.GetTerm() || l.payload == nil || l.payload.partial {
			indexes = append(indexes, e.GetIndex())
		}
	}
	return indexes
}

// readDone is a message whose payloads have been read, or not.
type readDone struct {
	msg      *pb.Message
	payloads map[uint64]*payload
	err      error
}

// readBack goes on with a message that was parked, and those behind it.
func (x *raftGroup) readBack(d *readDone) {
	s := x.g.shard
	p := x.peers[d.msg.GetTo()]
	if p == nil || len(p.parked) == 0 || p.parked[0] != d.msg {
		return // given up meanwhile
	}
	if d.err != nil {
		s.node.o.Logger.Info("an entry for a member that is behind cannot be read", "group", uint64(x.g.id), "error", d.err)
		p.parked = nil
		x.rn.ReportUnreachable(d.msg.GetTo())
		return
	}
	// What was in memory when the message was parked may have left it, or its place.
	for _, index := range x.missing(d.msg) {
		if d.payloads[index] == nil {
			missing := x.missing(d.msg)
			s.node.reads.put(func() { s.node.readFor(x, d.msg, missing) })
			return
		}
	}
	rest := p.parked[1:]
	p.parked = nil
	x.transmit(s, x.nodeOf(d.msg.GetTo()), d.msg, d.payloads)
	for _, m := range rest {
		x.send(s, m)
	}
}

// reads is what waits to be read from the log; a goroutine of the node works it off.
type reads struct {
	mu   sync.Mutex
	jobs []func()
	wake chan struct{} // capacity 1
}

func (r *reads) put(j func()) {
	r.mu.Lock()
	r.jobs = append(r.jobs, j)
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

func (r *reads) take() func() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.jobs) == 0 {
		return nil
	}
	j := r.jobs[0]
	r.jobs = slices.Delete(r.jobs, 0, 1)
	return j
}

// ReadStep reads once from the log; the node's goroutine calls it, or a simulator. It
// reports whether there was anything to read.
func (n *Node) ReadStep() bool {
	j := n.reads.take()
	if j == nil {
		return false
	}
	j()
	return true
}

// readFor reads the payloads that a message waits for.
func (n *Node) readFor(x *raftGroup, m *pb.Message, indexes []uint64) {
	d := &readDone{msg: m, payloads: map[uint64]*payload{}}
	for _, index := range indexes {
		e := m.GetEntries()[index-m.GetIndex()-1]
		p, err := n.readPayload(x.g.id, index, e.GetTerm())
		if err != nil {
			d.err = err
			break
		}
		d.payloads[index] = p
	}
	if x.put(incoming{group: x.g.id, read: d}) {
		x.g.Wake()
	}
}

// errReplaced says that another entry has taken the place of the one wanted.
var errReplaced = errors.New("another entry is in its place")

// readPayload reads what an entry carries from the log.
func (n *Node) readPayload(g seglog.GroupID, index, term uint64) (*payload, error) {
	rec, items, err := n.o.Reader.ReadEntry(g, index)
	if err != nil {
		return nil, err
	}
	kind, _, meta, ok := header(rec.Meta)
	if !ok || kind != entryNormal || rec.Term != term || rec.Index != index {
		return nil, errReplaced
	}
	return newPayload(rec.Time, meta, blocksOf(rec.IDs, items)), nil
}

func (n *Node) readLoop() {
	for {
		select {
		case <-n.tickDone:
			return
		case <-n.reads.wake:
			for n.ReadStep() {
			}
		}
	}
}
