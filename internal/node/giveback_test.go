package node

import "testing"

// R261: what a time of much work has left behind is not held when it is over. A node that works is left alone, and one at
// rest is not collected for little.
func TestGiveBack(t *testing.T) {
	const mib = 1 << 20
	var now heapNow
	collected := 0
	g := &giveBack{read: func() heapNow { return now }, collect: func() {
		collected++
		now.objects, now.free = now.live, 0
	}}
	for i, step := range []struct {
		what           string
		allocated      uint64 // since the last look
		garbage, freed uint64 // more of it
		want           int    // collections so far
	}{
		{"it works", 100 * mib, 30 * mib, 5 * mib, 0},
		{"it still does", 2 * mib, 2 * mib, 0, 0},
		{"calm", mib, mib, 0, 0},
		{"calm for a while", 0, 0, 0, 1},
		{"nothing to give back", 0, 0, 0, 1},
		{"little", mib, 8*mib + 500<<10, 500 << 10, 1},
		{"enough", mib, mib, 0, 2},
		{"what is free counts", mib, 0, 20 * mib, 2},
		{"and that again", mib, 0, 0, 3},
		{"a burst", 50 * mib, 50 * mib, 0, 3},
		{"calm after it", 0, 0, 0, 3},
		{"another one", 50 * mib, 0, 0, 3},
		{"calm once more", 0, 0, 0, 3},
		{"that is over", 0, 0, 0, 4},
	} {
		now.live = 40 * mib
		now.objects = max(now.objects, now.live) + step.garbage
		now.free += step.freed
		now.allocated += step.allocated
		if g.look(); collected != step.want {
			t.Fatalf("step %d, %s: %d collections, not %d", i, step.what, collected, step.want)
		}
	}
}

// The runtime knows what giveBack asks for.
func TestReadHeap(t *testing.T) {
	kept := make([]byte, 1<<20)
	now := make(ballast, 0).readHeap()
	if now.allocated < uint64(len(kept)) || now.objects < uint64(len(kept)) {
		t.Errorf("a heap with a MiB in it: %+v", now)
	}
}
