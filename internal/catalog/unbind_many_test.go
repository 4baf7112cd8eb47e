package catalog

import (
	"fmt"
	"slices"
	"testing"

	"holdfast/internal/routing"
	"holdfast/internal/wire"
)

// R651: what a queue or an exchange with very many bindings leaves behind, when it goes, is as if those had never been: whether its sources
// lose most of their bindings or few of them, of whatever type they are. Older views stay as they were.
func TestManyBindingsGo(t *testing.T) {
	for _, typ := range []ExchangeType{Direct, Fanout, Topic, Headers, ConsistentHash, ModulusHash, RecentHistory, Deduplication} {
		for _, n := range []int{1, 2, 3, 300} { // bindings to what goes; three to something else stay
			for _, kind := range []Kind{KindQueue, KindExchange} {
				t.Run(fmt.Sprint(typ, n, kind), func(t *testing.T) { manyBindingsGo(t, typ, n, kind) })
			}
		}
	}
}

func manyBindingsGo(t *testing.T, typ ExchangeType, n int, kind Kind) {
	m := New()
	do := func(cmd []byte) *Result {
		t.Helper()
		res := m.Apply(1, 1, cmd).(*Result)
		if res.Err != nil {
			t.Fatal(res.Err)
		}
		return res
	}
	do(Bootstrap(Defaults{VHost: "/"}))
	do(AddNode(Node{ID: 1, Name: "n1"}))
	do(SetLevels(1, Levels{1, 2}))
	do(RaiseLevel(2))
	queue := func(name string) { do(DeclareQueue(QueueDecl{VHost: "/", Name: name, Durable: true})) }
	exchange := func(name string, typ ExchangeType, auto bool) {
		d := ExchangeDecl{VHost: "/", Name: name, Type: string(typ), Durable: true, AutoDelete: auto}
		if typ == Deduplication {
			d.Args = wire.NewTable(map[string]any{"x-cache-size": 10})
		}
		do(DeclareExchange(d))
	}
	bind := func(source string, kind Kind, to string, i int) {
		b := Binding{VHost: "/", Source: source, Kind: kind, Destination: to}
		switch typ {
		case ConsistentHash:
			b.Key = fmt.Sprint(i + 1)
		case Headers:
			b.Args = wire.NewTable(map[string]any{"h": i})
		default:
			b.Key = fmt.Sprintf("a%d.b%d.c", i%3, i)
		}
		do(Bind(b, 0))
	}
	big := "big"
	if kind == KindQueue {
		queue(big)
	} else {
		exchange(big, Fanout, false)
		queue("behind")
		do(Bind(Binding{VHost: "/", Source: big, Destination: "behind"}, 0))
	}
	queue("stays")
	exchange("further", Fanout, false)
	do(Bind(Binding{VHost: "/", Source: "further", Destination: "stays"}, 0))
	// Neighbours in the order in which bindings are kept, and one that goes with its last binding.
	for _, x := range []string{"w", "x", "y"} {
		exchange(x, typ, false)
	}
	exchange("alone", typ, true)
	for i := range 3 {
		bind("w", KindQueue, "stays", i)
		bind("x", KindQueue, "stays", i)
		bind("y", KindExchange, "further", i)
	}
	for i := range n {
		bind("x", kind, big, i)
		bind("y", kind, big, i)
		bind("alone", kind, big, i)
	}
	old := m.View()
	routes := func(v *View) (all []string) {
		for _, name := range []string{"w", "x", "y"} {
			for i := range 5 {
				msg := routing.Message{Key: fmt.Sprintf("a%d.b%d.c", i%3, i)}
				msg.Properties = msg.Properties.WithHeaders(wire.NewTable(map[string]any{"h": i}))
				ids := v.Route(v.Exchange("/", name), &msg, nil)
				slices.Sort(ids)
				all = append(all, fmt.Sprint(name, i, ids))
			}
		}
		return all
	}
	was := routes(old)
	var res *Result
	if kind == KindQueue {
		res = do(DeleteQueue("/", big, 0, 0))
	} else {
		res = do(DeleteExchange("/", big, false))
	}
	want := 3 * n
	if kind == KindExchange {
		want++ // that from it
	}
	if len(res.Removed.Bindings) != want {
		t.Errorf("%d bindings were removed, want %d", len(res.Removed.Bindings), want)
	}
	if n := m.View().BindingsTo("/", kind, big).Len(); n != 0 || m.View().Exchange("/", "alone") != nil {
		t.Errorf("%d bindings are left, and an exchange without any", n)
	}
	for _, name := range []string{"w", "x", "y"} {
		if got := m.View().BindingsFrom("/", name).Len(); got != 3 {
			t.Errorf("%s has %d bindings left", name, got)
		}
	}
	if !slices.Equal(routes(old), was) {
		t.Error("an older view has changed")
	}
	again := New()
	if err := again.Restore(m.AppendSnapshot(nil)); err != nil {
		t.Fatal(err)
	}
	if got, want := routes(m.View()), routes(again.View()); !slices.Equal(got, want) {
		t.Errorf("routes are %q, want %q", got, want)
	}
	for _, name := range []string{"w", "x", "y"} { // neither too few are counted nor too many
		for _, b := range slices.Collect(m.View().BindingsFrom("/", name).All()) {
			if m.Apply(1, 1, DeleteExchange("/", name, true)).(*Result).Err == nil {
				t.Errorf("%s counts as unused", name)
			}
			do(Unbind(*b, 0))
		}
		do(DeleteExchange("/", name, true))
	}
}
