package seglog

import (
	"bytes"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"weak"
)

// R561: a late snapshot is made and written behind the writing, and counts from then on. A crash before that, or before the next
// checkpoint, finds the entries instead.
func TestLateSnapshot(t *testing.T) {
	for _, crash := range []string{"before it is made", "when it is written", "behind a checkpoint", "without a checkpoint"} {
		r := newRig(t)
		r.start()
		for i := range uint64(4) {
			r.append(entryRecord(2, i+1, i+1, 1, 100))
		}
		if crash != "without a checkpoint" {
			if err := r.l.checkpoint(false); err != nil {
				t.Fatal(err)
			}
		}
		made := 0
		rec := snapshotRecord(2, 3)
		meta := rec.Meta
		rec.Meta, rec.Later = nil, func(dst []byte) []byte {
			made++
			return append(dst, meta...)
		}
		before := r.l.Stats().Syncs
		r.append(rec) // nothing waits for it
		r.append(entryRecord(2, 5, 5, 1, 100))
		if n := r.l.Stats().Syncs - before; made != 0 || n != 1 || len(r.l.group(2).tail) != 5 {
			t.Fatalf("%s: made %d times, %d frames are written, %d entries are above the snapshot", crash, made, n, len(r.l.group(2).tail))
		}
		want := []string{"2:s3", "2:e4[4-4]", "2:e5[5-5]"}
		if crash != "before it is made" {
			if !r.l.lateStep(r.clk.Mono()) || r.l.lateStep(r.clk.Mono()) || made != 1 {
				t.Fatalf("%s: made %d times", crash, made)
			}
			if g := r.l.group(2); g.snap.index != 3 || g.snap.seg.kind != segmentCold || len(g.tail) != 2 {
				t.Fatalf("%s: the snapshot is %+v, %d entries above it", crash, g.snap, len(g.tail))
			}
		}
		switch crash {
		case "before it is made", "when it is written": // the checkpoint does not know of it
			want = []string{"2:e1[1-1]", "2:e2[2-2]", "2:e3[3-3]", "2:e4[4-4]", "2:e5[5-5]"}
		case "behind a checkpoint":
			if err := r.l.checkpoint(false); err != nil {
				t.Fatal(err)
			}
		}
		r.fs = r.fs.KillClone()
		r.mustOpen()
		if got := r.replay(); !slices.Equal(got, want) {
			t.Errorf("%s: replay is %v, want %v", crash, got, want)
		}
	}
}

// A late snapshot gives way to a newer one, and to the end of its group.
func TestLateSnapshotsGiveWay(t *testing.T) {
	r := newRig(t)
	r.start()
	for i := range uint64(3) {
		r.append(entryRecord(2, i+1, i+1, 1, 100), entryRecord(3, i+1, i+1, 1, 100), entryRecord(4, i+1, i+1, 1, 100))
	}
	old := late(snapshotRecord(2, 2))
	old.Later = func([]byte) []byte { t.Error("an old one is made"); return nil }
	r.append(old)
	r.append(late(snapshotRecord(2, 3)))
	r.append(late(snapshotRecord(3, 2)))
	r.append(Record{Group: 3, Kind: KindDrop, Index: 3})
	r.append(entryRecord(3, 1, 1, 1, 100)) // another life
	lower := old
	lower.Group, lower.Index = 4, 2
	r.append(lower)
	r.append(snapshotRecord(4, 3))
	r.keep()
	if g := r.l.group(2); g.snap.index != 3 || g.asked != 0 {
		t.Errorf("the snapshot of group 2 is %+v", g.snap)
	}
	if g := r.l.group(3); g.snap.seg != nil || len(g.tail) != 1 {
		t.Errorf("the snapshot of group 3 is %+v, of a life that is over", g.snap)
	}
	if g := r.l.group(4); g.snap.seg.kind != segmentHot {
		t.Errorf("the snapshot of group 4 is %+v", g.snap)
	}
	r.fs = r.fs.KillClone()
	r.mustOpen()
	if got, want := r.replay(), []string{"2:s3", "3:e1[1-1]", "4:s3"}; !slices.Equal(got, want) {
		t.Errorf("replay is %v, want %v", got, want)
	}
}

// A late snapshot that is too large for its offsets is not written. The one before it stays, and the entries above that.
func TestLateSnapshotThatIsTooLarge(t *testing.T) {
	defer func(n int64) { mostLate = n }(mostLate)
	r := newRig(t)
	r.start()
	for i := range uint64(3) {
		r.append(entryRecord(2, i+1, i+1, 1, 100))
	}
	r.append(late(snapshotRecord(2, 1)))
	r.keep()
	mostLate = 2 * pageSize
	rec := snapshotRecord(2, 2)
	rec.Meta = make([]byte, 2*pageSize)
	r.append(late(rec))
	r.keep()
	if g := r.l.group(2); g.snap.index != 1 || len(g.tail) != 2 {
		t.Errorf("the snapshot is %+v, %d entries above it", g.snap, len(g.tail))
	}
	r.fs = r.fs.KillClone()
	r.mustOpen()
	if got, want := r.replay(), []string{"2:s1", "2:e2[2-2]", "2:e3[3-3]"}; !slices.Equal(got, want) {
		t.Errorf("replay is %v, want %v", got, want)
	}
}

// R561: a late snapshot larger than a frame is written piece by piece, and is whole afterwards, also when it is moved.
func TestLargeLateSnapshot(t *testing.T) {
	r := newRig(t)
	r.o.SegmentMin, r.o.SegmentMax = 8<<20, 8<<20
	r.start()
	r.append(entryRecord(2, 1, 1, 1, 100))
	meta := bytes.Repeat([]byte("0123456789abcde\n"), 5<<20/16)
	rec := snapshotRecord(2, 1)
	rec.Meta = meta
	r.append(late(rec))
	r.keep()
	first := r.l.group(2).snap
	if first.seg == nil || first.seg.kind != segmentCold {
		t.Fatalf("the snapshot is %+v", first)
	}
	r.l.mu.Lock()
	r.l.sealCold()
	r.l.mu.Unlock()
	if err := r.l.rewrite(first.seg); err != nil {
		t.Fatal(err)
	}
	if at := r.l.group(2).snap; at.seg == first.seg {
		t.Fatal("it was not moved")
	}
	if err := r.l.checkpoint(false); err != nil {
		t.Fatal(err)
	}
	r.fs = r.fs.KillClone()
	r.mustOpen()
	err := r.l.Replay(func(x Replayed) error {
		if x.Kind != KindSnapshot || !bytes.Equal(x.Meta, meta) {
			t.Errorf("%v %d of %d bytes comes back", x.Kind, x.Index, len(x.Meta))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Where no segment can be made a late snapshot is an ordinary one: what it lets go of may be all that brings room.
func TestNoLateSnapshotWithoutRoom(t *testing.T) {
	r := newRig(t)
	r.start()
	r.append(entryRecord(2, 1, 1, 1, 100))
	r.l.mu.Lock()
	r.l.noSpace = "none"
	r.l.mu.Unlock()
	r.append(late(snapshotRecord(2, 1)))
	if g := r.l.group(2); g.snap.index != 1 || g.snap.seg.kind != segmentHot || len(r.l.late) != 0 {
		t.Errorf("the snapshot is %+v", g.snap)
	}
}

// R562: a group with a large state is not asked for a snapshot for every little bit of log, but for as much as twice its size.
func TestLargeSnapshotsThatPay(t *testing.T) {
	r := newRig(t)
	r.o.SegmentMin, r.o.SegmentMax = 2<<20, 2<<20
	r.start()
	r.append(entryRecord(2, 1, 1, 0, 0))
	rec := snapshotRecord(2, 1)
	rec.Meta = make([]byte, largeSnapshot)
	r.append(rec)
	index := uint64(1)
	for wrote := 0; wrote < 2*largeSnapshot+1<<20; wrote += 100 << 10 {
		index++
		r.append(entryRecord(2, index, index, 1, 100<<10))
		r.keep()
		if early := wrote < 2*largeSnapshot-200<<10; r.asked[2] && early {
			t.Fatalf("asked after %d bytes", wrote)
		}
	}
	if !r.asked[2] {
		t.Error("never asked")
	}
}

// What a late snapshot is made of is not kept when it is written: a copy of a large state, as long as that changes.
func TestLateSnapshotIsLetGoOf(t *testing.T) {
	r := newRig(t)
	r.start()
	r.append(entryRecord(2, 1, 1, 1, 100))
	state := func() weak.Pointer[[64]byte] {
		state := new([64]byte)
		rec := snapshotRecord(2, 1)
		rec.Meta, rec.Later = nil, func(dst []byte) []byte { return append(dst, state[:]...) }
		r.append(rec)
		return weak.Make(state)
	}()
	runtime.GC()
	if state.Value() == nil {
		t.Fatal("it is gone before it is written")
	}
	r.keep()
	runtime.GC()
	if r.l.group(2).snap.seg == nil || state.Value() != nil {
		t.Error("it is not written, or kept")
	}
	runtime.KeepAlive(r)
}

// R611: a late snapshot for which the disk has no room raises the alarm, as any other would, but no longer than it is wanted.
func TestLateSnapshotWithoutRoomIsNotWantedForEver(t *testing.T) {
	r := newRig(t)
	r.start()
	r.append(entryRecord(2, 1, 1, 1, 100))
	r.keep()
	r.fs.SetCapacity(512 << 10)
	rec := late(snapshotRecord(2, 1))
	rec.Later = func(dst []byte) []byte { return append(dst, make([]byte, 500<<10)...) }
	r.append(rec)
	r.keep()
	if len(r.l.late) != 1 || r.l.noSpace == "" {
		t.Fatalf("%d wait, no space: %q", len(r.l.late), r.l.noSpace)
	}
	r.append(entryRecord(2, 2, 2, 1, 100))
	r.append(snapshotRecord(2, 2))
	for range 3 {
		r.clk.Advance(time.Second)
		r.keep()
	}
	if g := r.l.group(2); g.snap.index != 2 || len(r.l.late) != 0 || r.l.noSpace != "" || r.l.alarmOn {
		t.Errorf("the snapshot is %+v, %d wait, no space: %q", g.snap, len(r.l.late), r.l.noSpace)
	}
}

// R561: a crash in the middle of a late snapshot leaves a part of a frame that nobody knows of, with a checkpoint and without one, and what
// is written there afterwards counts.
func TestTornLateSnapshot(t *testing.T) {
	for _, checkpoint := range []bool{true, false} {
		r := newRig(t)
		r.o.SegmentMin, r.o.SegmentMax = 8<<20, 8<<20
		r.start()
		for i := range uint64(3) {
			r.append(entryRecord(2, i+1, i+1, 1, 100))
		}
		r.append(entryRecord(3, 1, 1, 1, 100), late(snapshotRecord(3, 1)))
		r.l.lateStep(r.clk.Mono())
		if err := r.l.checkpoint(false); err != nil {
			t.Fatal(err)
		}
		rec := late(snapshotRecord(2, 2))
		rec.Later = func(dst []byte) []byte { return append(dst, bytes.Repeat([]byte("0123456789abcde\n"), 5<<20/16)...) }
		r.append(rec)
		cold := r.l.cold
		from := cold.end
		if !r.l.lateStep(r.clk.Mono()) || r.l.cold != cold || cold.end < from+5<<20 {
			t.Fatal("it is not written as one frame")
		}
		r.fs = r.fs.KillClone()
		file, err := r.fs.Open("log/" + segmentName(cold.id))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.WriteAt(make([]byte, 4<<20), from+coldPiece); err != nil {
			t.Fatal(err)
		}
		file.Close()
		reopen := func(want ...string) {
			if !checkpoint {
				names, _ := r.fs.List("log")
				for _, name := range names {
					if strings.HasPrefix(name, "checkpoint") {
						r.fs.Remove("log/" + name)
					}
				}
			}
			r.mustOpen()
			if got := r.replay(); !slices.Equal(got, want) || len(r.l.Quarantined()) > 0 {
				t.Errorf("checkpoint %v: replay is %v, want %v; quarantined %v", checkpoint, got, want, r.l.Quarantined())
			}
			r.l.begin()
		}
		reopen("2:e1[1-1]", "2:e2[2-2]", "2:e3[3-3]", "3:s1")
		r.append(late(snapshotRecord(2, 2)))
		r.l.lateStep(r.clk.Mono())
		if err := r.l.checkpoint(false); err != nil {
			t.Fatal(err)
		}
		r.fs = r.fs.KillClone()
		reopen("2:s2", "2:e3[3-3]", "3:s1")
	}
}
