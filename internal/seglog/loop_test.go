package seglog

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/internal/clock"
	"holdfast/internal/vfs"
)

// TestManyWritersOnDisk runs the real goroutines on the real file system.
func TestManyWritersOnDisk(t *testing.T) {
	dir := t.TempDir()
	var l *Log
	index := [9]uint64{}
	o := Options{SegmentMin: 256 << 10, SegmentMax: 1 << 20, FrameMax: 64 << 10, Logger: quiet()}
	var mu [9]sync.Mutex
	o.Events.NeedSnapshot = func(gs []GroupID) {
		for _, g := range gs {
			mu[g].Lock()
			l.Append(&Batch{Records: []Record{snapshotRecord(g, index[g])}})
			mu[g].Unlock()
		}
	}
	o.Events.Fatal = func(err error) { t.Error(err) }
	var err error
	if l, err = Open(vfs.OS(), dir, o); err != nil {
		t.Fatal(err)
	}
	l.Start()
	var wg sync.WaitGroup
	var stable atomic.Int64
	const rounds, per = 150, 5
	for g := GroupID(1); g <= 8; g++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			reader := l.NewReader()
			done := make(chan struct{}, 1)
			for k := uint64(1); k <= rounds; k++ {
				mu[g].Lock()
				index[g] = k
				l.Append(&Batch{Records: []Record{entryRecord(g, k, k*per, per, 700)}, Sync: true, Stable: func(*Batch) {
					stable.Add(1)
					done <- struct{}{}
				}})
				mu[g].Unlock()
				<-done
				ref, ok := l.Pin(g, k*per+2)
				if !ok {
					t.Error("a stable item is unknown")
					return
				}
				got, err := reader.Read(ref)
				if err != nil || string(got) != string(item(g, k*per+2, 700)) {
					t.Errorf("read %.20q, %v", got, err)
				}
				ref.Unpin()
				if k%10 != 0 { // one in ten is kept
					l.Release(g, k, []Range{{k * per, k*per + per - 1}})
				}
			}
		}()
	}
	wg.Wait()
	if stable.Load() != 8*rounds {
		t.Fatalf("%d batches became stable", stable.Load())
	}
	if err := l.Close(true); err != nil {
		t.Fatal(err)
	}
	if l, err = Open(vfs.OS(), dir, o); err != nil {
		t.Fatal(err)
	}
	defer l.Close(false)
	if !l.Clean() || len(l.Quarantined()) > 0 {
		t.Fatalf("clean %v, quarantined %v", l.Clean(), l.Quarantined())
	}
	r := &rig{t: t, l: l}
	for g := GroupID(1); g <= 8; g++ {
		for k := uint64(10); k <= rounds; k += 10 {
			for id := k * per; id < k*per+per; id++ {
				r.mustRead(g, id)
			}
		}
	}
}

// momentClock lets something happen between two things that the log does.
type momentClock struct {
	*clock.Manual
	moment func() // at the next look at the clock
}

func (c *momentClock) Mono() int64 {
	if f := c.moment; f != nil {
		c.moment = nil
		f()
	}
	return c.Manual.Mono()
}

// TestCloseTakesWhatWasAppended: what went in before Close is written, also when both come while the committer is looking.
func TestCloseTakesWhatWasAppended(t *testing.T) {
	r := newRig(t)
	clk := &momentClock{Manual: r.clk}
	r.o.Clock = clk
	r.start()
	r.l.com.timer = clk.AfterFunc(time.Hour, func() {})
	stable := false
	clk.moment = func() {
		r.l.Append(&Batch{Records: []Record{entryRecord(2, 1, 1, 1, 10)}, Stable: func(*Batch) { stable = true }})
		r.l.closing.Store(true)
	}
	for r.l.commitOrSleep() {
	}
	if !stable || r.l.in.waiting() {
		t.Fatal("the committer ended before it had written all")
	}
}
