package queue

import (
	"math"
	"math/bits"
	"slices"
	"sort"
)

// keyList is keys in the order in which they came. A million of them may be there, and the queue's worker must not stand still for them: so each step
// costs as much as a few keys, whatever is forgotten first, and a view of all of them costs a copy of what stands for blocks of them.
type keyList struct {
	places keyPlaces
	blocks []keyBlock // none is empty
	last   uint64     // place of the last key; they rise
	count  int        // keys that are remembered, and how many of these
	timed  int        // have an end
	passed int        // are of transient messages
	next   int64      // if any has an end: none ends before
	end    int64      // the latest that came
	mixed  bool       // one that came later ends earlier
}

// seen is a key and when it came.
type seen struct {
	key       Key
	time, end int64  // ms; end 0: none
	step      uint32 // its place, above that of its block
	transient bool   // its message does not outlive a restart
}

// keyBlock is a piece of a keyList. It is copied by value where a view is taken: of items nothing that is there is changed, then, and what is gone
// is noted beside them.
type keyBlock struct {
	base  uint64 // place from which steps count
	items []seen
	gone  [keyItems / 64]uint64 // a bit for each that is forgotten
	live  int                   // how many are not
	next  int64                 // none of these ends before; noEnd: none does
}

const (
	keyItems = 512
	noEnd    = math.MaxInt64
)

// hides reports whether a message with the same key is a duplicate. One that is to survive a restart is none of one that does not.
func (s *seen) hides(transient bool) bool { return transient || !s.transient }

// ended reports whether a key has had its time.
func (s *seen) ended(now int64) bool { return s.end != 0 && s.end <= now }

// add remembers a key that is not known.
func (l *keyList) add(s seen) {
	l.last++
	n := len(l.blocks)
	if n == 0 || len(l.blocks[n-1].items) == keyItems || l.last-l.blocks[n-1].base > math.MaxUint32 {
		b := keyBlock{base: l.last, next: noEnd}
		if n > 0 {
			b.items = make([]seen, 0, keyItems)
		}
		l.blocks = append(l.blocks, b)
		n++
	}
	b := &l.blocks[n-1]
	s.step = uint32(l.last - b.base)
	b.items = append(b.items, s)
	b.live++
	l.count++
	l.places.set(s.key, l.last)
	if s.transient {
		l.passed++
	}
	if s.end != 0 {
		b.next = min(b.next, s.end)
		if l.timed == 0 {
			l.next = s.end
		}
		l.next = min(l.next, s.end)
		l.timed++
		l.mixed = l.mixed || s.end < l.end
		l.end = max(l.end, s.end)
	}
}

// inTurn reports whether the keys end in the order in which they came, as far as is known.
func (l *keyList) inTurn() bool { return !l.mixed && l.timed == l.count }

// find returns a key, nil if it is not known. It is good until the list changes.
func (l *keyList) find(key Key) *seen {
	place, is := l.places.get(key)
	if !is {
		return nil
	}
	bi, i := l.at(place)
	return &l.blocks[bi].items[i]
}

// at returns where the key of a place is.
func (l *keyList) at(place uint64) (bi, i int) {
	bi = sort.Search(len(l.blocks), func(k int) bool { return l.blocks[k].base > place }) - 1
	b := &l.blocks[bi]
	step := place - b.base
	if step < uint64(len(b.items)) && uint64(b.items[step].step) == step {
		return bi, int(step)
	}
	return bi, sort.Search(len(b.items), func(k int) bool { return uint64(b.items[k].step) >= step })
}

// forget forgets a key, if it is known.
func (l *keyList) forget(key Key) {
	if place, is := l.places.get(key); is {
		bi, i := l.at(place)
		l.drop(&l.blocks[bi], i)
		l.tidy(bi)
	}
}

// oldest returns the key that has been there for longest, nil if there is none.
func (l *keyList) oldest() *seen {
	if l.count == 0 {
		return nil
	}
	b := &l.blocks[0]
	return &b.items[b.first()]
}

// forgetOldest forgets the oldest key. There must be one.
func (l *keyList) forgetOldest() {
	b := &l.blocks[0]
	l.drop(b, b.first())
	l.tidy(0)
}

// first returns the first key of a block that is not forgotten.
func (b *keyBlock) first() int {
	for w, gone := range b.gone {
		if gone != math.MaxUint64 {
			return w*64 + bits.TrailingZeros64(^gone)
		}
	}
	return len(b.items)
}

func (b *keyBlock) isGone(i int) bool { return b.gone[i/64]>>(i%64)&1 != 0 }

// drop forgets a key; the block is to be tidied.
func (l *keyList) drop(b *keyBlock, i int) {
	s := &b.items[i]
	l.places.remove(s.key)
	b.gone[i/64] |= 1 << (i % 64)
	b.live--
	l.count--
	if s.end != 0 {
		l.timed--
	}
	if s.transient {
		l.passed--
	}
}

// expire forgets the keys that end by a time, the oldest first, most of them at most. It returns how many.
func (l *keyList) expire(now int64, most int) (n int) {
	if l.timed == 0 || l.next > now || most == 0 {
		return 0
	}
	l.next = noEnd
	first, last := -1, -1
	for bi := range l.blocks {
		b := &l.blocks[bi]
		if b.next <= now && n < most {
			b.next = noEnd
			before := n
			for i := range b.items {
				switch s := &b.items[i]; {
				case s.end == 0 || b.isGone(i):
				case s.end <= now && n < most:
					l.drop(b, i)
					n++
				default:
					b.next = min(b.next, s.end)
				}
			}
			if n > before {
				if last = bi; first < 0 {
					first = bi
				}
			}
		}
		l.next = min(l.next, b.next)
	}
	for bi := last; bi >= first && bi >= 0; bi-- { // from behind: the places of those before stay
		if bi < len(l.blocks) {
			l.tidy(bi)
		}
	}
	return n
}

// tidy takes a block out of which all is forgotten, and makes one small out of which most is. The first one is soon gone anyway.
func (l *keyList) tidy(bi int) {
	b := &l.blocks[bi]
	switch {
	case l.count == 0:
		*l = keyList{}
	case b.live == 0 && bi == 0:
		l.blocks[0] = keyBlock{}
		l.blocks = l.blocks[1:]
	case b.live == 0:
		l.blocks = slices.Delete(l.blocks, bi, bi+1)
	case bi > 0 && b.live <= len(b.items)/4:
		if !l.join(bi-1) && !l.join(bi) {
			*b = joinedBlock(b, &keyBlock{base: b.base, next: noEnd})
		}
	}
}

// join makes one block of two if both are small.
func (l *keyList) join(bi int) bool {
	if bi+1 >= len(l.blocks) {
		return false
	}
	a, b := &l.blocks[bi], &l.blocks[bi+1]
	if a.live+b.live > keyItems/2 || b.base+uint64(b.items[len(b.items)-1].step)-a.base > math.MaxUint32 {
		return false
	}
	*a = joinedBlock(a, b)
	l.blocks = slices.Delete(l.blocks, bi+1, bi+2)
	return true
}

// joinedBlock is what is not forgotten of two blocks.
func joinedBlock(a, b *keyBlock) keyBlock {
	c := keyBlock{base: a.base, items: make([]seen, 0, a.live+b.live), live: a.live + b.live, next: min(a.next, b.next)}
	for _, from := range [...]*keyBlock{a, b} {
		for i := range from.items {
			if !from.isGone(i) {
				c.items = append(c.items, from.items[i])
				c.items[len(c.items)-1].step += uint32(from.base - a.base)
			}
		}
	}
	return c
}

// all calls f for the keys that are remembered, the oldest first.
func (l *keyList) all(f func(*seen)) {
	for bi := range l.blocks {
		b := &l.blocks[bi]
		for i := range b.items {
			if !b.isGone(i) {
				f(&b.items[i])
			}
		}
	}
}

// view returns the keys as they are now, for another goroutine to read by all: their order, and not where each is.
func (l *keyList) view() keyList { return keyList{blocks: slices.Clone(l.blocks), count: l.count} }

// recover forgets the keys of messages that a restart has taken.
func (l *keyList) recover() {
	if l.passed == 0 {
		return
	}
	old := *l
	*l = keyList{}
	l.places.grow(old.count - old.passed)
	old.all(func(s *seen) {
		if !s.transient {
			l.add(*s)
		}
	})
}

// keyPlaces is where in a list each key is. It is many small maps, so that one that has become too large for what it has can be made anew in a
// moment: a map never becomes smaller.
type keyPlaces []keyShard // none, or keyShards

type keyShard struct {
	at   map[Key]uint64
	most int // so many there were since it was made
}

const keyShards = 64

func (p keyPlaces) shard(key Key) *keyShard { return &p[(key[0]^key[15])%keyShards] }

func (p keyPlaces) get(key Key) (place uint64, is bool) {
	if p == nil {
		return 0, false
	}
	place, is = p.shard(key).at[key]
	return place, is
}

// grow makes room for so many keys in a list that has none.
func (p *keyPlaces) grow(n int) {
	*p = make(keyPlaces, keyShards)
	for i := range *p {
		if n > keyShards*8 {
			(*p)[i].at = make(map[Key]uint64, n/keyShards)
		}
	}
}

func (p *keyPlaces) set(key Key, place uint64) {
	if *p == nil {
		p.grow(0)
	}
	s := p.shard(key)
	if s.at == nil {
		s.at = map[Key]uint64{}
	}
	s.at[key] = place
	s.most = max(s.most, len(s.at))
}

func (p keyPlaces) remove(key Key) {
	s := p.shard(key)
	delete(s.at, key)
	if len(s.at) < s.most/4 && s.most > 64 {
		at := make(map[Key]uint64, len(s.at))
		for k, place := range s.at {
			at[k] = place
		}
		s.at, s.most = at, len(at)
	}
}

// keyList checks one: what is counted, and that each key is found where it is.
func (w *checker) keyList(l *keyList, what string) {
	n, timed, transient, last := 0, 0, 0, uint64(0)
	for bi := range l.blocks {
		b := &l.blocks[bi]
		live := 0
		for i := range b.items {
			s := &b.items[i]
			place := b.base + uint64(s.step)
			w.that(place > last && place <= l.last, "%s: place %d after %d", what, place, last)
			last = place
			at, is := l.places.get(s.key)
			if b.isGone(i) {
				w.that(!is || at != place, "%s: a key at %d that is forgotten", what, place)
				continue
			}
			w.that(is && at == place, "%s: the key at %d is said to be at %d", what, place, at)
			w.that(s.end == 0 || s.end >= b.next && s.end >= l.next, "%s: a key ends at %d, before %d, %d", what, s.end, b.next, l.next)
			live++
			timed += int(bit(s.end != 0, 1))
			transient += int(bit(s.transient, 1))
		}
		w.that(live > 0 && live == b.live && len(b.items) <= keyItems && (bi == 0 || 4*live > len(b.items)), "%s: a block of %d keys with %d, %d counted", what, len(b.items), live, b.live)
		n += live
	}
	w.that(n == l.count && timed == l.timed && transient == l.passed, "%s: %d keys, %d with an end, %d transient; counted %d, %d, %d", what, n, timed, transient, l.count, l.timed, l.passed)
	places := 0
	for _, s := range l.places {
		places += len(s.at)
	}
	w.that(places == n, "%s: %d keys, %d places", what, n, places)
}
