package queue

import (
	"slices"
	"sort"

	"holdfast/internal/invariant"
)

// run is a range of ready messages with one history.
type run struct {
	first, last Number
	attr        attr
}

func (r run) len() uint64 { return uint64(r.last-r.first) + 1 }

// follows reports whether r can be made part of the run before it.
func (r run) follows(before run) bool {
	return before.last+1 == r.first && before.attr == r.attr
}

// blockRuns is how many runs a block holds at most.
const blockRuns = 128

// block is a sorted piece of a runs. Those before head are taken already.
type block struct {
	runs []run
	head int
}

func (b *block) live() []run { return b.runs[b.head:] }

// runs is the sorted set of the ready messages of one lane. A queue that is
// only filled and emptied in order is a single run; the set grows with the
// number of changes of history between neighbours, by 24 bytes for each where
// they come in order, and at most about twice that where they come in any.
//
// No block is empty, except the only one of an empty set. Runs never overlap,
// and neighbours that could be one run are one run, if they are in one block.
type runs struct {
	blocks []*block
}

// front returns the first run, or nil. It is valid until the next change.
func (s *runs) front() *run {
	if len(s.blocks) == 0 {
		return nil
	}
	b := s.blocks[0]
	if b.head == len(b.runs) {
		return nil
	}
	return &b.runs[b.head]
}

// last returns the last number of the set, which must not be empty.
func (s *runs) last() Number {
	b := s.blocks[len(s.blocks)-1]
	return b.runs[len(b.runs)-1].last
}

// cutFront takes n numbers off the first run.
func (s *runs) cutFront(n uint64) {
	b := s.blocks[0]
	r := &b.runs[b.head]
	if l := r.len(); n < l {
		r.first += Number(n)
		return
	} else if n > l {
		invariant.Failf("queue: %d numbers taken off a run of %d", n, l)
	}
	b.head++
	if b.head == len(b.runs) {
		s.dropBlock(0)
	}
}

// pushBack adds a run behind all others.
func (s *runs) pushBack(r run) {
	if len(s.blocks) == 0 {
		s.blocks = append(s.blocks, &block{})
	}
	b := s.blocks[len(s.blocks)-1]
	if n := len(b.runs); n > b.head {
		last := &b.runs[n-1]
		if r.follows(*last) {
			last.last = r.last
			return
		}
		if r.first <= last.last {
			invariant.Failf("queue: run from %v put behind %v", r.first, last.last)
		}
	}
	if len(b.live()) == blockRuns {
		b = &block{runs: make([]run, 0, blockRuns)}
		s.blocks = append(s.blocks, b)
	}
	b.insert(len(b.live()), r)
}

// insert puts a run in its place.
func (s *runs) insert(r run) {
	if len(s.blocks) == 0 {
		s.pushBack(r)
		return
	}
	bi, i := s.find(r.first)
	if bi == len(s.blocks) {
		s.pushBack(r)
		return
	}
	// b.live()[i] is the first run that ends at r.first or later, so r belongs before it.
	b := s.blocks[bi]
	live := b.live()
	if live[i].first <= r.last {
		invariant.Failf("queue: messages %v-%v are ready already", live[i].first, r.last)
	}
	if i == 0 && bi > 0 { // better the end of the block before than the start of this one
		if p := s.blocks[bi-1]; r.follows(p.runs[len(p.runs)-1]) {
			p.runs[len(p.runs)-1].last = r.last
			return
		}
	}
	before := i > 0 && r.follows(live[i-1])
	behind := live[i].follows(r)
	switch {
	case before && behind:
		live[i-1].last = live[i].last
		b.remove(i)
		s.joinBlocks(bi)
	case before:
		live[i-1].last = r.last
	case behind:
		live[i].first = r.first
	default:
		if len(live) == blockRuns {
			b, i = s.split(bi, i)
		}
		b.insert(i, r)
	}
}

// remove takes the numbers first to last out, as far as they are in, and calls
// gone for each piece, in order.
func (s *runs) remove(first, last Number, gone func(run)) {
	for {
		bi, i := s.find(first)
		if bi == len(s.blocks) {
			return
		}
		b := s.blocks[bi]
		r := &b.live()[i]
		if r.first > last {
			return
		}
		piece := run{max(r.first, first), min(r.last, last), r.attr}
		switch {
		case piece.first == r.first && piece.last == r.last:
			b.remove(i)
			if len(b.live()) == 0 {
				s.dropBlock(bi)
			} else {
				s.joinBlocks(bi)
			}
		case piece.first == r.first:
			r.first = piece.last + 1
		case piece.last == r.last:
			r.last = piece.first - 1
		default:
			rest := run{piece.last + 1, r.last, r.attr}
			r.last = piece.first - 1
			s.insert(rest)
		}
		gone(piece)
	}
}

// change calls f for each run, in order. It returns what is to become of the run
// in its place, and whether it is kept at all. The first and last number stay.
func (s *runs) change(f func(run) (run, bool)) {
	old := s.blocks
	s.blocks = nil
	for _, b := range old {
		for _, r := range b.live() {
			if r, keep := f(r); keep {
				s.pushBack(r)
			}
		}
	}
}

// clear forgets all runs.
func (s *runs) clear() { s.blocks = nil }

// all calls f for each run, in order.
func (s *runs) all(f func(run)) {
	for _, b := range s.blocks {
		for _, r := range b.live() {
			f(r)
		}
	}
}

// find returns block and place of the first run that ends at n or later; the
// block is len(s.blocks) if there is none.
func (s *runs) find(n Number) (bi, i int) {
	bi = sort.Search(len(s.blocks), func(k int) bool {
		live := s.blocks[k].live()
		return len(live) == 0 || live[len(live)-1].last >= n
	})
	if bi == len(s.blocks) {
		return bi, 0
	}
	live := s.blocks[bi].live()
	i = sort.Search(len(live), func(k int) bool { return live[k].last >= n })
	if i == len(live) { // the set is empty
		return len(s.blocks), 0
	}
	return bi, i
}

// has reports whether a number is in.
func (s *runs) has(n Number) bool {
	bi, i := s.find(n)
	return bi < len(s.blocks) && s.blocks[bi].live()[i].first <= n
}

// split halves a full block and returns where place i of it has gone.
func (s *runs) split(bi, i int) (*block, int) {
	b := s.blocks[bi]
	live := b.live()
	half := len(live) / 2
	behind := &block{runs: append(make([]run, 0, blockRuns), live[half:]...)}
	b.runs = b.runs[:b.head+half]
	s.blocks = slices.Insert(s.blocks, bi+1, behind)
	if i > half {
		return behind, i - half
	}
	return b, i
}

// joinBlocks makes a block that has become small one with a neighbour, if that has room.
func (s *runs) joinBlocks(bi int) {
	if len(s.blocks[bi].live()) > blockRuns/4 {
		return
	}
	for k := bi; k >= bi-1; k-- {
		if k < 0 || k+1 >= len(s.blocks) {
			continue
		}
		a, b := s.blocks[k], s.blocks[k+1].live()
		if len(a.live())+len(b) > blockRuns*3/4 {
			continue
		}
		n := copy(a.runs, a.live())
		a.runs, a.head = a.runs[:n], 0
		if b[0].follows(a.runs[n-1]) {
			a.runs[n-1].last = b[0].last
			b = b[1:]
		}
		a.runs = append(a.runs, b...)
		s.blocks = slices.Delete(s.blocks, k+1, k+2)
		return
	}
}

// dropBlock removes an empty block, but keeps the only one to use it again.
func (s *runs) dropBlock(bi int) {
	if len(s.blocks) == 1 {
		b := s.blocks[0]
		b.runs, b.head = b.runs[:0], 0
		return
	}
	if bi == 0 {
		s.blocks[0] = nil
		s.blocks = s.blocks[1:]
		return
	}
	s.blocks = slices.Delete(s.blocks, bi, bi+1)
}

// insert puts r at place i of the live runs, of which there are less than blockRuns.
func (b *block) insert(i int, r run) {
	if b.head > 0 && (i == 0 || len(b.runs) == cap(b.runs)) {
		if i == 0 {
			b.head--
			b.runs[b.head] = r
			return
		}
		n := copy(b.runs, b.live())
		b.runs, b.head = b.runs[:n], 0
	}
	b.runs = slices.Insert(b.runs, b.head+i, r)
}

// remove takes out the live run at place i.
func (b *block) remove(i int) {
	if i == 0 {
		b.head++
		return
	}
	b.runs = slices.Delete(b.runs, b.head+i, b.head+i+1)
}
