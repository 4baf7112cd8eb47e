package seglog

import (
	"testing"
	"time"
)

// rollOver fills n segments whose items nobody needs for long, one every pause.
func (r *rig) rollOver(n int, pause time.Duration) {
	r.t.Helper()
	if r.l.active == nil {
		r.append(entryRecord(2, r.l.group(2).lastIndex+1, 0, 0, 0))
	}
	for range n {
		for seg := r.l.active; r.l.active == seg; {
			index := r.l.group(2).lastIndex + 1
			r.append(entryRecord(2, index, index, 1, 6000), snapshotRecord(2, index))
			r.l.Release(2, index, []Range{{index, index}})
		}
		r.clk.Advance(pause)
		r.keep()
	}
}

// TestBusyLogUsesItsSegmentsAgain: while the log rolls, what becomes free is used again and not made anew, even if more becomes
// free at once than is held ready in calm; the rest goes back to the disk when it is calm.
func TestBusyLogUsesItsSegmentsAgain(t *testing.T) {
	r := newRig(t)
	r.start()
	r.rollOver(20, time.Second)
	made := r.l.nextID
	r.rollOver(100, time.Second)
	if r.l.nextID != made {
		t.Errorf("%d segments made anew while others became free: %+v", r.l.nextID-made, r.l.Stats())
	}
	if s := r.l.Stats(); s.DiskBytes > 2*s.LiveBytes+spareSegments*s.SegmentSize {
		t.Errorf("too much on the disk: %+v", s)
	}
	for range 30 {
		r.clk.Advance(time.Second)
		r.keep()
	}
	if s := r.l.Stats(); s.Free > poolBusy {
		t.Errorf("in calm %d segments are held ready", s.Free)
	}
}

// TestSegmentsGrowFromWhatWasFilled: the size follows how fast a segment of that size is filled, so small ones left over do
// not drive it up.
func TestSegmentsGrowFromWhatWasFilled(t *testing.T) {
	r := newRig(t)
	r.o.SegmentMax = 1 << 20
	r.start()
	r.rollOver(1, 0)
	if r.l.target != 128<<10 {
		t.Fatalf("a quickly filled segment of 64 KiB makes them %d", r.l.target)
	}
	r.l.grow(64 << 10)
	r.l.grow(64 << 10)
	if r.l.target != 128<<10 {
		t.Errorf("further ones of 64 KiB make them %d", r.l.target)
	}
	r.rollOver(40, time.Second)
	if r.l.target != 128<<10 {
		t.Errorf("slowly filled ones make them %d", r.l.target)
	}
}

// TestDrainingBringsSegmentsBackAtOnce: while a backlog drains hardly anything is logged, and the files come back all the same,
// although a group that was asked for a snapshot has not answered.
func TestDrainingBringsSegmentsBackAtOnce(t *testing.T) {
	r := newRig(t)
	r.start()
	r.append(entryRecord(2, 1, 0, 0, 0))
	last := uint64(0)
	for first := r.l.active; len(r.l.segs) < 20 || r.l.active == first; {
		last++
		r.append(entryRecord(3, last, last, 1, 6000), snapshotRecord(3, last))
		r.keep()
	}
	r.clk.Advance(time.Second)
	r.keep()
	clear(r.asked)
	for id := uint64(1); id <= last; id++ {
		r.l.Release(3, last, []Range{{id, id}})
		r.clk.Advance(time.Second / 100)
		r.keep()
		if s := r.l.Stats(); s.DiskBytes > 2*s.LiveBytes+(spareSegments+1)*s.SegmentSize {
			t.Fatalf("%d of %d gone, too much on the disk: %+v", id, last, s)
		}
	}
	if s := r.l.Stats(); s.DiskBytes > spareSegments*s.SegmentSize {
		t.Errorf("all gone, too much on the disk: %+v", s)
	}
	if !r.asked[2] {
		t.Error("nobody was asked for a snapshot: this shows nothing")
	}
}

// TestBurstsAreUsedAgain: beside a backlog as large as what comes free at once, as a member of a replicated group has it that keeps
// entries for others, no segment is deleted to be made anew, and the files take no more than they may.
func TestBurstsAreUsedAgain(t *testing.T) {
	r := newRig(t)
	r.start()
	r.append(entryRecord(2, 1, 0, 0, 0))
	last := uint64(0)
	for len(r.l.segs) < 8 { // stays
		last++
		r.append(entryRecord(3, last, last, 1, 7800), snapshotRecord(3, last))
		r.keep()
	}
	burst := func() {
		first := r.l.group(2).lastIndex + 1
		index := first
		for segs := len(r.l.segs) + 6; len(r.l.segs) < segs; index++ {
			r.append(entryRecord(2, index, index, 1, 7800), snapshotRecord(2, index))
			for r.l.prepareStep() {
			}
		}
		r.l.Release(2, index-1, []Range{{first, index - 1}})
		r.clk.Advance(time.Second)
		r.keep()
		if s := r.l.Stats(); s.DiskBytes > 2*s.LiveBytes+spareSegments*s.SegmentSize {
			t.Fatalf("too much on the disk: %+v", s)
		}
	}
	for range 3 {
		burst()
	}
	made, before := r.l.nextID, r.l.Stats()
	for range 10 {
		burst()
	}
	s := r.l.Stats()
	if n := s.RecycledSegments - before.RecycledSegments; n < 50 || r.l.nextID != made {
		t.Errorf("%d came free, %d were made anew: %+v", n, r.l.nextID-made, s)
	}
}
