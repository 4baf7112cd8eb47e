package seglog

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"time"

	"holdfast/internal/vfs"
)

// Rewriting: survivors of a mostly dead segment are copied, group by group, into the cold segment, so that the file comes
// back. Only what is stable and snapshotted is ever moved: items (immutable, each valid wherever it lies), the newest
// snapshots and hard states; entries never are: above a snapshot their group is asked for one instead, and those kept below it
// make their segment wait. The index turns to the copies
// when they are durable; the old segment goes when a durable checkpoint no longer names it. A crash in between leaves copies
// nobody knows of, and the checkpoint still names the originals.

// coldWriter builds the frames of the cold segment. It belongs to the keeper.
type coldWriter struct {
	buf   []byte
	recs  []Record
	moved []movedRecord
	bytes int // of records
	// tables is an upper bound of what the records add to the segment's entry tables.
	tables int

	seq   uint64 // of the log when bytes were last counted from zero
	spent int64  // bytes copied since
}

// movedRecord is one record of the frame being built: items of a run, or a group's snapshot or hard state.
type movedRecord struct {
	r    *run   // items; nil for the others
	g    *group // of the others
	hard bool   // the hard state
	from place  // where it was
	raw  []byte // the record as it was
}

// at is where the group says that the snapshot or hard state is. Log.mu is held.
func (m *movedRecord) at() *place {
	if m.hard {
		return &m.g.repl.hard
	}
	return &m.g.snap
}

// rewriteRate is how many bytes a second are copied when there is no hurry.
const rewriteRate = 64 << 20

// liveRecordMax is how large a record of survivors becomes; small enough that a cold segment is filled to its end.
func (l *Log) liveRecordMax() int { return min(256<<10, l.o.FrameMax/4) }

// rewriteStep moves the survivors of one segment if the files take more than they may, and tells whether it did.
func (l *Log) rewriteStep(now int64) bool {
	held := l.hold()
	victim, ask := l.chooseVictim(now)
	l.letGo(held)
	l.askFor(ask)
	if victim == nil {
		return false
	}
	before := l.stats.rewritten.Load()
	err := l.rewrite(victim)
	if errors.Is(err, errNoCold) || errors.Is(err, errClosing) || errors.Is(err, errAsked) {
		return false
	}
	if err != nil {
		return l.keep(err)
	}
	l.stats.rewrittenSegs.Add(1)
	l.log.Debug("segment rewritten", "segment", segmentName(victim.id), "bytes", l.stats.rewritten.Load()-before)
	return true
}

// chooseVictim is the sealed segment with the least worth keeping per byte of file, if the bound asks for one, or the alarm. Groups whose
// entries stand in the way of a good one are to be asked for snapshots.
func (l *Log) chooseVictim(now int64) (victim *segment, ask []GroupID) {
	total, live, aim, _ := l.spaceState()
	if total <= aim && !l.alarmOn || !l.kee.cold.may(l.seq, 2*live+spareSegments*l.target) {
		return nil, nil
	}
	var waiting []*segment
	for _, s := range l.segs {
		if s.stuck && s.tails == 0 && s.pins == 0 {
			s.stuck = false
		}
		if s.state != segSealed || s.stuck || s.kept > 0 || s.empty() || 2*s.liveBytes >= s.size || !s.footer && !s.tablesStay || !l.roomForSurvivors(s) {
			continue
		}
		if s.tails > 0 {
			waiting = append(waiting, s)
		} else if victim == nil || better(s, victim) {
			victim = s
		}
	}
	if len(waiting) == 0 {
		return victim, nil
	}
	for _, g := range l.list {
		deaf := g.hit != "" || g.asked >= deafAfter
		for _, p := range g.tail {
			if p.seg.state == segActive {
				break // all that comes behind is there, too
			}
			if slices.Contains(waiting, p.seg) {
				if deaf {
					p.seg.stuck = true
				}
				ask = l.ask(ask, g, now)
				break
			}
		}
	}
	return victim, ask
}

// roomForSurvivors tells whether what lives in a segment can be copied: when no segment can be made, the rewriter must not use up
// the room there is for half of what it would have to copy, after which nothing came back.
func (l *Log) roomForSurvivors(s *segment) bool {
	if l.noSpace == "" {
		return true
	}
	records := int64(len(s.runs) + s.snaps)
	tables := int64(s.items)*tableEntryMax + records*tableHeadMax
	body := s.liveBytes + int64(s.items)*(4+blockSize) + records*(recordHead+8)
	frames := body/int64(l.o.FrameMax-l.liveRecordMax()) + 1
	size := alignPage64(body + frames*headSize)
	if frames > 1 {
		size += frames * pageSize
	}
	var room int64 // of an open cold segment, which is filled first
	if l.cold != nil {
		if room = l.cold.room(int(tables)); room >= size {
			return true
		}
		room = max(0, room-int64(l.o.FrameMax))
	}
	need := size + pageSize + footerRoom(int(tables))
	for _, free := range l.pool {
		if room+free.size >= need {
			return true
		}
	}
	return room+int64(l.free) >= need
}

// may tells whether copying is still worth it: in a log in which nothing happens, a bounded amount must do.
func (c *coldWriter) may(seq uint64, most int64) bool {
	if seq != c.seq {
		c.seq, c.spent = seq, 0
	}
	return c.spent < most
}

func better(a, b *segment) bool {
	x, y := float64(a.liveBytes)/float64(a.size), float64(b.liveBytes)/float64(b.size)
	return x < y || x == y && a.gen < b.gen
}

var (
	errNoCold  = errors.New("no room for a cold segment")
	errClosing = errors.New("the log is closing")
	errAsked   = errors.New("a group was asked for a new snapshot")
)

// rewrite copies what lives in the victim.
func (l *Log) rewrite(victim *segment) error {
	held := l.hold()
	var runs []*run
	for _, r := range victim.runs {
		if r.live.n > 0 {
			runs = append(runs, r)
		}
	}
	var snaps []movedRecord
	if victim.snaps > 0 {
		for _, g := range l.list {
			if g.snap.seg == victim {
				snaps = append(snaps, movedRecord{g: g, from: g.snap})
			}
			if g.repl != nil && g.repl.hard.seg == victim {
				snaps = append(snaps, movedRecord{g: g, from: g.repl.hard, hard: true})
			}
		}
	}
	l.letGo(held)
	sort.Slice(runs, func(i, j int) bool {
		return runs[i].g.id < runs[j].g.id || runs[i].g == runs[j].g && runs[i].first < runs[j].first
	})
	sort.Slice(snaps, func(i, j int) bool { return snaps[i].from.off < snaps[j].from.off })
	asked := false
	for _, m := range snaps {
		err := l.moveSnapshotRecord(m)
		if err != nil && !errors.Is(err, errAsked) {
			return err
		}
		asked = asked || err != nil
	}
	for _, r := range runs {
		if err := l.moveRun(r); err != nil {
			return err
		}
	}
	if err := l.flushCold(); err != nil || !asked {
		return err
	}
	return errAsked
}

// moveSnapshotRecord puts a copy of a snapshot or hard state into the cold frame. A damaged snapshot is no loss as long as its
// group runs: it is asked for another, and only one that does not answer is quarantined.
func (l *Log) moveSnapshotRecord(m movedRecord) error {
	raw, rec, err := new(window).record(m.from.seg, m.from.off)
	if err == nil && (rec.group != m.g.id || rec.snapshot() == m.hard || rec.kind == KindEntry) {
		err = fmt.Errorf("another record where it was")
	}
	if err != nil {
		what := "hard state"
		if !m.hard {
			what = "snapshot"
			if l.askAnew(m, err) {
				return errAsked
			}
		}
		l.unreadable(m.from.seg, m.g.id, fmt.Errorf("%s: %w", what, err))
		return nil
	}
	m.raw = raw
	return l.addCold(m, Record{}, rec.length)
}

// askAnew asks for a snapshot in place of one that cannot be read; false if nobody answers for the group.
func (l *Log) askAnew(m movedRecord, err error) bool {
	l.mu.Lock()
	g := m.g
	if g.dropped || g.snap != m.from { // it is no longer needed
		l.mu.Unlock()
		return true
	}
	if g.hit != "" || g.asked >= deafAfter {
		l.mu.Unlock()
		return false
	}
	ask := l.ask(nil, g, l.o.Clock.Mono())
	l.mu.Unlock()
	if len(ask) > 0 {
		l.log.Error("a snapshot is damaged, the group is asked for a new one", "segment", segmentName(m.from.seg.id), "group", uint64(g.id),
			"error", err)
	}
	l.askFor(ask)
	return true
}

// moveRun puts copies of a run's live items into cold frames.
func (l *Log) moveRun(r *run) error {
	live := l.liveRanges(r)
	entries, err := l.entriesOf(r)
	if err != nil {
		l.unreadable(r.seg, r.g.id, err)
		return nil
	}
	out := Record{Group: r.g.id, Kind: kindLive}
	var w window
	size, most := 0, l.liveRecordMax()
	put := func() error {
		if len(out.Blocks) == 0 {
			return nil
		}
		rec := out
		out.Blocks, size = nil, 0
		return l.addCold(movedRecord{r: r}, rec, 0)
	}
	missing := uint64(0)
	for _, ids := range live {
		missing += ids.Last - ids.First + 1
	}
	for _, e := range entries {
		want := overlap(live, e.first, e.first+uint64(e.count)-1)
		if len(want) == 0 {
			continue
		}
		for _, ids := range want {
			missing -= ids.Last - ids.First + 1
		}
		_, rec, err := w.record(r.seg, e.off)
		if err == nil && rec.group != r.g.id {
			err = errors.New("a record of another group")
		}
		if err != nil {
			l.unreadable(r.seg, r.g.id, err)
			continue
		}
		for _, ids := range want {
			b := Block{First: ids.First}
			for id := ids.First; id <= ids.Last; id++ {
				item, ok := rec.find(id)
				if !ok {
					l.unreadable(r.seg, r.g.id, fmt.Errorf("item %d is not in its record", id))
					continue
				}
				if size > 0 && size+len(item) > most {
					if len(b.Items) > 0 {
						out.Blocks = append(out.Blocks, b)
					}
					b = Block{First: id}
					if err := put(); err != nil {
						return err
					}
				}
				b.Items = append(b.Items, item)
				size += len(item) + 4
			}
			if len(b.Items) > 0 {
				out.Blocks = append(out.Blocks, b)
			}
		}
	}
	if missing > 0 { // the table was made anew from the frames that are left
		l.unreadable(r.seg, r.g.id, fmt.Errorf("%d items are in none of its records", missing))
	}
	return put()
}

// unreadable quarantines a group for what could not be read, and keeps the segment as it is.
func (l *Log) unreadable(s *segment, g GroupID, err error) {
	l.mu.Lock()
	s.stuck = true
	s.pins++ // for ever: it must not be recycled, its bytes are the evidence
	l.mu.Unlock()
	l.hitWhileRunning(g, fmt.Sprintf("%s: %v", segmentName(s.id), err))
}

// addCold adds a record to the cold frame, which is flushed when it has grown to a frame's size.
func (l *Log) addCold(m movedRecord, rec Record, size int) error {
	c := &l.kee.cold
	if m.raw == nil {
		size, _ = recordSize(&rec)
	}
	tables := len(rec.Blocks) * (tableEntryMax + tableHeadMax)
	if len(c.moved) > 0 && (c.bytes+align8(size) > l.o.FrameMax || !l.fitsCold(c.bytes+align8(size), c.tables+tables)) {
		if err := l.flushCold(); err != nil {
			return err
		}
	}
	c.moved, c.recs = append(c.moved, m), append(c.recs, rec)
	c.bytes += align8(size)
	c.tables += tables
	return nil
}

// fitsCold tells whether a frame with so many bytes of records still fits the cold segment. Without one it will.
func (l *Log) fitsCold(body, tables int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cold == nil || l.cold.room(tables) >= alignPage64(int64(headSize+body))
}

// flushCold writes the cold frame, syncs it, and turns the index to the copies.
func (l *Log) flushCold() error {
	c := &l.kee.cold
	if l.closing.Load() {
		return errClosing // what was not copied yet stays where it is
	}
	defer func() {
		clear(c.moved)
		clear(c.recs)
		c.moved, c.recs, c.bytes, c.tables = c.moved[:0], c.recs[:0], 0, 0
	}()
	if len(c.moved) == 0 {
		return nil
	}
	tables := c.tables
	seg, err := l.coldFor(alignPage64(headSize+int64(c.bytes)), tables)
	if err != nil {
		return err
	}
	began := l.o.Clock.Mono()
	buf, at := l.encodeCold(seg)
	l.kee.pause()
	if err := l.writeCold(seg, buf); err != nil {
		return err
	}
	l.turnToCopies(seg, buf, at)
	l.times.rewrite.since(began, l.o.Clock.Mono())
	l.rest(min(len(buf), coldPiece))
	return nil
}

// rest holds the rewriter back, so that commits find the disk free, unless the files take more than they may.
func (l *Log) rest(written int) {
	if l.noLoop {
		return
	}
	l.mu.Lock()
	total, _, _, limit := l.spaceState()
	hurry := total > limit || l.alarmOn
	l.mu.Unlock()
	if hurry {
		return
	}
	l.o.Clock.Rest(time.Duration(int64(written)*int64(time.Second)/rewriteRate), l.stop)
}

// encodeCold builds the frame and says where its records lie in the segment.
func (l *Log) encodeCold(seg *segment) ([]byte, []recordAt) {
	c := &l.kee.cold
	buf, _ := openFrame(c.buf[:0], nil)
	at := make([]recordAt, len(c.moved))
	for i := range c.moved {
		off := uint32(seg.end) + uint32(len(buf))
		if raw := c.moved[i].raw; raw != nil {
			buf = append(buf, raw...)
			buf = zeroPad(buf, align8(len(buf)))
			at[i] = recordAt{off, uint32(len(raw)), c.moved[i].from.length}
			continue
		}
		var length, overhead int
		buf, length, overhead = appendRecord(buf, &c.recs[i], 0)
		at[i] = recordAt{off, uint32(length), uint32(overhead)}
	}
	buf = l.sealColdFrame(seg, buf, len(c.moved))
	if c.buf = buf[:0]; cap(buf) > 8<<20 { // a large snapshot is among them
		c.buf = nil
	}
	return buf, at
}

// turnToCopies makes the index point to the copies just synced, for what is still needed.
func (l *Log) turnToCopies(seg *segment, buf []byte, at []recordAt) {
	c := &l.kee.cold
	defer l.letGo(l.hold())
	seg.advance(len(buf))
	l.changed = true
	l.stats.rewritten.Add(uint64(len(buf)))
	c.spent += int64(len(buf))
	for i, m := range c.moved {
		if m.raw != nil {
			if !m.g.dropped && *m.at() == m.from {
				l.movePlace(m.at(), place{m.from.index, seg, at[i].off, m.from.length})
			}
			continue
		}
		if m.r.g.dropped {
			continue
		}
		l.turnItems(seg, m.r, &c.recs[i], at[i])
	}
}

// turnItems moves liveness from the old run to the copies of one record.
func (l *Log) turnItems(seg *segment, old *run, rec *Record, at recordAt) {
	g := old.g
	for _, b := range rec.Blocks {
		last := b.First + uint64(len(b.Items)) - 1
		var bytes int64
		lo, hi := ^uint32(0), uint32(0)
		for _, it := range b.Items {
			bytes += int64(len(it))
			lo, hi = min(lo, uint32(len(it))), max(hi, uint32(len(it)))
		}
		next := b.First
		var settled []Range // died while the copy was made
		old.live.eachIn(b.First, last, func(first, end uint64) {
			if first > next {
				settled = append(settled, Range{next, first - 1})
			}
			next = end + 1
		})
		if next <= last {
			settled = append(settled, Range{next, last})
		}
		l.removeLive(old, b.First, last)
		r := l.addItems(g, seg, &g.cold, b.First, len(b.Items), at.off, bytes, lo, hi)
		for _, s := range settled {
			l.removeLive(r, s.First, s.Last)
		}
	}
	g.forget()
}

// openCold begins a new cold segment in place of the one there is: its header is written with the first frame's sync.
func (l *Log) openCold(need int64) (*segment, error) {
	seg := l.takeFree(need, segmentCold)
	if seg == nil {
		return nil, errNoCold
	}
	l.mu.Lock()
	seg.kind, seg.gen, seg.openedAt = segmentCold, l.nextGen(), l.o.Clock.Mono()
	l.mu.Unlock()
	buf, _ := openFrame(nil, nil)
	buf = segmentHeader{kind: segmentCold, size: seg.size}.append(buf)
	buf = sealFrame(buf, 0, head{gen: seg.gen, seq: 1, kind: frameHeader, stamp: l.o.Clock.Now().UnixNano()})
	if _, err := seg.file.WriteAt(buf, 0); err != nil {
		return nil, fmt.Errorf("header of %s: %w", segmentName(seg.id), err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cold != nil {
		l.sealCold()
	}
	seg.state, seg.firstSeq, seg.lastSeq = segActive, 1, 1
	seg.end = int64(len(buf))
	seg.stable = seg.end
	l.segs[seg.id], l.cold = seg, seg
	return seg, nil
}

// sealCold ends the active cold segment.
func (l *Log) sealCold() {
	l.cold.state = segSealed
	l.cold = nil
	l.changed = true
}

// liveRanges copies the live ids of a run.
func (l *Log) liveRanges(r *run) []Range {
	defer l.letGo(l.hold())
	var out []Range
	r.live.each(func(first, last uint64) {
		if n := len(out); n > 0 && out[n-1].Last+1 == first {
			out[n-1].Last = last
		} else {
			out = append(out, Range{first, last})
		}
	})
	return out
}

// overlap is the part of ascending ranges within first..last.
func overlap(ranges []Range, first, last uint64) []Range {
	i := sort.Search(len(ranges), func(i int) bool { return ranges[i].Last >= first })
	var out []Range
	for ; i < len(ranges) && ranges[i].First <= last; i++ {
		out = append(out, Range{max(ranges[i].First, first), min(ranges[i].Last, last)})
	}
	return out
}

// readSizes reads the sizes of an entry's items without reading them.
func readSizes(f vfs.File, e entry) ([]uint32, error) {
	var hd [recordHead]byte
	if _, err := f.ReadAt(hd[:], int64(e.off)); err != nil {
		return nil, err
	}
	hlen, nb, ni := int64(le.Uint16(hd[10:])), int64(le.Uint32(hd[12:])), int64(le.Uint32(hd[52:]))
	if hlen < recordHead || nb*blockSize+ni*4 > int64(le.Uint32(hd[:])) {
		return nil, errors.New("record: damaged")
	}
	p := make([]byte, nb*blockSize+ni*4)
	if _, err := f.ReadAt(p, int64(e.off)+hlen); err != nil {
		return nil, err
	}
	r := record{blocks: p[:nb*blockSize], ends: p[nb*blockSize:]}
	sizes := make([]uint32, e.count)
	k := 0
	for i := range r.numBlocks() {
		first, n := r.block(i)
		for j := range n {
			if id := first + uint64(j); id >= e.first && id-e.first < uint64(e.count) && k < int(ni) {
				start := uint32(0)
				if k > 0 {
					start = le.Uint32(r.ends[(k-1)*4:])
				}
				sizes[id-e.first] = le.Uint32(r.ends[k*4:]) - start
			}
			k++
		}
	}
	return sizes, nil
}
