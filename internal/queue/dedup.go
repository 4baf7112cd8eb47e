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

	// With a window: of those that came in it, whatever has become of them, the oldest first.
	window []seen
	head   int
	within map[Key]struct{}

	// Of publishers: the first is the one that has been silent for longest.
	publishers    map[Key]*publisher
	silent, heard *publisher
	ranges        int // of all of them
}

// seen is a key and when it came.
type seen struct {
	key       Key
	time      int64 // ms
	transient bool  // its message does not outlive a restart
}

// publisher is what was accepted of one: all below a sequence number, and ranges above it that do not touch.
type publisher struct {
	key        Key
	time       int64 // ms, of the last publish
	below      uint64
	ranges     []Range
	prev, next *publisher
}

// keyed reports whether duplicates of an Enqueue's message are looked for.
func (x *extra) keyed(c *Command) bool {
	return x.set.Deduplicate != NoKey && c.Terms != nil && c.Terms.Key != Key{}
}

// forever reports whether keys are kept for longer than their messages.
func (s *Settings) forever() bool { return s.Window > 0 || s.Deduplicate == PublisherKey }

// rekey begins anew if other keys count from now on.
func (x *extra) rekey(old *Settings) {
	if x.set.Deduplicate != old.Deduplicate || x.set.forever() != old.forever() {
		x.keys = keys{}
	}
}

// isRepeated reports whether an Enqueue's message has come before. It is asked before the message is let in.
func (m *Machine) isRepeated(c *Command) bool {
	x, key := m.extra, c.Terms.Key
	switch {
	case x.set.Deduplicate == PublisherKey:
		seq, ok := c.Terms.Sequence.Get()
		p := x.keys.publishers[key]
		return ok && p != nil && p.has(seq)
	case x.set.Window > 0:
		_, is := x.keys.within[key]
		return is
	}
	n, is := x.keys.byKey[key]
	if !is {
		return false
	}
	if d, mortal, _ := x.deadlines.at(n, n); mortal && int64(d) <= m.now { // it is still there, and has no time left
		x.keys.forget(n, n)
		return false
	}
	return true
}

// keep keeps the key of a message that is let in.
func (m *Machine) keep(c *Command, n Number) {
	x, key := m.extra, c.Terms.Key
	k, now := &x.keys, m.now/millisecond
	if planted.Is(planted.KeyUnkept) && n%4 == 0 {
		return
	}
	switch {
	case x.set.Deduplicate == PublisherKey:
		if seq, ok := c.Terms.Sequence.Get(); ok {
			k.hear(key, now, seq)
		}
	case x.set.Window > 0:
		if k.within == nil {
			k.within = map[Key]struct{}{}
		}
		k.within[key] = struct{}{}
		k.window = append(k.window, seen{key, now, !c.Persistent})
	default:
		if k.byKey == nil {
			k.byKey, k.byNumber = map[Key]Number{}, map[Number]Key{}
		}
		k.byKey[key], k.byNumber[n] = n, key
	}
	x.keepWindow(now)
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

// keepWindow forgets what is out of the window, in time or in bytes.
func (x *extra) keepWindow(now int64) {
	k := &x.keys
	after := int64(-1)
	if ms, ok := x.set.Window.Get(); ok && ms <= uint64(now) {
		after = now - int64(ms)
	}
	for live := k.window[k.head:]; len(live) > 0 && (live[0].time <= after || uint64(len(live))*KeyCost > x.set.WindowBytes && len(live) > 1); live = k.window[k.head:] {
		delete(k.within, live[0].key)
		k.head++
	}
	if k.head > len(k.window)/2 {
		k.window = slices.Clone(k.window[k.head:])
		k.head = 0
	}
	for p := k.silent; p != nil && (p.time <= after || k.publisherBytes() > x.set.WindowBytes && p.next != nil); p = k.silent {
		k.unlink(p)
		delete(k.publishers, p.key)
		k.ranges -= len(p.ranges)
	}
}

func (k *keys) publisherBytes() uint64 {
	return uint64(len(k.publishers))*PublisherCost + uint64(k.ranges)*RangeCost
}

// hear notes a publish of a publisher.
func (k *keys) hear(key Key, now int64, seq uint64) {
	p := k.publishers[key]
	if p == nil {
		if k.publishers == nil {
			k.publishers = map[Key]*publisher{}
		}
		p = &publisher{key: key}
		k.publishers[key] = p
	} else {
		k.unlink(p)
	}
	p.time = now
	k.link(p)
	k.ranges -= len(p.ranges)
	p.add(seq)
	k.ranges += len(p.ranges)
}

func (k *keys) link(p *publisher) {
	p.prev, p.next = k.heard, nil
	if k.heard != nil {
		k.heard.next = p
	} else {
		k.silent = p
	}
	k.heard = p
}

func (k *keys) unlink(p *publisher) {
	if p.prev != nil {
		p.prev.next = p.next
	} else {
		k.silent = p.next
	}
	if p.next != nil {
		p.next.prev = p.prev
	} else {
		k.heard = p.prev
	}
}

// find returns the place of the first range that ends at seq or above.
func (p *publisher) find(seq uint64) int {
	return sort.Search(len(p.ranges), func(i int) bool { return p.ranges[i].Last >= seq })
}

func (p *publisher) has(seq uint64) bool {
	if seq < p.below {
		return true
	}
	i := p.find(seq)
	return i < len(p.ranges) && p.ranges[i].First <= seq
}

// add notes a sequence number that was not accepted before. Of too many ranges the lowest is given up: all up
// to it counts as accepted.
func (p *publisher) add(seq uint64) {
	i := p.find(seq)
	before := i > 0 && p.ranges[i-1].Last+1 == seq
	behind := i < len(p.ranges) && p.ranges[i].First == seq+1
	switch {
	case before && behind:
		p.ranges[i-1].Last = p.ranges[i].Last
		p.ranges = slices.Delete(p.ranges, i, i+1)
	case before:
		p.ranges[i-1].Last = seq
	case behind:
		p.ranges[i].First = seq
	default:
		p.ranges = slices.Insert(p.ranges, i, Range{seq, seq})
	}
	for len(p.ranges) > 0 && (p.ranges[0].First <= p.below || planted.Is(planted.NumbersSkipped) || len(p.ranges) > mostRanges) {
		p.below = p.ranges[0].Last + 1
		p.ranges = slices.Delete(p.ranges, 0, 1)
	}
}

// recoverKeys forgets the keys of messages that a restart has taken: should they come again, they are no duplicates.
func (x *extra) recoverKeys() {
	k := &x.keys
	live := k.window[k.head:]
	if !slices.ContainsFunc(live, func(s seen) bool { return s.transient }) {
		return
	}
	var kept []seen
	for _, s := range live {
		if s.transient {
			delete(k.within, s.key)
		} else {
			kept = append(kept, s)
		}
	}
	k.window, k.head = kept, 0
}

// Keys returns how many keys, or publishers, the queue keeps in mind to find duplicates, and for how many bytes that counts.
func (m *Machine) Keys() (n int, bytes uint64) {
	if m.extra == nil {
		return 0, 0
	}
	k := &m.extra.keys
	n = len(k.byKey) + len(k.within)
	for _, s := range m.extra.screens {
		n += len(s.places)
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

func (e *encoder) window(k *keys) {
	time := int64(0)
	for _, s := range k.window[k.head:] {
		e.uint(uint64(s.time-time)<<1 | bit(s.transient, 1))
		e.b = append(e.b, s.key[:]...)
		time = s.time
	}
}

func (e *encoder) publishers(k *keys) {
	time := int64(0)
	for p := k.silent; p != nil; p = p.next {
		e.uint(uint64(p.time - time))
		e.b = append(e.b, p.key[:]...)
		e.uint(p.below)
		e.refused(p.ranges)
		time = p.time
	}
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
	k := &m.rare().keys
	k.within = map[Key]struct{}{}
	time := int64(0)
	for len(d.Rest) > 0 && !d.Bad() {
		x := d.UpTo(endOfTime / millisecond << 1)
		s := seen{key: d.key(), time: time + int64(x>>1), transient: x&1 != 0}
		if _, is := k.within[s.key]; is || s.time > m.now/millisecond {
			d.Fail()
			return
		}
		k.within[s.key] = struct{}{}
		k.window = append(k.window, s)
		time = s.time
	}
}

func (m *Machine) restorePublishers(d *decoder) {
	k := &m.rare().keys
	k.publishers = map[Key]*publisher{}
	time := int64(0)
	for len(d.Rest) > 0 && !d.Bad() {
		p := &publisher{time: time + int64(d.UpTo(endOfTime/millisecond)), key: d.key(), below: d.Uint()}
		p.ranges = d.sequences()
		if k.publishers[p.key] != nil || p.time > m.now/millisecond {
			d.Fail()
			return
		}
		k.publishers[p.key] = p
		k.link(p)
		k.ranges += len(p.ranges)
		time = p.time
	}
}

// sequences reads ranges as encoder.refused writes them; the first may begin with 0.
func (d *decoder) sequences() []Range {
	var rs []Range
	for n := d.UpTo(mostRanges); n > 0 && !d.Bad(); n-- {
		last := uint64(0)
		if k := len(rs); k > 0 {
			last = rs[k-1].Last
		}
		r := Range{First: last + d.Uint()}
		more := d.Uint() - 1
		r.Last = r.First + more
		if r.First < last || r.Last < r.First || len(rs) > 0 && r.First < last+2 {
			d.Fail()
			return nil
		}
		rs = append(rs, r)
	}
	return rs
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
	live := k.window[k.head:]
	w.that(len(live) == len(k.within), "%d keys in the window, %d counted", len(live), len(k.within))
	w.that(len(live) == 0 || x.set.Deduplicate != NoKey && x.set.Deduplicate != PublisherKey && x.set.Window > 0, "a window that nobody asks for")
	for i := range live {
		_, is := k.within[live[i].key]
		w.that(is && (i == 0 || live[i-1].time <= live[i].time), "key %d of the window is out of order", i)
	}
	w.that(len(live) < 2 || uint64(len(live))*KeyCost <= x.set.WindowBytes, "too many keys: %d", len(live))
	n, ranges := 0, 0
	var prev *publisher
	for p := k.silent; p != nil; p = p.next {
		w.that(p.prev == prev && k.publishers[p.key] == p && (prev == nil || prev.time <= p.time), "publisher %d is out of order", n)
		for i, r := range p.ranges {
			w.that(r.First <= r.Last && r.First > p.below && (i == 0 || p.ranges[i-1].Last+1 < r.First), "publisher %d: range %v, all below %d", n, r, p.below)
		}
		w.that(len(p.ranges) <= mostRanges && p.below+uint64(len(p.ranges)) > 0, "publisher %d: %d ranges", n, len(p.ranges))
		n++
		ranges += len(p.ranges)
		prev = p
	}
	w.that(prev == k.heard && n == len(k.publishers) && ranges == k.ranges, "%d publishers with %d ranges, %d and %d counted", n, ranges, len(k.publishers), k.ranges)
	w.that(n == 0 || x.set.Deduplicate == PublisherKey, "publishers that nobody asks for")
	w.that(n < 2 || k.publisherBytes() <= x.set.WindowBytes, "too many publishers: %d", n)
}
