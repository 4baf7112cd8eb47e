package blackbox

import (
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"holdfast/test/raw"
)

// R42 R44 T24 T26 T27: what may be declared, deleted, bound and unbound, and
// the code of what may not. Every case has a channel of its own.
func TestTopologyFaults(t *testing.T) {
	setup := open(t)
	q := queue(t, setup)
	x := exchange(t, setup, "direct", nil)
	full := queue(t, setup)
	put(t, full, "one")
	used := queue(t, setup)
	consume(t, setup, used)
	bound := exchange(t, setup, "fanout", nil)
	ok(t, setup.QueueBind(q, "", bound, false, nil))
	source := exchange(t, setup, "fanout", nil)
	ok(t, setup.ExchangeBind(bound, "", source, false, nil))

	declare := func(args amqp.Table, durable, autoDelete, exclusive bool) func(ch *amqp.Channel) error {
		return func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare(q, durable, autoDelete, exclusive, false, args)
			return err
		}
	}
	fresh := func(args amqp.Table) func(ch *amqp.Channel) error {
		return func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare(name(t), true, false, false, false, args)
			return err
		}
	}
	for _, c := range []struct {
		name string
		do   func(ch *amqp.Channel) error
		code int // 0: no fault
	}{
		{"queue again", declare(nil, true, false, false), 0},
		{"queue again, durable flipped", declare(nil, false, false, false), 406},
		{"queue again, auto-delete flipped", declare(nil, true, true, false), 406},
		{"queue again, exclusive flipped", declare(nil, true, false, true), 405},
		{"queue again, unknown argument", declare(amqp.Table{"x-foo": "bar"}, true, false, false), 0},
		{"queue again, type named", declare(amqp.Table{"x-queue-type": "classic"}, true, false, false), 0},
		{"queue again, other type", declare(amqp.Table{"x-queue-type": "quorum"}, true, false, false), 406},
		{"queue of an unknown type", fresh(amqp.Table{"x-queue-type": "foo"}), 406},
		{"queue type is a number", fresh(amqp.Table{"x-queue-type": int32(1)}), 406},
		{"max-age on a classic queue", fresh(amqp.Table{"x-max-age": "1h"}), 406},
		{"max-priority too large", fresh(amqp.Table{"x-max-priority": int32(300)}), 406},
		{"false as an argument", fresh(amqp.Table{"x-foo": false}), 0},
		{"lazy mode", fresh(amqp.Table{"x-queue-mode": "lazy"}), 0},
		{"passive queue", func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclarePassive(q, false, true, false, false, nil)
			return err
		}, 0},
		{"passive queue not there", func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclarePassive(name(t), true, false, false, false, nil)
			return err
		}, 404},
		{"passive queue without a name", func(ch *amqp.Channel) error {
			if _, err := ch.QueueDeclarePassive(q, false, true, false, false, nil); err != nil {
				return err
			}
			_, err := ch.QueueDeclarePassive("", true, false, false, false, nil)
			return err
		}, 404},
		{"queue of the broker's names", func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare("amq.mine", true, false, false, false, nil)
			return err
		}, 403},
		{"exchange again", func(ch *amqp.Channel) error { return ch.ExchangeDeclare(x, "direct", false, false, false, false, nil) }, 0},
		{"exchange again, other kind", func(ch *amqp.Channel) error { return ch.ExchangeDeclare(x, "fanout", false, false, false, false, nil) }, 406},
		{"exchange again, durable flipped", func(ch *amqp.Channel) error { return ch.ExchangeDeclare(x, "direct", true, false, false, false, nil) }, 406},
		{"exchange again, auto-delete flipped", func(ch *amqp.Channel) error { return ch.ExchangeDeclare(x, "direct", false, true, false, false, nil) }, 406},
		{"exchange again, internal flipped", func(ch *amqp.Channel) error { return ch.ExchangeDeclare(x, "direct", false, false, true, false, nil) }, 406},
		{"exchange again, unknown argument", func(ch *amqp.Channel) error {
			return ch.ExchangeDeclare(x, "direct", false, false, false, false, amqp.Table{"x-foo": 1})
		}, 0},
		{"exchange again, other alternate", func(ch *amqp.Channel) error {
			return ch.ExchangeDeclare(x, "direct", false, false, false, false, amqp.Table{"alternate-exchange": "a"})
		}, 406},
		{"exchange of an unknown kind", func(ch *amqp.Channel) error {
			return ch.ExchangeDeclare(name(t), "sideways", false, false, false, false, nil)
		}, pick(t, "exchange-kind", 503, 406)},
		{"passive exchange", func(ch *amqp.Channel) error {
			return ch.ExchangeDeclarePassive(x, "topic", true, true, false, false, nil)
		}, 0},
		{"passive exchange not there", func(ch *amqp.Channel) error {
			return ch.ExchangeDeclarePassive(name(t), "direct", false, false, false, false, nil)
		}, 404},
		{"exchange of the broker's names", func(ch *amqp.Channel) error {
			return ch.ExchangeDeclare("amq.mine", "direct", false, false, false, false, nil)
		}, 403},
		{"broker's exchange as it is", func(ch *amqp.Channel) error {
			return ch.ExchangeDeclare("amq.topic", "topic", true, false, false, false, nil)
		}, 0},
		{"default exchange declared", func(ch *amqp.Channel) error {
			return ch.ExchangeDeclare("", "direct", true, false, false, false, nil)
		}, 403},
		{"default exchange deleted", func(ch *amqp.Channel) error { return ch.ExchangeDelete("", false, false) }, 403},
		{"broker's exchange deleted", func(ch *amqp.Channel) error { return ch.ExchangeDelete("amq.direct", false, false) }, 403},
		{"exchange deleted that is not there", func(ch *amqp.Channel) error { return ch.ExchangeDelete(name(t), false, false) }, 0},
		{"exchange with a queue deleted if unused", func(ch *amqp.Channel) error { return ch.ExchangeDelete(bound, true, false) }, 406},
		{"exchange with an exchange deleted if unused", func(ch *amqp.Channel) error { return ch.ExchangeDelete(source, true, false) }, 406},
		{"queue deleted that is not there", func(ch *amqp.Channel) error {
			_, err := ch.QueueDelete(name(t), false, false, false)
			return err
		}, 0},
		{"queue with a message deleted if empty", func(ch *amqp.Channel) error {
			_, err := ch.QueueDelete(full, false, true, false)
			return err
		}, 406},
		{"queue with a consumer deleted if unused", func(ch *amqp.Channel) error {
			_, err := ch.QueueDelete(used, true, false, false)
			return err
		}, 406},
		{"purge of a queue that is not there", func(ch *amqp.Channel) error {
			_, err := ch.QueuePurge(name(t), false)
			return err
		}, 404},
		{"bind to a missing exchange", func(ch *amqp.Channel) error { return ch.QueueBind(q, "k", name(t), false, nil) }, 404},
		{"bind a missing queue", func(ch *amqp.Channel) error { return ch.QueueBind(name(t), "k", x, false, nil) }, 404},
		{"bind to the default exchange", func(ch *amqp.Channel) error { return ch.QueueBind(q, "k", "", false, nil) }, 403},
		{"unbind from the default exchange", func(ch *amqp.Channel) error { return ch.QueueUnbind(q, q, "", nil) }, 403},
		{"unbind what is not bound", func(ch *amqp.Channel) error { return ch.QueueUnbind(q, "k", x, nil) }, 0},
		{"unbind from a missing exchange", func(ch *amqp.Channel) error { return ch.QueueUnbind(q, "k", name(t), nil) }, 0},
		{"unbind a missing queue", func(ch *amqp.Channel) error { return ch.QueueUnbind(name(t), "k", x, nil) }, 0},
		{"exchange bound to a missing one", func(ch *amqp.Channel) error { return ch.ExchangeBind(x, "k", name(t), false, nil) }, 404},
		{"exchange bound to the default one", func(ch *amqp.Channel) error { return ch.ExchangeBind(x, "k", "", false, nil) }, 403},
		{"exchange unbound that was not bound", func(ch *amqp.Channel) error { return ch.ExchangeUnbind(x, "k", bound, false, nil) }, 0},
		{"get from a queue that is not there", func(ch *amqp.Channel) error {
			_, _, err := ch.Get(name(t), true)
			return err
		}, 404},
		{"consume from a queue that is not there", func(ch *amqp.Channel) error {
			_, err := ch.Consume(name(t), "", true, false, false, false, nil)
			return err
		}, 404},
		{"headers binding with an odd x-match", func(ch *amqp.Channel) error {
			return ch.QueueBind(q, "", "amq.headers", false, amqp.Table{"x-match": "sometimes"})
		}, 406},
	} {
		t.Run(c.name, func(t *testing.T) {
			ch := open(t)
			err := c.do(ch)
			if c.code == 0 {
				ok(t, err)
				settled(t, ch)
				return
			}
			refused(t, err, c.code)
		})
	}
}

// T26: a refused redeclaration changes nothing.
func TestRefusedRedeclare(t *testing.T) { onEachType(t, testRefusedRedeclare) }

func testRefusedRedeclare(t *testing.T, kind string) {
	ch := open(t)
	q := queueOf(t, ch, kind)
	put(t, q, "kept")
	args := amqp.Table{"x-queue-type": kind}
	_, err := open(t).QueueDeclare(q, false, true, false, false, args)
	refused(t, err, 406)
	equal(t, "body", string(get(t, ch, q, true).Body), "kept")
	must(ch.QueueDeclare(q, true, false, false, false, args))(t)
}

// R42: a server-named queue, and the empty name that means the last one
// declared on the channel.
func TestServerNamedQueue(t *testing.T) {
	t.Parallel()
	ch := open(t)
	q := must(ch.QueueDeclare("", false, true, true, false, nil))(t)
	if !strings.HasPrefix(q.Name, "amq.gen-") {
		t.Fatalf("name is %q", q.Name)
	}
	other := must(ch.QueueDeclare("", false, true, true, false, nil))(t)
	if other.Name == q.Name {
		t.Fatalf("the same name twice: %q", q.Name)
	}
	ok(t, ch.QueueBind("", "last", "amq.direct", false, nil))
	route(t, "amq.direct", "last", "x")
	equal(t, "where it went", string(get(t, ch, other.Name, true).Body), "x")
	empty(t, ch, q.Name)
	equal(t, "purge of the last", must(ch.QueuePurge("", false))(t), 0)
}

// T24: the empty name without a declaration before it.
func TestNoLastQueue(t *testing.T) {
	t.Parallel()
	for what, do := range map[string]func(ch *amqp.Channel) error{
		"bind":    func(ch *amqp.Channel) error { return ch.QueueBind("", "k", "amq.direct", false, nil) },
		"consume": func(ch *amqp.Channel) error { _, err := ch.Consume("", "", true, false, false, false, nil); return err },
		"get":     func(ch *amqp.Channel) error { _, _, err := ch.Get("", true); return err },
		"purge":   func(ch *amqp.Channel) error { _, err := ch.QueuePurge("", false); return err },
		"delete":  func(ch *amqp.Channel) error { _, err := ch.QueueDelete("", false, false, false); return err },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			refused(t, do(open(t)), 404)
		})
	}
}

// T24: a binding made twice is one; with other arguments it is another, and
// still one copy arrives.
func TestSameBindingTwice(t *testing.T) { onEachType(t, testSameBindingTwice) }

func testSameBindingTwice(t *testing.T, kind string) {
	ch := open(t)
	q, x := queueOf(t, ch, kind), exchange(t, ch, "direct", nil)
	for _, args := range []amqp.Table{nil, nil, {"x": "1"}} {
		ok(t, ch.QueueBind(q, "k", x, false, args))
	}
	route(t, x, "k", "once")
	equal(t, "copies", depth(t, ch, q), 1)
	ok(t, ch.QueueUnbind(q, "k", x, nil))
	route(t, x, "k", "the other binding")
	equal(t, "copies", depth(t, ch, q), 2)
	ok(t, ch.QueueUnbind(q, "k", x, amqp.Table{"x": "1"}))
	route(t, x, "k", "none")
	equal(t, "copies", depth(t, ch, q), 2)
}

// R42: what declare, purge and delete count.
func TestCounts(t *testing.T) { onEachType(t, testCounts) }

func testCounts(t *testing.T, kind string) {
	ch := open(t)
	q := queueOf(t, ch, kind)
	put(t, q, "1", "2", "3")
	consume(t, channel(t, dial(t)), queueOf(t, ch, kind)) // another queue's consumer
	d := must(ch.QueueDeclarePassive(q, true, false, false, false, nil))(t)
	equal(t, "messages", d.Messages, 3)
	equal(t, "consumers", d.Consumers, 0)
	get(t, ch, q, false)
	equal(t, "ready beside one unacked", depth(t, ch, q), 2)
	equal(t, "purged", must(ch.QueuePurge(q, false))(t), 2)
	put(t, q, "4")
	ok(t, open(t).Qos(1, 0, false))
	cons := open(t)
	ok(t, cons.Qos(1, 0, false))
	next(t, consume(t, cons, q))
	consumers := 1
	if kind == "quorum" {
		consumers = pick(t, "quorum-getters", 2, 1)
	}
	equal(t, "consumers", must(ch.QueueDeclarePassive(q, true, false, false, false, nil))(t).Consumers, consumers)
	put(t, q, "5")
	equal(t, "messages deleted", must(ch.QueueDelete(q, false, false, false))(t), 1)
}

// R44: with no-wait there is no answer, and it is done before what follows.
func TestNoWait(t *testing.T) {
	t.Parallel()
	s := frames(t)
	q, x := name(t), name(t)
	removeQueue(t, q)
	none := raw.Table{}
	ok(t, s.Send(1, raw.QueueDeclare, uint16(0), q, raw.Bits{false, false, false, true, true}, none))
	ok(t, s.Send(1, raw.ExchangeDeclare, uint16(0), x, "direct", raw.Bits{false, false, true, false, true}, none))
	ok(t, s.Send(1, raw.QueueBind, uint16(0), q, x, "k", raw.Bits{true}, none))
	ok(t, s.Publish(1, x, "k", raw.NoProperties, []byte("routed")))
	ok(t, s.Send(1, raw.BasicConsume, uint16(0), q, "tag", raw.Bits{false, true, false, true}, none))
	a := must(s.Expect(1, raw.BasicDeliver))(t)
	equal(t, "consumer tag", a.Str(), "tag")
	for range 2 {
		must(s.ReadFrame())(t)
	}
	ok(t, s.Send(1, raw.BasicCancel, "tag", raw.Bits{true}))
	ok(t, s.Publish(1, x, "k", raw.NoProperties, []byte("purged")))
	ok(t, s.Send(1, raw.QueuePurge, uint16(0), q, raw.Bits{true}))
	ok(t, s.Send(1, raw.ExchangeDelete, uint16(0), x, raw.Bits{false, true}))
	ok(t, s.Send(1, raw.QueueDelete, uint16(0), q, raw.Bits{false, false, true}))
	ok(t, s.Send(1, raw.ConfirmSelect, raw.Bits{true}))
	ok(t, s.Send(1, raw.QueueDeclare, uint16(0), q, raw.Bits{true, false, false, false, false}, none)) // passive, waits
	faults(t, s, chanFault, 404)
}

// R44: a fault of a no-wait method is still told.
func TestNoWaitFault(t *testing.T) {
	t.Parallel()
	s := frames(t)
	ok(t, s.Send(1, raw.QueueBind, uint16(0), name(t), "amq.direct", "k", raw.Bits{true}, raw.Table{}))
	faults(t, s, chanFault, 404)
}

// R42: the close names the method that was at fault.
func TestCloseNamesTheMethod(t *testing.T) {
	t.Parallel()
	s := frames(t)
	ok(t, s.Send(1, raw.QueueBind, uint16(0), name(t), "amq.direct", "k", raw.Bits{false}, raw.Table{}))
	a := must(s.Expect(1, raw.ChannelClose))(t)
	a.U16()
	a.Str()
	equal(t, "class", a.U16(), raw.QueueBind.Class())
	equal(t, "method", a.U16(), raw.QueueBind.Method())
}

// R42: after a channel fault what was sent meanwhile is dropped, and the number
// can be opened again with everything reset.
func TestChannelAfterFault(t *testing.T) {
	t.Parallel()
	s := frames(t)
	q := privateQueue(t, s)
	ok(t, s.Send(1, raw.QueueBind, uint16(0), name(t), "amq.direct", "k", raw.Bits{false}, raw.Table{}))
	ok(t, s.Publish(1, "", q, raw.NoProperties, []byte("too late")))
	ok(t, s.Send(1, raw.QueueDelete, uint16(0), q, raw.Bits{false, false, false}))
	faults(t, s, chanFault, 404)
	a := must(s.Call(1, raw.QueueDeclare, raw.QueueDeclareOk, uint16(0), q, raw.Bits{true, false, false, false, false}, raw.Table{}))(t)
	a.Str()
	equal(t, "messages", a.U32(), 0)
}

// T29: an exclusive queue is its connection's alone.
func TestExclusiveQueue(t *testing.T) {
	t.Parallel()
	owner, other := dial(t), dial(t)
	ch := channel(t, owner)
	q := must(ch.QueueDeclare(name(t), false, false, true, false, nil))(t).Name
	for what, do := range map[string]func(ch *amqp.Channel) error{
		"declare": func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare(q, false, false, true, false, nil)
			return err
		},
		"passive": func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclarePassive(q, false, false, true, false, nil)
			return err
		},
		"bind":    func(ch *amqp.Channel) error { return ch.QueueBind(q, "k", "amq.direct", false, nil) },
		"consume": func(ch *amqp.Channel) error { _, err := ch.Consume(q, "", true, false, false, false, nil); return err },
		"get":     func(ch *amqp.Channel) error { _, _, err := ch.Get(q, true); return err },
		"purge":   func(ch *amqp.Channel) error { _, err := ch.QueuePurge(q, false); return err },
		"delete":  func(ch *amqp.Channel) error { _, err := ch.QueueDelete(q, false, false, false); return err },
	} {
		t.Run(what, func(t *testing.T) { refused(t, do(channel(t, other)), 405) })
	}
	must(channel(t, owner).QueueDeclarePassive(q, false, false, true, false, nil))(t) // another channel of the owner
	put(t, q, "from anyone")
	equal(t, "body", string(get(t, ch, q, true).Body), "from anyone")
	ok(t, owner.Close())
	eventually(t, "the name is free", func() bool {
		_, err := channel(t, other).QueueDeclare(q, false, false, true, false, nil)
		return err == nil
	})
}

// T29: a durable exclusive queue dies with its connection too.
func TestDurableExclusiveQueue(t *testing.T) {
	t.Parallel()
	owner := dial(t)
	q := must(channel(t, owner).QueueDeclare(name(t), true, false, true, false, nil))(t).Name
	ok(t, owner.Close())
	eventually(t, "the queue is gone", func() bool {
		_, err := open(t).QueueDeclarePassive(q, true, false, true, false, nil)
		return err != nil
	})
}

// T30: a transient queue that is not exclusive is allowed, and lives on when
// its connection ends.
func TestTransientQueue(t *testing.T) {
	t.Parallel()
	c := dial(t)
	q := must(channel(t, c).QueueDeclare(name(t), false, false, false, false, nil))(t).Name
	removeQueue(t, q)
	put(t, q, "kept")
	ok(t, c.Close())
	equal(t, "messages", depth(t, open(t), q), 1)
}

// R42: auto-delete takes a queue away when its last consumer goes, not before
// it had one.
func TestAutoDeleteQueue(t *testing.T) {
	t.Parallel()
	ch := open(t)
	q := must(ch.QueueDeclare(name(t), true, true, false, false, nil))(t).Name
	removeQueue(t, q)
	get := func() bool {
		_, err := open(t).QueueDeclarePassive(q, true, false, false, false, nil)
		return err == nil
	}
	equal(t, "there without a consumer", get(), true)
	one, two := open(t), open(t)
	must(one.Consume(q, "one", false, false, false, false, nil))(t)
	must(two.Consume(q, "two", false, false, false, false, nil))(t)
	ok(t, one.Cancel("one", false))
	equal(t, "there with one consumer left", get(), true)
	ok(t, two.Close())
	eventually(t, "the queue is gone", func() bool { return !get() })
}

// R42: an auto-delete exchange goes with its last binding, not before it had
// one; a queue that goes takes its bindings along.
func TestAutoDeleteExchange(t *testing.T) {
	t.Parallel()
	ch := open(t)
	there := func(x string) bool {
		return open(t).ExchangeDeclarePassive(x, "direct", false, true, false, false, nil) == nil
	}
	for what, last := range map[string]func(q, x string){
		"unbind": func(q, x string) { ok(t, ch.QueueUnbind(q, "k", x, nil)) },
		"delete": func(q, x string) { must(ch.QueueDelete(q, false, false, false))(t) },
	} {
		t.Run(what, func(t *testing.T) {
			x, q := name(t), queue(t, ch)
			ok(t, ch.ExchangeDeclare(x, "direct", false, true, false, false, nil))
			equal(t, "there without a binding", there(x), true)
			ok(t, ch.QueueBind(q, "k", x, false, nil))
			last(q, x)
			equal(t, "there without its last binding", there(x), false)
		})
	}
}

// R42: deleting an exchange or queue ends its bindings.
func TestDeleteEndsBindings(t *testing.T) {
	t.Parallel()
	ch := open(t)
	q, x := queue(t, ch), exchange(t, ch, "fanout", nil)
	ok(t, ch.QueueBind(q, "", x, false, nil))
	ok(t, ch.ExchangeDelete(x, false, false))
	ok(t, ch.ExchangeDeclare(x, "fanout", false, false, false, false, nil))
	route(t, x, "", "nowhere")
	equal(t, "messages", depth(t, ch, q), 0)
	ok(t, ch.QueueBind(q, "", x, false, nil))
	must(ch.QueueDelete(q, false, false, false))(t)
	must(ch.QueueDeclare(q, true, false, false, false, nil))(t)
	route(t, x, "", "nowhere")
	equal(t, "messages", depth(t, ch, q), 0)
}

// Names of every kind work everywhere.
func TestOddNames(t *testing.T) {
	t.Parallel()
	ch := open(t)
	for _, odd := range []string{"a/b", "a b", "a%2Fb", "a+b", "a?b#c", "ä€", "\"quoted\"", "<html>", strings.Repeat("n", 200)} {
		q, x := name(t)+odd, name(t)+odd
		removeQueue(t, q)
		must(ch.QueueDeclare(q, false, false, false, false, nil))(t)
		ok(t, ch.ExchangeDeclare(x, "topic", false, true, false, false, nil))
		ok(t, ch.QueueBind(q, odd, x, false, nil))
		route(t, x, odd, odd)
		d := get(t, ch, q, true)
		equal(t, "body", string(d.Body), odd)
		equal(t, "exchange", d.Exchange, x)
		equal(t, "key", d.RoutingKey, odd)
	}
}

// R42: a channel's number is free for use at once after a fault, every time,
// whatever kind of method was at fault.
func TestReopenAfterFault(t *testing.T) {
	t.Parallel()
	setup := open(t)
	taken := queue(t, setup)
	must(setup.Consume(taken, "", false, true, false, false, nil))(t)
	faulty := map[string][]any{
		"consume": {raw.BasicConsume, uint16(0), taken, "", raw.Bits{false, true, false, false}, raw.Table{}},
		"bind":    {raw.QueueBind, uint16(0), name(t), "amq.direct", "k", raw.Bits{false}, raw.Table{}},
		"get":     {raw.BasicGet, uint16(0), name(t), raw.Bits{true}},
		"ack":     {raw.BasicAck, uint64(99), raw.Bits{false}},
	}
	for what, send := range faulty {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := frames(t)
			q := privateQueue(t, s)
			for i := range 300 {
				must(s.Call(1, raw.BasicConsume, raw.BasicConsumeOk, uint16(0), q, "tag", raw.Bits{false, true, false, false}, raw.Table{}))(t)
				ok(t, s.Send(1, send[0].(raw.ID), send[1:]...))
				if _, err := s.Expect(1, raw.ChannelClose); err != nil {
					t.Fatalf("round %d: %v", i, err)
				}
				ok(t, s.Send(1, raw.ChannelCloseOk))
				if err := s.OpenChannel(1); err != nil {
					t.Fatalf("round %d: %v", i, err)
				}
			}
		})
	}
}
