package replica

import (
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"holdfast/internal/clock"
	"holdfast/internal/seglog"
	"holdfast/internal/vfs"
)

var segSeeds = flag.Int("raft.segseeds", 20, "how many seeds the simulation runs on the segment log")

// segDisk is a segment log on a disk in memory. Its goroutines write when they like; the
// simulation waits for them when it wants a batch to be stable.
type segDisk struct {
	*seglog.Log
	Reader
	t   testing.TB
	clk clock.Clock
	fs  *vfs.Mem

	mu     sync.Mutex
	stable *sync.Cond
	queue  []*segBatch
	asked  []seglog.GroupID
	ask    func([]seglog.GroupID)
}

type segBatch struct {
	batch seglog.Batch
	of    *seglog.Batch
	done  bool
}

func newSegDisk(t testing.TB, clk clock.Clock, fs *vfs.Mem) *segDisk {
	d := &segDisk{t: t, clk: clk, fs: fs}
	d.stable = sync.NewCond(&d.mu)
	l, err := seglog.Open(fs, "log", seglog.Options{
		SegmentMin: 64 << 10, SegmentMax: 64 << 10, FrameMax: 16 << 10, CheckpointBytes: 64 << 10,
		HangLimit: 1000 * time.Hour, // time runs by itself here
		Clock:     clk, Logger: slog.New(slog.DiscardHandler),
		Events: seglog.Events{
			NeedSnapshot: func(ids []seglog.GroupID) {
				d.mu.Lock()
				d.asked = append(d.asked, ids...)
				d.mu.Unlock()
			},
			Fatal: func(err error) { t.Error(err) },
			Hit:   func(h seglog.Hit) { t.Errorf("hit: %+v", h) },
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if q := l.Quarantined(); len(q) > 0 {
		t.Fatalf("quarantined: %+v", q)
	}
	d.Log, d.Reader = l, NewReader(l)
	return d
}

func (d *segDisk) Append(b *seglog.Batch) {
	s := &segBatch{of: b}
	s.batch = seglog.Batch{Records: b.Records, Sync: true, Stable: func(*seglog.Batch) {
		d.mu.Lock()
		s.done = true
		d.mu.Unlock()
		d.stable.Broadcast()
	}}
	d.mu.Lock()
	d.queue = append(d.queue, s)
	d.mu.Unlock()
	d.Log.Append(&s.batch)
}

func (d *segDisk) commit() bool {
	d.mu.Lock()
	asked := d.asked
	d.asked = nil
	if len(d.queue) == 0 {
		d.mu.Unlock()
		if len(asked) > 0 && d.ask != nil {
			d.ask(asked)
		}
		return false
	}
	s := d.queue[0]
	d.queue = slices.Delete(d.queue, 0, 1)
	for !s.done {
		d.stable.Wait()
	}
	d.mu.Unlock()
	s.of.Stable(s.of)
	return true
}

func (d *segDisk) crash(rng *rand.Rand) disk {
	fs := d.fs.CrashClone(rng)
	d.stop()
	return newSegDisk(d.t, d.clk, fs)
}

func (d *segDisk) stop() {
	if err := d.Log.Close(false); err != nil {
		d.t.Error(err)
	}
}

// The simulation on the log that nodes have.
func TestRaftSimulationOnTheSegmentLog(t *testing.T) {
	total := tally{}
	for seed := *simFirst; seed < *simFirst+uint64(*segSeeds); seed++ {
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) {
			total.add(simulate(t, seed, func(c *cluster) disk { return newSegDisk(t, c.clk, vfs.NewMem()) }))
		})
		if !ok {
			t.Fatalf("go test -run SegmentLog -raft.first %d -raft.segseeds 1", seed)
		}
	}
	t.Logf("%+v", total)
}
