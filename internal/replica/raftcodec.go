package replica

import (
	"encoding/binary"
	"errors"
	"fmt"

	pb "go.etcd.io/raft/v3/raftpb"

	"holdfast/internal/bytecodec"
	"holdfast/internal/seglog"
)

// What travels between nodes: a version, a kind, and what the kind has. Numbers
// are uvarints, bytes and lists have their length before them.
const wireVersion = 1

const (
	msgRaft  = 1 // one message of one group, with what its entries carry
	msgBeats = 2 // heartbeats of many groups, or the answers to them
)

// openMessage reads the head of a message.
func openMessage(b []byte) (d decoder, kind byte, err error) {
	if len(b) < 2 {
		return d, 0, bytecodec.ErrShort
	}
	if b[0] != wireVersion {
		return d, 0, fmt.Errorf("message of version %d, not %d", b[0], wireVersion)
	}
	return decoder{bytecodec.Over(b[2:])}, b[1], nil
}

const (
	flagReject  = 1
	flagContext = 2
)

// appendRaft appends a message of a group. payload says what a normal entry carries.
func appendRaft(dst []byte, g seglog.GroupID, m *pb.Message, payload func(*pb.Entry) *payload) []byte {
	dst = append(dst, wireVersion, msgRaft)
	dst = bytecodec.AppendUint(dst, uint64(g))
	context, entries := m.GetContext(), m.GetEntries()
	if isRead(m.GetType()) { // what looks like an entry is a number
		context, entries = entries[0].GetData(), nil
	}
	var flags byte
	if m.GetReject() {
		flags |= flagReject
	}
	if len(context) > 0 {
		flags |= flagContext
	}
	dst = append(dst, byte(m.GetType()), flags)
	for _, v := range [...]uint64{m.GetTo(), m.GetFrom(), m.GetTerm(), m.GetLogTerm(), m.GetIndex(), m.GetCommit(), m.GetRejectHint()} {
		dst = bytecodec.AppendUint(dst, v)
	}
	if flags&flagContext != 0 {
		dst = bytecodec.AppendBytes(dst, context)
	}
	dst = bytecodec.AppendUint(dst, uint64(len(entries)))
	for _, e := range entries {
		dst = appendEntry(dst, e, payload)
	}
	return dst
}

// appendEntry appends an entry. Its index is that of its place in the message.
func appendEntry(dst []byte, e *pb.Entry, payload func(*pb.Entry) *payload) []byte {
	kind := kindOf(e)
	dst = append(dst, kind)
	dst = bytecodec.AppendUint(dst, e.GetTerm())
	switch kind {
	case entryConf:
		dst = bytecodec.AppendBytes(dst, e.GetData())
	case entryNormal:
		p := payload(e)
		dst = bytecodec.AppendFixed64(dst, uint64(p.time))
		dst = bytecodec.AppendBytes(dst, p.meta())
		dst = appendBlocks(dst, p.blocks)
	}
	return dst
}

// appendBlocks appends items: first all sizes, then all bytes.
func appendBlocks(dst []byte, blocks []seglog.Block) []byte {
	dst = bytecodec.AppendUint(dst, uint64(len(blocks)))
	for i := range blocks {
		b := &blocks[i]
		dst = bytecodec.AppendUint(dst, b.First)
		dst = bytecodec.AppendUint(dst, uint64(len(b.Items)))
		for _, it := range b.Items {
			dst = bytecodec.AppendUint(dst, uint64(len(it)))
		}
	}
	for i := range blocks {
		for _, it := range blocks[i].Items {
			dst = append(dst, it...)
		}
	}
	return dst
}

// kindOf tells the kind of an entry as raft has it.
func kindOf(e *pb.Entry) byte {
	switch {
	case e.GetType() == pb.EntryConfChangeV2:
		return entryConf
	case len(e.GetData()) > 0:
		return entryNormal
	}
	return entryEmpty
}

// decoder reads what the append functions wrote. After an error everything reads as nothing.
type decoder struct{ bytecodec.Cursor }

// raft reads the rest of a msgRaft.
func (d *decoder) raft() (incoming, error) {
	in := incoming{size: len(d.Rest)}
	in.group = seglog.GroupID(d.Uint())
	m := &pb.Message{Type: pb.MessageType(d.Byte()).Enum()}
	flags := d.Byte()
	var v [7]uint64
	for i := range v {
		v[i] = d.Uint()
	}
	m.To, m.From, m.Term, m.LogTerm, m.Index, m.Commit, m.RejectHint = &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6]
	if flags&flagReject != 0 {
		m.Reject = new(true)
	}
	if flags&flagContext != 0 {
		m.Context = append([]byte(nil), d.Bytes()...)
	}
	if n := d.Count(1); n > 0 {
		m.Entries, in.payloads = make([]*pb.Entry, 0, n), make([]*payload, 0, n)
		for i := 0; i < n && !d.Bad(); i++ {
			e, p := d.entry(m.GetIndex() + 1 + uint64(i))
			m.Entries, in.payloads = append(m.Entries, e), append(in.payloads, p)
		}
	}
	in.msg = m
	if err := d.End(); err != nil {
		return incoming{}, err
	}
	if !fits(m) {
		return incoming{}, fmt.Errorf("a message %v of term %d from member %d to %d", m.GetType(), m.GetTerm(), m.GetFrom(), m.GetTo())
	}
	if isRead(m.GetType()) {
		m.Entries, m.Context, in.payloads = []*pb.Entry{{Data: m.GetContext()}}, nil, nil
	}
	return in, nil
}

// fits says whether another node may send such a message as a msgRaft: raft takes for granted what it looks like.
func fits(m *pb.Message) bool {
	if m.GetFrom() == 0 || m.GetTo() == 0 || (m.GetTerm() == 0) != (m.GetType() == pb.MsgReadIndex) {
		return false
	}
	switch m.GetType() {
	case pb.MsgApp, pb.MsgAppResp, pb.MsgVote, pb.MsgVoteResp, pb.MsgPreVote, pb.MsgPreVoteResp, pb.MsgTimeoutNow:
		return true
	case pb.MsgReadIndex, pb.MsgReadIndexResp:
		return len(m.GetContext()) == 8 && len(m.GetEntries()) == 0
	}
	return false
}

func (d *decoder) entry(index uint64) (*pb.Entry, *payload) {
	s := slot{kind: d.Byte()}
	s.term = d.Uint()
	var p *payload
	switch s.kind {
	case entryEmpty:
	case entryConf:
		s.data = append([]byte(nil), d.Bytes()...)
	case entryNormal:
		p = d.payload()
	default:
		d.Fail()
	}
	return s.entry(index), p
}

// payload reads what a normal entry carries, into memory of its own: what the
// message shares its memory with may be far larger.
func (d *decoder) payload() *payload {
	p := &payload{time: int64(d.Fixed64())}
	meta := d.Bytes()
	blocks, sizes, total := d.sizes()
	if d.Bad() {
		return nil
	}
	p.size = headerSize + len(meta) + total
	p.record = make([]byte, headerSize, p.size)
	p.record = append(p.record, meta...)
	memory := p.record[len(p.record):cap(p.record)]
	copy(memory, d.Take(uint64(total)))
	p.blocks = cut(blocks, sizes, memory)
	return p
}

// sizes reads the head of a list of blocks: their first ids, with room for their
// items, and the sizes of these, all of which are there.
func (d *decoder) sizes() (blocks []seglog.Block, sizes []int, total int) {
	n := d.Count(1)
	if n == 0 {
		return nil, nil, 0
	}
	blocks = make([]seglog.Block, 0, min(n, 1024))
	for i := 0; i < n && !d.Bad(); i++ {
		first := d.Uint()
		items := d.Count(1)
		if items == 0 || first+uint64(items) < first {
			d.Fail()
		}
		for k := 0; k < items && !d.Bad(); k++ {
			size := d.Uint()
			if size > uint64(len(d.Rest)) {
				d.Fail()
			}
			sizes = append(sizes, int(size))
			total += int(size)
		}
		blocks = append(blocks, seglog.Block{First: first, Items: make([][]byte, 0, items)})
	}
	if total > len(d.Rest) {
		d.Fail()
	}
	return blocks, sizes, total
}

// cut gives blocks their items, which lie one after another in memory.
func cut(blocks []seglog.Block, sizes []int, memory []byte) []seglog.Block {
	for i := range blocks {
		b := &blocks[i]
		for range cap(b.Items) {
			b.Items = append(b.Items, memory[:sizes[0]:sizes[0]])
			memory, sizes = memory[sizes[0]:], sizes[1:]
		}
	}
	return blocks
}

// beat is a heartbeat of a group, or the answer to one.
type beat struct {
	group                  seglog.GroupID
	answer                 bool
	to, from, term, commit uint64
	read                   uint64 // what raft adds to it for read barriers, and wants back; 0: nothing
	rest                   bool   // the last one: nothing happens
}

// Flags of a beat.
const (
	beatAnswer = 1
	beatRead   = 2
	beatRest   = 4
)

// beatOf is the beat a message is sent as. Raft's context for read barriers is a number of 8 bytes.
func beatOf(g seglog.GroupID, m *pb.Message) beat {
	b := beat{group: g, answer: m.GetType() == pb.MsgHeartbeatResp, to: m.GetTo(), from: m.GetFrom(), term: m.GetTerm(), commit: m.GetCommit()}
	if c := m.GetContext(); len(c) == 8 {
		b.read = binary.LittleEndian.Uint64(c)
	}
	return b
}

func appendBeats(dst []byte, beats []beat) []byte {
	dst = append(dst, wireVersion, msgBeats)
	dst = bytecodec.AppendUint(dst, uint64(len(beats)))
	for _, b := range beats {
		var flags byte
		if b.answer {
			flags |= beatAnswer
		}
		if b.read != 0 {
			flags |= beatRead
		}
		if b.rest {
			flags |= beatRest
		}
		dst = append(dst, flags)
		for _, v := range [...]uint64{uint64(b.group), b.to, b.from, b.term, b.commit} {
			dst = bytecodec.AppendUint(dst, v)
		}
		if b.read != 0 {
			dst = bytecodec.AppendUint(dst, b.read)
		}
	}
	return dst
}

// beats reads the rest of a msgBeats.
func (d *decoder) beats(each func(incoming)) error {
	n := d.Count(1)
	all := make([]beat, 0, min(n, 4096))
	for i := 0; i < n && !d.Bad(); i++ {
		flags := d.Byte()
		b := beat{answer: flags&beatAnswer != 0, rest: flags&beatRest != 0}
		b.group = seglog.GroupID(d.Uint())
		b.to, b.from, b.term, b.commit = d.Uint(), d.Uint(), d.Uint(), d.Uint()
		if flags&beatRead != 0 {
			b.read = d.Uint()
		}
		all = append(all, b)
	}
	if err := d.End(); err != nil {
		return err
	}
	for i := range all {
		b := &all[i]
		if b.to == 0 || b.from == 0 || b.term == 0 {
			return errors.New("a heartbeat of nobody")
		}
		m := &pb.Message{Type: pb.MsgHeartbeat.Enum(), To: &b.to, From: &b.from, Term: &b.term, Commit: &b.commit}
		if b.answer {
			m.Type = pb.MsgHeartbeatResp.Enum()
		}
		if b.read != 0 {
			m.Context = binary.LittleEndian.AppendUint64(nil, b.read)
		}
		each(incoming{group: b.group, msg: m, size: 16, rest: b.rest && !b.answer})
	}
	return nil
}
