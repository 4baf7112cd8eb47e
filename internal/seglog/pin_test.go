package seglog

import "testing"

// Pin is PinRange for one item.
func (l *Log) Pin(g GroupID, id uint64) (Ref, bool) {
	ref, n := l.PinRange(g, id, id)
	return ref, n == 1
}

// One pin is good for as many neighbours as are live in one run.
func TestDense(t *testing.T) {
	var s idset
	s.add(10, 20)
	s.add(30, 40)
	for _, c := range []struct{ first, last, n uint64 }{{10, 10, 1}, {10, 20, 11}, {12, 99, 9}, {30, 35, 6}, {40, 50, 1}} {
		if got := s.dense(c.first, c.last); got != c.n {
			t.Errorf("%d..%d: %d, want %d", c.first, c.last, got, c.n)
		}
	}
	for id := uint64(0); id < 2*blockIDs; id += 2 { // many holes: bitmaps
		s.add(1000+2*id, 1000+2*id+1)
	}
	if s.spans[len(s.spans)/2].bits == nil {
		t.Fatal("no bitmap was made")
	}
	s.each(func(first, last uint64) {
		for id := first; id <= last; id++ {
			want := last - id + 1
			if end := first | (blockIDs - 1); last > end && id <= end {
				want = end - id + 1 // a span ends with its block
			}
			if got := s.dense(id, id+99); got != min(want, 100) && got != want {
				t.Fatalf("from %d: %d, want %d", id, got, want)
			}
		}
	})
}
