package queue

import (
	"maps"
	"slices"
	"sort"
)

// waiting is the messages that wait for a time.
type waiting struct {
	lanes []later
	count uint64
}

// later is those of one lane, in order of time and number. A million of them may wait for years, so each takes
// eight bytes, if there is nothing special about it.
type later struct {
	blocks []*laterBlock
	views  uint64 // taken so far
}

// laterBlock is a sorted piece of a later. No block is empty. One that a view may have is never changed: a copy is, in its place.
type laterBlock struct {
	time   int64 // milliseconds; that of the items is relative to it
	number Number
	items  []laterItem
	odd    map[Number]attr // histories that the items do not tell, or nil
	views  uint64          // of the later when the block was made: those that were taken before do not have it
}

// laterItem is one message.
type laterItem struct {
	time   uint32 // milliseconds after its block's, and below them two bits: laterTransient, laterOdd
	number uint32 // above its block's
}

const (
	laterTransient = 1 << 0
	laterOdd       = 1 << 1 // its history is in the block's map
	laterShift     = 2

	laterSpan  = 1 << (32 - laterShift) // milliseconds
	laterItems = 256                    // of a block, at most
)

func (b *laterBlock) at(i int) (time int64, n Number) {
	return b.time + int64(b.items[i].time>>laterShift), b.number + Number(b.items[i].number)
}

// fits reports whether the block can have a message.
func (b *laterBlock) fits(time int64, n Number) bool {
	return time >= b.time && time-b.time < laterSpan && n >= b.number && n-b.number <= 1<<32-1
}

// before compares two places in the order.
func before(time int64, n Number, time2 int64, n2 Number) bool {
	return time < time2 || time == time2 && n < n2
}

// add puts a message in.
func (l *later) add(time int64, n Number, a attr) {
	bi, i := l.find(time, n)
	b := l.room(bi, &i, time, n)
	it := laterItem{uint32(time-b.time) << laterShift, uint32(n - b.number)}
	switch a {
	case 0:
	case flagTransient:
		it.time |= laterTransient
	default:
		it.time |= laterOdd
		if b.odd == nil {
			b.odd = map[Number]attr{}
		}
		b.odd[n] = a
	}
	b.items = slices.Insert(b.items, i, it)
}

// find returns the block in which a message belongs, -1 if there is none, and its place there.
func (l *later) find(time int64, n Number) (bi, i int) {
	bi = sort.Search(len(l.blocks), func(k int) bool {
		t, m := l.blocks[k].at(0)
		return before(time, n, t, m)
	}) - 1
	if bi < 0 {
		return bi, 0
	}
	b := l.blocks[bi]
	return bi, sort.Search(len(b.items), func(k int) bool {
		t, m := b.at(k)
		return before(time, n, t, m)
	})
}

// room returns a block that can have a message which belongs at place i of block bi, and its place there.
func (l *later) room(bi int, i *int, time int64, n Number) *laterBlock {
	if bi < 0 && len(l.blocks) > 0 {
		bi = 0 // before all others
	}
	switch {
	case bi < 0:
		return l.begin(0, i, time, n)
	case !l.blocks[bi].fits(time, n):
		if *i == 0 {
			return l.begin(bi, i, time, n)
		}
		if *i < len(l.blocks[bi].items) {
			l.split(bi, *i)
		}
		return l.begin(bi+1, i, time, n)
	case len(l.blocks[bi].items) < laterItems:
		return l.own(bi)
	case *i == laterItems: // mostly they come in order
		return l.begin(bi+1, i, time, n)
	}
	half := laterItems / 2
	l.split(bi, half)
	if *i > half {
		*i -= half
		bi++
	}
	return l.blocks[bi] // it was made, or made one's own, just now
}

// own returns block bi to be changed: a copy, if a view may have it.
func (l *later) own(bi int) *laterBlock {
	b := l.blocks[bi]
	if b.views != l.views {
		b = &laterBlock{b.time, b.number, slices.Clone(b.items), maps.Clone(b.odd), l.views}
		l.blocks[bi] = b
	}
	return b
}

// view returns the messages as they are now, for another goroutine to read. It takes no time or memory for each of them: blocks are
// shared until they change.
func (w *waiting) view() waiting {
	v := waiting{slices.Clone(w.lanes), w.count}
	for i := range w.lanes {
		l := &w.lanes[i]
		v.lanes[i].blocks = slices.Clone(l.blocks)
		l.views++
	}
	return v
}

// begin makes block bi for a message. It can have others that are somewhat earlier, or have smaller numbers.
func (l *later) begin(bi int, i *int, time int64, n Number) *laterBlock {
	*i = 0
	b := &laterBlock{time: max(0, time-laterSpan/2), number: MakeNumber(n.Lane(), n.Ordinal()-min(n.Ordinal(), 1<<31)), views: l.views}
	l.blocks = slices.Insert(l.blocks, bi, b)
	return b
}

// split makes two blocks of one.
func (l *later) split(bi, i int) {
	b := l.own(bi)
	behind := &laterBlock{time: b.time, number: b.number, items: append(make([]laterItem, 0, laterItems), b.items[i:]...), views: l.views}
	for k := range behind.items {
		if _, n := behind.at(k); behind.items[k].time&laterOdd != 0 {
			if behind.odd == nil {
				behind.odd = map[Number]attr{}
			}
			behind.odd[n] = b.odd[n]
			delete(b.odd, n)
		}
	}
	b.items = b.items[:i]
	l.blocks = slices.Insert(l.blocks, bi+1, behind)
}

// add puts messages in; they are not there. The time is in milliseconds.
func (w *waiting) add(time int64, r run) {
	lane := int(r.first.Lane())
	for lane >= len(w.lanes) {
		w.lanes = append(w.lanes, later{})
	}
	for n := r.first; n <= r.last; n++ {
		w.lanes[lane].add(time, n, r.attr)
	}
	w.count += r.len()
}

// next returns the time of the first message, in milliseconds.
func (w *waiting) next() (time int64, ok bool) {
	for i := range w.lanes {
		if l := &w.lanes[i]; len(l.blocks) > 0 {
			if t, _ := l.blocks[0].at(0); !ok || t < time {
				time, ok = t, true
			}
		}
	}
	return time, ok
}

// first returns the time of the first message, in milliseconds, and its history; there is one.
func (w *waiting) first() (time int64, a attr) {
	time, _ = w.next()
	for i := range w.lanes {
		if l := &w.lanes[i]; len(l.blocks) > 0 {
			if t, n := l.blocks[0].at(0); t == time {
				return time, l.blocks[0].attr(&l.blocks[0].items[0], n)
			}
		}
	}
	return time, 0
}

// due takes out the messages of which the time is not after one, and calls f for runs of them.
func (w *waiting) due(time int64, f func(run)) {
	for i := range w.lanes {
		var r run
		w.lanes[i].due(time, func(n Number, a attr) {
			w.count--
			next := run{n, n, a}
			if r.first > 0 && next.follows(r) {
				r.last = n
				return
			}
			if r.first > 0 {
				f(r)
			}
			r = next
		})
		if r.first > 0 {
			f(r)
		}
	}
	if w.count == 0 {
		*w = waiting{}
	}
}

// runs calls f for runs of messages of one time and history, of at most maxHeldRun, lane by lane, in order.
func (w *waiting) runs(f func(time int64, r run)) {
	for i := range w.lanes {
		w.lanes[i].runs(f)
	}
}

// due takes the messages out of which the time is not after one, and calls f for each, in order.
func (l *later) due(time int64, f func(Number, attr)) {
	for len(l.blocks) > 0 {
		b := l.blocks[0]
		k := 0
		for k < len(b.items) {
			t, n := b.at(k)
			if t > time {
				break
			}
			f(n, b.attr(&b.items[k], n))
			k++
		}
		if k < len(b.items) {
			l.own(0).drop(k)
			return
		}
		l.blocks[0] = nil
		l.blocks = l.blocks[1:]
	}
	*l = later{}
}

// drop takes out the first k messages.
func (b *laterBlock) drop(k int) {
	for i := range b.items[:k] {
		if _, n := b.at(i); b.items[i].time&laterOdd != 0 {
			delete(b.odd, n)
		}
	}
	b.items = b.items[k:]
}

func (b *laterBlock) attr(it *laterItem, n Number) attr {
	switch {
	case it.time&laterOdd != 0:
		return b.odd[n]
	case it.time&laterTransient != 0:
		return flagTransient
	}
	return 0
}

// all calls f for each message, in order.
func (l *later) all(f func(time int64, n Number, a attr)) {
	for _, b := range l.blocks {
		for i := range b.items {
			t, n := b.at(i)
			f(t, n, b.attr(&b.items[i], n))
		}
	}
}

// runs calls f for runs of messages of one time and history, of at most maxHeldRun.
func (l *later) runs(f func(time int64, r run)) {
	var r run
	var at int64
	l.all(func(time int64, n Number, a attr) {
		next := run{n, n, a}
		if r.first > 0 && time == at && next.follows(r) && r.len() < maxHeldRun {
			r.last = n
			return
		}
		if r.first > 0 {
			f(at, r)
		}
		r, at = next, time
	})
	if r.first > 0 {
		f(at, r)
	}
}

// wait returns how many milliseconds a message that has come back has to wait before it is ready; 0: not at all.
func (x *extra) wait(a attr, blameless, requeued bool) (ms uint64) {
	if x.set.Retry == RetryAll || x.set.Retry == RetryFailed && !blameless || x.set.Retry == RetryReturned && blameless {
		ms = x.set.RetryMax
		if times := max(1, uint64(a.deliveryCount())); x.set.RetryMin <= ms/times {
			ms = x.set.RetryMin * times
		}
	}
	if n := a.acquired(); x.set.Backoff && requeued && n > backoffAfter {
		ms = max(ms, min(uint64(backoffMin)<<min(n-backoffAfter-1, 16), backoffMax))
	}
	return ms
}

// A message that was requeued more than backoffAfter times waits, so many milliseconds at first, twice as long after
// each return, up to the most.
const (
	backoffAfter = 20
	backoffMin   = 10
	backoffMax   = 1000
)

// ripen makes the messages ready whose time has come, each in its old place, or forwards them in the order of their times. It
// reports whether any are ready.
func (m *Machine) ripen(fx *Effects) (some bool) {
	x := m.extra
	if x.waiting.count == 0 {
		return false
	}
	x.waiting.due(m.now/millisecond, func(r run) {
		if x.set.Forward {
			m.goOut(r.first, r.last)
			m.end(r, Ripe, fx)
			return
		}
		m.insert(r)
		some = true
	})
	return some
}

// forward lets die what is ready, if that is what the queue is for.
func (m *Machine) forward(fx *Effects) {
	if !m.extra.set.Forward {
		return
	}
	for m.ready > 0 {
		m.dropFront(m.ready, Ripe, fx)
	}
}

// Delayed returns how many messages wait for a time.
func (m *Machine) Delayed() uint64 {
	if m.extra == nil {
		return 0
	}
	return m.extra.waiting.count
}

// recoverLater releases the messages that wait for a time and are transient. It returns how many it released.
func (m *Machine) recoverLater(fx *Effects) (lost uint64) {
	if m.Delayed() == 0 {
		return 0
	}
	old := m.extra.waiting
	m.extra.waiting = waiting{}
	old.runs(func(time int64, r run) {
		if r.attr.is(flagTransient) {
			m.goOut(r.first, r.last)
			m.release(r.first, r.len(), r.attr, Lost, fx)
			lost += r.len()
			return
		}
		m.extra.waiting.add(time, r)
	})
	return lost
}
