package replica

import (
	"fmt"

	"holdfast/internal/bytecodec"
	"holdfast/internal/seglog"
)

// A member that lacks more than the log has is sent the state: a transfer. The leader
// offers it; the member says which items it has; the leader sends the state and the
// items that are missing in numbered parts, a few at a time, and the member answers each
// when it is on its disk. When it has all, it hands raft the snapshot, which raft then
// installs like any other write. The items it got stay with it if the transfer breaks, so
// the next one goes on from there.
const (
	msgOffer = 3 // leader: index and term of the state, how large it is
	msgWant  = 4 // member: the items that it has
	msgPart  = 5 // leader: a part
	msgGot   = 6 // member: a part is on disk; the last: the state is installed
	msgNo    = 7 // member: it cannot take it

	// No parts of a transfer, but of the same form.
	msgGone = 8 // leader: the member was removed, and can go
	msgOut  = 9 // member: it was removed; can it go?
)

const (
	partBytes     = 128 << 10
	partsUnderWay = 4
	// transferTicks is how long a transfer may stand still.
	transferTicks = 50
	// transfersAtOnce bounds what a node sends at a time.
	transfersAtOnce = 8
	// haveRanges bounds the list of items in a msgWant. What is left out is sent again.
	haveRanges = 16 << 10
)

// transferMsg is one message of a transfer, which is known by its members, the term of the
// leader, and the index of the state.
type transferMsg struct {
	kind                  byte
	group                 seglog.GroupID
	to, from, term, index uint64
	stateTerm, size       uint64         // msgOffer
	have                  []seglog.Range // msgWant
	seq                   uint64         // msgPart, msgGot; from 1 on
	last                  bool           // both
	data                  []byte         // msgPart: of the state
	blocks                []seglog.Block // msgPart: items
}

func (m *transferMsg) append(dst []byte) []byte {
	dst = append(dst, wireVersion, m.kind)
	for _, v := range [...]uint64{uint64(m.group), m.to, m.from, m.term, m.index} {
		dst = bytecodec.AppendUint(dst, v)
	}
	switch m.kind {
	case msgOffer:
		dst = bytecodec.AppendUint(dst, m.stateTerm)
		dst = bytecodec.AppendUint(dst, m.size)
	case msgWant:
		dst = bytecodec.AppendUint(dst, uint64(len(m.have)))
		for _, r := range m.have {
			dst = bytecodec.AppendUint(dst, r.First)
			dst = bytecodec.AppendUint(dst, r.Last-r.First)
		}
	case msgPart, msgGot:
		dst = bytecodec.AppendUint(dst, m.seq)
		last := byte(0)
		if m.last {
			last = 1
		}
		dst = append(dst, last)
		if m.kind == msgPart {
			dst = bytecodec.AppendBytes(dst, m.data)
			dst = appendBlocks(dst, m.blocks)
		}
	}
	return dst
}

// transfer reads the rest of a message of a transfer. Its bytes are copies.
func (d *decoder) transfer(kind byte) (incoming, error) {
	if kind < msgOffer || kind > msgOut {
		return incoming{}, fmt.Errorf("message of unknown kind %d", kind)
	}
	in := incoming{size: len(d.Rest)}
	m := &transferMsg{kind: kind, group: seglog.GroupID(d.Uint()), to: d.Uint(), from: d.Uint(), term: d.Uint(), index: d.Uint()}
	switch kind {
	case msgOffer:
		m.stateTerm, m.size = d.Uint(), d.Uint()
	case msgWant:
		for n := d.Count(1); n > 0 && !d.Bad(); n-- {
			first := d.Uint()
			r := seglog.Range{First: first, Last: first + d.Uint()}
			if r.Last < first {
				d.Fail()
			}
			m.have = append(m.have, r)
		}
	case msgPart, msgGot:
		m.seq, m.last = d.Uint(), d.Byte() == 1
		if kind == msgPart {
			m.data = append([]byte(nil), d.Bytes()...)
			blocks, sizes, total := d.sizes()
			memory := append(make([]byte, 0, total), d.Take(uint64(total))...)
			if !d.Bad() {
				m.blocks = cut(blocks, sizes, memory)
			}
		}
	}
	in.group, in.transfer = m.group, m
	if err := d.End(); err != nil {
		return incoming{}, err
	}
	if m.to == 0 || m.from == 0 || m.term == 0 || m.index == 0 {
		return incoming{}, fmt.Errorf("message %d of a transfer from member %d to %d", kind, m.from, m.to)
	}
	return in, nil
}

// sendTransfer sends a message of a transfer.
func (x *raftGroup) sendTransfer(m *transferMsg) bool {
	lane := LaneControl
	if m.kind == msgOffer || m.kind == msgPart {
		lane = LaneBulk
	}
	m.group, m.from = x.g.id, x.self
	node := x.nodeOf(m.to)
	if node == 0 || !x.g.shard.node.o.Transport.Send(node, lane, m.append) {
		return false
	}
	x.g.shard.stats.sent.Add(1)
	return true
}

// takeTransfer takes a message of a transfer.
func (x *raftGroup) takeTransfer(s *Shard, r *round, m *transferMsg) {
	switch m.kind {
	case msgOffer:
		x.offered(m)
	case msgPart:
		x.takePart(s, r, m)
	case msgGone:
		x.toldGone(m)
	case msgOut:
		x.dismiss(m.from)
	default:
		o := x.sending[m.from]
		if o == nil || o.term != m.term || o.index != m.index {
			return
		}
		o.idle = 0
		switch m.kind {
		case msgWant:
			x.wanted(o, m.have)
		case msgGot:
			x.got(o, m)
		case msgNo:
			x.failTransfer(o, "the member cannot take it")
		}
	}
}
