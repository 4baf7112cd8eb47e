package seglog

import (
	"fmt"
	"math/bits"
	"syscall"
	"time"

	"holdfast/internal/vfs"
)

// Segments are made ready before they are needed: zero-filled or recycled, so that a commit overwrites blocks the file
// system already knows and fdatasync has no metadata to write.

const (
	poolBusy = 2 // segments held ready once the log has rolled for the first time
	// used ones kept while it rolls, as long as the files take no more than they may: made anew, they would cost as much writing as
	// what they hold. A checkpoint frees at once what was filled since the one before.
	poolMost = 16

	growWithin = 100 * time.Millisecond // a segment filled faster doubles the size of the next
	calmAfter  = 10 * time.Second       // without a roll sizes fall back

	fillChunk = 1 << 20
)

var (
	zeros      = vfs.AlignedBuffer(fillChunk)
	errNoSpace = syscall.ENOSPC
)

// takeFree takes a segment of at least need bytes from the pool. The committer waits for one that is being made; nil means that
// the log has failed, or that there is no room, of which spaceChanged tells the committer when there may be some again.
func (l *Log) takeFree(need int64, kind segmentKind) *segment {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !l.failed.Load() {
		if s := l.pickFree(need, kind); s != nil {
			if kind == segmentCold {
				l.needCold = 0
			}
			kick(l.prepKick)
			return s
		}
		if kind == segmentCold && !l.noLoop {
			l.want = max(l.want, poolBusy)
			if len(l.pool) > 0 || l.noSpace != "" { // all too small
				l.needCold = need
			}
			kick(l.prepKick)
			return nil
		}
		if kind == segmentHot {
			l.need = need
		} else {
			l.needCold = need
		}
		if l.noLoop {
			l.mu.Unlock()
			made := l.prepareStep()
			l.mu.Lock()
			if !made && l.pickable(need, kind) < 0 {
				return nil
			}
			continue
		}
		kick(l.prepKick)
		if l.noSpace != "" {
			return nil
		}
		l.space.Wait()
	}
	return nil
}

// needed is how large a segment is that somebody waits for, 0 if nobody does.
func (l *Log) needed() int64 { return max(l.need, l.needCold) }

// spaceChanged has the committer look again whether there is room.
func (l *Log) spaceChanged() {
	l.space.Broadcast()
	kick(l.in.wake)
}

func (l *Log) pickFree(need int64, kind segmentKind) *segment {
	i := l.pickable(need, kind)
	if i < 0 {
		return nil
	}
	s := l.pool[i]
	l.pool = append(l.pool[:i], l.pool[i+1:]...)
	return s
}

// pickable is the index of the pool's best segment: the one nearest to the size wanted now. When no more can be made, the
// last one is kept for the rewriter, which can make room with it; unless nothing can be rewritten before groups have written
// snapshots, for which the committer needs it.
func (l *Log) pickable(need int64, kind segmentKind) int {
	if kind == segmentHot && l.noSpace != "" && len(l.pool) <= 1 && l.rewritable() {
		return -1
	}
	if kind == segmentCold && len(l.pool) <= 1 && l.reclaimable() {
		return -1 // first the checkpoint that brings them back: it may need this one's room
	}
	best := -1
	for i, s := range l.pool {
		if s.size >= need && (best < 0 || off(s.size, l.target) < off(l.pool[best].size, l.target)) {
			best = i
		}
	}
	return best
}

// rewritable tells whether rewriting or a checkpoint can free a segment now.
func (l *Log) rewritable() bool {
	for _, s := range l.segs {
		if s.state == segSealed && !s.stuck && s.tails == 0 && 2*s.liveBytes < s.size && l.roomForSurvivors(s) {
			return true
		}
	}
	return len(l.kee.dead) > 0
}

// reclaimable tells whether a checkpoint would bring back a segment.
func (l *Log) reclaimable() bool {
	for _, s := range l.segs {
		if s.state == segSealed && s.empty() {
			return true
		}
	}
	return false
}

func off(a, b int64) int64 { return max(a-b, b-a) }

// busy tells whether the log has gone on in another segment a moment ago.
func (l *Log) busy() bool { return l.o.Clock.Mono()-l.rolledAt < int64(calmAfter) }

// wanted tells whether a segment that has become free is to be used again.
func (l *Log) wanted(s *segment) bool {
	switch ready := len(l.pool); {
	case s.cut > 0 && s.taken() < l.o.SegmentMin/16, s.taken() < 4*pageSize:
		return false
	case l.noSpace != "" && ready < poolBusy, l.needed() > 0 && s.taken() >= l.needed():
		return true
	case s.cut > 0 || s.size > l.target || s.size < l.target/4:
		return false
	case ready >= l.want:
		total, _, _, limit := l.spaceState()
		return ready < poolMost && l.busy() && total+s.size <= limit
	}
	return true
}

// grow makes segments to come twice as large as one that was filled quickly.
func (l *Log) grow(size int64) { l.target = min(max(2*size, l.target), l.o.SegmentMax) }

// calmTarget is the size for a log in which little happens: small, unless there is much to keep.
func (l *Log) calmTarget(live int64) int64 {
	size := l.o.SegmentMin
	if want := live / 64; want > size {
		size = min(int64(1)<<bits.Len64(uint64(want-1)), l.o.SegmentMax)
	}
	return alignPage64(size)
}

func (l *Log) prepareLoop() {
	defer l.wg.Done()
	tick := l.o.Clock.NewTicker(time.Second)
	defer tick.Stop()
	for {
		if l.failed.Load() || !l.prepareStep() {
			select {
			case <-l.stop:
				return
			case <-l.prepKick:
			case <-tick.C():
			}
		}
	}
}

// prepareStep makes or deletes one segment of the pool if that is due, and tells whether it did.
func (l *Log) prepareStep() bool {
	l.mu.Lock()
	if s := l.unwanted(); s != nil {
		l.mu.Unlock()
		l.discard(s)
		return true
	}
	if l.yield {
		l.mu.Unlock()
		return false
	}
	need := l.needed()
	size, urgent := l.target, need > 0 && l.pickable(need, segmentHot) < 0
	if len(l.pool) == 0 && l.active != nil { // larger ones when there is time for them
		size = min(size, max(l.active.size, l.o.SegmentMin, alignPage64(size/4))) // smaller ones are unwanted
	}
	if urgent {
		size = l.urgentSize(size)
	}
	if l.noSpace != "" {
		size = max(l.o.SegmentMin, alignPage64(need))
	}
	total, _, _, limit := l.spaceState()
	enough := l.fullSized() >= l.want || len(l.pool) > 0 && total+size > limit && l.free >= uint64(size) // recycling will bring one
	if enough && !urgent {
		l.setNoSpace("")
		return false
	}
	id := l.nextID
	l.nextID++
	l.mu.Unlock()

	file, size, err := l.makeSegment(id, size, urgent)
	why := ""
	if urgent && vfs.IsSpace(err) {
		if less := l.emergencySize(size); less > 0 {
			why, size = err.Error(), less
			file, size, err = l.makeSegment(id, size, urgent)
		}
	}
	l.mu.Lock()
	if err != nil {
		if vfs.IsSpace(err) {
			var small *segment
			if urgent {
				small = l.tooSmall(size)
			}
			l.setNoSpace(err.Error()) // unlocks
			if small != nil {
				l.discard(small)
				l.checkFree()
			}
			return small != nil
		}
		l.mu.Unlock()
		l.fail(fmt.Errorf("making %s: %w", segmentName(id), err))
		return false
	}
	l.pool = append(l.pool, &segment{id: id, file: file, size: size})
	l.spaceChanged()
	switch {
	case why != "":
		l.setNoSpace(why)
	case len(l.pool) > 1 || l.noSpace == "":
		l.setNoSpace("")
	default:
		l.mu.Unlock()
	}
	l.checkFree() // a fast writer makes many segments between two slow looks
	return true
}

// fullSized counts the free segments that were not made in an emergency.
func (l *Log) fullSized() int {
	n := 0
	for _, s := range l.pool {
		if s.size >= l.o.SegmentMin {
			n++
		}
	}
	return n
}

// emergencySize is how large a segment is made for a frame that waits when there is no room for one of this size: half of
// what is left. Every start begins a segment, so a full disk has to carry many of them until consumers have drained it. 0: there
// is no room for that either.
func (l *Log) emergencySize(size int64) int64 {
	u, err := l.fs.Usage(l.dir)
	if err != nil {
		return 0
	}
	l.mu.Lock()
	least := max(alignPage64(l.needed()), l.o.SegmentMin/16)
	l.mu.Unlock()
	less := max(int64(u.Free/2)&^(pageSize-1), least)
	if less >= size || uint64(less) > u.Free {
		return 0
	}
	return less
}

// tooSmall takes a segment out of the pool to make room for one of this size, which a frame waits for and none of them has,
// if they and what is free are room enough.
func (l *Log) tooSmall(size int64) *segment {
	room := int64(l.free)
	for _, s := range l.pool {
		if s.size >= l.needed() {
			return nil
		}
		room += s.size
	}
	n := len(l.pool)
	if n == 0 || room < size {
		return nil
	}
	s := l.pool[n-1]
	l.pool = l.pool[:n-1]
	return s
}

// unwanted takes a segment out of the pool that is too many, or of a size no longer used.
func (l *Log) unwanted() *segment {
	if l.needed() > 0 || l.noSpace != "" {
		return nil
	}
	most := l.want
	if l.busy() {
		if total, _, _, limit := l.spaceState(); total <= limit {
			most = max(most, poolMost)
		}
	}
	for i, s := range l.pool {
		if s.size > l.target || s.size < l.target/4 || len(l.pool) > most && (i == len(l.pool)-1 || s.size != l.target) {
			l.pool = append(l.pool[:i], l.pool[i+1:]...)
			return s
		}
	}
	return nil
}

// discard deletes a segment file nothing needs.
func (l *Log) discard(s *segment) {
	s.file.Close()
	if err := l.fs.Remove(l.path(segmentName(s.id))); err != nil {
		l.fail(fmt.Errorf("removing %s: %w", segmentName(s.id), err))
	}
}

// makeSegment makes a zero-filled, durable file of this size, or of less if a frame waits for it: made is how large it is. The
// zeros bypass the page cache: they are never read, and copying them would take processor time and memory bandwidth from the
// committer (measured: a growing log commits 1.5 to 2.5 times faster).
func (l *Log) makeSegment(id uint32, size int64, urgent bool) (file vfs.File, made int64, err error) {
	if u, err := l.fs.Usage(l.dir); err == nil && u.Free < uint64(size) {
		return nil, size, fmt.Errorf("%d MiB free, a segment needs %d: %w", u.Free>>20, (size+1<<20-1)>>20, errNoSpace)
	}
	name := l.path(segmentName(id))
	tmp := name + ".tmp"
	file, err = l.fs.Create(tmp)
	if err == nil {
		err = file.Close()
	}
	made = size
	if err == nil {
		made, err = l.fillFile(tmp, size, urgent)
	}
	if err == nil {
		err = l.fs.Rename(tmp, name)
	}
	if err == nil {
		err = l.fs.SyncDir(l.dir)
	}
	if err != nil {
		if vfs.IsSpace(err) {
			l.fs.Remove(tmp)
		}
		return nil, size, err
	}
	file, err = l.fs.Open(name)
	return file, made, err
}

// fillFile writes zeros and syncs them.
func (l *Log) fillFile(name string, size int64, urgent bool) (made int64, err error) {
	file, err := l.fs.OpenDirect(name)
	if err != nil {
		return 0, err
	}
	made, err = l.fill(file, size, urgent)
	if err == nil {
		err = file.Sync()
	}
	if cerr := file.Close(); err == nil {
		err = cerr
	}
	return made, err
}

// fill writes zeros, in the background no faster than FillRate; but a commit that waits, or an empty pool, is no background. It
// ends early when a commit waits and there is enough for it.
func (l *Log) fill(file vfs.File, size int64, urgent bool) (made int64, err error) {
	for made < size {
		n := min(fillChunk, size-made)
		if _, err := file.WriteAt(zeros[:n], made); err != nil {
			return made, err
		}
		made += n
		if urgent {
			continue
		}
		l.mu.Lock()
		waits := l.need > 0 && l.pickable(l.need, segmentHot) < 0
		hurry := l.needed() > 0 || len(l.pool) == 0 && l.active != nil
		if waits {
			size = max(made, min(size, l.urgentSize(size)))
		}
		l.mu.Unlock()
		if !hurry && !l.noLoop {
			l.o.Clock.Rest(time.Duration(n*int64(time.Second)/l.o.FillRate), l.stop)
		}
	}
	return made, nil
}

// urgentSize is how large a segment is made that somebody waits for, instead of one of this size. For a frame, while the log rolls,
// it is a small one, so that the wait is short: a log that fills segments faster than the disk takes zeros is held back in small
// portions.
func (l *Log) urgentSize(size int64) int64 {
	if l.need > 0 && l.active != nil {
		size = min(size, l.o.SegmentMin/4)
	}
	return max(size, alignPage64(l.needed()))
}

// setNoSpace notes why no segment can be made and raises or ends the alarm. It releases l.mu.
func (l *Log) setNoSpace(why string) {
	if (l.noSpace == "") != (why == "") {
		l.spaceChanged()
	}
	l.noSpace = why
	l.updateAlarm()
}

// updateAlarm calls Events.Alarm if AlarmSpace has changed. It releases l.mu.
func (l *Log) updateAlarm() {
	l.mu.Unlock()
	l.telling.Lock() // who comes last tells how it is then
	defer l.telling.Unlock()
	l.mu.Lock()
	why := l.noSpace
	if why == "" {
		why = l.lowSpace
	}
	on := why != ""
	changed := on != l.alarmOn
	l.alarmOn = on
	l.mu.Unlock()
	if !changed {
		return
	}
	if on {
		l.log.Warn("disk space alarm", "why", why)
	} else {
		l.log.Info("disk space alarm ended")
	}
	if l.o.Events.Alarm != nil {
		l.o.Events.Alarm(AlarmSpace, on, why)
	}
}

// FreeMark is Options.FreeMark, or what it was set to since.
func (l *Log) FreeMark() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.o.FreeMark
}

// SetFreeMark changes Options.FreeMark, and raises or ends the alarm by it. It asks the disk, and calls Events.Alarm.
func (l *Log) SetFreeMark(bytes uint64) {
	l.mu.Lock()
	l.o.FreeMark = bytes
	l.mu.Unlock()
	l.checkFree()
}

// checkFree raises or ends the alarm for a disk with less than FreeMark free.
func (l *Log) checkFree() {
	u, err := l.fs.Usage(l.dir)
	if err != nil {
		l.log.Warn("free disk space is not known", "error", err)
		return
	}
	l.mu.Lock()
	l.free = u.Free
	free := u.Free
	for _, s := range l.pool {
		free += uint64(s.size)
	}
	l.lowSpace = ""
	if free < l.o.FreeMark {
		l.lowSpace = fmt.Sprintf("%d MiB free, mark is %d MiB", free>>20, l.o.FreeMark>>20)
	}
	l.updateAlarm()
}
