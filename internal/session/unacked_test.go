package session

import (
	"flag"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// The cases of rapid are the same in every run; -rapid.seed=N makes others.
func init() { flag.Set("rapid.seed", "1") }

// TestUnackedIsASet compares with a map.
func TestUnackedIsASet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var u unacked
		model := map[uint64]uint64{}
		h := &holder{}
		tag := uint64(0)
		someTag := func(t *rapid.T) uint64 { return rapid.Uint64Range(0, tag+2).Draw(t, "tag") }
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				for range rapid.IntRange(1, 200).Draw(t, "n") {
					tag++
					u.add(tag, checkout{h, tag * 10})
					model[tag] = tag * 10
				}
			},
			"skip": func(t *rapid.T) { tag += rapid.Uint64Range(0, 100).Draw(t, "n") }, // tags of no-ack deliveries
			"again": func(t *rapid.T) {
				if n := someTag(t); n > 0 && n <= tag && model[n] == 0 {
					u.add(n, checkout{h, n * 10})
					model[n] = n * 10
				}
			},
			"take": func(t *rapid.T) {
				n := someTag(t)
				c, ok := u.take(n)
				if want, has := model[n]; has != ok || c.id != want {
					t.Fatalf("take %d: %v %v, want %v %v", n, c.id, ok, want, has)
				}
				delete(model, n)
			},
			"take up to": func(t *rapid.T) {
				n := someTag(t)
				var got, want []uint64
				u.takeUpTo(n, func(tag uint64, c checkout) { got = append(got, c.id) })
				for m := uint64(0); m <= n; m++ {
					if id, has := model[m]; has {
						want = append(want, id)
						delete(model, m)
					}
				}
				if !slices.Equal(got, want) {
					t.Fatalf("up to %d: %v, want %v", n, got, want)
				}
			},
			"": func(t *rapid.T) {
				n := someTag(t)
				if _, has := model[n]; u.has(n) != has || u.count != len(model) {
					t.Fatalf("has %d: %v; %d outstanding, want %d", n, u.has(n), u.count, len(model))
				}
			},
		})
	})
}

// One delivery that stays does not hold the memory of those after it. R103 on
// the session's side.
func TestOldDeliveryCostsItsBlockOnly(t *testing.T) {
	var u unacked
	h := &holder{}
	u.add(1, checkout{h, 1})
	for tag := uint64(2); tag < 1_000_000; tag++ {
		u.add(tag, checkout{h, tag})
		u.take(tag)
	}
	if len(u.blocks) > 2 {
		t.Errorf("%d blocks for %d deliveries", len(u.blocks), u.count)
	}
}

func BenchmarkUnacked(b *testing.B) {
	var u unacked
	h := &holder{}
	b.ReportAllocs()
	for tag := uint64(1); b.Loop(); tag++ {
		u.add(tag, checkout{h, tag})
		if tag%100 == 0 {
			u.takeUpTo(tag, func(uint64, checkout) {})
		}
	}
}
