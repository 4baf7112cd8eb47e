package queue

import (
	"math/bits"
	"sort"

	"holdfast/internal/invariant"
)

// slot is one message that a consumer holds.
type slot struct {
	number Number
	time   int64 // of the entry that assigned it
	attr   attr
}

const (
	pageShift = 6
	pageSlots = 1 << pageShift // as many as there are bits in a mask

	// sparseFrom is how many pages in front are never squeezed: consumers settle
	// there, and a page that is emptied soon is not worth it.
	sparseFrom = 16
)

// page holds the checkouts with delivery ids from block*pageSlots on. Bit i of a
// mask stands for id block*pageSlots+i.
type page struct {
	block uint64
	live  uint64 // ids that are held
	kept  uint64 // ids that have a slot; live is part of it
	slots []slot // in the order of their bits in kept
}

func (p *page) at(bit int) *slot {
	return &p.slots[bits.OnesCount64(p.kept&(1<<bit-1))]
}

// checkouts is what one consumer holds, by delivery id. An id costs a slot of 24
// bytes while it is held; those settled long ago cost nothing, however many
// there are between two that are held. Pages are in order of their block. The
// first page is never empty, except when it is also the last.
type checkouts struct {
	pages []page
	count uint64
	empty int // pages in the middle without a held id
	spare []slot
}

// add records that messages number.. are held under ids id.., n of them. Ids only grow.
func (c *checkouts) add(id uint64, number Number, n uint64, time int64, a attr) {
	c.count += n
	for n > 0 {
		p := c.tail(id >> pageShift)
		bit := int(id & (pageSlots - 1))
		k := min(n, uint64(pageSlots-bit))
		for i := range k {
			p.slots = append(p.slots, slot{number + Number(i), time, a})
		}
		mask := (^uint64(0) >> (pageSlots - k)) << bit
		p.live |= mask
		p.kept |= mask
		id, number, n = id+k, number+Number(k), n-k
	}
}

// tail returns the last page, which is the one for block.
func (c *checkouts) tail(block uint64) *page {
	n := len(c.pages)
	if n > 0 {
		last := &c.pages[n-1]
		if last.block == block {
			return last
		}
		if last.block > block {
			invariant.Failf("queue: delivery ids went back to page %d after %d", block, last.block)
		}
		if last.live == 0 { // nothing before it either, or it is one in the middle
			last.block = block
			return last
		}
	}
	size := pageSlots
	if n == 0 {
		size = 8
	} else {
		c.squeeze(n - 1)
	}
	slots := c.spare
	c.spare = nil
	if slots == nil {
		slots = make([]slot, 0, size)
	}
	c.pages = append(c.pages, page{block: block, slots: slots})
	return &c.pages[n]
}

// take ends the checkouts first to last, as far as they are held, and calls f for
// each in order of their ids.
func (c *checkouts) take(first, last uint64, f func(*slot)) {
	if c.count == 0 || first > last {
		return
	}
	i := c.find(first >> pageShift)
	for ; i < len(c.pages) && c.pages[i].block <= last>>pageShift; i++ {
		p := &c.pages[i]
		mask := p.live
		if p.block == first>>pageShift {
			mask &= ^uint64(0) << (first & (pageSlots - 1))
		}
		if p.block == last>>pageShift {
			mask &= ^uint64(0) >> (pageSlots - 1 - last&(pageSlots-1))
		}
		if mask == 0 {
			continue
		}
		p.live &^= mask
		c.count -= uint64(bits.OnesCount64(mask))
		for m := mask; m != 0; m &= m - 1 {
			f(p.at(bits.TrailingZeros64(m)))
		}
		c.shrink(i)
	}
	c.tidy()
}

// holds reports whether all ids of a range are held.
func (c *checkouts) holds(first, last uint64) bool {
	if first > last || last-first >= c.count {
		return false
	}
	n := 0
	for i := c.find(first >> pageShift); i < len(c.pages) && c.pages[i].block <= last>>pageShift; i++ {
		mask := c.pages[i].live
		if c.pages[i].block == first>>pageShift {
			mask &= ^uint64(0) << (first & (pageSlots - 1))
		}
		if c.pages[i].block == last>>pageShift {
			mask &= ^uint64(0) >> (pageSlots - 1 - last&(pageSlots-1))
		}
		n += bits.OnesCount64(mask)
	}
	return uint64(n) == last-first+1
}

// find returns the place of the first page whose block is block or above.
func (c *checkouts) find(block uint64) int {
	n := len(c.pages)
	if n == 0 || block <= c.pages[0].block {
		return 0
	}
	if i := block - c.pages[0].block; i < uint64(n) && c.pages[i].block == block {
		return int(i)
	}
	return sort.Search(n, func(i int) bool { return c.pages[i].block >= block })
}

// shrink gives back memory of page i that ids settled no longer need.
func (c *checkouts) shrink(i int) {
	p := &c.pages[i]
	n := bits.OnesCount64(p.live)
	switch {
	case i == len(c.pages)-1: // still being filled
		if n == 0 {
			p.kept, p.slots = 0, p.slots[:0]
		}
	case n == 0:
		if cap(p.slots) == pageSlots {
			c.spare = p.slots[:0]
		}
		p.kept, p.slots = 0, nil
		c.empty++
	default:
		c.squeeze(i)
	}
}

// squeeze stores page i anew if it has few messages for its size.
func (c *checkouts) squeeze(i int) {
	p := &c.pages[i]
	n := bits.OnesCount64(p.live)
	if i < sparseFrom || n > cap(p.slots)/2 {
		return
	}
	slots := make([]slot, 0, n)
	for m := p.live; m != 0; m &= m - 1 {
		slots = append(slots, *p.at(bits.TrailingZeros64(m)))
	}
	p.kept, p.slots = p.live, slots
}

// tidy removes empty pages: those in front at once, others when they are many.
func (c *checkouts) tidy() {
	front := 0
	for front < len(c.pages)-1 && c.pages[front].live == 0 {
		front++
	}
	if front > 0 {
		c.empty -= front
		rest := c.pages[front:]
		if len(rest) <= cap(c.pages)/4 || len(rest) <= front {
			clear(c.pages[copy(c.pages, rest):])
			c.pages = c.pages[:len(rest)]
			if cap(c.pages) > 4*sparseFrom && len(c.pages) <= cap(c.pages)/4 {
				c.pages = append(make([]page, 0, 2*len(c.pages)), c.pages...)
			}
		} else {
			clear(c.pages[:front])
			c.pages = rest
		}
	}
	if c.empty > 8 && c.empty > len(c.pages)/2 {
		kept := c.pages[:0]
		for i := range c.pages {
			if c.pages[i].live != 0 || i == len(c.pages)-1 {
				kept = append(kept, c.pages[i])
			}
		}
		clear(c.pages[len(kept):])
		c.pages, c.empty = kept, 0
	}
}

// oldest returns the time of the first checkout, 0 if there is none.
func (c *checkouts) oldest() int64 {
	if c.count == 0 {
		return 0
	}
	p := &c.pages[0]
	return p.at(bits.TrailingZeros64(p.live)).time
}

// until returns the last id that was given out at a time or before and is held, and how many there are of them.
func (c *checkouts) until(time int64) (id, n uint64) {
	for i := range c.pages {
		p := &c.pages[i]
		for m := p.live; m != 0; m &= m - 1 {
			bit := bits.TrailingZeros64(m)
			if p.at(bit).time > time {
				return id, n
			}
			id = p.block<<pageShift | uint64(bit)
			n++
		}
	}
	return id, n
}

// all calls f for each checkout, in order of their ids.
func (c *checkouts) all(f func(id uint64, s *slot)) { c.from(0, f) }

// from calls f for each checkout from the id first on, in order of their ids.
func (c *checkouts) from(first uint64, f func(id uint64, s *slot)) { c.between(first, ^uint64(0), f) }

// between calls f for each checkout of the ids first to last, in order.
func (c *checkouts) between(first, last uint64, f func(id uint64, s *slot)) {
	for i := c.find(first >> pageShift); i < len(c.pages) && c.pages[i].block <= last>>pageShift; i++ {
		p := &c.pages[i]
		m := p.live
		if p.block == first>>pageShift {
			m &= ^uint64(0) << (first & (pageSlots - 1))
		}
		if p.block == last>>pageShift {
			m &= ^uint64(0) >> (pageSlots - 1 - last&(pageSlots-1))
		}
		for ; m != 0; m &= m - 1 {
			bit := bits.TrailingZeros64(m)
			f(p.block<<pageShift|uint64(bit), p.at(bit))
		}
	}
}
