package queuehost

import (
	"math/bits"

	"holdfast/internal/invariant"
	"holdfast/internal/queue"
)

// bodies maps a queue's message numbers to what is in memory of them. Numbers
// come dense and mostly leave in order, so they lie in pages of neighbours; a
// page that is empty goes back to the lane. It belongs to the queue's worker.
type bodies struct {
	pages map[uint64]*page
	most  int // pages there were at a time
	// The pages used last, for writing and for reading.
	put, get *page
	bytes    int64
}

const (
	pageShift = 5
	pageSize  = 1 << pageShift
)

// page is the items of pageSize neighbouring numbers. The masks have a bit for
// each place.
type page struct {
	key      uint64 // number >> pageShift
	owner    *bodies
	items    [pageSize][]byte
	used     uint32 // there is an item
	onDisk   uint32 // it is stable in the log: it may be evicted. Subset of used
	volatile uint32 // it is nowhere else and counts against the lane's budget. Subset of used
	bytes    int64  // of the items on disk

	prev, next *page // in the lane's tail cache, while onDisk is not 0
	cached     bool
}

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

// add puts in the item of number n. volatile: it does not go to the log though
// the queue's other items may.
func (b *bodies) add(l *lane, n queue.Number, item []byte, volatile bool) {
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
	if volatile {
		p.volatile |= bit
		l.volatile += int64(len(item))
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
	b.each(r, func(p *page, mask uint32) {
		b.forget(l, p, mask)
	})
}

// stable notes that the items of a range, as far as they are still there, are on disk.
func (b *bodies) stable(l *lane, r queue.Numbers) {
	b.each(r, func(p *page, mask uint32) {
		mask &= p.used &^ p.onDisk
		if mask == 0 {
			return
		}
		var n int64
		for m := mask; m != 0; m &= m - 1 {
			n += int64(len(p.items[bits.TrailingZeros32(m)]))
		}
		p.onDisk |= mask
		p.bytes += n
		l.tail.add(p, n)
	})
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
	var n, disk, volatile int64
	for m := mask; m != 0; m &= m - 1 {
		i := bits.TrailingZeros32(m)
		size := int64(len(p.items[i]))
		n += size
		switch bit := uint32(1) << i; {
		case p.onDisk&bit != 0:
			disk += size
		case p.volatile&bit != 0:
			volatile += size
		}
		p.items[i] = nil
	}
	b.bytes -= n
	l.volatile -= volatile
	p.used &^= mask
	p.volatile &^= mask
	if p.onDisk&mask != 0 {
		p.onDisk &^= mask
		p.bytes -= disk
		l.tail.sub(p, disk)
	}
	if p.used == 0 {
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
}

// tail is the cache of items that are on disk as well: a list of pages, oldest
// first, bounded by bytes. One lane has one.
type tail struct {
	oldest, newest *page
	bytes, limit   int64
}

// add notes n more bytes in page p, which joins the list if it is not in it.
func (t *tail) add(p *page, n int64) {
	t.bytes += n
	if p.cached {
		return
	}
	p.cached = true
	p.prev = t.newest
	if t.newest != nil {
		t.newest.next = p
	} else {
		t.oldest = p
	}
	t.newest = p
}

// sub notes n fewer bytes in page p, which leaves the list with its last item on disk.
func (t *tail) sub(p *page, n int64) {
	t.bytes -= n
	if p.onDisk != 0 || !p.cached {
		return
	}
	if p.prev != nil {
		p.prev.next = p.next
	} else {
		t.oldest = p.next
	}
	if p.next != nil {
		p.next.prev = p.prev
	} else {
		t.newest = p.prev
	}
	p.prev, p.next, p.cached = nil, nil, false
}

// trim evicts the oldest pages until the cache keeps its bound.
func (t *tail) trim(l *lane) {
	for t.bytes > t.limit && t.oldest != nil {
		p := t.oldest
		p.owner.forget(l, p, p.onDisk)
	}
}
