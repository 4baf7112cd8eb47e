package node

import (
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
)

// R263: a small container gets little ballast; R261: ballast is not memory in use.
func TestBallastSize(t *testing.T) {
	for _, c := range []struct {
		name   string
		bounds []uint64
		want   int
	}{
		{"nothing known", nil, 0},
		{"no bound", []uint64{0, 0}, 0},
		{"a machine", []uint64{8 << 30, 4800 << 20, math.MaxInt64}, ballastMax},
		{"a small container", []uint64{128 << 20, 64 << 20, math.MaxInt64}, 4 << 20},
		{"one without a mark", []uint64{32 << 20, 0, math.MaxInt64}, 2 << 20},
		{"one with a mark above its limit", []uint64{32 << 20, 8 << 30, math.MaxInt64}, 2 << 20},
		{"a large machine with a low mark", []uint64{8 << 30, 32 << 20, math.MaxInt64}, 2 << 20},
		{"GOMEMLIMIT", []uint64{8 << 30, 4 << 30, 48 << 20}, 3 << 20},
	} {
		if got := len(newBallast(c.bounds...)); got != c.want {
			t.Errorf("%s: %d bytes, want %d", c.name, got, c.want)
		}
	}
	if got := make(ballast, 10).less(100); got != 90 {
		t.Errorf("100 bytes without a ballast of 10 are %d", got)
	}
	if got := make(ballast, 10).less(5); got != 0 {
		t.Errorf("5 bytes without a ballast of 10 are %d", got)
	}
}

// A node holds its ballast, and does not count it: the collector lets the heap grow by as much before it runs.
func TestBallastSlowsTheCollector(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(100))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(math.MaxInt64))
	p := newPlace(t)
	o := options(p.settings(), p.disk)
	o.Memory = MemoryLimit{Bytes: 8 << 30, Source: "test"}
	n, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	defer stop(t, n)
	runtime.GC()
	samples := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/heap/goal:bytes"}}
	metrics.Read(samples)
	if live, goal := samples[0].Value.Uint64(), samples[1].Value.Uint64(); goal < live+ballastMax {
		t.Errorf("the goal is %d bytes with %d live", goal, live)
	}
	if len(n.ballast) != ballastMax {
		t.Errorf("the node has a ballast of %d bytes", len(n.ballast))
	}
}
