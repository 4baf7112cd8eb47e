package seglog

import "testing"

// A group that answers with the snapshot that it has, because it cannot apply what it has above it, is not asked again
// and again.
func TestAnswersThatDoNotHelp(t *testing.T) {
	r := newRig(t)
	r.start()
	r.append(entryRecord(2, 1, 1, 1, 100))
	r.append(snapshotRecord(2, 1))
	r.append(entryRecord(2, 2, 2, 1, 100))
	asked := 0
	for i := uint64(1); i < 200; i++ {
		r.append(entryRecord(3, i, i, 1, 6000))
		r.l.Release(3, i, []Range{{i, i}})
		r.append(snapshotRecord(3, i))
		r.keep()
		if r.asked[2] {
			asked++
			delete(r.asked, 2)
			r.append(snapshotRecord(2, 1))
		}
	}
	if asked != 1 {
		t.Errorf("asked %d times in no time", asked)
	}
	r.clk.Advance(askAgain)
	for i := uint64(200); i < 220; i++ {
		r.append(entryRecord(3, i, i, 1, 6000))
		r.keep()
	}
	if !r.asked[2] {
		t.Error("not asked again later")
	}
}
