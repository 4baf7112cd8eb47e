package routing

import (
	"fmt"
	"math/rand/v2"
	"strings"
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

// R423: BenchmarkTopic100k routes 100,000 distinct keys of 3 to 6 words, each of which a binding was made from: three of ten have one
// word that is "*" instead, one of ten one that is "#". Words come from 1,000, so that the ways part early and often.
func BenchmarkTopic100k(b *testing.B) {
	const n = 100_000
	draw := rand.New(rand.NewPCG(1, 2))
	x, e := New(Topic, nil), new(ordmap.Edit)
	keys, seen := make([]string, 0, n), make(map[string]bool, n)
	for len(keys) < n {
		key := make([]string, 3+draw.IntN(4))
		for i := range key {
			key[i] = fmt.Sprintf("word%d", draw.IntN(1000))
		}
		if text := strings.Join(key, "."); !seen[text] {
			seen[text] = true
			keys = append(keys, text)
		} else {
			continue
		}
		switch at := draw.IntN(len(key)); draw.IntN(10) {
		case 0, 1, 2:
			key[at] = "*"
		case 3:
			key[at] = "#"
		}
		x = x.Bind(e, Binding{Key: strings.Join(key, "."), Target: ToQueue(uint64(len(keys)))})
	}
	draw.Shuffle(n, func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	b.ReportAllocs()
	dst := make([]Target, 0, 64)
	i, matches := 0, 0
	var m Message
	for b.Loop() {
		if i++; i == n {
			i = 0
		}
		m.Key = keys[i]
		dst = x.Match(dst[:0], &m)
		matches += len(dst)
	}
	if matches < b.N {
		b.Fatalf("%d messages found %d queues", b.N, matches)
	}
	b.ReportMetric(float64(matches)/float64(b.N), "queues/msg")
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
}
