package seglog

import (
	"errors"
	"fmt"
	"slices"

	"holdfast/internal/invariant"
)

// Late snapshots (Record.Later). A large state in a frame of the committer's would hold up everybody: making its bytes holds up who
// appends it, writing them all other groups. So the keeper has them made, when all that the group appended before is stable, and
// writes them into the cold segment, piece by piece with pauses for commits, as if it moved a snapshot there. A crash before the next
// checkpoint finds the snapshot before it, and the entries above that: no segment with any of them is used again until then.

// lateSnapshot is one to be written.
type lateSnapshot struct {
	g    *group
	rec  Record
	born uint64 // sequence of the log when it was taken over
}

// mostLate is the largest frame of a late snapshot: offsets and lengths have 32 bits. What is larger is not written, and what was there before stays. It is a
// variable for tests.
var mostLate int64 = 2 << 30

// coldPiece is how much is written and synced at once into a cold segment.
const coldPiece = 1 << 20

// early makes a late snapshot an ordinary one if there is no room for segments: what it lets go of may be what brings some.
func (l *Log) early(b *Batch) {
	for i := range b.Records {
		if r := &b.Records[i]; r.Later != nil && l.full() {
			r.Meta, r.Later = r.Later(nil), nil
		}
	}
}

// takeLate takes over a late snapshot, in place of an earlier one of the group. Log.mu is held.
func (l *Log) takeLate(r *Record) {
	g := l.groups[r.Group]
	if g == nil || g.hit != "" {
		return
	}
	invariant.That(r.Kind == KindSnapshot && r.Index <= g.lastIndex, "a late snapshot is not of what is stable")
	late := lateSnapshot{g, *r, l.seq}
	for i := range l.late {
		if l.late[i].g == g {
			l.late[i] = late
			return
		}
	}
	l.late = append(l.late, late)
	kick(l.keepKick)
}

// lateStep writes one late snapshot, and tells whether it did.
func (l *Log) lateStep(now int64) bool {
	l.mu.Lock()
	if len(l.late) == 0 || l.closing.Load() || now < l.kee.lateAt {
		l.mu.Unlock()
		return false
	}
	late := l.late[0]
	l.late = slices.Delete(l.late, 0, 1) // and with it what its state is made of
	size := int(late.g.snap.length)
	obsolete := late.obsolete()
	if obsolete {
		l.needCold = 0
	}
	l.mu.Unlock()
	if obsolete {
		return true
	}
	meta := late.rec.Later(make([]byte, 0, size+size/8))
	err := l.writeLate(late, meta)
	switch {
	case err == nil:
		return true
	case errors.Is(err, errClosing):
		return false
	case !errors.Is(err, errNoCold):
		return l.keep(err)
	}
	l.kee.lateAt = now + int64(keepTick)
	l.mu.Lock()
	defer l.mu.Unlock()
	late.rec.Later = func(dst []byte) []byte { return append(dst, meta...) }
	if !slices.ContainsFunc(l.late, func(x lateSnapshot) bool { return x.g == late.g }) { // a newer one
		l.late = append(l.late, late)
	}
	return false
}

// obsolete tells whether nobody needs it any more. Log.mu is held.
func (s *lateSnapshot) obsolete() bool {
	g := s.g
	return g.dropped || g.hit != "" || g.snap.seg != nil && g.snap.index > s.rec.Index
}

// writeLate writes a late snapshot as a frame of the cold segment, and enters it.
func (l *Log) writeLate(late lateSnapshot, meta []byte) error {
	rec := late.rec
	rec.Meta, rec.Later = meta, nil
	size, _ := recordSize(&rec)
	frame := alignPage64(int64(headSize + align8(size)))
	if frame > mostLate {
		l.log.Error("the state of a group is too large for a snapshot; the log keeps what it is made of", "group", rec.Group, "bytes", len(meta))
		return nil
	}
	seg, err := l.coldFor(frame, 0)
	if err != nil {
		return err
	}
	buf, _ := openFrame(make([]byte, 0, frame), nil)
	off := uint32(seg.end) + uint32(len(buf))
	buf, _, overhead := appendRecord(buf, &rec, late.born)
	buf = l.sealColdFrame(seg, buf, 1)
	l.kee.pause()
	if err := l.writeCold(seg, buf); err != nil {
		return err
	}
	defer l.letGo(l.hold())
	seg.advance(len(buf))
	l.changed, l.needCold = true, 0 // an earlier one may have needed a larger segment
	l.stats.written.Add(uint64(len(buf)))
	if g := late.g; !late.obsolete() {
		invariant.That(g.repl == nil || g.termFits(rec.Index, rec.Term), "the term of a snapshot is not that of its entry")
		l.applySnapshot(g, place{rec.Index, seg, off, uint32(overhead)})
	}
	return nil
}

// coldFor returns the cold segment if it has room for a frame with tables of this size, or a new one.
func (l *Log) coldFor(frame int64, tables int) (*segment, error) {
	l.mu.Lock()
	seg := l.cold
	fits := seg != nil && seg.room(tables) >= frame
	l.mu.Unlock()
	if fits {
		return seg, nil
	}
	return l.openCold(frame + pageSize + footerRoom(tables))
}

// sealColdFrame ends the next frame of a cold segment.
func (l *Log) sealColdFrame(seg *segment, buf []byte, records int) []byte {
	return sealFrame(buf, 0, head{
		gen: seg.gen, seq: seg.lastSeq + 1, synced: seg.lastSeq, off: uint32(seg.end), kind: frameData,
		records: uint32(records), stamp: l.o.Clock.Now().UnixNano(),
	})
}

// writeCold writes a frame to the end of a cold segment and makes it durable. One of many pieces is written with pauses: commits
// wait for a piece at most.
func (l *Log) writeCold(seg *segment, buf []byte) error {
	for at := seg.end; len(buf) > 0; {
		n := len(buf)
		if n > coldPiece+coldPiece/2 { // a frame that is full is a little longer
			n = coldPiece
		}
		l.io[1].begin(l.o.Clock.Mono())
		_, err := seg.file.WriteAt(buf[:n], at)
		if err == nil {
			err = seg.file.Datasync()
		}
		l.io[1].end()
		if err != nil {
			return fmt.Errorf("writing %s: %w", segmentName(seg.id), err)
		}
		if buf, at = buf[n:], at+int64(n); len(buf) > 0 {
			if l.rest(n); l.closing.Load() {
				return errClosing
			}
		}
	}
	return nil
}

// advance counts a frame that was written to the end of a cold segment. Log.mu is held.
func (s *segment) advance(frame int) {
	s.end += int64(frame)
	s.stable = s.end
	s.lastSeq++
}
