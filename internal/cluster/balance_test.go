package cluster

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// carry carries moves out, checking that each is possible.
func carry(t *testing.T, groups []Led, moves []Move, able func(uint64) bool) {
	t.Helper()
	for _, m := range moves {
		i := slices.IndexFunc(groups, func(g Led) bool { return g.Group == m.Group })
		g := &groups[i]
		if g.Leader != m.From || !slices.Contains(g.Members, m.To) || m.To == m.From || !able(m.To) {
			t.Fatalf("%+v cannot be done with %+v", m, *g)
		}
		g.Leader = m.To
	}
}

func leads(groups []Led) map[uint64]int {
	n := map[uint64]int{}
	for _, g := range groups {
		n[g.Leader]++
		for _, m := range g.Members {
			n[m] += 0
		}
	}
	return n
}

// improvable looks for a chain of moves from a node to one that leads two fewer, by trying all.
func improvable(groups []Led, able func(uint64) bool) bool {
	n := leads(groups)
	for from := range n {
		reached := map[uint64]bool{from: true}
		for grown := true; grown; {
			grown = false
			for _, g := range groups {
				for _, m := range g.Members {
					if reached[g.Leader] && !reached[m] && able(m) {
						reached[m], grown = true, true
					}
				}
			}
		}
		for to := range reached {
			if able(from) && n[from]-n[to] >= 2 {
				return true
			}
		}
	}
	return false
}

// Whatever there is, asking a few moves at a time ends with nothing left to improve, and every drained node empty that can be.
func TestBalance(t *testing.T) {
	for seed := range uint64(600) {
		r := rand.New(rand.NewPCG(seed, 3))
		nodes := r.IntN(5) + 2
		var groups []Led
		for i := range r.IntN(80) {
			var members []uint64
			for _, m := range r.Perm(nodes)[:r.IntN(min(nodes, 3))+1] {
				members = append(members, uint64(m+1))
			}
			g := Led{Group: uint64(i), Leader: members[0], Members: members}
			if r.IntN(10) == 0 {
				g.Members = members[1:] // the leader itself is not caught up: odd, and no reason to fall over
			}
			if r.IntN(3) == 0 {
				g.Leader = slices.Min(members)
			}
			groups = append(groups, g)
		}
		drained := uint64(r.IntN(nodes * 2))
		able := func(id uint64) bool { return id != drained }
		most := r.IntN(5) + 1
		rounds := 0
		for ; ; rounds++ {
			moves := Balance(groups, able, most)
			if len(moves) > most {
				t.Fatalf("seed %d: %d moves, at most %d wanted", seed, len(moves), most)
			}
			if len(moves) == 0 {
				break
			}
			carry(t, groups, moves, able)
			if rounds > 300 {
				t.Fatalf("seed %d: no end of moves: %v", seed, moves)
			}
		}
		stuck := Undrained(groups, drained, able)
		for _, g := range groups {
			others := slices.ContainsFunc(g.Members, able)
			if g.Leader == drained && (others || !slices.Contains(stuck, g.Group)) {
				t.Fatalf("seed %d: %+v is still led by a drained node, stuck are %v", seed, g, stuck)
			}
		}
		if improvable(groups, able) {
			t.Fatalf("seed %d: %v could be more even", seed, leads(groups))
		}
	}
}

// With a member on every node the numbers differ by at most one, with no more moves than it takes.
func TestBalanceEven(t *testing.T) {
	var groups []Led
	for i := range uint64(5000) {
		groups = append(groups, Led{i, 1, []uint64{1, 2, 3}})
	}
	all := func(uint64) bool { return true }
	moves := Balance(groups, all, 10_000)
	carry(t, groups, moves, all)
	n := leads(groups)
	if len(moves) != 3333 || slices.Max(slices.Collect(maps.Values(n)))-slices.Min(slices.Collect(maps.Values(n))) > 1 {
		t.Errorf("%d moves to %v", len(moves), n)
	}
	if moves := Balance(groups, all, 10); moves != nil {
		t.Errorf("then %v", moves)
	}
}

func BenchmarkBalance5000(b *testing.B) {
	var groups []Led
	for i := range uint64(5000) {
		groups = append(groups, Led{i, 1, []uint64{1, 2, 3}})
	}
	for b.Loop() {
		Balance(groups, func(uint64) bool { return true }, 50)
	}
}
