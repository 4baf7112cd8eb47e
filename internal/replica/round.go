package replica

import "holdfast/internal/seglog"

// round is the batch of one round of a shard on its way through the log. The
// worker fills it; after Append it belongs to the log until Stable, which puts
// it into the shard's mailbox; the worker then tells the groups and uses it again.
type round struct {
	shard *Shard
	batch seglog.Batch
	// groups are those of batch.Records, one for each; nil where nobody waits
	// (a snapshot, a drop).
	groups   []*Group
	appended int64 // clock.Mono at Append

	// Memory the records point into. An array that became too small stays
	// with the records made from it, and a larger one takes over.
	meta   []byte // free room for the next entry's meta
	base   []byte // the array meta is cut from, for the next use
	used   int    // bytes of meta in this round
	items  [][]byte
	blocks []seglog.Block

	// The entry being packed.
	block int    // its first block
	start int    // its last block's first item
	first int    // its first item
	next  uint64 // the id that would continue the last block
	bytes int    // bytes of its items
}

// What a round keeps for its next use.
const (
	keepMeta  = 1 << 20
	keepItems = 16 << 10
)

func newRound(s *Shard) *round {
	r := &round{shard: s}
	r.batch.Stable = func(*seglog.Batch) { s.stable(r) }
	return r
}

// reset makes the round ready for its next use.
func (r *round) reset() {
	clear(r.batch.Records)
	r.batch.Records = r.batch.Records[:0]
	r.batch.Sync = false
	clear(r.groups)
	r.groups = r.groups[:0]
	clear(r.items)
	clear(r.blocks)
	if r.items = r.items[:0]; cap(r.items) > keepItems {
		r.items = nil
	}
	if r.blocks = r.blocks[:0]; cap(r.blocks) > keepItems {
		r.blocks = nil
	}
	switch {
	case cap(r.base) > keepMeta:
		r.base = nil
	case cap(r.base) < r.used && r.used <= keepMeta:
		r.base = make([]byte, 0, r.used+r.used/2)
	}
	r.meta, r.used = r.base, 0
}

// begin starts an entry: e.Meta gets the free room.
func (r *round) begin(e *Entry) {
	e.round, e.Meta = r, r.meta
	r.block, r.start, r.first, r.next, r.bytes = len(r.blocks), len(r.items), len(r.items), 0, 0
}

// item adds an item to the entry being packed; ids that follow each other make one block.
func (r *round) item(id uint64, item []byte) {
	if id != r.next || len(r.blocks) == r.block {
		r.closeBlock()
		r.blocks = append(r.blocks, seglog.Block{First: id})
		r.start = len(r.items)
	}
	r.items = append(r.items, item)
	r.bytes += len(item)
	r.next = id + 1
}

// closeBlock gives the last block of the entry its items.
func (r *round) closeBlock() {
	if n := len(r.blocks); n > r.block {
		r.blocks[n-1].Items = r.items[r.start:len(r.items):len(r.items)]
	}
}

// take claims the meta bytes that were appended to the free room.
func (r *round) take(meta []byte) []byte {
	if cap(meta) != cap(r.meta) { // it has moved to an array of its own
		r.base = meta[:0]
	}
	r.used += len(meta)
	r.meta = meta[len(meta):]
	return meta[:len(meta):len(meta)]
}

// add ends the entry being packed and puts its record into the batch.
func (r *round) add(g *Group, e *Entry) {
	r.closeBlock()
	r.batch.Records = append(r.batch.Records, seglog.Record{
		Group: g.id, Kind: seglog.KindEntry, Term: e.Term, Index: e.Index, Time: e.Time,
		Meta: r.take(e.Meta), Blocks: r.blocks[r.block:len(r.blocks):len(r.blocks)],
	})
	r.groups = append(r.groups, g)
	r.batch.Sync = r.batch.Sync || e.Sync
}

// payload copies the entry being packed, for a group that needs it longer than the
// round, and takes it out of the round again.
func (r *round) payload(e *Entry) *payload {
	r.closeBlock()
	p := newPayload(e.Time, e.Meta, r.blocks[r.block:])
	clear(r.blocks[r.block:])
	clear(r.items[r.first:])
	r.blocks, r.items = r.blocks[:r.block], r.items[:r.first]
	return p
}

// addRecord puts a record with memory of its own into the batch.
func (r *round) addRecord(g *Group, rec seglog.Record) {
	rec.Group = g.id
	r.batch.Records = append(r.batch.Records, rec)
	r.groups = append(r.groups, nil)
}

// addControl puts a record without items into the batch.
func (r *round) addControl(g *Group, kind seglog.Kind, index uint64, time int64, meta []byte) {
	r.batch.Records = append(r.batch.Records, seglog.Record{
		Group: g.id, Kind: kind, Term: g.term, Index: index, Time: time, Meta: meta,
	})
	r.groups = append(r.groups, nil)
}
