package seglog

import (
	"math/rand/v2"
	"testing"
)

// TestIDSetAgainstMap runs random histories and compares with a plain map.
func TestIDSetAgainstMap(t *testing.T) {
	for seed := range uint64(25) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var s idset
		model := map[uint64]bool{}
		next := rng.Uint64N(10000)
		sparse := rng.IntN(2) == 0
		for step := range 300 {
			switch {
			case rng.IntN(3) > 0 || len(model) == 0:
				if sparse {
					next += rng.Uint64N(4)
				} else if rng.IntN(20) == 0 {
					next += rng.Uint64N(9000)
				}
				last := next + rng.Uint64N(1+rng.Uint64N(200))
				if rng.IntN(50) == 0 {
					last += 10000
				}
				s.add(next, last)
				for id := next; id <= last; id++ {
					model[id] = true
				}
				next = last + 1
			default:
				first := rng.Uint64N(next)
				last := min(first+rng.Uint64N(1+rng.Uint64N(50)), next-1)
				if rng.IntN(50) == 0 {
					last = next + 5000
				}
				want := uint64(0)
				for id := range model {
					if id >= first && id <= last {
						want++
						delete(model, id)
					}
				}
				if got := s.remove(first, last); got != want {
					t.Fatalf("seed %d step %d: remove %d..%d took %d, want %d", seed, step, first, last, got, want)
				}
			}
		}
		same(t, seed, &s, model, next)
		back, rest, err := parseIDSet(s.append(nil))
		if err != nil || len(rest) != 0 {
			t.Fatalf("seed %d: decode: %v, %d left", seed, err, len(rest))
		}
		same(t, seed, &back, model, next)
		// intersect with random ranges
		var ranges []Range
		for at := rng.Uint64N(3000); at < next; {
			r := Range{at, at + rng.Uint64N(3000)}
			ranges = append(ranges, r)
			at = r.Last + 2 + rng.Uint64N(3000)
		}
		back.intersect(ranges)
		for id := range model {
			in := false
			for _, r := range ranges {
				in = in || id >= r.First && id <= r.Last
			}
			if !in {
				delete(model, id)
			}
		}
		same(t, seed, &back, model, next)
	}
}

func same(t *testing.T, seed uint64, s *idset, model map[uint64]bool, next uint64) {
	t.Helper()
	if s.n != uint64(len(model)) {
		t.Fatalf("seed %d: %d ids, want %d", seed, s.n, len(model))
	}
	for id := range next + 100 {
		if s.contains(id) != model[id] {
			t.Fatalf("seed %d: contains(%d) is %v", seed, id, s.contains(id))
		}
	}
	seen, last := 0, int64(-1)
	s.each(func(first, lastID uint64) {
		if int64(first) <= last {
			t.Fatalf("seed %d: each goes back to %d", seed, first)
		}
		for id := first; id <= lastID; id++ {
			if !model[id] {
				t.Fatalf("seed %d: each gave %d", seed, id)
			}
			seen++
		}
		last = int64(lastID)
	})
	if seen != len(model) {
		t.Fatalf("seed %d: each gave %d ids, want %d", seed, seen, len(model))
	}
	in := 0
	s.eachIn(next/4, next/2, func(first, last uint64) { in += int(last - first + 1) })
	want := 0
	for id := range model {
		if id >= next/4 && id <= next/2 {
			want++
		}
	}
	if in != want {
		t.Fatalf("seed %d: eachIn gave %d ids, want %d", seed, in, want)
	}
}

func TestIDSetStaysSmall(t *testing.T) {
	var s idset
	const n = 1 << 20
	s.add(0, n-1)
	for id := uint64(0); id < n; id += 2 { // the worst: every other id is gone
		s.remove(id, id)
	}
	if len(s.spans) > n/blockIDs+fewSpans*2 {
		t.Fatalf("%d spans for %d ids", len(s.spans), n)
	}
	var gaps idset
	for id := uint64(0); id < n; id += 2 { // the same, filled with gaps
		gaps.add(id, id)
	}
	if len(gaps.spans) > n/blockIDs+fewSpans*2 {
		t.Fatalf("%d spans for %d ids added with gaps", len(gaps.spans), n)
	}
}

func FuzzIDSet(f *testing.F) {
	var s idset
	s.add(5, 5000)
	for id := uint64(100); id < 4000; id += 3 {
		s.remove(id, id)
	}
	f.Add(s.append(nil))
	f.Add([]byte{1, 0, 1})
	f.Fuzz(func(t *testing.T, p []byte) {
		s, _, err := parseIDSet(p)
		if err != nil {
			return
		}
		again, rest, err := parseIDSet(s.append(nil))
		if err != nil || len(rest) != 0 || again.n != s.n {
			t.Fatalf("re-encoding: %v, %d ids, want %d", err, again.n, s.n)
		}
		s.remove(0, ^uint64(0))
		if s.n != 0 || len(s.spans) != 0 {
			t.Fatal("removing all left something")
		}
	})
}
