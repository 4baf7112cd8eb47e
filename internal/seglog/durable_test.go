package seglog

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// quiet lets a second pass in which nothing is appended.
func (r *rig) quiet() {
	r.clk.Advance(witnessEvery)
	r.calm()
	for r.l.keepStep() {
	}
}

// zero overwrites a part of a file of the log with zeros, for good.
func (r *rig) zero(name string, from, to int64) {
	r.t.Helper()
	f, err := r.fs.Open("log/" + name)
	if err != nil {
		r.t.Fatal(err)
	}
	defer f.Close()
	_, err = f.WriteAt(make([]byte, to-from), from)
	if err == nil {
		err = f.Sync()
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// said is what the witness on the rig's disk says.
func (r *rig) said() testimony { return newLog(r.fs, "log", r.o).readWitness() }

// TestEndOfTheLogLost: pages at the end of the log are gone, the marks with them, from one to all of the segment. After a second of quiet
// that is damage and no torn write, and hits whose frames they held and nobody else, over further starts, too. R202
func TestEndOfTheLogLost(t *testing.T) {
	r := newRig(t)
	r.start()
	r.append(entryRecord(1, 1, 1, 1, 100)) // like a catalog
	r.quiet()
	r.sealed()
	type frame struct {
		group GroupID
		end   int64
	}
	var frames []frame
	for i := range 6 {
		g := GroupID(2 + i)
		r.append(entryRecord(g, 1, 1, 1, 100+i%2*5000))
		frames = append(frames, frame{g, r.l.active.end})
		if i%3 > 0 {
			r.clk.Advance(markDelay)
			r.calm()
		}
	}
	r.quiet()
	seg, whole := r.l.active, r.fs.KillClone()
	for from := int64(0); from < seg.end; from += pageSize {
		for _, cut := range []bool{false, true} {
			r.fs = whole.KillClone()
			if cut {
				r.truncate(segmentName(seg.id), from)
			} else {
				r.zero(segmentName(seg.id), from, seg.end)
			}
			var want []GroupID
			for _, f := range frames {
				if f.end > from {
					want = append(want, f.group)
				}
			}
			for start := range 3 {
				r.start()
				if hit := r.hitGroups(); !slices.Equal(hit, want) {
					t.Fatalf("from %d of %d on, cut %v, start %d: quarantined %v, want %v", from, seg.end, cut, start, r.l.Quarantined(), want)
				}
				r.keep()
				if start == 1 {
					r.append(entryRecord(1, 2, 2, 1, 100))
					r.clk.Advance(2 * askPatience)
					r.keep()
				}
				r.fs = r.fs.KillClone()
			}
		}
	}
}

// truncate cuts a file short, for good.
func (r *rig) truncate(name string, size int64) {
	r.t.Helper()
	f, err := r.fs.Open("log/" + name)
	if err != nil {
		r.t.Fatal(err)
	}
	defer f.Close()
	if err = f.Truncate(size); err == nil {
		err = f.Sync()
	}
	if err != nil {
		r.t.Fatal(err)
	}
}

// TestTwoDamagedFramesInARow: the body of a frame and the head of the next one are damaged, as by one fault where they meet. Who was in
// the first is told by nothing, and so everybody without a later record may have been. R202
func TestTwoDamagedFramesInARow(t *testing.T) {
	r := newRig(t)
	r.o.SegmentMin, r.o.SegmentMax = 1<<20, 1<<20
	r.start()
	r.append(entryRecord(2, 1, 1, 1, 100), entryRecord(3, 1, 1, 1, 100), entryRecord(4, 1, 1, 1, 100))
	if err := r.l.checkpoint(false); err != nil {
		t.Fatal(err)
	}
	r.append(entryRecord(2, 2, 2, 1, 100))
	between := r.l.active.end
	r.append(entryRecord(3, 2, 2, 1, 100))
	for index := uint64(2); index < witnessLists+4; index++ { // so many that the witness has the list no more
		r.append(entryRecord(4, index, index, 1, 100))
	}
	for _, off := range []int64{between - pageSize + headSize + recordHead, between} {
		if err := r.fs.Flip("log/"+segmentName(r.l.active.id), off, 1); err != nil {
			t.Fatal(err)
		}
	}
	r.fs = r.fs.KillClone()
	r.mustOpen()
	if hit := r.hitGroups(); !slices.Contains(hit, 2) || !slices.Contains(hit, 3) || slices.Contains(hit, 4) {
		t.Fatalf("quarantined %v", r.l.Quarantined())
	}
}

// TestUnreadableCheckpointAndNewestSegmentGone: the newest checkpoint is damaged, or all are, and the newest segment is gone, whether it was
// begun before that checkpoint or after it. R202
func TestUnreadableCheckpointAndNewestSegmentGone(t *testing.T) {
	for damaged := 1; damaged <= 3; damaged++ { // so many checkpoints, newest first
		for name, after := range map[string]func(r *rig){
			"begun after it":      func(r *rig) { r.sealed(); r.append(entryRecord(3, 2, 2, 1, 100)); r.quiet() },
			"begun before it":     func(r *rig) { r.quiet() },
			"the same, sealed":    func(r *rig) { r.quiet(); r.sealed(); r.checkpoint(); r.quiet() },
			"the same, restarted": func(r *rig) { r.fs = r.fs.KillClone(); r.start(); r.checkpoint(); r.quiet() },
			"stopped in order":    func(r *rig) { r.checkpoint(); r.stop() },
		} {
			t.Run(fmt.Sprintf("%d/%s", damaged, name), func(t *testing.T) {
				r := newRig(t)
				r.start()
				for index := uint64(1); index <= 3; index++ {
					r.append(entryRecord(4, index, index, 1, 100))
					r.checkpoint()
				}
				r.sealed()
				r.append(entryRecord(3, 1, 1, 1, 100))
				r.checkpoint()
				after(r)
				gone := segmentName(r.said().header.id)
				r.fs = r.fs.KillClone()
				names := r.fs.Names("log/checkpoint")
				for _, ckpt := range names[max(0, len(names)-damaged):] {
					if err := r.fs.Flip(ckpt, 40, 1); err != nil {
						t.Fatal(err)
					}
				}
				whole := r.fs.KillClone()
				r.mustOpen()
				if hits := r.l.Quarantined(); len(hits) > 0 {
					t.Fatalf("nothing is gone, and quarantined %v", hits)
				}
				r.fs = whole
				r.lose(gone)
				r.mustOpen()
				if hit := r.hitGroups(); !slices.Contains(hit, 0) {
					t.Fatalf("%s is gone: quarantined %v", gone, r.l.Quarantined())
				}
			})
		}
	}
}

func (r *rig) checkpoint() {
	r.t.Helper()
	if err := r.l.checkpoint(false); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) stop() {
	r.t.Helper()
	if err := r.l.Close(true); err != nil {
		r.t.Fatal(err)
	}
}

// TestWitnessOnceASecond: it is written once a second while the log is, once more when it has become quiet, and then not again.
func TestWitnessOnceASecond(t *testing.T) {
	r := newRig(t)
	r.o.SegmentMin, r.o.SegmentMax = 1<<20, 1<<20
	r.start()
	for index := uint64(1); index <= 100; index++ {
		r.append(entryRecord(3, index, index, 1, 100))
		r.calm()
		r.clk.Advance(witnessEvery / 10)
	}
	if got := r.l.witness.wrote.Load(); got != 10 {
		t.Fatalf("written %d times in 10 seconds", got)
	}
	for range 100 {
		r.clk.Advance(witnessEvery)
		r.keep()
		r.calm()
	}
	if got, w := r.l.witness.wrote.Load(), r.said(); got > 12 || w.head.synced != r.l.seq { // the last frame, and a checkpoint
		t.Fatalf("written %d times, says %d of %d", got, w.head.synced, r.l.seq)
	}
}

// TestWitnessOfAnEarlierBuild: it had one page, and said less. It counts, and is made longer unless the disk is full.
func TestWitnessOfAnEarlierBuild(t *testing.T) {
	for _, full := range []bool{false, true} {
		r := newRig(t)
		r.start()
		r.append(entryRecord(3, 1, 1, 1, 100))
		r.sealed()
		r.append(entryRecord(3, 2, 2, 1, 100))
		r.keep()
		w := r.said()
		w.past, w.checkpoint = nil, 0
		page := w.encode()
		r.fs = r.fs.KillClone()
		r.truncate(witnessName, 0)
		f, err := r.fs.Open("log/" + witnessName)
		if err == nil {
			_, err = f.WriteAt(page, 0)
		}
		if err != nil {
			t.Fatal(err)
		}
		if full {
			r.fs.SetCapacity(r.fs.Used())
		}
		before := r.fs.KillClone()
		r.lose(segmentName(w.header.id))
		r.mustOpen()
		if hit := r.hitGroups(); !slices.Contains(hit, 0) {
			t.Fatalf("full %v: quarantined %v", full, hit)
		}
		r.fs = before
		r.start()
		if want := map[bool]int64{false: 2, true: 1}[full]; r.fatal != nil || r.l.witness.pages != want {
			t.Fatalf("full %v: %d pages, %v", full, r.l.witness.pages, r.fatal)
		}
		r.append(entryRecord(3, 3, 3, 1, 100))
		r.quiet()
		if got := r.said(); got.head.synced != r.l.seq {
			t.Fatalf("full %v: says %d of %d", full, got.head.synced, r.l.seq)
		}
	}
}

// mixture is a history of pauses, new segments, checkpoints and segments that come back, on a disk whose power may go at any call.
type mixture struct {
	*rig
	rng          *rand.Rand
	index, acked uint64
	durable      testimony // what the witness has said and synced
}

func (m *mixture) step() {
	switch n := m.rng.IntN(12); {
	case n < 5:
		m.index++
		index := m.index
		recs := []Record{entryRecord(3, index, index, 1, 100+m.rng.IntN(6000))}
		if m.rng.IntN(3) == 0 {
			recs = append(recs, snapshotRecord(3, index))
		}
		m.l.Append(&Batch{Records: recs, Sync: true, Stable: func(*Batch) { m.acked = index }})
		m.commit()
		m.l.Release(3, index, []Range{{1, index}})
	case n < 8:
		m.clk.Advance(time.Duration(m.rng.IntN(1500)) * time.Millisecond)
		m.calm()
	case n < 10:
		m.l.StepKeep()
	case n < 11:
		m.sealed()
	case !m.l.failed.Load():
		_ = m.l.checkpoint(false)
	}
	if w := &m.l.witness; !m.fs.Crashed() && w.wrote.Load() > 0 && w.wrote.Load() == w.synced.Load() {
		m.durable = w.said
	}
}

// again has the power go and come back, and looks what is there.
func (m *mixture) again() {
	m.t.Helper()
	m.fs = m.fs.CrashClone(m.rng)
	if w := m.said(); m.durable.newer(&w) {
		m.t.Fatalf("the witness says %+v, and had said %+v", w, m.durable)
	}
	m.mustOpen()
	if hits := m.l.Quarantined(); len(hits) > 0 {
		m.t.Fatalf("quarantined %v", hits)
	}
	index := uint64(0)
	if g := m.l.groups[3]; g != nil {
		index = g.lastIndex
	}
	if index < m.acked {
		m.t.Fatalf("recovered to %d, acknowledged %d", index, m.acked)
	}
	m.index, m.acked = index, index
	m.l.begin()
}

// TestPowerCutsSpareTheWitness cuts the power at each call of a history, and again somewhere in what follows. Nothing is taken for damage, whatever
// the disk keeps of what was not synced; what the witness has said and synced once, or something newer, is there; and in the
// end a loss of the last pages is noticed. R202
func TestPowerCutsSpareTheWitness(t *testing.T) {
	const steps = 70
	history := func(crashAt int) *mixture {
		m := &mixture{rig: newRig(t), rng: rand.New(rand.NewPCG(5, 1))}
		m.fs.SetGarbage(0.3)
		m.fs.CrashAt(crashAt)
		if m.open() == nil {
			m.l.begin()
			for i := 0; i < steps && !m.fs.Crashed(); i++ {
				m.step()
			}
		}
		return m
	}
	calls := history(0).fs.Calls()
	lost := 0
	for n := 1; n <= calls; n++ {
		m := history(n)
		if !m.fs.Crashed() {
			t.Fatalf("call %d of %d was not reached", n, calls)
		}
		m.rng = rand.New(rand.NewPCG(uint64(n), 6))
		for range 2 {
			m.again()
			m.fs.CrashAt(m.fs.Calls() + 1 + m.rng.IntN(30))
			for !m.fs.Crashed() {
				m.step()
			}
		}
		m.again()
		m.index++
		m.append(entryRecord(3, m.index, m.index, 1, 100))
		m.quiet()
		m.fs = m.fs.CrashClone(m.rng)
		seg := m.l.active
		m.zero(segmentName(seg.id), max(0, seg.end-int64(2+m.rng.IntN(5))*pageSize), seg.end)
		m.mustOpen()
		if g := m.l.groups[3]; g == nil || g.lastIndex < m.index {
			if lost++; !slices.Contains(m.hitGroups(), 3) {
				t.Fatalf("call %d: the last frame of %s is gone, and nobody says so", n, segmentName(seg.id))
			}
		}
	}
	if t.Logf("%d calls, the last frame was lost %d times", calls, lost); calls < 100 || lost < calls/2 {
		t.Fatal("the history is too tame")
	}
}
