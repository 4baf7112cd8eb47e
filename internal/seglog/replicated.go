package seglog

import (
	"encoding/binary"
	"sort"
)

// replicated is what a group has whose entries other members have, too: a hard state, entries that may be replaced, and
// entries that somebody still wants to read although a snapshot is above them. Guarded by Log.mu.
type replicated struct {
	hard place  // newest stable hard state; hard.seg is nil without one
	born uint64 // sequence of the frame that held it first

	// tail says more of the tail's entries, and carried are the ids of their items: what dies when an entry is replaced.
	tail    []tailEntry
	carried []Range
	again   bool // ids may come again with other bytes; of two items with one id the newer one counts

	keep uint64  // entries above it stay readable (KeepTail); 0: no wish
	kept []place // of those at or below the snapshot, dense up to it

	snapTerm uint64 // recovery without a checkpoint: of the snapshot
}

// tailEntry is the term of an entry, and how many of replicated.carried are its ids.
type tailEntry struct {
	term   uint64
	ranges uint32
}

// replicate makes a group a replicated one.
func (g *group) replicate() *replicated {
	if g.repl == nil {
		g.repl = &replicated{}
		if n := len(g.tail); n > 0 { // what they carry is not known: SetLive settles it at the next start
			g.repl.tail = make([]tailEntry, n)
		}
	}
	return g.repl
}

// makeWay prepares a group for a record about to be entered: what it replaces dies before its items come. Records of groups
// that are not replicated need it only where an index steps back.
func (l *Log) makeWay(g *group, kind Kind, index uint64) {
	g.replicate()
	switch kind {
	case KindEntry:
		l.replaceFrom(g, index, index)
	case KindInstall: // the new state may have items of entries below it
		l.replaceFrom(g, 0, index+1)
		l.unkeep(g, ^uint64(0))
		g.lastIndex, g.repl.again = index, true
	case KindItems:
		g.repl.again = true
	}
}

// replaceFrom takes the entries at and above index out of the tail. The items of those at and above dead die with them: nobody
// settles them, for an entry that is replaced was never agreed on.
func (l *Log) replaceFrom(g *group, index, dead uint64) {
	r := g.repl
	for n := len(g.tail); n > 0 && g.tail[n-1].index >= index; n-- {
		p := g.tail[n-1]
		l.untail(g, p)
		g.tail = g.tail[:n-1]
		r.again = true
		at := len(r.carried) - int(r.tail[n-1].ranges)
		for _, ids := range r.carried[at:] {
			if p.index >= dead {
				l.releaseRange(g, ids)
			}
		}
		r.tail, r.carried = r.tail[:n-1], r.carried[:at]
	}
}

// termFits tells whether a snapshot may have this term: that of its entry, as far as it is known.
func (g *group) termFits(index, term uint64) bool {
	i := sort.Search(len(g.tail), func(i int) bool { return g.tail[i].index >= index })
	if i == len(g.tail) || g.tail[i].index != index {
		return true
	}
	known := g.repl.tail[i].term
	return known == 0 || known == term
}

// carryBlocks notes the term of the newest entry of the tail, and what it carries.
func (r *replicated) carryBlocks(term uint64, blocks []Block) {
	n := uint32(0)
	for i := range blocks {
		if b := &blocks[i]; len(b.Items) > 0 {
			r.carried = append(r.carried, Range{b.First, b.First + uint64(len(b.Items)) - 1})
			n++
		}
	}
	r.tail = append(r.tail, tailEntry{term, n})
}

// carryRanges is the same for an entry read back.
func (r *replicated) carryRanges(term uint64, ids []Range) {
	r.carried = append(r.carried, ids...)
	r.tail = append(r.tail, tailEntry{term, uint32(len(ids))})
}

// uncarry forgets what the first n entries of the tail carry.
func (r *replicated) uncarry(n int) {
	if n == 0 {
		return
	}
	k := 0
	for _, e := range r.tail[:n] {
		k += int(e.ranges)
	}
	r.tail = append(r.tail[:0], r.tail[n:]...)
	r.carried = append(r.carried[:0], r.carried[k:]...)
	if len(r.tail) == 0 && cap(r.tail) > 64 {
		r.tail, r.carried = nil, nil
	}
}

// What a checkpoint says of a group:
//
//	replicated := 0 | flags, hard state?, keep, kept, { term, number of ranges { first, last - first }* }* for each entry of the tail
//	hard state := segment id, offset, length, index, born
const (
	replFlag      = 1
	replFlagHard  = 2
	replFlagAgain = 4
)

func (r *replicated) append(buf []byte) []byte {
	u := binary.AppendUvarint
	if r == nil {
		return u(buf, 0)
	}
	flags := uint64(replFlag)
	if r.hard.seg != nil {
		flags |= replFlagHard
	}
	if r.again {
		flags |= replFlagAgain
	}
	buf = u(buf, flags)
	if h := r.hard; h.seg != nil {
		buf = u(u(u(u(u(buf, uint64(h.seg.id)), uint64(h.off)), uint64(h.length)), h.index), r.born)
	}
	buf = appendPlaces(u(buf, r.keep), r.kept)
	at := 0
	for _, e := range r.tail {
		buf = u(u(buf, e.term), uint64(e.ranges))
		for _, ids := range r.carried[at : at+int(e.ranges)] {
			buf = u(u(buf, ids.First), ids.Last-ids.First)
		}
		at += int(e.ranges)
	}
	return buf
}

func (c *loaded) parseReplicated(d *decoder, tail int) *replicated {
	flags := d.u()
	if flags == 0 {
		return nil
	}
	r := &replicated{again: flags&replFlagAgain != 0}
	if flags&replFlagHard != 0 {
		r.hard = place{seg: c.seg(d), off: d.u32(), length: d.u32(), index: d.u()}
		r.born = d.u()
		r.hard.seg.snaps++
		r.hard.seg.liveBytes += int64(r.hard.length)
	}
	r.keep = d.u()
	r.kept, _ = c.places(d)
	for _, p := range r.kept {
		p.seg.kept++
	}
	for i := 0; i < tail && !d.bad; i++ {
		e := tailEntry{term: d.u(), ranges: uint32(d.count())}
		r.tail = append(r.tail, e)
		for range e.ranges {
			ids := Range{First: d.u()}
			if ids.Last = ids.First + d.u(); ids.Last < ids.First {
				d.bad = true
			}
			r.carried = append(r.carried, ids)
		}
	}
	return r
}

// loseEntries takes the entries in a lost segment out of the books, and tells whether one of them is still needed.
func (g *group) loseEntries(s *segment) (gone bool) {
	tail := g.tail
	g.tail = g.tail[:0]
	var ids []Range
	if g.repl != nil {
		kept := g.repl.kept
		for i, p := range kept { // only what is dense up to the snapshot is any good
			if p.seg == s {
				g.repl.kept = kept[i+1:]
			}
		}
		for _, p := range kept[:len(kept)-len(g.repl.kept)] {
			p.seg.kept--
			p.seg.tails--
			p.seg.liveBytes -= int64(p.length)
		}
		ids, g.repl.carried = g.repl.carried, nil
	}
	for i, p := range tail {
		var e tailEntry
		if g.repl != nil {
			e = g.repl.tail[i]
		}
		if p.seg == s {
			gone = true
		} else {
			if g.repl != nil {
				g.repl.tail[len(g.tail)] = e
				g.repl.carried = append(g.repl.carried, ids[:e.ranges]...)
			}
			g.tail = append(g.tail, p)
		}
		ids = ids[e.ranges:]
	}
	if g.repl != nil {
		g.repl.tail = g.repl.tail[:len(g.tail)]
	}
	return gone
}

// applyHardState notes a stable hard state; one older than what is known, as a copy may be, is dead on arrival.
func (l *Log) applyHardState(g *group, p place, born uint64) {
	r := g.replicate()
	if r.hard.seg != nil && born < r.born {
		return
	}
	l.movePlace(&r.hard, p)
	r.born = born
}

// keepEntry makes an entry of the tail a kept one; the caller takes it out of the tail.
func (l *Log) keepEntry(g *group, p place) {
	g.tailBytes -= int64(p.length)
	p.seg.kept++
	g.repl.kept = append(g.repl.kept, p)
}

// unkeep lets go of the kept entries at and below index.
func (l *Log) unkeep(g *group, index uint64) {
	r := g.repl
	n := 0
	for n < len(r.kept) && r.kept[n].index <= index {
		p := r.kept[n]
		p.seg.kept--
		p.seg.tails--
		p.seg.liveBytes -= int64(p.length)
		n++
	}
	if n > 0 {
		r.kept = append(r.kept[:0], r.kept[n:]...)
	}
	if len(r.kept) == 0 && cap(r.kept) > 64 {
		r.kept = nil
	}
}

// KeepTail says that entries above index are to stay readable (ReadEntry) even when a snapshot above them is stable, because
// a member is away and will want them; 0: nobody does. What an earlier snapshot has let go of does not come back. The
// segments they lie in count as live, whole. The wish lasts until the next one, usually over a restart, too: say it anew then.
func (l *Log) KeepTail(gid GroupID, index uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := l.groups[gid]
	if g == nil && index > 0 {
		g = l.group(gid)
	}
	if g == nil || g.repl == nil && index == 0 {
		return
	}
	r := g.replicate()
	if r.keep == index {
		return
	}
	r.keep, l.changed = index, true
	if index == 0 {
		index = ^uint64(0)
	}
	l.unkeep(g, index)
}

// entryAt is where the entry with this index is, above the snapshot or kept below it. l.mu is held.
func (g *group) entryAt(index uint64) (p place, kept bool, err error) {
	if g == nil || index > g.lastIndex {
		return place{}, false, ErrUnavailable
	}
	if p, ok := searchPlace(g.tail, index); ok {
		return p, false, nil
	}
	if g.repl != nil {
		if p, ok := searchPlace(g.repl.kept, index); ok {
			return p, true, nil
		}
	}
	return place{}, false, ErrCompacted
}

func searchPlace(list []place, index uint64) (place, bool) {
	i := sort.Search(len(list), func(i int) bool { return list[i].index >= index })
	if i == len(list) || list[i].index != index {
		return place{}, false
	}
	return list[i], true
}
