package routing

import (
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
type topicNode struct {
	owner  *ordmap.Edit
	words  ordmap.Map[string, *topicNode] // next word, literally
	star   *topicNode                     // next word "*"
	hash   *topicNode                     // next word "#"
	isHash bool                           // the last word is "#"
	set    set
}

func (n *topicNode) own(e *ordmap.Edit) *topicNode {
	if e != nil && n.owner == e {
		return n
	}
	c := *n
	c.owner = e
	return &c
}

func (n *topicNode) bind(e *ordmap.Edit, w words, t Target) *topicNode {
	if n == nil {
		n = &topicNode{owner: e}
	} else {
		n = n.own(e)
	}
	if !w.more {
		n.set = addTarget(e, n.set, t)
		return n
	}
	word, rest := w.next()
	switch word {
	case "*":
		n.star = n.star.bind(e, rest, t)
	case "#":
		n.hash = n.hash.bind(e, rest, t)
		n.hash.isHash = true
	default:
		kid, _ := n.words.Get(word)
		n.words = n.words.Set(e, strings.Clone(word), kid.bind(e, rest, t))
	}
	return n
}

func (n *topicNode) unbind(e *ordmap.Edit, w words, t Target) *topicNode {
	if n == nil {
		return nil
	}
	n = n.own(e)
	if !w.more {
		n.set = dropTarget(e, n.set, t)
	} else {
		word, rest := w.next()
		switch word {
		case "*":
			n.star = n.star.unbind(e, rest, t)
		case "#":
			n.hash = n.hash.unbind(e, rest, t)
		default:
			kid, _ := n.words.Get(word)
			if kid = kid.unbind(e, rest, t); kid != nil {
				n.words = n.words.Set(e, word, kid)
			} else {
				n.words = n.words.Delete(e, word)
			}
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
	cur, next := append(bufs[0][:0], n), bufs[1][:0]
	cur = followHashes(cur, 0)
	for w := pattern(key); w.more && len(cur) > 0; {
		var word string
		word, w = w.next()
		for _, n := range cur {
			if n.isHash {
				next = append(next, n)
			}
		}
		stay := len(next)
		for _, n := range cur {
			if kid, ok := n.words.Get(word); ok {
				next = append(next, kid)
			}
			if n.star != nil {
				next = append(next, n.star)
			}
		}
		next = followHashes(next, stay)
		cur, next = next, cur[:0]
	}
	sets := 0
	for _, n := range cur {
		if n.set.Len() > 0 {
			dst = n.set.AppendKeys(dst)
			sets++
		}
	}
	return dst, sets
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
