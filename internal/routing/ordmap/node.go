package ordmap

import (
	"cmp"
	"slices"
)

const (
	maxItems = 32
	minItems = maxItems / 4
)

// node is a leaf (vals) or an inner node (kids). Leaves hold all keys. In an inner node keys[i] bounds kids[i] from below:
// every key under kids[i-1] is less, every key under kids[i] is not; keys[0] is never looked at.
//
// Every node but the root has at least minItems items.
type node[K cmp.Ordered, V any] struct {
	owner *Edit // who may change it in place; nil: nobody
	keys  []K
	vals  []V
	kids  []*node[K, V]
	size  int // keys in all leaves below
}

// lower returns the index of the first key of a leaf that is not less than key.
func (n *node[K, V]) lower(key K) int {
	lo, hi := 0, len(n.keys)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if n.keys[mid] < key {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// child returns the index of the kid that key belongs to.
func (n *node[K, V]) child(key K) int {
	lo, hi := 1, len(n.keys)
	for lo < hi {
		mid := int(uint(lo+hi) >> 1)
		if key < n.keys[mid] {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo - 1
}

// own returns n itself if e may change it, a copy with room for one more item otherwise.
func (n *node[K, V]) own(e *Edit) *node[K, V] {
	if e != nil && n.owner == e {
		return n
	}
	c := &node[K, V]{owner: e, size: n.size}
	c.keys = append(make([]K, 0, len(n.keys)+1), n.keys...)
	if n.kids != nil {
		c.kids = append(make([]*node[K, V], 0, len(n.kids)+1), n.kids...)
	} else {
		c.vals = append(make([]V, 0, len(n.vals)+1), n.vals...)
	}
	return c
}

// set returns n with key set, and, if n became too big, its right half with the bound between the two.
func (n *node[K, V]) set(e *Edit, key K, v V) (left, right *node[K, V], bound K, added bool) {
	if n.kids == nil {
		i := n.lower(key)
		added = i == len(n.keys) || n.keys[i] != key
		n = n.own(e)
		if !added {
			n.vals[i] = v
			return n, nil, bound, false
		}
		n.keys = slices.Insert(n.keys, i, key)
		n.vals = slices.Insert(n.vals, i, v)
	} else {
		i := n.child(key)
		var kid, split *node[K, V]
		kid, split, bound, added = n.kids[i].set(e, key, v)
		n = n.own(e)
		n.kids[i] = kid
		if split != nil {
			n.keys = slices.Insert(n.keys, i+1, bound)
			n.kids = slices.Insert(n.kids, i+1, split)
		}
	}
	if added {
		n.size++
	}
	if len(n.keys) <= maxItems {
		return n, nil, bound, added
	}
	right = n.cut(e, len(n.keys)/2)
	return n, right, right.keys[0], added
}

// cut takes the items from the i-th on away from n, which e may change, and returns them as a node.
func (n *node[K, V]) cut(e *Edit, i int) *node[K, V] {
	right := &node[K, V]{owner: e, keys: slices.Clone(n.keys[i:])}
	clear(n.keys[i:])
	n.keys = n.keys[:i]
	if n.kids != nil {
		right.kids = slices.Clone(n.kids[i:])
		clear(n.kids[i:])
		n.kids = n.kids[:i]
		for _, kid := range right.kids {
			right.size += kid.size
		}
	} else {
		right.vals = slices.Clone(n.vals[i:])
		clear(n.vals[i:])
		n.vals = n.vals[:i]
		right.size = len(right.keys)
	}
	n.size -= right.size
	return right
}

// delete returns n without key, which is there.
func (n *node[K, V]) delete(e *Edit, key K) *node[K, V] {
	if n.kids == nil {
		i := n.lower(key)
		n = n.own(e)
		n.keys = slices.Delete(n.keys, i, i+1)
		n.vals = slices.Delete(n.vals, i, i+1)
		n.size--
		return n
	}
	i := n.child(key)
	kid := n.kids[i].delete(e, key)
	n = n.own(e)
	n.kids[i] = kid
	n.size--
	if len(kid.keys) < minItems && len(n.kids) > 1 {
		n.balance(e, min(i, len(n.kids)-2))
	}
	return n
}

// balance joins the kids i and i+1 of n, which e may change, and halves the result if it is too big.
func (n *node[K, V]) balance(e *Edit, i int) {
	left, right := n.kids[i].own(e), n.kids[i+1]
	at := len(left.keys)
	left.keys = append(left.keys, right.keys...)
	left.size += right.size
	if left.kids != nil {
		left.kids = append(left.kids, right.kids...)
		left.keys[at] = n.keys[i+1]
	} else {
		left.vals = append(left.vals, right.vals...)
	}
	n.kids[i] = left
	if len(left.keys) <= maxItems {
		n.keys = slices.Delete(n.keys, i+1, i+2)
		n.kids = slices.Delete(n.kids, i+1, i+2)
		return
	}
	right = left.cut(e, len(left.keys)/2)
	n.keys[i+1], n.kids[i+1] = right.keys[0], right
}

// each calls yield for all items but the first skip ones, until it returns false.
func (n *node[K, V]) each(skip int, yield func(K, V) bool) bool {
	if n.kids == nil {
		for i := skip; i < len(n.keys); i++ {
			if !yield(n.keys[i], n.vals[i]) {
				return false
			}
		}
		return true
	}
	for _, kid := range n.kids {
		if skip >= kid.size {
			skip -= kid.size
			continue
		}
		if !kid.each(skip, yield) {
			return false
		}
		skip = 0
	}
	return true
}

func (n *node[K, V]) appendKeys(dst []K) []K {
	if n.kids == nil {
		return append(dst, n.keys...)
	}
	for _, kid := range n.kids {
		dst = kid.appendKeys(dst)
	}
	return dst
}
