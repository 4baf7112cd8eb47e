package broker

import (
	"bytes"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"holdfast/internal/amqperr"
	"holdfast/internal/catalog"
	"holdfast/internal/message"
	"holdfast/internal/wire"
)

// T31: what a publish is refused for; what was lined up before it still counts.
func TestPublishRefusals(t *testing.T) {
	c := newRig(t).connect()
	c.declare(DeclareQueue{Name: "q"})
	ok(t, "declare", c.DeclareExchange(DeclareExchange{Name: "internal", Type: "fanout", Internal: true}))
	headers := func(name string, value any) wire.Properties {
		return wire.NewProperties(wire.PropertySet{Headers: wire.NewTable(map[string]any{name: value})})
	}
	p := c.Publisher()
	before := newTickets(1)
	_, err := publish(p, "", "q", nil, "before", before, 1)
	ok(t, "publish", err)
	for _, x := range []struct {
		what, exchange string
		properties     wire.Properties
		code           uint16
	}{
		{"missing exchange", "none", nil, 404},
		{"internal exchange", "internal", nil, 403},
		{"own user-id", "", wire.NewProperties(wire.PropertySet{UserID: guest}), 0},
		{"another's user-id", "", wire.NewProperties(wire.PropertySet{UserID: "other"}), 406},
		{"expiration", "", wire.NewProperties(wire.PropertySet{Expiration: "1000"}), 0},
		{"expiration that is no number", "", wire.NewProperties(wire.PropertySet{Expiration: "soon"}), 406},
		{"negative expiration", "", wire.NewProperties(wire.PropertySet{Expiration: "-1"}), 406},
		{"expiration over ten years", "", wire.NewProperties(wire.PropertySet{Expiration: "315360000001"}), 406},
		{"expiration over all bounds", "", wire.NewProperties(wire.PropertySet{Expiration: "99999999999999999999"}), 406},
		{"expiration with a space", "", wire.NewProperties(wire.PropertySet{Expiration: " 1000"}), 406},
		{"expiration with a sign", "", wire.NewProperties(wire.PropertySet{Expiration: "+1000"}), 0},
		{"CC that is no array", "", headers("CC", "key"), 406},
		{"BCC that is no array", "", headers("BCC", int32(1)), 406},
		{"CC with something that is no string", "", headers("CC", []any{int32(1), "key"}), 0},
	} {
		_, err := publish(p, x.exchange, "unbound", x.properties, "", nil, 0)
		refused(t, x.what, err, x.code)
		if err != nil && err.Scope != amqperr.Channel {
			t.Errorf("%s: scope %v", x.what, err.Scope)
		}
	}
	p.Flush()
	wait(t, before.done)
}

// Where messages go, through each kind of exchange and the CC and BCC headers; each queue once.
func TestRoutes(t *testing.T) {
	c := newRig(t).connect()
	for _, q := range []string{"a", "b", "c"} {
		c.declare(DeclareQueue{Name: q})
	}
	declare := func(name, typ string, args map[string]any) {
		ok(t, "exchange", c.DeclareExchange(DeclareExchange{Name: name, Type: typ, Arguments: wire.NewTable(args)}))
	}
	bind := func(x, q, key string, args map[string]any) {
		ok(t, "bind", c.Bind(Bind{Source: x, Destination: q, RoutingKey: key, Arguments: wire.NewTable(args)}))
	}
	declare("fan", "fanout", nil)
	declare("dir", "direct", map[string]any{"alternate-exchange": "fan"})
	declare("head", "headers", nil)
	declare("front", "topic", nil)
	bind("fan", "a", "", nil)
	bind("fan", "b", "", nil)
	bind("dir", "c", "k", nil)
	bind("head", "b", "", map[string]any{"colour": "red"})
	ok(t, "bind", c.Bind(Bind{Source: "front", Destination: "dir", RoutingKey: "#", ToExchange: true}))
	ok(t, "bind", c.Bind(Bind{Source: "front", Destination: "head", RoutingKey: "#", ToExchange: true}))

	copies := wire.NewTable(map[string]any{"CC": []any{"b", "c", "a"}, "BCC": []any{"b"}, "other": "kept"})
	for _, x := range []struct {
		exchange, key string
		headers       wire.Table
		queues        int
	}{
		{"", "a", nil, 1},
		{"", "none", nil, 0},
		{"fan", "any", nil, 2},
		{"dir", "k", nil, 1},
		{"dir", "alternate", nil, 2},
		{"head", "k", wire.NewTable(map[string]any{"colour": "red"}), 1},
		{"head", "k", wire.NewTable(map[string]any{"colour": "blue"}), 0},
		{"head", "k", nil, 0},
		{"front", "k", wire.NewTable(map[string]any{"colour": "red"}), 2},
		{"front", "k", nil, 1},
		{"", "a", copies, 3},
	} {
		p := c.Publisher()
		for range 2 { // the second time from memory
			n, err := publish(p, x.exchange, x.key, wire.NewProperties(wire.PropertySet{Headers: x.headers}), "", nil, 0)
			ok(t, "publish", err)
			if n != x.queues {
				t.Errorf("%s/%s %v: %d queues, want %d", x.exchange, x.key, x.headers, n, x.queues)
			}
			p.Flush()
		}
	}
}

// The BCC header is for the broker alone. L82
func TestBCCIsTakenAway(t *testing.T) {
	c := newRig(t).connect()
	c.declare(DeclareQueue{Name: "a"})
	p := c.Publisher()
	sent := wire.NewProperties(wire.PropertySet{
		ContentType: "text/plain", MessageID: "m",
		Headers: wire.NewTable(map[string]any{"CC": []any{"x"}, "BCC": []any{"a"}, "n": int64(1)}),
	})
	r, err := p.Route([]byte(""), []byte("none"), sent)
	ok(t, "route", err)
	if r.Queues() != 1 {
		t.Errorf("%d queues", r.Queues())
	}
	want := wire.NewProperties(wire.PropertySet{
		ContentType: "text/plain", MessageID: "m",
		Headers: wire.NewTable(map[string]any{"CC": []any{"x"}, "n": int64(1)}),
	})
	if string(r.Properties()) != string(want) {
		t.Errorf("properties %v, want %v", r.Properties().Map(), want.Map())
	}
	r, err = p.Route([]byte(""), []byte("a"), want)
	ok(t, "route", err)
	if &r.Properties()[0] != &want[0] {
		t.Error("properties without BCC were copied")
	}
}

// Keys of the BCC header are kept beside the message, where every node can read that. R385
func TestBCCIsRemembered(t *testing.T) {
	r := newRig(t)
	p := r.connect().Publisher()
	sent := wire.NewProperties(wire.PropertySet{Headers: wire.NewTable(map[string]any{"BCC": []any{"a", int64(1), "bc"}})})
	hidden := func(what string, want []byte) {
		t.Helper()
		route, err := p.Route([]byte(""), []byte("none"), sent)
		ok(t, "route", err)
		if !route.Stripped() || !bytes.Equal(route.Hidden(), want) {
			t.Errorf("%s: stripped %v, hidden %q, want %q", what, route.Stripped(), route.Hidden(), want)
		}
	}
	hidden("at level 1", nil)
	r.must(catalog.SetLevels(1, catalog.Levels{Least: 1, Most: 2}))
	r.must(catalog.RaiseLevel(2))
	hidden("at level 2", message.AppendHidden(message.AppendHidden(nil, "a"), "bc"))
}

// What a publisher remembers is right while routes change under it.
func TestRememberedRoutesFollowChanges(t *testing.T) {
	r := newRig(t)
	c := r.connect()
	ok(t, "exchange", c.DeclareExchange(DeclareExchange{Name: "x", Type: "fanout"}))
	p := c.Publisher()
	queues := func(want int) {
		t.Helper()
		n, err := publish(p, "x", "k", nil, "", nil, 0)
		ok(t, "publish", err)
		p.Flush()
		if n != want {
			t.Errorf("%d queues, want %d", n, want)
		}
	}
	queues(0)
	c.declare(DeclareQueue{Name: "q"})
	queues(0)
	ok(t, "bind", c.Bind(Bind{Source: "x", Destination: "q"}))
	queues(1)
	if _, err := c.DeleteQueue(DeleteQueue{Name: "q"}); err != nil {
		t.Fatal(err)
	}
	queues(0)
	c.declare(DeclareQueue{Name: "q"})
	ok(t, "bind", c.Bind(Bind{Source: "x", Destination: "q"}))
	queues(1)
	ok(t, "unbind", c.Unbind(Bind{Source: "x", Destination: "q"}))
	queues(0)
	ok(t, "delete", c.DeleteExchange(DeleteExchange{Name: "x"}))
	_, err := publish(p, "x", "k", nil, "", nil, 0)
	refused(t, "publish to a deleted exchange", err, 404)
}

// However many keys lead to however many queues, a publisher remembers a
// bounded amount.
func TestRememberedRoutesAreBounded(t *testing.T) {
	r := newRig(t)
	c := r.connect()
	ok(t, "exchange", c.DeclareExchange(DeclareExchange{Name: "x", Type: "topic"}))
	const queues = 100
	for i := range queues {
		name := c.declare(DeclareQueue{Name: fmt.Sprint("q", i)})
		ok(t, "bind", c.Bind(Bind{Source: "x", Destination: name, RoutingKey: "#"}))
	}
	p := c.Publisher()
	for i := range 1000 {
		n, err := publish(p, "x", fmt.Sprint("key", i), nil, "", nil, 0)
		ok(t, "publish", err)
		p.Flush()
		if n != queues {
			t.Fatalf("%d queues, want %d", n, queues)
		}
		places := 0
		for _, e := range p.exchanges {
			for _, to := range e.routes {
				places += len(to.slots)
			}
		}
		if places > maxRemembered {
			t.Fatalf("%d queues are remembered in routes", places)
		}
	}
}

// An ordinary publish allocates nothing on its way through the broker.
func TestPublishDoesNotAllocate(t *testing.T) {
	c := newRig(t).connect()
	c.declare(DeclareQueue{Name: "q"})
	ok(t, "bind", c.Bind(Bind{Source: "amq.topic", Destination: "q", RoutingKey: "a.*"}))
	p := c.Publisher()
	var b message.Builder
	b.Begin("amq.topic", "a.b", nil, 0, false)
	m := Publish{Message: b.Message()}
	exchange, keys, properties := []byte("amq.topic"), [][]byte{[]byte("a.b"), []byte("a.c")}, wire.Properties{0, 0}
	n := 0
	do := func() {
		r, err := p.Route(exchange, keys[n%2], properties)
		if err != nil || r.Queues() != 1 {
			t.Fatal(err, r.Queues())
		}
		p.Publish(&r, m)
		if n++; n%64 == 0 {
			// Without handing on: what the queue does is its own affair.
			for _, s := range p.dirty {
				s.lined.publishes = s.lined.publishes[:0]
				linedPool.Put(s.lined)
				s.lined = nil
			}
			p.dirty, p.lined = p.dirty[:0], 0
		}
	}
	for range 200 {
		do()
	}
	if a := testing.AllocsPerRun(1000, do); a != 0 {
		t.Errorf("%v allocations a publish", a)
	}
}

// L20: publishers whose routes are not concerned go on while queues are
// declared, bound and deleted, and every publish is settled.
func TestPublishThroughChurn(t *testing.T) {
	r := newRig(t)
	stable := r.connect()
	stable.declare(DeclareQueue{Name: "stable"})
	ok(t, "bind", stable.Bind(Bind{Source: "amq.direct", Destination: "stable", RoutingKey: "k"}))
	var stop atomic.Bool
	var churn, publishers sync.WaitGroup
	for w := range 3 {
		c := r.connect()
		churn.Add(1)
		go func() {
			defer churn.Done()
			for n := 0; !stop.Load(); n++ {
				q := fmt.Sprintf("%d-%d", w, n)
				if _, err := c.DeclareQueue(DeclareQueue{Name: q}); err != nil {
					t.Error(err)
				}
				for _, x := range []string{"amq.direct", "amq.fanout"} {
					if err := c.Bind(Bind{Source: x, Destination: q, RoutingKey: "k"}); err != nil {
						t.Error(err)
					}
				}
				if _, err := c.DeleteQueue(DeleteQueue{Name: q}); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	for range 2 {
		c := r.connect()
		publishers.Add(1)
		go func() {
			defer publishers.Done()
			p := c.Publisher()
			for n := 1; n <= 500; n++ {
				for _, x := range []string{"amq.direct", "amq.fanout"} {
					route, err := p.Route([]byte(x), []byte("k"), nil)
					if err != nil {
						t.Error(err)
						return
					}
					queues := route.Queues()
					if x == "amq.direct" && queues < 1 {
						t.Error("the queue that stays got nothing")
					}
					if queues == 0 {
						continue
					}
					settled := newTickets(queues)
					var b message.Builder
					b.Begin(x, "k", nil, 0, false)
					p.Publish(&route, Publish{Message: b.Message(), Ticket: settled, Seq: uint64(n)})
					p.Flush()
					wait(t, settled.done)
					for _, o := range settled.all {
						if o != Accepted && o != Gone {
							t.Errorf("outcome %v", o)
						}
					}
				}
			}
		}()
	}
	publishers.Wait()
	stop.Store(true)
	churn.Wait()
	q, err := stable.DeclareQueue(DeclareQueue{Name: "stable", Passive: true})
	ok(t, "declare", err)
	if q.Messages != 1000 {
		t.Errorf("%d messages in the queue that stays, want 1000", q.Messages)
	}
	eventually(t, "all others gone", func() bool { return running(r) == 1 })
}

// A queue with very many bindings is deleted with one command, and so are its bindings. L20
func TestDeleteQueueWithManyBindings(t *testing.T) {
	r := newRig(t)
	c := r.connect()
	c.declare(DeclareQueue{Name: "q"})
	c.declare(DeclareQueue{Name: "other"})
	for i := range 2000 {
		ok(t, "bind", c.Bind(Bind{Source: "amq.topic", Destination: "q", RoutingKey: fmt.Sprintf("a.%d", i)}))
	}
	ok(t, "bind", c.Bind(Bind{Source: "amq.topic", Destination: "other", RoutingKey: "a.*"}))
	before := r.view().Generation()
	if _, err := c.DeleteQueue(DeleteQueue{Name: "q"}); err != nil {
		t.Fatal(err)
	}
	if n := r.view().Generation() - before; n != 1 {
		t.Errorf("%d commands", n)
	}
	if n := r.view().Bindings(vhost).Len(); n != 1 {
		t.Errorf("%d bindings left, want the other queue's", n)
	}
	if n := c.send("amq.topic", "a.7", ""); n != 1 {
		t.Errorf("%d queues", n)
	}
}
