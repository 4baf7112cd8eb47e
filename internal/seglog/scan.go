package seglog

import (
	"bytes"
	"cmp"
	"container/heap"
	"fmt"
	"io"
	"slices"

	"holdfast/internal/planted"
	"holdfast/internal/vfs"
)

// frameReader reads a segment front to back in large aligned steps. What cannot be read counts as zeros: a bad sector is
// damage like any other.
type frameReader struct {
	file vfs.File
	size int64
	off  int64 // of buf
	buf  []byte
}

const scanStep = 4 << 20

// at returns n bytes from off on, fewer at the end of the file.
func (r *frameReader) at(off int64, n int) []byte {
	if off >= r.size {
		return nil
	}
	n = int(min(int64(n), r.size-off))
	if off < r.off || off+int64(n) > r.off+int64(len(r.buf)) {
		r.read(off, n)
	}
	p := r.buf[off-r.off:]
	return p[:min(n, len(p))]
}

func (r *frameReader) read(off int64, n int) {
	want := int(min(int64(alignPage(max(n, scanStep))), r.size-off))
	if cap(r.buf) < want {
		r.buf = vfs.AlignedBuffer(alignPage(want))
	}
	r.buf = r.buf[:want]
	r.off = off
	if got, err := r.file.ReadAt(r.buf, off); err != nil && err != io.EOF && got < len(r.buf) {
		clear(r.buf[got:])
		for at := 0; at < len(r.buf); at += pageSize { // page by page around the bad ones
			page := r.buf[at:min(at+pageSize, len(r.buf))]
			if got, err := r.file.ReadAt(page, off+int64(at)); err != nil && got < len(page) {
				clear(page)
			}
		}
	}
}

// head returns the whole and fitting frame head at off, and its list.
func (r *frameReader) head(off int64, gen uint64) (h head, list []byte, ok bool) {
	h, list, err := parseHead(r.at(off, pageSize))
	if err == errShortBuf {
		h, list, err = parseHead(r.at(off, headSize+int(h.listLen)))
	}
	if err != nil || gen != 0 && h.gen != gen || int64(h.off) != off || off+h.bytes() > r.size {
		return h, nil, false
	}
	return h, list, true
}

// body returns the body of the frame with this head, and whether it is whole.
func (r *frameReader) body(off int64, h head) ([]byte, bool) {
	start := headSize + int(h.listLen)
	p := r.at(off, start+int(h.bodyLen))
	if len(p) < start+int(h.bodyLen) {
		return nil, false
	}
	p = p[start:]
	return p, checksum(p) == h.bodyCRC
}

// nextHead finds the first frame head of the generation at or after off whose sequence is at least seq: of a frame, or of the
// footer, whose sequence is that of the last frame.
func (r *frameReader) nextHead(off int64, gen, seq uint64) (head, bool) {
	for ; off < r.size; off += pageSize {
		if h, _, ok := r.head(off, gen); ok && h.seq >= seq && h.kind != frameHeader {
			return h, true
		}
	}
	return head{}, false
}

// maxSynced is the highest sequence that frames at or after off say was durable.
func (r *frameReader) maxSynced(off int64, gen uint64) uint64 {
	top := uint64(0)
	for off < r.size {
		h, _, ok := r.head(off, gen)
		if !ok {
			off += pageSize
			continue
		}
		top = max(top, h.synced)
		off += h.bytes()
	}
	return top
}

// eachRecord calls fn for the records of a body that are whole, up to the first that is not; damaged says that there is one.
func eachRecord(body []byte, fn func(off int, rec *record)) (damaged bool) {
	for off := 0; off < len(body); {
		rec, err := parseRecord(body[off:])
		if err != nil {
			return true
		}
		fn(off, &rec)
		off += align8(rec.length)
	}
	return false
}

// walk calls fn for every whole record of a segment between from and to, whatever is damaged in between.
func walk(file vfs.File, gen uint64, from, to int64, fn func(h head, off int64, rec *record)) error {
	size, err := file.Size()
	if err != nil {
		return err
	}
	r := &frameReader{file: file, size: min(size, to)}
	for off := from; off < r.size; {
		h, _, ok := r.head(off, gen)
		if !ok {
			off += pageSize
			continue
		}
		if h.kind == frameData {
			body, _ := r.body(off, h)
			start := off + headSize + int64(h.listLen)
			eachRecord(body, func(at int, rec *record) { fn(h, start+int64(at), rec) })
		}
		off += h.bytes()
	}
	return nil
}

// rebuildTable makes a run's table anew from its segment's frames.
func (l *Log) rebuildTable(r *run) ([]entry, error) {
	l.mu.Lock()
	to := r.seg.stable
	l.mu.Unlock()
	var entries []entry
	err := walk(r.seg.file, r.seg.gen, 0, to, func(_ head, off int64, rec *record) {
		if rec.group != r.g.id {
			return
		}
		for i := range rec.numBlocks() {
			first, n := rec.block(i)
			if n > 0 && first >= r.first && first+uint64(n)-1 <= r.last {
				entries = append(entries, entry{first, uint32(n), uint32(off)})
			}
		}
	})
	entries = untangled(entries)
	if err == nil && len(entries) == 0 {
		err = fmt.Errorf("%s: no record of run %d..%d is left", segmentName(r.seg.id), r.first, r.last)
	}
	return entries, err
}

// untangled sorts entries found in any order, as when runs of a segment reach into each other, and leaves each id in one: the
// one farthest back, for where an id came again the older item is dead.
func untangled(entries []entry) []entry {
	slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.first, b.first) })
	edges := make([]uint64, 0, 2*len(entries))
	for _, e := range entries {
		edges = append(edges, e.first, e.first+uint64(e.count))
	}
	slices.Sort(edges)
	edges = slices.Compact(edges)
	var out []entry
	var open farthest // entries that begin at or before the edge
	for i, at := range edges {
		for len(entries) > 0 && entries[0].first == at {
			heap.Push(&open, entries[0])
			entries = entries[1:]
		}
		for len(open) > 0 && open[0].first+uint64(open[0].count) <= at {
			heap.Pop(&open)
		}
		if len(open) == 0 {
			continue
		}
		n, off := uint32(edges[i+1]-at), open[0].off
		if k := len(out); k > 0 && out[k-1].off == off && out[k-1].first+uint64(out[k-1].count) == at {
			out[k-1].count += n
		} else {
			out = append(out, entry{at, n, off})
		}
	}
	return out
}

// farthest is a heap of entries, that of the farthest record on top.
type farthest []entry

func (f farthest) Len() int           { return len(f) }
func (f farthest) Less(i, j int) bool { return f[i].off > f[j].off }
func (f farthest) Swap(i, j int)      { f[i], f[j] = f[j], f[i] }
func (f *farthest) Push(x any)        { *f = append(*f, x.(entry)) }
func (f *farthest) Pop() any {
	e := (*f)[len(*f)-1]
	*f = (*f)[:len(*f)-1]
	return e
}

// hole is frames that were durable and cannot be read: first..last.
type hole struct {
	seg         uint32
	first, last uint64
}

// scanner replays the frames of hot segments into the index and tells a torn tail from corruption.
type scanner struct {
	l       *Log
	full    bool   // no checkpoint: segments before may have been recycled, gaps between segments mean nothing
	expect  uint64 // sequence of the next frame
	frames  int    // accepted, with records
	holes   []hole
	blind   uint64 // groups without a record after this sequence may have lost some
	check   bool   // the next list tells what the hole before it held
	whole   int    // how many records of the last frame of that hole are whole
	list    []byte // groups of the last frame with records
	got     replayStore
	witness testimony
	lost    map[GroupID]*lostRecords

	skipped bool               // with full: segments before this place were used again, and groups may lack entries
	dropped map[GroupID]uint64 // with full: groups that ended, and the sequence at which they did
}

// lostRecords is what of a group was in frames that are lost and may be made good by later records.
type lostRecords struct {
	hard   uint64 // a hard state, in the frame with this sequence
	snap   uint64 // a snapshot with this index
	reason string // where it was
}

// unknownList is the list of a frame of which nothing is known: it cannot be read, and so keeps the verdict for the next start.
var unknownList = bytes.Repeat([]byte{0xff}, 16)

// scan reads a segment from off on. limit is the last sequence that counts in it, as the next segment says; 0 if there is
// none. Behind the last frame that counts the segment is cut.
func (sc *scanner) scan(s *segment, file vfs.File, off int64, limit uint64) {
	r := &frameReader{file: file, size: s.size}
	for limit == 0 || sc.expect <= limit {
		h, list, ok := r.head(off, s.gen)
		if ok && h.kind == frameFooter && (limit == 0 || h.seq >= limit) && h.seq < sc.expect {
			break
		}
		ok = ok && h.seq == sc.expect && (h.kind == frameData || h.kind == frameMark || h.kind == frameHeader && off == 0)
		if ok {
			sc.checkList(list)
			body, whole := r.body(off, h)
			if planted.Is(planted.TailCutTooFar) && limit == 0 && h.kind == frameData && r.maxSynced(off, s.gen) < h.seq {
				break
			}
			if whole {
				sc.accept(s, off, h, body)
				off += h.bytes()
				continue
			}
		}
		durable := limit
		if durable == 0 {
			durable = max(r.maxSynced(off, s.gen), sc.witness.durable(s))
		}
		if durable < sc.expect {
			break // torn: it was never promised to anybody
		}
		if ok && h.kind != frameHeader {
			sc.salvage(s, r, off, h)
			off += h.bytes()
			continue
		}
		next, found := r.nextHead(off, s.gen, sc.expect) // behind a header, whole or not
		if !found || limit != 0 && next.seq > limit {
			if limit != 0 || !sc.listedHole(s, durable) {
				sc.hole(s, sc.expect, durable)
			}
			break
		}
		if off == 0 && next.seq == sc.expect+1 { // no record was in it
			sc.l.log.Error("corruption: the header of a segment cannot be read", "segment", segmentName(s.id))
			off, sc.expect = int64(next.off), next.seq
			continue
		}
		off = int64(next.off)
		if next.kind == frameFooter {
			if !sc.listedHole(s, next.seq) {
				sc.hole(s, sc.expect, next.seq)
			}
			if _, list, ok := r.head(off, s.gen); ok && len(list) > 0 {
				sc.checkList(list)
			}
			break
		}
		sc.hole(s, sc.expect, next.seq-1)
	}
	if limit == 0 {
		sc.askWitness(s)
	}
	s.end, s.stable, s.lastSeq = off, off, sc.expect-1
}

// accept enters a whole frame into the index.
func (sc *scanner) accept(s *segment, off int64, h head, body []byte) {
	sc.expect = h.seq + 1
	if h.kind != frameData {
		return
	}
	sc.frames++
	sc.list = sc.list[:0]
	start := off + headSize + int64(h.listLen)
	eachRecord(body, func(at int, rec *record) {
		sc.apply(s, h.seq, uint32(start+int64(at)), rec)
		sc.list = appendList(sc.list, &Record{Group: rec.group, Kind: rec.kind, Index: rec.index})
	})
}

// salvage enters what is whole of a damaged frame that was once durable. The next list tells whether that was all.
func (sc *scanner) salvage(s *segment, r *frameReader, off int64, h head) {
	body, _ := r.body(off, h)
	start := off + headSize + int64(h.listLen)
	whole := 0
	eachRecord(body, func(at int, rec *record) {
		sc.apply(s, h.seq, uint32(start+int64(at)), rec)
		whole++
	})
	sc.hole(s, h.seq, h.seq)
	sc.whole = whole
}

// listedHole notes that all frames up to the last one that was durable are lost, if the witness has their lists.
func (sc *scanner) listedHole(s *segment, last uint64) bool {
	lists := sc.witness.lists(s, sc.expect)
	if len(lists) == 0 || lists[len(lists)-1].seq != last {
		return false
	}
	for _, frame := range lists {
		sc.gap(s, sc.expect, frame.seq)
		sc.checkList(frame.list)
	}
	return true
}

// askWitness learns what the last hole held where no list has told.
func (sc *scanner) askWitness(s *segment) {
	if n := len(sc.holes); sc.check && n > 0 && sc.holes[n-1].seg == s.id {
		if list := sc.witness.listOf(s, sc.holes[n-1].last); len(list) > 0 {
			sc.checkList(list)
		}
	}
}

// hole notes lost frames. The frame that follows lists the groups of the last of them; the lists of the others are lost.
func (sc *scanner) hole(s *segment, first, last uint64) {
	sc.gap(s, first, last)
	if last > first {
		sc.blind = max(sc.blind, last)
	}
}

// gap notes lost frames, of which the last one is to be listed, and the others held nothing.
func (sc *scanner) gap(s *segment, first, last uint64) {
	if sc.askWitness(s); sc.check { // the list of what was lost before is lost with them
		sc.blind = max(sc.blind, first-1)
	}
	sc.holes = append(sc.holes, hole{s.id, first, last})
	sc.expect = last + 1
	sc.check, sc.whole = true, 0
	sc.list = append(sc.list[:0], unknownList...)
}

// checkList learns from the list of a frame what the lost one before it held. Of a damaged frame the first records are whole.
func (sc *scanner) checkList(list []byte) {
	if !sc.check {
		return
	}
	sc.check = false
	sc.list = append(sc.list[:0], list...)
	seq := sc.holes[len(sc.holes)-1].last
	n := 0
	err := eachListed(list, func(id GroupID, index uint64, what byte) {
		n++
		if g := sc.l.groups[id]; n <= sc.whole || g != nil && g.upTo >= seq { // what a checkpoint names is read when it is needed
			return
		}
		switch {
		case what&listEntry != 0:
			sc.hit(id, fmt.Sprintf("entry %d is lost", index))
		case what&listItems != 0:
			sc.hit(id, "items are lost")
		case what&listHardState != 0:
			sc.lose(id).hard = seq
		case what&listSnapshot != 0:
			sc.lose(id).snap = index
		}
	})
	if err != nil {
		sc.blind = max(sc.blind, sc.expect-1)
	}
}

func (sc *scanner) hit(id GroupID, reason string) { sc.hitFor(id, sc.where()+reason) }

func (sc *scanner) hitFor(id GroupID, reason string) {
	sc.l.group(id)
	sc.l.setHit(id, reason)
}

// where names the last hole.
func (sc *scanner) where() string {
	n := len(sc.holes)
	if n == 0 {
		return ""
	}
	h := sc.holes[n-1]
	return fmt.Sprintf("%s: frames %d to %d are damaged: ", segmentName(h.seg), h.first, h.last)
}

// lose notes that something of a group was in the last hole.
func (sc *scanner) lose(id GroupID) *lostRecords {
	if sc.lost == nil {
		sc.lost = map[GroupID]*lostRecords{}
	}
	if sc.lost[id] == nil {
		sc.lost[id] = &lostRecords{}
	}
	sc.lost[id].reason = sc.where()
	return sc.lost[id]
}

// apply enters one record.
func (sc *scanner) apply(s *segment, seq uint64, off uint32, rec *record) {
	l := sc.l
	if rec.kind == KindDrop {
		delete(sc.lost, rec.group)
		if sc.full {
			sc.dropped[rec.group] = seq
		}
	}
	g := l.groups[rec.group]
	fresh := g == nil
	if g != nil {
		g.lastSeq = seq
		if seq <= g.upTo {
			return
		}
	}
	if g == nil {
		if rec.kind == KindDrop {
			return
		}
		g = l.group(rec.group)
		g.lastSeq = seq
	}
	if len(sc.holes) > 0 && !sc.skipped {
		next := g.lastIndex + 1
		switch {
		case rec.kind == KindEntry && rec.index > next:
			sc.hit(rec.group, fmt.Sprintf("entries %d to %d are lost", next, rec.index-1))
		case rec.kind == KindSnapshot && rec.index >= next && !(fresh && rec.term > 0 && sc.blind == 0): // it has their effect, but not their items
			sc.hit(rec.group, fmt.Sprintf("entries %d to %d are lost", next, rec.index))
		}
	}
	p := place{index: rec.index, seg: s, off: off, length: uint32(rec.overhead())}
	old := rec.kind == KindEntry && g.snap.seg != nil && rec.index <= g.snap.index
	if (rec.term > 0 || rec.kind > KindDrop || rec.index <= g.lastIndex && rec.kind == KindEntry) && !old {
		sc.forgetReplaced(g, rec)
		l.makeWay(g, rec.kind, rec.index)
	}
	if g.repl != nil && (g.repl.again || sc.full) {
		for _, ids := range rec.ids() {
			l.releaseRange(g, ids)
		}
	}
	l.addRecordItems(g, s, &g.open, off, rec)
	switch rec.kind {
	case KindEntry:
		if old {
			return
		}
		if l.applyEntry(g, p); g.repl != nil {
			g.repl.carryRanges(rec.term, rec.ids())
		}
		sc.keep(p, rec)
	case KindHardState:
		if g.repl.hard.seg != nil {
			sc.got.drop(g.repl.hard)
		}
		l.applyHardState(g, p, rec.born)
		sc.keep(p, rec)
	case KindSnapshot, KindInstall:
		if g.snap.seg != nil {
			sc.got.drop(g.snap)
		}
		for _, t := range g.tail {
			if t.index <= p.index {
				sc.got.drop(t)
			}
		}
		l.applySnapshot(g, p)
		if g.snap == p {
			sc.keep(p, rec)
			if g.repl != nil {
				g.repl.snapTerm = rec.term
			}
		}
	case KindDrop:
		l.applyDrop(g)
	}
}

// forgetReplaced drops what a record replaces from what Replay hands back.
func (sc *scanner) forgetReplaced(g *group, rec *record) {
	from := rec.index
	switch rec.kind {
	case KindEntry:
	case KindInstall:
		from = 0
	default:
		return
	}
	for n := len(g.tail); n > 0 && g.tail[n-1].index >= from; n-- {
		sc.got.drop(g.tail[n-1])
	}
}

// keep copies what Replay will hand back.
func (sc *scanner) keep(p place, rec *record) { sc.got.put(p, rec) }

// replayStore holds, by place, the records Replay will hand back.
type replayStore struct {
	at   map[uint64]int32 // index in recs; without pointers, there may be millions
	recs []Replayed
	free []int32
}

func (p place) key() uint64 { return uint64(p.seg.id)<<32 | uint64(p.off) }

func (s *replayStore) put(p place, rec *record) {
	if s.at == nil {
		s.at = map[uint64]int32{}
	}
	r := replayedOf(rec)
	if n := len(s.free); n > 0 {
		s.recs[s.free[n-1]] = r
		s.at[p.key()] = s.free[n-1]
		s.free = s.free[:n-1]
		return
	}
	s.at[p.key()] = int32(len(s.recs))
	s.recs = append(s.recs, r)
}

func (s *replayStore) drop(p place) {
	if i, ok := s.at[p.key()]; ok {
		delete(s.at, p.key())
		s.recs[i] = Replayed{}
		s.free = append(s.free, i)
	}
}

func (s *replayStore) has(p place) bool {
	_, ok := s.at[p.key()]
	return ok
}

func (s *replayStore) get(p place) Replayed { return s.recs[s.at[p.key()]] }

func replayedOf(rec *record) Replayed {
	kind := rec.kind
	if kind == KindInstall {
		kind = KindSnapshot
	}
	return Replayed{
		Group: rec.group, Kind: kind, Term: rec.term, Index: rec.index, Time: rec.time,
		Meta: append([]byte(nil), rec.meta...), IDs: rec.ids(),
	}
}
