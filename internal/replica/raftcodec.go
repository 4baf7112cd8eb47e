package replica

import (
	"encoding/binary"
	"errors"
	"fmt"

	pb "go.etcd.io/raft/v3/raftpb"

	"holdfast/internal/seglog"
)

// What travels between nodes: a version, a kind, and what the kind has. Numbers
// are uvarints, bytes and lists have their length before them.
const wireVersion = 1

const (
	msgRaft  = 1 // one message of one group, with what its entries carry
	msgBeats = 2 // heartbeats of many groups, or the answers to them
)

var errShort = errors.New("message is too short")

// openMessage reads the head of a message.
func openMessage(b []byte) (d decoder, kind byte, err error) {
	if len(b) < 2 {
		return d, 0, errShort
	}
	if b[0] != wireVersion {
		return d, 0, fmt.Errorf("message of version %d, not %d", b[0], wireVersion)
	}
	return decoder{b: b[2:]}, b[1], nil
}

const (
	flagReject  = 1
	flagContext = 2
)

// appendRaft appends a message of a group. payload says what a normal entry carries.
func appendRaft(dst []byte, g seglog.GroupID, m *pb.Message, payload func(*pb.Entry) *payload) []byte {
	dst = append(dst, wireVersion, msgRaft)
	dst = binary.AppendUvarint(dst, uint64(g))
	var flags byte
	if m.GetReject() {
		flags |= flagReject
	}
	if len(m.GetContext()) > 0 {
		flags |= flagContext
	}
	dst = append(dst, byte(m.GetType()), flags)
	for _, v := range [...]uint64{m.GetTo(), m.GetFrom(), m.GetTerm(), m.GetLogTerm(), m.GetIndex(), m.GetCommit(), m.GetRejectHint()} {
		dst = binary.AppendUvarint(dst, v)
	}
	if flags&flagContext != 0 {
		dst = appendBytes(dst, m.GetContext())
	}
	dst = binary.AppendUvarint(dst, uint64(len(m.GetEntries())))
	for _, e := range m.GetEntries() {
		dst = appendEntry(dst, e, payload)
	}
	return dst
}

// appendEntry appends an entry. Its index is that of its place in the message.
func appendEntry(dst []byte, e *pb.Entry, payload func(*pb.Entry) *payload) []byte {
	kind := kindOf(e)
	dst = append(dst, kind)
	dst = binary.AppendUvarint(dst, e.GetTerm())
	switch kind {
	case entryConf:
		dst = appendBytes(dst, e.GetData())
	case entryNormal:
		p := payload(e)
		dst = binary.LittleEndian.AppendUint64(dst, uint64(p.time))
		dst = appendBytes(dst, p.meta())
		dst = appendBlocks(dst, p.blocks)
	}
	return dst
}

// appendBlocks appends items: first all sizes, then all bytes.
func appendBlocks(dst []byte, blocks []seglog.Block) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(blocks)))
	for i := range blocks {
		b := &blocks[i]
		dst = binary.AppendUvarint(dst, b.First)
		dst = binary.AppendUvarint(dst, uint64(len(b.Items)))
		for _, it := range b.Items {
			dst = binary.AppendUvarint(dst, uint64(len(it)))
		}
	}
	for i := range blocks {
		for _, it := range blocks[i].Items {
			dst = append(dst, it...)
		}
	}
	return dst
}

func appendBytes(dst, b []byte) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...)
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
type decoder struct {
	b   []byte
	err error
}

func (d *decoder) fail() {
	if d.err == nil {
		d.err = errShort
	}
	d.b = nil
}

func (d *decoder) num() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail()
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) byte() byte {
	if len(d.b) == 0 {
		d.fail()
		return 0
	}
	v := d.b[0]
	d.b = d.b[1:]
	return v
}

func (d *decoder) fixed64() uint64 {
	if len(d.b) < 8 {
		d.fail()
		return 0
	}
	v := binary.LittleEndian.Uint64(d.b)
	d.b = d.b[8:]
	return v
}

// take reads n bytes; they are those of the message.
func (d *decoder) take(n uint64) []byte {
	if n > uint64(len(d.b)) {
		d.fail()
		return nil
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) bytes() []byte { return d.take(d.num()) }

// count reads the length of a list of things that take at least a byte each.
func (d *decoder) count() int {
	n := d.num()
	if n > uint64(len(d.b)) {
		d.fail()
		return 0
	}
	return int(n)
}

// end says whether everything was there, and nothing more.
func (d *decoder) end() error {
	if d.err == nil && len(d.b) > 0 {
		return fmt.Errorf("%d bytes too many", len(d.b))
	}
	return d.err
}

// raft reads the rest of a msgRaft.
func (d *decoder) raft() (incoming, error) {
	in := incoming{size: len(d.b)}
	in.group = seglog.GroupID(d.num())
	m := &pb.Message{Type: pb.MessageType(d.byte()).Enum()}
	flags := d.byte()
	var v [7]uint64
	for i := range v {
		v[i] = d.num()
	}
	m.To, m.From, m.Term, m.LogTerm, m.Index, m.Commit, m.RejectHint = &v[0], &v[1], &v[2], &v[3], &v[4], &v[5], &v[6]
	if flags&flagReject != 0 {
		m.Reject = new(true)
	}
	if flags&flagContext != 0 {
		m.Context = append([]byte(nil), d.bytes()...)
	}
	if n := d.count(); n > 0 {
		m.Entries, in.payloads = make([]*pb.Entry, 0, n), make([]*payload, 0, n)
		for i := 0; i < n && d.err == nil; i++ {
			e, p := d.entry(m.GetIndex() + 1 + uint64(i))
			m.Entries, in.payloads = append(m.Entries, e), append(in.payloads, p)
		}
	}
	in.msg = m
	if err := d.end(); err != nil {
		return incoming{}, err
	}
	if !fromNetwork(m.GetType()) || m.GetFrom() == 0 || m.GetTo() == 0 || m.GetTerm() == 0 {
		return incoming{}, fmt.Errorf("a message %v of term %d from member %d to %d", m.GetType(), m.GetTerm(), m.GetFrom(), m.GetTo())
	}
	return in, nil
}

// fromNetwork says whether another node may send such a message as a msgRaft.
func fromNetwork(t pb.MessageType) bool {
	switch t {
	case pb.MsgApp, pb.MsgAppResp, pb.MsgVote, pb.MsgVoteResp, pb.MsgPreVote, pb.MsgPreVoteResp,
		pb.MsgHeartbeat, pb.MsgHeartbeatResp, pb.MsgTimeoutNow:
		return true
	}
	return false
}

func (d *decoder) entry(index uint64) (*pb.Entry, *payload) {
	s := slot{kind: d.byte()}
	s.term = d.num()
	var p *payload
	switch s.kind {
	case entryEmpty:
	case entryConf:
		s.data = append([]byte(nil), d.bytes()...)
	case entryNormal:
		p = d.payload()
	default:
		d.err = fmt.Errorf("entry of unknown kind %d", s.kind)
	}
	return s.entry(index), p
}

// payload reads what a normal entry carries, into memory of its own: what the
// message shares its memory with may be far larger.
func (d *decoder) payload() *payload {
	p := &payload{time: int64(d.fixed64())}
	meta := d.bytes()
	blocks, sizes, total := d.sizes()
	if d.err != nil {
		return nil
	}
	p.size = headerSize + len(meta) + total
	p.record = make([]byte, headerSize, p.size)
	p.record = append(p.record, meta...)
	memory := p.record[len(p.record):cap(p.record)]
	copy(memory, d.take(uint64(total)))
	p.blocks = cut(blocks, sizes, memory)
	return p
}

// sizes reads the head of a list of blocks: their first ids, with room for their
// items, and the sizes of these, all of which are there.
func (d *decoder) sizes() (blocks []seglog.Block, sizes []int, total int) {
	n := d.count()
	if n == 0 {
		return nil, nil, 0
	}
	blocks = make([]seglog.Block, 0, min(n, 1024))
	for i := 0; i < n && d.err == nil; i++ {
		first := d.num()
		items := d.count()
		if items == 0 || first+uint64(items) < first {
			d.fail()
		}
		for k := 0; k < items && d.err == nil; k++ {
			size := d.num()
			if size > uint64(len(d.b)) {
				d.fail()
			}
			sizes = append(sizes, int(size))
			total += int(size)
		}
		blocks = append(blocks, seglog.Block{First: first, Items: make([][]byte, 0, items)})
	}
	if total > len(d.b) {
		d.fail()
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
}

func appendBeats(dst []byte, beats []beat) []byte {
	dst = append(dst, wireVersion, msgBeats)
	dst = binary.AppendUvarint(dst, uint64(len(beats)))
	for _, b := range beats {
		var flags byte
		if b.answer {
			flags = 1
		}
		dst = append(dst, flags)
		for _, v := range [...]uint64{uint64(b.group), b.to, b.from, b.term, b.commit} {
			dst = binary.AppendUvarint(dst, v)
		}
	}
	return dst
}

// beats reads the rest of a msgBeats.
func (d *decoder) beats(each func(incoming)) error {
	n := d.count()
	all := make([]beat, 0, min(n, 4096))
	for i := 0; i < n && d.err == nil; i++ {
		b := beat{answer: d.byte() == 1}
		b.group = seglog.GroupID(d.num())
		b.to, b.from, b.term, b.commit = d.num(), d.num(), d.num(), d.num()
		all = append(all, b)
	}
	if err := d.end(); err != nil {
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
		each(incoming{group: b.group, msg: m, size: 16})
	}
	return nil
}
