package broker

import (
	"testing"

	"holdfast/internal/seglog"
)

// R470: an operator pauses a queue and has it go on; what changes nothing writes nothing.
func TestPauseQueue(t *testing.T) {
	r := newRig(t)
	c := r.connect()
	c.declare(DeclareQueue{Name: "q", Durable: true})
	if err := r.AdminPauseQueue(vhost, "q", true); kind(err) != Unavailable {
		t.Errorf("at level 1: %v", err)
	}
	r = newRig2(t)
	c = r.connect()
	c.declare(DeclareQueue{Name: "q", Durable: true})
	before := r.view().Generation()
	paused := func(on bool) {
		t.Helper()
		info, err := r.QueueInfo(vhost, "q")
		if err != nil || info.Paused != on || info.State != "running" {
			t.Errorf("listed: %+v, %v", info, err)
		}
		if s := r.queues.Get(seglog.GroupID(info.ID)).Def().Settings; s.Paused != on || s.Backoff {
			t.Errorf("settings: %+v", s)
		}
	}
	for _, step := range []struct{ on, changes bool }{{false, false}, {true, true}, {true, false}, {false, true}} {
		if err := r.AdminPauseQueue(vhost, "q", step.on); err != nil {
			t.Fatal(err)
		}
		if now := r.view().Generation(); now != before+1 && step.changes || now != before && !step.changes {
			t.Errorf("%v: generation %d, %d before", step, now, before)
		}
		if before = r.view().Generation(); step.changes {
			paused(step.on)
		}
	}
	if err := r.AdminPauseQueue(vhost, "none", true); kind(err) != NotFound {
		t.Errorf("of nothing: %v", err)
	}
	if err := r.AdminPauseQueue("none", "q", true); kind(err) != NotFound {
		t.Errorf("nowhere: %v", err)
	}
}

// For the race detector, and for the order: of settings that change at once the last ones hold.
func TestSettingsThatChangeAtOnce(t *testing.T) {
	r := newRig2(t)
	r.catalog.Policies = r.PoliciesChanged
	c := r.connect()
	c.declare(DeclareQueue{Name: "q"})
	for range 50 {
		for _, on := range []bool{true, false} {
			if err := r.AdminPauseQueue(vhost, "q", on); err != nil {
				t.Fatal(err)
			}
		}
	}
	h := r.queues.Get(seglog.GroupID(r.view().Queue(vhost, "q").ID))
	eventually(t, "it goes on", func() bool { return !h.Def().Settings.Paused })
}
