package queue

import (
	"slices"
	"sort"

	"holdfast/internal/planted"
)

// publisher is what was accepted of one: all below a sequence number, and ranges above it that do not touch.
type publisher struct {
	key        Key
	time       int64 // ms, of the last publish
	below      uint64
	ranges     []Range
	passing    []Range // those of all of these whose messages do not outlive a restart
	prev, next *publisher
}

// size is how many ranges there are.
func (p *publisher) size() int { return len(p.ranges) + len(p.passing) }

func (k *keys) publisherBytes() uint64 {
	return uint64(len(k.publishers))*PublisherCost + uint64(k.ranges)*RangeCost
}

// hear notes a publish of a publisher.
func (k *keys) hear(key Key, now int64, seq uint64, transient bool) {
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
	k.ranges -= p.size()
	p.add(seq, transient)
	k.ranges += p.size()
}

// forgetPublisher forgets what was accepted of a publisher.
func (k *keys) forgetPublisher(p *publisher) {
	k.unlink(p)
	delete(k.publishers, p.key)
	k.ranges -= p.size()
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

// rangeAt returns the place of the first range that ends at seq or above, and whether seq is in it.
func rangeAt(rs []Range, seq uint64) (i int, is bool) {
	i = sort.Search(len(rs), func(i int) bool { return rs[i].Last >= seq })
	return i, i < len(rs) && rs[i].First <= seq
}

// withNumber adds a number that is not there to ranges that do not touch.
func withNumber(rs []Range, seq uint64) []Range {
	i, _ := rangeAt(rs, seq)
	before := i > 0 && rs[i-1].Last+1 == seq
	behind := i < len(rs) && rs[i].First == seq+1
	switch {
	case before && behind:
		rs[i-1].Last = rs[i].Last
		return slices.Delete(rs, i, i+1)
	case before:
		rs[i-1].Last = seq
	case behind:
		rs[i].First = seq
	default:
		return slices.Insert(rs, i, Range{seq, seq})
	}
	return rs
}

// withoutRange takes the numbers of a range out, all of which are there.
func withoutRange(rs []Range, r Range) []Range {
	i, _ := rangeAt(rs, r.First)
	old := rs[i]
	switch {
	case old == r:
		return slices.Delete(rs, i, i+1)
	case old.First == r.First:
		rs[i].First = r.Last + 1
	case old.Last == r.Last:
		rs[i].Last = r.First - 1
	default:
		rs[i].Last = r.First - 1
		return slices.Insert(rs, i+1, Range{r.Last + 1, old.Last})
	}
	return rs
}

// has reports whether a sequence number counts as accepted.
func (p *publisher) has(seq uint64) bool {
	if seq < p.below {
		return true
	}
	_, is := rangeAt(p.ranges, seq)
	return is
}

// hides reports whether a publish is a duplicate. One that is to survive a restart is none of one that does not.
func (p *publisher) hides(seq uint64, transient bool) bool {
	if !p.has(seq) || transient {
		return p.has(seq)
	}
	_, is := rangeAt(p.passing, seq)
	return !is
}

// add notes a sequence number that was not accepted before, or only with a message that does not outlive a restart.
func (p *publisher) add(seq uint64, transient bool) {
	if !p.has(seq) {
		p.ranges = withNumber(p.ranges, seq)
		p.settle()
	} else if _, is := rangeAt(p.passing, seq); is {
		p.passing = withoutRange(p.passing, Range{seq, seq})
	}
	if transient {
		p.passing = withNumber(p.passing, seq)
	}
	// What is too much counts as one that survives.
	p.passing = slices.Delete(p.passing, 0, max(len(p.passing)-mostRanges, 0))
}

// settle brings the ranges that have no gap below them into one number. Of too many the lowest is given up: all up to it counts as accepted.
func (p *publisher) settle() {
	for len(p.ranges) > 0 && (p.ranges[0].First <= p.below || planted.Is(planted.NumbersSkipped) || len(p.ranges) > mostRanges) {
		p.below = p.ranges[0].Last + 1
		p.ranges = slices.Delete(p.ranges, 0, 1)
	}
}

// recoverPublishers forgets the sequence numbers of messages that a restart has taken.
func (k *keys) recoverPublishers() {
	for p := k.silent; p != nil; p = p.next {
		if len(p.passing) == 0 {
			continue
		}
		k.ranges -= p.size()
		if p.below > 0 {
			p.ranges = slices.Insert(p.ranges, 0, Range{0, p.below - 1})
		}
		for _, r := range p.passing {
			p.ranges = withoutRange(p.ranges, r)
		}
		p.below, p.passing = 0, nil
		p.settle()
		if k.ranges += p.size(); p.below == 0 && len(p.ranges) == 0 {
			k.forgetPublisher(p)
		}
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

// passing writes which numbers of publishers do not outlive a restart.
func (e *encoder) passing(k *keys) {
	for p := k.silent; p != nil; p = p.next {
		if len(p.passing) > 0 {
			e.b = append(e.b, p.key[:]...)
			e.refused(p.passing)
		}
	}
}

func (m *Machine) restorePassing(d *decoder) {
	k := &m.rare().keys
	p := k.publishers[d.key()]
	if p == nil || len(p.passing) > 0 {
		d.Fail()
		return
	}
	if p.passing = d.sequences(); len(p.passing) == 0 {
		d.Fail()
	}
	k.ranges += len(p.passing)
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

// publishers checks what is kept of them.
func (w *checker) publishers(x *extra) {
	k := &x.keys
	n, ranges := 0, 0
	var prev *publisher
	for p := k.silent; p != nil; p = p.next {
		w.that(p.prev == prev && k.publishers[p.key] == p && (prev == nil || prev.time <= p.time), "publisher %d is out of order", n)
		for i, r := range p.ranges {
			w.that(r.First <= r.Last && r.First > p.below && (i == 0 || p.ranges[i-1].Last+1 < r.First), "publisher %d: range %v, all below %d", n, r, p.below)
		}
		w.that(len(p.ranges) <= mostRanges && p.below+uint64(len(p.ranges)) > 0, "publisher %d: %d ranges", n, len(p.ranges))
		for i, r := range p.passing {
			at, is := rangeAt(p.ranges, r.First)
			w.that(r.First <= r.Last && (i == 0 || p.passing[i-1].Last+1 < r.First) && (r.Last < p.below || is && r.Last <= p.ranges[at].Last), "publisher %d: range %v of transient messages", n, r)
		}
		w.that(len(p.passing) <= mostRanges, "publisher %d: %d ranges of transient messages", n, len(p.passing))
		n++
		ranges += p.size()
		prev = p
	}
	w.that(prev == k.heard && n == len(k.publishers) && ranges == k.ranges, "%d publishers with %d ranges, %d and %d counted", n, ranges, len(k.publishers), k.ranges)
	w.that(n == 0 || x.set.Deduplicate == PublisherKey, "publishers that nobody asks for")
	w.that(n < 2 || k.publisherBytes() <= x.set.WindowBytes, "too many publishers: %d", n)
}
