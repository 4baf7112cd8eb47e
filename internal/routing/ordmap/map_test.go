package ordmap

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The cases of rapid are the same in every run; -rapid.seed=N makes others.
func init() { flag.Set("rapid.seed", "1") }

// check fails if n breaks an invariant of the tree.
func check[V any](t *rapid.T, n *node[int, V], root bool, lo, hi *int) int {
	if n == nil {
		return 0
	}
	if len(n.keys) > maxItems || !root && len(n.keys) < minItems {
		t.Fatalf("node of %d items, root: %v", len(n.keys), root)
	}
	if n.kids == nil {
		if len(n.vals) != len(n.keys) || n.size != len(n.keys) || !slices.IsSorted(n.keys) {
			t.Fatalf("bad leaf: %v size %d", n.keys, n.size)
		}
		for _, k := range n.keys {
			if lo != nil && k < *lo || hi != nil && k >= *hi {
				t.Fatalf("key %d out of bounds", k)
			}
		}
		return 1
	}
	size, depth := 0, 0
	for i, kid := range n.kids {
		l, h := lo, hi
		if i > 0 {
			l = &n.keys[i]
		}
		if i+1 < len(n.kids) {
			h = &n.keys[i+1]
		}
		d := check(t, kid, false, l, h)
		if i > 0 && d != depth {
			t.Fatal("leaves of different depth")
		}
		depth = d
		size += kid.size
	}
	if size != n.size || len(n.kids) != len(n.keys) || len(n.kids) < 2 {
		t.Fatalf("bad inner node: size %d, want %d", n.size, size)
	}
	return depth + 1
}

func equal(t *rapid.T, m Map[int, int], model map[int]int) {
	keys := slices.Sorted(maps.Keys(model))
	if m.Len() != len(keys) {
		t.Fatalf("Len %d, want %d", m.Len(), len(keys))
	}
	i := 0
	for k, v := range m.All() {
		if i >= len(keys) || k != keys[i] || v != model[k] {
			t.Fatalf("item %d is %d=%d", i, k, v)
		}
		i++
	}
	if got := m.AppendKeys(nil); !slices.Equal(got, keys) {
		t.Fatalf("AppendKeys: %v", got)
	}
	if i != len(keys) {
		t.Fatalf("%d items, want %d", i, len(keys))
	}
	for r := 0; r < len(keys); r += max(1, len(keys)/20) {
		if k, v := m.At(r); k != keys[r] || v != model[k] {
			t.Fatalf("At(%d) is %d=%d, want %d=%d", r, k, v, keys[r], model[keys[r]])
		}
	}
}

// TestModel runs random edits against a plain map. Every map is kept, and checked at the end: no edit may change an older one.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type version struct {
			m     Map[int, int]
			model map[int]int
		}
		space := rapid.SampledFrom([]int{20, 200, 5000}).Draw(t, "space")
		var m Map[int, int]
		model := map[int]int{}
		var kept []version
		rounds := rapid.IntRange(1, 12).Draw(t, "rounds")
		for range rounds {
			var e *Edit
			if rapid.Bool().Draw(t, "shared edit") {
				e = new(Edit)
			}
			n := rapid.IntRange(1, 400).Draw(t, "edits")
			bias := rapid.IntRange(0, 10).Draw(t, "bias to set")
			seed := rapid.IntRange(1, 1<<30).Draw(t, "seed")
			for i := range n {
				seed = (seed*1103515245 + 12345) & 0x7fffffff
				k := seed >> 8 % space
				k %= space
				if seed>>4%10 < bias {
					m = m.Set(e, k, i)
					model[k] = i
				} else {
					m = m.Delete(e, k)
					delete(model, k)
				}
				if v, ok := m.Get(k); ok != (model[k] != 0 || hasZero(model, k)) || v != model[k] {
					t.Fatalf("Get(%d) = %d, %v", k, v, ok)
				}
			}
			check(t, m.root, true, nil, nil)
			kept = append(kept, version{m, maps.Clone(model)})
		}
		for _, v := range kept {
			equal(t, v.m, v.model)
		}
		keys := slices.Sorted(maps.Keys(model))
		for k := -1; k <= space; k += max(1, space/50) {
			want, _ := slices.BinarySearch(keys, k)
			if got := m.Rank(k); got != want {
				t.Fatalf("Rank(%d) = %d, want %d", k, got, want)
			}
		}
		for r := 0; r <= len(keys); r += max(1, len(keys)/20) {
			want := r
			for k := range m.From(r) {
				if k != keys[want] {
					t.Fatalf("From(%d): %d, want %d", r, k, keys[want])
				}
				if want++; want > r+3 {
					break
				}
			}
		}
	})
}

// TestDeleteRange takes ranges out of maps of up to four levels. The map before is as it was.
func TestDeleteRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.SampledFrom([]int{0, 1, 40, 1000, 6000}).Draw(t, "keys")
		step := rapid.SampledFrom([]int{1, 7919}).Draw(t, "step")
		var full Map[int, int]
		model := map[int]int{}
		build := new(Edit)
		for i := range n {
			k := i * step % n * 2
			full, model[k] = full.Set(build, k, i), i
		}
		random := rand.New(rand.NewPCG(1, rapid.Uint64().Draw(t, "seed")))
		for range 20 {
			m := full
			var e *Edit
			for range 1 + random.IntN(8) {
				first := random.IntN(2*n+2) - 1
				end := first + random.IntN(1+2*n>>random.IntN(12)) - random.IntN(3)
				before, gone := m.Len(), max(m.Rank(end)-m.Rank(first), 0)
				m = m.DeleteRange(e, first, end)
				check(t, m.root, true, nil, nil)
				if m.Len() != before-gone || end > first && m.Rank(end) != m.Rank(first) {
					t.Fatalf("%d of %d keys are left without %d to %d", m.Len(), before, first, end)
				}
				if e == nil && random.IntN(2) == 0 {
					e = new(Edit)
				}
				for range random.IntN(9) {
					m = m.Delete(e, first+random.IntN(20))
				}
			}
			for k, v := range m.All() {
				if model[k] != v {
					t.Fatalf("%d is %d", k, v)
				}
			}
		}
		equal(t, full, model)
	})
}

func hasZero(m map[int]int, k int) bool { _, ok := m[k]; return ok }

func TestEmpty(t *testing.T) {
	var m Map[string, int]
	if _, ok := m.Get("a"); ok || m.Len() != 0 || m.Rank("a") != 0 {
		t.Fatal("the zero map is not empty")
	}
	m = m.Delete(nil, "a")
	for range m.All() {
		t.Fatal("iterated")
	}
	m = m.Set(nil, "", 1)
	if v, ok := m.Get(""); !ok || v != 1 {
		t.Fatal("the empty key is a key")
	}
	if m = m.Delete(nil, ""); m.Len() != 0 {
		t.Fatal("not empty again")
	}
}

func benchMap(n int) (Map[string, int], []string) {
	var m Map[string, int]
	e := new(Edit)
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("queue.%06d", i*7919%n)
		m = m.Set(e, keys[i], i)
	}
	return m, keys
}

func BenchmarkGet(b *testing.B) {
	for _, n := range []int{100, 10_000, 100_000} {
		m, keys := benchMap(n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				m.Get(keys[i%n])
			}
		})
	}
}

func BenchmarkSet(b *testing.B) {
	for _, n := range []int{100, 10_000, 100_000} {
		m, keys := benchMap(n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				m.Set(nil, keys[i%n], i)
			}
		})
	}
}
