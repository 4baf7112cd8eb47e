package queuehost

import (
	"fmt"
	"testing"

	"holdfast/internal/queue"
	"holdfast/internal/replica"
	"holdfast/internal/seglog"
)

// R647: while the catalog may be behind, a member of which the log knows nothing does not begin: it may have ended here. When the catalog has caught up, it
// does so if it is still wanted, as a founder of its group, or as one that joins it.
func TestMembersBeginWhenTheCatalogHasCaughtUp(t *testing.T) {
	x, _ := newTrioThatServes(t)
	defer x.close(t)
	reg := x.nodes[0].reg
	one, two, three := Member{ID: 1, Node: 1}, Member{ID: 2, Node: 2}, Member{ID: 3, Node: 3}
	again, again2 := Member{ID: 101, Node: 1}, Member{ID: 102, Node: 1}
	founders := []Member{one, two, three}
	create := func(id seglog.GroupID, members ...Member) {
		t.Helper()
		if _, err := reg.CreateQuorum(durable(id), members); err != nil {
			t.Fatal(err)
		}
	}
	reg.Expect()
	create(8, founders...)
	reg.SetMembers(8, founders)
	reg.SetSettings(8, Settings{Settings: queue.Settings{MaxLength: queue.Most(5)}})
	create(9, founders...)
	reg.Drop(9, errQueueDeleted, nil)
	create(10, founders...)
	reg.SetMembers(10, []Member{two, three})
	create(11, two, three)
	reg.SetMembers(11, []Member{again, two, three})
	create(12, founders...)
	reg.SetMembers(12, []Member{again, two, three})
	create(13, two, three)
	reg.SetMembers(13, []Member{again, two, three})
	reg.SetMembers(13, []Member{again2, two, three})
	create(14, Member{ID: 101, Node: 1, Learner: true}) // of a group that there was before the node came
	reg.SetMembers(14, []Member{again, two, three})
	for id := range seglog.GroupID(15) {
		if id > 7 && (x.nodes[0].rep.Group(id) != nil || reg.member(id) != nil) {
			t.Errorf("group %d has begun", id)
		}
	}

	reg.CaughtUp()
	begun := func(id seglog.GroupID) string {
		g := x.nodes[0].rep.Group(id)
		if g == nil {
			return "nothing"
		}
		told := make(chan replica.RaftStatus)
		g.AskRaftStatus(func(st replica.RaftStatus) { told <- st })
		st := <-told
		return fmt.Sprintf("member %d of %d, %d left to do", st.Self, len(st.Members), len(reg.unborn))
	}
	for id, want := range map[seglog.GroupID]string{
		8: "member 1 of 3, 0 left to do", 9: "nothing", 10: "nothing", 11: "member 101 of 0, 0 left to do", 12: "member 101 of 0, 0 left to do",
		13: "member 102 of 0, 0 left to do", 14: "member 101 of 0, 0 left to do",
	} {
		if got := begun(id); got != want {
			t.Errorf("group %d: %s, want %s", id, got, want)
		}
	}
	if s := reg.member(8).def.Settings; s == nil || s.MaxLength != queue.Most(5) {
		t.Errorf("queue 8 begins with %+v", s)
	}
	create(15, founders...)
	if got := begun(15); got != "member 1 of 3, 0 left to do" {
		t.Errorf("once the catalog has caught up: %s", got)
	}
}
