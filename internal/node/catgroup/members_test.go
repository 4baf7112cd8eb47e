package catgroup

import (
	"fmt"
	"slices"
	"testing"

	"holdfast/internal/catalog"
	"holdfast/internal/replica"
)

// The catalog learns of all its nodes who votes, and first who does not: a member that was made the only one leaves votes in it that
// nobody has.
func TestTheCatalogLearnsWhoVotes(t *testing.T) {
	cat := catalog.New()
	do := func(cmds ...[]byte) {
		t.Helper()
		for _, cmd := range cmds {
			if r := cat.Apply(1, 1, cmd).(*catalog.Result); r.Err != nil {
				t.Fatal(r.Err)
			}
		}
	}
	do(catalog.Bootstrap(catalog.Defaults{VHost: "/"}))
	for id := uint64(1); id <= 3; id++ {
		do(catalog.AddNode(catalog.Node{ID: id, Name: fmt.Sprint("n", id), Voter: true}))
	}
	voters := func() (list []uint64) {
		for n := range cat.View().Nodes().All() {
			if n.Voter {
				list = append(list, n.ID)
			}
		}
		return list
	}
	// group is one in which the first vote and the others, if any, listen.
	group := func(votes, all uint64) (st replica.RaftStatus) {
		for id := uint64(1); id <= all; id++ {
			st.Members = append(st.Members, replica.MemberStatus{Member: replica.Member{ID: id, Node: id, Learner: id > votes}})
		}
		return st
	}
	for _, step := range []struct {
		votes, all  uint64
		first, then []uint64
	}{
		{3, 3, []uint64{1, 2, 3}, []uint64{1, 2, 3}},
		{1, 1, []uint64{1}, []uint64{1}}, // forced
		{1, 3, []uint64{1}, []uint64{1}},
		{2, 3, []uint64{1}, []uint64{1, 2}},
		{3, 3, []uint64{1, 2}, []uint64{1, 2, 3}},
		{2, 3, []uint64{1, 2}, []uint64{1, 2}},
	} {
		st := group(step.votes, step.all)
		if do(Untrue(cat.View(), st)...); !slices.Equal(voters(), step.first) {
			t.Errorf("%d of %d vote, the catalog says first: %v", step.votes, step.all, voters())
		}
		if do(Votes(cat.View(), st)...); !slices.Equal(voters(), step.then) {
			t.Errorf("%d of %d vote, the catalog says: %v", step.votes, step.all, voters())
		}
		if left := len(Votes(cat.View(), st)); left > 0 {
			t.Errorf("%d commands more", left)
		}
	}
}
