package cluster

import (
	"encoding/json"
	"slices"
	"testing"
)

// Of two lines one may descend from the other; two that were forced each by itself have come apart.
func TestLinesComeApart(t *testing.T) {
	f := func(n byte) Force { return Force{n} }
	for _, c := range []struct {
		a, b       Line
		aOfB, bOfA bool
	}{
		{nil, nil, true, true},
		{Line{f(1)}, nil, true, false},
		{Line{f(1)}, Line{f(1)}, true, true},
		{Line{f(1), f(2)}, Line{f(1)}, true, false},
		{Line{f(1), f(2), f(3)}, Line{f(1)}, true, false},
		{Line{f(1)}, Line{f(2)}, false, false},
		{Line{f(1), f(2)}, Line{f(1), f(3)}, false, false},
		{Line{f(1), f(2)}, Line{f(3)}, false, false},
	} {
		if got := c.a.From(c.b); got != c.aOfB {
			t.Errorf("%v from %v: %v", c.a, c.b, got)
		}
		if got := c.b.From(c.a); got != c.bOfA {
			t.Errorf("%v from %v: %v", c.b, c.a, got)
		}
	}
}

// A line keeps so many forces; it still descends from those it remembers, and from the founding.
func TestALineForgetsItsOldestForces(t *testing.T) {
	var l Line
	before := []Line{nil}
	for range 3 * mostForces {
		shared := slices.Clone(l)
		next := l.Forced(NewForce())
		if !slices.Equal(l, shared) {
			t.Fatal("the line before has changed")
		}
		l = next
		before = append(before, l)
	}
	if len(l) != mostForces {
		t.Errorf("it has %d", len(l))
	}
	for i, b := range before {
		if want := i == 0 || i > len(before)-1-mostForces; l.From(b) != want {
			t.Errorf("from the line of %d forces: %v", i, !want)
		}
	}
	if back, err := ParseLine(l.Bytes()); err != nil || !slices.Equal(back, l) {
		t.Errorf("read back: %v, %v", back, err)
	}
}

func TestLinesInBytes(t *testing.T) {
	for _, n := range []int{1, 7, 9, 8 * (mostForces + 1)} {
		if l, err := ParseLine(make([]byte, n)); err == nil {
			t.Errorf("%d bytes are %v", n, l)
		}
	}
	l := Line{}.Forced(Force{0xab}).Forced(Force{1})
	text, err := json.Marshal(l)
	if want := `["ab00000000000000","0100000000000000"]`; err != nil || string(text) != want {
		t.Errorf("%s, %v", text, err)
	}
	var back Line
	if err := json.Unmarshal(text, &back); err != nil || !slices.Equal(back, l) {
		t.Errorf("read back: %v, %v", back, err)
	}
	if json.Unmarshal([]byte(`["ab"]`), &back) == nil || json.Unmarshal([]byte(`["xb00000000000000"]`), &back) == nil {
		t.Error("what is no force was read")
	}
}
