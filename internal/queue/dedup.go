package queue

import (
	"slices"
	"sort"

	"holdfast/internal/planted"
)

// Key is what tells a message from others that are not the same: a hash. The zero value is none.
type Key [16]byte

// KeySource says what the keys of messages are made of. That is for the host; to the machine it matters
// whether they are of publishers.
type KeySource uint8

const (
	// NoKey: messages have none, and nothing is a duplicate.
	NoKey KeySource = iota
	// HeaderKey: a header of the message.
	HeaderKey
	// MessageIDKey: its message id.
	MessageIDKey
	// PublisherKey: who has published it. Each publish has a sequence number besides.
	PublisherKey
)

// What a queue keeps in mind of the keys it has seen counts against Settings.WindowBytes.
const (
	// KeyCost is what a key counts for.
	KeyCost = 96
	// PublisherCost and RangeCost are what a publisher counts for, and each range of its sequence numbers.
	PublisherCost = 160
	RangeCost     = 16
	// mostRanges is how many ranges of sequence numbers are kept of a publisher.
	mostRanges = 256
)

// keys is what a queue keeps in mind to find duplicates: the keys of the messages that are in it, or of those that came
// within a time, or how far each publisher has come.
type keys struct {
	// Without a window: of each message in the queue that has one.
	byKey    map[Key]Number
	byNumber map[Number]Key

	// With a window: of those that came in it, whatever has become of them.
	window keyList

	// Of publishers: the first is the one that has been silent for longest.
	publishers    map[Key]*publisher
	silent, heard *publisher
	ranges        int // of all of them
}

// keyed reports whether duplicates of an Enqueue's message are looked for.
func (x *extra) keyed(c *Command) bool {
	return x.set.Deduplicate != NoKey && c.Terms != nil && c.Terms.Key != Key{}
}

// forever reports whether keys are kept for longer than their messages.
func (s *Settings) forever() bool { return s.Window > 0 || s.Deduplicate == PublisherKey }

// rekey begins anew if other keys count from now on. What is under way in transactions has keys of the old kind: by the new one all messages of a
// publisher would be the same.
func (m *Machine) rekey(old *Settings) {
	x := m.extra
	if x.set.Deduplicate == old.Deduplicate && x.set.forever() == old.forever() {
		return
	}
	x.keys = keys{}
	for _, s := range m.sessions {
		for _, t := range s.under {
			blocks := t.blocks
			t.blocks = nil
			for _, p := range blocks {
				p.key, p.seq = Key{}, 0
				t.add(p) // some may be alike now
			}
		}
	}
}

// isRepeated reports whether an Enqueue's message has come before. It is asked before the message is let in.
func (m *Machine) isRepeated(c *Command) bool {
	x, key := m.extra, c.Terms.Key
	switch {
	case x.set.Deduplicate == PublisherKey:
		seq, ok := c.Terms.Sequence.Get()
		p := x.keys.publishers[key]
		return ok && p != nil && p.hides(seq, !c.Persistent) && p.time > x.windowBegin(m.now/millisecond)
	case x.set.Window > 0:
		k := x.keys.window.find(key)
		return k != nil && k.hides(!c.Persistent) && k.time > x.windowBegin(m.now/millisecond)
	}
	n, is := x.keys.byKey[key]
	if !is {
		return false
	}
	if d, mortal, _ := x.deadlines.at(n, n); mortal && int64(d) <= m.now && m.isReady(n) { // it is still there, and has no time left
		x.keys.forget(n, n)
		return false
	}
	return true
}

// keep keeps the key of a message that is let in.
func (m *Machine) keep(c *Command, n Number) {
	x, key := m.extra, c.Terms.Key
	k, now := &x.keys, m.now/millisecond
	if planted.Is(planted.KeyUnkept) && n%4 == 0 || x.windowBegin(now) >= now {
		return
	}
	switch {
	case x.set.Deduplicate == PublisherKey:
		if seq, ok := c.Terms.Sequence.Get(); ok {
			if p := k.publishers[key]; p != nil && p.time <= x.windowBegin(now) {
				k.forgetPublisher(p)
			}
			k.hear(key, now, seq, !c.Persistent)
		}
	case x.set.Window > 0:
		k.window.forget(key) // if it is known, that does not count any more
		k.window.add(seen{key: key, time: now, transient: !c.Persistent})
	default:
		if k.byKey == nil {
			k.byKey, k.byNumber = map[Key]Number{}, map[Number]Key{}
		}
		k.byKey[key], k.byNumber[n] = n, key
	}
	x.boundWindow()
}

// forget forgets the keys of messages that leave.
func (k *keys) forget(first, last Number) {
	if len(k.byNumber) == 0 || planted.Is(planted.KeyStays) {
		return
	}
	drop := func(n Number, key Key) {
		delete(k.byNumber, n)
		delete(k.byKey, key)
	}
	if uint64(last-first) >= uint64(len(k.byNumber)) {
		for n, key := range k.byNumber {
			if n >= first && n <= last {
				drop(n, key)
			}
		}
		return
	}
	for n := first; n <= last; n++ {
		if key, is := k.byNumber[n]; is {
			drop(n, key)
		}
	}
}

// windowBegin is a time in milliseconds: what came until then does not count any more.
func (x *extra) windowBegin(now int64) int64 {
	if ms, ok := x.set.Window.Get(); ok && ms <= uint64(now) {
		return now - int64(ms)
	}
	return -1
}

// keepWindow forgets what is out of the window in time, as much as one entry may.
func (x *extra) keepWindow(now int64) {
	k, begin := &x.keys, x.windowBegin(now)
	left := mostForgotten
	for ; left > 0 && k.window.count > 0 && k.window.oldest().time <= begin; left-- {
		k.window.forgetOldest()
	}
	for ; left > 0 && k.silent != nil && k.silent.time <= begin; left-- {
		k.forgetPublisher(k.silent)
	}
}

// boundWindow forgets what is out of it in bytes.
func (x *extra) boundWindow() {
	k := &x.keys
	for k.window.count > 1 && uint64(k.window.count)*KeyCost > x.set.WindowBytes {
		k.window.forgetOldest()
	}
	for k.silent != nil && k.silent.next != nil && k.publisherBytes() > x.set.WindowBytes {
		k.forgetPublisher(k.silent)
	}
}

// nextOut returns when something will be out of the window, in milliseconds.
func (x *extra) nextOut() (ms int64, ok bool) {
	window, ok := x.set.Window.Get()
	if !ok {
		return 0, false
	}
	k := &x.keys
	switch {
	case k.window.count > 0:
		ms = k.window.oldest().time
	case k.silent != nil:
		ms = k.silent.time
	default:
		return 0, false
	}
	return ms + int64(min(window, endOfTime/millisecond)), true
}

// recoverKeys forgets the keys of messages that a restart has taken: should they come again, they are no duplicates.
func (x *extra) recoverKeys() {
	x.keys.window.recover()
	x.keys.recoverPublishers()
}

// Keys returns how many keys, or publishers, the queue keeps in mind to find duplicates, and for how many bytes that counts.
func (m *Machine) Keys() (n int, bytes uint64) {
	if m.extra == nil {
		return 0, 0
	}
	k := &m.extra.keys
	n = len(k.byKey) + k.window.count
	for _, s := range m.extra.screens {
		n += s.keys.count
	}
	return n + len(k.publishers), uint64(n)*KeyCost + k.publisherBytes()
}

func (e *encoder) keys(k *keys) {
	numbers := make([]Number, 0, len(k.byNumber))
	for n := range k.byNumber {
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	last := Number(0)
	for _, n := range numbers {
		key := k.byNumber[n]
		e.uint(uint64(n - last))
		e.b = append(e.b, key[:]...)
		last = n
	}
}

func (e *encoder) window(l *keyList) {
	time := int64(0)
	l.all(func(s *seen) {
		e.uint(uint64(s.time-time)<<1 | bit(s.transient, 1))
		e.b = append(e.b, s.key[:]...)
		time = s.time
	})
}

// key reads a key, which is not none.
func (d *decoder) key() (key Key) {
	copy(key[:], d.Take(uint64(len(key))))
	if key == (Key{}) {
		d.Fail()
	}
	return key
}

func (m *Machine) restoreKeys(d *decoder) {
	k := &m.rare().keys
	k.byKey, k.byNumber = map[Key]Number{}, map[Number]Key{}
	last := Number(0)
	for len(d.Rest) > 0 && !d.Bad() {
		n, key := last+Number(d.Uint()), d.key()
		if _, is := k.byKey[key]; is || n <= last || !m.gaveOut(run{first: n, last: n}) {
			d.Fail()
			return
		}
		k.byKey[key], k.byNumber[n] = n, key
		last = n
	}
}

func (m *Machine) restoreWindow(d *decoder) {
	l := &m.rare().keys.window
	const least = 17 // bytes of each
	l.places.grow(len(d.Rest) / least)
	time := int64(0)
	for len(d.Rest) > 0 && !d.Bad() {
		x := d.UpTo(endOfTime / millisecond << 1)
		s := seen{key: d.key(), time: time + int64(x>>1), transient: x&1 != 0}
		if l.find(s.key) != nil || s.time > m.now/millisecond {
			d.Fail()
			return
		}
		l.add(s)
		time = s.time
	}
}

// keys checks what is kept in mind to find duplicates. there are the messages that are in the queue and not dead.
func (w *checker) keys(x *extra, there []Numbers) {
	k := &x.keys
	w.that(len(k.byKey) == len(k.byNumber), "%d keys of %d messages", len(k.byKey), len(k.byNumber))
	for n, key := range k.byNumber {
		i := sort.Search(len(there), func(i int) bool { return there[i].Last >= n })
		w.that(k.byKey[key] == n && i < len(there) && there[i].First <= n, "a key of message %v, which is not there", n)
	}
	w.that(len(k.byKey) == 0 || x.set.Deduplicate != NoKey && !x.set.forever(), "keys of messages that nobody asks for")
	w.keyList(&k.window, "window")
	live, last := k.window.count, int64(0)
	w.that(live == 0 || x.set.Deduplicate != NoKey && x.set.Deduplicate != PublisherKey && x.set.Window > 0, "a window that nobody asks for")
	k.window.all(func(s *seen) {
		w.that(s.time >= last && s.end == 0, "a key of the window at %d until %d, after %d", s.time, s.end, last)
		last = s.time
	})
	w.that(live < 2 || uint64(live)*KeyCost <= x.set.WindowBytes, "too many keys: %d", live)
	w.publishers(x)
}
