package queue

import (
	"cmp"
	"fmt"
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
	// Keys that have had their time do not count any more. They are let go of when ten whole seconds have passed, so that it is not done for each
	// alone, and mostForgotten of them by an entry, at most.
	sweepEvery    = 10_000 // ms
	mostForgotten = 2048
)

// mostScreened is how many keys of all such exchanges a queue remembers: 144 MiB, by KeyCost. With more, that through which nothing has come for
// longest loses its oldest. It is a variable for tests.
var mostScreened = 144 << 20 / KeyCost

// screen is what a queue remembers of what has come through one exchange.
type screen struct {
	exchange uint64
	time     int64 // ms, when the last message came in
	keys     keyList
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
func (m *Machine) isScreened(c *Screen, transient bool) bool {
	if c == nil || m.extra == nil {
		return false
	}
	_, s := m.extra.screen(c.Exchange)
	if s == nil {
		return false
	}
	k := s.keys.find(c.Key)
	return k != nil && k.hides(transient) && !k.ended(m.now/millisecond)
}

// pass remembers the key of a message that comes in. If it was known, that does not count any more.
func (m *Machine) pass(c *Screen, transient bool) {
	ms, timed := c.Window.Get()
	if timed && ms == 0 || planted.Is(planted.KeyUnkept) && c.Key[0]%4 == 0 {
		return
	}
	x, now := m.extra, m.now/millisecond
	i, s := x.screen(c.Exchange)
	if s == nil {
		s = &screen{exchange: c.Exchange}
		x.screens = slices.Insert(x.screens, i, s)
	}
	s.time = now
	s.keys.forget(c.Key)
	for uint64(s.keys.count) >= c.Keys {
		if s.keys.oldest().ended(now) || s.keys.inTurn() || s.keys.expire(now, 1) == 0 { // what has had its time goes first
			s.keys.forgetOldest()
		}
	}
	k := seen{key: c.Key, time: now, transient: transient}
	if timed {
		k.end = max(m.in(ms)/millisecond, now+1)
	}
	s.keys.add(k)
	x.boundScreens()
}

// boundScreens forgets what is too much: that of the exchange through which nothing has come for longest.
func (x *extra) boundScreens() {
	n := 0
	for _, s := range x.screens {
		n += s.keys.count
	}
	for len(x.screens) > mostScreens || n > mostScreened {
		silent := slices.MinFunc(x.screens, func(a, b *screen) int { return cmp.Compare(a.time, b.time) })
		if len(x.screens) <= mostScreens {
			silent.keys.forgetOldest()
			if n--; silent.keys.count > 0 {
				continue
			}
		}
		n -= silent.keys.count
		x.screens = slices.DeleteFunc(x.screens, func(s *screen) bool { return s == silent })
	}
}

// keepScreens forgets what has had its time, as much as one entry may.
func (x *extra) keepScreens(now int64) {
	done, left := false, mostForgotten
	for _, s := range x.screens {
		left -= s.keys.expire(now-now%sweepEvery, left)
		done = done || s.over(now)
	}
	if done {
		x.screens = slices.DeleteFunc(x.screens, func(s *screen) bool { return s.over(now) })
	}
}

// over reports whether there is nothing left to remember of the exchange.
func (s *screen) over(now int64) bool {
	return s.keys.count == 0 || s.keys.timed == 0 && now-s.time >= screenSilence
}

// nextScreen returns when something is to be forgotten if nothing comes, in milliseconds.
func (x *extra) nextScreen() (ms int64, ok bool) {
	for _, s := range x.screens {
		t := s.time + screenSilence
		if s.keys.timed > 0 {
			t = s.keys.next
		}
		if !ok || t < ms {
			ms, ok = t, true
		}
	}
	return ms, ok
}

// nextForgotten returns when something is to be forgotten of what is remembered to find duplicates if nothing comes, in milliseconds. That is at
// a whole minute: it counts no more before, and each time is an entry.
func (x *extra) nextForgotten() (ms int64, ok bool) {
	const minute = 60_000
	ms, ok = x.nextOut()
	if t, has := x.nextScreen(); has && (!ok || t < ms) {
		ms, ok = t, true
	}
	return min((ms+minute-1)/minute*minute, endOfTime/millisecond), ok
}

// recoverScreens forgets the keys of messages that a restart has taken.
func (x *extra) recoverScreens() {
	for _, s := range x.screens {
		s.keys.recover()
	}
	x.screens = slices.DeleteFunc(x.screens, func(s *screen) bool { return s.keys.count == 0 })
}

// viewScreens returns what is remembered as it is now, for another goroutine to encode.
func (x *extra) viewScreens() []*screen {
	v := make([]*screen, len(x.screens))
	for i, s := range x.screens {
		v[i] = &screen{s.exchange, s.time, s.keys.view()}
	}
	return v
}

func (e *encoder) screens(all []*screen) {
	for _, s := range all {
		e.uint(s.exchange)
		e.uint(uint64(s.time))
		e.uint(uint64(s.keys.count))
		time := int64(0)
		s.keys.all(func(k *seen) {
			e.uint(uint64(k.time-time)<<1 | bit(k.transient, 1))
			if k.end == 0 {
				e.uint(0)
			} else {
				e.uint(uint64(k.end - k.time))
			}
			e.b = append(e.b, k.key[:]...)
			time = k.time
		})
	}
}

// leastScreened is what a key takes in a snapshot, at least.
const leastScreened = 18

func (m *Machine) restoreScreen(d *decoder) {
	x, most := m.rare(), int64(endOfTime/millisecond)
	s := &screen{exchange: d.Uint(), time: int64(d.UpTo(uint64(most)))}
	if n := len(x.screens); s.exchange == 0 || n > 0 && x.screens[n-1].exchange >= s.exchange || n == mostScreens {
		d.Fail()
		return
	}
	time := int64(0)
	n := d.UpTo(uint64(len(d.Rest) / leastScreened))
	s.keys.places.grow(int(n))
	for ; n > 0 && !d.Bad(); n-- {
		when := d.UpTo(uint64(most) << 1)
		k := seen{time: time + int64(when>>1), transient: when&1 != 0}
		if left := int64(d.UpTo(uint64(most))); left > 0 {
			k.end = k.time + left
		}
		k.key = d.key()
		if s.keys.find(k.key) != nil || k.time > s.time || s.time > m.now/millisecond {
			d.Fail()
			return
		}
		s.keys.add(k)
		time = k.time
	}
	if s.keys.count == 0 {
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
		last := int64(0)
		w.keyList(&s.keys, fmt.Sprintf("exchange %d", s.exchange))
		s.keys.all(func(k *seen) {
			w.that(k.time >= last && k.time <= s.time && (k.end == 0 || k.end > k.time), "exchange %d: key of %d until %d, after %d", s.exchange, k.time, k.end, last)
			last = k.time
		})
		w.that(s.keys.count > 0 && (i == 0 || x.screens[i-1].exchange < s.exchange), "exchange %d is out of order, or has no keys", s.exchange)
	}
}
