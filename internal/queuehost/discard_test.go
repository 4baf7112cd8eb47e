package queuehost

import (
	"testing"

	"holdfast/internal/clock"
	"holdfast/internal/replica"
	"holdfast/internal/seglog"
)

// newHitRig is a node whose log has lost something of group 7.
func newHitRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, log: newFakeLog(), clock: clock.NewManual(testTime)}
	r.log.hits = []seglog.Hit{{Group: 7, Reason: "index gap"}}
	r.node = replica.Open(replica.Options{Log: r.log, NodeID: 1, Shards: 1, Clock: r.clock})
	r.reg = New(Options{Log: r.log, Clock: r.clock, Node: r.node, Self: 1, Stepped: true, Incarnation: 1})
	return r
}

// What the log has of a member that had left before is discarded at a start: the queue, which goes on elsewhere, stays
// reachable here, and a new member of it begins when the old data have ended, also if it is here before that.
func TestDiscardLeavesTheQueue(t *testing.T) {
	others := []Member{{ID: 2, Node: 2}, {ID: 3, Node: 3}}
	with := append([]Member{{ID: 101, Node: 1, Learner: true}}, others...)
	for name, soon := range map[string]bool{"new member before the end": true, "new member after the end": false} {
		t.Run(name, func(t *testing.T) {
			r := newHitRig(t)
			h, err := r.reg.CreateQuorum(durable(7), others)
			if err != nil {
				t.Fatal(err)
			}
			r.node.Prepare()
			want(t, "orphan", r.reg.Orphans(), []Orphan{{ID: 7, Reason: "index gap"}})
			for range 2 { // the second one finds it on its way
				if err := r.reg.Discard(7); err != nil {
					t.Fatal(err)
				}
				r.reg.Hit(seglog.Hit{Group: 7, Reason: "index gap"})
			}
			if !soon {
				r.settle()
			}
			r.reg.SetMembers(7, with)
			r.settle()
			if r.reg.Get(7) != h {
				t.Fatal("the queue cannot be reached any more")
			}
			m := r.reg.member(7)
			if m == nil || m.is() != 101 || m.refusal() != nil {
				t.Fatal("the new member does not run")
			}
			want(t, "the first record", r.log.records[0].Kind, seglog.KindDrop)
			for _, rec := range r.log.records[1:] {
				if rec.Kind == seglog.KindDrop {
					t.Error("the new member has ended")
				}
			}
			want(t, "orphans", len(r.reg.Orphans()), 0)
			want(t, "damaged", len(r.reg.Damaged()), 0)
			want(t, "that have yet to end", len(r.reg.ending), 0)
		})
	}
}

// A queue that becomes known here with a member, while data of an earlier one have yet to end, has it when they have.
func TestQueueIsKnownWhileDataEnd(t *testing.T) {
	r := newHitRig(t)
	r.node.Prepare()
	if err := r.reg.Discard(7); err != nil {
		t.Fatal(err)
	}
	if _, err := r.reg.CreateQuorum(durable(7), []Member{{ID: 101, Node: 1, Learner: true}}); err != nil {
		t.Fatal(err)
	}
	r.settle()
	if m := r.reg.member(7); m == nil || m.is() != 101 || m.refusal() != nil {
		t.Fatal("the new member does not run")
	}
	want(t, "the first record", r.log.records[0].Kind, seglog.KindDrop)
}

// A member that comes to a node whose log has lost something of its group, which nobody has discarded, does not vote: it may be
// the very one whose votes are lost.
func TestMemberComesToADamagedLog(t *testing.T) {
	r := newHitRig(t)
	others := []Member{{ID: 2, Node: 2}, {ID: 3, Node: 3}}
	if _, err := r.reg.CreateQuorum(durable(7), others); err != nil {
		t.Fatal(err)
	}
	r.node.Prepare()
	r.reg.SetMembers(7, append([]Member{{ID: 1, Node: 1}}, others...))
	r.settle()
	want(t, "damaged", r.reg.Damaged(), []seglog.GroupID{7})
	r.reg.SetMembers(7, append([]Member{{ID: 101, Node: 1, Learner: true}}, others...))
	r.settle()
	if m := r.reg.member(7); m == nil || m.is() != 101 || m.refusal() != nil {
		t.Fatal("the new member does not run")
	}
	want(t, "damaged afterwards", len(r.reg.Damaged()), 0)
}

// A member whose data cannot even be read as far as to say which one it was stays out of service as long as the catalog has one
// on its node: an empty one in its place would vote once more. It is removed before another one comes.
func TestMemberThatCannotBeReadDoesNotBeginAnew(t *testing.T) {
	r := newHitRig(t)
	r.log.hits = nil
	r.log.records = []seglog.Replayed{{Group: 7, Kind: seglog.KindSnapshot, Term: 1, Index: 1, Meta: []byte{255}}}
	r.log.stable = 1
	if err := r.node.Replay(r.reg.Host); err != nil {
		t.Fatal(err)
	}
	others := []Member{{ID: 2, Node: 2}, {ID: 3, Node: 3}}
	all := append([]Member{{ID: 1, Node: 1}}, others...)
	if _, err := r.reg.CreateQuorum(durable(7), all); err != nil {
		t.Fatal(err)
	}
	r.node.Prepare()
	r.settle()
	r.reg.SetMembers(7, all) // nothing new
	r.settle()
	want(t, "damaged", r.reg.Damaged(), []seglog.GroupID{7})
	want(t, "records", len(r.log.records), 1)
	r.reg.SetMembers(7, others)
	r.reg.SetMembers(7, append([]Member{{ID: 101, Node: 1, Learner: true}}, others...))
	r.settle()
	if m := r.reg.member(7); m == nil || m.is() != 101 || m.refusal() != nil {
		t.Fatal("the new member does not run")
	}
	want(t, "damaged afterwards", len(r.reg.Damaged()), 0)
}
