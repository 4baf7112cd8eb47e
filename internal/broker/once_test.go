package broker

import (
	"fmt"
	"sync/atomic"
	"testing"

	"holdfast/internal/message"
	"holdfast/internal/queuehost"
	"holdfast/internal/wire"
)

// onceRig has the exchange "once", which lets nothing through twice, and queues a and b that are bound to it.
func onceRig(t *testing.T) (*rig, *client) {
	t.Helper()
	r, _ := newSecondRig(t, queuehost.Options{Prompt: true})
	c := r.connect()
	c.exchange("once", "x-message-deduplication", map[string]any{"x-cache-size": 100, "x-cache-ttl": 60_000})
	for _, q := range []string{"a", "b"} {
		c.declare(DeclareQueue{Name: q, Durable: true})
		c.bind("once", q, "")
	}
	return r, c
}

func keyed(key any, more ...any) wire.Properties {
	h := wire.NewTable(nil).Append(message.DeduplicationHeader, key)
	for i := 0; i < len(more); i += 2 {
		h = h.Append(more[i].(string), more[i+1])
	}
	return wire.NewProperties(wire.PropertySet{DeliveryMode: 2, Headers: h})
}

// put publishes one message and returns what became of it: the worst outcome.
func (c *client) put(exchange, key, body string, p wire.Properties) Outcome {
	c.t.Helper()
	return c.putBy(c.Publisher(), exchange, key, body, p)
}

func (c *client) putBy(pub *Publisher, exchange, key, body string, p wire.Properties) Outcome {
	c.t.Helper()
	t := newTickets(0)
	n, err := publish(pub, exchange, key, p, body, t, 1)
	ok(c.t, "publish", err)
	t.mu.Lock()
	t.want = n
	t.mu.Unlock()
	pub.Flush()
	if n == 0 {
		return Accepted
	}
	wait(c.t, t.done)
	worst := Accepted
	for _, o := range t.all {
		if o != Accepted {
			worst = o
		}
	}
	return worst
}

// R550: of messages with one key each queue that is bound gets the first; those without a key go to all. The exchange forgets, one by one, what is too
// much, and is not asked by what comes another way.
func TestExchangeThatLetsNothingThroughTwice(t *testing.T) {
	r, c := onceRig(t)
	for i, p := range []wire.Properties{keyed("1"), keyed("2"), keyed("1"), {}, {}, keyed("2"), keyed(1), keyed(int8(1)), headers(map[string]any{"other": "1"})} {
		is(t, "outcome", c.put("once", fmt.Sprint("key", i%2), fmt.Sprint(i), p), Accepted)
	}
	is(t, "outcome", c.put("", "a", "direct", keyed("1")), Accepted)
	same(t, "a has", drain(c, "a"), []string{"0", "1", "3", "4", "6", "8", "direct"})
	same(t, "b has", drain(c, "b"), []string{"0", "1", "3", "4", "6", "8"})
	is(t, "duplicates", r.queues.Duplicates(), uint64(2*3))
	for i := range 100 {
		c.put("once", "", "more", keyed(fmt.Sprint("more", i)))
	}
	drain(c, "a")
	c.put("once", "", "again", keyed("1"))
	c.put("once", "", "not again", keyed("more99"))
	same(t, "a has", drain(c, "a"), []string{"again"})
}

// R550: what an operator publishes is looked at like anything else.
func TestOperatorsMessageComesOnce(t *testing.T) {
	r, c := onceRig(t)
	is(t, "the first", c.put("once", "", "1", keyed("1")), Accepted)
	for _, body := range []string{"2", "3"} {
		for _, key := range []string{"1", "2"} {
			n, err := r.AdminPublish(AdminPublish{VHost: vhost, Exchange: "once", Body: []byte(body + " of " + key),
				Properties: map[string]any{"headers": map[string]any{message.DeduplicationHeader: key}}})
			if n != 2 || err != nil {
				t.Fatal(n, err)
			}
		}
	}
	same(t, "a has", drain(c, "a"), []string{"1", "2 of 2"})
	same(t, "b has", drain(c, "b"), []string{"1", "2 of 2"})
}

// R553: what one queue has refused is no duplicate there, so that its repetition brings it there, and only there.
func TestNackedMessageIsNoDuplicate(t *testing.T) {
	_, c := onceRig(t)
	c.declare(DeclareQueue{Name: "small", Durable: true, Arguments: wire.NewTable(map[string]any{"x-max-length": 1, "x-overflow": "reject-publish"})})
	c.bind("once", "small", "")
	is(t, "the first", c.put("once", "", "1", keyed("1")), Accepted)
	is(t, "the second", c.put("once", "", "2", keyed("2")), Refused)
	same(t, "small has", drain(c, "small"), []string{"1"})
	is(t, "the second again", c.put("once", "", "2", keyed("2")), Accepted)
	is(t, "and again", c.put("once", "", "2", keyed("2")), Accepted)
	same(t, "small has", drain(c, "small"), []string{"2"})
	same(t, "a has", drain(c, "a"), []string{"1", "2"})
}

// R553: what leads nowhere leaves no key. A queue that is bound later has had nothing.
func TestUnroutableMessageIsNoDuplicate(t *testing.T) {
	_, c := onceRig(t)
	c.exchange("alone", "x-message-deduplication", map[string]any{"x-cache-size": 5})
	is(t, "queues", c.queues("alone", keyed("1")), 0)
	c.put("alone", "", "nowhere", keyed("1"))
	c.bind("alone", "a", "")
	is(t, "queues", c.queues("alone", keyed("1")), 1)
	c.put("alone", "", "1", keyed("1"))
	c.put("alone", "", "2", keyed("1"))
	c.bind("alone", "b", "")
	c.put("alone", "", "3", keyed("1"))
	same(t, "a has", drain(c, "a"), []string{"1"})
	same(t, "b has", drain(c, "b"), []string{"3"})
	ok(t, "delete", c.DeleteExchange(DeleteExchange{Name: "alone"}))
	c.exchange("alone", "x-message-deduplication", map[string]any{"x-cache-size": 5})
	c.bind("alone", "a", "")
	c.put("alone", "", "4", keyed("1"))
	same(t, "of a new exchange a has", drain(c, "a"), []string{"4"})
}

func (c *client) queues(exchange string, p wire.Properties) int {
	c.t.Helper()
	r, err := c.Publisher().Route([]byte(exchange), nil, p)
	ok(c.t, "route", err)
	return r.Queues()
}

// R552: for how long a message is to be known it can say itself.
func TestCacheTTLOfAMessage(t *testing.T) {
	_, c := onceRig(t)
	for _, bad := range []any{"5", 1.5, int64(message.MostDelay + 1)} {
		_, err := c.Publisher().Route([]byte("once"), nil, keyed("1", message.CacheTTLHeader, bad))
		refused(t, fmt.Sprint(bad), err, 406)
		_, err = c.Publisher().Route([]byte("amq.fanout"), nil, keyed("1", message.CacheTTLHeader, bad))
		ok(t, "elsewhere", err)
	}
	for i, p := range []wire.Properties{
		keyed("1", message.CacheTTLHeader, int32(0)), keyed("1", message.CacheTTLHeader, int32(-1)), keyed("1", message.CacheTTLHeader, nil), keyed("1"),
	} {
		c.put("once", "", fmt.Sprint(i), p)
	}
	same(t, "a has", drain(c, "a"), []string{"0", "1", "2"})
}

// R555: in a transaction, too. What comes in is in the order of the publishes.
func TestLetThroughOnceInATransaction(t *testing.T) {
	_, c := onceRig(t)
	p := c.Publisher()
	var hold []Held
	var ms []message.Message
	for i, props := range []wire.Properties{keyed("1"), keyed("2"), {}, keyed("1"), keyed("3")} {
		r, err := p.Route([]byte("once"), nil, props)
		ok(t, "route", err)
		var b message.Builder
		b.Begin("once", "", r.Properties(), 1, true)
		b.Write([]byte(fmt.Sprint(i)))
		hold, ms = append(hold, p.Hold(&r)), append(ms, b.Message())
	}
	for i := range hold {
		p.PublishHeld(&hold[i], ms[i])
	}
	done := newTickets(2)
	is(t, "queues", p.Involved(), 2)
	p.Commit(done)
	wait(t, done.done)
	c.put("once", "", "again", keyed("3"))
	for _, q := range []string{"a", "b"} {
		same(t, q, drain(c, q), []string{"0", "1", "2", "4"})
	}
}

// R556: what an exchange has delayed is looked at when it comes to one that lets nothing through twice; what has died is not.
func TestForwardedAndDeadMessages(t *testing.T) {
	r, c := onceRig(t)
	ok(t, "declare", c.DeclareExchange(DeclareExchange{Name: "later", Type: "x-delayed-message", Durable: true, Arguments: wire.NewTable(map[string]any{"x-delayed-type": "fanout"})}))
	ok(t, "bind", c.Bind(Bind{Source: "later", Destination: "once", ToExchange: true}))
	c.put("once", "", "1", keyed("1"))
	for i := range 4 {
		c.put("later", "", fmt.Sprint("later", i), keyed(fmt.Sprint(i/2), message.DelayHeader, int32(1+i*i)))
	}
	eventually(t, "all are forwarded", func() bool { return r.Totals().Forwarded == 4 })
	eventually(t, "there is what is new", func() bool { return r.ready("b") == 2 })
	same(t, "a has", drain(c, "a"), []string{"1", "later0"})

	dead := wire.NewTable(map[string]any{"x-dead-letter-exchange": "once", "x-message-ttl": 0})
	c.declare(DeclareQueue{Name: "dying", Durable: true, Arguments: dead})
	c.put("", "dying", "died", keyed("1"))
	eventually(t, "the letter is there", func() bool { return r.ready("a") == 1 })
	same(t, "a has", drain(c, "a"), []string{"died"})
}

// R624: where a node has gone on alone, an exchange may have the id of another one that was lost with the rest. What queues know of that one makes none of
// its messages a duplicate, whichever way they come.
func TestExchangeWithTheIDOfALostOne(t *testing.T) {
	r, c := onceRig(t)
	var forces atomic.Int64
	r.forces = func() int { return int(forces.Load()) }
	c.exchange("later", "x-delayed-message", map[string]any{"x-delayed-type": "fanout"})
	ok(t, "bind", c.Bind(Bind{Source: "later", Destination: "once", ToExchange: true}))
	pub := c.Publisher() // it knows the exchange from before
	put := func(exchange, body string, p wire.Properties) {
		t.Helper()
		is(t, "outcome of "+body, c.putBy(pub, exchange, "", body, p), Accepted)
	}
	put("once", "1", keyed("1"))
	put("once", "1 again", keyed("1"))
	forces.Store(1)
	c.declare(DeclareQueue{Name: "any", Durable: true}) // the catalog goes on
	put("once", "2", keyed("1"))
	put("once", "2 again", keyed("1"))
	same(t, "a has", drain(c, "a"), []string{"1", "2"})
	forces.Store(2)
	put("later", "3", keyed("1", message.DelayHeader, int32(1)))
	eventually(t, "it is forwarded", func() bool { return r.Totals().Forwarded == 1 })
	eventually(t, "it is there", func() bool { return r.ready("a") == 1 })
	c.declare(DeclareQueue{Name: "another", Durable: true})
	put("once", "3 again", keyed("1"))
	same(t, "a has", drain(c, "a"), []string{"3"})
}
