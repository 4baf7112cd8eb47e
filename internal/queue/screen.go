package queue

import (
	"cmp"
	heaps "container/heap"
	"slices"

	"holdfast/internal/bytecodec"
	"holdfast/internal/planted"
)

// Some exchanges let nothing through twice. What has come through one is known by the queues that it came to: each of them keeps the keys
// itself, with the messages that it accepts, so that nothing counts as a duplicate that is not in the queue, or was.

// Screen says by way of which such exchange the message of an Enqueue has come. It does not come in, and counts as accepted, if the
// queue remembers its key.
type Screen struct {
	Exchange uint64 // which one; not 0
	Key      Key    // not the zero value
	Window   Limit  // for how many milliseconds the key is remembered if the message comes in; 0: as long as there is room
	Keys     uint64 // how many keys of the exchange are remembered at most, not 0; the oldest is forgotten for a new one
}

const (
	// mostScreens is of how many exchanges a queue remembers keys: more, and that through which nothing has come for longest is forgotten.
	mostScreens = 64
	// screenSilence is after how many ms in which nothing has come through an exchange keys are forgotten that have no time: a week. The
	// exchange may be gone.
	screenSilence = 7 * 24 * 3600 * 1000
)

// screen is what a queue remembers of what has come through one exchange.
type screen struct {
	exchange uint64
	time     int64 // ms, when the last message came in
	places   map[Key]uint64
	order    []passed // the oldest first, with some that are forgotten
	first    uint64   // place of the first
	ends     ends     // of those that have one, with some that are forgotten
	timed    int      // how many of places have one
}

// passed is a key and when it came.
type passed struct {
	key       Key
	time, end int64 // ms; end 0: none
	transient bool  // its message does not outlive a restart
}

// ends is a heap of when keys are to be forgotten.
type ends []ending

// ending is when the key of a place is to be forgotten.
type ending struct {
	end   int64
	place uint64
}

func (e ends) Len() int      { return len(e) }
func (e ends) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e ends) Less(i, j int) bool {
	return e[i].end < e[j].end || e[i].end == e[j].end && e[i].place < e[j].place
}

// Push implements heap.Interface.
func (e *ends) Push(x any) { *e = append(*e, x.(ending)) }

// Pop implements heap.Interface.
func (e *ends) Pop() any {
	*e = (*e)[:len(*e)-1]
	return nil
}

// screen returns what is remembered of an exchange, and its place among all, by their ids.
func (x *extra) screen(exchange uint64) (i int, s *screen) {
	i, is := slices.BinarySearchFunc(x.screens, exchange, func(s *screen, id uint64) int { return cmp.Compare(s.exchange, id) })
	if is {
		s = x.screens[i]
	}
	return i, s
}

// isScreened reports whether a message is a duplicate of one that came through the same exchange.
func (m *Machine) isScreened(c *Screen) bool {
	if c == nil || m.extra == nil {
		return false
	}
	_, s := m.extra.screen(c.Exchange)
	if s == nil {
		return false
	}
	_, is := s.places[c.Key]
	return is
}

// pass remembers the key of a message that comes in, which was not known.
func (m *Machine) pass(c *Screen, transient bool) {
	ms, timed := c.Window.Get()
	if timed && ms == 0 || planted.Is(planted.KeyUnkept) && c.Key[0]%4 == 0 {
		return
	}
	x, now := m.extra, m.now/millisecond
	i, s := x.screen(c.Exchange)
	if s == nil {
		s = &screen{exchange: c.Exchange, places: map[Key]uint64{}}
		x.screens = slices.Insert(x.screens, i, s)
	}
	s.time = now
	for uint64(len(s.places)) >= c.Keys {
		s.forgetOldest()
	}
	p := passed{key: c.Key, time: now, transient: transient}
	if timed {
		p.end = max(m.in(ms)/millisecond, now+1)
	}
	s.add(p)
	if len(x.screens) > mostScreens {
		x.forgetSilent()
	}
}

// forgetSilent forgets the exchange through which nothing has come for longest.
func (x *extra) forgetSilent() {
	oldest := slices.MinFunc(x.screens, func(a, b *screen) int { return cmp.Compare(a.time, b.time) })
	x.screens = slices.DeleteFunc(x.screens, func(s *screen) bool { return s == oldest })
}

// keepScreens forgets what has had its time.
func (x *extra) keepScreens(now int64) {
	done := false
	for _, s := range x.screens {
		s.expire(now)
		done = done || s.over(now)
	}
	if done {
		x.screens = slices.DeleteFunc(x.screens, func(s *screen) bool { return s.over(now) })
	}
}

// over reports whether there is nothing left to remember of the exchange.
func (s *screen) over(now int64) bool {
	return len(s.places) == 0 || s.timed == 0 && now-s.time >= screenSilence
}

// add remembers a key that is not known.
func (s *screen) add(p passed) {
	at := s.first + uint64(len(s.order))
	s.places[p.key] = at
	s.order = append(s.order, p)
	if p.end != 0 {
		s.timed++
		s.ends = append(s.ends, ending{p.end, at}) // without an allocation, unlike Push
		heaps.Fix(&s.ends, len(s.ends)-1)
	}
}

// at returns the key of a place, nil if it is forgotten.
func (s *screen) at(place uint64) *passed {
	if place < s.first {
		return nil
	}
	p := &s.order[place-s.first]
	if at, is := s.places[p.key]; !is || at != place {
		return nil
	}
	return p
}

func (s *screen) forget(p *passed) {
	delete(s.places, p.key)
	if p.end != 0 {
		s.timed--
	}
}

// forgetOldest forgets the oldest key. There must be one.
func (s *screen) forgetOldest() {
	for done := false; !done; {
		if p := s.at(s.first); p != nil {
			s.forget(p)
			done = true
		}
		s.order = s.order[1:]
		s.first++
	}
}

// expire forgets the keys whose time is over.
func (s *screen) expire(now int64) {
	for len(s.ends) > 0 && s.ends[0].end <= now {
		if p := s.at(s.ends[0].place); p != nil {
			s.forget(p)
		}
		heaps.Pop(&s.ends)
	}
	for len(s.order) > 0 && s.at(s.first) == nil {
		s.order = s.order[1:]
		s.first++
	}
	if most := 2*len(s.places) + 64; len(s.order) > most || len(s.ends) > most {
		s.keepOnly(func(*passed) bool { return true })
	}
}

// keepOnly forgets all keys but some, and makes everything as small as it can be.
func (s *screen) keepOnly(some func(*passed) bool) {
	old := *s
	*s = screen{exchange: s.exchange, time: s.time, places: map[Key]uint64{}}
	old.all(func(p *passed) {
		if some(p) {
			s.add(*p)
		}
	})
}

// all calls f for the keys that are remembered, the oldest first.
func (s *screen) all(f func(*passed)) {
	for i := range s.order {
		if p := s.at(s.first + uint64(i)); p != nil {
			f(p)
		}
	}
}

// recoverScreens forgets the keys of messages that a restart has taken.
func (x *extra) recoverScreens() {
	for _, s := range x.screens {
		if slices.ContainsFunc(s.order, func(p passed) bool { return p.transient }) {
			s.keepOnly(func(p *passed) bool { return !p.transient })
		}
	}
	x.screens = slices.DeleteFunc(x.screens, func(s *screen) bool { return len(s.places) == 0 })
}

func (e *encoder) screen(s *screen) {
	e.uint(s.exchange)
	e.uint(uint64(s.time))
	e.uint(uint64(len(s.places)))
	time := int64(0)
	s.all(func(p *passed) {
		e.uint(uint64(p.time-time)<<1 | bit(p.transient, 1))
		if p.end == 0 {
			e.uint(0)
		} else {
			e.uint(uint64(p.end - p.time))
		}
		e.b = append(e.b, p.key[:]...)
		time = p.time
	})
}

func (m *Machine) restoreScreen(d *decoder) {
	x, most := m.rare(), int64(endOfTime/millisecond)
	s := &screen{exchange: d.Uint(), time: int64(d.UpTo(uint64(most))), places: map[Key]uint64{}}
	if n := len(x.screens); s.exchange == 0 || n > 0 && x.screens[n-1].exchange >= s.exchange || n == mostScreens {
		d.Fail()
		return
	}
	time := int64(0)
	for n := d.UpTo(uint64(len(d.Rest))); n > 0 && !d.Bad(); n-- {
		when := d.UpTo(uint64(most) << 1)
		p := passed{time: time + int64(when>>1), transient: when&1 != 0}
		if left := int64(d.UpTo(uint64(most))); left > 0 {
			p.end = p.time + left
		}
		p.key = d.key()
		if _, is := s.places[p.key]; is || p.time > s.time || s.time > m.now/millisecond {
			d.Fail()
			return
		}
		s.add(p)
		time = p.time
	}
	if len(s.places) == 0 {
		d.Fail()
	}
	x.screens = append(x.screens, s)
}

// appendScreen appends the log form of a screen.
func appendScreen(dst []byte, c *Screen) []byte {
	dst = append(bytecodec.AppendUint(dst, c.Exchange), c.Key[:]...)
	return bytecodec.AppendUint(bytecodec.AppendUint(dst, uint64(c.Window)), c.Keys)
}

// screen reads what appendScreen writes.
func (d *decoder) screen() *Screen {
	c := &Screen{Exchange: d.Uint(), Key: d.key(), Window: Limit(d.Uint()), Keys: d.Uint()}
	if c.Exchange == 0 || c.Keys == 0 {
		d.Fail()
	}
	return c
}

// screens checks what is remembered of exchanges.
func (w *checker) screens(x *extra) {
	w.that(len(x.screens) <= mostScreens, "%d exchanges are remembered", len(x.screens))
	for i, s := range x.screens {
		n, timed, last := 0, 0, int64(0)
		s.all(func(p *passed) {
			w.that(p.time >= last && p.time <= s.time && (p.end == 0 || p.end > w.m.now/millisecond), "exchange %d: key of %d until %d, after %d", s.exchange, p.time, p.end, last)
			n, last = n+1, p.time
			if p.end != 0 {
				timed++
			}
		})
		w.that(n > 0 && n == len(s.places) && timed == s.timed && (i == 0 || x.screens[i-1].exchange < s.exchange), "exchange %d: %d keys, %d with an end, %d and %d counted", s.exchange, n, timed, len(s.places), s.timed)
	}
}
