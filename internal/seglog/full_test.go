package seglog

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"holdfast/internal/vfs"
)

// TestConsumersDrainAFullDisk: groups fill a small disk with half dead segments until the alarm; a little more is on its way.
// Then nothing but deletions comes, as when consumers drain: all of it becomes stable, space comes back, the alarm ends. D8
func TestConsumersDrainAFullDisk(t *testing.T) {
	for seed := range uint64(100) {
		drainFullDisk(t, seed)
	}
	for _, seed := range []uint64{661, 894, 912, 1178, 1402, 1421, 1461, 1833, 2004, 2102, 2375, 2706, 2930} { // once stuck
		drainFullDisk(t, seed)
	}
}

func drainFullDisk(t *testing.T, seed uint64) {
	w := newWorld(t, 9000+seed)
	w.rng = rand.New(rand.NewPCG(seed, 7))
	segments := 8 + w.rng.IntN(10)
	w.fs.SetCapacity(int64(segments)*64<<10 + w.rng.Int64N(64<<10))
	alarm := false
	w.o.Events.Alarm = func(_ AlarmKind, on bool, _ string) { alarm = on }
	w.o.Events.Fatal = func(err error) { w.failf("seed %d: %v", seed, err) }
	w.start()
	for range 4 {
		w.newHost()
	}
	for more := w.rng.IntN(4); more >= 0; {
		if alarm {
			more--
		}
		h := w.groups[GroupID(1+w.rng.IntN(4))]
		if ids := slices.Sorted(maps.Keys(h.live)); len(ids) == 0 || w.rng.IntN(3) > 0 {
			w.put(h)
		} else { // a tenth, here and there
			w.del(h, slices.DeleteFunc(ids, func(uint64) bool { return w.rng.IntN(10) > 0 }))
		}
		w.commit()
		w.keep()
		w.clk.Advance(time.Duration(w.rng.IntN(500)) * time.Millisecond)
	}
	for range 300 {
		for _, g := range slices.Sorted(maps.Keys(w.groups)) {
			h := w.groups[g]
			if ids := slices.Sorted(maps.Keys(h.live)); len(ids) > 0 && w.rng.IntN(2) == 0 {
				w.del(h, ids[:1+w.rng.IntN(min(len(ids), 20))])
			}
		}
		w.commit()
		w.keep()
		w.clk.Advance(500 * time.Millisecond)
	}
	for _, h := range w.groups {
		if h.acked < h.index || len(h.live) > 0 || alarm {
			w.failf("seed %d: group %d is stable to %d of %d, alarm %v: %+v", seed, h.id, h.acked, h.index, alarm, w.l.Stats())
		}
	}
}

// TestCheckpointOnAFullDisk: a checkpoint that finds no room gets that of an older one, or of a free segment, and nobody else
// takes it meanwhile.
func TestCheckpointOnAFullDisk(t *testing.T) {
	r := newRig(t)
	r.start()
	for i := uint64(1); i < 30; i++ {
		r.append(entryRecord(2, i, i, 1, 6000))
		r.keep()
	}
	r.append(snapshotRecord(2, 29))
	r.l.Release(2, 29, []Range{{1, 29}})
	before := r.l.Stats()
	r.fs.SetCapacity(r.fs.Used())
	for range 20 {
		r.clk.Advance(500 * time.Millisecond)
		r.keep()
	}
	if s := r.l.Stats(); s.Checkpoints == before.Checkpoints || s.RecycledSegments == 0 || r.fatal != nil {
		t.Fatalf("fatal %v, before %+v, now %+v", r.fatal, before, s)
	}
	if free, _ := r.fs.Usage("log"); vfs.IsSpace(r.fatal) || free.Free == 0 {
		t.Fatalf("nothing came back: %+v", r.l.Stats())
	}
}

// TestStartsOnAFullDisk: every start begins a segment, and there is no room for one. The log starts all the same, again and again,
// and when consumers drain it the space comes back.
func TestStartsOnAFullDisk(t *testing.T) {
	r := newRig(t)
	r.o.SegmentMin, r.o.SegmentMax = 256<<10, 256<<10
	r.start()
	index := uint64(0)
	put := func() {
		index++
		r.append(entryRecord(2, index, index, 1, 6000))
	}
	put()
	r.keep()
	r.fs.SetCapacity(r.fs.Used() + 3*256<<10 - 8<<10)
	full := func() bool { return len(r.alarm) > 0 && r.alarm[len(r.alarm)-1] == fmt.Sprint(AlarmSpace, " true") }
	for !full() {
		put()
		r.keep()
	}
	snapshots := map[GroupID]uint64{2: index}
	rest := func(rounds int) {
		for range rounds {
			r.clk.Advance(500e6)
			r.keep()
			for _, g := range slices.Sorted(maps.Keys(r.asked)) {
				delete(r.asked, g)
				r.append(snapshotRecord(g, snapshots[g]))
			}
		}
	}
	for start := range 20 {
		r.fs = r.fs.KillClone()
		r.mustOpen()
		r.l.SetLive(2, []Range{{1, index}})
		r.l.begin()
		snapshots[1]++
		r.append(entryRecord(1, snapshots[1], 0, 0, 0)) // as a node says that it is there
		for r.l.prepareStep() {
		}
		if s := r.l.Stats(); !s.SpaceAlarm && r.l.fullSized() == 0 {
			t.Fatalf("start %d: no alarm, and no segment to go on with: %+v", start, s)
		}
		if start%4 == 3 {
			rest(10) // some live for a few seconds
		}
	}
	r.append(snapshotRecord(2, index))
	r.l.Release(2, index, []Range{{1, index}})
	rest(200)
	if full() || r.fatal != nil {
		t.Fatalf("drained, and still %v, %v: %+v", r.alarm, r.fatal, r.l.Stats())
	}
}

// fillUp has group 2 fill a disk of this many segments, and the witness, with entries of so many bytes, until there is no room for the last one,
// whose index it returns.
func (r *rig) fillUp(segments int, bytes int) uint64 {
	r.t.Helper()
	r.fs.SetCapacity(int64(segments)*64<<10 + witnessPages*pageSize)
	for index := uint64(1); ; index++ {
		r.l.Append(&Batch{Records: []Record{entryRecord(2, index, index, 1, bytes)}, Sync: true})
		if !r.commit() {
			return index
		}
		for r.l.prepareStep() {
		}
	}
}

// TestSettlesPassWhatHasNoRoom: what waits for room does not keep out what may make some, whether it comes before or after the
// committer has found that there is no room. When there is room again all of it becomes stable, in the order of each group. D8
func TestSettlesPassWhatHasNoRoom(t *testing.T) {
	r := newRig(t)
	r.start()
	r.append(entryRecord(3, 1, 1, 1, 100))
	full := r.fillUp(6, 18000)
	reported := make(chan string, 10)
	add := func(g GroupID, index uint64, items, size int) {
		r.l.Append(&Batch{Records: []Record{entryRecord(g, index, index, items, size)}, Sync: true, Stable: func(b *Batch) {
			reported <- fmt.Sprint(b.Records[0].Group, "/", b.Records[0].Index)
		}})
	}
	add(2, full+1, 0, 0) // behind the one that waits
	add(4, 1, 1, 80<<10) // more than a segment
	add(3, 2, 0, 0)
	r.commit()
	if len(reported) != 1 || <-reported != "3/2" {
		t.Fatalf("the entry without items waits: %+v", r.l.Stats())
	}

	r.l.noLoop, r.l.need = false, 0
	r.l.wg.Add(2)
	go r.l.commitLoop()
	go r.l.prepareLoop()
	asleep := func() (is bool) { // the committer has found that there is no room
		r.l.mu.Lock()
		defer r.l.mu.Unlock()
		return r.l.need > 0
	}
	for !asleep() {
		runtime.Gosched()
	}
	add(3, 3, 0, 0)
	if got := <-reported; got != "3/3" {
		t.Fatalf("%s became stable without room", got)
	}
	r.fs.SetCapacity(1 << 30)
	kick(r.l.prepKick)
	order := map[byte]string{}
	for range 2 {
		got := <-reported
		order[got[0]] += got
	}
	if order['2'] != fmt.Sprint("2/", full+1) || order['4'] != "4/1" {
		t.Fatalf("became stable: %v", order)
	}
	r.l.closing.Store(true)
	kick(r.l.in.wake)
	close(r.l.stop)
	r.l.wg.Wait()
}

// TestRewriterKeepsItsRoom: on a full disk the rewriter does not use up the last free segment for a part of what it would have to
// copy; it is there for the committer, and for the rewriter when so much has died that it is enough.
func TestRewriterKeepsItsRoom(t *testing.T) {
	r := newRig(t)
	r.start()
	for i := uint64(1); i <= 5; i++ { // a segment and a little
		r.append(entryRecord(2, i, i, 1, 9000))
	}
	r.append(snapshotRecord(2, 5))
	r.l.Release(2, 5, []Range{{3, 5}})
	r.keep()
	for _, s := range r.l.pool {
		r.l.discard(s)
	}
	r.l.pool = nil
	r.fs.SetCapacity(r.fs.Used() + 7*pageSize)
	r.l.need = 6 * pageSize
	r.l.prepareStep()
	r.l.need = 0
	rest := func() Stats {
		for range 10 {
			r.clk.Advance(time.Second)
			r.keep()
		}
		return r.l.Stats()
	}
	if s := rest(); s.Cold != 0 || s.Free != 1 || !s.SpaceAlarm || s.Hot != 2 {
		t.Fatalf("two items of 9 kB beside 24 KiB of room: %+v", s)
	}
	r.l.Release(2, 5, []Range{{2, 2}})
	if s := rest(); s.Cold != 1 || s.Hot != 1 {
		t.Fatalf("one item of 9 kB beside 24 KiB of room: %+v", s)
	}
	r.mustRead(2, 1)
}
