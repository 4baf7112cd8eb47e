package routing

import (
	"math/bits"
	"slices"

	"holdfast/internal/routing/ordmap"
)

// A way leads to a node, and has at hand what tells whether there is any use in going there: nodes lie all over the memory, and
// to look at one costs more than all the rest.
type way struct {
	next   uint64     // the bits of all words that can come next; all of them set if it may be any
	node   *topicNode // nil: see below
	below  *fork      // several words have the same bit: they part here, and next is the bits of the ways there
	hash   uint32     // of the word
	ends   bool       // a key may end here
	stays  bool       // the node is that of a "#"
	hashed bool       // the node leads to that of a "#"
}

// fork is ways whose hashes differ further up.
type fork struct {
	owner *ordmap.Edit
	list  []way
}

const (
	wayBits = 6 // of a hash, looked at in one place
	anyWord = ^uint64(0)
)

// bitOf is the bit of a word's hash among 64.
func bitOf(h uint32) uint64 { return 1 << (h & (1<<wayBits - 1)) }

// wayTo returns the way to a node, whatever its twins.
func wayTo(n *topicNode) way {
	switch {
	case n == nil:
		return way{}
	case n.tail != "":
		word, _ := words{n.tail, true}.next()
		if word == "*" {
			return way{node: n, next: anyWord}
		}
		return way{node: n, next: bitOf(hashWord(word))}
	}
	w := way{node: n, next: n.words.bits, ends: !n.to.none(), stays: n.isHash}
	if n.wild != nil {
		w.next, w.hashed = anyWord, n.wild.hash.node != nil
		w.ends = w.ends || w.hashed
	}
	return w
}

// open reports whether there is any use in going w before the word after; w may lead nowhere.
func (w *way) open(after hashedWord) bool {
	if w.node == nil {
		return false
	}
	return w.stays || after.is && w.next&after.bit != 0 || !after.is && w.ends
}

// ways are found by the hashes of words: a tree with forks of 64, each of which looks at further bits of a hash.
type ways struct {
	bits uint64 // of the words
	list []way  // one for each bit
}

// at returns where in the list the way of a bit is, or would be.
func (ws ways) at(bit uint64) int { return bits.OnesCount64(ws.bits & (bit - 1)) }

// find returns the way of a hash, or nil.
func (ws ways) find(h uint32) *way {
	for rest := h; ; rest >>= wayBits {
		bit := bitOf(rest)
		if ws.bits&bit == 0 {
			return nil
		}
		w := &ws.list[ws.at(bit)]
		if w.below == nil {
			if w.hash != h {
				return nil
			}
			return w
		}
		ws = ways{w.next, w.below.list}
	}
}

// set returns ws, whose list may be changed, with w in its place. They are at a depth below the top.
func (ws ways) set(e *ordmap.Edit, depth int, w way) ways {
	bit := bitOf(w.hash >> (depth * wayBits))
	i := ws.at(bit)
	switch {
	case ws.bits&bit == 0:
		ws.list = slices.Insert(ws.list, i, w)
		ws.bits |= bit
		return ws
	case ws.list[i].below != nil:
		ws.list[i].setBelow(e, depth+1, w)
	case ws.list[i].hash == w.hash:
		ws.list[i] = w
	default:
		parting := way{below: &fork{owner: e}}
		parting.setBelow(e, depth+1, ws.list[i])
		parting.setBelow(e, depth+1, w)
		ws.list[i] = parting
	}
	return ws
}

// drop returns ws, whose list may be changed, without the way of a hash, which is there.
func (ws ways) drop(e *ordmap.Edit, depth int, h uint32) ways {
	bit := bitOf(h >> (depth * wayBits))
	i := ws.at(bit)
	if w := &ws.list[i]; w.below != nil {
		f := w.below.own(e)
		left := ways{w.next, f.list}.drop(e, depth+1, h)
		if w.next, f.list, w.below = left.bits, left.list, f; len(left.list) == 1 && left.list[0].below == nil {
			*w = left.list[0]
		}
		return ws
	}
	ws.list = slices.Delete(ws.list, i, i+1)
	ws.bits &^= bit
	return ws
}

// setBelow sets a way at the fork that w leads to.
func (w *way) setBelow(e *ordmap.Edit, depth int, to way) {
	w.below = w.below.own(e)
	all := ways{w.next, w.below.list}.set(e, depth, to)
	w.next, w.below.list = all.bits, all.list
}

func (f *fork) own(e *ordmap.Edit) *fork {
	if e != nil && f.owner == e {
		return f
	}
	return &fork{owner: e, list: slices.Clone(f.list)}
}
