package seglog

import (
	"math/rand/v2"
	"path"
	"slices"
	"testing"
	"time"
)

// lose removes a file of the log, for good.
func (r *rig) lose(name string) {
	r.t.Helper()
	if err := r.fs.Remove("log/" + name); err != nil {
		r.t.Fatal(err)
	}
	if err := r.fs.SyncDir("log"); err != nil {
		r.t.Fatal(err)
	}
}

// hitGroups are the groups that are quarantined.
func (r *rig) hitGroups() (hit []GroupID) {
	for _, h := range r.l.Quarantined() {
		hit = append(hit, h.Group)
	}
	return hit
}

// sealed gives up the active segment.
func (r *rig) sealed() {
	r.l.mu.Lock()
	r.l.com.sealIdle = true
	r.l.mu.Unlock()
	r.l.sealActive()
}

// TestNewestSegmentGone: the file of the segment that was written last is gone, and nothing follows it. Whoever may have had
// something in it is quarantined, and stays so over further starts, with what they write and without. R202
func TestNewestSegmentGone(t *testing.T) {
	for name, c := range map[string]struct {
		before func(r *rig)
		keeper bool // has had the time to sync
	}{
		"the first one": {func(r *rig) {}, false},
		"begun after the checkpoint": {func(r *rig) {
			if err := r.l.checkpoint(false); err != nil {
				r.t.Fatal(err)
			}
			r.sealed()
		}, false},
		"begun after a start": {func(r *rig) {
			if err := r.l.Close(true); err != nil {
				r.t.Fatal(err)
			}
			r.start()
		}, false},
		"begun before the power went": {func(r *rig) { r.sealed() }, true},
		"begun while a checkpoint was encoded": {func(r *rig) {
			between := false
			r.l.kee.between = func() {
				if !between {
					between = true
					r.sealed()
					r.append(entryRecord(5, 1, 1, 1, 100))
				}
			}
			if err := r.l.checkpoint(false); err != nil {
				r.t.Fatal(err)
			}
		}, false},
		"with the checkpoint's cut in it": {func(r *rig) {
			r.sealed()
			r.append(entryRecord(5, 1, 1, 1, 100))
			if err := r.l.checkpoint(false); err != nil {
				r.t.Fatal(err)
			}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.start()
			r.append(entryRecord(3, 1, 1, 1, 100), entryRecord(4, 1, 1, 1, 100))
			c.before(r)
			r.append(entryRecord(3, 2, 2, 1, 100))
			gone := segmentName(r.l.active.id)
			if c.keeper {
				r.keep()
				r.fs = r.fs.CrashClone(rand.New(rand.NewPCG(1, 1)))
			} else {
				r.fs = r.fs.KillClone()
			}
			r.lose(gone)
			for start := range 3 {
				r.start()
				if hit := r.hitGroups(); !slices.Contains(hit, 0) || name != "the first one" && !(slices.Contains(hit, 3) && slices.Contains(hit, 4)) {
					t.Fatalf("start %d: quarantined %v", start, r.l.Quarantined())
				}
				if start > 0 {
					r.append(entryRecord(6, uint64(start), uint64(start), 1, 100))
				}
				r.fs = r.fs.KillClone()
			}
			r.mustOpen()
			if got, want := r.replay(), []string{"6:e1[1-1]", "6:e2[2-2]"}; !slices.Equal(got, want) {
				t.Fatalf("replayed %v, want %v", got, want)
			}
		})
	}
}

// TestNewestSegmentGoneAfterCleanStop: what a clean stop has left is known, so only who had something in the segment is hit.
func TestNewestSegmentGoneAfterCleanStop(t *testing.T) {
	r := newRig(t)
	r.start()
	r.append(entryRecord(3, 1, 1, 1, 100))
	r.sealed()
	r.append(entryRecord(4, 1, 1, 1, 100))
	gone := segmentName(r.l.active.id)
	if err := r.l.Close(true); err != nil {
		t.Fatal(err)
	}
	r.lose(gone)
	r.mustOpen()
	if hit := r.hitGroups(); !slices.Equal(hit, []GroupID{4}) {
		t.Fatalf("quarantined %v", hit)
	}
}

// TestGivenUpSegmentIsNotMissed: the newest segment, in which nothing lives any more, may be used again or deleted, whatever the
// witness says and whichever checkpoint is read.
func TestGivenUpSegmentIsNotMissed(t *testing.T) {
	for _, damaged := range []int{0, 1, 2} { // so many of the checkpoints, newest first
		for _, deleted := range []bool{false, true} {
			r := newRig(t)
			r.start()
			r.append(entryRecord(3, 1, 1, 1, 100), entryRecord(4, 1, 0, 0, 0))
			if err := r.l.checkpoint(false); err != nil {
				t.Fatal(err)
			}
			r.sealed()
			r.append(Record{Group: 4, Kind: KindDrop, Index: 1})
			newest := r.l.active
			r.sealed()
			if deleted {
				r.l.want, r.l.rolledAt = 0, -int64(time.Hour)
			}
			if err := r.l.checkpoint(false); err != nil {
				t.Fatal(err)
			}
			for s := r.l.unpinned(); s != nil; s = r.l.unpinned() {
				if err := r.l.recycle(s); err != nil {
					t.Fatal(err)
				}
			}
			if r.l.segs[newest.id] != nil || deleted == slices.Contains(r.fs.Names("log/"), "log/"+segmentName(newest.id)) {
				t.Fatalf("deleted %v: the newest segment was not given up: %v", deleted, r.fs.Names("log/"))
			}
			names := r.fs.Names("log/checkpoint")
			for _, name := range names[len(names)-damaged:] {
				if err := r.fs.Flip(name, 40, 1); err != nil {
					t.Fatal(err)
				}
			}
			r.fs = r.fs.KillClone()
			r.mustOpen()
			if hits := r.l.Quarantined(); len(hits) > 0 {
				t.Fatalf("%d checkpoints damaged, deleted %v: quarantined %v", damaged, deleted, hits)
			}
			r.mustRead(3, 1)
		}
	}
}

// TestOneFrameOfTheNewestSegment: a segment was begun, and its first frame is the last of the log. A bit anywhere in it is damage and no
// torn write, and hits who is in it. R202
func TestOneFrameOfTheNewestSegment(t *testing.T) {
	r := newRig(t)
	r.start()
	r.append(entryRecord(3, 1, 1, 1, 100), entryRecord(4, 1, 1, 1, 100))
	if err := r.l.checkpoint(false); err != nil {
		t.Fatal(err)
	}
	r.sealed()
	r.append(entryRecord(3, 2, 2, 1, 100))
	name, end := "log/"+segmentName(r.l.active.id), int64(pageSize+headSize+8+recordHead+100)
	whole := r.fs.KillClone()
	for off := int64(0); off < end; off += 7 {
		r.fs = whole.KillClone()
		if err := r.fs.Flip(name, off, 2); err != nil {
			t.Fatal(err)
		}
		r.mustOpen()
		hit, got := r.hitGroups(), r.replay()
		switch {
		case slices.Equal(hit, []GroupID{3}) && slices.Equal(got, []string{"4:e1[1-1]"}) && off >= pageSize:
		case len(hit) == 0 && slices.Equal(got, []string{"3:e1[1-1]", "3:e2[2-2]", "4:e1[1-1]"}) && off < pageSize:
		default:
			t.Fatalf("a bit at %d: quarantined %v, replayed %v", off, hit, got)
		}
	}
}

// TestNoRoomForTheMark: where there is no room for a mark behind the last frame, and the footer is not there yet, a bit in a frame is
// damage and no torn write all the same. R202
func TestNoRoomForTheMark(t *testing.T) {
	r := newRig(t)
	r.start()
	var ends []int64
	for i := uint64(1); r.l.active == nil || r.l.active.room(0) >= pageSize; i++ {
		r.append(entryRecord(GroupID(2+i%3), (i+2)/3, i, 1, 100))
		ends = append(ends, r.l.active.end)
		r.clk.Advance(time.Second)
	}
	seg := r.l.active
	for r.l.StepCommit() {
	}
	if r.l.active != nil || seg.footer {
		t.Fatal("the segment was not sealed, or has its footer")
	}
	whole := r.fs.KillClone()
	for i, end := range ends {
		r.fs = whole.KillClone()
		if err := r.fs.Flip("log/"+segmentName(seg.id), end-pageSize+headSize+100, 1); err != nil {
			t.Fatal(err)
		}
		r.mustOpen()
		if hit, want := r.hitGroups(), []GroupID{GroupID(2 + (i+1)%3)}; !slices.Equal(hit, want) {
			t.Fatalf("frame %d of %d damaged: quarantined %v, want %v", i+1, len(ends), hit, want)
		}
	}
}

// TestNoRoomForTheWitness: a disk that is full to the last byte when a log without a witness is opened is no reason not to start.
func TestNoRoomForTheWitness(t *testing.T) {
	r := newRig(t)
	r.fs = oldFolder(t)
	r.fs.SetCapacity(r.fs.Used())
	r.start()
	if r.fatal != nil || r.l.witness.file != nil {
		t.Fatalf("fatal: %v, witness %v", r.fatal, r.l.witness.file != nil)
	}
	r.fs.SetCapacity(0)
	r.append(entryRecord(7, 1, 1, 1, 100))
	r.fs = r.fs.KillClone()
	r.start()
	if r.l.witness.file == nil {
		t.Fatal("there is room, and no witness")
	}
	r.mustRead(7, 1)
}

// TestLostFiles loses one file of random logs, in no time for the keeper and with. Who has nothing in it is not hit, and nothing is
// gone without a word. R202
func TestLostFiles(t *testing.T) {
	var lost, quarantined int
	for seed := range uint64(20) {
		w := newWorld(t, 3000+seed)
		w.start()
		for range 50 + w.rng.IntN(400) {
			w.step()
		}
		w.settle()
		for _, name := range w.fs.Names("log/") {
			fs := w.fs.KillClone()
			if err := fs.Remove(name); err != nil {
				t.Fatal(err)
			}
			q, _ := checkFlipped(t, w, fs, seed, path.Base(name), wholeFile)
			lost++
			quarantined += q
		}
	}
	t.Logf("%d files lost, %d groups quarantined", lost, quarantined)
	if quarantined == 0 {
		t.Fatal("no file had anything in it")
	}
}

// TestWitnessComesAfterItsFrame: whenever the power goes while a segment is begun, a witness that names it is no false one.
func TestWitnessComesAfterItsFrame(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 8))
		r := newRig(t)
		r.fs.SetGarbage(0.2)
		r.start()
		index := uint64(1)
		for range 1 + rng.IntN(3) {
			r.append(entryRecord(3, index, index, 1, 100))
			r.sealed()
			index++
		}
		acked := index - 1
		r.fs.CrashAt(r.fs.Calls() + 1 + rng.IntN(8))
		for i := 0; i < 10 && !r.fs.Crashed(); i++ {
			r.l.Append(&Batch{Records: []Record{entryRecord(3, index, index, 1, 100)}, Sync: true, Stable: func(*Batch) { acked = index }})
			r.commit()
			index++
			r.l.StepKeep()
			if rng.IntN(2) == 0 {
				r.sealed()
			}
		}
		r.fs = r.fs.CrashClone(rng)
		r.mustOpen()
		if hits := r.l.Quarantined(); len(hits) > 0 {
			t.Fatalf("seed %d: quarantined %v", seed, hits)
		}
		if got := r.l.groups[3].lastIndex; got < acked {
			t.Fatalf("seed %d: recovered to %d, acknowledged %d", seed, got, acked)
		}
	}
}
