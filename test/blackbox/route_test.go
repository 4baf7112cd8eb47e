package blackbox

import (
	"fmt"
	"slices"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"holdfast/test/raw"
)

// R43 R57 T40: topic patterns against keys, empty words included.
func TestTopicPatterns(t *testing.T) {
	t.Parallel()
	patterns := []string{"", "#", "*", "*.*", "a", "a.b", "a.*", "*.b", "a.#", "#.b", "#.#", "*.#.*", "a.#.b", "a..b", "a.*.b", ".", "..", "#.a.#", "*.#", "#.*"}
	matches := func(pattern, key string) bool { return topicMatch(split(pattern), split(key)) }
	ch := open(t)
	x := exchange(t, ch, "topic", nil)
	queues := map[string]string{}
	for _, p := range patterns {
		q := must(ch.QueueDeclare("", false, true, true, false, nil))(t).Name
		ok(t, ch.QueueBind(q, p, x, false, nil))
		queues[p] = q
	}
	for _, key := range []string{"", ".", "..", "a", "b", "a.b", "a..b", "a.x.b", "a.b.c", "x", "x.y.z", ".a", "a.", "b.a.c", "#", "*"} {
		route(t, x, key, "m")
		for _, p := range patterns {
			_, got, err := ch.Get(queues[p], true)
			ok(t, err)
			if want := matches(p, key); got != want {
				t.Errorf("pattern %q key %q: routed %v, want %v", p, key, got, want)
			}
		}
	}
}

// split cuts a key into words; the empty key has none.
func split(s string) []string {
	if s == "" {
		return nil
	}
	var words []string
	word := ""
	for _, r := range s {
		if r == '.' {
			words, word = append(words, word), ""
			continue
		}
		word += string(r)
	}
	return append(words, word)
}

// topicMatch is the definition, by trying everything.
func topicMatch(pattern, key []string) bool {
	switch {
	case len(pattern) == 0:
		return len(key) == 0
	case pattern[0] == "#":
		return topicMatch(pattern[1:], key) || len(key) > 0 && topicMatch(pattern, key[1:])
	case len(key) == 0:
		return false
	}
	return (pattern[0] == "*" || pattern[0] == key[0]) && topicMatch(pattern[1:], key[1:])
}

// T40: a pattern of three # costs too much to match.
func TestTopicThreeHashes(t *testing.T) {
	t.Parallel()
	ch := open(t)
	q := must(ch.QueueDeclare("", false, true, true, false, nil))(t).Name
	err := ch.QueueBind(q, "a.#.b.#.c.#", "amq.topic", false, nil)
	if pick(t, "three-hashes", true, false) {
		ok(t, err)
		return
	}
	refused(t, err, 406)
}

// R43 R57: headers exchanges.
func TestHeadersExchange(t *testing.T) {
	t.Parallel()
	ch := open(t)
	x := exchange(t, ch, "headers", nil)
	bindings := map[string]amqp.Table{
		"all by default": {"a": "1", "b": int32(2)},
		"all":            {"x-match": "all", "a": "1"},
		"any":            {"x-match": "any", "a": "1", "c": true},
		"all, no pairs":  {"x-match": "all"},
		"any, no pairs":  {"x-match": "any"},
		"x- left out":    {"x-match": "all", "a": "1", "x-other": "never sent"},
		"x- counted":     {"x-match": "all-with-x", "a": "1", "x-sent": "yes"},
		"any x-":         {"x-match": "any-with-x", "x-sent": "yes"},
		"void: is there": {"x-match": "all", "c": nil},
		"other type":     {"x-match": "all", "b": "2"},
	}
	queues := map[string]string{}
	for what, args := range bindings {
		queues[what] = must(ch.QueueDeclare("", false, true, true, false, nil))(t).Name
		ok(t, ch.QueueBind(queues[what], "ignored", x, false, args))
	}
	for _, c := range []struct {
		headers amqp.Table
		want    []string
	}{
		{nil, []string{"all, no pairs"}},
		{amqp.Table{"a": "1"}, []string{"all", "any", "all, no pairs", "x- left out"}},
		{amqp.Table{"a": "2"}, []string{"all, no pairs"}},
		{amqp.Table{"a": "1", "b": int32(2)}, []string{"all by default", "all", "any", "all, no pairs", "x- left out"}},
		{amqp.Table{"a": "1", "b": int64(2)}, []string{"all by default", "all", "any", "all, no pairs", "x- left out"}},
		{amqp.Table{"a": "1", "b": "2"}, []string{"all", "any", "all, no pairs", "x- left out", "other type"}},
		{amqp.Table{"a": "1", "x-sent": "yes"}, []string{"all", "any", "all, no pairs", "x- left out", "x- counted", "any x-"}},
		{amqp.Table{"c": true}, []string{"any", "all, no pairs", "void: is there"}},
		{amqp.Table{"c": "anything"}, []string{"all, no pairs", "void: is there"}},
	} {
		publish(t, x, "", amqp.Publishing{Headers: c.headers})
		var got []string
		for what, q := range queues {
			if _, there, err := ch.Get(q, true); err != nil {
				t.Fatal(err)
			} else if there {
				got = append(got, what)
			}
		}
		slices.Sort(got)
		slices.Sort(c.want)
		if !slices.Equal(got, c.want) {
			t.Errorf("headers %v: routed to %q, want %q", c.headers, got, c.want)
		}
	}
}

// R8 R43 R57 R259: direct takes the exact key, fanout all; every queue gets its
// own copy, and a queue bound in several ways one.
func TestDirectAndFanout(t *testing.T) {
	t.Parallel()
	ch := open(t)
	for _, c := range []struct {
		kind string
		want [2]int // messages of the queues bound with k and K
	}{{"direct", [2]int{1, 0}}, {"fanout", [2]int{1, 1}}} {
		t.Run(c.kind, func(t *testing.T) {
			x, one, two := exchange(t, ch, c.kind, nil), queue(t, ch), queue(t, ch)
			ok(t, ch.QueueBind(one, "k", x, false, nil))
			ok(t, ch.QueueBind(one, "other", x, false, nil))
			ok(t, ch.QueueBind(two, "K", x, false, nil))
			route(t, x, "k", "copy")
			equal(t, "bound with k", depth(t, ch, one), c.want[0])
			equal(t, "bound with K", depth(t, ch, two), c.want[1])
		})
	}
}

// R43: exchanges bound to exchanges, in chains and rings, with one copy to a
// queue reached on two ways.
func TestExchangeToExchange(t *testing.T) {
	t.Parallel()
	ch := open(t)
	first, second, third := exchange(t, ch, "topic", nil), exchange(t, ch, "fanout", nil), exchange(t, ch, "direct", nil)
	q := queue(t, ch)
	ok(t, ch.ExchangeBind(second, "a.#", first, false, nil))
	ok(t, ch.ExchangeBind(third, "", second, false, nil))
	ok(t, ch.ExchangeBind(first, "a.b", third, false, nil)) // the ring closes
	ok(t, ch.QueueBind(q, "a.b", third, false, nil))
	ok(t, ch.QueueBind(q, "#", first, false, nil))
	route(t, first, "a.b", "once")
	equal(t, "copies", depth(t, ch, q), 1)
	d := get(t, ch, q, true)
	equal(t, "exchange", d.Exchange, first)
	ok(t, ch.QueueUnbind(q, "#", first, nil))
	ok(t, ch.ExchangeUnbind(second, "a.#", first, false, nil))
	route(t, first, "a.b", "nowhere")
	equal(t, "copies after unbind", depth(t, ch, q), 0)
	equal(t, "by the middle", func() int { route(t, second, "a.b", "middle"); return depth(t, ch, q) }(), 1)
}

// R43: what an exchange cannot route goes to its alternate; a message routed
// there counts as routed.
func TestAlternateExchange(t *testing.T) {
	t.Parallel()
	ch := confirming(t)
	last, alternate := exchange(t, ch, "fanout", nil), name(t)
	x := exchange(t, ch, "direct", amqp.Table{"alternate-exchange": alternate})
	returns := ch.NotifyReturn(make(chan amqp.Return, 10))
	bound, unbound := queue(t, ch), queue(t, ch)
	ok(t, ch.QueueBind(bound, "k", x, false, nil))
	ok(t, ch.QueueBind(unbound, "", last, false, nil))
	mandatory := func(key string) {
		t.Helper()
		d, err := ch.PublishWithDeferredConfirm(x, key, true, false, amqp.Publishing{})
		ok(t, err)
		equal(t, "confirmed", d.Wait(), true)
	}
	mandatory("missing") // the alternate does not exist: not routed
	equal(t, "returned", (<-returns).ReplyCode, 312)
	ok(t, ch.ExchangeDeclare(alternate, "direct", false, true, false, false, amqp.Table{"alternate-exchange": last}))
	mandatory("k")
	mandatory("other") // by two alternates
	equal(t, "bound", depth(t, ch, bound), 1)
	equal(t, "by the alternates", depth(t, ch, unbound), 1)
	equal(t, "returns", len(returns), 0)
	_ = ch.ExchangeDelete(alternate, false, false)
}

// R43: the default exchange reaches every queue by its name.
func TestDefaultExchange(t *testing.T) {
	t.Parallel()
	ch := open(t)
	q := queue(t, ch)
	put(t, q, "direct")
	d := get(t, ch, q, true)
	equal(t, "exchange", d.Exchange, "")
	equal(t, "key", d.RoutingKey, q)
}

// R43: the exchanges that every vhost has.
func TestPredeclaredExchanges(t *testing.T) {
	t.Parallel()
	ch := open(t)
	for x, kind := range map[string]string{
		"amq.direct": "direct", "amq.fanout": "fanout", "amq.topic": "topic", "amq.headers": "headers", "amq.match": "headers",
	} {
		ok(t, ch.ExchangeDeclare(x, kind, true, false, false, false, nil))
	}
	ok(t, ch.ExchangeDeclare("amq.rabbitmq.trace", "topic", true, false, true, false, nil))
}

// Sender-selected distribution: CC and BCC are further keys, BCC is not shown.
func TestCarbonCopies(t *testing.T) {
	t.Parallel()
	ch := open(t)
	one, two, three := queue(t, ch), queue(t, ch), queue(t, ch)
	publish(t, "", one, amqp.Publishing{Headers: amqp.Table{
		"CC": []any{two, one}, "BCC": []any{three}, "kept": "yes",
	}})
	for _, q := range []string{one, two, three} {
		equal(t, "copies", depth(t, ch, q), 1)
		h := get(t, ch, q, true).Headers
		_, bcc := h["BCC"]
		_, cc := h["CC"]
		equal(t, "headers", fmt.Sprintf("%v %v %v", bcc, cc, h["kept"]), "false true yes")
	}
	bad := open(t)
	fault := closing(bad)
	ok(t, bad.Publish("", one, false, false, amqp.Publishing{Headers: amqp.Table{"CC": "not an array"}}))
	refused(t, fault(t), 406)
}

// T31: what a publish may not do, and that what came before it is kept.
func TestPublishFaults(t *testing.T) {
	setup := open(t)
	internal := name(t)
	ok(t, setup.ExchangeDeclare(internal, "fanout", false, false, true, false, nil))
	t.Cleanup(func() { _ = setup.ExchangeDelete(internal, false, false) })
	for _, c := range []struct {
		name      string
		exchange  string
		immediate bool
		message   amqp.Publishing
		code      int
	}{
		{"immediate", "", true, amqp.Publishing{}, 540},
		{"missing exchange", "no-such-exchange", false, amqp.Publishing{}, 404},
		{"internal exchange", internal, false, amqp.Publishing{}, 403},
		{"another user's id", "", false, amqp.Publishing{UserId: "somebody"}, 406},
		{"own user's id", "", false, amqp.Publishing{UserId: "guest"}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			ch := confirming(t)
			fault := closing(ch)
			q := queue(t, setup)
			send(t, ch, "", q, "before")
			ok(t, ch.Publish(c.exchange, q, false, c.immediate, c.message))
			if c.code == 0 {
				settled(t, ch)
				eventually(t, "both arrived", func() bool { return depth(t, setup, q) == 2 })
				return
			}
			refused(t, fault(t), c.code)
			eventually(t, "the one before arrived", func() bool { return depth(t, setup, q) == 1 })
		})
	}
}

// R94 R249 R250 T32: an unroutable message vanishes and is confirmed; mandatory,
// it comes back whole, before its confirm.
func TestMandatory(t *testing.T) {
	t.Parallel()
	s := frames(t)
	must(s.Call(1, raw.ConfirmSelect, raw.ConfirmSelectOk, raw.Bits{false}))(t)
	ok(t, s.Publish(1, "amq.direct", "nowhere", raw.NoProperties, []byte("dropped")))
	a := must(s.Expect(1, raw.BasicAck))(t)
	equal(t, "confirmed", a.U64(), 1)

	properties := raw.HeadersOnly(raw.Fields(raw.Field("k", 'S', raw.Long("v"))))
	ok(t, s.Write1(raw.FrameMethod, 1, raw.Method(raw.BasicPublish, uint16(0), "amq.direct", "nowhere", raw.Bits{true, false})))
	ok(t, s.Write1(raw.FrameHeader, 1, raw.Header(8, properties)))
	ok(t, s.Write1(raw.FrameBody, 1, []byte("returned")))
	a = must(s.Expect(1, raw.BasicReturn))(t)
	equal(t, "code", a.U16(), 312)
	equal(t, "text", a.Str(), "NO_ROUTE")
	equal(t, "exchange", a.Str(), "amq.direct")
	equal(t, "key", a.Str(), "nowhere")
	h := must(s.ReadFrame())(t)
	equal(t, "properties", string(h.Payload[12:]), string(properties))
	equal(t, "body", string(must(s.ReadFrame())(t).Payload), "returned")
	a = must(s.Expect(1, raw.BasicAck))(t)
	equal(t, "confirmed after", a.U64(), 2)
}

// R94: mandatory without confirms.
func TestMandatoryWithoutConfirms(t *testing.T) {
	t.Parallel()
	ch := open(t)
	returns := ch.NotifyReturn(make(chan amqp.Return, 1))
	ok(t, ch.Publish("amq.direct", name(t), true, false, amqp.Publishing{MessageId: "m", Body: []byte("back")}))
	r := <-returns
	equal(t, "code", r.ReplyCode, 312)
	equal(t, "body", string(r.Body), "back")
	equal(t, "message id", r.MessageId, "m")
}
