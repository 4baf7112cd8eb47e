package seglog

import (
	"math/rand/v2"
	"testing"

	"holdfast/internal/clock"
)

// hookClock calls hook whenever somebody asks for the time.
type hookClock struct {
	*clock.Manual
	hook func()
}

func (c *hookClock) Mono() int64 {
	c.hook()
	return c.Manual.Mono()
}

// TestCheckpointWhileASegmentBegins: the cut of a checkpoint that is made while the first frame of a segment is being written
// is that segment's beginning. Recovery scans the segment once.
func TestCheckpointWhileASegmentBegins(t *testing.T) {
	r := newRig(t)
	var l *Log
	made := 0
	r.o.Clock = &hookClock{r.clk, func() {
		if l == nil || made > 0 || l.active == nil || l.active.stable > 0 || l.seq == 0 {
			return
		}
		made++
		if err := l.checkpoint(false); err != nil {
			t.Error(err)
		}
	}}
	r.start()
	l = r.l
	index := uint64(0)
	for made == 0 {
		index++
		r.append(entryRecord(2, index, index, 1, 6000))
	}
	for range 3 {
		index++
		r.append(entryRecord(2, index, index, 1, 6000))
	}
	l = nil
	r.l.closeFiles()
	r.mustOpen()
	if n := len(r.replay()); n != int(index) {
		t.Errorf("%d entries come back of %d", n, index)
	}
	if s := r.l.Stats(); s.LiveItems != int64(index) {
		t.Errorf("%d items are in the index, %d were written", s.LiveItems, index)
	}
	if missing := r.l.SetLive(2, []Range{{1, index}}); missing != 0 {
		t.Errorf("%d items are missing", missing)
	}
	r.l.begin()
	for id := uint64(1); id <= index; id++ {
		r.mustRead(2, id)
	}
	r.l.Release(2, index, []Range{{1, index}})
	if s := r.l.Stats(); s.LiveItems != 0 {
		t.Errorf("%d items live after all were released", s.LiveItems)
	}
}

// TestPowerCutWhileASegmentBegins: such a checkpoint is durable, the first frame of its segment is not, and neither is the wiping
// of the header from the segment's former use. Nothing that was promised is lost, and nobody is quarantined.
func TestPowerCutWhileASegmentBegins(t *testing.T) {
	r := newRig(t)
	var l *Log
	var seen *segment
	var stable uint64 // entries
	rng := rand.New(rand.NewPCG(1, 2))
	cuts, again := 0, 0
	r.o.Clock = &hookClock{r.clk, func() {
		if l == nil || l.active == nil || l.active == seen || l.active.stable > 0 || l.seq == 0 {
			return
		}
		seen = l.active
		if err := l.checkpoint(false); err != nil {
			t.Fatal(err)
		}
		for range 4 {
			after := *r
			after.fs = r.fs.CrashClone(rng)
			after.o.Clock = r.clk
			after.mustOpen()
			cuts++
			if hits := after.l.Quarantined(); len(hits) > 0 {
				t.Fatalf("after power cut %d: %v", cuts, hits)
			}
			if g := after.l.groups[2]; stable > 0 && (g == nil || g.lastIndex < stable) {
				t.Fatalf("after power cut %d: group is not at entry %d", cuts, stable)
			}
			after.l.closeFiles()
		}
	}}
	r.start()
	l = r.l
	for index := uint64(1); index < 300; index++ {
		r.append(entryRecord(2, index, index, 1, 6000))
		stable = index
		l.Release(2, index, []Range{{index, index}})
		if r.asked[2] {
			delete(r.asked, 2)
			r.append(snapshotRecord(2, index))
		}
		for l.keepStep() { // and nothing makes new segments ready before old ones come back
		}
		r.clk.Advance(100e6)
	}
	if again = int(l.Stats().RecycledSegments); cuts < 20 || again == 0 {
		t.Errorf("%d power cuts, %d segments used again", cuts, again)
	}
}
