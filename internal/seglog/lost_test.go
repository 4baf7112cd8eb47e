package seglog

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// churn lets group 3 put and delete until whatever else lived in hot segments has moved to cold ones.
func (r *rig) churn(from, to uint64) {
	for i := from; i < to; i++ {
		r.append(entryRecord(3, i, i, 1, 6000))
		r.l.Release(3, i, []Range{{i, i}})
		r.snapshotIfAsked(3, i)
		r.keep()
		r.clk.Advance(300e6)
	}
}

// loseCheckpoints damages all checkpoints and opens what a killed process leaves.
func (r *rig) loseCheckpoints() {
	r.t.Helper()
	names := r.fs.Names("log/checkpoint")
	if len(names) == 0 {
		r.t.Fatal("there is no checkpoint")
	}
	for _, n := range names {
		if err := r.fs.Flip(n, 40, 1); err != nil {
			r.t.Fatal(err)
		}
	}
	r.fs = r.fs.KillClone()
	r.mustOpen()
}

// TestIdleGroupsOutliveCheckpoints: groups that have been idle for so long that their state and items lie in cold segments
// alone are found when no checkpoint tells of them, and one that was dropped is not. R50
func TestIdleGroupsOutliveCheckpoints(t *testing.T) {
	r := newRig(t)
	r.start()
	r.append(snapshotRecord(1, 7)) // like a catalog
	r.append(entryRecord(2, 1, 1, 2, 100), entryRecord(4, 1, 1, 2, 100))
	r.append(snapshotRecord(2, 1), snapshotRecord(4, 1))
	r.churn(1, 400)
	for _, id := range []GroupID{1, 2, 4} {
		if g := r.l.groups[id]; g.snap.seg.kind != segmentCold || len(g.tail) > 0 {
			t.Fatalf("group %d has not become cold", id)
		}
	}
	r.append(Record{Group: 4, Kind: KindDrop, Index: 1})
	r.loseCheckpoints()
	if hits := r.l.Quarantined(); len(hits) > 0 {
		t.Fatalf("quarantined: %v", hits)
	}
	got := slices.DeleteFunc(r.replay(), func(s string) bool { return s[0] == '3' })
	if want := []string{"1:s7", "2:s1"}; !slices.Equal(got, want) {
		t.Fatalf("replayed %v, want %v", got, want)
	}
	r.mustRead(2, 1)
	r.mustRead(2, 2)
}

// TestSnapshotDoesNotHideLostItems: a snapshot tells the state as of its entry, but not the items of entries that were lost
// before it. R202
func TestSnapshotDoesNotHideLostItems(t *testing.T) {
	for _, checkpoint := range []bool{false, true} {
		hideLostItems(t, checkpoint)
	}
}

func hideLostItems(t *testing.T, checkpoint bool) {
	r := newRig(t)
	r.start()
	r.append(entryRecord(2, 1, 1, 1, 100), entryRecord(3, 1, 1, 1, 100))
	if checkpoint {
		if err := r.l.checkpoint(false); err != nil {
			t.Fatal(err)
		}
	}
	var heads []int64
	for _, rec := range []Record{entryRecord(2, 2, 2, 1, 100), entryRecord(4, 1, 1, 1, 100)} {
		heads = append(heads, r.l.active.end)
		r.append(rec)
	}
	r.append(snapshotRecord(2, 2), snapshotRecord(3, 1))
	r.append(entryRecord(2, 3, 3, 1, 100), entryRecord(3, 2, 2, 1, 100))
	for _, off := range heads {
		if err := r.fs.Flip("log/"+segmentName(r.l.active.id), off+20, 1); err != nil {
			t.Fatal(err)
		}
	}
	r.fs = r.fs.KillClone()
	r.mustOpen()
	var hit []GroupID
	for _, h := range r.l.Quarantined() {
		hit = append(hit, h.Group)
	}
	if want := []GroupID{0, 2, 4}; !slices.Equal(hit, want) { // 0: whoever is not known here
		t.Fatalf("quarantined %v, want %v", hit, want)
	}
	if got, want := r.replay(), []string{"3:s1", "3:e2[2-2]"}; !slices.Equal(got, want) {
		t.Fatalf("replayed %v, want %v", got, want)
	}
}

// TestSetLiveCountsWhatIsMissing: a host that needs items of which the log knows nothing is told.
func TestSetLiveCountsWhatIsMissing(t *testing.T) {
	r := newRig(t)
	r.start()
	r.append(entryRecord(2, 1, 1, 5, 100))
	r.append(entryRecord(2, 2, 8, 3, 100))
	r.fs = r.fs.KillClone()
	r.mustOpen()
	for _, c := range []struct {
		group   GroupID
		live    []Range
		missing uint64
	}{
		{2, []Range{{1, 5}, {8, 10}}, 0}, {2, []Range{{2, 8}}, 2}, {2, []Range{{2, 2}, {8, 12}}, 4}, {3, []Range{{1, 2}}, 2}, {3, nil, 0},
	} {
		if got := r.l.SetLive(c.group, c.live); got != c.missing {
			t.Errorf("%v of group %d: %d missing, want %d", c.live, c.group, got, c.missing)
		}
	}
}

// TestDamagedTableOfTangledRuns: in a cold segment the runs of a group may reach into each other; a damaged table is made
// anew for each of them all the same. R202
func TestDamagedTableOfTangledRuns(t *testing.T) {
	r := newRig(t)
	r.start()
	block := func(index uint64, ids ...uint64) {
		rec := entryRecord(2, index, 0, 0, 0)
		for _, id := range ids {
			rec.Blocks = append(rec.Blocks, Block{First: id, Items: [][]byte{item(2, id, 50)}})
		}
		r.append(rec)
	}
	block(1, 10, 50, 90)
	block(2, 20, 60)
	block(3, 30, 70)
	block(4, 95)
	seg := r.l.active
	r.l.mu.Lock()
	r.l.sealLocked(seg)
	r.l.active = nil
	r.l.mu.Unlock()
	if len(seg.runs) < 2 {
		t.Fatalf("%d runs", len(seg.runs))
	}
	if err := r.l.writeFooter(seg); err != nil {
		t.Fatal(err)
	}
	for _, run := range seg.runs {
		if err := r.fs.Flip("log/"+segmentName(seg.id), run.tabOff+5, 1); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []uint64{10, 50, 90, 20, 60, 30, 70, 95} {
		r.mustRead(2, id)
	}
}

// TestItemsWithoutTableAndFrame: where the end of a sealed segment is gone, the table with it, the items of the frames that are lost are in
// no table that can be made anew. The rewriter says so and lets the segment be; it does not try for ever. R202
func TestItemsWithoutTableAndFrame(t *testing.T) {
	r := newRig(t)
	r.start()
	r.append(entryRecord(2, 1, 1, 2, 100))
	lost := r.l.active.end
	r.append(entryRecord(2, 2, 3, 2, 100))
	seg, end := r.l.active, r.l.active.end
	r.sealed()
	if err := r.l.writeFooter(seg); err != nil {
		t.Fatal(err)
	}
	r.append(snapshotRecord(2, 2))
	r.zero(segmentName(seg.id), lost, end+pageSize)
	if err := r.l.rewrite(seg); err != nil {
		t.Fatal(err)
	}
	if hit := r.hitGroups(); !slices.Equal(hit, []GroupID{2}) || !seg.stuck {
		t.Fatalf("quarantined %v, stuck %v", hit, seg.stuck)
	}
	r.mustRead(2, 2)
}

// TestDamagedSnapshotIsReplaced: a snapshot found damaged while its group runs is written anew; a group that does not answer
// is quarantined. R202
func TestDamagedSnapshotIsReplaced(t *testing.T) {
	for _, answers := range []bool{true, false} {
		r := newRig(t)
		r.start()
		r.append(entryRecord(2, 1, 1, 1, 100))
		r.append(snapshotRecord(2, 1))
		at := r.l.groups[2].snap
		if err := r.fs.Flip("log/"+segmentName(at.seg.id), int64(at.off)+recordHead, 1); err != nil {
			t.Fatal(err)
		}
		for i := uint64(1); i < 400; i++ {
			r.append(entryRecord(3, i, i, 1, 6000))
			r.l.Release(3, i, []Range{{i, i}})
			r.snapshotIfAsked(3, i)
			if answers {
				r.snapshotIfAsked(2, 1)
			}
			r.keep()
			r.clk.Advance(300e6)
		}
		r.snapshotIfAsked(3, 399) // it may have been asked just now
		r.commit()
		if hits := r.l.Quarantined(); len(hits) == 0 != answers {
			t.Fatalf("answers %v: quarantined %v", answers, hits)
		}
		if r.l.askedOut != 0 {
			t.Fatalf("answers %v: %d groups are waited for", answers, r.l.askedOut)
		}
		if answers && r.l.groups[2].snap == at {
			t.Fatal("the damaged snapshot is still the newest")
		}
		r.mustRead(2, 1)
	}
}

// TestFreeSegmentIsNoDamagedOne: a free segment whose header is not zeros, because its wiping or its next first frame did not
// reach the disk whole, holds frames of an earlier life. A start without a checkpoint must not take it for a part of the log.
func TestFreeSegmentIsNoDamagedOne(t *testing.T) {
	r := newRig(t)
	r.start()
	r.rollOver(20, time.Second)
	r.append(entryRecord(3, 1, 1, 1, 100))
	if len(r.l.pool) == 0 {
		t.Fatal("there is no free segment")
	}
	for _, s := range r.l.pool {
		if err := r.fs.Flip("log/"+segmentName(s.id), 5, 1); err != nil {
			t.Fatal(err)
		}
	}
	r.fs = r.fs.KillClone()
	r.start()
	r.append(entryRecord(3, 2, 2, 1, 100))
	for _, name := range r.fs.Names("log/checkpoint") {
		if err := r.fs.Flip(name, 40, 1); err != nil {
			t.Fatal(err)
		}
	}
	r.fs = r.fs.CrashClone(rand.New(rand.NewPCG(1, 2)))
	r.start()
	if hits := r.l.Quarantined(); len(hits) > 0 {
		t.Fatalf("quarantined: %v", hits)
	}
	r.mustRead(3, 1)
	r.mustRead(3, 2)
}

// TestLostCheckpoints runs random histories in which now and then, after a kill, no checkpoint can be used, and power cuts that
// leave garbage in free segments.
// R199: what is derived from the log may be behind it, and may be lost.
func TestLostCheckpoints(t *testing.T) {
	for seed := range uint64(30) {
		w := newWorld(t, 7000+seed)
		w.fs.SetGarbage(0.2)
		w.start()
		w.interleave()
		for range 6 {
			for range 20 + w.rng.IntN(120) {
				w.step()
			}
			if w.rng.IntN(3) > 0 {
				w.crash()
				continue
			}
			for _, name := range w.fs.Names("log/checkpoint") {
				if err := w.fs.Flip(name, 40, 1); err != nil {
					t.Fatal(err)
				}
			}
			w.note("checkpoints lost")
			w.fs = w.fs.KillClone()
			w.recover(false)
		}
	}
}

// TestCopiesBeforeTheFirstCheckpoint: survivors are copied, and the power goes before there is a checkpoint. Every frame from the
// first on is there, so nobody has lost anything: not a member that had only begun, with items of a state that is on its way and no
// state or hard state yet. When the segments from before are gone, that can no longer be known. R50
func TestCopiesBeforeTheFirstCheckpoint(t *testing.T) {
	for _, gone := range []bool{false, true} {
		r := newRig(t)
		r.start()
		begun := entryRecord(3, 0, 1, 2, 100)
		begun.Kind, begun.Term, begun.Meta = KindItems, 1, nil
		r.append(begun)
		for i := uint64(1); i <= 8; i++ { // a segment and a little
			r.append(entryRecord(2, i, i, 1, 9000))
		}
		r.append(snapshotRecord(2, 8))
		r.l.Release(2, 8, []Range{{2, 8}})
		first := r.l.needsFooter()
		if err := r.l.writeFooter(first); err != nil {
			t.Fatal(err)
		}
		r.l.prepareStep()
		if err := r.l.rewrite(first); err != nil || r.l.cold == nil || !first.empty() {
			t.Fatalf("the first segment was not rewritten: %v, %+v", err, r.l.Stats())
		}
		r.fs = r.fs.KillClone()
		if gone {
			if err := r.fs.Remove("log/" + segmentName(first.id)); err != nil {
				t.Fatal(err)
			}
		}
		r.mustOpen()
		if hits := r.l.Quarantined(); gone == (len(hits) == 0) {
			t.Fatalf("first segment gone: %v; quarantined %v", gone, hits)
		}
		if !gone {
			r.mustRead(3, 2)
			r.mustRead(2, 1)
		}
	}
}
