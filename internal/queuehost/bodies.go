package queuehost

import (
	"math/bits"

	"holdfast/internal/invariant"
	"holdfast/internal/queue"
)

// bodies maps a queue's message numbers to what is in memory of them, or
// spilled. Numbers come dense and mostly leave in order, so they lie in pages of
// neighbours; a page that is empty goes back to the lane. It belongs to the
// queue's worker.
type bodies struct {
	host  *host
	pages map[uint64]*page
	most  int // pages there were at a time
	// The pages used last, for writing and for reading.
	put, get *page
	bytes    int64
	out      []*leaving // on their way to the disk, by number; they do not overlap
	spilled  spilled
}

const (
	pageShift = 5
	pageSize  = 1 << pageShift
)

// page is the items of pageSize neighbouring numbers. The masks have a bit for
// each place. The last three are apart from each other, and subsets of used; an
// item in none of them is on its way to the log.
type page struct {
	key     uint64 // number >> pageShift
	owner   *bodies
	items   [pageSize][]byte
	used    uint32 // there is an item
	onDisk  uint32 // it is stable in the log: it may be forgotten
	alone   uint32 // it is nowhere else and never will be in the log: it may be spilled
	leaving uint32 // it is being spilled

	prev, next *page // in the lane's cache, while any item may leave
	cached     bool
}

// itemCost is what an item takes in memory beside its bytes.
const itemCost = 32

func cost(item []byte) int64 { return int64(len(item)) + itemCost }

func place(n queue.Number) (key uint64, bit uint32, i int) {
	i = int(n & (pageSize - 1))
	return uint64(n) >> pageShift, 1 << i, i
}

// find returns the page of n, or nil.
func (b *bodies) find(key uint64) *page {
	if p := b.get; p != nil && p.key == key {
		return p
	}
	p := b.pages[key]
	if p != nil {
		b.get = p
	}
	return p
}

// add puts in the item of number n. alone: it does not go to the log.
func (b *bodies) add(l *lane, n queue.Number, item []byte, alone bool) {
	key, bit, i := place(n)
	p := b.put
	if p == nil || p.key != key {
		if p = b.pages[key]; p == nil {
			p = l.newPage()
			p.key, p.owner = key, b
			if b.pages == nil {
				b.pages, b.most = l.newMap(), 0
			}
			b.pages[key] = p
			b.most = max(b.most, len(b.pages))
		}
		b.put = p
	}
	if p.used&bit != 0 {
		invariant.Failf("message %v has a body already", n)
	}
	p.items[i] = item
	p.used |= bit
	b.bytes += int64(len(item))
	if alone && l.spill.store != nil {
		p.alone |= bit
		l.cache.add(p, cost(item))
	}
}

// item returns the item of number n, or nil if it is not in memory.
func (b *bodies) item(n queue.Number) []byte {
	key, _, i := place(n)
	p := b.find(key)
	if p == nil {
		return nil
	}
	return p.items[i]
}

// remove forgets the items of a range of numbers.
func (b *bodies) remove(l *lane, r queue.Numbers) {
	if len(b.pages) > 0 {
		b.each(r, func(p *page, mask uint32) {
			b.forget(l, p, mask)
		})
	}
	b.spilled.remove(r)
}

// stable notes that the items of a range, as far as they are still there, are on disk.
func (b *bodies) stable(l *lane, r queue.Numbers) {
	b.each(r, func(p *page, mask uint32) {
		mask &= p.used &^ (p.onDisk | p.alone | p.leaving)
		if mask == 0 {
			return
		}
		p.onDisk |= mask
		l.cache.add(p, p.costOf(mask))
		if l.stuck() {
			b.forget(l, p, mask) // it cannot wait for its turn behind what has to be spilled
		}
	})
}

func (p *page) costOf(mask uint32) int64 {
	var n int64
	for m := mask; m != 0; m &= m - 1 {
		n += cost(p.items[bits.TrailingZeros32(m)])
	}
	return n
}

// each calls fn for the pages in memory that a range touches, with the mask of
// the places in the range.
func (b *bodies) each(r queue.Numbers, fn func(*page, uint32)) {
	first, last := uint64(r.First)>>pageShift, uint64(r.Last)>>pageShift
	if last-first >= uint64(len(b.pages)) {
		// A wide range over few pages: go by the pages.
		for key, p := range b.pages {
			if key >= first && key <= last {
				fn(p, pageMask(key, r))
			}
		}
		return
	}
	for key := first; key <= last; key++ {
		if p := b.find(key); p != nil {
			fn(p, pageMask(key, r))
		}
	}
}

// pageMask is the places of page key that lie in r.
func pageMask(key uint64, r queue.Numbers) uint32 {
	mask := ^uint32(0)
	if start := key << pageShift; uint64(r.First) > start {
		mask <<= uint64(r.First) - start
	}
	if end := key<<pageShift + pageSize - 1; uint64(r.Last) < end {
		mask &= ^uint32(0) >> (end - uint64(r.Last))
	}
	return mask
}

// forget removes items from a page, and the page when it is empty.
func (b *bodies) forget(l *lane, p *page, mask uint32) {
	mask &= p.used
	if mask == 0 {
		return
	}
	if m := p.leaving & mask; m != 0 {
		p.left(m)
		p.leaving &^= m
	}
	if m := (p.onDisk | p.alone) & mask; m != 0 {
		p.onDisk &^= m
		p.alone &^= m
		l.cache.sub(p, p.costOf(m))
	}
	for m := mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m)
		b.bytes -= int64(len(p.items[i]))
		p.items[i] = nil
	}
	if p.used &^= mask; p.used == 0 {
		b.drop(l, p)
	}
}

func (b *bodies) drop(l *lane, p *page) {
	delete(b.pages, p.key)
	if b.put == p {
		b.put = nil
	}
	if b.get == p {
		b.get = nil
	}
	if len(b.pages) == 0 {
		l.freeMap(b.pages, b.most)
		b.pages = nil
	}
	l.freePage(p)
}

// clear forgets everything.
func (b *bodies) clear(l *lane) {
	for _, p := range b.pages {
		b.forget(l, p, p.used)
	}
	b.spilled.clear()
}
