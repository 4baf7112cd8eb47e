package queuehost

import (
	"testing"
	"time"

	"holdfast/internal/clock"
	"holdfast/internal/replica"
)

// Who has asked for a leader in vain knows since when; who has not asked knows of nothing wrong.
func TestLeaderlessHandle(t *testing.T) {
	x := newLoneEntry(t)
	x.pass(10 * time.Second)
	want(t, "of a queue that nobody uses", x.h.Leaderless(), time.Duration(0))
	x.h.Explain(func(Explanation) {})
	x.step()
	x.pass(4 * time.Second)
	want(t, "of one that somebody has asked for", x.h.Leaderless(), 4*time.Second)
	m := x.asked()
	x.answer(m, farResumed, 1, 0)
	want(t, "of one that is led", x.h.Leaderless(), time.Duration(0))
	x.reg.LinkDown(2, nil)
	x.reg.LinkDown(3, nil)
	x.step()
	x.pass(time.Second)
	want(t, "of one whose leader is away", x.h.Leaderless(), time.Second)
	x.pass(20 * time.Second) // nobody waits any more
	want(t, "of one that nobody asks for any more", x.h.Leaderless(), time.Duration(0))
}

// A member knows by itself that it has heard of no leader.
func TestLeaderlessMember(t *testing.T) {
	clk, log := clock.NewManual(testTime), newFakeLog()
	clk.Advance(time.Minute)
	node := replica.Open(replica.Options{Log: log, Shards: 1, Clock: clk, NodeID: 1})
	reg := New(Options{Log: log, Clock: clk, Node: node, Self: 1, Stepped: true, Incarnation: 1})
	h, err := reg.CreateQuorum(durable(7), []Member{{ID: 1, Node: 1}, {ID: 2, Node: 2}, {ID: 3, Node: 3}})
	if err != nil {
		t.Fatal(err)
	}
	node.Prepare()
	m := reg.member(7)
	clk.Advance(5 * time.Second)
	want(t, "before anybody was elected", h.Leaderless(), 5*time.Second)
	m.Role(1, 2, false)
	clk.Advance(5 * time.Second)
	want(t, "with a leader", h.Leaderless(), time.Duration(0))
	m.Role(2, 0, false)
	clk.Advance(2 * time.Second)
	m.Role(3, 0, false)
	clk.Advance(2 * time.Second)
	want(t, "since the leader was lost", h.Leaderless(), 4*time.Second)
	m.Failed(errNoReader)
	want(t, "of a member that hears nothing more", h.Leaderless(), time.Duration(0))

	// One that joins later has yet to hear of the group: that says nothing.
	if h, err = reg.CreateQuorum(durable(8), []Member{{ID: 9, Node: 1, Learner: true}}); err != nil {
		t.Fatal(err)
	}
	clk.Advance(time.Minute)
	want(t, "of a member that joins", h.Leaderless(), time.Duration(0))
}
