package cluster

import (
	"cmp"
	"slices"

	"holdfast/internal/catalog"
)

// manyQueues is the number of queues from which on places are drawn by lot. RabbitMQ does so because counting is dear
// there; here it keeps nodes that place at the same time, each by a view that lacks the others' queues, from choosing
// the same place over and over.
const manyQueues = 1000

// Placing says what is to be placed, and by whom.
type Placing struct {
	Self     uint64                // the node where the queue is declared; it always gets a copy
	Size     int                   // how many copies; fewer, if there are not as many nodes
	Balanced bool                  // the first copy goes where there are fewest; if not, it stays on Self
	Live     func(id uint64) bool  // whether a node is up; nil: all are
	Alarmed  func(id uint64) bool  // whether a node has an alarm; nil: none has
	Leads    func(id uint64) int   // how many groups a node leads now; nil: the catalog's count of first members
	Rand     func(n int) (lot int) // from 0 to below n
}

func (p *Placing) live(id uint64) bool { return p.Live == nil || p.Live(id) }

// Members returns where the copies of a new quorum queue live, the one to lead at first in front: on Self and on those of
// the others that are up, not drained, have no alarm, and hold fewest copies. There are always as many as were asked for or as there are
// nodes, if need be on nodes that are down. Self must be in the view.
func Members(v *catalog.View, p Placing) []uint64 {
	others := p.shuffled(v, func(n *catalog.Node) bool { return n.ID != p.Self })
	many := v.AllQueues().Len() >= manyQueues
	slices.SortStableFunc(others, func(a, b *catalog.Node) int {
		if c := cmp.Compare(p.rank(a), p.rank(b)); c != 0 || many {
			return c
		}
		return cmp.Compare(v.Counts(a.ID).Members, v.Counts(b.ID).Members)
	})
	members := []uint64{p.Self}
	for _, n := range others[:min(max(p.Size-1, 0), len(others))] {
		members = append(members, n.ID)
	}
	leader := p.first(v, func(n *catalog.Node) bool { return slices.Contains(members, n.ID) }, func(id uint64) int {
		if p.Leads != nil {
			return p.Leads(id)
		}
		return v.Counts(id).Leaders
	})
	i := slices.Index(members, leader)
	members[0], members[i] = members[i], members[0]
	return members
}

// Home returns where a new queue with one copy lives. An exclusive queue need not be asked about: it lives with its owner.
func Home(v *catalog.View, p Placing) uint64 {
	return p.first(v, func(*catalog.Node) bool { return true }, func(id uint64) int { return v.Counts(id).Homes })
}

// first chooses one of some nodes, Self among them: Self, or, where balance is asked for or Self is drained, one with the
// least load of those that are up, not drained, and without an alarm, for which publishers would be held back. If all have one, it
// does not matter; if none is up and not drained, it is Self.
func (p *Placing) first(v *catalog.View, among func(*catalog.Node) bool, load func(id uint64) int) uint64 {
	if self := v.Node(p.Self); !p.Balanced && (self == nil || !self.Drained) {
		return p.Self
	}
	able := p.shuffled(v, func(n *catalog.Node) bool { return among(n) && p.rank(n) == fit })
	if len(able) == 0 {
		able = p.shuffled(v, func(n *catalog.Node) bool { return among(n) && p.rank(n) == alarmed })
	}
	if len(able) == 0 {
		return p.Self
	}
	if v.AllQueues().Len() >= manyQueues {
		return able[0].ID
	}
	return slices.MinFunc(able, func(a, b *catalog.Node) int { return cmp.Compare(load(a.ID), load(b.ID)) }).ID
}

// How fit a node is to take something: the lower the better.
const (
	fit = iota
	alarmed
	drained
	down
)

func (p *Placing) rank(n *catalog.Node) int {
	switch {
	case n.ID != p.Self && !p.live(n.ID):
		return down
	case n.Drained:
		return drained
	case p.Alarmed != nil && p.Alarmed(n.ID):
		return alarmed
	}
	return fit
}

// shuffled lists some of the nodes in an order drawn by lot, so that ties do not always go to the same one.
func (p *Placing) shuffled(v *catalog.View, which func(*catalog.Node) bool) []*catalog.Node {
	var list []*catalog.Node
	for n := range v.Nodes().All() {
		if which(n) {
			list = append(list, n)
		}
	}
	for i := len(list) - 1; i > 0; i-- {
		j := p.Rand(i + 1)
		list[i], list[j] = list[j], list[i]
	}
	return list
}

// AsMembers returns the first members of a new queue on these nodes: their ids are the nodes'.
func AsMembers(nodes []uint64) []catalog.Member {
	members := make([]catalog.Member, 0, len(nodes))
	for _, id := range nodes {
		members = append(members, catalog.Member{ID: id, Node: id})
	}
	return members
}

// Grow returns the node for one more copy of a quorum queue that has fewer than target: up, not drained, without a copy,
// and with fewest of them. False: there is none, or the queue has enough.
func Grow(v *catalog.View, q *catalog.Queue, target int, live func(id uint64) bool) (node uint64, ok bool) {
	if q.Type != catalog.Quorum || len(q.Members) >= target {
		return 0, false
	}
	least := 0
	for n := range v.Nodes().All() {
		if _, has := q.MemberOn(n.ID); has || n.Drained || !live(n.ID) {
			continue
		}
		if c := v.Counts(n.ID).Members; !ok || c < least {
			node, least, ok = n.ID, c, true
		}
	}
	return node, ok
}

// voterCount is how many of n nodes vote in the catalog's group: 1, 3 or 5. More voters make every write slower, an even
// number survives no more than the odd one below.
func voterCount(n int) int {
	switch {
	case n < 3:
		return min(n, 1)
	case n < 5:
		return 3
	}
	return 5
}

// Voters returns who should vote in the catalog's group: those that do, as far as they are not too many, then those that
// are up, then those that have been there longest. The catalog's leader brings the group there one change at a time.
func Voters(v *catalog.View, live func(id uint64) bool) []uint64 {
	nodes := slices.Collect(v.Nodes().All())
	order := func(n *catalog.Node) int {
		switch {
		case n.Voter:
			return 0
		case live(n.ID):
			return 1
		}
		return 2
	}
	slices.SortStableFunc(nodes, func(a, b *catalog.Node) int {
		return cmp.Or(cmp.Compare(order(a), order(b)), cmp.Compare(a.Joined, b.Joined), cmp.Compare(a.ID, b.ID))
	})
	var voters []uint64
	for _, n := range nodes[:voterCount(len(nodes))] {
		voters = append(voters, n.ID)
	}
	slices.Sort(voters)
	return voters
}

// NextVote says which node should get a vote in the catalog's group next, or give it back; 0: none. There are to be 1, 3
// or 5 votes, as many as the nodes allow: an even number of them survives no more than one less. So learners get theirs
// only when enough of them are ready, up and caught up, to come to the next odd number, and when nodes have left and one
// vote is too many it is given back, first by a node that is down. self, who leads, keeps its own.
func NextVote(v *catalog.View, voters []uint64, self uint64, live, ready func(id uint64) bool) (promote, demote uint64) {
	candidates := Voters(v, live)
	for n := range v.Nodes().All() {
		if !slices.Contains(candidates, n.ID) {
			candidates = append(candidates, n.ID)
		}
	}
	candidates = slices.DeleteFunc(candidates, func(id uint64) bool { return slices.Contains(voters, id) || !ready(id) })
	nodes := v.Nodes().Len()
	if reach := voterCount(min(len(voters)+len(candidates), nodes)); len(voters) < reach {
		return candidates[0], 0
	}
	if len(voters) <= voterCount(nodes) {
		return 0, 0
	}
	var extra []uint64
	for _, id := range voters {
		if id != self {
			extra = append(extra, id)
		}
	}
	slices.SortStableFunc(extra, func(a, b uint64) int { return cmp.Compare(order(live, a), order(live, b)) })
	return 0, extra[0]
}

// order puts nodes that are down first.
func order(live func(uint64) bool, id uint64) int {
	if live(id) {
		return 1
	}
	return 0
}
