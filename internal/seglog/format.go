package seglog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// The bytes of a segment. All numbers are little endian, all checksums CRC32C (Castagnoli).
//
//	segment := header-frame frame* footer-frame?                    frames start on 4 KiB boundaries
//
//	frame   := head | list | records | zeros up to the next 4 KiB boundary
//
//	head, 64 bytes
//	  0        4        8                 16                24                32
//	 +--------+--------+-----------------+-----------------+-----------------+
//	 | magic  | head   | generation      | sequence        | synced          |
//	 | "HFL1" | CRC    |                 |                 |                 |
//	 +--------+--------+--+--+-----+-----+--------+--------+-----------------+
//	 | offset | kind|ver  | -   | body   | body   | records| list   | stamp   |
//	 |        | u8  u8  u16       | length | CRC    |        | length | i64     |
//	 +--------+--------+----------+--------+--------+--------+--------+------+
//	  32       36       40         44       48       52       56             64
//
//	head CRC   covers the head from byte 8 on and the list
//	generation is new for every use of a segment file: stale frames of an earlier use never pass
//	sequence   is one more than that of the frame before, across segments (cold segments count for themselves)
//	synced     is the highest sequence known to be durable when this frame was built: if a frame at or below it cannot be
//	           read, it was once durable and is corrupt; otherwise it may be a torn write and the log ends before it
//	list       repeats the groups of the frame before: { group uvarint, last index uvarint, what u8 }*, zero padded to 8
//	body       is the records, each starting on an 8 byte boundary; in a header or footer frame something else
//
//	record  := head | block table | item ends | meta | items        padded with zeros to 8 bytes
//
//	head, 64 bytes
//	  0        4        8        12       16                24                32
//	 +--------+--------+--+--+---+--------+-----------------+-----------------+
//	 | length | CRC    |k |v |hl | blocks | group           | term            |
//	 +--------+--------+--+--+---+--------+-----------------+-----------------+
//	 | index           | time             | meta   | items  | born            |
//	 |                 |                  | length |        |                 |
//	 +-----------------+------------------+--------+--------+-----------------+
//	  32                40                 48       52       56               64
//
//	length     is without the padding; CRC covers everything from byte 8 to length
//	k, v, hl   kind, version of the layout, length of the head (so that a later version can make it longer)
//	born       of snapshots and hard states: the sequence of the frame that held it first, which tells the copies in cold
//	           segments apart; 0 in other records, and in snapshots older than this field
//	blocks     { first id u64, number of items u32, 0 u32 }*
//	item ends  { end of the item, counted from the first item's start, u32 }*
//
// The header frame's body says what the segment is (segmentHeader), the footer's holds the entry tables (table.go).
const (
	pageSize   = 4096
	headSize   = 64
	frameMagic = 0x314c4648 // "HFL1"
	version    = 1

	recordHead = 64
	blockSize  = 16
)

type frameKind uint8

const (
	frameData   frameKind = 0
	frameHeader frameKind = 1
	frameMark   frameKind = 2
	frameFooter frameKind = 3
)

// What the frame before held of a group, in the list.
const (
	listEntry     = 1
	listHardState = 2
	listSnapshot  = 4
	listDrop      = 8
	listItems     = 16

	listEntryMax = 10 + 10 + 1
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	le         = binary.LittleEndian
)

func checksum(p []byte) uint32 { return crc32.Checksum(p, castagnoli) }

func align8(n int) int          { return (n + 7) &^ 7 }
func alignPage(n int) int       { return (n + pageSize - 1) &^ (pageSize - 1) }
func alignPage64(n int64) int64 { return (n + pageSize - 1) &^ (pageSize - 1) }

// head is a frame's head, decoded.
type head struct {
	gen, seq, synced uint64
	off              uint32
	kind             frameKind
	bodyLen, bodyCRC uint32
	records          uint32
	listLen          uint32
	stamp            int64
}

// bytes is the size of the frame on disk.
func (h *head) bytes() int64 {
	return alignPage64(headSize + int64(h.listLen) + int64(h.bodyLen))
}

// sealFrame fills in the head of the frame at buf[start:], whose list and body are already in place, pads the frame with
// zeros and returns the longer buf.
func sealFrame(buf []byte, start int, h head) []byte {
	body := start + headSize + int(h.listLen)
	h.bodyLen = uint32(len(buf) - body)
	h.bodyCRC = checksum(buf[body:])
	p := buf[start:]
	le.PutUint32(p[0:], frameMagic)
	le.PutUint64(p[8:], h.gen)
	le.PutUint64(p[16:], h.seq)
	le.PutUint64(p[24:], h.synced)
	le.PutUint32(p[32:], h.off)
	p[36], p[37], p[38], p[39] = byte(h.kind), version, 0, 0
	le.PutUint32(p[40:], h.bodyLen)
	le.PutUint32(p[44:], h.bodyCRC)
	le.PutUint32(p[48:], h.records)
	le.PutUint32(p[52:], h.listLen)
	le.PutUint64(p[56:], uint64(h.stamp))
	le.PutUint32(p[4:], checksum(p[8:headSize+int(h.listLen)]))
	return zeroPad(buf, start+alignPage(len(buf)-start))
}

// zeroPad extends buf with zeros to n bytes.
func zeroPad(buf []byte, n int) []byte {
	old := len(buf)
	if n > cap(buf) {
		grown := make([]byte, n, n+n/4)
		copy(grown, buf)
		return grown
	}
	buf = buf[:n]
	clear(buf[old:])
	return buf
}

// openFrame reserves a head and puts the list behind it.
func openFrame(buf, list []byte) ([]byte, uint32) {
	start := len(buf)
	n := align8(len(list))
	buf = zeroPad(buf, start+headSize+n)
	copy(buf[start+headSize:], list)
	return buf, uint32(n)
}

var (
	errNoFrame  = errors.New("no frame")
	errShortBuf = errors.New("frame longer than what was read")
)

// parseHead decodes and checks a head; the list must lie in p, too (errShortBuf says that more bytes are needed). The body is
// not looked at.
func parseHead(p []byte) (h head, list []byte, err error) {
	if len(p) < headSize || le.Uint32(p) != frameMagic {
		return h, nil, errNoFrame
	}
	h = head{
		gen: le.Uint64(p[8:]), seq: le.Uint64(p[16:]), synced: le.Uint64(p[24:]),
		off: le.Uint32(p[32:]), kind: frameKind(p[36]),
		bodyLen: le.Uint32(p[40:]), bodyCRC: le.Uint32(p[44:]),
		records: le.Uint32(p[48:]), listLen: le.Uint32(p[52:]), stamp: int64(le.Uint64(p[56:])),
	}
	if h.listLen > maxList || h.bodyLen > maxBody {
		return h, nil, errNoFrame
	}
	end := headSize + int(h.listLen)
	if len(p) < end {
		return h, nil, errShortBuf
	}
	if le.Uint32(p[4:]) != checksum(p[8:end]) || p[37] != version {
		return h, nil, errNoFrame
	}
	return h, p[headSize:end], nil
}

// No frame or record is larger; what claims to be is damaged.
const (
	maxList = 64 << 20
	maxBody = 2 << 30
)

// appendList adds a group to the list the next frame will carry.
func appendList(list []byte, r *Record) []byte {
	var what byte
	switch r.Kind {
	case KindEntry:
		what = listEntry
	case KindHardState:
		what = listHardState
	case KindSnapshot:
		what = listSnapshot
	case KindDrop:
		what = listDrop
	case KindInstall: // it replaces entries, so its loss is never made good
		what = listSnapshot | listEntry
	case KindItems:
		what = listItems
	}
	list = binary.AppendUvarint(list, uint64(r.Group))
	list = binary.AppendUvarint(list, r.Index)
	return append(list, what)
}

// eachListed calls fn for every group of a list. The padding reads as group 0, which no list holds.
func eachListed(list []byte, fn func(g GroupID, index uint64, what byte)) error {
	for len(list) > 0 {
		g, n := binary.Uvarint(list)
		if n <= 0 {
			return errors.New("list: bad group")
		}
		if g == 0 {
			return nil
		}
		index, m := binary.Uvarint(list[n:])
		if m <= 0 || len(list) < n+m+1 {
			return errors.New("list: bad index")
		}
		fn(GroupID(g), index, list[n+m])
		list = list[n+m+1:]
	}
	return nil
}

// recordSize is the size of a record without padding, and how many items it has.
func recordSize(r *Record) (size, items int) {
	size = recordHead + len(r.Blocks)*blockSize + len(r.Meta)
	for i := range r.Blocks {
		its := r.Blocks[i].Items
		items += len(its)
		for _, it := range its {
			size += len(it)
		}
	}
	return size + 4*items, items
}

// appendRecord encodes a record at the end of buf, which is aligned to 8, and pads it; seq is that of its frame. Its length and
// overhead (what is not item bytes) come back.
func appendRecord(buf []byte, r *Record, seq uint64) (out []byte, length, overhead int) {
	start := len(buf)
	size, items := recordSize(r)
	if end := start + align8(size); end > cap(buf) {
		grown := make([]byte, start, max(end, 2*cap(buf)))
		copy(grown, buf)
		buf = grown
	}
	buf = buf[:start+align8(size)]
	p := buf[start:]
	le.PutUint32(p[0:], uint32(size))
	p[8], p[9] = byte(r.Kind), version
	le.PutUint16(p[10:], recordHead)
	le.PutUint32(p[12:], uint32(len(r.Blocks)))
	le.PutUint64(p[16:], uint64(r.Group))
	le.PutUint64(p[24:], r.Term)
	le.PutUint64(p[32:], r.Index)
	le.PutUint64(p[40:], uint64(r.Time))
	le.PutUint32(p[48:], uint32(len(r.Meta)))
	le.PutUint32(p[52:], uint32(items))
	if r.Kind != KindSnapshot && r.Kind != KindInstall && r.Kind != KindHardState {
		seq = 0
	}
	le.PutUint64(p[56:], seq)
	blocks := p[recordHead:]
	ends := blocks[len(r.Blocks)*blockSize:]
	meta := ends[items*4:]
	copy(meta, r.Meta)
	body := meta[len(r.Meta):]
	at := 0
	for i := range r.Blocks {
		b := &r.Blocks[i]
		le.PutUint64(blocks[i*blockSize:], b.First)
		le.PutUint32(blocks[i*blockSize+8:], uint32(len(b.Items)))
		le.PutUint32(blocks[i*blockSize+12:], 0)
		for _, it := range b.Items {
			copy(body[at:], it)
			at += len(it)
			le.PutUint32(ends, uint32(at))
			ends = ends[4:]
		}
	}
	clear(p[size:])
	le.PutUint32(p[4:], checksum(p[8:size]))
	return buf, size, size - at
}

// record is a record read back: views into the bytes it was decoded from.
type record struct {
	kind        Kind
	group       GroupID
	term, index uint64
	time        int64
	born        uint64
	length      int // without padding
	meta        []byte
	blocks      []byte // blockSize each
	ends        []byte // 4 each
	items       []byte
}

// recordLength reads the length of the record at the start of p; 0 if there cannot be one.
func recordLength(p []byte) int {
	if len(p) < recordHead {
		return 0
	}
	n := int(le.Uint32(p))
	if n < recordHead || n > maxBody {
		return 0
	}
	return n
}

// parseRecord decodes and checks the record at the start of p.
func parseRecord(p []byte) (r record, err error) {
	size := recordLength(p)
	if size == 0 || size > len(p) {
		return r, errors.New("record: bad length")
	}
	p = p[:size]
	if le.Uint32(p[4:]) != checksum(p[8:]) {
		return r, errors.New("record: checksum does not match")
	}
	if p[9] != version {
		return r, fmt.Errorf("record: version %d is not known", p[9])
	}
	hlen := int64(le.Uint16(p[10:]))
	nb, metaLen, ni := int64(le.Uint32(p[12:])), int64(le.Uint32(p[48:])), int64(le.Uint32(p[52:]))
	fixed := hlen + nb*blockSize + ni*4 + metaLen
	if hlen < recordHead || fixed > int64(size) {
		return r, errors.New("record: parts longer than the whole")
	}
	r = record{
		kind: Kind(p[8]), group: GroupID(le.Uint64(p[16:])),
		term: le.Uint64(p[24:]), index: le.Uint64(p[32:]), time: int64(le.Uint64(p[40:])), born: le.Uint64(p[56:]), length: size,
	}
	p = p[hlen:]
	r.blocks, p = p[:nb*blockSize], p[nb*blockSize:]
	r.ends, p = p[:ni*4], p[ni*4:]
	r.meta, r.items = p[:metaLen], p[metaLen:]
	return r, r.check()
}

// check makes sure that blocks, ends and items fit together, so that no reader has to.
func (r *record) check() error {
	var sum uint64
	for b := r.blocks; len(b) > 0; b = b[blockSize:] {
		first, n := le.Uint64(b), uint64(le.Uint32(b[8:]))
		if n > 0 && first+n-1 < first {
			return errors.New("record: bad block")
		}
		sum += n
	}
	if sum != uint64(len(r.ends)/4) {
		return errors.New("record: blocks and items differ in number")
	}
	last := uint32(0)
	for e := r.ends; len(e) > 0; e = e[4:] {
		end := le.Uint32(e)
		if end < last {
			return errors.New("record: item ends go back")
		}
		last = end
	}
	if int64(last) != int64(len(r.items)) {
		return errors.New("record: items end elsewhere")
	}
	return nil
}

// numBlocks is the number of blocks.
func (r *record) numBlocks() int { return len(r.blocks) / blockSize }

// block is the i-th block: its first id and number of items.
func (r *record) block(i int) (first uint64, n int) {
	return le.Uint64(r.blocks[i*blockSize:]), int(le.Uint32(r.blocks[i*blockSize+8:]))
}

// item is the k-th item of the record, counted over all blocks.
func (r *record) item(k int) []byte {
	start := uint32(0)
	if k > 0 {
		start = le.Uint32(r.ends[(k-1)*4:])
	}
	end := le.Uint32(r.ends[k*4:])
	return r.items[start:end:end]
}

// find returns the item with this id.
func (r *record) find(id uint64) ([]byte, bool) {
	k := 0
	for i := range r.numBlocks() {
		first, n := r.block(i)
		if id >= first && id-first < uint64(n) {
			return r.item(k + int(id-first)), true
		}
		k += n
	}
	return nil, false
}

// ids returns the blocks as ranges.
func (r *record) ids() []Range {
	if len(r.blocks) == 0 {
		return nil
	}
	out := make([]Range, 0, r.numBlocks())
	for i := range r.numBlocks() {
		if first, n := r.block(i); n > 0 {
			out = append(out, Range{first, first + uint64(n) - 1})
		}
	}
	return out
}

// snapshot tells whether the record is a snapshot, be it the group's own or an installed one.
func (r *record) snapshot() bool { return r.kind == KindSnapshot || r.kind == KindInstall }

// overhead is what of the record is not item bytes.
func (r *record) overhead() int { return r.length - len(r.items) }

type segmentKind uint8

const (
	segmentHot  segmentKind = 1
	segmentCold segmentKind = 2
)

func (k segmentKind) String() string {
	switch k {
	case segmentHot:
		return "hot"
	case segmentCold:
		return "cold"
	}
	return fmt.Sprintf("kind %d", uint8(k))
}

// segmentHeader is the body of a segment's first frame. A hot segment names the one before and the last sequence that
// counts in it: whatever lies behind that there was cut.
//
//	 0      1      2      4        8            16           24          32
//	+------+------+------+--------+------------+------------+-----------+
//	| kind | ver  | 0    | id     | prev gen   | prev last  | size      |
//	+------+------+------+--------+------------+------------+-----------+
//
// The id is 0 but in the copy that is the witness.
type segmentHeader struct {
	kind              segmentKind
	id                uint32
	prevGen, prevLast uint64
	size              int64
}

const segmentHeaderSize = 32

func (h segmentHeader) append(buf []byte) []byte {
	buf = append(buf, byte(h.kind), version, 0, 0)
	buf = le.AppendUint32(buf, h.id)
	buf = le.AppendUint64(buf, h.prevGen)
	buf = le.AppendUint64(buf, h.prevLast)
	return le.AppendUint64(buf, uint64(h.size))
}

func parseSegmentHeader(p []byte) (segmentHeader, error) {
	if len(p) < segmentHeaderSize || p[1] != version || p[0] != byte(segmentHot) && p[0] != byte(segmentCold) {
		return segmentHeader{}, errors.New("segment header: not known")
	}
	return segmentHeader{segmentKind(p[0]), le.Uint32(p[4:]), le.Uint64(p[8:]), le.Uint64(p[16:]), int64(le.Uint64(p[24:]))}, nil
}
