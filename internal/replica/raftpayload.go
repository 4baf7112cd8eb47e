package replica

import (
	"encoding/binary"
	"slices"

	"holdfast/internal/seglog"
)

// The records of a raft group in the log begin with a header: what kind of entry
// it is, and how far the group was known to be committed when it was written, so
// that a start need not wait for a leader to know it.
const headerSize = 9

// Kinds of entries. The numbers are on disk and on the wire.
const (
	entryEmpty  = 0 // a leader's first
	entryNormal = 1 // packed by a host
	entryConf   = 2 // a change of the members, in raft's own encoding
)

// payload is what an entry carries beside its index and term. It never changes once
// its entry was appended, and is shared: by the log, the host, and messages.
type payload struct {
	time   int64
	record []byte // header, then the host's meta: the record's Meta
	blocks []seglog.Block
	size   int // bytes of record and items
	kept   bool

	// After a start, of an entry that is not applied: the bytes of its items are in the log only.
	partial bool
	ids     []seglog.Range
}

func (p *payload) meta() []byte { return p.record[headerSize:] }

// seal fills in the header.
func (p *payload) seal(kind byte, commit uint64) {
	p.record[0] = kind
	binary.LittleEndian.PutUint64(p.record[1:], commit)
}

// header reads what seal wrote.
func header(meta []byte) (kind byte, commit uint64, rest []byte, ok bool) {
	if len(meta) < headerSize || meta[0] > entryConf {
		return 0, 0, nil, false
	}
	return meta[0], binary.LittleEndian.Uint64(meta[1:]), meta[headerSize:], true
}

// newPayload copies what a host packed: the memory of the round is used again
// before the payload is gone. The bytes of the items stay where they are.
func newPayload(time int64, meta []byte, blocks []seglog.Block) *payload {
	p := &payload{time: time, record: make([]byte, headerSize, headerSize+len(meta))}
	p.record = append(p.record, meta...)
	p.size = len(p.record)
	n := 0
	for i := range blocks {
		n += len(blocks[i].Items)
	}
	if n == 0 {
		return p
	}
	items := make([][]byte, 0, n)
	p.blocks = make([]seglog.Block, len(blocks))
	for i := range blocks {
		start := len(items)
		items = append(items, blocks[i].Items...)
		p.blocks[i] = seglog.Block{First: blocks[i].First, Items: items[start:len(items):len(items)]}
		for _, it := range blocks[i].Items {
			p.size += len(it)
		}
	}
	return p
}

// items lists the ids and the bytes of a payload as a host wants them.
func (p *payload) items() (ids []seglog.Range, items [][]byte) {
	if p.partial {
		for _, r := range p.ids {
			items = append(items, make([][]byte, r.Last-r.First+1)...)
		}
		return p.ids, items
	}
	if len(p.blocks) == 0 {
		return nil, nil
	}
	ids = make([]seglog.Range, 0, len(p.blocks))
	for _, b := range p.blocks {
		ids = append(ids, seglog.Range{First: b.First, Last: b.First + uint64(len(b.Items)) - 1})
		items = append(items, b.Items...)
	}
	return ids, items
}

// blocksOf puts ids and items together again.
func blocksOf(ids []seglog.Range, items [][]byte) []seglog.Block {
	blocks := make([]seglog.Block, 0, len(ids))
	for _, r := range ids {
		n := r.Last - r.First + 1
		blocks = append(blocks, seglog.Block{First: r.First, Items: items[:n:n]})
		items = items[n:]
	}
	return blocks
}

// cache is the payloads a shard keeps in memory although their entries are
// applied: for members that are a little behind. The oldest leave first.
type cache struct {
	limit, bytes, count int
	list                []cached // oldest first; those dropped meanwhile are still in it
}

type cached struct {
	g     *raftGroup
	index uint64
	p     *payload
}

// keep puts the payload of an applied entry into the cache.
func (c *cache) keep(g *raftGroup, index uint64, p *payload) {
	p.kept = true
	c.bytes += p.size
	c.count++
	c.list = append(c.list, cached{g, index, p})
	n := 0
	for ; n < len(c.list) && (c.bytes > c.limit || !c.list[n].p.kept); n++ {
		if l := &c.list[n]; l.p.kept {
			l.g.store.forget(l.index, l.p)
			c.drop(l.p)
		}
		c.list[n] = cached{}
	}
	c.list = c.list[n:]
	c.tidy()
}

// tidy lets go of those that were dropped, if they are most of the list.
func (c *cache) tidy() {
	if len(c.list) > 2*c.count+64 {
		c.list = slices.DeleteFunc(c.list, func(l cached) bool { return !l.p.kept })
	}
}

// drop says that a payload is not in memory any more.
func (c *cache) drop(p *payload) {
	if p.kept {
		p.kept = false
		c.bytes -= p.size
		c.count--
	}
}
