package seglog

import (
	"fmt"
	"slices"
	"time"

	"holdfast/internal/clock"
	"holdfast/internal/invariant"
	"holdfast/internal/planted"
)

// committer is what the goroutine that writes frames owns. One commit is one frame: one pwrite and one fdatasync for all
// groups. While a sync runs, the next frame's records gather; there is no other delay.
type committer struct {
	buf    []byte      // the frame being built
	work   []*Batch    // swapped with the inbox
	direct bool        // recs are whole batches that did not pass through fair
	recs   []recordRef // of the frame being built
	at     []recordAt  // where they lie
	narrow bool        // recs were chosen for the room there is; others wait for more
	none   []*Batch    // batches without records, reported with this commit
	fair   fairQueue

	list     []byte // groups of the last frame with records, for the next one
	nextList []byte
	written  uint64 // highest sequence written; above Log.seq there is at most a mark
	sealIdle bool   // guarded by Log.mu: give up the active segment when nothing waits

	lastCommit int64
	lazyAt     int64
	timer      clock.Timer
	done       chan struct{}
}

type recordAt struct {
	off              uint32
	length, overhead uint32
}

// markDelay is how long after the last commit the mark is written that tells a later recovery that it was durable.
const markDelay = 100 * time.Millisecond

func (c *committer) init(o Options) {
	c.buf = make([]byte, 0, o.FrameMax+o.FrameMax/4+4*pageSize)
	c.done = make(chan struct{})
}

// commitLoop commits until the log is closed or has failed.
func (l *Log) commitLoop() {
	defer l.wg.Done()
	defer close(l.com.done)
	l.com.timer = l.o.Clock.AfterFunc(time.Hour, func() { kick(l.in.wake) })
	defer l.com.timer.Stop()
	for l.commitOrSleep() {
	}
}

// commitOrSleep does what is due, or sleeps until something may be. False: the loop ends.
func (l *Log) commitOrSleep() bool {
	c := &l.com
	if l.failed.Load() {
		return false
	}
	closing := l.closing.Load() // before the inbox is looked at: what was appended before Close is in it
	waits, urgent := l.in.state()
	now := l.o.Clock.Mono()
	wakeAt := int64(0)
	if waits && c.lazyAt == 0 {
		c.lazyAt = now + int64(l.o.NoSyncDelay)
	}
	switch {
	case urgent || !c.fair.empty() || len(c.recs) > 0 || waits && (closing || now >= c.lazyAt):
		if l.commitOnce() {
			return true
		}
		if l.failed.Load() || closing {
			return false
		} // else there is no room: it comes back, or something is appended that needs less
	case waits:
		wakeAt = c.lazyAt
	case closing:
		return false
	default:
		did, at := l.calm(now)
		if did {
			return !l.failed.Load()
		}
		wakeAt = at
	}
	if wakeAt > 0 {
		c.timer.Reset(time.Duration(wakeAt - now))
	}
	<-l.in.wake
	return true
}

// StepCommit does once what the committer would do now (Options.Stepped). What waits for a Sync is written with the rest. False:
// there is nothing to do, or no room on the disk for anything that waits, or the log has failed.
func (l *Log) StepCommit() bool {
	if l.failed.Load() {
		return false
	}
	c := &l.com
	waits, _ := l.in.state()
	switch {
	case waits || !c.fair.empty() || len(c.recs) > 0:
		return l.commitOnce()
	}
	did, _ := l.calm(l.o.Clock.Mono())
	return did && !l.failed.Load()
}

// calm does what is due while nothing is appended, or says when something will be, 0 if nothing is.
func (l *Log) calm(now int64) (did bool, at int64) {
	if l.markDue() {
		at = l.com.lastCommit + int64(markDelay)
		if now >= at {
			l.writeMark()
			return true, 0
		}
	}
	if l.witnessDue() {
		due := l.witness.at + int64(witnessEvery)
		if now >= due {
			l.keep(l.renewWitness())
			return true, 0
		}
		if at == 0 || due < at {
			at = due
		}
	}
	return at == 0 && l.sealActive(), at
}

// commitOnce writes one frame of what waits and reports what has become stable. False: the log has failed, or there is no room
// for anything that waits.
func (l *Log) commitOnce() bool {
	c := &l.com
	if len(c.recs) == 0 {
		l.selectRecords()
	}
	if len(c.recs) > 0 {
		wrote := l.writeFrame()
		c.narrow = !wrote
		if !wrote && (!l.chooseFitting() || !l.writeFrame()) {
			return false
		}
		published := l.o.Clock.Mono()
		l.publish()
		l.times.index.since(published, l.o.Clock.Mono())
	}
	c.lazyAt = 0
	l.report()
	return true
}

// selectRecords chooses the records of the next frame.
func (l *Log) selectRecords() {
	c := &l.com
	c.work = l.in.take(c.work)
	var bytes int64
	for _, b := range c.work {
		bytes += b.p.bytes
	}
	c.direct = c.fair.empty() && bytes <= int64(l.o.FrameMax)
	for _, b := range c.work {
		switch {
		case b.p.left == 0:
			c.none = append(c.none, b)
		case c.direct:
			for i := range b.Records {
				c.recs = append(c.recs, recordRef{b, i})
			}
		default:
			c.fair.put(b)
		}
	}
	clear(c.work)
	if !c.direct {
		c.recs = c.fair.take(c.recs, l.o.FrameMax)
	}
}

// chooseFitting chooses other records than those for which there is no room, and tells whether there are any: what waits for
// room must not keep out what makes some. Records without items are chosen as long as there are any, for what consumers settle is
// among them; then one with items, so that what waits behind it has its turn. The last of the room is for the former.
func (l *Log) chooseFitting() bool {
	c := &l.com
	if l.failed.Load() {
		return false
	}
	c.putBack()
	l.mu.Lock()
	defer l.mu.Unlock()
	var f frameSize
	fits := func(r *Record) bool {
		if r.Later != nil {
			return true
		}
		more := f
		more.add(r)
		frame, tables := more.bytes(len(c.list))
		if (l.active == nil || l.active.rest(more.footer(l.active.tableEst+tables, true)) < frame) &&
			l.pickable(c.need(frame, more.footer(tables, true)), segmentHot) < 0 {
			return false
		}
		f = more
		return true
	}
	c.recs = c.fair.takeFitting(c.recs, l.o.FrameMax, fits)
	return len(c.recs) > 0
}

// putBack returns the records of a frame that was not written to where they were taken from.
func (c *committer) putBack() {
	if c.direct { // whole batches, and nothing else waits
		var last *Batch
		for _, r := range c.recs {
			if r.b != last {
				c.fair.put(r.b)
				last = r.b
			}
		}
	} else {
		c.fair.putBack(c.recs)
	}
	clear(c.recs)
	c.recs, c.direct = c.recs[:0], false
}

// frameSize adds up what records take.
type frameSize struct{ records, items, body, tables int }

func (f *frameSize) add(r *Record) {
	size, items := recordSize(r)
	f.records++
	f.items += items
	f.body += align8(size)
	f.tables += tableEntryMax * len(r.Blocks)
	if len(r.Blocks) > 0 {
		f.tables += tableHeadMax
	}
}

// bytes is an upper bound of the frame with them, behind a frame with a list of this length, and of what they add to the
// segment's tables.
func (f *frameSize) bytes(list int) (frame int64, tables int) {
	return alignPage64(int64(headSize + align8(list) + f.body)), f.tables + f.records*listEntryMax
}

// footer is the room to keep for a footer behind a frame that makes the segment's tables so large. On a full disk one without items
// goes without: its tables hold nothing, and it may be what brings space back.
func (f *frameSize) footer(tables int, full bool) int64 {
	if full && f.items == 0 {
		return 0
	}
	return footerRoom(tables)
}

// need is how large a segment must be that begins with such a frame.
func (c *committer) need(frame, footer int64) int64 {
	return int64(alignPage(headSize+align8(len(c.list))+segmentHeaderSize)) + frame + footer
}

// writeFrame makes the chosen records durable, but for late snapshots, which the keeper writes.
func (l *Log) writeFrame() bool {
	c := &l.com
	if !slices.ContainsFunc(c.recs, func(r recordRef) bool { return r.record().Later == nil }) {
		c.buf = c.buf[:0]
		return true
	}
	var f frameSize
	for _, r := range c.recs {
		f.add(r.record())
	}
	frame, tables := f.bytes(len(c.list))
	seg := l.active // only this goroutine changes it
	full := l.full()
	fresh := seg == nil || seg.rest(f.footer(seg.tableEst+tables, full)) < frame
	if fresh {
		began := l.o.Clock.Mono()
		next := l.takeFree(c.need(frame, f.footer(tables, full)), segmentHot)
		if next == nil {
			return false
		}
		l.roll(next)
		seg = next
		l.times.change.since(began, l.o.Clock.Mono())
	}
	l.encode(seg, fresh)

	start := l.o.Clock.Mono()
	l.io[0].begin(start)
	_, err := seg.file.WriteAt(c.buf, seg.end)
	wrote := l.o.Clock.Mono()
	now := wrote
	if err == nil {
		if !planted.Is(planted.SyncSkipped) {
			err = seg.file.Datasync()
		}
		now = l.o.Clock.Mono()
	}
	l.io[0].end()
	if err != nil {
		l.fail(fmt.Errorf("commit to %s: %w", segmentName(seg.id), err))
	}
	if l.failed.Load() { // perhaps by the watchdog, while the sync hung
		return false
	}
	l.stats.syncs.Add(1)
	l.times.write.since(start, wrote)
	l.times.sync.since(wrote, now)
	c.lastCommit = now
	if fresh || now-l.witness.at >= int64(witnessEvery) {
		if err := l.writeWitness(seg, c.written); err != nil {
			l.fail(err)
			return false
		}
	}
	return true
}

// roll seals the active segment and makes next the active one. A mark that was not synced with anything is given up: the
// next segment's header says that the one before ends below it.
func (l *Log) roll(next *segment) {
	now := l.o.Clock.Mono()
	l.mu.Lock()
	defer l.mu.Unlock()
	if old := l.active; old != nil {
		l.sealLocked(old)
		if now-old.openedAt < int64(growWithin) {
			l.grow(old.size)
		}
	}
	next.state, next.kind, next.gen = segActive, segmentHot, l.nextGen()
	next.firstSeq, next.lastSeq, next.openedAt = l.seq+1, l.seq, now
	l.segs[next.id] = next
	l.active = next
	l.rolledAt = now
	l.want = max(l.want, poolBusy)
	l.com.sealIdle = false
	kick(l.keepKick)
	kick(l.prepKick)
}

func (l *Log) sealLocked(s *segment) {
	s.state, s.lastSeq = segSealed, min(s.lastSeq, l.seq)
	s.list = slices.Clone(l.com.list)
	l.lastGen = s.gen
	l.changed = true
}

// sealActive gives up the active segment if the keeper asked for it, because it is larger than a quiet log needs.
func (l *Log) sealActive() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.com.sealIdle || l.active == nil {
		return false
	}
	l.com.sealIdle = false
	l.sealLocked(l.active)
	l.active = nil
	kick(l.keepKick)
	return true
}

// encode builds the frame, behind the segment's header if the segment is fresh.
func (l *Log) encode(seg *segment, fresh bool) {
	c := &l.com
	buf := c.buf[:0]
	list := c.list
	stamp := l.o.Clock.Now().UnixNano()
	seq := c.written
	var n uint32
	if fresh {
		seq = l.seq + 1
		buf, n = openFrame(buf, list)
		buf = segmentHeader{kind: segmentHot, prevGen: l.lastGen, prevLast: l.seq, size: seg.size}.append(buf)
		buf = sealFrame(buf, 0, head{gen: seg.gen, seq: seq, synced: l.seq, kind: frameHeader, listLen: n, stamp: stamp})
	}
	start, records := len(buf), 0
	base := seg.end
	buf, n = openFrame(buf, list)
	c.at, c.nextList = c.at[:0], c.nextList[:0]
	for _, r := range c.recs {
		rec := r.record()
		if rec.Later != nil {
			c.at = append(c.at, recordAt{})
			continue
		}
		records++
		off := base + int64(len(buf))
		var length, overhead int
		buf, length, overhead = appendRecord(buf, rec, seq+1)
		c.at = append(c.at, recordAt{uint32(off), uint32(length), uint32(overhead)})
		c.nextList = appendList(c.nextList, rec)
	}
	seq++
	buf = sealFrame(buf, start, head{
		gen: seg.gen, seq: seq, synced: l.seq, off: uint32(base + int64(start)), kind: frameData,
		records: uint32(records), listLen: n, stamp: stamp,
	})
	c.buf, c.written = buf, seq
	l.witness.remember(l.seq, list, fresh)
	c.list, c.nextList = c.nextList, list
}

// publish enters the frame just synced into the index.
func (l *Log) publish() {
	c := &l.com
	l.mu.Lock()
	defer l.mu.Unlock()
	if !c.narrow { // nothing waits for a segment
		l.need = 0
	}
	seg := l.active
	if len(c.buf) == 0 { // late snapshots alone
		for _, ref := range c.recs {
			l.takeLate(ref.record())
		}
		return
	}
	seg.end += int64(len(c.buf))
	seg.lastSeq, seg.stable = c.written, seg.end
	invariant.That(seg.end <= seg.size, "a frame reaches beyond its segment")
	l.seq = c.written
	l.logged += int64(len(c.buf))
	l.movedAt = c.lastCommit
	l.changed = true
	l.stats.records.Add(uint64(len(c.recs)))
	l.stats.written.Add(uint64(len(c.buf)))
	items := 0
	for i, ref := range c.recs {
		if r := ref.record(); r.Later != nil {
			l.takeLate(r)
		} else {
			items += l.applyWritten(r, seg, c.at[i])
		}
	}
	l.times.records.Observe(float64(len(c.recs)))
	l.times.items.Observe(float64(items))
	if cap(c.buf) > 4*l.o.FrameMax && cap(c.buf) > 8<<20 { // an outsize record has passed
		c.buf = make([]byte, 0, l.o.FrameMax+l.o.FrameMax/4+4*pageSize)
	}
}

// applyWritten enters one record into the index, and says how many items it carried.
func (l *Log) applyWritten(r *Record, seg *segment, at recordAt) (items int) {
	g := l.group(r.Group)
	if r.Term > 0 || r.Kind > KindDrop || r.Index <= g.lastIndex && r.Kind == KindEntry {
		invariant.That(r.Kind != KindEntry || r.Index > g.snap.index || g.snap.seg == nil, "an entry below its group's snapshot was appended")
		l.makeWay(g, r.Kind, r.Index)
	}
	for i := range r.Blocks {
		b := &r.Blocks[i]
		if len(b.Items) == 0 {
			continue
		}
		if g.repl != nil && g.repl.again {
			l.releaseRange(g, Range{b.First, b.First + uint64(len(b.Items)) - 1})
		}
		var bytes int64
		lo, hi := ^uint32(0), uint32(0)
		for _, it := range b.Items {
			size := uint32(len(it))
			bytes += int64(size)
			lo, hi = min(lo, size), max(hi, size)
		}
		l.addItems(g, seg, &g.open, b.First, len(b.Items), at.off, bytes, lo, hi)
		items += len(b.Items)
	}
	p := place{index: r.Index, seg: seg, off: at.off, length: at.overhead}
	switch r.Kind {
	case KindEntry:
		if l.applyEntry(g, p); g.repl != nil {
			g.repl.carryBlocks(r.Term, r.Blocks)
		}
	case KindSnapshot:
		invariant.That(g.repl == nil || g.termFits(r.Index, r.Term), "the term of a snapshot is not that of its entry")
		l.applySnapshot(g, p)
	case KindInstall:
		l.applySnapshot(g, p)
	case KindHardState:
		l.applyHardState(g, p, l.seq)
	case KindItems:
	case KindDrop:
		l.applyDrop(g)
		return items
	default:
		invariant.Failf("a record of %v was appended", r.Kind)
	}
	l.releaseDue(g)
	return items
}

// report calls Stable for the batches whose last record has become stable.
func (l *Log) report() {
	c := &l.com
	for _, ref := range c.recs {
		b := ref.b
		if b.p.left--; b.p.left == 0 {
			b.p.done = true
			l.reportIfFree(b)
		}
	}
	clear(c.recs)
	c.recs = c.recs[:0]
	for i, b := range c.none {
		c.none[i] = nil
		l.reportIfFree(b)
	}
	c.none = c.none[:0]
}

// reportIfFree reports a batch unless an earlier one that shares a group has not been, and then those that waited for it.
func (l *Log) reportIfFree(b *Batch) {
	if b.p.deps > 0 {
		return
	}
	after := b.p.after
	if l.com.fair.groups != nil {
		l.com.fair.reported(b)
	}
	l.stats.items.Add(uint64(b.p.items))
	l.in.mu.Lock()
	l.in.queued -= b.p.bytes
	l.in.queuedCount--
	l.in.mu.Unlock()
	if b.Stable != nil {
		invariant.Pass("seglog", "batch stable")
		b.Stable(b) // from here on the batch may be in use again
	}
	for _, next := range after {
		if next.p.deps--; next.p.deps == 0 && next.p.done {
			l.reportIfFree(next)
		}
	}
}

// markDue tells whether the last frame is one that nothing yet says was durable.
func (l *Log) markDue() bool {
	c := &l.com
	return l.active != nil && c.lastCommit != 0 && c.written == l.seq
}

// writeMark writes a frame without records and without sync: it says that the frame before it is durable, and repeats its
// groups. It becomes durable by itself or with the next commit, and if it does not nothing is lost but this certainty. Where
// there is no room for it the segment is sealed: the witness says it, and the footer that follows.
func (l *Log) writeMark() bool {
	c, seg := &l.com, l.active
	if seg.room(len(c.list)) < int64(alignPage(headSize+align8(len(c.list)))) {
		if err := l.writeWitness(seg, l.seq); err != nil {
			l.fail(err)
			return false
		}
		l.mu.Lock()
		l.sealLocked(seg)
		l.active = nil
		l.mu.Unlock()
		kick(l.keepKick)
		return true
	}
	buf, n := openFrame(c.buf[:0], c.list)
	c.buf = sealFrame(buf, 0, head{
		gen: seg.gen, seq: l.seq + 1, synced: l.seq, off: uint32(seg.end), kind: frameMark,
		listLen: n, stamp: l.o.Clock.Now().UnixNano(),
	})
	l.io[0].begin(l.o.Clock.Mono())
	_, err := seg.file.WriteAt(c.buf, seg.end)
	l.io[0].end()
	if err != nil {
		l.fail(fmt.Errorf("mark in %s: %w", segmentName(seg.id), err))
		return false
	}
	c.written = l.seq + 1
	l.mu.Lock()
	seg.end += int64(len(c.buf))
	l.mu.Unlock()
	return true
}
