package deadletter

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"holdfast/internal/message"
	"holdfast/internal/wire"
)

// view is a message as it was published.
func view(exchange, key string, s wire.PropertySet) message.View {
	return message.View{Exchange: []byte(exchange), RoutingKey: []byte(key), Properties: wire.NewProperties(s)}
}

// die records a death of a message and returns what is published then, to exchange; with another key, if there is one.
func die(t testing.TB, v message.View, d Death, exchange string, key *string) message.View {
	t.Helper()
	keys, shown := Keys(nil, &v)
	p, whole := Record(nil, &v, keys[:shown], d)
	if !whole {
		t.Fatal("the history was cut")
	}
	p, err := wire.ParseProperties(p)
	if err != nil {
		t.Fatalf("the properties do not parse: %v", err)
	}
	v.Properties, v.Exchange, v.History = p, []byte(exchange), true
	if key != nil {
		v.RoutingKey, v.Rekeyed, v.Hidden = []byte(*key), true, nil
	}
	return v
}

func entry(count int64, reason, queue string, time int64, exchange string, keys ...any) map[string]any {
	return map[string]any{"count": count, "reason": reason, "queue": queue, "time": time, "exchange": exchange, "routing-keys": keys}
}

func expect(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s:\n got %v\nwant %v", what, got, want)
	}
}

// An entry for each queue and reason, the newest first, which counts and keeps the time of its first; x-first-death-* stays, x-last-death-* does
// not. R381
func TestHistory(t *testing.T) {
	v := view("work", "k", wire.PropertySet{
		Headers: wire.NewTable(map[string]any{"CC": []any{"c", int64(5), "d"}, "n": int64(1)}), MessageID: "m", Priority: new(uint8(3)), Expiration: "100",
	})
	v.Hidden = message.AppendHidden(nil, "secret")
	v = die(t, v, Death{Rejected, "a", 10}, "dlx", nil)
	first := entry(1, "rejected", "a", 10, "work", "k", "c", "d")
	first["original-expiration"] = "100"
	want := map[string]any{
		"CC": []any{"c", int64(5), "d"}, "n": int64(1), "x-death": []any{first},
		"x-first-death-reason": "rejected", "x-first-death-queue": "a", "x-first-death-exchange": "work",
		"x-last-death-reason": "rejected", "x-last-death-queue": "a", "x-last-death-exchange": "work",
	}
	expect(t, "first", v.Properties.Map(), map[string]any{"headers": want, "message_id": "m", "priority": byte(3)})

	v = die(t, v, Death{Expired, "b", 20}, "", new("only"))
	second := entry(1, "expired", "b", 20, "dlx", "k", "c", "d")
	want["x-death"] = []any{second, first}
	want["x-last-death-reason"], want["x-last-death-queue"], want["x-last-death-exchange"] = "expired", "b", "dlx"
	expect(t, "second", v.Properties.Headers().Map(), want)

	v = die(t, v, Death{MaxLen, "b", 30}, "", nil)
	third := entry(1, "maxlen", "b", 30, "", "only") // its CC header names no key any more
	v = die(t, v, Death{Rejected, "a", 40}, "", nil)
	first["count"] = int64(2)
	want["x-death"] = []any{first, third, second}
	want["x-last-death-reason"], want["x-last-death-queue"], want["x-last-death-exchange"] = "rejected", "a", ""
	expect(t, "fourth", v.Properties.Headers().Map(), want)

	v = die(t, v, Death{DeliveryLimit, "a", 50}, "", nil)
	want["x-death"] = []any{entry(1, "delivery_limit", "a", 50, "", "only"), first, third, second}
	want["x-last-death-reason"] = "delivery_limit"
	expect(t, "fifth", v.Properties.Headers().Map(), want)

	entries, _ := v.Properties.Headers().Get("x-death")
	for e := range entries.Array() {
		fields, _ := e.Table()
		var names []string
		for name, f := range fields.All() {
			names = append(names, name+string(f.Kind))
		}
		if names = slices.DeleteFunc(names, func(n string) bool { return n == "original-expirationS" }); !slices.Equal(names, []string{"countl", "reasonS", "queueS", "timeT", "exchangeS", "routing-keysA"}) {
			t.Errorf("fields of an entry: %v", names)
		}
	}
}

// What a client has written under the server's names is seen until the message dies, and then replaced whole, in its place. R382
func TestForgedHistory(t *testing.T) {
	forged := wire.Table{}.
		Append("before", int64(1)).
		Append("x-death", []any{entry(7, "expired", "a", 1, "", "x")}).
		Append("x-last-death-queue", int64(4)).
		Append("between", "b").
		Append("x-death", "again").
		Append("x-first-death-queue", "nonsense").
		Append("x-deaths", true).
		Append("x-death-", false)
	v := view("x", "k", wire.PropertySet{Headers: forged})
	v = die(t, v, Death{Expired, "a", 9}, "", nil)
	var names []string
	for name := range v.Properties.Headers().All() {
		names = append(names, name)
	}
	expect(t, "order", names, []string{"before", "x-death", "x-last-death-queue", "between", "x-first-death-queue", "x-deaths", "x-death-",
		"x-first-death-reason", "x-first-death-exchange", "x-last-death-reason", "x-last-death-exchange"})
	h := v.Properties.Headers().Map()
	expect(t, "history", h["x-death"], []any{entry(1, "expired", "a", 9, "x", "k")})
	expect(t, "first", []any{h["x-first-death-queue"], h["x-first-death-reason"], h["x-last-death-queue"]}, []any{"a", "expired", "a"})
	if !Cycle(v.Properties, "a") || Cycle(v.Properties, "b") {
		t.Error("the cycle is not seen")
	}
}

// A message that has died may not come by itself to where it has been, unless a consumer has rejected it since. R383
func TestCycle(t *testing.T) {
	for _, c := range []struct {
		deaths string // newest last: queue, then reason
		target string
		want   bool
	}{
		{"ae", "a", true},
		{"ae", "b", false},
		{"ae be", "a", true},
		{"ae br ce", "a", false},
		{"ar be", "a", false},
		{"ae ar be", "a", false},
		{"ar ae be", "a", true},
		{"ae be cl dm", "c", true},
		{"ae br ae", "a", true},
		{"ae br ae", "b", false},
	} {
		v := view("", "k", wire.PropertySet{})
		reasons := map[byte]Reason{'r': Rejected, 'e': Expired, 'm': MaxLen, 'l': DeliveryLimit}
		for i, d := range strings.Fields(c.deaths) {
			v = die(t, v, Death{reasons[d[1]], d[:1], int64(i)}, "", nil)
		}
		if got := Cycle(v.Properties, c.target); got != c.want {
			t.Errorf("%s, then to %s: %v", c.deaths, c.target, got)
		}
	}
	if v := view("", "k", wire.PropertySet{}); Cycle(v.Properties, "k") {
		t.Error("a message without headers is in a cycle")
	}
}

// However often and wherever a message dies, its headers fit into a frame, and what happened last is in them.
func TestLongHistoryIsCut(t *testing.T) {
	long := strings.Repeat("k", 255)
	keys := make([][]byte, 1000)
	for i := range keys {
		keys[i] = []byte(fmt.Sprint(long, i))
	}
	v := view("x", "k", wire.PropertySet{})
	cut := false
	for i := range 300 {
		queue := fmt.Sprint("q", i)
		p, whole := Record(nil, &v, keys[:1+i%1000], Death{Expired, queue, 1})
		if len(p) > mostHistory+mostKeys+2000 {
			t.Fatalf("%d bytes after %d deaths", len(p), i+1)
		}
		if _, err := wire.ParseProperties(p); err != nil {
			t.Fatal(err)
		}
		v.Properties, v.History = p, true
		cut = cut || !whole
		if !Cycle(p, queue) {
			t.Fatalf("after %d deaths the last one is not there", i+1)
		}
	}
	if !cut {
		t.Error("the history was never cut")
	}
}

// naive is a message with its history in the plainest form.
type naive struct {
	exchange    string
	keys        []string // shown
	hidden      []string
	expiration  string
	deaths      []naiveDeath // newest first
	first, last naiveDeath
	others      []string // fields of the headers that are not the server's, encoded
}

type naiveDeath struct {
	queue, reason, exchange, expiration string
	count, time                         int64
	keys                                []string
}

func (n *naive) die(d Death, exchange string, key *string) {
	now := naiveDeath{d.Queue, d.Reason.String(), n.exchange, n.expiration, 1, d.Time, slices.Clone(n.keys)}
	n.last = now
	if len(n.deaths) == 0 {
		n.first = now
	}
	for i, old := range n.deaths {
		if old.queue == now.queue && old.reason == now.reason {
			old.count++
			now = old
			n.deaths = slices.Delete(n.deaths, i, i+1)
			break
		}
	}
	n.deaths = slices.Insert(n.deaths, 0, now)
	n.exchange, n.expiration = exchange, ""
	if key != nil {
		n.keys, n.hidden = []string{*key}, nil
	}
}

func (n *naive) cycle(target string) bool {
	at := slices.IndexFunc(n.deaths, func(d naiveDeath) bool { return d.queue == target })
	return at >= 0 && !slices.ContainsFunc(n.deaths[:at+1], func(d naiveDeath) bool { return d.reason == "rejected" })
}

// check compares a message with its naive form.
func (n *naive) check(t *testing.T, v message.View) {
	t.Helper()
	keys, shown := Keys(nil, &v)
	var all []string
	for _, k := range keys {
		all = append(all, string(k))
	}
	expect(t, "keys shown", all[:shown], n.keys)
	expect(t, "all keys", all, append(slices.Clone(n.keys), n.hidden...))
	expect(t, "expiration", v.Properties.Expiration(), n.expiration)
	var others []string
	for name, f := range v.Properties.Headers().All() {
		if place([]byte(name)) < 0 {
			others = append(others, string(wire.Table{}.AppendValue(name, f)))
		}
	}
	expect(t, "other headers", others, n.others)
	if len(n.deaths) == 0 {
		return
	}
	h := v.Properties.Headers().Map()
	var deaths []any
	for _, d := range n.deaths {
		var keys []any
		for _, k := range d.keys {
			keys = append(keys, k)
		}
		e := entry(d.count, d.reason, d.queue, d.time, d.exchange, keys...)
		if d.expiration != "" {
			e["original-expiration"] = d.expiration
		}
		deaths = append(deaths, e)
	}
	expect(t, "x-death", h["x-death"], deaths)
	for prefix, d := range map[string]naiveDeath{xFirst: n.first, xLast: n.last} {
		expect(t, prefix, []any{h[prefix+"reason"], h[prefix+"queue"], h[prefix+"exchange"]}, []any{d.reason, d.queue, d.exchange})
	}
}

// live leads a message, drawn from r, through deaths and compares each with the naive form.
func live(t *testing.T, r *rand.Rand) {
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	n := &naive{exchange: pick("", "x", "logs"), keys: []string{pick("", "k", "a.b")}}
	var s wire.PropertySet
	if r.IntN(2) == 0 {
		s.MessageID, s.ContentType = "m", "text/plain"
	}
	if r.IntN(3) == 0 {
		n.expiration = pick("0", "100")
		s.Expiration = n.expiration
	}
	var hidden []byte
	for range r.IntN(3) {
		n.hidden = append(n.hidden, pick("h1", "h2", ""))
		hidden = message.AppendHidden(hidden, n.hidden[len(n.hidden)-1])
	}
	for range r.IntN(6) {
		name := pick("n", "CC", "x-death", xLast+"queue", xFirst+"reason", "x-death-count", "deaths")
		if _, has := s.Headers.Get(name); has && name == "CC" {
			continue
		}
		field := wire.Table{}.Append(name, int64(r.IntN(9)))
		if name == "CC" {
			var list []any
			for range r.IntN(4) {
				if r.IntN(4) == 0 {
					list = append(list, int64(1))
					continue
				}
				key := pick("c1", "c2", "k")
				list, n.keys = append(list, key), append(n.keys, key)
			}
			field = wire.Table{}.Append(name, list)
		} else if r.IntN(3) == 0 {
			field = wire.Table{}.Append(name, []any{entry(5, "expired", pick("a", "b"), 1, "", "k"), "odd"})
		}
		s.Headers = append(s.Headers, field...)
		if place([]byte(name)) < 0 {
			n.others = append(n.others, string(field))
		}
	}
	v := view(n.exchange, n.keys[0], s)
	v.Hidden = hidden
	n.check(t, v)
	for i := range r.IntN(12) {
		d := Death{Reason(r.IntN(Reasons)), pick("a", "b", "c", "d"), int64(i + 1)}
		exchange := pick("", "dlx")
		var key *string
		if r.IntN(3) == 0 {
			key = new(pick("r", ""))
		}
		before := bytes.Clone(v.Properties)
		old := v
		v = die(t, v, d, exchange, key)
		if !bytes.Equal(old.Properties, before) {
			t.Fatal("the properties that it had were changed")
		}
		n.die(d, exchange, key)
		n.check(t, v)
		for _, q := range []string{"a", "b", "c", "d", "e"} {
			if got := Cycle(v.Properties, q); got != n.cycle(q) {
				t.Errorf("cycle to %s: %v", q, got)
			}
		}
		if t.Failed() {
			return
		}
	}
}

func FuzzHistory(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed, uint64(1))
	}
	f.Fuzz(func(t *testing.T, a, b uint64) { live(t, rand.New(rand.NewPCG(a, b))) })
}

// Wherever dead letters lead, a message that nobody rejects comes to rest, for each queue and reason can be met once. R383
func TestEveryGraphEnds(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 7))
		queues := 2 + r.IntN(12)
		targets := make([][]int, queues)
		for q := range targets {
			for range 1 + r.IntN(3) {
				targets[q] = append(targets[q], r.IntN(queues))
			}
		}
		type at struct {
			v message.View
			q int
		}
		work := []at{{view("", "k", wire.PropertySet{}), 0}}
		deaths := 0
		for len(work) > 0 && deaths < 20000 {
			w := work[len(work)-1]
			work = work[:len(work)-1]
			v := die(t, w.v, Death{Reason(1 + r.IntN(Reasons-1)), fmt.Sprint(w.q), 1}, "", nil)
			if deaths++; len(strings.Split(fmt.Sprint(v.Properties.Headers().Map()["x-death"]), "count")) > queues*(Reasons-1)+1 {
				t.Fatal("more entries than there are queues and reasons")
			}
			next := targets[w.q][r.IntN(len(targets[w.q]))] // one of them: all would be many, though not endless
			if !Cycle(v.Properties, fmt.Sprint(next)) {
				work = append(work, at{v, next})
			}
		}
		if len(work) > 0 || deaths > queues {
			t.Fatalf("seed %d: %d deaths in %d queues", seed, deaths, queues)
		}
	}
}

func TestAllocations(t *testing.T) {
	v := view("work", "k", wire.PropertySet{Headers: wire.NewTable(map[string]any{"CC": []any{"c", "d"}, "n": int64(1)}), Expiration: "100"})
	v = die(t, v, Death{Expired, "a", 1}, "dlx", nil)
	v = die(t, v, Death{Rejected, "b", 1}, "dlx", nil)
	var buf []byte
	var keys [][]byte
	for name, f := range map[string]func(){
		"record": func() {
			var shown int
			keys, shown = Keys(keys[:0], &v)
			buf, _ = Record(buf[:0], &v, keys[:shown], Death{Expired, "a", 5})
		},
		"cycle": func() { Cycle(v.Properties, "c") },
	} {
		f()
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkRecord(b *testing.B) {
	for name, v := range map[string]message.View{
		"first": view("work", "k", wire.PropertySet{ContentType: "text/plain", DeliveryMode: 2, MessageID: "1234567"}),
		"third": die(b, die(b, view("work", "k", wire.PropertySet{ContentType: "text/plain", DeliveryMode: 2}), Death{Expired, "a", 1}, "", nil), Death{Rejected, "b", 1}, "", nil),
	} {
		b.Run(name, func(b *testing.B) {
			var buf []byte
			var keys [][]byte
			b.ReportAllocs()
			for b.Loop() {
				var shown int
				keys, shown = Keys(keys[:0], &v)
				buf, _ = Record(buf[:0], &v, keys[:shown], Death{Rejected, "b", 5})
			}
		})
	}
}
