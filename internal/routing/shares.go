package routing

import (
	"cmp"
	"math"
	"slices"
)

// shares are targets with weights among which keys are divided: each key belongs to one of them, and a target has as
// large a part of all keys as its weight is of all weights. Who gets a key depends on nothing but the targets' names, their
// weights and the key. A target that comes takes keys from others, one that goes leaves its keys to them; but for a few,
// no key changes hands between two that stay.
//
// It is a race. Each target runs for a key as long as a clock says that chance has set, by the hash of the two, and that
// ticks as fast as the target weighs; who arrives first has the key. A target that comes or goes changes no time of
// anybody else. To let thousands run for each key would take too long, so they are put into 64 groups by a hash of their
// names. A group runs with the weight of all its members, and then those of the group that came first run against each
// other. A group of more than 64 is itself made of 64 groups. What a newcomer brings to its group, its companions have a
// part of; they lose as much to it. With few targets most are alone in their groups, and nothing of this is seen.
//
// shares are immutable. None at all is nil.
type shares struct {
	groups bool // the parts are groups, not targets
	parts  []part
	leaves int     // targets, below as well
	weight float64 // of all
}

// part is a target or a group of them.
type part struct {
	at     uint64 // what the parts are in order of: the hash of a target's name, the number of a group
	name   uint64 // hash
	weight float64
	target Target
	below  *shares // nil: it is a target
}

const (
	groupBits = 6
	mostAlone = 1 << groupBits // targets that run against each other without groups
	deepest   = 64 / groupBits
)

// pick returns who gets a key, by its hash. There is somebody.
func (s *shares) pick(key uint64) Target {
	for {
		first := &s.parts[0]
		if len(s.parts) > 1 {
			best := math.Inf(1)
			for i := range s.parts {
				p := &s.parts[i]
				x := between(mix(key ^ p.name))
				if x >= float64(best*p.weight) {
					continue // it takes x at least
				}
				if t := wait(x) / p.weight; t < best {
					best, first = t, p
				}
			}
		}
		if first.below == nil {
			return first.target
		}
		s = first.below
	}
}

// set returns the shares with a target of this weight, whether or not it was among them; with 0, without it.
func (s *shares) set(name uint64, t Target, weight uint64) *shares {
	if s == nil {
		s = &shares{groups: true}
	}
	if s = s.with(part{at: name, name: name, weight: float64(weight), target: t}, 0); s.leaves == 0 {
		return nil
	}
	return s
}

// with is set for shares at a depth below the top.
func (s *shares) with(p part, depth int) *shares {
	if !s.groups {
		return listed(edited(s.parts, p), depth)
	}
	group := groupOf(p, depth)
	if i, ok := slices.BinarySearchFunc(s.parts, group, compareParts); ok {
		group = s.parts[i]
	} else {
		group.below = new(shares)
	}
	group.below = group.below.with(p, depth+1)
	group.weight = group.below.weight
	whole := sharesOf(true, edited(s.parts, group))
	if depth > 0 && whole.leaves <= mostAlone {
		var parts []part
		for _, g := range whole.parts {
			parts = append(parts, g.below.parts...)
		}
		return sharesOf(false, parts)
	}
	return whole
}

// listed returns the shares of a list of targets at a depth below the top, in groups if they are too many.
func listed(parts []part, depth int) *shares {
	if len(parts) <= mostAlone || depth >= deepest {
		return sharesOf(false, parts)
	}
	var groups []part
	for len(parts) > 0 {
		group, n := groupOf(parts[0], depth), 1
		for n < len(parts) && groupOf(parts[n], depth).at == group.at {
			n++
		}
		group.below = listed(slices.Clone(parts[:n]), depth+1)
		group.weight = group.below.weight
		groups, parts = append(groups, group), parts[n:]
	}
	return sharesOf(true, groups)
}

// groupOf returns the group that a target belongs to, empty.
func groupOf(p part, depth int) part {
	prefix := p.at >> (64 - groupBits*(depth+1))
	return part{at: prefix, name: mix(hashStart + prefix<<4 + uint64(depth))}
}

func sharesOf(groups bool, parts []part) *shares {
	s := &shares{groups: groups, parts: parts}
	for _, p := range parts {
		s.weight += p.weight
		if p.below == nil {
			s.leaves++
		} else {
			s.leaves += p.below.leaves
		}
	}
	return s
}

func compareParts(a, b part) int {
	return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.target, b.target))
}

// edited returns a copy of parts with p in its place, or without it if it weighs nothing.
func edited(parts []part, p part) []part {
	i, there := slices.BinarySearchFunc(parts, p, compareParts)
	rest := parts[i:]
	if there {
		rest = rest[1:]
	}
	list := append(make([]part, 0, len(parts)+1), parts[:i]...)
	if p.weight > 0 {
		list = append(list, p)
	}
	return append(list, rest...)
}
