package routing

import (
	"hash/maphash"
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
// nodes of longer ones. A nil node has no patterns.
//
// A node with a tail stands for a single pattern, whose words after those are the tail: most patterns of a large exchange part from
// all others after a few words. There is no "#" among them, and the node is not that of one, so that there is only one place in a key
// from which a tail can match.
type topicNode struct {
	owner  *ordmap.Edit
	word   string                         // the last word, of a node in words
	words  ordmap.Map[uint32, *topicNode] // next word, by its hash
	twin   *topicNode                     // next to this one in its parent's words: another word of the same hash
	star   *topicNode                     // next word "*"
	hash   *topicNode                     // next word "#"
	isHash bool                           // the last word is "#"
	starry bool                           // there is a "*" in the tail
	tail   string                         // "" without one
	set    set
	one    Target // the only one of the set, if single, near at hand
	single bool
}

// leadTo has n, which may be changed, lead to the targets of s.
func (n *topicNode) leadTo(s set) {
	if n.set, n.one, n.single = s, 0, s.Len() == 1; n.single {
		n.one, _ = s.At(0)
	}
}

func (n *topicNode) appendTargets(dst []Target) []Target {
	if n.single {
		return append(dst, n.one)
	}
	return n.set.AppendKeys(dst)
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
	k, _ := n.words.Get(h)
	for k != nil && k.word != word {
		k = k.twin
	}
	return k
}

// setKid puts kid, which e may change, in the place of the node of this word; nil takes that away. n may be changed.
func (n *topicNode) setKid(e *ordmap.Edit, h uint32, word string, kid *topicNode) {
	first, _ := n.words.Get(h)
	others := first.without(e, word)
	switch {
	case kid != nil:
		kid.twin = others
		n.words = n.words.Set(e, h, kid)
	case others != nil:
		n.words = n.words.Set(e, h, others)
	default:
		n.words = n.words.Delete(e, h)
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
	c.owner = e
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
	kid := &topicNode{owner: e}
	kid.leadTo(n.set)
	if can, starry := canTail(rest); can {
		kid.tail, kid.starry = rest.rest, starry
	} else if rest.more { // one empty word
		kid.leadTo(set{})
		last := &topicNode{owner: e}
		last.leadTo(n.set)
		kid.setKid(e, hashWord(""), "", last)
	}
	if n.leadTo(set{}); word == "*" {
		n.star = kid
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
			n.leadTo(addTarget(e, n.set, t))
			return n
		}
	} else {
		n = n.own(e)
	}
	if n.tail != "" {
		if w.more && w.rest == n.tail {
			n.leadTo(addTarget(e, n.set, t))
			return n
		}
		n.grow(e)
	}
	if !w.more {
		n.leadTo(addTarget(e, n.set, t))
		return n
	}
	word, rest := w.next()
	switch word {
	case "*":
		n.star = n.star.bind(e, rest, t)
	case "#":
		if n.hash == nil {
			n.hash = &topicNode{owner: e, isHash: true} // never with a tail
		}
		n.hash = n.hash.bind(e, rest, t)
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
		n.leadTo(dropTarget(e, n.set, t))
	} else {
		word, rest := w.next()
		switch word {
		case "*":
			n.star = n.star.unbind(e, rest, t)
		case "#":
			n.hash = n.hash.unbind(e, rest, t)
		default:
			h := hashWord(word)
			n.setKid(e, h, word, n.kid(h, word).unbind(e, rest, t))
		}
	}
	if n.set.Len() == 0 && n.words.Len() == 0 && n.star == nil && n.hash == nil {
		return nil
	}
	return n
}

// match appends the targets of all patterns that match key and returns from how many sets they come.
//
// It walks all patterns at once, word by word: cur is the nodes whose pattern matches the words so far. No node is in it
// twice: a node is reached from its one parent, or, if it is a "#" node, from itself. So the work per word is bounded by
// the number of nodes, however many "#" there are.
func (n *topicNode) match(dst []Target, key string) ([]Target, int) {
	if n == nil {
		return dst, 0
	}
	var bufs [2][16]*topicNode
	cur, next := bufs[0][:0], bufs[1][:0]
	sets := 0
	if n.tail == "" {
		cur = followHashes(append(cur, n), 0)
	} else if n.ends(pattern(key)) {
		return n.appendTargets(dst), 1
	}
	for w := pattern(key); w.more && len(cur) > 0; {
		var word string
		word, w = w.next()
		for _, n := range cur {
			if n.isHash {
				next = append(next, n)
			}
		}
		stay, h := len(next), hashWord(word)
		for _, n := range cur {
			for _, n := range [2]*topicNode{n.kid(h, word), n.star} {
				switch {
				case n == nil:
				case n.tail == "":
					next = append(next, n)
				case n.ends(w):
					dst = n.appendTargets(dst)
					sets++
				}
			}
		}
		next = followHashes(next, stay)
		cur, next = next, cur[:0]
	}
	for _, n := range cur {
		if n.set.Len() > 0 {
			dst = n.appendTargets(dst)
			sets++
		}
	}
	return dst, sets
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

// followHashes appends the "#" nodes that follow nodes[stay:], for a "#" may stand for no word. nodes[:stay] are "#" nodes
// that were reached a word ago, together with the "#" nodes that follow them.
func followHashes(nodes []*topicNode, stay int) []*topicNode {
	var seen map[*topicNode]bool
	for i := stay; i < len(nodes); i++ {
		h := nodes[i].hash
		if h == nil {
			continue
		}
		if stay > 16 && seen == nil {
			seen = make(map[*topicNode]bool, stay)
			for _, n := range nodes[:stay] {
				seen[n] = true
			}
		}
		if seen != nil && seen[h] || seen == nil && contains(nodes[:stay], h) {
			continue
		}
		nodes = append(nodes, h)
	}
	return nodes
}

func contains(nodes []*topicNode, n *topicNode) bool {
	for _, m := range nodes {
		if m == n {
			return true
		}
	}
	return false
}
