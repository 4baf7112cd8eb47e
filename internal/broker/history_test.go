package broker

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"holdfast/internal/catalog"
	"holdfast/internal/message"
	"holdfast/internal/wire"
)

// newRigAtLevel2 is a rig whose catalog knows what came with level 2.
func newRigAtLevel2(t testing.TB) *rig {
	r := newRig(t)
	r.must(catalog.SetLevels(1, catalog.Levels{Least: 1, Most: 2}))
	r.must(catalog.RaiseLevel(2))
	return r
}

func (c *client) exchange(name, kind string, args map[string]any) {
	c.t.Helper()
	if err := c.DeclareExchange(DeclareExchange{Name: name, Type: kind, Arguments: wire.NewTable(args)}); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) bind(source, destination, key string) {
	c.t.Helper()
	if err := c.Bind(Bind{Source: source, Destination: destination, RoutingKey: key}); err != nil {
		c.t.Fatal(err)
	}
}

func headers(fields map[string]any) wire.Properties {
	var p wire.Properties
	return p.WithHeaders(wire.NewTable(fields))
}

func bodies(from, to int) (list []string) {
	for i := from; i <= to; i++ {
		list = append(list, fmt.Sprint(i))
	}
	return list
}

// An exchange with a history hands its latest messages to what is bound later, the oldest first: to queues, and through
// exchanges to theirs. A binding that is there brings nothing again, another one does. R365
func TestRecentHistory(t *testing.T) {
	r := newRigAtLevel2(t)
	c := r.connect()
	c.exchange("x", "x-recent-history", nil)
	c.exchange("short", "x-recent-history", map[string]any{"x-recent-history-length": 2})
	c.exchange("dir", "direct", nil)
	for _, q := range []string{"early", "late", "behind"} {
		c.declare(DeclareQueue{Name: q})
	}
	c.bind("x", "early", "")
	for i := 1; i <= 25; i++ {
		c.send("x", "key", fmt.Sprint(i))
		c.send("short", "key", fmt.Sprint(i))
	}
	for _, unkept := range []any{true, false, "true"} {
		p := c.Publisher()
		_, err := publish(p, "x", "key", headers(map[string]any{"x-recent-history-no-store": unkept}), fmt.Sprint(unkept), nil, 0)
		ok(t, "publish", err)
		p.Flush()
	}
	if got := drain(c, "early"); len(got) != 28 {
		t.Errorf("bound before: %v", got)
	}
	want := append(bodies(8, 25), "false", "true")
	c.bind("x", "late", "a")
	c.bind("x", "late", "a")
	if got := drain(c, "late"); !slices.Equal(got, want) {
		t.Errorf("bound later: %v", got)
	}
	c.bind("x", "late", "b")
	c.bind("short", "late", "")
	if got := drain(c, "late"); !slices.Equal(got, append(want, "24", "25")) {
		t.Errorf("bound again: %v", got)
	}
	c.bind("dir", "behind", "key")
	ok(t, "bind", c.Bind(Bind{Source: "short", Destination: "dir", RoutingKey: "any", ToExchange: true}))
	if got := drain(c, "behind"); !slices.Equal(got, bodies(24, 25)) {
		t.Errorf("bound by an exchange: %v", got)
	}
	ok(t, "delete", c.Conn.DeleteExchange(DeleteExchange{Name: "x"}))
	c.exchange("x", "x-recent-history", nil)
	c.bind("x", "late", "a")
	if got := drain(c, "late"); len(got) != 0 {
		t.Errorf("of an exchange that is gone: %v", got)
	}
	ok(t, "delete", c.Conn.DeleteExchange(DeleteExchange{Name: "x"}))
	r.Changed(&catalog.Result{Removed: catalog.Removed{Exchanges: []*catalog.Exchange{r.view().Exchange(vhost, "short")}}}, true)
	if len(r.histories.of) != 0 || r.histories.bytes != 0 {
		t.Errorf("%d histories with %d bytes are left", len(r.histories.of), r.histories.bytes)
	}
}

// What nobody was there to get is kept too, whether it was returned, came through another exchange, or from the
// administrator.
func TestHistoryOfTheUnroutable(t *testing.T) {
	r := newRigAtLevel2(t)
	c := r.connect()
	c.exchange("x", "x-recent-history", nil)
	c.exchange("fan", "fanout", map[string]any{"alternate-exchange": "x"})
	c.declare(DeclareQueue{Name: "q"})
	if n := c.send("fan", "", "through"); n != 0 {
		t.Fatalf("%d queues", n)
	}
	p := c.Publisher()
	route, err := p.Route([]byte("x"), nil, nil)
	ok(t, "route", err)
	var b message.Builder
	b.Begin("x", "", nil, 8, false)
	b.Write([]byte("returned"))
	p.Returned(&route, b.Message())
	if _, err := r.AdminPublish(AdminPublish{VHost: vhost, Exchange: "x", Body: []byte("admin")}); err != nil {
		t.Fatal(err)
	}
	c.bind("x", "q", "")
	if got := drain(c, "q"); !slices.Equal(got, []string{"through", "returned", "admin"}) {
		t.Errorf("%v", got)
	}
}

// A publish that was routed before a binding came, and handed on after, gets there by the history; one that was routed
// after gets there by itself. None gets there twice.
func TestHistoryAcrossABind(t *testing.T) {
	r := newRigAtLevel2(t)
	c := r.connect()
	c.exchange("x", "x-recent-history", nil)
	c.declare(DeclareQueue{Name: "q"})
	p := c.Publisher()
	route, err := p.Route([]byte("x"), nil, nil)
	ok(t, "route", err)
	c.bind("x", "q", "")
	var b message.Builder
	b.Begin("x", "", nil, 6, false)
	b.Write([]byte("before"))
	p.Publish(&route, Publish{Message: b.Message()})
	p.Flush()
	c.send("x", "", "after")
	if got := drain(c, "q"); !slices.Equal(got, []string{"before", "after"}) {
		t.Errorf("%v", got)
	}
	c.bind("x", "q", "again")
	if got := drain(c, "q"); !slices.Equal(got, []string{"before", "after"}) {
		t.Errorf("the history: %v", got)
	}
	// A binding whose result is late: what was routed in between has come by itself.
	generation := r.view().VHost(vhost).Generation()
	c.send("x", "", "live")
	drain(c, "q")
	r.replay(Joining{VHost: vhost, Source: "x", Destination: "q", Generation: generation})
	if got := drain(c, "q"); !slices.Equal(got, []string{"before", "after"}) {
		t.Errorf("replayed late: %v", got)
	}
}

// A history takes a bounded number of bytes, whatever its length, and so do all together.
func TestHistoryBytes(t *testing.T) {
	r := newRigAtLevel2(t)
	c := r.connect()
	most := historiesMost/historyMost + 1
	body := strings.Repeat("x", 1<<20)
	if n := 3 * (1<<20 + keptCost); n <= historyMost || historiesMost/historyMost < 8 {
		t.Fatal("the bounds are not what this test is made for")
	}
	for i := range most {
		x := fmt.Sprint("x", i)
		c.exchange(x, "x-recent-history", map[string]any{"x-recent-history-length": 100})
		for range 3 {
			c.send(x, "", body)
		}
	}
	if n := len(r.histories.of); n != most || r.histories.bytes > historiesMost {
		t.Errorf("%d histories of %d bytes", n, r.histories.bytes)
	}
	sum := 0
	for id, h := range r.histories.of {
		n := 0
		for _, k := range h.kept {
			n += k.bytes
		}
		if n != h.bytes || n > historyMost {
			t.Errorf("%d: %d bytes, said to be %d", id, n, h.bytes)
		}
		sum += n
	}
	if sum != r.histories.bytes {
		t.Errorf("%d bytes, said to be %d", sum, r.histories.bytes)
	}
	c.exchange("huge", "x-recent-history", nil)
	c.send("huge", "", strings.Repeat("x", historyMost))
	c.declare(DeclareQueue{Name: "q"})
	c.bind("x0", "q", "")
	c.bind("huge", "q", "")
	if got := drain(c, "q"); len(got) != 1 {
		t.Errorf("%d messages", len(got))
	}
	r.Sync()
	if len(r.histories.of) != most+1 {
		t.Errorf("%d histories", len(r.histories.of))
	}
	r.must(catalog.DeleteVHost(vhost))
	if len(r.histories.of) != 0 || r.histories.bytes != 0 {
		t.Errorf("%d histories with %d bytes are left", len(r.histories.of), r.histories.bytes)
	}
}

// Routes that chance or a header decides are found anew for each message; those that the key decides are remembered, and
// found anew when a binding comes. R361, R363
func TestWhichRoutesAreRemembered(t *testing.T) {
	c := newRigAtLevel2(t).connect()
	queues := bodies(1, 8)
	for x, kind := range map[string]string{"hash": "x-consistent-hash", "modulus": "x-modulus-hash", "random": "x-random", "local": "x-local-random", "by": "x-consistent-hash"} {
		var args map[string]any
		if x == "by" {
			args = map[string]any{"hash-header": "h"}
		}
		c.exchange(x, kind, args)
	}
	for _, q := range queues {
		c.declare(DeclareQueue{Name: q})
		for x, key := range map[string]string{"hash": "2", "by": "3", "modulus": "", "random": "any", "local": ""} {
			c.bind(x, q, key)
		}
	}
	p := c.Publisher()
	counts := func(exchange string, properties func(i int) wire.Properties) (used int) {
		for i := range 400 {
			n, err := publish(p, exchange, "key", properties(i), exchange, nil, 0)
			ok(t, "publish", err)
			if n != 1 {
				t.Fatalf("%s: %d queues", exchange, n)
			}
		}
		p.Flush()
		for _, q := range queues {
			if len(drain(c, q)) > 0 {
				used++
			}
		}
		return used
	}
	none := func(int) wire.Properties { return nil }
	copies := func(i int) wire.Properties { return headers(map[string]any{"CC": []any{"a", "b", "c"}}) }
	for _, x := range []struct {
		exchange   string
		properties func(int) wire.Properties
		used       int
	}{
		{"hash", none, 1}, {"modulus", none, 1}, {"random", none, 8}, {"local", none, 8}, {"by", none, 1},
		{"hash", copies, 1}, {"modulus", copies, 1}, {"random", copies, 8},
		{"by", func(i int) wire.Properties { return headers(map[string]any{"h": i}) }, 8},
	} {
		if used := counts(x.exchange, x.properties); used != x.used {
			t.Errorf("%s: %d queues got something, want %d", x.exchange, used, x.used)
		}
	}
	for x, remembered := range map[string]bool{"hash": true, "modulus": true, "random": false, "local": false, "by": false} {
		if got := p.exchanges[x].routes["key"] != nil; got != remembered {
			t.Errorf("%s: remembered: %v", x, got)
		}
	}
}

// All keys of a message go its way together: an alternate exchange has it only if none of them leads anywhere.
func TestCopiesAndTheAlternate(t *testing.T) {
	c := newRig(t).connect()
	c.exchange("spare", "fanout", nil)
	c.exchange("x", "direct", map[string]any{"alternate-exchange": "spare"})
	for _, q := range []string{"a", "b", "lost"} {
		c.declare(DeclareQueue{Name: q})
	}
	c.bind("x", "a", "a")
	c.bind("x", "b", "b")
	c.bind("spare", "lost", "")
	p := c.Publisher()
	for _, m := range []struct {
		key    string
		copies []any
		want   string
	}{
		{"a", []any{"none"}, "a"},
		{"none", []any{"b", "none", "b"}, "b"},
		{"a", []any{"b"}, "a b"},
		{"none", []any{"neither"}, "lost"},
	} {
		_, err := publish(p, "x", m.key, headers(map[string]any{"CC": m.copies}), m.key, nil, 0)
		ok(t, "publish", err)
		p.Flush()
		var got []string
		for _, q := range []string{"a", "b", "lost"} {
			for range drain(c, q) {
				got = append(got, q)
			}
		}
		if strings.Join(got, " ") != m.want {
			t.Errorf("%s and %v: %v, want %s", m.key, m.copies, got, m.want)
		}
	}
}

// What other nodes have kept is put in between by its time, and the latest of all are handed on.
func TestHistoryOfOtherNodes(t *testing.T) {
	r := newRigAtLevel2(t)
	c := r.connect()
	c.exchange("x", "x-recent-history", map[string]any{"x-recent-history-length": 4})
	c.declare(DeclareQueue{Name: "q"})
	c.send("x", "", "here 1")
	c.send("x", "", "here 2")
	kept := r.History(Joining{VHost: vhost, Source: "x", Destination: "q", Generation: 1 << 60})
	if len(kept) != 2 {
		t.Fatalf("%d kept", len(kept))
	}
	made := func(at int64, body string) KeptMessage {
		var b message.Builder
		b.Begin("x", "", nil, uint64(len(body)), false)
		b.Write([]byte(body))
		m := b.Message()
		return KeptMessage{At: at, Head: m.Head, Chunks: m.Chunks}
	}
	var asked Joining
	r.elsewhere = func(j Joining) []KeptMessage {
		asked = j
		return []KeptMessage{
			made(kept[1].At+1, "there 4"), made(kept[0].At-1, "there 3"), made(kept[0].At-3, "there 1"), made(kept[0].At-2, "there 2"),
		}
	}
	c.bind("x", "q", "")
	if got := drain(c, "q"); !slices.Equal(got, []string{"there 3", "here 1", "here 2", "there 4"}) {
		t.Errorf("%v", got)
	}
	if want := (Joining{VHost: vhost, Source: "x", Destination: "q", Generation: r.view().VHost(vhost).Generation()}); asked != want {
		t.Errorf("asked for %+v, want %+v", asked, want)
	}
	// Together they are bounded in bytes as well.
	half := made(0, strings.Repeat("x", historyMost/2))
	if got := latest([]KeptMessage{half, half, made(1, "last")}, 3); len(got) != 2 {
		t.Errorf("%d messages", len(got))
	}
	if got := latest(nil, 3); len(got) != 0 {
		t.Errorf("%d messages", len(got))
	}
	if got := r.History(Joining{VHost: vhost, Source: "none"}); got != nil {
		t.Errorf("%v", got)
	}
}
