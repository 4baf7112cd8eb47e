package replica

import (
	"slices"
	"sort"

	"holdfast/internal/seglog"
)

// mergeRanges puts ranges in order and joins those that touch, in place.
func mergeRanges(rs []seglog.Range) []seglog.Range {
	slices.SortFunc(rs, func(a, b seglog.Range) int {
		switch {
		case a.First < b.First:
			return -1
		case a.First > b.First:
			return 1
		}
		return 0
	})
	out := rs[:0]
	for _, r := range rs {
		if n := len(out); n > 0 && r.First <= out[n-1].Last+1 {
			out[n-1].Last = max(out[n-1].Last, r.Last)
			continue
		}
		out = append(out, r)
	}
	return out
}

// subtractRanges is what of a is not in b. Both are in order and do not overlap.
func subtractRanges(a, b []seglog.Range) (out []seglog.Range) {
	for _, r := range a {
		for len(b) > 0 && b[0].Last < r.First {
			b = b[1:]
		}
		for _, x := range b {
			if x.First > r.Last || r.First > r.Last {
				break
			}
			if x.First > r.First {
				out = append(out, seglog.Range{First: r.First, Last: x.First - 1})
			}
			r.First = max(r.First, x.Last+1)
		}
		if r.First <= r.Last {
			out = append(out, r)
		}
	}
	return out
}

// overlaps says whether one of the ranges, which are in order, has an id of r.
func overlaps(rs []seglog.Range, r seglog.Range) bool {
	i := sort.Search(len(rs), func(i int) bool { return rs[i].Last >= r.First })
	return i < len(rs) && rs[i].First <= r.Last
}

// rangeOf is the ids of a block.
func rangeOf(b seglog.Block) seglog.Range {
	return seglog.Range{First: b.First, Last: b.First + uint64(len(b.Items)) - 1}
}

// without is what of a block is not in ranges, which are in order.
func without(b seglog.Block, ranges []seglog.Range) (out []seglog.Block) {
	whole := rangeOf(b)
	if !overlaps(ranges, whole) {
		return []seglog.Block{b}
	}
	for _, r := range subtractRanges([]seglog.Range{whole}, ranges) {
		out = append(out, seglog.Block{First: r.First, Items: b.Items[r.First-b.First : r.Last-b.First+1]})
	}
	return out
}
