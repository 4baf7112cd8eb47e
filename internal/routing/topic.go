package routing

import (
	"hash/maphash"
	"slices"
	"strings"

	"holdfast/internal/routing/ordmap"
)

// A key is words with dots between them. The empty key has no words, not one empty word; "a..b" has an empty word in the
// middle, "." is two of them. In a pattern the word "*" stands for any one word, "#" for any number, none included.

// words is what is left of a key, word by word.
type words struct {
	rest string
	more bool
}

func pattern(key string) words { return words{key, key != ""} }

// next takes the first word off. There must be one.
func (w words) next() (word string, rest words) {
	if i := strings.IndexByte(w.rest, '.'); i >= 0 {
		return w.rest[:i], words{w.rest[i+1:], true}
	}
	return w.rest, words{}
}

// topicNode is the end of all patterns that start with the same words: the targets of the pattern that ends here, and the
// ways to nodes of longer ones. A nil node has no patterns.
//
// A node with a tail stands for a single pattern, whose words after those are the tail: most patterns of a large exchange part from
// all others after a few words. There is no "#" among them, and the node is not that of one, so that there is only one place in a key
// from which a tail can match.
type topicNode struct {
	owner  *ordmap.Edit
	word   string     // the last word, of a node in words
	tail   string     // "" without one
	words  ways       // next word; who may change the node may change the list
	wild   *wildWays  // nil: no next word is "*" or "#"
	twin   *topicNode // next to this one at its parent's way: another word of the same hash
	to     targets
	isHash bool // the last word is "#"
	starry bool // there is a "*" in the tail
}

// wildWays are the ways by "*" and "#". They are immutable.
type wildWays struct{ star, hash way }

// star returns the node of the next word "*", or nil.
func (n *topicNode) star() *topicNode {
	if n.wild == nil {
		return nil
	}
	return n.wild.star.node
}

// hash returns the node of the next word "#", or nil.
func (n *topicNode) hash() *topicNode {
	if n.wild == nil {
		return nil
	}
	return n.wild.hash.node
}

// setWild puts the nodes of the next words "*" and "#" in their places; nil takes one away. n may be changed.
func (n *topicNode) setWild(star, hash *topicNode) {
	if n.wild = nil; star != nil || hash != nil {
		n.wild = &wildWays{wayTo(star), wayTo(hash)}
	}
}

// Words are found by hashes: a comparison of numbers that lie side by side costs less than one of strings, and a message's words are
// hashed once for all the places where they are looked for.
var (
	wordSeed = maphash.MakeSeed()
	wordMask = ^uint32(0) // less in tests, for more twins
)

func hashWord(word string) uint32 { return uint32(maphash.String(wordSeed, word)) & wordMask }

// kid returns the node of the next word, or nil.
func (n *topicNode) kid(h uint32, word string) *topicNode {
	w := n.words.find(h)
	if w == nil {
		return nil
	}
	return w.node.twinOf(word)
}

// twinOf returns n or the one of its twins that is of this word, or nil.
func (n *topicNode) twinOf(word string) *topicNode {
	for n != nil && n.word != word {
		n = n.twin
	}
	return n
}

// setKid puts kid, which e may change, in the place of the node of this word; nil takes that away. n may be changed.
func (n *topicNode) setKid(e *ordmap.Edit, h uint32, word string, kid *topicNode) {
	var others *topicNode
	if w := n.words.find(h); w != nil {
		if others = w.node.without(e, word); kid == nil && others == nil {
			n.words = n.words.drop(e, 0, h)
			return
		}
	}
	if kid == nil {
		kid = others
	} else {
		kid.twin = others
	}
	if kid != nil {
		w := wayTo(kid)
		if w.hash = h; kid.twin != nil { // to all of them
			w.next, w.ends = anyWord, true
		}
		n.words = n.words.set(e, 0, w)
	}
}

// without returns n and its twins without the one of this word.
func (n *topicNode) without(e *ordmap.Edit, word string) *topicNode {
	if n == nil || n.word == word {
		return n.next()
	}
	n = n.own(e)
	n.twin = n.twin.without(e, word)
	return n
}

func (n *topicNode) next() *topicNode {
	if n == nil {
		return nil
	}
	return n.twin
}

func (n *topicNode) own(e *ordmap.Edit) *topicNode {
	if e != nil && n.owner == e {
		return n
	}
	c := *n
	c.owner, c.words.list = e, slices.Clone(n.words.list)
	return &c
}

// canTail reports whether words can be a tail, and whether "*" is among them. One empty word cannot: it looks like no tail.
func canTail(w words) (can, starry bool) {
	if w.rest == "" {
		return false, false
	}
	for w.more {
		var word string
		switch word, w = w.next(); word {
		case "#":
			return false, false
		case "*":
			starry = true
		}
	}
	return true, starry
}

// grow gives a node with a tail a kid in its place. n may be changed.
func (n *topicNode) grow(e *ordmap.Edit) {
	word, rest := words{n.tail, true}.next()
	kid := &topicNode{owner: e, to: n.to}
	if can, starry := canTail(rest); can {
		kid.tail, kid.starry = rest.rest, starry
	} else if rest.more { // one empty word
		kid.to = targets{}
		kid.setKid(e, hashWord(""), "", &topicNode{owner: e, to: n.to})
	}
	if n.to = (targets{}); word == "*" {
		n.setWild(kid, nil)
	} else {
		kid.word = word
		n.setKid(e, hashWord(word), word, kid)
	}
	n.tail, n.starry = "", false
}

func (n *topicNode) bind(e *ordmap.Edit, w words, t Target) *topicNode {
	if n == nil {
		n = &topicNode{owner: e}
		if can, starry := canTail(w); can {
			n.tail, n.starry = strings.Clone(w.rest), starry
			n.to = n.to.with(e, t)
			return n
		}
	} else {
		n = n.own(e)
	}
	if n.tail != "" {
		if w.more && w.rest == n.tail {
			n.to = n.to.with(e, t)
			return n
		}
		n.grow(e)
	}
	if !w.more {
		n.to = n.to.with(e, t)
		return n
	}
	word, rest := w.next()
	switch word {
	case "*":
		n.setWild(n.star().bind(e, rest, t), n.hash())
	case "#":
		hash := n.hash()
		if hash == nil {
			hash = &topicNode{owner: e, isHash: true} // never with a tail
		}
		n.setWild(n.star(), hash.bind(e, rest, t))
	default:
		h := hashWord(word)
		old := n.kid(h, word)
		kid := old.bind(e, rest, t)
		if old == nil { // word and tail are compared one after the other, and so lie together
			whole := strings.Clone(w.rest)
			if kid.word = whole[:len(word)]; kid.tail != "" {
				kid.tail = whole[len(word)+1:]
			} else {
				kid.word = strings.Clone(word)
			}
		}
		n.setKid(e, h, word, kid)
	}
	return n
}

func (n *topicNode) unbind(e *ordmap.Edit, w words, t Target) *topicNode {
	if n == nil {
		return nil
	}
	n = n.own(e)
	if n.tail != "" && (!w.more || w.rest != n.tail) {
		return n
	}
	if !w.more || n.tail != "" {
		n.to = n.to.without(e, t)
	} else {
		word, rest := w.next()
		switch word {
		case "*":
			n.setWild(n.star().unbind(e, rest, t), n.hash())
		case "#":
			n.setWild(n.star(), n.hash().unbind(e, rest, t))
		default:
			h := hashWord(word)
			n.setKid(e, h, word, n.kid(h, word).unbind(e, rest, t))
		}
	}
	if n.to.none() && n.words.bits == 0 && n.wild == nil {
		return nil
	}
	return n
}

// match appends the targets of all patterns that match key and returns from how many sets they come.
//
// It walks all patterns at once, word by word: cur is the ways to the nodes whose pattern matches the words so far. No node is in it
// twice: a node is reached from its one parent, or, if it is a "#" node, from itself. So the work per word is bounded by
// the number of nodes, however many "#" there are. A way that the next word rules out is not taken: most nodes that do not match
// are never looked at.
func (n *topicNode) match(dst []Target, key string) ([]Target, int) {
	if n == nil {
		return dst, 0
	}
	var bufs [2][8]way
	cur, next := followHashes(append(bufs[0][:0], wayTo(n)), 0), bufs[1][:0]
	sets := 0
	for w := firstWord(key); w.is && len(cur) > 0; {
		after := w.next()
		for i := range cur {
			if cur[i].stays {
				next = append(next, cur[i])
			}
		}
		stay := len(next)
		for i := range cur {
			if cur[i].next&w.bit == 0 {
				continue
			}
			n := cur[i].node
			if n.tail != "" {
				if n.ends(w.from) {
					dst = n.to.appendTo(dst)
					sets++
				}
				continue
			}
			if to := n.words.find(w.hash); to != nil && to.open(after) {
				if k := to.node; k.word == w.word && k.twin == nil {
					next = append(next, *to)
				} else if k = k.twinOf(w.word); k != nil {
					next = append(next, wayTo(k))
				}
			}
			if n.wild != nil && n.wild.star.open(after) {
				next = append(next, n.wild.star)
			}
		}
		w = after
		cur, next = followHashes(next, stay), cur[:0]
	}
	for i := range cur {
		if n := cur[i].node; cur[i].ends && !n.to.none() {
			dst = n.to.appendTo(dst)
			sets++
		}
	}
	return dst, sets
}

// hashedWord is a word of a key, with what it is compared by.
type hashedWord struct {
	is   bool // there is one
	word string
	hash uint32
	bit  uint64
	from words // it and those after it
	rest words // those after it
}

func firstWord(key string) hashedWord { return hashedWord{rest: pattern(key)}.next() }

// next returns the word after w.
func (w hashedWord) next() (after hashedWord) {
	if !w.rest.more {
		return after
	}
	after.is, after.from = true, w.rest
	after.word, after.rest = w.rest.next()
	after.hash = hashWord(after.word)
	after.bit = bitOf(after.hash)
	return after
}

// ends reports whether the words of n's tail match the words of a key, all of them.
func (n *topicNode) ends(w words) bool {
	if !n.starry {
		return w.more && w.rest == n.tail
	}
	t := words{n.tail, true}
	for t.more && w.more {
		var word, want string
		want, t = t.next()
		if word, w = w.next(); word != want && want != "*" {
			return false
		}
	}
	return t.more == w.more
}

// followHashes appends the ways to the "#" nodes that follow list[stay:], for a "#" may stand for no word. list[:stay] leads to "#"
// nodes that were reached a word ago, together with the "#" nodes that follow them.
func followHashes(list []way, stay int) []way {
	var seen map[*topicNode]bool
	for i := stay; i < len(list); i++ {
		if !list[i].hashed {
			continue
		}
		h := &list[i].node.wild.hash
		if stay > 16 && seen == nil {
			seen = make(map[*topicNode]bool, stay)
			for _, w := range list[:stay] {
				seen[w.node] = true
			}
		}
		if seen != nil && seen[h.node] || seen == nil && slices.ContainsFunc(list[:stay], func(w way) bool { return w.node == h.node }) {
			continue
		}
		list = append(list, *h)
	}
	return list
}
