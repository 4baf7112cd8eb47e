package queuehost

import (
	"cmp"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"

	"holdfast/internal/invariant"
	"holdfast/internal/queue"
	"holdfast/internal/spill"
)

// maxLeaving is the cost of what is on its way to the disk, for one lane, before
// no more is sent there.
const maxLeaving = 1 << 20

// spiller is a lane's side of the store: jobs on their way there and back.
type spiller struct {
	store *spill.Store   // nil: nothing is spilled
	most  int64          // maxLeaving
	block int64          // bytes of items in a block
	out   fifo[*leaving] // as they were put
	cost  int64          // of what is out, needed or not: it is in memory
	free  []*leaving

	came atomic.Bool // something is in back
	mu   sync.Mutex
	back []*leaving // done; the store's goroutine puts
	took []*leaving
}

// leaving is items of one queue on their way to the disk. They stay in their
// pages until they are there.
type leaving struct {
	job    spill.Job
	block  *spill.Block
	bodies *bodies
	bytes  int64 // of the items
	cost   int64 // of the items in memory
	needed int   // items that have not been settled meanwhile
}

func (o *leaving) first() uint64 { return o.job.Numbers[0] }
func (o *leaving) last() uint64  { return o.job.Numbers[len(o.job.Numbers)-1] }

// keepLeaving is how many are kept for reuse.
const keepLeaving = 8

// busy reports whether the store has enough to do.
func (s *spiller) busy() bool { return s.cost >= s.most }

// outAt is the index of the first block on its way that ends at n or above.
func (b *bodies) outAt(n uint64) int {
	i, _ := slices.BinarySearchFunc(b.out, n, func(o *leaving, n uint64) int { return cmp.Compare(o.last(), n) })
	return i
}

// left notes that items of a page that are on their way are not needed any more.
func (p *page) left(mask uint32) {
	out := p.owner.out
	for ; mask != 0; mask &= mask - 1 {
		n := p.key<<pageShift + uint64(bits.TrailingZeros32(mask))
		at := p.owner.outAt(n)
		if at == len(out) || out[at].first() > n {
			invariant.Failf("item %d is leaving and in no block", n)
		}
		if out[at].needed--; out[at].needed == 0 {
			out[at].job.Drop()
		}
	}
}

// spillFrom sends the items of a page that are nowhere else to the disk,
// together with those of the pages behind it in its queue. The page that is being filled waits.
func (l *lane) spillFrom(p *page) {
	s, b := &l.spill, p.owner
	o := s.newLeaving()
	o.bodies, o.bytes, o.cost = b, 0, 0
	for q := p; q != nil && q.alone != 0 && (q == p || q != b.put); q = b.pages[q.key+1] {
		if n := len(o.job.Numbers); n > 0 && (q.key+1)<<pageShift-o.job.Numbers[0] > spill.MaxSpan {
			break
		}
		var taken uint32
		for m := q.alone; m != 0 && o.bytes < s.block; m &= m - 1 {
			i := bits.TrailingZeros32(m)
			item := q.items[i]
			if o.bytes > 0 && o.bytes+int64(len(item)) > s.block {
				break
			}
			o.job.Numbers = append(o.job.Numbers, q.key<<pageShift+uint64(i))
			o.job.Items = append(o.job.Items, item)
			o.bytes += int64(len(item))
			taken |= 1 << i
		}
		n := q.costOf(taken)
		o.cost += n
		q.leaving |= taken
		q.alone &^= taken
		l.cache.sub(q, n)
		if q.alone != 0 {
			break // the block is full
		}
	}
	s.cost += o.cost
	o.needed = len(o.job.Numbers)
	s.out.push(o)
	b.out = slices.Insert(b.out, b.outAt(o.first()), o)
	s.store.Put(&o.job)
}

func (s *spiller) newLeaving() *leaving {
	if n := len(s.free); n > 0 {
		o := s.free[n-1]
		s.free = s.free[:n-1]
		return o
	}
	o := &leaving{}
	o.job.Done = func(_ *spill.Job, block *spill.Block) {
		o.block = block
		group := o.bodies.host.group
		s.mu.Lock()
		s.back = append(s.back, o)
		s.mu.Unlock()
		s.came.Store(true)
		group.Wake()
	}
	return o
}

// arrived takes in what has come back from the store: the items are on disk,
// and leave memory.
func (l *lane) arrived() {
	s := &l.spill
	if !s.came.Load() {
		return
	}
	s.came.Store(false)
	s.mu.Lock()
	s.took, s.back = s.back, s.took[:0]
	s.mu.Unlock()
	for _, o := range s.took {
		if *s.out.front() != o {
			invariant.Failf("a block of %d items has overtaken another", len(o.job.Items))
		}
		s.out.pop()
		b := o.bodies
		at := b.outAt(o.first())
		if b.out[at] != o {
			invariant.Failf("blocks of one queue overlap")
		}
		if b.out = slices.Delete(b.out, at, at+1); len(b.out) == 0 && cap(b.out) > keepFifo {
			b.out = nil
		}
		s.cost -= o.cost
		l.landed(o)
		b.host.countBodies()
		o.bodies, o.block = nil, nil
		o.job.Reset()
		if len(s.free) < keepLeaving {
			s.free = append(s.free, o)
		}
	}
	clear(s.took)
	l.trim()
}

// landed replaces the items of a block in memory by the block.
func (l *lane) landed(o *leaving) {
	b := o.bodies
	if o.needed == 0 {
		if o.block != nil {
			o.block.Let()
		}
		return
	}
	if o.block == nil {
		invariant.Failf("%d items that are needed were not spilled", o.needed)
	}
	numbers := o.job.Numbers
	x := &extent{block: o.block, first: queue.Number(o.first()), bytes: uint32(o.bytes), items: uint32(len(numbers))}
	x.last = queue.Number(o.last())
	x.bits = make([]uint64, (x.last-x.first)/64+1)
	for i := 0; i < len(numbers); {
		key, mask := numbers[i]>>pageShift, uint32(0)
		for ; i < len(numbers) && numbers[i]>>pageShift == key; i++ {
			mask |= 1 << (numbers[i] & (pageSize - 1))
		}
		p := b.pages[key]
		if p == nil {
			continue
		}
		mask &= p.leaving
		for m := mask; m != 0; m &= m - 1 {
			at := key<<pageShift + uint64(bits.TrailingZeros32(m)) - uint64(x.first)
			x.bits[at/64] |= 1 << (at % 64)
			x.live++
		}
		p.leaving &^= mask
		b.forget(l, p, mask)
	}
	if int(x.live) != o.needed {
		invariant.Failf("%d items of a block are needed, %d were", x.live, o.needed)
	}
	b.spilled.insert(x)
}

// spilled is the blocks of a queue by number. They do not overlap. The index
// takes memory for blocks, and a bit for each item.
type spilled struct {
	list  []*extent // from head on
	head  int
	hit   *extent // found last
	bytes int64   // of the items, as far as they are needed
}

// extent is a block and which of its items are needed.
type extent struct {
	block       *spill.Block
	first, last queue.Number
	bits        []uint64 // by number, from first on
	bytes       uint32   // of all items
	items, live uint32
}

// size estimates the bytes of the items that are needed.
func (x *extent) size() int64 { return int64(x.bytes) * int64(x.live) / int64(x.items) }

func (x *extent) has(n queue.Number) bool {
	at := n - x.first
	return x.bits[at/64]&(1<<(at%64)) != 0
}

// search is the index of the first extent that ends at n or above.
func (s *spilled) search(n queue.Number) int {
	lo, hi := s.head, len(s.list)
	for lo < hi {
		if m := (lo + hi) / 2; s.list[m].last < n {
			lo = m + 1
		} else {
			hi = m
		}
	}
	return lo
}

// find returns the extent that has item n, or nil.
func (s *spilled) find(n queue.Number) *extent {
	if x := s.hit; x != nil && n >= x.first && n <= x.last {
		if x.has(n) {
			return x
		}
		return nil
	}
	i := s.search(n)
	if i == len(s.list) || s.list[i].first > n || !s.list[i].has(n) {
		return nil
	}
	s.hit = s.list[i]
	return s.hit
}

func (s *spilled) insert(x *extent) {
	i := s.search(x.first)
	if i < len(s.list) && s.list[i].first <= x.last {
		invariant.Failf("items %v to %v are spilled twice", x.first, x.last)
	}
	if s.head > 0 && len(s.list) == cap(s.list) && s.head >= len(s.list)/2 {
		n := copy(s.list, s.list[s.head:])
		clear(s.list[n:])
		s.list, i, s.head = s.list[:n], i-s.head, 0
	}
	s.list = slices.Insert(s.list, i, x)
	s.bytes += x.size()
}

// remove gives up the items of a range, and the blocks that are not needed any more.
func (s *spilled) remove(r queue.Numbers) {
	from := s.search(r.First)
	to, kept := from, from
	for ; to < len(s.list) && s.list[to].first <= r.Last; to++ {
		x := s.list[to]
		s.bytes -= x.size()
		if x.clear(r); x.live > 0 {
			s.bytes += x.size()
			s.list[kept] = x
			kept++
			continue
		}
		if s.hit == x {
			s.hit = nil
		}
		x.block.Let()
	}
	switch {
	case kept == to:
	case from == s.head && kept == from: // the oldest, mostly
		clear(s.list[from:to])
		s.head = to
	default:
		s.list = slices.Delete(s.list, kept, to)
	}
	if s.head == len(s.list) && s.head > 0 {
		s.list, s.head = nil, 0
	}
}

// clear gives up the items of a range.
func (x *extent) clear(r queue.Numbers) {
	from, to := max(r.First, x.first)-x.first, min(r.Last, x.last)-x.first
	for w := from / 64; w <= to/64; w++ {
		mask := ^uint64(0)
		if w == from/64 {
			mask <<= from % 64
		}
		if w == to/64 {
			mask &= ^uint64(0) >> (63 - to%64)
		}
		x.live -= uint32(bits.OnesCount64(x.bits[w] & mask))
		x.bits[w] &^= mask
	}
}

func (s *spilled) clear() {
	for _, x := range s.list[s.head:] {
		x.block.Let()
	}
	*s = spilled{}
}
