package routing

import (
	"fmt"
	"testing"

	"holdfast/internal/routing/ordmap"
	"holdfast/internal/wire"
)

// benchIndex returns an index with n bindings to n queues and keys that each match one or two of them.
func benchIndex(kind Kind, n int) (Index, []string) {
	x, e := New(kind), new(ordmap.Edit)
	keys := make([]string, n)
	for i := range n {
		keys[i] = fmt.Sprintf("region%d.site%d.sensor%d", i%10, i/10%100, i)
		pattern, args := keys[i], wire.Table(nil)
		switch kind {
		case Topic:
			switch i % 4 {
			case 0:
				pattern = fmt.Sprintf("region%d.*.sensor%d", i%10, i)
			case 1:
				pattern = fmt.Sprintf("region%d.#.sensor%d", i%10, i)
			}
		case Headers:
			args = wire.NewTable(map[string]any{"sensor": i, "kind": "temperature"})
		}
		x = x.Bind(e, pattern, args, ToQueue(uint64(i)))
	}
	return x, keys
}

func BenchmarkMatch(b *testing.B) {
	for _, kind := range []Kind{Direct, Topic, Headers} {
		for _, n := range []int{10, 10_000} {
			x, keys := benchIndex(kind, n)
			h := make([]wire.Table, n)
			for i := range h {
				h[i] = wire.NewTable(map[string]any{"sensor": i, "kind": "temperature", "site": "x"})
			}
			b.Run(fmt.Sprintf("%v/bindings=%d", [...]string{"direct", "fanout", "topic", "headers"}[kind], n), func(b *testing.B) {
				b.ReportAllocs()
				dst := make([]Target, 0, 16)
				i := 0
				headers := func() wire.Table { return h[i] }
				for b.Loop() {
					i = (i + 7919) % n
					if dst = x.Match(dst[:0], keys[i], headers); len(dst) != 1 {
						b.Fatal(len(dst))
					}
				}
			})
		}
	}
}

func BenchmarkFanout1000(b *testing.B) {
	x, _ := benchIndex(Fanout, 1000)
	dst := make([]Target, 0, 1000)
	b.ReportAllocs()
	for b.Loop() {
		dst = x.Match(dst[:0], "", nil)
	}
}

func BenchmarkBind(b *testing.B) {
	for _, kind := range []Kind{Direct, Fanout, Topic, Headers} {
		for _, n := range []int{10, 10_000, 100_000} {
			x, keys := benchIndex(kind, n)
			args := wire.NewTable(map[string]any{"sensor": "new"})
			b.Run(fmt.Sprintf("%v/bindings=%d", [...]string{"direct", "fanout", "topic", "headers"}[kind], n), func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					y := x.Bind(nil, keys[i%n]+".new", args, ToQueue(1<<40))
					_ = y.Unbind(nil, keys[i%n]+".new", args, ToQueue(1<<40))
				}
			})
		}
	}
}
