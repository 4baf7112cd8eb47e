package broker

import (
	"errors"
	"testing"

	"holdfast/internal/amqperr"
)

// holdCollector keeps the collector of unused queues from running until the function that it returns is called.
func (r *rig) holdCollector() (letGo func()) {
	c := r.collector
	c.mu.Lock()
	defer c.mu.Unlock()
	c.running = true
	return func() { go c.run() }
}

// waysToLeave are the ways in which a consumer leaves its queue. Each returns when its client has the answer.
var waysToLeave = map[string]func(*client, *Subscription){
	"detach":     func(c *client, s *Subscription) { answered(c.t, s.Detach) },
	"cancel":     func(c *client, s *Subscription) { answered(c.t, s.Cancel) },
	"channel":    func(c *client, s *Subscription) { answered(c.t, func(done func()) { c.CloseChannel(1, done) }) },
	"connection": func(c *client, s *Subscription) { c.end() },
}

func answered(t testing.TB, ask func(done func())) {
	t.Helper()
	done := make(chan struct{})
	ask(func() { close(done) })
	wait(t, done)
}

// R420: who knows that the last consumer of an auto-delete queue has left finds the queue gone, although the catalog has
// yet to delete it, and declares it anew.
func TestAutoDeleteIsGoneWhenItsConsumerIs(t *testing.T) {
	for how, leave := range waysToLeave {
		t.Run(how, func(t *testing.T) {
			r := newRig(t)
			letGo := r.holdCollector()
			first, second := r.connect(), r.connect()
			first.declare(DeclareQueue{Name: "q", AutoDelete: true})
			old := r.view().Queue(vhost, "q").ID
			s, err := first.Consume(Consume{Queue: "q", Tag: "a", Channel: 1, Credit: Unlimited, Consumer: &receiver{}})
			ok(t, "consume", err)
			leave(first, s)

			_, err = second.DeclareQueue(DeclareQueue{Name: "q", Passive: true})
			refused(t, "passive declare", err, 404)
			_, err = second.Consume(Consume{Queue: "q", Tag: "b", Channel: 1, Credit: Unlimited, Consumer: &receiver{}})
			refused(t, "consume", err, 404)
			_, err = second.Get(Get{Queue: "q", Channel: 1})
			refused(t, "get", err, 404)

			declared := make(chan struct{})
			go func() {
				defer close(declared)
				second.declare(DeclareQueue{Name: "q", AutoDelete: true})
			}()
			letGo()
			wait(t, declared)
			_, err = second.Consume(Consume{Queue: "q", Tag: "b", Channel: 1, Credit: Unlimited, Consumer: &receiver{}})
			ok(t, "consume of the new queue", err)
			if q := r.view().Queue(vhost, "q"); q.ID == old {
				t.Error("it is the old queue")
			}
		})
	}
}

// R420: nothing is bound to a queue that goes.
func TestBindWaitsForAutoDelete(t *testing.T) {
	r := newRig(t)
	letGo := r.holdCollector()
	c := r.connect()
	c.declare(DeclareQueue{Name: "q", AutoDelete: true})
	s, err := c.Consume(Consume{Queue: "q", Tag: "a", Channel: 1, Credit: Unlimited, Consumer: &receiver{}})
	ok(t, "consume", err)
	answered(t, s.Detach)
	bound := make(chan *amqperr.Error)
	go func() { bound <- c.Bind(Bind{Source: "amq.direct", Destination: "q"}) }()
	letGo()
	refused(t, "bind", <-bound, 404)
}

// failing is a catalog's worker that carries nothing out.
type failing struct{}

func (failing) Propose(_ []byte, _ bool, done func(any, error)) { done(nil, errors.New("on purpose")) }

// R420: an auto-delete queue that the catalog cannot delete goes on.
func TestAutoDeleteThatCannotBeDeletedStays(t *testing.T) {
	r := newRig(t)
	c := r.connect()
	c.declare(DeclareQueue{Name: "q", AutoDelete: true})
	s, err := c.Consume(Consume{Queue: "q", Tag: "a", Channel: 1, Credit: Unlimited, Consumer: &receiver{}})
	ok(t, "consume", err)
	letGo := r.holdCollector()
	answered(t, s.Detach)
	q := r.view().Queue(vhost, "q")
	before := r.commands
	r.commands = failing{}
	letGo()
	if _, err := r.awaitGoing(q.ID); err != nil {
		t.Fatal(err)
	}
	r.commands = before
	got := &receiver{}
	s, err = c.Consume(Consume{Queue: "q", Tag: "b", Channel: 1, Credit: Unlimited, Consumer: got})
	ok(t, "consume", err)
	c.send("", "q", "x")
	eventually(t, "a delivery", func() bool { return len(got.got()) == 1 })
	if r.view().Queue(vhost, "q").ID != q.ID {
		t.Error("it is another queue")
	}
	answered(t, s.Detach)
	eventually(t, "the queue goes", func() bool { return r.view().QueueByID(q.ID) == nil })
}
