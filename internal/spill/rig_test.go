package spill

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"holdfast/internal/clock"
	"holdfast/internal/vfs"
)

var quiet = slog.New(slog.DiscardHandler)

// rig is a store without its goroutine: the test steps.
type rig struct {
	t      testing.TB
	disk   *vfs.Mem
	clock  *clock.Manual
	s      *Store
	alarms []string
}

func newRig(t testing.TB, o Options) *rig {
	r := &rig{t: t, disk: vfs.NewMem(), clock: clock.NewManual(time.Unix(1e9, 0))}
	o.Clock, o.Logger = r.clock, quiet
	o.Alarm = func(on bool, why string) { r.alarms = append(r.alarms, fmt.Sprint(on)) }
	s, err := Open(r.disk, "spill", o)
	if err != nil {
		t.Fatal(err)
	}
	r.s = s
	return r
}

func (r *rig) step() {
	for range 1000 {
		if !r.s.Step() {
			return
		}
	}
	r.t.Fatal("the store does not come to rest")
}

// put hands in a job and returns where its block will be.
func (r *rig) put(first uint64, items ...string) (*Job, **Block) {
	j, b := &Job{}, new(*Block)
	for i, it := range items {
		j.Numbers = append(j.Numbers, first+uint64(i))
		j.Items = append(j.Items, []byte(it))
	}
	done := 0
	j.Done = func(_ *Job, got *Block) {
		if *b, done = got, done+1; done > 1 {
			r.t.Errorf("the job of %d is done twice", first)
		}
	}
	r.s.Put(j)
	return j, b
}

func (r *rig) write(first uint64, items ...string) *Block {
	r.t.Helper()
	_, b := r.put(first, items...)
	r.step()
	if *b == nil {
		r.t.Fatalf("block %d is not written", first)
	}
	return *b
}

// read wants an item to be there.
func (r *rig) read(reader *Reader, b *Block, n uint64, item string) {
	r.t.Helper()
	if got, err := reader.Read(b, n); err != nil || string(got) != item {
		r.t.Fatalf("item %d: %q, %v; want %q", n, got, err, item)
	}
}

func want[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%s: %v, want %v", what, got, want)
	}
}
