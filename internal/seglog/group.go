package seglog

import "sort"

// group is what the log knows of one writer. Guarded by Log.mu.
type group struct {
	id    GroupID
	place int // in Log.list

	lastIndex uint64  // of the newest stable entry (or snapshot above it)
	snap      place   // newest stable snapshot; snap.seg is nil without one
	tail      []place // stable entries above it, oldest first
	tailBytes int64

	repl *replicated // nil in a group that is not

	runs []*run // with live items, by first id
	open []*run // in the active hot segment
	cold []*run // in the active cold segment

	waiting []release // for their entry to become stable, oldest first
	ranges  []Range   // of waiting

	asked   int // NeedSnapshot calls not answered yet
	askedAt int64
	vain    bool   // its last snapshot was no newer than the one before
	hit     string // why it is quarantined; empty if it is not
	dropped bool
	ghostAt int64 // when it was first seen to have nothing at all

	// Recovery.
	upTo    uint64 // the checkpoint's part includes all frames up to this sequence
	lastSeq uint64 // frame of the newest record met while scanning
}

// place is where a record is. For an entry, length counts what is not item bytes.
type place struct {
	index  uint64
	seg    *segment
	off    uint32
	length uint32
}

// release is a promise kept when the entry is stable: the next n of group.ranges are no longer needed.
type release struct {
	index uint64
	n     int
}

// maxJump bounds how far an id may lie above the one before it in the same run.
const maxJump = 1 << 32

// find is the run in which id is live.
func (g *group) find(id uint64) *run {
	i := sort.Search(len(g.runs), func(i int) bool { return g.runs[i].first > id }) - 1
	for ; i >= 0 && g.runs[i].reach >= id; i-- {
		if r := g.runs[i]; r.last >= id && r.live.contains(id) {
			return r
		}
	}
	return nil
}

// insert puts a new run into its place.
func (g *group) insert(r *run) {
	i := sort.Search(len(g.runs), func(i int) bool { return g.runs[i].first > r.first })
	g.runs = append(g.runs, nil)
	copy(g.runs[i+1:], g.runs[i:])
	g.runs[i] = r
	r.listed = true
	g.fixReach(i)
}

// fixReach recomputes reach from the i-th run on, as far as it changes.
func (g *group) fixReach(i int) {
	reach := uint64(0)
	if i > 0 {
		reach = g.runs[i-1].reach
	}
	for k := i; k < len(g.runs); k++ {
		reach = max(reach, g.runs[k].last)
		if k > i && g.runs[k].reach == reach {
			return
		}
		g.runs[k].reach = reach
	}
}

// extended tells the group that r.last grew.
func (g *group) extended(r *run) {
	if r.reach >= r.last {
		return
	}
	i := sort.Search(len(g.runs), func(i int) bool { return g.runs[i].first >= r.first })
	for i < len(g.runs) && g.runs[i] != r {
		i++
	}
	g.fixReach(i)
}

// forget takes runs without live items out.
func (g *group) forget() {
	kept := g.runs[:0]
	for _, r := range g.runs {
		if r.live.n > 0 {
			kept = append(kept, r)
		} else {
			r.listed = false
		}
	}
	clear(g.runs[len(kept):])
	g.runs = kept
	reach := uint64(0)
	for _, r := range g.runs {
		reach = max(reach, r.last)
		r.reach = reach
	}
}

// takeRelease removes and returns the waiting ranges whose entry is stable.
func (g *group) eachDue(fn func(Range)) {
	if len(g.waiting) == 0 {
		return
	}
	kept, keptRanges := g.waiting[:0], g.ranges[:0]
	at := 0
	for _, w := range g.waiting {
		ranges := g.ranges[at : at+w.n]
		at += w.n
		if w.index > g.lastIndex {
			kept, keptRanges = append(kept, w), append(keptRanges, ranges...)
			continue
		}
		for _, r := range ranges {
			fn(r)
		}
	}
	g.waiting, g.ranges = kept, keptRanges
}
