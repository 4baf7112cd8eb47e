package broker

import (
	"fmt"
	"testing"

	"holdfast/internal/amqperr"
	"holdfast/internal/catalog"
	"holdfast/internal/message"
	"holdfast/internal/queuehost"
	"holdfast/internal/wire"
)

// delayRig is a rig at level 2, with an exchange that delays.
func delayRig(t *testing.T) (*rig, *client) {
	t.Helper()
	r, _ := newSecondRig(t, queuehost.Options{TailCache: 1, Prompt: true})
	c := r.connect()
	ok(t, "declare", c.DeclareExchange(DeclareExchange{Name: "later", Type: "x-delayed-message", Durable: true,
		Arguments: wire.NewTable(map[string]any{"x-delayed-type": "direct", "alternate-exchange": "amq.fanout"})}))
	return r, c
}

// sendLater publishes a message with a delay, and waits until it is confirmed.
func (c *client) sendLater(key, body string, ms int64) {
	c.t.Helper()
	p, done := c.Publisher(), make(ticketOf, 1)
	c.lineUp(p, done, key, body, ms)
	p.Flush()
	is(c.t, "outcome", <-done, Accepted)
}

func (c *client) lineUp(p *Publisher, done ticketOf, key, body string, ms int64) {
	c.t.Helper()
	properties := wire.NewProperties(wire.PropertySet{DeliveryMode: 2, Headers: wire.NewTable(nil).Append(message.DelayHeader, ms)})
	r, err := p.Route([]byte("later"), []byte(key), properties)
	ok(c.t, "route", err)
	is(c.t, "counts as routed", r.Queues(), 1)
	var b message.Builder
	b.Begin("later", key, r.Properties(), uint64(len(body)), true)
	b.Write([]byte(body))
	p.Publish(&r, Publish{Message: b.Message(), Persistent: true, Ticket: done, Seq: 1})
}

type ticketOf chan Outcome

func (t ticketOf) Settled(first, last uint64, o Outcome) { t <- o }

func (r *rig) bodies(queue string, n int) (list []string) {
	r.t.Helper()
	got, err := r.AdminGet(vhost, queue, n, false)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, m := range got {
		list = append(list, string(m.Body))
	}
	return list
}

// R456: many more than are out at a time, of which the bodies are not in memory, leave in the order of their times.
func TestDelayedMessagesLeaveInOrder(t *testing.T) {
	r, c := delayRig(t)
	c.declare(DeclareQueue{Name: "q", Durable: true})
	ok(t, "bind", c.Bind(Bind{Source: "later", Destination: "q", RoutingKey: "k"}))
	const count = 600
	p, done := c.Publisher(), make(ticketOf, count)
	for i := range count {
		at := i * 7 % count // some order
		c.lineUp(p, done, "k", fmt.Sprint(at), int64(1+at/2))
	}
	p.Flush() // all at one time
	for range count {
		is(t, "outcome", <-done, Accepted)
	}
	c.sendLater("k", "never", message.MostDelay)
	list, err := r.ListExchanges(vhost)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range list {
		switch {
		case x.Name == "later":
			if n := *x.MessagesDelayed; n < 1 || n > count+1 {
				t.Errorf("%d messages are delayed", n)
			}
		case x.MessagesDelayed != nil:
			t.Errorf("%s delays %d messages", x.Name, *x.MessagesDelayed)
		}
	}
	eventually(t, "all have arrived", func() bool { return r.ready("q") == count })
	for i, body := range r.bodies("q", count) {
		var at int
		fmt.Sscan(body, &at)
		if at/2 != i/2 {
			t.Fatalf("message %d is %s", i, body)
		}
	}
	is(t, "carried", r.Totals().Forwarded, uint64(count))
	is(t, "dead letters", r.letters.totals().Confirmed, uint64(0))
}

// R454: what has no route when its time has come is dropped and counted, and goes to the alternate exchange if that has one.
func TestDelayedMessageWithoutARoute(t *testing.T) {
	r, c := delayRig(t)
	c.declare(DeclareQueue{Name: "q", Durable: true})
	c.sendLater("k", "lost", 5)
	eventually(t, "it is dropped", func() bool { return r.Totals().ForwardedDropped["no_route"] == 1 })
	ok(t, "bind", c.Bind(Bind{Source: "amq.fanout", Destination: "q"}))
	c.sendLater("k", "found", 5)
	eventually(t, "the alternate exchange has it", func() bool { return r.ready("q") == 1 })
	is(t, "which", fmt.Sprint(r.bodies("q", 1)), "[found]")
}

// R455: nobody reaches the store of an exchange by a name, and it goes with the exchange, or with its vhost.
func TestStoreOfAnExchange(t *testing.T) {
	r, c := delayRig(t)
	c.sendLater("k", "x", message.MostDelay)
	store := r.view().Exchange(vhost, "later").Store
	q := r.view().QueueByID(store)
	refused(t, "purge", func() *amqperr.Error { _, err := c.PurgeQueue(q.Name); return err }(), 404)
	refused(t, "bind", c.Bind(Bind{Source: "amq.direct", Destination: q.Name}), 404)
	if p := c.Publisher(); true {
		route, err := p.Route(nil, []byte(q.Name), nil)
		ok(t, "route", err)
		is(t, "queues of that name", route.Queues(), 0)
	}
	list := r.ListAllQueues()
	is(t, "listed", len(list), 0)
	total, _ := r.CountQueues()
	is(t, "counted", total, 0)
	is(t, "in the totals", r.Totals().Queues, uint64(0))
	is(t, "delayed in the totals", r.Totals().Delayed, uint64(1))
	if err := r.AdminForceDeleteQueue(vhost, q.Name); err == nil {
		t.Error("it was deleted by name")
	}
	r.must(catalog.DeleteQueues([]catalog.QueueID{store}))
	if r.Handle(store) == nil {
		t.Error("it was deleted by its id")
	}
	ok(t, "delete", c.DeleteExchange(DeleteExchange{Name: "later"}))
	eventually(t, "it is gone", func() bool { return r.Handle(store) == nil })
}
