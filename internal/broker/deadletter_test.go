package broker

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/internal/catalog"
	"holdfast/internal/message"
	"holdfast/internal/queue"
	"holdfast/internal/wire"
)

// Where a dead letter goes: through the exchange by the queue's key, or by the message's own keys, those of CC and BCC among them, each queue once;
// further exchanges and the alternate one count. R380 R384 R385
func TestDeadLettersAreRouted(t *testing.T) {
	r := newLetterRig(t)
	for _, x := range []DeclareExchange{
		{Name: "direct", Type: "direct", Internal: true}, {Name: "further", Type: "fanout"}, {Name: "rest", Type: "fanout"},
		{Name: "topic", Type: "topic", Arguments: wire.NewTable(map[string]any{"alternate-exchange": "rest"})},
		{Name: "headers", Type: "headers"},
	} {
		ok(t, "declare", r.c.DeclareExchange(x))
	}
	for _, q := range []string{"a", "b", "c", "d", "e"} {
		r.fake(q)
	}
	for _, b := range []Bind{
		{Source: "direct", Destination: "a", RoutingKey: "k"}, {Source: "direct", Destination: "b", RoutingKey: "k"},
		{Source: "direct", Destination: "a", RoutingKey: "cc"}, {Source: "direct", Destination: "c", RoutingKey: "bcc"},
		{Source: "topic", Destination: "b", RoutingKey: "x.#"}, {Source: "rest", Destination: "d"},
		{Source: "direct", Destination: "further", RoutingKey: "on", ToExchange: true}, {Source: "further", Destination: "e"},
		{Source: "headers", Destination: "e", Arguments: wire.NewTable(map[string]any{"x-match": "all-with-x", "x-first-death-queue": "source", "x-first-death-reason": "rejected"})},
	} {
		ok(t, "bind", r.c.Bind(b))
	}
	copies := wire.PropertySet{Headers: wire.NewTable(map[string]any{"CC": []any{"cc", "on"}}), Expiration: "100", DeliveryMode: 2, MessageID: "m"}
	hidden := func(m message.Message) message.Message {
		v, _ := message.Parse(m.Head)
		h := message.Heading{Exchange: v.Exchange, Key: v.RoutingKey, Properties: v.Properties, Hidden: message.AppendHidden(nil, "bcc"), Persistent: v.Persistent}
		return new(message.Builder).Readdress(&h, v, nil)
	}
	for i, c := range []struct {
		to   deadLettering
		m    message.Message
		want string
	}{
		{deadLettering{exchange: "direct"}, dead("x", "k", "", wire.PropertySet{}), "a b"},
		{deadLettering{exchange: "direct", rekeyed: true, key: "cc"}, hidden(dead("x", "k", "", copies)), "a"},
		{deadLettering{exchange: "direct"}, dead("x", "k", "", copies), "a b e"},
		{deadLettering{exchange: "direct"}, hidden(dead("x", "k", "", copies)), "a b c e"},
		{deadLettering{}, hidden(dead("x", "d", "", copies)), "d"},
		{deadLettering{rekeyed: true, key: "c"}, dead("x", "d", "", copies), "c"},
		{deadLettering{exchange: "topic"}, dead("x", "x.y.z", "", wire.PropertySet{}), "b"},
		{deadLettering{exchange: "topic"}, dead("x", "y", "", wire.PropertySet{}), "d"},
		{deadLettering{exchange: "headers"}, dead("x", "y", "", wire.PropertySet{}), "e"},
	} {
		r.to = c.to
		r.source.die(queue.Discarded, c.m)
		r.run()
		var got []string
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			f := r.fakes[name]
			for _, p := range f.got {
				got = append(got, name)
				old, _ := message.Parse(c.m.Head)
				v, err := message.Parse(p.Message.Head)
				if err != nil {
					t.Fatal(err)
				}
				key := string(old.RoutingKey)
				if c.to.rekeyed {
					key = c.to.key
				}
				if string(v.Exchange) != c.to.exchange || string(v.RoutingKey) != key || v.Persistent != old.Persistent || p.Persistent != old.Persistent ||
					!v.History || v.Rekeyed != c.to.rekeyed || (v.Hidden == nil) != (old.Hidden == nil || c.to.rekeyed) {
					t.Errorf("%d: %s got %+v", i, name, v)
				}
				if v.Properties.Has(wire.Expiration) || v.Properties.MessageID() != old.Properties.MessageID() {
					t.Errorf("%d: properties %v", i, v.Properties.Map())
				}
				if _, has := v.Properties.Headers().Get("BCC"); has {
					t.Errorf("%d: BCC is shown", i)
				}
				death := v.Properties.Headers().Map()["x-death"].([]any)[0].(map[string]any)
				want := map[string]any{"queue": "source", "reason": "rejected", "count": int64(1), "time": int64(77), "exchange": "x"}
				if e := old.Properties.Expiration(); e != "" {
					want["original-expiration"] = e
				}
				for k, w := range want {
					if death[k] != w {
						t.Errorf("%d: %s is %v, want %v", i, k, death[k], w)
					}
				}
				if keys := fmt.Sprint(death["routing-keys"]); strings.Contains(keys, "bcc") {
					t.Errorf("%d: the entry's keys are %s", i, keys)
				}
			}
			f.answer(Accepted)
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%d: it went to %v, want %s", i, got, c.want)
		}
		is(t, "not buried", r.source.left(), 0)
	}
	// Headers decide, though the key is that of the letter before.
	r.to = deadLettering{exchange: "headers"}
	ok(t, "bind", r.c.Bind(Bind{Source: "headers", Destination: "a", Arguments: wire.NewTable(map[string]any{"n": int64(2)})}))
	var ms []message.Message
	for n := range int64(4) {
		ms = append(ms, dead("", "k", fmt.Sprint(n), wire.PropertySet{Headers: wire.NewTable(map[string]any{"n": n})}))
	}
	a := r.fakes["a"]
	a.bodies = nil
	r.source.die(queue.Expired, ms...)
	r.run()
	same(t, "by headers", a.bodies, []string{"2"})
	a.answer(Accepted)
	r.quiet()
}

// Letters of one queue go out in the order of their deaths, whatever their number. R386
func TestDeadLettersKeepTheirOrder(t *testing.T) {
	r := newLetterRig(t)
	f, other := r.fake("a"), r.fake("b")
	second := r.grave("b")
	r.to = deadLettering{rekeyed: true, key: "a"}
	var want []string
	n := 0
	for _, batch := range []int{1, 200, 3, 100} {
		var ms []message.Message
		for range batch {
			ms = append(ms, dead("", "", fmt.Sprint(n), wire.PropertySet{}))
			want = append(want, fmt.Sprint(n))
			n++
		}
		r.source.die(queue.Expired, ms...)
		second.die(queue.Expired, dead("", "", "", wire.PropertySet{}))
		if batch == 3 {
			r.run()
		}
	}
	r.run()
	f.bodies = slices.DeleteFunc(f.bodies, func(b string) bool { return b == "" })
	same(t, "order", f.bodies, want)
	f.answer(Accepted)
	is(t, "not buried", r.source.left()+second.left(), 0)
	is(t, "at the other queue", len(other.bodies), 0)
	r.quiet()
}

// A letter stays in its queue until all targets have it. One that a target did not take is carried again, later and later, to that target
// alone. R387
func TestDeadLettersArriveAtLeastOnce(t *testing.T) {
	r := newLetterRig(t)
	ok(t, "declare", r.c.DeclareExchange(DeclareExchange{Name: "x", Type: "fanout"}))
	a, b := r.fake("a"), r.fake("b")
	ok(t, "bind", r.c.Bind(Bind{Source: "x", Destination: "a"}))
	ok(t, "bind", r.c.Bind(Bind{Source: "x", Destination: "b"}))
	r.to = deadLettering{exchange: "x"}
	r.source.die(queue.Discarded, dead("", "", "1", wire.PropertySet{}), dead("", "", "2", wire.PropertySet{}))
	r.run()
	is(t, "buried before anybody has answered", len(r.source.buried), 0)
	a.answer(Accepted)
	b.got[0].Ticket.Settled(2, 2, Accepted)
	same(t, "buried", r.source.buried, []uint64{2})
	b.got = b.got[:1]
	b.answer(Refused)
	is(t, "buried though refused", len(r.source.buried), 1)
	is(t, "memory", r.letters.bytes, 0)
	var waits []time.Duration
	for _, o := range []Outcome{Refused, Unknown, Refused, Unknown, Refused, Refused, Refused, Refused} {
		var waited time.Duration
		for len(b.got) == 0 {
			r.clk.Advance(500 * time.Millisecond)
			waited += 500 * time.Millisecond
			r.run()
		}
		waits = append(waits, waited)
		b.answer(o)
	}
	same(t, "waits", waits, []time.Duration{5e8, 1e9, 2e9, 4e9, 8e9, 16e9, 30e9, 30e9})
	for len(b.got) == 0 {
		r.clk.Advance(time.Second)
		r.run()
	}
	b.answer(Gone)
	same(t, "buried", r.source.buried, []uint64{2, 1})
	same(t, "a", a.bodies, []string{"1", "2"})
	if got := r.letters.totals(); got.Confirmed != 2 || got.Held != 0 || got.UnderWay != 0 {
		t.Errorf("totals %+v", got)
	}
	r.quiet()
	r.clk.Advance(firstRetry)
	is(t, "timers", r.clk.Timers(), 0)
	if n := strings.Count(r.logged.String(), "does not take them now"); n != 2 { // in 91.5 s, once a minute at most
		t.Errorf("%d lines in the log:\n%s", n, r.logged)
	}
}

// What is on its way, or buried, is not carried a second time, however often it is told. R387
func TestDeadLettersToldAgain(t *testing.T) {
	r := newLetterRig(t)
	a := r.fake("a")
	r.to = deadLettering{rekeyed: true, key: "a"}
	r.source.die(queue.Discarded, dead("", "", "1", wire.PropertySet{}), dead("", "", "2", wire.PropertySet{}), dead("", "", "3", wire.PropertySet{}))
	r.source.tell()
	r.run()
	r.source.tell()
	r.run()
	same(t, "came", a.bodies, []string{"1", "2", "3"})
	a.got[0].Ticket.Settled(1, 1, Refused)
	kept := r.source.letters[2]
	a.got[0].Ticket.Settled(2, 2, Accepted)
	r.source.letters[2] = kept // it was told before the queue had heard
	r.source.tell()
	r.run()
	same(t, "came", a.bodies, []string{"1", "2", "3"})
	same(t, "buried", r.source.buried, []uint64{2, 2})
	r.clk.Advance(500 * time.Millisecond)
	r.run()
	same(t, "came", a.bodies, []string{"1", "2", "3", "1"})
	a.got = a.got[2:]
	a.answer(Accepted)
	is(t, "not buried", r.source.left(), 0)
	r.quiet()
}

// A queue that does not hear is asked again for its letters, though not without end at once.
func TestDeadLettersAreAskedFor(t *testing.T) {
	r := newLetterRig(t)
	a := r.fake("a")
	r.to = deadLettering{rekeyed: true, key: "a"}
	r.source.die(queue.Discarded, dead("", "", "1", wire.PropertySet{}))
	r.run()
	a.answer(Refused)
	r.source.deaf = true
	r.clk.Advance(11 * time.Second)
	is(t, "asked", r.source.told, 3)
	r.source.deaf = false
	r.clk.Advance(5 * time.Second)
	r.run()
	a.answer(Accepted)
	is(t, "not buried", r.source.left(), 0)
	r.quiet()
}

// Without an exchange, or a queue behind it, dead letters are dropped, counted and logged; if their queue asks for at-least-once, they are held
// until there is somewhere to go. R388
func TestDeadLettersThatGoNowhere(t *testing.T) {
	r := newLetterRig(t)
	one := func() { r.source.die(queue.Expired, dead("", "k", "", wire.PropertySet{})); r.run() }
	for _, s := range []strategy{asDurable, atMostOnce} {
		r.to = deadLettering{exchange: "x", strategy: s}
		one()
		r.to.exchange = "amq.direct"
		one()
	}
	is(t, "not buried", r.source.left(), 0)
	r.quiet()
	is(t, "lines in the log", strings.Count(r.logged.String(), "dead letters are dropped"), 1)
	if d := r.letters.totals().Dropped; d["no_exchange"] != 2 || d["no_route"] != 2 {
		t.Errorf("dropped %v", d)
	}
	if c := r.letters.of(r.source.ID()); *c != (QueueDeadLetters{Expired: 4, Dropped: 4}) {
		t.Errorf("of the queue: %+v", c)
	}
	var died []string
	for _, d := range r.letters.totals().Died {
		if d.Messages > 0 {
			died = append(died, fmt.Sprint(d))
		}
	}
	same(t, "died", died, []string{"{rabbit_classic_queue expired disabled 2}", "{rabbit_classic_queue expired at_most_once 1}", "{rabbit_classic_queue expired at_least_once 1}"})

	r.to = deadLettering{exchange: "x", strategy: atLeastOnce}
	one()
	for range 6 {
		r.clk.Advance(30 * time.Second)
		r.run()
	}
	is(t, "held", r.letters.totals().Held, 1)
	told := r.source.told
	r.clk.Advance(5 * time.Second)
	is(t, "asked for before its time", r.source.told, told)
	ok(t, "declare", r.c.DeclareExchange(DeclareExchange{Name: "x", Type: "fanout"}))
	r.clk.Advance(500 * time.Millisecond)
	r.run()
	is(t, "held", r.letters.totals().Held, 1)
	a := r.fake("a")
	ok(t, "bind", r.c.Bind(Bind{Source: "x", Destination: "a"}))
	r.clk.Advance(500 * time.Millisecond)
	r.run()
	is(t, "came", len(a.got), 1)
	a.answer(Accepted)
	is(t, "not buried", r.source.left(), 0)
	r.quiet()
	is(t, "counted", r.letters.of(r.source.ID()).Expired, 5)
}

// R636: a node that does not hear what the others decide drops no letter for it: there may be a way by now. It holds what it knows no way for, and
// carries the rest.
func TestDeadLettersAreHeldWhileTheViewIsStale(t *testing.T) {
	for _, s := range []strategy{asDurable, atMostOnce, atLeastOnce} {
		for _, to := range []deadLettering{
			{exchange: "x"},                     // there is no such exchange yet
			{exchange: "amq.fanout"},            // it leads nowhere yet
			{rekeyed: true, key: "later"},       // there is no such queue yet
			{exchange: "unwanted", key: "none"}, // by an older policy
		} {
			r := newLetterRig(t)
			wanted, stale := to.exchange != "unwanted", "no leader"
			r.letters.settings = func(*catalog.View, *catalog.Queue) (deadLettering, bool) { return r.to, wanted }
			r.Broker.stale = func() string { return stale }
			known := r.fake("known")
			r.to, r.to.strategy = to, s
			r.source.die(queue.Expired, dead("", "k", "1", wire.PropertySet{}))
			r.run()
			r.clk.Advance(30 * time.Second)
			r.run()
			is(t, "held", r.letters.totals().Held, 1)
			same(t, "why", r.letters.whyHeld(r.source.ID()), []string{"1 dead letter is held: this node is not in touch with the others, and knows nowhere for it to go."})
			is(t, "lines in the log", strings.Count(r.logged.String(), "dead letters are held: this node is not in touch"), 1)

			to := r.to
			wanted, r.to = true, deadLettering{rekeyed: true, key: "known", strategy: s}
			r.source.die(queue.Expired, dead("", "k", "2", wire.PropertySet{}))
			r.run()
			same(t, "came meanwhile", known.bodies, []string{"2"})
			known.answer(Accepted)

			stale, r.to, wanted = "", to, to.exchange != "unwanted"
			r.clk.Advance(time.Minute)
			r.run()
			if s == atLeastOnce && wanted {
				is(t, "held for want of a way", r.letters.totals().Held, 1)
				continue
			}
			is(t, "not buried", r.source.left(), 0)
			r.quiet()
		}
	}
}

// With at-most-once a letter is buried when it is sent, whatever becomes of it. R389
func TestDeadLettersAtMostOnce(t *testing.T) {
	r := newLetterRig(t)
	a := r.fake("a")
	r.to = deadLettering{rekeyed: true, key: "a", strategy: atMostOnce}
	r.source.die(queue.Dropped, dead("", "", "1", wire.PropertySet{}), dead("", "", "2", wire.PropertySet{}))
	r.run()
	same(t, "buried", r.source.buried, []uint64{1, 2})
	a.answer(Refused)
	a.missing = true
	r.source.die(queue.Dropped, dead("", "", "3", wire.PropertySet{}))
	r.run()
	same(t, "buried", r.source.buried, []uint64{1, 2, 3})
	r.quiet()
	is(t, "dropped", r.letters.totals().Dropped["refused"], 3)
	is(t, "confirmed", r.letters.totals().Confirmed, 0)
	is(t, "timers", r.clk.Timers(), 0)
}

// At-least-once is for durable queues at both ends, unless it was asked for. R387
func TestDeadLettersOfQueuesThatAreNotDurable(t *testing.T) {
	r := newLetterRig(t)
	r.fakes["passing"] = &fakeOutlet{}
	r.c.declare(DeclareQueue{Name: "passing"})
	durable, passing := r.fake("durable"), r.fakes["passing"]
	source := r.grave("passing")
	for _, c := range []struct {
		from     *fakeGrave
		to       *fakeOutlet
		key      string
		strategy strategy
		held     uint64
	}{
		{r.source, durable, "durable", asDurable, 1},
		{r.source, passing, "passing", asDurable, 0},
		{r.source, passing, "passing", atLeastOnce, 1},
		{source, durable, "durable", asDurable, 0},
		{source, durable, "durable", atLeastOnce, 1},
	} {
		r.to = deadLettering{rekeyed: true, key: c.key, strategy: c.strategy}
		c.from.die(queue.Discarded, dead("", "", "", wire.PropertySet{}))
		r.run()
		c.to.answer(Refused)
		is(t, fmt.Sprintf("%+v: held", c), r.letters.totals().Held, c.held)
		for c.from.left() > 0 {
			r.clk.Advance(time.Second)
			r.run()
			c.to.answer(Accepted)
		}
		r.quiet()
	}
}

// A letter is left out of queues where it would be in a cycle, and goes to the others. R383
func TestDeadLetterCycles(t *testing.T) {
	r := newLetterRig(t)
	ok(t, "declare", r.c.DeclareExchange(DeclareExchange{Name: "x", Type: "fanout"}))
	self, other := &fakeOutlet{}, r.fake("other")
	r.fakes["source"] = self
	ok(t, "bind", r.c.Bind(Bind{Source: "x", Destination: "source"}))
	ok(t, "bind", r.c.Bind(Bind{Source: "x", Destination: "other"}))
	r.to = deadLettering{exchange: "x"}
	r.source.die(queue.Expired, dead("", "", "expired", wire.PropertySet{}))
	r.run()
	r.source.die(queue.Discarded, dead("", "", "rejected", wire.PropertySet{}))
	r.run()
	same(t, "other", other.bodies, []string{"expired", "rejected"})
	same(t, "itself", self.bodies, []string{"rejected"})
	self.answer(Accepted)
	other.answer(Accepted)
	for _, s := range []strategy{asDurable, atLeastOnce} {
		r.to = deadLettering{rekeyed: true, key: "source", strategy: s}
		r.source.die(queue.Dropped, dead("", "", "", wire.PropertySet{}))
		r.run()
	}
	is(t, "not buried", r.source.left(), 0)
	is(t, "cycles", r.letters.totals().Dropped["cycle"], 2)
	r.quiet()
}
