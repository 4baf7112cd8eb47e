package seglog

import (
	"fmt"
	"testing"
	"time"
)

// idle group 2 with one item; group 3 churns until 2's snapshot and item are in a cold segment and no hot one is left of it.
func intoCold(t *testing.T) *rig {
	r := newRig(t)
	r.start()
	r.append(entryRecord(2, 1, 1, 1, 100))
	r.append(snapshotRecord(2, 1))
	for i := uint64(1); i < 400; i++ {
		r.append(entryRecord(3, i, i, 1, 6000))
		r.l.Release(3, i, []Range{{i, i}})
		r.snapshotIfAsked(3, i)
		r.keep()
		r.clk.Advance(300e6)
	}
	return r
}

func TestTmpCold(t *testing.T) {
	r := intoCold(t)
	g := r.l.groups[2]
	fmt.Println(g.snap.seg.kind, g.runs[0].seg.kind, r.l.Stats())
	// damage the newest checkpoint
	names := r.fs.Names("log/checkpoint")
	for _, n := range names {
		r.fs.Flip(n, 40, 1)
	}
	r.clk.Advance(time.Second)
	r.fs = r.fs.KillClone()
	r.mustOpen()
	fmt.Println(names, r.l.Quarantined(), r.replay())
	r.mustRead(2, 1)
}
