package broker

import (
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"

	"holdfast/internal/amqperr"
	"holdfast/internal/wire"
)

// Started comes before the first delivery, and what is not acknowledged goes back when the channel closes.
func TestConsumeSettleAndCloseChannel(t *testing.T) {
	r := newRig(t)
	c := r.connect()
	c.declare(DeclareQueue{Name: "q"})
	for i := range 5 {
		c.send("", "q", fmt.Sprint(i))
	}
	got := &receiver{}
	s, err := c.Consume(Consume{
		Queue: "q", Tag: "t", Channel: 7, Prefetch: 3, Credit: Unlimited, Consumer: got,
		Started: func(*Subscription) {
			if len(got.got()) > 0 {
				t.Error("a delivery came before the consumer had started")
			}
		},
	})
	ok(t, "consume", err)
	if s.Queue() != "q" || s.ReplyTo() != "" {
		t.Errorf("subscription to %q, reply to %q", s.Queue(), s.ReplyTo())
	}
	eventually(t, "three deliveries", func() bool { return len(got.got()) == 3 })
	s.Settle([]Range{{First: got.ids[1], Last: got.ids[1]}}, Ack)
	eventually(t, "a fourth", func() bool { return len(got.got()) == 4 })
	closed := make(chan struct{})
	c.CloseChannel(7, func() { close(closed) })
	wait(t, closed)
	if got := drain(c, "q"); !reflect.DeepEqual(got, []string{"0", "2", "3", "4"}) {
		t.Errorf("left in the queue: %v", got)
	}
}

// drain fetches everything that is ready.
func drain(c *client, queue string) (bodies []string) {
	c.t.Helper()
	for {
		r := &receiver{}
		found, err := c.Get(Get{Queue: queue, Channel: 1, NoAck: true, Got: func(_ *Subscription, d Delivery, _ uint64) { r.Deliver([]Delivery{d}) }})
		ok(c.t, "get", err)
		if !found {
			return bodies
		}
		bodies = append(bodies, r.bodies...)
	}
}

// The messages of a channel's gets are held under one getter a queue, and go back with the channel.
func TestGet(t *testing.T) {
	c := newRig(t).connect()
	c.declare(DeclareQueue{Name: "q"})
	for i := range 3 {
		c.send("", "q", fmt.Sprint(i))
	}
	var subs []*Subscription
	var lefts []uint64
	var ids []uint64
	get := func() bool {
		found, err := c.Get(Get{Queue: "q", Channel: 1, Got: func(s *Subscription, d Delivery, left uint64) {
			subs, lefts, ids = append(subs, s), append(lefts, left), append(ids, d.ID)
		}})
		ok(t, "get", err)
		return found
	}
	for range 3 {
		if !get() {
			t.Fatal("nothing to get")
		}
	}
	if get() {
		t.Error("a fourth message")
	}
	if !reflect.DeepEqual(lefts, []uint64{2, 1, 0}) || subs[0] != subs[2] {
		t.Errorf("left %v, getters %v", lefts, subs)
	}
	subs[0].Settle([]Range{{First: ids[1], Last: ids[1]}}, Ack)
	subs[0].Settle([]Range{{First: ids[2], Last: ids[2]}}, Requeue)
	if !get() {
		t.Error("what was requeued is not there")
	}
	closed := make(chan struct{})
	c.CloseChannel(1, func() { close(closed) })
	wait(t, closed)
	if got := drain(c, "q"); !reflect.DeepEqual(got, []string{"0", "2"}) {
		t.Errorf("left in the queue: %v", got)
	}
}

// A channel that fetches from ever new queues keeps nothing of those that are gone.
func TestGettersGoWithTheirQueues(t *testing.T) {
	c := newRig(t).connect()
	for i := range 3 {
		name := c.declare(DeclareQueue{Name: fmt.Sprint("q", i)})
		_, err := c.Get(Get{Queue: name, Channel: 1})
		ok(t, "get", err)
		_, err = c.DeleteQueue(DeleteQueue{Name: name})
		ok(t, "delete", err)
	}
	c.Conn.mu.Lock()
	defer c.Conn.mu.Unlock()
	if n := len(c.channels[1].getters); n != 0 {
		t.Errorf("%d getters are kept", n)
	}
}

// T35: an exclusive consumer is alone, and arguments are checked.
func TestConsumeRefusals(t *testing.T) {
	c := newRig(t).connect()
	c.declare(DeclareQueue{Name: "q"})
	consume := func(exclusive bool, args map[string]any) (*Subscription, *amqperr.Error) {
		return c.Consume(Consume{
			Queue: "q", Tag: "t", Channel: 1, Exclusive: exclusive, Credit: Unlimited,
			Consumer: &receiver{}, Arguments: wire.NewTable(args),
		})
	}
	s, err := consume(true, nil)
	ok(t, "consume", err)
	_, err = consume(false, nil)
	refused(t, "beside an exclusive consumer", err, 403)
	gone := make(chan struct{})
	s.Detach(func() { close(gone) })
	wait(t, gone)
	s, err = consume(false, map[string]any{"x-priority": int32(0), "x-unknown": "ignored"})
	ok(t, "consume", err)
	_, err = consume(true, nil)
	refused(t, "exclusive beside another", err, 403)
	for _, args := range []map[string]any{
		{"x-priority": "high"}, {"x-priority": int32(5)}, {"x-stream-offset": "first"},
		{"x-consumer-timeout": "long"}, {"x-consumer-timeout": int32(1000)},
	} {
		_, err := consume(false, args)
		refused(t, fmt.Sprint(args), err, 406)
	}
	s.Detach(nil)
}

// A connection that ends while its channels attach consumers leaves none behind.
func TestConsumeRacesWithClose(t *testing.T) {
	r := newRig(t)
	stays := r.connect()
	stays.declare(DeclareQueue{Name: "q"})
	for range 50 {
		c := r.connect()
		var wg sync.WaitGroup
		for n := range 4 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for range 5 {
					c.Consume(Consume{Queue: "q", Tag: "t", Channel: uint16(n), Credit: Unlimited, Consumer: &receiver{}})
					c.Get(Get{Queue: "q", Channel: uint16(n), Got: func(*Subscription, Delivery, uint64) {}})
				}
			}()
		}
		c.end()
		wg.Wait()
	}
	eventually(t, "no consumer left", func() bool {
		q, err := stays.DeclareQueue(DeclareQueue{Name: "q", Passive: true})
		return err == nil && q.Consumers == 0
	})
	if n := stays.send("", "q", "for the one who stays"); n != 1 {
		t.Errorf("%d queues", n)
	}
	eventually(t, "the message", func() bool { return len(drain(stays, "q")) == 1 })
}

// T42, R421: replies reach the channel that consumes the pseudo queue, as long as it does.
func TestDirectReplyTo(t *testing.T) {
	r := newRig(t)
	asking, serving := r.connect(), r.connect()
	got := &receiver{}
	consume := Consume{Queue: ReplyTo, Tag: "t", Channel: 1, NoAck: true, Credit: Unlimited, Consumer: got}
	withAck := consume
	withAck.NoAck = false
	_, err := asking.Consume(withAck)
	refused(t, "with acknowledgements", err, 406)
	s, err := asking.Consume(consume)
	ok(t, "consume", err)
	_, err = asking.Consume(consume)
	refused(t, "a second one on the channel", err, 406)
	refused(t, "bind", asking.Bind(Bind{Source: "amq.direct", Destination: ReplyTo}), 403)
	for _, name := range []string{ReplyTo, s.ReplyTo()} {
		q, err := serving.DeclareQueue(DeclareQueue{Name: name, Passive: true})
		if err != nil || q.Consumers != 1 || q.Name != name {
			t.Errorf("declare of %q: %+v, %v", name, q, err)
		}
	}
	if n := serving.send("", s.ReplyTo(), "answer"); n != 1 {
		t.Errorf("the reply went to %d queues", n)
	}
	eventually(t, "the reply", func() bool { return reflect.DeepEqual(got.got(), []string{"answer"}) })
	if n := serving.send("", ReplyTo+".nobody", "answer"); n != 0 {
		t.Errorf("a reply to nobody went to %d queues", n)
	}
	s.Detach(nil)
	if n := serving.send("", s.ReplyTo(), "too late"); n != 0 {
		t.Errorf("a reply after the end went to %d queues", n)
	}
	for name, unroutable := range map[string]bool{
		s.ReplyTo(): false, ReplyTo: true, ReplyTo + ".nobody": true, s.ReplyTo() + "AAAA": true,
		strings.Replace(s.ReplyTo(), ".reply-to.AAAA", ".reply-to.AAAB", 1): true, // of another node, which does not say whom it had
	} {
		route, err := serving.Publisher().Route(nil, []byte(name), nil)
		if err != nil || route.Queues() != 0 || route.Unroutable() != unroutable {
			t.Errorf("a publish to %q after the end: %+v, %v", name, route, err)
		}
	}
	_, err = serving.DeclareQueue(DeclareQueue{Name: s.ReplyTo(), Passive: true})
	refused(t, "declare after the end", err, 404)
	s, err = asking.Consume(consume)
	ok(t, "consume anew", err)
	asking.end()
	if n := serving.send("", s.ReplyTo(), "too late"); n != 0 {
		t.Errorf("a reply after the connection's end went to %d queues", n)
	}
	eventually(t, "nothing running", func() bool { return running(r) == 0 })
}
