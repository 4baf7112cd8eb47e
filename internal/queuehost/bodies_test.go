package queuehost

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"holdfast/internal/queue"
)

// The page map against a plain one.
func TestBodiesAgainstAModel(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		l := &lane{tail: tail{limit: 2000}}
		bs := []*bodies{{}, {}}
		type entry struct {
			item     string
			onDisk   bool
			volatile bool
		}
		models := []map[queue.Number]entry{{}, {}}
		next := []queue.Number{1, 1}
		some := func(q int) queue.Numbers {
			first := queue.Number(rng.Uint64N(uint64(next[q]))) + 1
			return queue.Numbers{First: first, Last: first + queue.Number(rng.IntN(80))}
		}
		for range 3000 {
			q := rng.IntN(2)
			b, m := bs[q], models[q]
			switch rng.IntN(6) {
			case 0, 1, 2:
				item := fmt.Sprintf("%d/%d", q, next[q])
				volatile := rng.IntN(3) == 0
				b.add(l, next[q], []byte(item), volatile)
				m[next[q]] = entry{item: item, volatile: volatile}
				next[q] += queue.Number(1 + rng.IntN(2)*rng.IntN(40))
			case 3:
				r := some(q)
				b.remove(l, r)
				for n := r.First; n <= r.Last; n++ {
					delete(m, n)
				}
			case 4:
				r := some(q)
				for n := r.First; n <= r.Last; n++ { // volatile ones never become stable
					e, ok := m[n]
					if !ok || e.volatile {
						continue
					}
					b.stable(l, queue.Numbers{First: n, Last: n})
					e.onDisk = true
					m[n] = e
				}
			case 5:
				l.tail.trim(l)
				for i := range bs { // what is on disk may be gone now
					for n, e := range models[i] {
						if e.onDisk && bs[i].item(n) == nil {
							delete(models[i], n)
						}
					}
				}
			}
			n := queue.Number(rng.Uint64N(uint64(next[q]))) + 1
			if got, e := b.item(n), m[n]; string(got) != e.item && !(got == nil && e.onDisk) {
				t.Fatalf("seed %d: item %v: got %q, want %q", seed, n, got, e.item)
			}
		}
		var volatile, disk int64
		for i, b := range bs {
			var bytes int64
			for _, e := range models[i] {
				bytes += int64(len(e.item))
				if e.volatile {
					volatile += int64(len(e.item))
				}
				if e.onDisk {
					disk += int64(len(e.item))
				}
			}
			want(t, "bytes", b.bytes, bytes)
		}
		want(t, "volatile bytes", l.volatile, volatile)
		want(t, "bytes on disk", l.tail.bytes, disk)
		for _, b := range bs {
			b.clear(l)
		}
		want(t, "after clear", []int64{l.volatile, l.tail.bytes, bs[0].bytes}, []int64{0, 0, 0})
		if l.tail.oldest != nil || l.tail.newest != nil || bs[0].pages != nil {
			t.Fatal("something is left")
		}
	}
}

func TestFifo(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	var f fifo[int]
	in, out := 0, 0
	for range 10000 {
		if rng.IntN(2) == 0 || f.len() == 0 {
			f.push(in)
			in++
			continue
		}
		want(t, "front", *f.front(), out)
		want(t, "last", *f.last(), in-1)
		f.pop()
		out++
	}
	for f.len() > 0 {
		want(t, "front", *f.front(), out)
		f.pop()
		out++
	}
	if cap(f.list) > keepFifo {
		t.Fatal("an empty fifo keeps its memory")
	}
}
