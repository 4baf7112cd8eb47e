package queuehost

import (
	"testing"

	"holdfast/internal/bytecodec"
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
