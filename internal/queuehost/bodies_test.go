package queuehost

import (
	"math/rand/v2"
	"testing"
)

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
