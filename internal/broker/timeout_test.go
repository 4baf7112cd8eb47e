package broker

import (
	"testing"
	"time"

	"holdfast/internal/amqperr"
	"holdfast/internal/catalog"
	"holdfast/internal/clock"
	"holdfast/internal/queuehost"
	"holdfast/internal/seglog"
)

// expire lets the bounded wait of the one request under way run out.
func (r *rig) expire(hands *clock.Manual) {
	r.t.Helper()
	eventually(r.t, "somebody waits", func() bool { return hands.Timers() == 1 })
	hands.Advance(r.settings.DeclareTimeout + time.Second)
}

// halt stops a queue's worker until release is called.
func (r *rig) halt(queue string) (release func()) {
	r.t.Helper()
	q := r.view().Queue(vhost, queue)
	h := r.queues.Get(seglog.GroupID(q.ID))
	halted, on := make(chan struct{}), make(chan struct{})
	h.Explain(func(queuehost.Explanation) {
		close(halted)
		<-on
	})
	wait(r.t, halted)
	return func() { close(on) }
}

// Every wait is bounded, and what comes after it is put right.
func TestWaitsAreBounded(t *testing.T) {
	r := newRig(t)
	hands := clock.NewManual(time.Unix(1_700_000_000, 0))
	r.clock = hands
	c := r.connect()
	c.declare(DeclareQueue{Name: "q"})
	c.send("", "q", "one")

	timesOut := func(what string, do func() *amqperr.Error) {
		t.Helper()
		release := r.halt("q")
		answer := make(chan *amqperr.Error, 1)
		go func() { answer <- do() }()
		r.expire(hands)
		err := <-answer
		if err == nil || err.Code != amqperr.InternalError || err.Scope != amqperr.Channel {
			t.Errorf("%s: %v, want 541 of the channel", what, err)
		}
		release()
	}
	started := make(chan struct{}, 1)
	timesOut("consume", func() *amqperr.Error {
		_, err := c.Consume(Consume{
			Queue: "q", Tag: "t", Channel: 1, Credit: Unlimited, Consumer: &receiver{},
			Started: func(*Subscription) { started <- struct{}{} },
		})
		return err
	})
	timesOut("get", func() *amqperr.Error {
		_, err := c.Get(Get{Queue: "q", Channel: 1, Got: func(*Subscription, Delivery, uint64) { started <- struct{}{} }})
		return err
	})
	timesOut("purge", func() *amqperr.Error { _, err := c.PurgeQueue("q"); return err })
	timesOut("delete", func() *amqperr.Error { _, err := c.DeleteQueue(DeleteQueue{Name: "q", IfUnused: true}); return err })
	select {
	case <-started:
		t.Error("a request was carried out for a client that had been told that it failed")
	default:
	}
	// The late consumer was detached, the late message went back, and then the
	// late purge and the late delete did their work.
	eventually(t, "the late delete", func() bool { return r.view().Queue(vhost, "q") == nil && running(r) == 0 })

	held := &heldCommands{r.commands, make(chan struct{})}
	r.commands = held
	answer := make(chan *amqperr.Error, 1)
	go func() {
		_, err := c.DeclareQueue(DeclareQueue{Name: "late", Durable: true})
		answer <- err
	}()
	r.expire(hands)
	if err := <-answer; err == nil || err.Code != amqperr.InternalError {
		t.Errorf("declare: %v", err)
	}
	close(held.hold)
	eventually(t, "the late queue runs", func() bool {
		_, err := c.DeclareQueue(DeclareQueue{Name: "late", Passive: true})
		return err == nil
	})
}

// Who is deleted is cut off, though the disk has not answered.
func TestDeletedIsCutOffBeforeTheDiskAnswers(t *testing.T) {
	r := newRig(t)
	hands := clock.NewManual(time.Unix(1_700_000_000, 0))
	r.clock = hands
	r.must(catalog.AddUser(catalog.User{Name: "ann"}))
	r.must(catalog.SetPermissions(catalog.Permission{User: "ann", VHost: vhost}))
	held := &heldCommands{r.commands, make(chan struct{})}
	r.commands = held
	defer close(held.hold)
	for _, c := range []struct {
		name string
		who  *client
		do   func() error
		gone func() bool
	}{
		{"user", r.connectAs("ann"), func() error { return r.DeleteUser("ann") },
			func() bool { return r.view().User("ann") == nil }},
		{"vhost", r.connect(), func() error { return r.DeleteVHost(vhost) },
			func() bool { return r.view().VHost(vhost) == nil }},
	} {
		answer := make(chan error, 1)
		go func() { answer <- c.do() }()
		eventually(t, c.name+" is gone from the view", c.gone)
		r.expire(hands)
		if err := <-answer; err == nil {
			t.Errorf("%s: deleted without the disk", c.name)
		}
		if c.who.wasClosed() == nil {
			t.Errorf("%s: still connected", c.name)
		}
	}
}
