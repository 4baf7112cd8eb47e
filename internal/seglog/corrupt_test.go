package seglog

import (
	"bytes"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/internal/clock"
	"holdfast/internal/vfs"
)

// settle makes everything appended stable and lets a second pass, so that each frame is known to have been durable.
func (w *world) settle() {
	w.commit()
	w.clk.Advance(time.Second)
	w.calm()
}

// look opens a copy of a disk and returns the states replayed.
func look(t *testing.T, fs *vfs.Mem, o Options) (*Log, map[GroupID]string) {
	t.Helper()
	o.Clock = clock.NewManual(time.Unix(2e9, 0))
	o.Events = Events{}
	l, err := Open(fs, "log", o)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	state := map[GroupID]string{}
	members := map[GroupID]*memberText{}
	err = l.Replay(func(x Replayed) error {
		if isMember(x.Group) {
			if members[x.Group] == nil {
				members[x.Group] = newMemberText()
			}
			members[x.Group].add(x)
			return nil
		}
		if x.Kind == KindSnapshot {
			state[x.Group] = string(x.Meta)
			return nil
		}
		state[x.Group] = stateAfter(state[x.Group], x.Meta)
		return nil
	})
	if err != nil {
		t.Fatalf("replay: %v", err)
	}
	for id, m := range members {
		state[id] = m.head() + m.bad
	}
	return l, state
}

// TestBitFlips flips one bit anywhere on the disk. Whatever it hits: a group is either whole or quarantined, an item reads
// right or not at all, and what was not hit is never blamed. R202
func TestBitFlips(t *testing.T) {
	var flips, quarantined, unreadable int
	for seed := range uint64(12) {
		w := newWorld(t, 1000+seed)
		w.start()
		for range 150 + w.rng.IntN(400) {
			w.step()
		}
		w.settle()
		names := w.fs.Names("log/")
		for range 80 {
			fs := w.fs.Clone()
			name := names[w.rng.IntN(len(names))]
			f, err := fs.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			size, _ := f.Size()
			if size == 0 {
				continue
			}
			off := w.rng.Int64N(size)
			if w.rng.IntN(3) == 0 { // where the heads are
				off = off&^4095 + w.rng.Int64N(128)
			}
			if off >= size {
				continue
			}
			if err := fs.Flip(name, off, uint(w.rng.IntN(8))); err != nil {
				t.Fatal(err)
			}
			flips++
			q, u := checkFlipped(t, w, fs, seed, name, off)
			quarantined += q
			unreadable += u
		}
	}
	t.Logf("%d flips, %d groups quarantined, %d items unreadable", flips, quarantined, unreadable)
	if quarantined == 0 || unreadable == 0 {
		t.Fatal("no flip hit anything")
	}
}

// wholeFile stands for the place of a bit when it is a file.
const wholeFile = -1

func checkFlipped(t *testing.T, w *world, fs *vfs.Mem, seed uint64, name string, off int64) (quarantined, unreadable int) {
	t.Helper()
	l, state := look(t, fs, w.o)
	defer l.Close(false)
	hit := map[GroupID]string{}
	for _, h := range l.Quarantined() {
		hit[h.Group] = h.Reason
	}
	if !strings.HasSuffix(name, ".seg") && len(hit) > 0 {
		t.Fatalf("seed %d, %s at %d: nothing was in it, and it hit groups: %v", seed, name, off, hit)
	}
	reader := l.NewReader()
	for id, h := range w.groups {
		if h.dropped {
			continue
		}
		if hit[id] != "" {
			quarantined++
			continue
		}
		want := h.states[h.index]
		if h.m != nil {
			want = h.m.head()
		}
		if state[id] != want {
			t.Fatalf("seed %d, %s at %d: group %d is %q, want %q, and not quarantined", seed, name, off, id, state[id], want)
		}
		for n, size := range h.live {
			ref, ok := l.Pin(id, n)
			if !ok && off == wholeFile && l.SetLive(id, []Range{{n, n}}) > 0 { // without a checkpoint the host has to ask
				quarantined++
				break
			}
			if !ok {
				t.Fatalf("seed %d, %s at %d: item %d/%d is silently gone", seed, name, off, id, n)
			}
			got, err := reader.Read(ref)
			ref.Unpin()
			if damage := (*CorruptError)(nil); errors.As(err, &damage) {
				unreadable++
				continue
			}
			if err != nil || !bytes.Equal(got, itemOf(id, n, size)) {
				t.Fatalf("seed %d, %s at %d: item %d/%d reads %.20q, %v", seed, name, off, id, n, got, err)
			}
		}
	}
	if len(hit) > 0 && hit[0] == "" && len(hit) == len(w.groups) && len(hit) > 4 {
		t.Fatalf("seed %d, %s at %d: one bit quarantined everybody: %v", seed, name, off, hit)
	}
	return quarantined, unreadable
}

// TestTornTails cuts the power in the middle of a commit again and again, on segments that hold an older life's frames:
// what was acknowledged is there, what was not is cut, nothing is taken for corruption, nothing stale is accepted. R202
func TestTornTails(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	var torn, whole int
	for round := range 20 {
		r := newRig(t)
		r.fs.SetGarbage(0.1)
		r.start()
		index, id := uint64(0), uint64(1)
		add := func(n, size int) Record {
			index++
			rec := entryRecord(9, index, id, n, size)
			id += uint64(n)
			return rec
		}
		for range 30 + round { // so that segments get used again
			r.append(add(1+rng.IntN(5), 1+rng.IntN(3000)))
			r.l.Release(9, index, []Range{{0, id - 1}})
			r.append(snapshotRecord(9, index))
			r.keep()
			r.clk.Advance(300e6)
		}
		acked := index
		base := r.fs
		for range 25 {
			fs := crashInCommit(t, base, r, rng, add)
			l, err := Open(fs, "log", Options{Logger: quiet(), SegmentMin: r.o.SegmentMin, SegmentMax: r.o.SegmentMax, FrameMax: r.o.FrameMax})
			if err != nil {
				t.Fatal(err)
			}
			if hits := l.Quarantined(); len(hits) > 0 {
				t.Fatalf("a torn write was taken for corruption: %v", hits)
			}
			got := uint64(0)
			if g := l.groups[9]; g != nil {
				got = g.lastIndex
			}
			switch got {
			case acked:
				torn++
			case acked + 1:
				whole++
			default:
				t.Fatalf("recovered to %d, acknowledged %d", got, acked)
			}
			l.Close(false)
			index = acked
		}
	}
	t.Logf("%d torn, %d whole", torn, whole)
	if torn == 0 || whole == 0 {
		t.Fatal("the crashes are not fair")
	}
}

// crashInCommit opens a copy of the disk, commits one more entry with the power cut at the sync, and returns what is left.
func crashInCommit(t *testing.T, base *vfs.Mem, r *rig, rng *rand.Rand, add func(int, int) Record) *vfs.Mem {
	t.Helper()
	fs := base.Clone()
	one := &rig{t: t, fs: fs, clk: clock.NewManual(time.Unix(3e9, 0)), o: r.o}
	one.o.Clock = one.clk
	one.o.Events = Events{}
	one.start()
	one.l.prepareStep()
	one.l.Append(&Batch{Records: []Record{add(1+rng.IntN(4), 1+rng.IntN(2500))}, Sync: true})
	fs.CrashAt(fs.Calls() + 2) // the write, then the sync
	if one.commit() {
		t.Fatal("the commit survived the power cut")
	}
	return fs.CrashClone(rng)
}

// TestQuarantineLastsUntilDrop: the verdict survives restarts, a dropped group is forgotten, others go on.
func TestQuarantineLastsUntilDrop(t *testing.T) {
	r := newRig(t)
	r.start()
	r.append(entryRecord(3, 1, 1, 2, 100), entryRecord(4, 1, 1, 2, 100))
	r.append(entryRecord(3, 2, 3, 2, 100))
	seg, off := r.l.active, r.l.groups[3].tail[1].off
	r.append(entryRecord(4, 2, 3, 2, 100))
	if err := r.fs.Flip("log/"+segmentName(seg.id), int64(off)+recordHead+30, 3); err != nil {
		t.Fatal(err)
	}
	want := []string{"4:e1[1-2]", "4:e2[3-4]"}
	for range 3 {
		r.fs = r.fs.Clone()
		r.mustOpen()
		hits := r.l.Quarantined()
		if len(hits) != 1 || hits[0].Group != 3 {
			t.Fatalf("hits: %v", hits)
		}
		if got := r.replay(); !slices.Equal(got, want) {
			t.Fatalf("replayed %v, want %v", got, want)
		}
		want = []string{"4:s2"}
		found := map[uint64]bool{}
		if err := r.l.DumpGroup(3, func(id uint64, it []byte) error { found[id] = true; return nil }); err != nil {
			t.Fatal(err)
		}
		if want := map[uint64]bool{1: true, 2: true}; !maps.Equal(found, want) {
			t.Fatalf("salvaged %v", found)
		}
		r.l.begin()
		r.append(snapshotRecord(4, 2))
		if err := r.l.Close(true); err != nil {
			t.Fatal(err)
		}
	}
	r.start()
	r.append(Record{Group: 3, Kind: KindDrop, Index: 9})
	if err := r.l.Close(true); err != nil {
		t.Fatal(err)
	}
	r.mustOpen()
	if hits := r.l.Quarantined(); len(hits) != 0 {
		t.Fatalf("still quarantined: %v", hits)
	}
}
