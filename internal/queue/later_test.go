package queue

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"
)

// The messages that wait for a time against a map, over sizes at which blocks fill, split and empty, and times and
// numbers too far apart for one block.
func TestLaterAgainstMap(t *testing.T) {
	type until struct {
		time int64
		attr attr
	}
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 4))
		w := waiting{lanes: make([]later, 1)}
		l := &w.lanes[0]
		want := map[Number]until{}
		var views []waiting // R560: they stay as they were
		var viewed [][]byte
		now, n := int64(r.IntN(2))<<40, Number(r.IntN(2))<<40+1
		span, step := int64(1)<<(1+r.IntN(40)), 1<<(1+r.IntN(34))
		for range 3000 {
			switch p := r.IntN(10); {
			case p < 8:
				n += 1 + Number(r.IntN(2)*r.IntN(step))
				u := until{now + 1 + r.Int64N(span), attr(r.IntN(3)/2) * attr(1+r.IntN(5))}
				if r.IntN(4) == 0 {
					u.attr = flagTransient
				}
				k := n
				if r.IntN(3) == 0 { // one that comes back
					k = Number(1 + r.Uint64N(uint64(n)))
				}
				if _, in := want[k]; !in {
					l.add(u.time, k, u.attr)
					want[k] = u
				}
			case p < 9:
				now += r.Int64N(span/4 + 1)
				fallthrough
			default:
				last := until{}
				lastNumber := Number(0)
				l.due(now, func(k Number, a attr) {
					u, in := want[k]
					if !in || u.attr != a || u.time > now || !before(last.time, lastNumber, u.time, k) {
						t.Fatalf("seed %d: %v, which waits until %d (%v), is due at %d after %d", seed, k, u.time, in, now, last.time)
					}
					delete(want, k)
					last, lastNumber = u, k
				})
				for k, u := range want {
					if u.time <= now {
						t.Fatalf("seed %d: %v is still there at %d", seed, k, now)
					}
				}
			}
			if r.IntN(200) > 0 {
				continue
			}
			views = append(views, w.view())
			viewed = append(viewed, laterBytes(&w))
			var keys, got []Number
			for k := range want {
				keys = append(keys, k)
			}
			slices.SortFunc(keys, func(a, b Number) int {
				return cmp.Or(cmp.Compare(want[a].time, want[b].time), cmp.Compare(a, b))
			})
			l.all(func(at int64, k Number, a attr) {
				if want[k] != (until{at, a}) {
					t.Fatalf("seed %d: %v waits until %d, want %d", seed, k, at, want[k].time)
				}
				got = append(got, k)
			})
			if !slices.Equal(got, keys) {
				t.Fatalf("seed %d: they are in order %v, want %v", seed, got, keys)
			}
		}
		l.due(endOfTime, func(k Number, _ attr) { delete(want, k) })
		for i := range views {
			if !slices.Equal(laterBytes(&views[i]), viewed[i]) {
				t.Fatalf("seed %d: view %d has changed", seed, i)
			}
		}
		if len(want) > 0 || len(l.blocks) > 0 {
			t.Fatalf("seed %d: %d are missing, %d blocks are left", seed, len(want), len(l.blocks))
		}
	}
}

// laterBytes is the messages that wait as a snapshot has them.
func laterBytes(w *waiting) []byte {
	var e encoder
	e.later(w)
	return e.b
}

// A message that was requeued more than twenty times waits longer after each return, up to a second; after one that is
// nobody's saying it does not.
func TestBackoff(t *testing.T) {
	r := newRig(Command{Kind: Set, Terms: &Terms{Set: &Settings{Backoff: true}}}, attach(1, false), Command{Kind: Enqueue, Count: 1})
	var waits []int64
	for id := uint64(1); id <= 30; id++ {
		r.apply(Command{Kind: Settle, Session: 1, Consumer: 1, How: Requeue, First: id, Last: id, Blameless: id%2 == 0})
		next, ok := r.m.NextDeadline()
		if !ok {
			if r.m.Unacked() != 1 {
				t.Fatalf("after %d returns it is not there", id)
			}
			continue
		}
		waits = append(waits, (next-r.e.Time)/millisecond)
		r.e.Time = next - 1000
		if d := r.apply(Command{Kind: Due}); len(d) != 1 || d[0].Acquired != uint32(id) {
			t.Fatalf("after %d returns: %+v", id, d)
		}
	}
	if want := []int64{10, 20, 40, 80, 160, 320, 640, 1000, 1000, 1000}; !slices.Equal(waits, want) {
		t.Errorf("it waits %v ms, want %v", waits, want)
	}
	r.apply(Command{Kind: Detach, Consumer: 1})
	if r.m.Ready() != 1 {
		t.Error("it waits after its consumer has left")
	}
}
