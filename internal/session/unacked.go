package session

import (
	"slices"
	"sort"
)

// unacked is the set of deliveries of one channel that wait for their
// acknowledgement, by delivery tag. Tags are given out in ascending order, so
// that it is a list of blocks of neighbouring tags; a block goes when its last
// delivery is settled. One old delivery that stays costs its own block only,
// however many come and go after it.
//
// It is guarded by the channel's flow lock.
type unacked struct {
	blocks []*tagBlock // ascending
	count  int
	spare  *tagBlock // the last block that became empty, for reuse
}

const tagsPerBlock = 64

type tagBlock struct {
	first uint64 // the tag of slot 0
	live  int
	slots [tagsPerBlock]checkout
}

// checkout is one delivery: who holds it, and its id there. No holder: the tag
// is not outstanding.
type checkout struct {
	holder *holder
	id     uint64
}

// add notes a delivery. Tags come in ascending order, except those that a
// rollback brings back.
func (u *unacked) add(tag uint64, c checkout) {
	first := tag - tag%tagsPerBlock
	n := len(u.blocks)
	for n > 0 && u.blocks[n-1].first > first {
		n--
	}
	var b *tagBlock
	if n > 0 && u.blocks[n-1].first == first {
		b = u.blocks[n-1]
	} else {
		if b = u.spare; b != nil {
			u.spare = nil
		} else {
			b = new(tagBlock)
		}
		b.first = first
		u.blocks = slices.Insert(u.blocks, n, b)
	}
	b.slots[tag-first] = c
	b.live++
	u.count++
}

// find returns the block that has the tag, and its place; nil if none has.
func (u *unacked) find(tag uint64) (*tagBlock, int) {
	first := tag - tag%tagsPerBlock
	if n := len(u.blocks); n > 0 && u.blocks[n-1].first == first {
		return u.blocks[n-1], n - 1
	}
	i := sort.Search(len(u.blocks), func(i int) bool { return u.blocks[i].first >= first })
	if i == len(u.blocks) || u.blocks[i].first != first {
		return nil, 0
	}
	return u.blocks[i], i
}

// has reports whether the tag is outstanding.
func (u *unacked) has(tag uint64) bool {
	b, _ := u.find(tag)
	return b != nil && b.slots[tag-b.first].holder != nil
}

// take removes one delivery.
func (u *unacked) take(tag uint64) (checkout, bool) {
	b, i := u.find(tag)
	if b == nil {
		return checkout{}, false
	}
	c := b.slots[tag-b.first]
	if c.holder == nil {
		return checkout{}, false
	}
	b.slots[tag-b.first] = checkout{}
	b.live--
	u.count--
	if b.live == 0 {
		u.drop(i, i+1)
	}
	return c, true
}

// takeUpTo removes every delivery up to a tag, in ascending order.
func (u *unacked) takeUpTo(tag uint64, each func(tag uint64, c checkout)) {
	n := 0
	for ; n < len(u.blocks) && u.blocks[n].first <= tag; n++ {
		b := u.blocks[n]
		for i := range b.slots {
			t := b.first + uint64(i)
			if t > tag {
				break
			}
			if c := b.slots[i]; c.holder != nil {
				b.slots[i] = checkout{}
				b.live--
				u.count--
				each(t, c)
			}
		}
		if b.live > 0 {
			break
		}
	}
	u.drop(0, n)
}

// drop takes blocks from to to-1, which are empty, out of the list.
func (u *unacked) drop(from, to int) {
	if from == to {
		return
	}
	u.spare = u.blocks[to-1]
	u.blocks = append(u.blocks[:from], u.blocks[to:]...)
	clear(u.blocks[len(u.blocks) : len(u.blocks)+to-from])
}
