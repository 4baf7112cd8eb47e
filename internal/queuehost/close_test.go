package queuehost

import (
	"testing"
	"time"

	"holdfast/internal/bytecodec"
	"holdfast/internal/seglog"
)

// The end of a session overtakes settlements, which go on another path: it waits for them. Else they would be taken for
// the first of a new session, which makes no sense, and all sessions of the link would be over.
func TestFarCloseWaitsForSettlements(t *testing.T) {
	rig := newRig(t, newFakeLog(), []QueueDef{{ID: 5, Name: "q", Durable: true}})
	g := rig.reg.guest(2)
	send := func(kind farKind, n uint64) bool {
		head := farHead{kind: kind, life: life{incarnation: 1, epoch: 1}, queue: 5}
		c := newCut(bytecodec.AppendUint(head.append(nil), n))
		got, ok := c.head()
		return ok && g.receive(got, c)
	}
	if !send(farUrgent, 1) || !send(farClose, 3) || !send(farUrgent, 2) {
		t.Fatal("a message is said to make no sense")
	}
	if g.sessions[5] == nil {
		t.Fatal("the session ended before all has come")
	}
	if !send(farUrgent, 3) {
		t.Fatal("the last settlements are said to make no sense")
	}
	if g.sessions[5] != nil {
		t.Fatal("the session did not end")
	}
}

// Chunks of publishes that belong to no session are counted, since they are owed for; a node that names more queues than
// there are is not believed.
func TestFarChunksForNoSessionAreBounded(t *testing.T) {
	rig := newRig(t, newFakeLog(), nil)
	g := rig.reg.guest(2)
	receive := func(id int) bool {
		head := farHead{kind: farChunk, life: life{incarnation: 1, epoch: 1}, queue: seglog.GroupID(id), try: 1}
		c := newCut(append(head.append(nil), "chunk"...))
		got, ok := c.head()
		return ok && g.receive(got, c)
	}
	for id := range mostStray {
		if !receive(id + 1) {
			t.Fatalf("chunks for %d queues make no sense", id+1)
		}
	}
	if !receive(1) {
		t.Fatal("another chunk for the same queue makes no sense")
	}
	if receive(mostStray + 1) {
		t.Fatal("chunks for any number of queues are taken")
	}
	g.reject()
	if g.stray != nil {
		t.Fatal("what made no sense is kept")
	}
}

// A node with sessions that this one does not know of the cluster counts as removed when it has been unknown for long: if the cluster
// was told of it meanwhile it does not. So does one that was of the cluster when this node met it, and is not any more.
func TestStrangersAreRemoved(t *testing.T) {
	members := map[uint64]bool{3: true}
	rig := newRig(t, newFakeLog(), nil, func(_ *replicaOptions, o *Options) { o.Member = func(n uint64) bool { return members[n] } })
	for _, node := range []uint64{3, 4, 5} {
		rig.reg.meet(node)
	}
	rig.reg.Tick()
	gone := func(node uint64) bool { return rig.reg.health.of(node).gone == everyProcess }
	rig.clock.Advance(strangerFor / 2)
	rig.reg.meet(4) // again
	rig.reg.Tick()
	members[5] = true
	rig.clock.Advance(strangerFor/2 - time.Millisecond)
	rig.reg.Tick()
	want(t, "too early", []bool{gone(3), gone(4), gone(5)}, []bool{false, false, false})
	rig.clock.Advance(time.Millisecond)
	rig.reg.Tick()
	want(t, "who is removed", []bool{gone(3), gone(4), gone(5)}, []bool{false, true, false})
	delete(members, 3)
	rig.reg.Tick()
	rig.clock.Advance(strangerFor)
	rig.reg.Tick()
	want(t, "who is removed then", []bool{gone(3), gone(4), gone(5)}, []bool{true, true, false})
	want(t, "nodes that may still be removed", len(rig.reg.health.met), 1)
}
