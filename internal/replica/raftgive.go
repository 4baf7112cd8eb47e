package replica

import (
	"maps"
	"slices"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"holdfast/internal/planted"
	"holdfast/internal/seglog"
)

// Pinned is items that stay readable although they are released meanwhile.
type Pinned interface {
	// Next reads the next items, up to about limit bytes; none: there are no more. It does
	// I/O; one goroutine calls it at a time.
	Next(limit int) ([]seglog.Block, error)
	// Skip leaves out items, before the first Next.
	Skip(ranges []seglog.Range)
	// Close lets go of the items, once, and not while Next is under way.
	Close()
}

// outTransfer is a state on its way to a member.
type outTransfer struct {
	to, term, index uint64
	state           []byte // head and the host's blob; nil when all of it is sent
	items           Pinned // nil when all of them are sent
	begun           bool   // the member has said what it wants
	reading         bool
	ended           bool
	ready           *transferMsg // a part that could not be sent yet
	seq, acked      uint64
	lastSent        bool
	idle            int // ticks since the member was heard of
}

// snapshotNow is the state now as raft wants to hear of it.
func (x *raftGroup) snapshotNow() *pb.Snapshot {
	if x.store.applied == 0 || x.g.shard.node.transfers.Load() >= transfersAtOnce {
		return nil
	}
	return &pb.Snapshot{Metadata: &pb.SnapshotMetadata{
		ConfState: x.conf, Index: new(x.store.applied), Term: new(x.store.appliedTerm),
	}}
}

// offer begins a transfer, as raft wants it.
func (x *raftGroup) offer(m *pb.Message) {
	to, meta := m.GetTo(), m.GetSnapshot().GetMetadata()
	if o := x.sending[to]; o != nil {
		x.endTransfer(o)
	}
	if meta.GetIndex() != x.store.applied {
		x.rn.ReportSnapshot(to, raft.SnapshotFailure)
		return
	}
	live, _ := x.host.Live(nil)
	n := x.g.shard.node
	items, err := n.o.Reader.Pin(x.g.id, mergeRanges(live))
	if err != nil {
		n.o.Logger.Error("a state cannot be sent", "group", uint64(x.g.id), "error", err)
		x.rn.ReportSnapshot(to, raft.SnapshotFailure)
		return
	}
	head := snapshotHead{time: x.time, members: x.members}
	o := &outTransfer{to: to, term: m.GetTerm(), index: meta.GetIndex(), items: items, state: x.host.AppendSnapshot(head.append(nil))}
	if x.sending == nil {
		x.sending = map[uint64]*outTransfer{}
	}
	x.sending[to] = o
	n.transfers.Add(1)
	if !x.sendTransfer(&transferMsg{kind: msgOffer, to: to, term: o.term, index: o.index, stateTerm: meta.GetTerm(), size: uint64(len(o.state))}) {
		x.failTransfer(o, "it cannot be reached")
	}
}

// wanted begins to send the parts.
func (x *raftGroup) wanted(o *outTransfer, have []seglog.Range) {
	if o.begun {
		return
	}
	o.begun = true
	o.items.Skip(mergeRanges(have))
	if planted.Is(planted.InstallWithoutItem) {
		o.items.Skip([]seglog.Range{{Last: ^uint64(0)}})
	}
	x.sendParts(o)
}

// got goes on after a part is on the member's disk.
func (x *raftGroup) got(o *outTransfer, m *transferMsg) {
	if m.last {
		x.endTransfer(o)
		x.rn.ReportSnapshot(o.to, raft.SnapshotFinish)
		return
	}
	o.acked = max(o.acked, m.seq)
	x.sendParts(o)
}

// sendParts sends what may be under way.
func (x *raftGroup) sendParts(o *outTransfer) {
	for o.begun && !o.ended && !o.lastSent && o.seq-o.acked < partsUnderWay {
		p := o.ready
		switch {
		case p != nil:
		case len(o.state) > 0:
			n := min(len(o.state), partBytes)
			p = &transferMsg{data: o.state[:n]}
			o.state = o.state[n:]
		case o.items != nil:
			x.readItems(o)
			return
		default:
			p = &transferMsg{last: true}
		}
		p.kind, p.to, p.term, p.index, p.seq = msgPart, o.to, o.term, o.index, o.seq+1
		if !x.sendTransfer(p) {
			o.ready = p // the lane is full: with the next tick
			return
		}
		o.ready, o.seq, o.lastSent = nil, o.seq+1, p.last
	}
}

// readItems has the next items read by the node's goroutine.
func (x *raftGroup) readItems(o *outTransfer) {
	if o.reading {
		return
	}
	o.reading = true
	items := o.items
	x.g.shard.node.reads.put(func() {
		blocks, err := items.Next(partBytes)
		x.ask(func() {
			o.reading = false
			switch {
			case o.ended:
				items.Close()
				return
			case err != nil:
				x.failTransfer(o, err.Error())
				return
			case len(blocks) == 0:
				o.items.Close()
				o.items = nil
			default:
				o.ready = &transferMsg{blocks: blocks}
			}
			x.sendParts(o)
		})
	})
}

// failTransfer gives up a transfer. Raft will want another.
func (x *raftGroup) failTransfer(o *outTransfer, why string) {
	x.g.shard.node.o.Logger.Info("a state was not brought to a member", "group", uint64(x.g.id), "member", o.to, "reason", why)
	x.endTransfer(o)
	x.rn.ReportSnapshot(o.to, raft.SnapshotFailure)
}

// endTransfer lets go of a transfer.
func (x *raftGroup) endTransfer(o *outTransfer) {
	if o.ended {
		return
	}
	o.ended = true
	if x.sending[o.to] == o {
		delete(x.sending, o.to)
	}
	x.g.shard.node.transfers.Add(-1)
	if o.items != nil && !o.reading {
		o.items.Close()
	}
	o.state, o.ready = nil, nil
}

// dropTransfers ends all transfers from here: this member does not lead any more.
func (x *raftGroup) dropTransfers() {
	for _, to := range slices.Sorted(maps.Keys(x.sending)) {
		x.endTransfer(x.sending[to])
	}
}

// tickTransfers goes on with what could not be sent, and gives up what stands still.
func (x *raftGroup) tickTransfers(n int) {
	for _, to := range slices.Sorted(maps.Keys(x.sending)) {
		o := x.sending[to]
		if o.idle += n; o.idle > transferTicks {
			x.failTransfer(o, "it stands still")
			continue
		}
		x.sendParts(o)
	}
}
