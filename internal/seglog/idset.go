package seglog

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"sort"

	"holdfast/internal/invariant"
)

// idset is a set of ids, filled in ascending order and emptied in any. Ids that follow each other cost one span however many
// they are; where a set gets holes, aligned blocks of 4096 ids become bitmaps, so that it never costs much more than a bit
// per id.
type idset struct {
	spans []span
	n     uint64
}

// span is the ids first..last, or those of them whose bit is set: then both lie in one aligned block, and bits outside
// first..last are clear.
type span struct {
	first, last uint64
	bits        *[blockIDs / 64]uint64
	n           uint32 // set bits; 0 without bits
}

const (
	blockIDs = 4096
	// fewSpans is how fragmented a set may be before bitmaps pay.
	fewSpans = 16
)

func (s *span) count() uint64 {
	if s.bits == nil {
		return s.last - s.first + 1
	}
	return uint64(s.n)
}

func (s *span) has(id uint64) bool {
	if id < s.first || id > s.last {
		return false
	}
	return s.bits == nil || s.bits[id%blockIDs/64]&(1<<(id%64)) != 0
}

// setBits sets the bits of first..last, which lie in the span's block and are clear.
func (s *span) setBits(first, last uint64) {
	for id := first; ; {
		w := id % blockIDs / 64
		end := min(last, id|63)
		s.bits[w] |= (^uint64(0) >> (63 - (end - id))) << (id % 64)
		if end == last {
			break
		}
		id = end + 1
	}
	s.n += uint32(last - first + 1)
}

// clearBits clears the bits of first..last and returns how many were set.
func (s *span) clearBits(first, last uint64) uint64 {
	removed := 0
	for id := first; ; {
		w := id % blockIDs / 64
		end := min(last, id|63)
		mask := (^uint64(0) >> (63 - (end - id))) << (id % 64)
		removed += bits.OnesCount64(s.bits[w] & mask)
		s.bits[w] &^= mask
		if end == last {
			break
		}
		id = end + 1
	}
	s.n -= uint32(removed)
	return uint64(removed)
}

// locate is the index of the first span that ends at or after id.
func (s *idset) locate(id uint64) int {
	if len(s.spans) > 0 && s.spans[0].last >= id { // the usual case: the oldest goes first
		return 0
	}
	return sort.Search(len(s.spans), func(i int) bool { return s.spans[i].last >= id })
}

// contains tells whether id is in the set.
func (s *idset) contains(id uint64) bool {
	i := s.locate(id)
	return i < len(s.spans) && s.spans[i].has(id)
}

// dense is how many of first..last follow each other from first on, which is in the set.
func (s *idset) dense(first, last uint64) uint64 {
	sp := &s.spans[s.locate(first)]
	last = min(last, sp.last)
	if sp.bits == nil {
		return last - first + 1
	}
	id := first
	for id <= last && sp.has(id) {
		id++
	}
	return id - first
}

// add puts first..last, which lie above all ids ever added, into the set.
func (s *idset) add(first, last uint64) {
	s.n += last - first + 1
	if len(s.spans) == 0 {
		s.spans = append(s.spans, span{first: first, last: last})
		return
	}
	top := &s.spans[len(s.spans)-1]
	if top.last >= first {
		invariant.Failf("id %d added after %d", first, top.last)
	}
	if top.bits == nil && top.last+1 == first {
		top.last = last
		return
	}
	if top.bits != nil && top.first/blockIDs == first/blockIDs {
		end := min(last, first|(blockIDs-1))
		top.setBits(first, end)
		top.last = end
		if end == last {
			return
		}
		first = end + 1
	}
	s.spans = append(s.spans, span{first: first, last: last})
	s.packTop()
}

// packTop turns the spans of the highest block into a bitmap once there are several of them.
func (s *idset) packTop() {
	const several = 4
	if len(s.spans) < fewSpans {
		return
	}
	block := s.spans[len(s.spans)-1].first / blockIDs
	i := len(s.spans)
	for i > 0 && s.spans[i-1].bits == nil && s.spans[i-1].first/blockIDs == block && s.spans[i-1].last/blockIDs == block {
		i--
	}
	if len(s.spans)-i < several {
		return
	}
	b := span{first: s.spans[i].first, last: s.spans[len(s.spans)-1].last, bits: new([blockIDs / 64]uint64)}
	for _, sp := range s.spans[i:] {
		b.setBits(sp.first, sp.last)
	}
	s.spans = append(s.spans[:i], b)
}

// remove takes first..last out and returns how many of them were in.
func (s *idset) remove(first, last uint64) uint64 {
	i := s.locate(first)
	var removed uint64
	for i < len(s.spans) && s.spans[i].first <= last {
		sp := &s.spans[i]
		lo, hi := max(first, sp.first), min(last, sp.last)
		switch {
		case sp.bits != nil:
			removed += sp.clearBits(lo, hi)
			if sp.n == 0 {
				s.drop(i)
			} else {
				i++
			}
		case lo == sp.first && hi == sp.last:
			removed += sp.count()
			s.drop(i)
		case lo == sp.first:
			removed += hi - lo + 1
			sp.first = hi + 1
			i++
		case hi == sp.last:
			removed += hi - lo + 1
			sp.last = lo - 1
			i++
		case len(s.spans) >= fewSpans && lo/blockIDs == hi/blockIDs:
			s.toBits(i, lo/blockIDs) // the hole is cut by the next turn, in the bitmap
			if s.spans[i].last < lo {
				i++
			}
		default:
			removed += hi - lo + 1
			s.insert(i+1, span{first: hi + 1, last: sp.last})
			s.spans[i].last = lo - 1
			i++
		}
	}
	s.n -= removed
	return removed
}

// toBits makes the part of solid span i that lies in the block a bitmap of its own.
func (s *idset) toBits(i int, block uint64) {
	sp := s.spans[i]
	lo, hi := max(sp.first, block*blockIDs), min(sp.last, block*blockIDs+blockIDs-1)
	b := span{first: lo, last: hi, bits: new([blockIDs / 64]uint64)}
	b.setBits(lo, hi)
	s.spans[i] = b
	if sp.last > hi {
		s.insert(i+1, span{first: hi + 1, last: sp.last})
	}
	if sp.first < lo {
		s.insert(i, span{first: sp.first, last: lo - 1})
	}
}

func (s *idset) insert(i int, sp span) {
	s.spans = append(s.spans, span{})
	copy(s.spans[i+1:], s.spans[i:])
	s.spans[i] = sp
}

func (s *idset) drop(i int) {
	if i == 0 && len(s.spans) > 1 {
		s.spans[0] = span{} // for the collector
		s.spans = s.spans[1:]
		return
	}
	copy(s.spans[i:], s.spans[i+1:])
	s.spans[len(s.spans)-1] = span{}
	s.spans = s.spans[:len(s.spans)-1]
}

// each calls fn for the ids of the set as ascending ranges, adjacent ones not always joined.
func (s *idset) each(fn func(first, last uint64)) {
	for i := range s.spans {
		sp := &s.spans[i]
		if sp.bits == nil {
			fn(sp.first, sp.last)
			continue
		}
		base := sp.first &^ (blockIDs - 1)
		for w, word := range sp.bits {
			for word != 0 {
				lo := bits.TrailingZeros64(word)
				n := bits.TrailingZeros64(^(word >> lo))
				first := base + uint64(w*64+lo)
				fn(first, first+uint64(n)-1)
				if lo+n >= 64 {
					break
				}
				word &^= (1<<n - 1) << lo
			}
		}
	}
}

// eachIn calls fn for the ids of the set within first..last.
func (s *idset) eachIn(first, last uint64, fn func(first, last uint64)) {
	for i := s.locate(first); i < len(s.spans) && s.spans[i].first <= last; i++ {
		one := idset{spans: s.spans[i : i+1]}
		one.each(func(lo, hi uint64) {
			if lo, hi = max(lo, first), min(hi, last); lo <= hi {
				fn(lo, hi)
			}
		})
	}
}

// intersect keeps only ids in the ranges, which are ascending and do not overlap.
func (s *idset) intersect(ranges []Range) {
	next := uint64(0) // the lowest id not yet decided
	for i := sort.Search(len(ranges), func(i int) bool { return len(s.spans) > 0 && ranges[i].Last >= s.spans[0].first }); i < len(ranges); i++ {
		if len(s.spans) == 0 || next > s.spans[len(s.spans)-1].last {
			return
		}
		if r := ranges[i]; r.First > next {
			s.remove(next, r.First-1)
		}
		if ranges[i].Last == ^uint64(0) {
			return
		}
		next = ranges[i].Last + 1
	}
	s.remove(next, ^uint64(0))
}

// append encodes the set.
func (s *idset) append(buf []byte) []byte {
	buf = binary.AppendUvarint(buf, uint64(len(s.spans)))
	at := uint64(0)
	for i := range s.spans {
		sp := &s.spans[i]
		kind := uint64(0)
		if sp.bits != nil {
			kind = 1
		}
		buf = binary.AppendUvarint(buf, sp.first-at)
		buf = binary.AppendUvarint(buf, (sp.last-sp.first)<<1|kind)
		at = sp.last
		if sp.bits != nil {
			for w := sp.first % blockIDs / 64; w <= sp.last%blockIDs/64; w++ {
				buf = le.AppendUint64(buf, sp.bits[w])
			}
		}
	}
	return buf
}

// parseIDSet decodes a set and returns what follows.
func parseIDSet(p []byte) (s idset, rest []byte, err error) {
	bad := errors.New("id set: damaged")
	count, p, ok := uvarint(p)
	if !ok || count > uint64(len(p)) {
		return s, nil, bad
	}
	s.spans = make([]span, 0, count)
	at, started := uint64(0), false
	for range count {
		delta, q, ok1 := uvarint(p)
		length, q, ok2 := uvarint(q)
		sp := span{first: at + delta}
		sp.last = sp.first + length>>1
		if !ok1 || !ok2 || sp.first < at || sp.last < sp.first || started && delta == 0 {
			return s, nil, bad
		}
		if length&1 != 0 {
			lo, hi := sp.first%blockIDs/64, sp.last%blockIDs/64
			if sp.first/blockIDs != sp.last/blockIDs || uint64(len(q)) < (hi-lo+1)*8 {
				return s, nil, bad
			}
			sp.bits = new([blockIDs / 64]uint64)
			for w := lo; w <= hi; w, q = w+1, q[8:] {
				sp.bits[w] = le.Uint64(q)
				sp.n += uint32(bits.OnesCount64(sp.bits[w]))
			}
			below := sp.bits[lo] & (1<<(sp.first%64) - 1)
			above := sp.bits[hi] & ^(^uint64(0) >> (63 - sp.last%64))
			if below != 0 || above != 0 || sp.n == 0 {
				return s, nil, bad
			}
		}
		s.spans = append(s.spans, sp)
		s.n += sp.count()
		at, started, p = sp.last, true, q
	}
	return s, p, nil
}

// uvarint reads a number and returns what follows.
func uvarint(p []byte) (uint64, []byte, bool) {
	v, n := binary.Uvarint(p)
	if n <= 0 {
		return 0, nil, false
	}
	return v, p[n:], true
}
