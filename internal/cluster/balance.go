package cluster

import (
	"cmp"
	"maps"
	"slices"
)

// Led is a group that has a leader.
type Led struct {
	Group   uint64
	Leader  uint64   // node
	Members []uint64 // nodes with a member that could lead: up and caught up. Whether the leader is among them is all one
}

// Move is a leadership to hand over.
type Move struct {
	Group    uint64
	From, To uint64
}

// Balance returns which leaderships to move so that the numbers of groups led by nodes differ by at most one, as far as
// the members allow; at most most of them, those that help most first. Once they have been carried out it can be asked
// again. able says whether a node may lead; a group whose leader may not is moved whatever the numbers are, if one of its
// members may: that is how a node is drained.
func Balance(groups []Led, able func(node uint64) bool, most int) []Move {
	b := newBalance(groups, able)
	var moves []Move
	for i := range b.groups {
		if len(moves) == most {
			return moves
		}
		g := &b.groups[i]
		if able(g.Leader) || len(g.Members) == 0 {
			continue
		}
		to := slices.MinFunc(g.Members, func(x, y uint64) int { return cmp.Compare(b.count[x], b.count[y]) })
		moves = append(moves, b.move(i, to))
	}
	for len(moves) < most {
		path := b.path()
		if path == nil {
			break
		}
		for _, step := range path[:min(len(path), most-len(moves))] { // the rest helps as much later
			moves = append(moves, b.move(step.group, step.to))
		}
	}
	return moves
}

// Undrained returns the groups that a node leads and that no able member could take over.
func Undrained(groups []Led, node uint64, able func(node uint64) bool) []uint64 {
	var stuck []uint64
	for _, g := range groups {
		if g.Leader == node && !slices.ContainsFunc(g.Members, func(m uint64) bool { return m != node && able(m) }) {
			stuck = append(stuck, g.Group)
		}
	}
	return stuck
}

type balance struct {
	groups []Led                       // members are able
	count  map[uint64]int              // groups led, by node
	lead   map[uint64]map[uint64][]int // groups by leader and by who else could lead them; entries may be outdated
	nodes  []uint64                    // able ones that lead or could, in order
}

type step struct {
	group int
	to    uint64
}

func newBalance(groups []Led, able func(uint64) bool) *balance {
	b := &balance{groups: slices.Clone(groups), count: map[uint64]int{}, lead: map[uint64]map[uint64][]int{}}
	for i := range b.groups {
		g := &b.groups[i]
		var members []uint64
		for _, m := range g.Members {
			if able(m) {
				members = append(members, m)
				b.count[m] += 0
			}
		}
		g.Members = members
		if able(g.Leader) {
			b.count[g.Leader]++
		}
		b.enter(i)
	}
	b.nodes = slices.Sorted(maps.Keys(b.count))
	return b
}

func (b *balance) enter(group int) {
	g := &b.groups[group]
	to := b.lead[g.Leader]
	if to == nil {
		to = map[uint64][]int{}
		b.lead[g.Leader] = to
	}
	for _, m := range g.Members {
		if m != g.Leader {
			to[m] = append(to[m], group)
		}
	}
}

func (b *balance) move(group int, to uint64) Move {
	g := &b.groups[group]
	m := Move{g.Group, g.Leader, to}
	if _, counted := b.count[g.Leader]; counted {
		b.count[g.Leader]--
	}
	b.count[to]++
	g.Leader = to
	b.enter(group)
	return m
}

// between returns a group that from leads and to could, -1 if there is none.
func (b *balance) between(from, to uint64) int {
	list := b.lead[from][to]
	for len(list) > 0 && b.groups[list[len(list)-1]].Leader != from {
		list = list[:len(list)-1]
	}
	if b.lead[from] != nil {
		b.lead[from][to] = list
	}
	if len(list) == 0 {
		return -1
	}
	return list[len(list)-1]
}

// path returns moves that take one group from a node that leads many and give one to a node that leads at least two fewer;
// nodes in between give one and get one. It is the shortest way from the node that leads most, nil if there is none from
// any node.
func (b *balance) path() []step {
	order := slices.Clone(b.nodes)
	slices.SortStableFunc(order, func(x, y uint64) int { return cmp.Compare(b.count[y], b.count[x]) })
	for _, from := range order {
		if p := b.pathFrom(from); p != nil {
			return p
		}
	}
	return nil
}

func (b *balance) pathFrom(from uint64) []step {
	type came struct {
		by   uint64
		step step
	}
	reached := map[uint64]came{from: {}}
	for layer := []uint64{from}; len(layer) > 0; {
		var next []uint64
		for _, node := range layer {
			for _, to := range b.nodes {
				if _, been := reached[to]; been {
					continue
				}
				if g := b.between(node, to); g >= 0 {
					reached[to] = came{node, step{g, to}}
					next = append(next, to)
				}
			}
		}
		if len(next) > 0 {
			to := slices.MinFunc(next, func(x, y uint64) int { return cmp.Compare(b.count[x], b.count[y]) })
			if b.count[from]-b.count[to] >= 2 {
				var path []step
				for at := to; at != from; at = reached[at].by {
					path = append(path, reached[at].step)
				}
				return path // the last step first: nobody leads more than before at any time
			}
		}
		layer = next
	}
	return nil
}
