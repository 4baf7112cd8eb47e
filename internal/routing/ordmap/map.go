package ordmap

import (
	"cmp"
	"iter"
)

// Map is an immutable ordered map. The zero Map is empty. Any number of goroutines may read a Map at the same time.
type Map[K cmp.Ordered, V any] struct {
	root *node[K, V]
}

// Edit is one run of edits: nodes made under an Edit are changed in place by later edits under the same one. So the map
// that went into an edit must not be used any more unless it was made under another Edit (or none). Pass nil to copy
// always. An Edit must not be zero-sized: its address is its identity.
type Edit struct{ _ byte }

// Len returns the number of keys.
func (m Map[K, V]) Len() int {
	if m.root == nil {
		return 0
	}
	return m.root.size
}

// Get returns the value of key, and whether there is one.
func (m Map[K, V]) Get(key K) (v V, ok bool) {
	n := m.root
	if n == nil {
		return v, false
	}
	for n.kids != nil {
		n = n.kids[n.child(key)]
	}
	if i := n.lower(key); i < len(n.keys) && n.keys[i] == key {
		return n.vals[i], true
	}
	return v, false
}

// Set returns the map with key set to v.
func (m Map[K, V]) Set(e *Edit, key K, v V) Map[K, V] {
	if m.root == nil {
		return Map[K, V]{&node[K, V]{owner: e, keys: []K{key}, vals: []V{v}, size: 1}}
	}
	left, right, bound, _ := m.root.set(e, key, v)
	if right != nil {
		left = &node[K, V]{
			owner: e,
			keys:  []K{bound, bound}, // the first is never looked at
			kids:  []*node[K, V]{left, right},
			size:  left.size + right.size,
		}
	}
	return Map[K, V]{left}
}

// Delete returns the map without key.
func (m Map[K, V]) Delete(e *Edit, key K) Map[K, V] {
	if _, ok := m.Get(key); !ok {
		return m
	}
	n := m.root.delete(e, key)
	for len(n.kids) == 1 {
		n = n.kids[0]
	}
	if n.size == 0 {
		n = nil
	}
	return Map[K, V]{n}
}

// Rank returns the number of keys less than key.
func (m Map[K, V]) Rank(key K) int {
	n := m.root
	if n == nil {
		return 0
	}
	rank := 0
	for n.kids != nil {
		c := n.child(key)
		for _, kid := range n.kids[:c] {
			rank += kid.size
		}
		n = n.kids[c]
	}
	return rank + n.lower(key)
}

// At returns the key of the given rank, which is less than Len, and its value.
func (m Map[K, V]) At(rank int) (K, V) {
	n := m.root
	for n.kids != nil {
		i := 0
		for rank >= n.kids[i].size {
			rank -= n.kids[i].size
			i++
		}
		n = n.kids[i]
	}
	return n.keys[rank], n.vals[rank]
}

// From iterates in order of keys, starting with the one of the given rank.
func (m Map[K, V]) From(rank int) iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		if m.root != nil {
			m.root.each(max(rank, 0), yield)
		}
	}
}

// All iterates in order of keys.
func (m Map[K, V]) All() iter.Seq2[K, V] { return m.From(0) }

// AppendKeys appends all keys in order.
func (m Map[K, V]) AppendKeys(dst []K) []K {
	if m.root == nil {
		return dst
	}
	return m.root.appendKeys(dst)
}
