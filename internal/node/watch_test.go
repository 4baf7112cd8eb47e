package node

import (
	"math"
	"reflect"
	"testing"
)

// R261: the alarm comes over the mark and goes clearly under it, not at it.
func TestMemoryWatch(t *testing.T) {
	var held uint64
	var said []bool
	w := &memoryWatch{
		mark: 1000, held: func() uint64 { return held }, collect: func() {},
		alarm: func(on bool, why string) {
			if why == "" {
				t.Error("no reason")
			}
			said = append(said, on)
		},
	}
	for _, held = range []uint64{0, 1000, 1001, 2000, 1000, 960, 949, 1000, 1001} {
		w.look()
	}
	if want := []bool{true, false, true}; !reflect.DeepEqual(said, want) {
		t.Errorf("said %v, want %v", said, want)
	}
	// Under alarm nobody else need bring the collector on.
	w.collect = func() { held = 10 }
	for range collectEvery {
		w.look()
	}
	if w.on {
		t.Error("the alarm is on because of garbage")
	}
	none := &memoryWatch{held: func() uint64 { return 1 << 40 }, alarm: func(bool, string) { t.Error("an alarm without a mark") }}
	none.look()
	if new(Node).heldMemory() == 0 {
		t.Error("this process holds no memory")
	}
}

// R263: the collector is told of the limit that was found, unless GOMEMLIMIT tells it another; always above the alarm's mark.
func TestCollectorLimit(t *testing.T) {
	group := MemoryLimit{Bytes: 1000, Source: "sys/fs/cgroup/memory.max"}
	for _, c := range []struct {
		name   string
		limit  MemoryLimit
		mark   uint64
		weight ballast
		before int64
		want   int64
		source string
	}{
		{"as found", group, 600, nil, math.MaxInt64, 800, group.Source},
		{"a high mark", group, 900, nil, math.MaxInt64, 950, group.Source},
		{"with ballast", group, 900, make(ballast, 10), math.MaxInt64, 960, group.Source},
		{"a mark above the limit", group, 4000, nil, math.MaxInt64, 800, group.Source},
		{"GOMEMLIMIT", group, 600, make(ballast, 10), 123, 123, "GOMEMLIMIT"},
		{"nothing known", MemoryLimit{}, 0, nil, math.MaxInt64, 0, ""},
	} {
		if at, source := collectorLimit(c.limit, c.mark, c.weight, c.before); at != c.want || source != c.source {
			t.Errorf("%s: %d from %q, want %d from %q", c.name, at, source, c.want, c.source)
		}
	}
}
