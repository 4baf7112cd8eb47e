package node

import (
	"math"
	"reflect"
	"testing"
	"time"
)

// R261: the alarm comes over the mark and goes clearly under it, not at it.
func TestMemoryWatch(t *testing.T) {
	var held uint64
	var said []bool
	now := int64(0)
	w := &memoryWatch{
		mark: func() uint64 { return 1000 }, held: func() uint64 { return held }, collect: func() {},
		alarm: func(on bool, why string) {
			if why == "" {
				t.Error("no reason")
			}
			said = append(said, on)
		},
	}
	for _, held = range []uint64{0, 1000, 1001, 2000, 1000, 960, 949, 1000, 1001} {
		w.look(now)
	}
	if want := []bool{true, false, true}; !reflect.DeepEqual(said, want) {
		t.Errorf("said %v, want %v", said, want)
	}
	// Under alarm nobody else need bring the collector on.
	w.collect = func() { held = 10 }
	for int64(collectEvery) > now {
		now += int64(memoryEvery)
		w.look(now)
	}
	if w.on {
		t.Error("the alarm is on because of garbage")
	}
	none := &memoryWatch{mark: func() uint64 { return 0 }, held: func() uint64 { return 1 << 40 }, alarm: func(bool, string) { t.Error("an alarm without a mark") }}
	none.look(0)
	held = 2000
	w.look(now)
	if !w.on {
		t.Error("no alarm over the mark")
	}
	w.mark = none.mark
	if w.look(now); w.on {
		t.Error("the alarm is on without a mark")
	}
	if new(Node).heldMemory() == 0 {
		t.Error("this process holds no memory")
	}
}

// R492: the nearer memory is to its mark, the sooner it is looked at again, so that a flood does not lead far over it.
func TestMemoryIsWatchedMoreCloselyNearTheMark(t *testing.T) {
	const mark = 512 << 20
	for _, c := range []struct {
		held uint64
		want time.Duration
	}{{0, 500 * time.Millisecond}, {mark / 2, 250 * time.Millisecond}, {mark - 1, memoryOften}, {mark, memoryOften}, {2 * mark, memoryEvery}} {
		w := &memoryWatch{mark: func() uint64 { return mark }, held: func() uint64 { return c.held }, collect: func() {}, alarm: func(bool, string) {}}
		if got := w.look(0); got != c.want {
			t.Errorf("with %d MiB in use it is looked at again after %v, want %v", c.held>>20, got, c.want)
		}
	}
	large := &memoryWatch{mark: func() uint64 { return 64 << 30 }, held: func() uint64 { return 1 << 30 }}
	if got := large.look(0); got != memoryEvery {
		t.Errorf("far from the mark it is looked at again after %v", got)
	}
}

// R493: what publishers have in flight is a part of the memory there is, and of what may be used of the disk.
func TestNodeCredit(t *testing.T) {
	for _, c := range []struct {
		disk, memory uint64
		want         int64
	}{
		{2 << 30, 0, 256 << 20}, {2 << 30, 64 << 30, 256 << 20}, {2 << 30, 512 << 20, 64 << 20}, {64 << 20, 512 << 20, 32 << 20}, {1 << 20, 1 << 20, 1 << 20},
	} {
		if got := nodeCredit(c.disk, c.memory); got != c.want {
			t.Errorf("a disk mark of %d MiB, memory of %d MiB: %d MiB, want %d", c.disk>>20, c.memory>>20, got>>20, c.want>>20)
		}
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
