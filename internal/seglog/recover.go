package seglog

import (
	"fmt"
	"maps"
	"slices"

	"holdfast/internal/vfs"
)

// Open reads the newest checkpoint, scans what was written after it and decides torn tail or corruption. It changes
// nothing but the durability of what it found.
func Open(fs vfs.FS, dir string, o Options) (*Log, error) {
	l := newLog(fs, dir, o)
	if err := l.open(); err != nil {
		l.closeFiles()
		return nil, fmt.Errorf("opening log %s: %w", dir, err)
	}
	return l, nil
}

func (l *Log) open() error {
	if !l.o.ReadOnly {
		if err := l.fs.MkdirAll(l.dir); err != nil {
			return err
		}
		lock, err := l.fs.Lock(l.path("LOCK"))
		if err != nil {
			return err
		}
		l.lock = lock
	}
	names, err := l.fs.List(l.dir)
	if err != nil {
		return err
	}
	ckpt, older, err := l.loadCheckpoint(names)
	if err != nil {
		return err
	}
	files, err := l.openFiles(names)
	if err != nil {
		return err
	}
	rc := &recovery{l: l, files: files, sc: scanner{l: l, witness: l.readWitness()}}
	w := &rc.sc.witness
	l.gen, l.nextID = max(l.gen, w.head.gen), max(l.nextID, w.header.id+1)
	if w.checkpoint > l.ckptNo {
		l.log.Error("the newest checkpoint is gone", "name", checkpointName(w.checkpoint))
		l.ckptNo, older = w.checkpoint, true
	}
	if older {
		rc.unread = l.ckptNo
	}
	l.witness.said = *w
	l.witness.checkpoint.Store(l.ckptNo)
	if ckpt != nil && (!older || rc.usable(ckpt)) {
		rc.newest = !older
		rc.fromCheckpoint(ckpt)
	} else {
		rc.fromFiles()
	}
	if err := rc.scanChain(); err != nil {
		return err
	}
	rc.judge()
	if err := rc.loadPlaces(); err != nil {
		return err
	}
	quiet := rc.sc.frames == 0 && len(rc.sc.holes) == 0 && len(rc.chain) == 0
	l.clean = quiet && !older && (ckpt == nil && len(rc.cold) == 0 || ckpt != nil && ckpt.clean)
	return rc.finish()
}

// recovery is the state of an Open.
type recovery struct {
	l       *Log
	files   map[uint32]*fileOnDisk
	sc      scanner
	cut     cut
	cutLost *segment // the one with the cut is gone, and the log may have gone on in it
	newest  bool     // recovering from the newest checkpoint there was
	unread  uint64   // the number of the newest checkpoint, if it is damaged or gone
	gen     uint64   // generations up to this one the checkpoint knew
	chain   []*fileOnDisk
	cold    []*fileOnDisk // without a checkpoint
	scanned []*segment
}

// fromCheckpoint takes over the index and finds the segments written since.
func (rc *recovery) fromCheckpoint(c *loaded) {
	l := rc.l
	l.groups, l.list, l.segs, l.liveItems = c.groups, c.list, c.segs, c.items
	l.gen, l.lastGen, l.nextID = max(l.gen, c.gen), c.lastGen, max(l.nextID, c.nextID)
	rc.cut, rc.gen = c.cut, c.gen
	rc.sc.expect = c.cut.seq + 1
	for _, h := range c.hits {
		l.setHit(h.Group, h.Reason)
	}
	for id, s := range c.segs {
		f := rc.files[id]
		if f == nil || f.size < s.stable || f.ok && f.head.gen != s.gen {
			rc.lost(s, f, c.clean)
			continue
		}
		f.claimed = true
		s.file, s.size = f.file, min(s.size, f.size) // it may have been shortened since
		switch {
		case s.kind == segmentCold && s.state == segActive:
			l.cold = s
		case id == c.cut.id: // scanned from the cut on, even if the cut is its beginning
		case s.kind == segmentHot && s.firstSeq > c.cut.seq: // begun while the checkpoint was encoded
			if !f.ok {
				f.damaged = true
				f.head = head{gen: s.gen, seq: s.firstSeq}
				f.header = segmentHeader{kind: segmentHot, prevLast: s.firstSeq - 1}
			}
			rc.chain = append(rc.chain, f)
		}
	}
	for _, f := range rc.sorted() {
		if f.claimed {
			continue
		}
		if !f.ok {
			rc.probe(f)
		}
		if (f.ok || f.damaged) && f.header.kind == segmentHot && f.head.seq > c.cut.seq {
			f.claimed = true
			rc.chain = append(rc.chain, f)
		}
	}
	rc.sortChain()
	rc.findWitnessed()
}

func (rc *recovery) sortChain() {
	slices.SortFunc(rc.chain, func(a, b *fileOnDisk) int {
		if a.head.seq < b.head.seq {
			return -1
		}
		return 1
	})
}

// lost takes a segment that the checkpoint names and that is not there any more out of the index, and quarantines the
// groups that had anything in it. After a clean stop nothing was in it that the checkpoint does not know of.
func (rc *recovery) lost(s *segment, f *fileOnDisk, clean bool) {
	l := rc.l
	why := "is missing"
	if f != nil {
		why = "was overwritten or cut short"
		f.claimed = f.size < s.stable // kept as it is, for salvage
	}
	reason := fmt.Sprintf("%s %s", segmentName(s.id), why)
	for _, g := range l.list {
		gone := g.snap.seg == s
		if gone {
			g.snap = place{}
		}
		if g.repl != nil && g.repl.hard.seg == s {
			g.repl.hard, gone = place{}, true
		}
		gone = g.loseEntries(s) || gone
		keptRuns := g.runs[:0]
		for _, r := range g.runs {
			if r.seg == s {
				gone = true
				l.liveItems -= int64(r.live.n)
			} else {
				keptRuns = append(keptRuns, r)
			}
		}
		g.runs = keptRuns
		g.fixReach(0)
		if gone {
			l.setHit(g.id, reason)
		}
	}
	delete(l.segs, s.id)
	if rc.cut.id == s.id {
		rc.cut.id = 0
		if rc.cut.off == 0 {
			return // its first frame never became durable, and its file is as it was before
		}
		rc.sc.holes = append(rc.sc.holes, hole{s.id, s.firstSeq, rc.cut.seq})
		if !clean {
			rc.sc.check, rc.cutLost = true, s
		}
	}
	l.log.Error("segment lost", "segment", segmentName(s.id), "reason", why)
}

// fromFiles is for a log without a usable checkpoint: everything is scanned.
func (rc *recovery) fromFiles() {
	rc.sc.full = true
	rc.sc.dropped = map[GroupID]uint64{}
	for _, f := range rc.sorted() {
		if !f.ok {
			rc.probe(f)
		}
		switch {
		case !f.ok && !f.damaged:
		case f.header.kind == segmentCold:
			f.claimed = true
			rc.cold = append(rc.cold, f)
		default:
			f.claimed = true
			rc.chain = append(rc.chain, f)
		}
	}
	rc.sortChain()
	rc.findWitnessed()
	if len(rc.chain) > 0 {
		if segments := len(rc.chain) + len(rc.cold); len(rc.l.kee.checkpoints) > 0 || rc.chain[0].head.seq != 1 {
			rc.l.log.Warn("no usable checkpoint: scanning the whole log", "segments", segments)
		} else {
			rc.l.log.Info("there is no checkpoint yet: scanning the whole log", "segments", segments)
		}
		rc.sc.expect = rc.chain[0].head.seq
		if len(rc.l.kee.checkpoints) == 0 && len(rc.cold) == 0 && rc.chain[0].header.prevGen == 0 && !rc.chain[0].damaged {
			rc.sc.expect = 1 // it is the first, and was so when it was begun: endGone
		}
		rc.sc.skipped = rc.sc.expect != 1
	} else {
		rc.sc.expect = 1
	}
}

// scanChain scans from the cut to the end of the log.
func (rc *recovery) scanChain() error {
	l, sc := rc.l, &rc.sc
	prevGen := l.lastGen
	if s := l.segs[rc.cut.id]; s != nil {
		limit := uint64(0)
		if len(rc.chain) > 0 && rc.chain[0].header.prevGen == s.gen {
			limit = rc.chain[0].header.prevLast
		}
		if err := rc.scanOne(s, rc.cut.off, limit); err != nil {
			return err
		}
		prevGen = s.gen
	}
	if rc.cutLost != nil && len(rc.chain) == 0 {
		rc.endGone(rc.cutLost)
	}
	for i, f := range rc.chain {
		s := l.segs[f.id]
		if s == nil {
			s = &segment{
				id: f.id, file: f.file, size: f.size, state: segSealed, kind: segmentHot,
				gen: f.head.gen, firstSeq: f.head.seq,
			}
			if f.file != nil {
				l.segs[s.id] = s
			}
		}
		if f.head.seq > sc.expect { // what lies between is not there
			linked := f.header.prevGen == prevGen || f.damaged
			if !sc.full || linked {
				sc.hole(s, sc.expect, f.head.seq-1)
			} else {
				sc.skipped = true
			}
		}
		sc.expect = f.head.seq
		if f.file == nil {
			rc.endGone(s)
			continue
		}
		prevGen = s.gen
		limit := uint64(0)
		if i+1 < len(rc.chain) && rc.chain[i+1].header.prevGen == s.gen {
			limit = rc.chain[i+1].header.prevLast
		}
		if err := rc.scanOne(s, 0, limit); err != nil {
			return err
		}
	}
	l.lastGen = prevGen
	rc.takeCold()
	l.seq = sc.expect - 1
	l.com.written = l.seq
	l.com.list = sc.list
	return nil
}

// scanOne scans one hot segment past the page cache.
func (rc *recovery) scanOne(s *segment, off int64, limit uint64) error {
	direct, err := rc.l.fs.OpenDirect(rc.l.path(segmentName(s.id)))
	if err != nil {
		return err
	}
	defer direct.Close()
	rc.sc.scan(s, direct, off, limit)
	rc.scanned = append(rc.scanned, s)
	return nil
}

// takeCold enters all survivors in cold segments, where there is no checkpoint that knows them. A group whose end lay in a
// segment used again comes back with them: better so than that one is lost whose state lies here alone.
//
// In between entries are given up that come back in the same way: they were replaced by others, of a higher term, which lay in a
// segment used again when a snapshot was above them. If there were others above the snapshot, they would have replaced them here.
func (rc *recovery) takeCold() {
	var segs []*segment
	for _, f := range rc.cold {
		s := &segment{
			id: f.id, file: f.file, size: f.size, state: segSealed, kind: segmentCold,
			gen: f.head.gen, firstSeq: f.head.seq, lastSeq: f.head.seq,
		}
		rc.l.segs[s.id] = s
		segs = append(segs, s)
	}
	for _, s := range segs {
		rc.walkCold(s, rc.takeColdState)
	}
	for _, g := range rc.l.list { // no cold item is to die with what was replaced long ago
		if r := g.repl; r != nil && len(r.tail) > 0 && r.tail[0].term < r.snapTerm {
			rc.l.replaceFrom(g, 0, 0)
			g.lastIndex = g.snap.index
		}
	}
	for _, s := range segs {
		rc.walkCold(s, rc.takeColdItems)
	}
}

func (rc *recovery) walkCold(s *segment, take func(s *segment, off uint32, rec *record)) {
	err := walk(s.file, s.gen, 0, s.size, func(h head, off int64, rec *record) {
		s.end = h.bytes() + int64(h.off)
		s.stable, s.lastSeq = s.end, max(s.lastSeq, h.seq)
		take(s, uint32(off), rec)
	})
	if err != nil {
		rc.l.log.Error("cold segment cannot be read", "segment", segmentName(s.id), "error", err)
	}
	s.end = max(s.end, pageSize)
	s.stable = max(s.stable, pageSize)
}

// takeColdState enters a snapshot or hard state, unless the group ended after it was written: it may have begun anew.
func (rc *recovery) takeColdState(s *segment, off uint32, rec *record) {
	l := rc.l
	if end, ended := rc.sc.dropped[rec.group]; !rec.snapshot() && rec.kind != KindHardState || ended && rec.born <= end {
		return
	}
	rc.sc.expect = max(rc.sc.expect, rec.born+1) // nothing else may be left of so high a sequence
	g := l.group(rec.group)                      // nor of an idle group
	p := place{rec.index, s, off, uint32(rec.overhead())}
	if rec.term > 0 {
		g.replicate()
	}
	if rec.kind == KindHardState {
		l.applyHardState(g, p, rec.born)
	} else if l.applySnapshot(g, p); g.repl != nil && g.snap == p {
		g.repl.snapTerm = rec.term
	}
}

// takeColdItems enters items. What was moved is valid, and older than nothing that differs: it was agreed on.
func (rc *recovery) takeColdItems(s *segment, off uint32, rec *record) {
	l := rc.l
	if rec.kind != kindLive {
		return
	}
	g := l.groups[rec.group]
	if _, ended := rc.sc.dropped[rec.group]; g == nil && ended {
		return
	}
	if g == nil {
		g = l.group(rec.group)
	}
	for _, ids := range rec.ids() {
		l.releaseRange(g, ids)
	}
	l.addRecordItems(g, s, &g.cold, off, rec)
}

// judge decides which groups are hit by what was lost.
func (rc *recovery) judge() {
	l, sc := rc.l, &rc.sc
	if sc.check && len(sc.holes) > 0 { // nothing readable follows the last hole
		sc.blind = max(sc.blind, sc.holes[len(sc.holes)-1].last)
	}
	for i, h := range sc.holes {
		if i+1 < len(sc.holes) && sc.holes[i+1].first == h.last+1 && sc.holes[i+1].seg == h.seg {
			sc.holes[i+1].first = h.first // told as one
			continue
		}
		l.log.Error("corruption: frames that were durable cannot be read",
			"segment", segmentName(h.seg), "first", h.first, "last", h.last)
	}
	if sc.blind > 0 {
		for _, g := range slices.Clone(l.list) {
			switch {
			case g.upTo >= sc.blind: // the checkpoint has it all
			case g.lastSeq <= sc.blind:
				sc.hit(g.id, "it has no later record and may have lost some")
			case g.repl != nil: // no gap would show a vote, or an entry that replaced another
				sc.hit(g.id, "it may have lost some")
			}
		}
		l.unknown = fmt.Sprintf("frames up to %d are damaged and their groups are not known", sc.blind)
	}
	for _, id := range slices.Sorted(maps.Keys(sc.lost)) {
		lost, g := sc.lost[id], l.groups[id]
		switch {
		case lost.snap > 0 && (g == nil || g.lastIndex < lost.snap):
			sc.hitFor(id, fmt.Sprintf("%ssnapshot %d is lost", lost.reason, lost.snap))
		case lost.hard > 0 && (g == nil || g.repl == nil || g.repl.born < lost.hard):
			sc.hitFor(id, lost.reason+"its hard state is lost")
		}
	}
	if sc.full {
		rc.judgeWithoutCheckpoint()
	}
	for _, h := range l.hitList() {
		l.log.Error("group quarantined", "group", uint64(h.Group), "reason", h.Reason)
	}
}

// judgeWithoutCheckpoint looks for gaps: what was lost lies before segments used again, or in them. Terms that go back say
// the same.
func (rc *recovery) judgeWithoutCheckpoint() {
	// Segments were used again. Cold ones alone do not say so: they may have been written before anything was given up, and
	// where the hot ones are all there from the first frame on, they hold copies.
	again := rc.sc.skipped || len(rc.cold) > 0 && len(rc.chain) == 0
	for _, g := range rc.l.list {
		next := g.snap.index + 1
		for i, p := range g.tail {
			if p.index > next {
				rc.sc.hit(g.id, fmt.Sprintf("entries %d to %d are lost", next, p.index-1))
				break
			}
			next = p.index + 1
			if g.repl != nil && i > 0 && g.repl.tail[i].term < g.repl.tail[i-1].term {
				rc.sc.hit(g.id, fmt.Sprintf("entry %d was replaced", p.index))
				break
			}
		}
		switch {
		case g.snap.seg == nil && len(g.tail) == 0 && (g.repl == nil || again):
			rc.sc.hit(g.id, "it has items but no state")
		case g.repl != nil && again && g.repl.hard.seg == nil:
			rc.sc.hit(g.id, "its hard state is lost")
		}
	}
}

// finish makes durable what was scanned and puts the free files into the pool.
func (rc *recovery) finish() error {
	l := rc.l
	for _, s := range rc.scanned {
		if l.o.ReadOnly {
			break
		}
		// What a killed process had written but not synced was scanned, too: others will now build on it.
		if err := s.file.Datasync(); err != nil {
			return err
		}
		if err := s.file.DropCache(); err != nil {
			return err
		}
	}
	if !l.o.ReadOnly {
		if err := l.fs.SyncDir(l.dir); err != nil {
			return err
		}
	}
	for _, f := range rc.sorted() {
		if !f.claimed {
			s := &segment{id: f.id, file: f.file, size: f.size}
			l.pool = append(l.pool, s)
			if !f.wiped {
				l.unwiped = append(l.unwiped, s)
			}
		}
	}
	for _, g := range l.list {
		g.open = nil
	}
	var live int64
	for _, s := range l.segs {
		live += s.liveBytes
	}
	l.target = l.calmTarget(live)
	if len(rc.sc.holes) > 0 {
		l.logged = l.o.CheckpointBytes // the verdict is to be in a checkpoint soon: a second look may know less
	}
	l.changed = rc.sc.frames > 0 || len(l.hits) > 0 || len(rc.chain) > 0
	return nil
}
