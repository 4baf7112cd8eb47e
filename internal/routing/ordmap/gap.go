package ordmap

import "slices"

// DeleteRange returns the map without the keys from first on and before end. It looks at the two edges of what goes and at nothing
// in between.
func (m Map[K, V]) DeleteRange(e *Edit, first, end K) Map[K, V] {
	if first >= end || m.Rank(first) == m.Rank(end) {
		return m
	}
	if e == nil {
		e = new(Edit)
	}
	n := m.root.cutOut(e, first, end)
	if n == nil {
		return Map[K, V]{}
	}
	n = n.only()
	n.mend(e, first)
	return Map[K, V]{n.only()}
}

// only returns n, or what it has instead of several kids.
func (n *node[K, V]) only() *node[K, V] {
	for len(n.kids) == 1 {
		n = n.kids[0]
	}
	return n
}

// cutOut returns n without the keys from first on and before end, nil if none are left. On both edges of the gap it may leave nodes with
// too few items.
func (n *node[K, V]) cutOut(e *Edit, first, end K) *node[K, V] {
	if n.kids == nil {
		i, j := n.lower(first), n.lower(end)
		switch {
		case i == j:
			return n
		case j-i == len(n.keys):
			return nil
		}
		n = n.own(e)
		n.keys = slices.Delete(n.keys, i, j)
		n.vals = slices.Delete(n.vals, i, j)
		n.size -= j - i
		return n
	}
	i, j := n.child(first), n.child(end)
	n = n.own(e)
	at := i
	keep := func(kid *node[K, V], bound K) {
		if kid != nil {
			n.kids[at], n.keys[at] = kid, bound
			at++
		}
	}
	left, last := n.kids[i], n.kids[j]
	keep(left.cutOut(e, first, end), n.keys[i])
	if i < j {
		keep(last.cutOut(e, first, end), n.keys[j])
	}
	n.kids = slices.Delete(n.kids, at, j+1)
	n.keys = slices.Delete(n.keys, at, j+1)
	n.size = 0
	for _, kid := range n.kids {
		n.size += kid.size
	}
	if len(n.kids) == 0 {
		return nil
	}
	return n
}

// mend sees to it that the nodes below n at the edges of a gap have enough items again. n has at least two kids, if any, or is the only
// kid of a node like that. It is changed in place, as all nodes are that the gap has edges in.
func (n *node[K, V]) mend(e *Edit, gap K) {
	if n.kids == nil || n.owner != e {
		return
	}
	first, last := n.even(e, gap)
	for i := first; i <= last; i++ {
		n.kids[i].mend(e, gap)
	}
	n.even(e, gap)
}

// even joins the kids at the edges of a gap with their neighbours as long as they have too few items, and says which those at the
// edges are.
func (n *node[K, V]) even(e *Edit, gap K) (first, last int) {
	for {
		c := n.child(gap)
		first, last = c, min(c+1, len(n.kids)-1)
		small := first
		for small <= last && len(n.kids[small].keys) >= minItems {
			small++
		}
		if small > last || len(n.kids) == 1 {
			return first, last
		}
		n.balance(e, min(small, len(n.kids)-2))
	}
}
