package replica

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"testing"

	"holdfast/internal/seglog"
)

// memLog is a log in memory, stepped by hand, that can lose what was not synced.
type memLog struct {
	t       testing.TB
	records []seglog.Record // on disk
	queued  []*seglog.Batch
	syncs   int
	keep    map[seglog.GroupID]uint64
	live    map[seglog.GroupID][]seglog.Range // as SetLive said
	groups  map[seglog.GroupID]*memGroup

	itemSize int // what an item counts in a transfer; 0: so much that there are three in a part
}

// memGroup is the items of a group.
type memGroup struct {
	items   map[uint64][]byte // by id, as the newest record has them
	tail    []*seglog.Record  // entries above the snapshot
	last    uint64            // index of the last record
	waiting []memRelease      // for a record to be stable
}

type memRelease struct {
	index  uint64
	ranges []seglog.Range
}

// kindReleased is a record of memLog's own: its items are gone.
const kindReleased seglog.Kind = 99

func newMemLog(t testing.TB) *memLog {
	return &memLog{
		t: t, keep: map[seglog.GroupID]uint64{}, live: map[seglog.GroupID][]seglog.Range{}, groups: map[seglog.GroupID]*memGroup{},
	}
}

func (l *memLog) of(id seglog.GroupID) *memGroup {
	g := l.groups[id]
	if g == nil {
		g = &memGroup{items: map[uint64][]byte{}}
		l.groups[id] = g
	}
	return g
}

func (l *memLog) Append(b *seglog.Batch) { l.queued = append(l.queued, b) }

// commit makes the oldest batch stable. It reports whether there was one.
func (l *memLog) commit() bool {
	if len(l.queued) == 0 {
		return false
	}
	b := l.queued[0]
	l.queued = l.queued[1:]
	for i := range b.Records {
		l.write(&b.Records[i])
	}
	l.syncs++
	b.Stable(b)
	return true
}

func (l *memLog) write(r *seglog.Record) {
	c := *r
	c.Meta = bytes.Clone(r.Meta)
	c.Blocks = nil
	for _, b := range r.Blocks {
		n := seglog.Block{First: b.First}
		for _, it := range b.Items {
			n.Items = append(n.Items, bytes.Clone(it))
		}
		c.Blocks = append(c.Blocks, n)
	}
	l.records = append(l.records, c)
	l.of(c.Group).note(&c)
	g := l.of(c.Group)
	rest := g.waiting[:0]
	for _, w := range g.waiting {
		if w.index <= g.last {
			l.letGo(c.Group, w.ranges)
		} else {
			rest = append(rest, w)
		}
	}
	g.waiting = rest
}

// note is what a record means for the items.
func (g *memGroup) note(r *seglog.Record) {
	forget := func(blocks []seglog.Block) {
		for _, b := range blocks {
			for k := range b.Items {
				delete(g.items, b.First+uint64(k))
			}
		}
	}
	switch r.Kind {
	case kindReleased:
		forget(r.Blocks)
		return
	case seglog.KindSnapshot:
		g.tail = slices.DeleteFunc(g.tail, func(e *seglog.Record) bool { return e.Index <= r.Index })
		g.last = max(g.last, r.Index)
	case seglog.KindInstall, seglog.KindEntry:
		for n := len(g.tail); n > 0 && (r.Kind == seglog.KindInstall && g.tail[n-1].Index > r.Index || r.Kind == seglog.KindEntry && g.tail[n-1].Index >= r.Index); n-- {
			forget(g.tail[n-1].Blocks)
			g.tail = g.tail[:n-1]
		}
		if r.Kind == seglog.KindEntry {
			g.tail = append(g.tail, r)
		} else {
			g.tail = nil
		}
		g.last = r.Index
	}
	for _, b := range r.Blocks {
		for k, it := range b.Items {
			g.items[b.First+uint64(k)] = it
		}
	}
}

// letGo takes items out.
func (l *memLog) letGo(id seglog.GroupID, ranges []seglog.Range) {
	r := seglog.Record{Group: id, Kind: kindReleased}
	for _, x := range ranges {
		r.Blocks = append(r.Blocks, seglog.Block{First: x.First, Items: make([][]byte, x.Last-x.First+1)})
	}
	l.records = append(l.records, r)
	l.of(id).note(&r)
}

// Release takes items out when the record at index is on disk. Each of them must be there, or on its way: none is
// released twice.
func (l *memLog) Release(id seglog.GroupID, index uint64, ranges []seglog.Range) {
	g := l.of(id)
	for _, r := range ranges {
		for item := r.First; item <= r.Last; item++ {
			if g.items[item] == nil && !l.onItsWay(id, item) {
				l.t.Fatalf("group %d: item %d is released at %d, and is not there", id, item, index)
			}
			for _, w := range g.waiting {
				if slices.ContainsFunc(w.ranges, func(o seglog.Range) bool { return o.First <= item && item <= o.Last }) {
					l.t.Fatalf("group %d: item %d is released at %d, and at %d already", id, item, index, w.index)
				}
			}
		}
	}
	if index <= g.last {
		l.letGo(id, ranges)
	} else {
		g.waiting = append(g.waiting, memRelease{index, slices.Clone(ranges)})
	}
}

// onItsWay says whether a batch that is not on disk brings an item.
func (l *memLog) onItsWay(id seglog.GroupID, item uint64) bool {
	for _, q := range l.queued {
		for i := range q.Records {
			if r := &q.Records[i]; r.Group == id && slices.ContainsFunc(r.Blocks, func(b seglog.Block) bool {
				return b.First <= item && item < b.First+uint64(len(b.Items))
			}) {
				return true
			}
		}
	}
	return false
}

// crash returns the log as a power cut leaves it: with some of the records that were on their way, and some of the items
// that were released.
func (l *memLog) crash(rng *rand.Rand) disk {
	c := newMemLog(l.t)
	for _, r := range l.records {
		if r.Kind != kindReleased || rng.IntN(2) == 0 {
			c.records = append(c.records, r)
			c.of(r.Group).note(&r)
		}
	}
	n := rng.IntN(1 + rng.IntN(8))
	for _, b := range l.queued {
		for i := range b.Records {
			if n == 0 {
				return c
			}
			n--
			c.write(&b.Records[i])
		}
	}
	return c
}

// group is what is left of a group: snapshot, hard state, entries.
func (l *memLog) group(id seglog.GroupID) (snap, hard *seglog.Record, entries []*seglog.Record) {
	for i := range l.records {
		r := &l.records[i]
		if r.Group != id {
			continue
		}
		switch r.Kind {
		case seglog.KindInstall:
			snap, entries = r, nil
		case seglog.KindSnapshot:
			snap = r
			entries = slices.DeleteFunc(entries, func(e *seglog.Record) bool {
				return e.Index <= r.Index && (l.keep[id] == 0 || e.Index <= l.keep[id])
			})
		case seglog.KindHardState:
			hard = r
		case seglog.KindEntry:
			if snap != nil && r.Index <= snap.Index {
				l.t.Fatalf("group %d: entry %d replaces what snapshot %d covers", id, r.Index, snap.Index)
			}
			entries = slices.DeleteFunc(entries, func(e *seglog.Record) bool { return e.Index >= r.Index })
			entries = append(entries, r)
		}
	}
	return snap, hard, entries
}

func replayed(r *seglog.Record) seglog.Replayed {
	kind := r.Kind
	if kind == seglog.KindInstall {
		kind = seglog.KindSnapshot
	}
	out := seglog.Replayed{Group: r.Group, Kind: kind, Term: r.Term, Index: r.Index, Time: r.Time, Meta: bytes.Clone(r.Meta)}
	for _, b := range r.Blocks {
		out.IDs = append(out.IDs, seglog.Range{First: b.First, Last: b.First + uint64(len(b.Items)) - 1})
	}
	return out
}

func (l *memLog) Replay(fn func(seglog.Replayed) error) error {
	var ids []seglog.GroupID
	for i := range l.records {
		if id := l.records[i].Group; !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	for _, id := range ids {
		snap, hard, entries := l.group(id)
		var all []*seglog.Record
		if snap != nil {
			all = append(all, snap)
		}
		if hard != nil {
			all = append(all, hard)
		}
		for _, e := range entries {
			if snap == nil || e.Index > snap.Index {
				all = append(all, e)
			}
		}
		for _, r := range all {
			if err := fn(replayed(r)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *memLog) Clean() bool { return false }
func (l *memLog) Start()      {}
func (l *memLog) stop()       {}

// items are the items of the group by id, as the newest record has them; those of replaced entries are gone.
func (l *memLog) items(id seglog.GroupID) map[uint64][]byte { return l.of(id).items }

func (l *memLog) SetLive(g seglog.GroupID, live []seglog.Range) (missing uint64) {
	have := l.items(g)
	for i, r := range live {
		if r.Last < r.First || i > 0 && r.First <= live[i-1].Last {
			l.t.Fatalf("group %d: what lives is not in order: %v", g, live)
		}
		for id := r.First; id <= r.Last; id++ {
			if have[id] == nil {
				missing++
			}
		}
	}
	l.live[g] = slices.Clone(live)
	for id := range have {
		if !overlaps(live, seglog.Range{First: id, Last: id}) {
			delete(have, id)
		}
	}
	return missing
}

func (l *memLog) KeepTail(g seglog.GroupID, index uint64) { l.keep[g] = index }

// memPin is items that a transfer sends, a few at a time.
type memPin struct {
	blocks []seglog.Block
	closed bool
	atOnce int
	t      testing.TB
}

func (l *memLog) Pin(g seglog.GroupID, ranges []seglog.Range) (Pinned, error) {
	p := &memPin{t: l.t, atOnce: 3}
	if l.itemSize > 0 {
		p.atOnce = partBytes / l.itemSize
	}
	have := l.items(g)
	for _, r := range ranges {
		for id := r.First; id <= r.Last; id++ {
			if have[id] == nil {
				return nil, fmt.Errorf("item %d is not in the log", id)
			}
			p.blocks = append(p.blocks, seglog.Block{First: id, Items: [][]byte{have[id]}})
		}
	}
	return p, nil
}

func (p *memPin) Skip(ranges []seglog.Range) {
	p.blocks = slices.DeleteFunc(p.blocks, func(b seglog.Block) bool {
		return overlaps(ranges, seglog.Range{First: b.First, Last: b.First})
	})
}

func (p *memPin) Next(int) ([]seglog.Block, error) {
	if p.closed {
		p.t.Fatal("items are read that were let go of")
	}
	n := min(len(p.blocks), p.atOnce)
	out := p.blocks[:n]
	p.blocks = p.blocks[n:]
	return out, nil
}

func (p *memPin) Close() {
	if p.closed {
		p.t.Fatal("items are let go of twice")
	}
	p.closed = true
}

var errGone = errors.New("the entry is gone")

func (l *memLog) ReadEntry(g seglog.GroupID, index uint64) (seglog.Replayed, [][]byte, error) {
	_, _, entries := l.group(g)
	for _, e := range entries {
		if e.Index == index {
			var items [][]byte
			for _, b := range e.Blocks {
				items = append(items, b.Items...)
			}
			return replayed(e), items, nil
		}
	}
	return seglog.Replayed{}, nil, errGone
}

// ledger is a machine of operations with a number each. Each brings an item, and lets
// go of the oldest when there are many. It knows in which order they came.
type ledger struct {
	t     testing.TB
	judge *judge
	node  int
	g     *Group

	ops   []uint64 // applied, in order
	has   map[uint64]bool
	hash  uint64
	next  uint64 // item
	first uint64 // item that lives

	pending []uint64
	packed  []uint64
	serving bool
	leader  uint64
	term    uint64
	failed  error
	mayFail bool
	roles   []string
	foreign int
	removed int     // how often it was told that its member was removed
	log     RaftLog // nil while replaying
}

const ledgerKeeps = 20

func newLedger(t testing.TB, j *judge, node int) *ledger {
	return &ledger{t: t, judge: j, node: node, has: map[uint64]bool{}, next: 1, first: 1}
}

func itemOf(op uint64) []byte { return bytes.Repeat(fmt.Appendf(nil, "<%d>", op), 1+int(op%7)) }

// propose is what a client asks of a node; only one that serves takes it.
func (h *ledger) propose(op uint64) bool {
	if !h.serving {
		return false
	}
	h.pending = append(h.pending, op)
	h.g.Wake()
	return true
}

func (h *ledger) Pack(e *Entry) bool {
	if !h.serving {
		h.t.Fatalf("node %d packs and does not serve", h.node)
	}
	if len(h.packed) > 0 {
		h.t.Fatalf("node %d packs with an entry under way", h.node)
	}
	n := min(len(h.pending), h.judge.atOnce)
	if n == 0 {
		return false
	}
	h.packed = slices.Clone(h.pending[:n])
	h.pending = h.pending[n:]
	for i, op := range h.packed {
		e.Meta = binary.AppendUvarint(e.Meta, op)
		e.Item(h.next+uint64(i), itemOf(op))
	}
	e.Pack()
	return len(h.pending) > 0
}

func (h *ledger) Apply(e *Entry) {
	ops := h.packed
	h.packed = nil
	if !slices.Equal(ops, parseOps(h.t, e.Meta)) {
		h.t.Fatalf("node %d applies an entry it did not pack", h.node)
	}
	h.run(e.Index, e.Term, ops)
	h.judge.confirmed(e.Index, ops)
}

func (h *ledger) ApplyForeign(e *Entry, meta []byte, ids []seglog.Range, items [][]byte) {
	h.foreign++
	ops := parseOps(h.t, meta)
	if len(items) != len(ops) || len(ids) == 0 || ids[0].First != h.next {
		h.t.Fatalf("node %d, entry %d: %d items from %v on for %d operations, not from %d", h.node, e.Index, len(items), ids, len(ops), h.next)
	}
	for i, op := range ops {
		if items[i] != nil && !bytes.Equal(items[i], itemOf(op)) {
			h.t.Fatalf("node %d, entry %d: operation %d came with item %q", h.node, e.Index, op, items[i])
		}
	}
	h.run(e.Index, e.Term, ops)
}

func (h *ledger) run(index, term uint64, ops []uint64) {
	for _, op := range ops {
		if h.has[op] {
			h.t.Fatalf("node %d, entry %d: operation %d is applied twice", h.node, index, op)
		}
		h.note(op)
	}
	if h.next-h.first > h.judge.keeps {
		was := h.first
		h.first = h.next - h.judge.keeps
		if h.log != nil {
			h.log.Release(h.g.ID(), index, []seglog.Range{{First: was, Last: h.first - 1}})
		}
	}
	h.judge.applied(h.node, index, term, h.hash, ops)
}

// note adds an operation to those that were applied.
func (h *ledger) note(op uint64) {
	h.has[op] = true
	h.ops = append(h.ops, op)
	f := fnv.New64a()
	fmt.Fprint(f, h.hash, op)
	h.hash = f.Sum64()
	h.next++
}

func parseOps(t testing.TB, b []byte) (ops []uint64) {
	for len(b) > 0 {
		op, n := binary.Uvarint(b)
		if n <= 0 {
			t.Fatal("malformed operations")
		}
		ops, b = append(ops, op), b[n:]
	}
	return ops
}

func (h *ledger) Replay(r seglog.Replayed) error {
	h.run(r.Index, r.Term, parseOps(h.t, r.Meta))
	return nil
}

func (h *ledger) Restore(b []byte) error {
	ops := parseOps(h.t, b[1:])
	if h.log != nil {
		h.judge.installs++
	}
	*h = ledger{t: h.t, judge: h.judge, node: h.node, g: h.g, has: map[uint64]bool{}, next: 1, first: 1, roles: h.roles, foreign: h.foreign, removed: h.removed, log: h.log}
	for _, op := range ops {
		h.note(op)
	}
	if h.next-h.first > h.judge.keeps {
		h.first = h.next - h.judge.keeps
	}
	return nil
}

func (h *ledger) AppendSnapshot(dst []byte) []byte {
	dst = append(dst, 'L')
	for _, op := range h.ops {
		dst = binary.AppendUvarint(dst, op)
	}
	return dst
}

func (h *ledger) Live(dst []seglog.Range) ([]seglog.Range, bool) {
	if h.next > h.first {
		dst = append(dst, seglog.Range{First: h.first, Last: h.next - 1})
	}
	return dst, true
}

func (h *ledger) Stable(uint64)  { h.t.Fatal("a raft group is told what is stable") }
func (h *ledger) Overdue(uint64) {}
func (h *ledger) Failed(err error) {
	h.failed = err
	if !h.mayFail {
		h.t.Errorf("node %d failed: %v", h.node, err)
	}
}
func (h *ledger) Recover(bool) bool { return false }
func (h *ledger) Abandoned() {
	if len(h.packed) == 0 {
		h.t.Fatalf("node %d: nothing was packed, and it is abandoned", h.node)
	}
	h.packed = nil
}

// Removed implements RemovedHost.
func (h *ledger) Removed() {
	if h.removed++; h.removed > 1 {
		h.t.Fatalf("node %d is told twice that it was removed", h.node)
	}
	if stays := h.judge.stays; stays != nil && stays(uint64(h.node)) {
		h.t.Fatalf("node %d is told that it was removed, and was not", h.node)
	}
}

func (h *ledger) Role(term, leader uint64, serving bool) {
	h.term, h.leader, h.serving = term, leader, serving
	h.roles = append(h.roles, fmt.Sprintf("%d/%d/%v", term, leader, serving))
	if serving {
		h.judge.serves(h, term)
	} else {
		h.pending = nil
	}
}

// judge sees everything that happens on all nodes, and knows what must not.
type judge struct {
	t        testing.TB
	entries  map[uint64]string // by index: what was applied there, and the state after it
	leaders  map[uint64]int    // by term
	proposed map[uint64]bool
	done     map[uint64]bool
	last     uint64
	installs int // states that came from other members

	keeps  uint64 // items a ledger keeps
	atOnce int    // operations in an entry

	doneIndex uint64                   // of the last entry that was confirmed
	stays     func(member uint64) bool // who was certainly not removed; or nil
	promises
	reads int // read barriers under way
	read  int // answered without an error
}

func newJudge(t testing.TB) *judge {
	return &judge{t: t, keeps: ledgerKeeps, atOnce: 3, entries: map[uint64]string{}, leaders: map[uint64]int{}, proposed: map[uint64]bool{}, done: map[uint64]bool{}}
}

func (j *judge) applied(node int, index, term, hash uint64, ops []uint64) {
	now := fmt.Sprint(term, " ", hash, " ", ops)
	if was := j.entries[index]; was != "" && was != now {
		j.t.Fatalf("node %d applies at %d %q, another %q", node, index, now, was)
	}
	j.entries[index] = now
	j.last = max(j.last, index)
	for _, op := range ops {
		if !j.proposed[op] {
			j.t.Fatalf("node %d applies operation %d, which nobody proposed", node, op)
		}
	}
}

func (j *judge) confirmed(index uint64, ops []uint64) {
	j.doneIndex = max(j.doneIndex, index)
	for _, op := range ops {
		j.done[op] = true
	}
}

// serves checks a member that begins to serve: it is the only one in its term, and knows all that was confirmed.
func (j *judge) serves(h *ledger, term uint64) {
	if other, taken := j.leaders[term]; taken && other != h.node {
		j.t.Fatalf("nodes %d and %d both lead in term %d", h.node, other, term)
	}
	j.leaders[term] = h.node
	j.complete(h)
}

// complete checks that a member knows all that was confirmed.
func (j *judge) complete(h *ledger) {
	for op := range j.done {
		if !h.has[op] {
			j.t.Fatalf("node %d lacks operation %d, which was confirmed", h.node, op)
		}
	}
}
