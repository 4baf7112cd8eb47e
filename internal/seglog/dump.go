package seglog

import (
	"fmt"
	"io"
	"slices"
	"time"
)

// Dump writes what the log holds in readable form: segments, frames and records from front to back, then the groups.
func (l *Log) Dump(w io.Writer) error {
	l.mu.Lock()
	var segs []*segment
	for _, s := range l.segs {
		segs = append(segs, s)
	}
	hits := l.hitList()
	free := len(l.pool)
	fmt.Fprintf(w, "log: sequence %d, %d groups, %d live items, %d free segments\n", l.seq, len(l.list), l.liveItems, free)
	l.mu.Unlock()
	slices.SortFunc(segs, func(a, b *segment) int {
		if a.kind != b.kind {
			return int(a.kind) - int(b.kind)
		}
		return int(int64(a.gen>>32) - int64(b.gen>>32))
	})
	for _, s := range segs {
		fmt.Fprintf(w, "segment %s: %s %s, %d bytes, sequence %d to %d, %d live items, %d snapshots, %d tail entries\n",
			segmentName(s.id), s.kind, s.state, s.size, s.firstSeq, s.lastSeq, s.items, s.snaps, s.tails)
		if err := l.dumpSegment(w, s); err != nil {
			return err
		}
	}
	l.dumpGroups(w)
	for _, h := range hits {
		fmt.Fprintf(w, "quarantined: group %d: %s\n", h.Group, h.Reason)
	}
	return nil
}

// dumpSegment writes the frames of one segment.
func (l *Log) dumpSegment(w io.Writer, s *segment) error {
	r := &frameReader{file: s.file, size: s.stable}
	for off := int64(0); off < r.size; {
		h, _, ok := r.head(off, s.gen)
		if !ok {
			fmt.Fprintf(w, "  %9d no frame\n", off)
			off += pageSize
			continue
		}
		fmt.Fprintf(w, "  %9d frame %d %s, %d records, %d bytes, synced %d, %s\n", off, h.seq, h.kind, h.records, h.bytes(), h.synced,
			time.Unix(0, h.stamp).UTC().Format(time.RFC3339Nano))
		if h.kind == frameData {
			body, whole := r.body(off, h)
			if !whole {
				fmt.Fprintf(w, "            damaged\n")
			}
			eachRecord(body, func(_ int, rec *record) {
				fmt.Fprintf(w, "            group %d %s %d (term %d), %d bytes", rec.group, rec.kind, rec.index, rec.term, len(rec.meta))
				for _, ids := range rec.ids() {
					fmt.Fprintf(w, ", items %d to %d", ids.First, ids.Last)
				}
				fmt.Fprintln(w)
			})
		}
		off += h.bytes()
	}
	return nil
}

func (k frameKind) String() string {
	return [...]string{"data", "header", "mark", "footer"}[k&3]
}

// dumpGroups writes what the index says of each group.
func (l *Log) dumpGroups(w io.Writer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, g := range l.byID() {
		fmt.Fprintf(w, "group %d: last index %d", g.id, g.lastIndex)
		if g.snap.seg != nil {
			fmt.Fprintf(w, ", snapshot %d in %s", g.snap.index, segmentName(g.snap.seg.id))
		}
		fmt.Fprintf(w, ", %d entries above", len(g.tail))
		if r := g.repl; r != nil {
			if r.hard.seg != nil {
				fmt.Fprintf(w, ", hard state of frame %d in %s", r.born, segmentName(r.hard.seg.id))
			}
			if len(r.kept) > 0 {
				fmt.Fprintf(w, ", entries from %d on kept", r.kept[0].index)
			}
		}
		fmt.Fprintln(w)
		for _, r := range g.runs {
			fmt.Fprintf(w, "  run %d to %d in %s: %d of %d items live\n", r.first, r.last, segmentName(r.seg.id), r.live.n, r.items)
		}
	}
}

// DumpGroup calls fn for every whole item of a group, quarantined or not, in the order they lie in the log. Items settled
// long ago may be among them; an id that lies twice is given once: a copy in a cold segment, which was agreed on, or the
// newest.
func (l *Log) DumpGroup(gid GroupID, fn func(id uint64, item []byte) error) error {
	l.mu.Lock()
	var segs []*segment
	for _, s := range l.segs {
		segs = append(segs, s)
	}
	l.mu.Unlock()
	slices.SortFunc(segs, func(a, b *segment) int {
		if a.kind != b.kind {
			return int(b.kind) - int(a.kind) // cold first: older
		}
		return int(int64(a.gen>>32) - int64(b.gen>>32))
	})
	best := map[uint64]place{}
	err := eachItem(segs, gid, func(id uint64, at place, _ []byte) error {
		if old, known := best[id]; !known || old.seg.kind == segmentHot {
			best[id] = at
		}
		return nil
	})
	if err != nil {
		return err
	}
	return eachItem(segs, gid, func(id uint64, at place, item []byte) error {
		if best[id] != at {
			return nil
		}
		return fn(id, item)
	})
}

// eachItem calls fn for every whole item of a group in these segments, until it fails.
func eachItem(segs []*segment, gid GroupID, fn func(id uint64, at place, item []byte) error) error {
	var failed error
	for _, s := range segs {
		err := walk(s.file, s.gen, 0, s.stable, func(_ head, off int64, rec *record) {
			if rec.group != gid {
				return
			}
			k := 0
			for i := range rec.numBlocks() {
				first, n := rec.block(i)
				for j := range n {
					if failed == nil {
						failed = fn(first+uint64(j), place{seg: s, off: uint32(off)}, rec.item(k+j))
					}
				}
				k += n
			}
		})
		if err == nil {
			err = failed
		}
		if err != nil {
			return err
		}
	}
	return nil
}
