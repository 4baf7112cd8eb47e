package queue

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// The set of ready messages against a map, over sizes at which blocks fill, split and empty.
func TestRunsAgainstMap(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 2))
		var s runs
		want := map[Number]attr{}
		next := Number(1)
		add := func(first, last Number, a attr, put func(run)) {
			put(run{first, last, a})
			for n := first; n <= last; n++ {
				want[n] = a
			}
		}
		back := func() {
			n := Number(1 + r.IntN(4))
			next += Number(r.IntN(2) * r.IntN(6)) // holes, into which runs can return
			add(next, next+n-1, attr(r.IntN(3)), s.pushBack)
			next += n
		}
		for range 2000 {
			switch p := r.IntN(10); {
			case p < 4:
				back()
			case p < 5 && s.front() != nil:
				f := *s.front()
				n := 1 + r.Uint64N(f.len())
				s.cutFront(n)
				for k := range n {
					delete(want, f.first+Number(k))
				}
			case p < 8:
				// Return a few numbers that are not in the set.
				first := Number(1 + r.Uint64N(uint64(next)))
				last := first
				for _, taken := want[first]; taken && first < next; _, taken = want[first] {
					first++
					last = first
				}
				for _, taken := want[last+1]; !taken && last < next && last < first+3; _, taken = want[last+1] {
					last++
				}
				if last < next {
					add(first, last, attr(r.IntN(3)), s.insert)
				}
			case p < 9:
				first := Number(1 + r.Uint64N(uint64(next)))
				last := first + Number(r.IntN(20))
				s.remove(first, last, func(g run) {
					for n := g.first; n <= g.last; n++ {
						if a, in := want[n]; !in || a != g.attr {
							t.Fatalf("seed %d: %v removed, which is not in", seed, n)
						}
						delete(want, n)
					}
				})
				for n := first; n <= last; n++ {
					if _, in := want[n]; in {
						t.Fatalf("seed %d: %v not removed", seed, n)
					}
				}
			case r.IntN(100) == 0:
				s.change(func(x run) (run, bool) {
					keep := x.attr != 2
					for n := x.first; n <= x.last; n++ {
						want[n] = x.attr | flagRedelivered
						if !keep {
							delete(want, n)
						}
					}
					x.attr |= flagRedelivered
					return x, keep
				})
				for n := range want {
					want[n] &^= flagRedelivered
				}
				s.change(func(x run) (run, bool) {
					x.attr &^= flagRedelivered
					return x, true
				})
			}
		}
		sameRuns(t, &s, want)
		if r.IntN(2) == 0 {
			s.remove(next/2, next/2+50, func(g run) {
				for n := g.first; n <= g.last; n++ {
					delete(want, n)
				}
			})
		}
		for last := Number(0); s.front() != nil; {
			f := *s.front()
			if f.first <= last {
				t.Fatalf("seed %d: %v in front after %v", seed, f.first, last)
			}
			for n := f.first; n <= f.last; n++ {
				delete(want, n)
			}
			last = f.last
			s.cutFront(f.len())
		}
		if len(want) != 0 || len(s.blocks) > 1 {
			t.Fatalf("seed %d: %d numbers were not found from the front, %d blocks left", seed, len(want), len(s.blocks))
		}
	}
}

func sameRuns(t *testing.T, s *runs, want map[Number]attr) {
	t.Helper()
	for _, b := range s.blocks {
		if len(b.live()) > blockRuns {
			t.Fatalf("a block of %d runs", len(b.live()))
		}
	}
	last := Number(0)
	n := 0
	s.all(func(r run) {
		if r.first <= last {
			t.Fatalf("run at %v after %v", r.first, last)
		}
		last = r.last
		for k := r.first; k <= r.last; k++ {
			if a, in := want[k]; !in || a != r.attr {
				t.Fatalf("%v in the set: %v, with history %d", k, in, a)
			}
			n++
		}
	})
	if n != len(want) {
		t.Fatalf("%d numbers, want %d", n, len(want))
	}
}

// Runs that come back in any order end as the one run they were.
func TestRunsGrowTogether(t *testing.T) {
	const n = 20_000
	order := rand.New(rand.NewPCG(1, 1)).Perm(n)
	var s runs
	for _, i := range order {
		s.insert(run{Number(i + 1), Number(i + 1), 5})
	}
	var got []run
	s.all(func(r run) { got = append(got, r) })
	if len(got) != 1 || got[0] != (run{1, n, 5}) || len(s.blocks) != 1 {
		t.Fatalf("%d runs in %d blocks, the first %v", len(got), len(s.blocks), got[0])
	}
}

func TestCheckoutsAgainstMap(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 3))
		var c checkouts
		want := map[uint64]slot{}
		id, number := uint64(0), Number(0)
		burst := 1 + r.IntN(1<<r.IntN(11))
		for range 100 {
			if r.IntN(3) == 0 {
				n := 1 + r.Uint64N(uint64(burst))
				id += 1 + r.Uint64N(2)*r.Uint64N(500) // ids given to no-ack gets are not held
				c.add(id, number+1, n, int64(id), attr(n))
				for k := range n {
					want[id+k] = slot{number + 1 + Number(k), int64(id), attr(n)}
				}
				id, number = id+n-1, number+Number(n)
				continue
			}
			for range 1 + r.IntN(burst/2+1) {
				first := 1 + r.Uint64N(id+1)
				last := first
				switch r.IntN(10) {
				case 0:
					last += r.Uint64N(300)
				case 1:
					first = 0
					last = r.Uint64N(id/4 + 1)
				}
				before, at := c.count, first
				taken := uint64(0)
				c.take(first, last, func(s *slot) {
					for want[at] == (slot{}) && at <= last {
						at++
					}
					if want[at] != *s {
						t.Fatalf("seed %d: id %d is %+v, want %+v", seed, at, *s, want[at])
					}
					delete(want, at)
					taken++
				})
				for k := at; k <= min(last, id); k++ {
					if _, held := want[k]; held {
						t.Fatalf("seed %d: id %d of %d-%d was not taken", seed, k, first, last)
					}
				}
				if c.count != before-taken {
					t.Fatalf("seed %d: %d held after %d of %d were taken", seed, c.count, taken, before)
				}
			}
			if r.IntN(10) == 0 {
				sameCheckouts(t, &c, want)
			}
		}
		sameCheckouts(t, &c, want)
		if r.IntN(2) == 0 {
			c.take(0, ^uint64(0), func(s *slot) {})
			if c.count != 0 || c.oldest() != 0 || len(c.pages) > 1 {
				t.Fatalf("seed %d: %d held in %d pages after all were taken", seed, c.count, len(c.pages))
			}
		}
	}
}

func sameCheckouts(t *testing.T, c *checkouts, want map[uint64]slot) {
	t.Helper()
	w := checker{}
	w.m = New()
	w.held(&consumer{delivered: ^uint64(0), held: *c})
	if w.err != nil {
		t.Fatal(w.err)
	}
	var ids []uint64
	c.all(func(id uint64, s *slot) {
		if want[id] != *s {
			t.Fatalf("id %d is %+v, want %+v", id, *s, want[id])
		}
		ids = append(ids, id)
	})
	if len(ids) != len(want) || !slices.IsSorted(ids) {
		t.Fatalf("%d ids, want %d", len(ids), len(want))
	}
	if len(ids) > 0 && c.oldest() != want[ids[0]].time {
		t.Fatalf("oldest of %d, want %d", c.oldest(), want[ids[0]].time)
	}
}

// One held message does not keep the memory of those delivered after it. // R25
func TestHeldMessageCostsItself(t *testing.T) {
	var c checkouts
	c.add(1, 1, 1, 0, 0)
	for id := uint64(2); id < 3_000_000; id += 100 {
		c.add(id, Number(id), 100, 0, 0)
		c.take(id, id+99, func(*slot) {})
	}
	if c.count != 1 || len(c.pages) > 100 {
		t.Fatalf("%d held in %d pages", c.count, len(c.pages))
	}
}
