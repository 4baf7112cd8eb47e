package cluster

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"holdfast/internal/catalog"
	"holdfast/internal/wire"
)

// book is a catalog with nodes 1 to n, all started.
type book struct {
	*catalog.Machine
	t *testing.T
}

func newBook(t *testing.T, n int) *book {
	b := &book{catalog.New(), t}
	b.must(catalog.Bootstrap(catalog.Defaults{VHost: "/"}))
	for id := range uint64(n) {
		b.must(catalog.AddNode(catalog.Node{ID: id + 1, Name: fmt.Sprint("n", id+1), Voter: id == 0}))
		b.must(catalog.NewIncarnation(id + 1))
	}
	return b
}

func (b *book) must(cmd []byte) *catalog.Result {
	b.t.Helper()
	r := b.Apply(1, 1, cmd).(*catalog.Result)
	if r.Err != nil {
		b.t.Fatal(r.Err)
	}
	return r
}

var quorumArgs = wire.NewTable(map[string]any{"x-queue-type": "quorum"})

func (b *book) quorum(members ...uint64) *catalog.Queue {
	b.t.Helper()
	return b.must(catalog.DeclareQueue(catalog.QueueDecl{
		VHost: "/", Name: fmt.Sprint("q", b.View().LastQueue()), Durable: true, Args: quorumArgs, Members: AsMembers(members),
	})).Queue
}

func (b *book) classic(home uint64) {
	b.t.Helper()
	b.must(catalog.DeclareQueue(catalog.QueueDecl{VHost: "/", Name: fmt.Sprint("c", b.View().LastQueue()), Durable: true, Home: home}))
}

func lots(seed uint64) func(int) int { return rand.New(rand.NewPCG(seed, 1)).IntN }

func except(down ...uint64) func(uint64) bool {
	return func(id uint64) bool { return !slices.Contains(down, id) }
}

// The declaring node gets a copy, one node has one, there are as many as asked for or as there are nodes, and the leader
// is where it is wanted.
func TestMembersAlways(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for nodes := 1; nodes <= 6; nodes++ {
		b := newBook(t, nodes)
		for range 60 {
			down := uint64(r.IntN(nodes*2) + 1)
			p := Placing{
				Self: uint64(r.IntN(nodes) + 1), Size: r.IntN(6) + 1, Balanced: r.IntN(2) == 0,
				Live: except(down), Rand: r.IntN,
			}
			m := Members(b.View(), p)
			if len(m) != min(p.Size, nodes) || !slices.Contains(m, p.Self) {
				t.Fatalf("%d nodes, %+v: %v", nodes, p, m)
			}
			if sorted := slices.Sorted(slices.Values(m)); len(slices.Compact(sorted)) != len(m) {
				t.Fatalf("twice on a node: %v", m)
			}
			if !p.Balanced && m[0] != p.Self || m[0] == down && down != p.Self {
				t.Fatalf("%d nodes, %d down, %+v: led by %d", nodes, down, p, m[0])
			}
			if slices.Contains(m, down) && down != p.Self && len(m) < nodes {
				t.Fatalf("%d nodes, %d down: %v though others are up", nodes, down, m)
			}
			b.quorum(m...)
		}
	}
}

// Below 1,000 queues the others are those that hold fewest copies; a balanced leader is where fewest lead.
func TestMembersFewest(t *testing.T) {
	b := newBook(t, 5)
	b.quorum(2, 3)
	b.quorum(2, 5)
	b.quorum(3, 2)
	for seed := range uint64(20) {
		if m := Members(b.View(), Placing{Self: 1, Size: 3, Rand: lots(seed)}); m[0] != 1 || !slices.Contains(m, 4) || !slices.Contains(m, 5) {
			t.Fatalf("%v", m)
		}
		if m := Members(b.View(), Placing{Self: 2, Size: 2, Balanced: true, Rand: lots(seed)}); len(m) != 2 || m[0] == 2 {
			t.Fatalf("%v", m)
		}
		leads := func(id uint64) int { return map[uint64]int{2: 0, 1: 1, 4: 1, 5: 1, 3: 1}[id] }
		if m := Members(b.View(), Placing{Self: 2, Size: 2, Balanced: true, Leads: leads, Rand: lots(seed)}); m[0] != 2 {
			t.Fatalf("%v", m)
		}
	}
}

// A drained node leads nothing new and gets no copy that another could have.
func TestMembersDrained(t *testing.T) {
	b := newBook(t, 4)
	b.must(catalog.SetDrained(2, true))
	for seed := range uint64(20) {
		if m := Members(b.View(), Placing{Self: 1, Size: 3, Rand: lots(seed)}); slices.Contains(m, 2) {
			t.Fatalf("%v", m)
		}
		if m := Members(b.View(), Placing{Self: 2, Size: 3, Rand: lots(seed)}); m[0] == 2 || !slices.Contains(m, 2) {
			t.Fatalf("%v", m)
		}
		if home := Home(b.View(), Placing{Self: 2, Rand: lots(seed)}); home == 2 {
			t.Fatalf("at home on %d", home)
		}
	}
	if m := Members(b.View(), Placing{Self: 2, Size: 1, Rand: lots(1)}); !slices.Equal(m, []uint64{2}) {
		t.Errorf("%v", m)
	}
}

// From 1,000 queues on all are drawn by lot, however unequal.
func TestMembersMany(t *testing.T) {
	b := newBook(t, 4)
	for range 1000 {
		b.quorum(1, 2)
	}
	second, leader, home := map[uint64]int{}, map[uint64]int{}, map[uint64]int{}
	rand := lots(1)
	for range 900 {
		second[Members(b.View(), Placing{Self: 1, Size: 2, Rand: rand})[1]]++
		leader[Members(b.View(), Placing{Self: 1, Size: 4, Balanced: true, Rand: rand})[0]]++
		home[Home(b.View(), Placing{Self: 1, Balanced: true, Rand: rand})]++
	}
	for id := range uint64(4) {
		if id++; id > 1 && second[id] < 200 || leader[id] < 150 || home[id] < 150 {
			t.Errorf("node %d: %d second copies, %d leaders, %d homes of 900", id, second[id], leader[id], home[id])
		}
	}
}

func TestHome(t *testing.T) {
	b := newBook(t, 3)
	for _, id := range []uint64{1, 1, 3} {
		b.classic(id)
	}
	for seed := range uint64(10) {
		if home := Home(b.View(), Placing{Self: 1, Rand: lots(seed)}); home != 1 {
			t.Errorf("at home on %d", home)
		}
		if home := Home(b.View(), Placing{Self: 1, Balanced: true, Rand: lots(seed)}); home != 2 {
			t.Errorf("at home on %d", home)
		}
		if home := Home(b.View(), Placing{Self: 1, Balanced: true, Live: except(2), Rand: lots(seed)}); home != 3 {
			t.Errorf("at home on %d", home)
		}
		// R568: publishers to a queue on a node that has an alarm would be held back.
		on := func(ids ...uint64) func(uint64) bool { return func(id uint64) bool { return slices.Contains(ids, id) } }
		if home := Home(b.View(), Placing{Self: 1, Balanced: true, Alarmed: on(2), Rand: lots(seed)}); home != 3 {
			t.Errorf("at home on %d", home)
		}
		if home := Home(b.View(), Placing{Self: 1, Balanced: true, Alarmed: on(1, 2, 3), Rand: lots(seed)}); home != 2 {
			t.Errorf("at home on %d", home)
		}
		if home := Home(b.View(), Placing{Self: 1, Balanced: true, Live: except(2), Alarmed: on(3), Rand: lots(seed)}); home != 1 {
			t.Errorf("at home on %d", home)
		}
		if members := Members(b.View(), Placing{Self: 1, Size: 2, Alarmed: on(2), Rand: lots(seed)}); !slices.Equal(members, []uint64{1, 3}) {
			t.Errorf("members on %v", members)
		}
	}
}

func TestGrow(t *testing.T) {
	b := newBook(t, 4)
	q := b.quorum(1)
	b.quorum(2, 3)
	all := except()
	if node, ok := Grow(b.View(), q, 3, all); !ok || node != 4 {
		t.Errorf("%d %v", node, ok)
	}
	if node, ok := Grow(b.View(), q, 3, except(4)); !ok || node != 2 {
		t.Errorf("%d %v", node, ok)
	}
	b.must(catalog.SetDrained(2, true))
	if node, ok := Grow(b.View(), q, 3, except(4)); !ok || node != 3 {
		t.Errorf("%d %v", node, ok)
	}
	if node, ok := Grow(b.View(), q, 3, except(3, 4)); ok {
		t.Errorf("on %d", node)
	}
	if _, ok := Grow(b.View(), q, 1, all); ok {
		t.Error("it has enough")
	}
}

// One, three or five vote, and who votes goes on.
func TestVoters(t *testing.T) {
	for n, want := range [][]uint64{1: {1}, 2: {1}, 3: {1, 2, 3}, 4: {1, 2, 3}, 5: {1, 2, 3, 4, 5}, 6: {1, 2, 3, 4, 5}, 7: {1, 2, 3, 4, 5}} {
		if n == 0 {
			continue
		}
		if got := Voters(newBook(t, n).View(), except()); !slices.Equal(got, want) {
			t.Errorf("%d nodes: %v", n, got)
		}
	}
	b := newBook(t, 4)
	if got := Voters(b.View(), except(1, 2)); !slices.Equal(got, []uint64{1, 3, 4}) {
		t.Errorf("%v", got)
	}
	b.must(catalog.RemoveNode(1))
	if got := Voters(b.View(), except()); !slices.Equal(got, []uint64{2, 3, 4}) {
		t.Errorf("%v", got)
	}
}

// A vote is given when that makes an odd number, by nodes that are ready, and given back when nodes have left.
func TestNextVote(t *testing.T) {
	for name, c := range map[string]struct {
		nodes           int
		voters          []uint64
		down, unready   []uint64
		promote, demote uint64
	}{
		"alone":                      {nodes: 1, voters: []uint64{1}},
		"a second only listens":      {nodes: 2, voters: []uint64{1}},
		"three":                      {nodes: 3, voters: []uint64{1}, promote: 2},
		"one of two is not ready":    {nodes: 3, voters: []uint64{1}, unready: []uint64{2}},
		"on the way to three":        {nodes: 3, voters: []uint64{1, 2}, promote: 3},
		"it waits there":             {nodes: 3, voters: []uint64{1, 2}, unready: []uint64{3}},
		"a fourth only listens":      {nodes: 4, voters: []uint64{1, 2, 3}},
		"a fourth that is ready":     {nodes: 4, voters: []uint64{1}, unready: []uint64{2}, promote: 3},
		"two more make five":         {nodes: 5, voters: []uint64{1, 2, 3}, promote: 4},
		"one more does not":          {nodes: 5, voters: []uint64{1, 2, 3}, unready: []uint64{5}},
		"a sixth only listens":       {nodes: 6, voters: []uint64{1, 2, 3, 4, 5}},
		"one of three has left":      {nodes: 2, voters: []uint64{1, 2}, demote: 2},
		"one of five has left":       {nodes: 4, voters: []uint64{1, 2, 3, 4}, down: []uint64{3}, demote: 3},
		"and the leader keeps its":   {nodes: 2, voters: []uint64{1, 2}, down: []uint64{1}, demote: 2},
		"one that left is replaced":  {nodes: 4, voters: []uint64{1, 2}, promote: 3},
		"a voter that is down stays": {nodes: 3, voters: []uint64{1, 2, 3}, down: []uint64{2}},
	} {
		promote, demote := NextVote(newBook(t, c.nodes).View(), c.voters, 1, except(c.down...), except(c.unready...))
		if promote != c.promote || demote != c.demote {
			t.Errorf("%s: promote %d, demote %d; want %d, %d", name, promote, demote, c.promote, c.demote)
		}
	}
}
