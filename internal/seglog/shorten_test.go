package seglog

import (
	"fmt"
	"slices"
	"testing"
)

// TestFullDiskShortensSegments: where a frame waits for a few pages and there is nothing to rewrite, a segment that was sealed early
// gives back what it does not use. Its records stay, also for a start from an older checkpoint, and when it is used again it is as
// large as its file.
func TestFullDiskShortensSegments(t *testing.T) {
	r := newRig(t)
	r.start()
	r.append(entryRecord(2, 1, 1, 3, 9000)) // not half of a segment, and all of it lives
	if err := r.l.checkpoint(false); err != nil {
		t.Fatal(err)
	}
	r.l.com.sealIdle = true
	r.l.sealActive()
	first := r.l.segs[1]
	for r.l.prepareStep() {
	}
	index := uint64(1)
	r.fs.SetCapacity(r.fs.Used()) // and there is one free segment
	for stable := true; stable; {
		index++
		stable = false
		r.l.Append(&Batch{Records: []Record{entryRecord(2, index, index+2, 1, 9000)}, Sync: true, Stable: func(*Batch) { stable = true }})
		r.commit()
		if !stable {
			r.keep()
			r.commit()
		}
		if index > 50 {
			t.Fatal("the disk is never full")
		}
	}
	if first.cut == 0 || first.taken() < first.stable+pageSize {
		t.Fatalf("the first segment was not shortened: %+v", first)
	}
	if size, err := first.file.Size(); err != nil || size != first.taken() {
		t.Fatalf("the file has %d bytes, the segment %d, %v", size, first.taken(), err)
	}
	r.mustRead(2, 3)
	r.fs = r.fs.KillClone()
	r.mustOpen()
	if got := r.replay(); len(got) != int(index-1) || got[0] != "2:e1[1-3]" || len(r.l.Quarantined()) > 0 {
		t.Fatalf("replayed %v, quarantined %v", got, r.l.Quarantined())
	}
	if s := r.l.segs[1]; s.taken() != first.taken() {
		t.Fatalf("the segment takes %d bytes, its file %d", s.taken(), first.taken())
	}
	r.l.SetLive(2, []Range{{1, index + 1}})
	r.l.begin()
	r.mustRead(2, 3)
	r.fs.SetCapacity(0)
	r.append(snapshotRecord(2, index-1))
	r.l.Release(2, index-1, []Range{{1, index + 1}})
	for range 20 {
		r.clk.Advance(1e9)
		r.keep()
	}
	for _, s := range r.l.pool {
		if size, err := s.file.Size(); err != nil || size != s.size {
			t.Fatalf("free segment %d: the file has %d bytes, %d are counted, %v", s.id, size, s.size, err)
		}
	}
	if s := r.l.Stats(); s.Hot > 1 || s.SpaceAlarm || r.fatal != nil {
		t.Fatalf("%v, %+v", r.fatal, s)
	}
}

// TestSettlesNeedNoFooter: on a full disk with two pages left, a record without items still becomes stable, in a segment that has no
// room for a footer, and is there after a start.
func TestSettlesNeedNoFooter(t *testing.T) {
	r := newRig(t)
	r.start()
	r.append(entryRecord(3, 1, 1, 1, 100))
	full := r.fillUp(6, 18000)
	for _, s := range r.l.segs {
		s.looked = true // nothing is to come from there
	}
	index := uint64(1)
	settle := func() (stable bool) {
		index++
		r.l.Append(&Batch{Records: []Record{entryRecord(3, index, 0, 0, 0)}, Sync: true, Stable: func(*Batch) { stable = true }})
		for range 5 {
			r.commit()
			for r.l.prepareStep() {
			}
		}
		return stable
	}
	for r.l.active.rest(0) >= pageSize { // the last pages
		if !settle() {
			t.Fatalf("no room in %+v", r.l.active)
		}
	}
	r.fs.SetCapacity(r.fs.Used() + 2*pageSize)
	stable := settle()
	if !stable || r.l.active.size != 2*pageSize || r.l.groups[2].lastIndex >= full {
		t.Fatalf("stable %v: %+v", stable, r.l.Stats())
	}
	r.fs = r.fs.KillClone()
	r.mustOpen()
	if got, want := r.replay(), fmt.Sprintf("3:e%d", index); !slices.Contains(got, want) {
		t.Fatalf("replayed %v, %s is missing", got, want)
	}
}
