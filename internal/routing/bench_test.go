package routing

import (
	"fmt"
	"testing"

	"holdfast/internal/routing/ordmap"
	"holdfast/internal/wire"
)

var kindNames = [...]string{"direct", "fanout", "topic", "headers", "consistent-hash", "modulus-hash", "random", "local-random", "history"}

// benchIndex returns an index with n bindings to n queues and keys that each match one or two of them.
func benchIndex(kind Kind, n int) (Index, []string) {
	x, e := New(kind, nil), new(ordmap.Edit)
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
		case ConsistentHash:
			pattern = fmt.Sprint(1 + i%5)
		}
		x = x.Bind(e, Binding{pattern, args, ToQueue(uint64(i)), keys[i]})
	}
	return x, keys
}

func BenchmarkMatch(b *testing.B) {
	for _, kind := range []Kind{Direct, Topic, Headers, ConsistentHash, ModulusHash, Random, LocalRandom} {
		for _, n := range []int{10, 1000, 10_000} {
			x, keys := benchIndex(kind, n)
			h := make([]wire.Properties, n)
			for i := range h {
				h[i] = h[i].WithHeaders(wire.NewTable(map[string]any{"sensor": i, "kind": "temperature", "site": "x"}))
			}
			b.Run(fmt.Sprintf("%s/bindings=%d", kindNames[kind], n), func(b *testing.B) {
				b.ReportAllocs()
				dst := make([]Target, 0, 16)
				i := 0
				m := &Message{Draw: func() uint64 { return uint64(i) }, Here: func(Target) bool { return true }}
				for b.Loop() {
					i = (i + 7919) % n
					m.Key, m.Properties = keys[i], h[i]
					if dst = x.Match(dst[:0], m); len(dst) != 1 {
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
		dst = x.Match(dst[:0], new(Message))
	}
}

func BenchmarkBind(b *testing.B) {
	for _, kind := range []Kind{Direct, Fanout, Topic, Headers, ConsistentHash, ModulusHash} {
		for _, n := range []int{10, 10_000, 100_000} {
			x, keys := benchIndex(kind, n)
			args := wire.NewTable(map[string]any{"sensor": "new"})
			b.Run(fmt.Sprintf("%s/bindings=%d", kindNames[kind], n), func(b *testing.B) {
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					bd := Binding{keys[i%n] + ".new", args, ToQueue(1 << 40), "new"}
					if kind == ConsistentHash {
						bd.Key = "1"
					}
					y := x.Bind(nil, bd)
					_ = y.Unbind(nil, bd)
				}
			})
		}
	}
}
