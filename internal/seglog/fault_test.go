package seglog

import (
	"errors"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"holdfast/internal/clock"
	"holdfast/internal/vfs"
)

// TestFailedSyncIsTheEnd: after a failed sync nothing becomes stable any more, although the retry would succeed and the
// cache still shows the write; a restart trusts the disk alone.
func TestFailedSyncIsTheEnd(t *testing.T) {
	for _, op := range []vfs.Op{vfs.OpWrite, vfs.OpDatasync} {
		r := newRig(t)
		r.start()
		r.append(entryRecord(2, 1, 1, 1, 100))
		r.fs.Inject(vfs.Fault{Op: op, Name: ".seg", Err: syscall.EIO})
		stable := 0
		for i := uint64(2); i < 5; i++ {
			r.l.Append(&Batch{Records: []Record{entryRecord(2, i, i, 1, 100)}, Sync: true, Stable: func(*Batch) { stable++ }})
			r.l.commitOnce()
		}
		r.keep()
		if stable > 0 || !errors.Is(r.fatal, syscall.EIO) || !r.l.Stats().Failed {
			t.Fatalf("%d batches became stable after a failure (%v)", stable, r.fatal)
		}
		r.mustRead(2, 1) // what is stable can still be read
		if _, ok := r.l.Pin(2, 2); ok {
			t.Fatal("an item that never became stable is known")
		}
		if err := r.l.Close(true); !errors.Is(err, syscall.EIO) {
			t.Fatalf("close: %v", err)
		}
		// The process restarts on the same machine: the page cache still shows the ghost.
		r.mustOpen()
		if r.l.Clean() {
			t.Fatal("clean after a failure")
		}
		if got := r.replay(); strings.Join(got, " ") != "2:e1[1-1]" {
			t.Fatalf("replayed %v", got)
		}
	}
}

func TestFailuresBehindTheWriting(t *testing.T) {
	for name, f := range map[string]vfs.Fault{
		"checkpoint": {Op: vfs.OpDatasync, Name: "checkpoint", Err: syscall.EIO},
		"rename":     {Op: vfs.OpRename, Name: "checkpoint", Err: syscall.EIO},
		"directory":  {Op: vfs.OpSyncDir, Err: syscall.EIO},
		"zero-fill":  {Op: vfs.OpWrite, Name: ".tmp", N: 2, Err: syscall.EIO},
		"short":      {Op: vfs.OpWrite, Name: ".seg", N: 3, Short: true},
	} {
		r := newRig(t)
		r.start()
		r.fs.Inject(f)
		for i := uint64(1); i < 60 && r.fatal == nil; i++ {
			r.l.Append(&Batch{Records: []Record{entryRecord(2, i, i, 1, 5000)}, Sync: true})
			r.commit()
			r.keep()
			r.clk.Advance(time.Second)
		}
		if r.fatal == nil {
			t.Fatalf("%s: the failure was not noticed", name)
		}
	}
}

// TestHangIsNoticed: a sync that does not return is alarmed, then fatal; when it returns after all, nothing is reported. R180
func TestHangIsNoticed(t *testing.T) {
	fs := vfs.NewMem()
	clk := clock.NewManual(time.Unix(1e9, 0))
	var mu sync.Mutex
	var events []string
	note := func(s string) { mu.Lock(); events = append(events, s); mu.Unlock() }
	l, err := Open(fs, "log", Options{
		SegmentMin: 64 << 10, Clock: clk, Logger: quiet(), HangLimit: 8 * time.Second,
		Events: Events{
			Alarm: func(k AlarmKind, on bool, _ string) {
				if on {
					note("alarm " + k.String())
				}
			},
			Fatal: func(err error) { note("fatal") },
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	l.Start()
	release := make(chan struct{})
	fs.Inject(vfs.Fault{Op: vfs.OpDatasync, Hang: release})
	l.Append(&Batch{Records: []Record{entryRecord(2, 1, 1, 1, 100)}, Sync: true, Stable: func(*Batch) { note("stable") }})
	for l.io[0].since.Load() == 0 {
		runtime.Gosched()
	}
	for range 20 {
		clk.Advance(time.Second)
		time.Sleep(2 * time.Millisecond) // for the watchdog to take its tick
	}
	for !l.failed.Load() {
		clk.Advance(time.Second)
		runtime.Gosched()
	}
	if err := l.Close(false); err == nil {
		t.Fatal("Close said nothing of the hang")
	}
	close(release)
	<-l.com.done
	mu.Lock()
	defer mu.Unlock()
	if got := strings.Join(events, ", "); got != "alarm slow sync, fatal" {
		t.Fatalf("events: %s", got)
	}
}

// TestDiskFull: without room appends wait and an alarm is raised; when room comes, by release or from outside, they go on,
// and nothing is lost or reported early.
func TestDiskFull(t *testing.T) {
	for _, how := range []string{"release", "capacity"} {
		r := newRig(t)
		r.fs.SetCapacity(10*64<<10 + 40<<10)
		r.start()
		index, stable := uint64(0), uint64(0)
		for len(r.alarm) == 0 || how == "capacity" && r.commit() { // the one stops at the alarm, the other pushes on
			index++
			r.l.Append(&Batch{Records: []Record{entryRecord(2, index, index, 1, 6000)}, Sync: true, Stable: func(*Batch) { stable++ }})
			r.commit()
			r.keep()
			r.clk.Advance(time.Second)
			if index > 300 {
				t.Fatal("the disk never fills")
			}
		}
		if r.fatal != nil || !r.l.Stats().SpaceAlarm || stable >= index && how == "capacity" {
			t.Fatalf("%s: %d of %d stable, fatal %v, %v", how, stable, index, r.fatal, r.alarm)
		}
		waiting := index - stable
		if how == "capacity" {
			r.fs.SetCapacity(0)
		} else {
			r.l.Release(2, 0, []Range{{1, stable}})
			r.snapshotIfAsked(2, stable)
		}
		for range 100 {
			r.snapshotIfAsked(2, stable)
			r.commit()
			r.keep()
			r.clk.Advance(time.Second)
		}
		if stable != index || r.l.Stats().SpaceAlarm {
			t.Fatalf("%s: %d of %d stable after room came (%d had waited), %+v", how, stable, index, waiting, r.l.Stats())
		}
		for id := stable - waiting + 1; id <= index; id++ {
			r.mustRead(2, id)
		}
	}
}

func (r *rig) snapshotIfAsked(g GroupID, index uint64) {
	if r.asked[g] {
		delete(r.asked, g)
		r.l.Append(&Batch{Records: []Record{snapshotRecord(g, index)}})
	}
}

// TestFreeMark raises the alarm before the disk is full.
func TestFreeMark(t *testing.T) {
	r := newRig(t)
	r.fs.SetCapacity(1 << 20)
	r.o.FreeMark = 512 << 10
	r.start()
	r.keep()
	f, err := r.fs.Create("other")
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Truncate(700 << 10); err != nil {
		t.Fatal(err)
	}
	r.clk.Advance(3 * time.Second)
	r.keep()
	if err := f.Truncate(0); err != nil {
		t.Fatal(err)
	}
	r.clk.Advance(3 * time.Second)
	r.keep()
	if got := strings.Join(r.alarm, ", "); got != "space true, space false" {
		t.Fatalf("alarms: %s", got)
	}
	// R491: another mark counts at once.
	r.l.SetFreeMark(2 << 20)
	r.l.SetFreeMark(2 << 20)
	if got := r.l.FreeMark(); got != 2<<20 {
		t.Errorf("the mark is %d", got)
	}
	r.l.SetFreeMark(0)
	if got := strings.Join(r.alarm[2:], ", "); got != "space true, space false" {
		t.Fatalf("alarms by another mark: %s", got)
	}
}

// TestIdleWritesNothing: after the last append a log comes to rest, and then touches the disk no more. R52
func TestIdleWritesNothing(t *testing.T) {
	r := newRig(t)
	r.start()
	for i := uint64(1); i < 100; i++ {
		r.append(entryRecord(2, i, i, 1, 5000), entryRecord(3, i, i, 1, 10))
		r.l.Release(2, i, []Range{{i, i}})
		r.keep()
		r.clk.Advance(100 * time.Millisecond)
	}
	rest := func() {
		for range 90 {
			r.clk.Advance(time.Second)
			r.snapshotIfAsked(2, 99)
			r.snapshotIfAsked(3, 99)
			r.commit()
			if r.l.markDue() {
				r.l.writeMark()
			}
			r.l.sealActive()
			r.keep()
		}
	}
	rest()
	s := r.l.Stats()
	if n := s.Hot + s.Cold + s.Free; n > 6 {
		t.Fatalf("a drained idle log keeps %d segments: %+v", n, s)
	}
	calls := r.fs.Calls()
	rest()
	rest()
	if got := r.fs.Calls(); got != calls {
		t.Fatalf("%d calls while idle", got-calls)
	}
}

// TestShrinksBack: a log that grew large segments under load falls back to small ones when it is idle.
func TestShrinksBack(t *testing.T) {
	r := newRig(t)
	r.o.SegmentMax = 1 << 20
	r.start()
	last := uint64(0)
	for i := uint64(1); r.l.target < r.o.SegmentMax && i < 20_000; i++ {
		last = i
		r.append(entryRecord(2, i, i, 1, 10000)) // and keep it: where used segments come back, small ones suffice
		r.snapshotIfAsked(2, i)
		r.keep()
	}
	if r.l.target != r.o.SegmentMax {
		t.Fatalf("segments grew to %d only", r.l.target)
	}
	r.l.Release(2, last, []Range{{1, last}})
	for range 60 {
		r.clk.Advance(time.Second)
		r.snapshotIfAsked(2, last)
		r.commit()
		if r.l.markDue() {
			r.l.writeMark()
		}
		r.l.sealActive()
		r.keep()
	}
	if used := r.fs.Used(); used > 6*r.o.SegmentMin+64<<10 {
		t.Fatalf("%d bytes on disk a minute after the load: %+v", used, r.l.Stats())
	}
}

// TestAuditOfSizes: where a queue holds on to its small messages and lets the large ones go, bytes are counted, not items.
func TestAuditOfSizes(t *testing.T) {
	r := newRig(t)
	r.start()
	id := uint64(1)
	for i := uint64(1); i < 100; i++ {
		rec := Record{Group: 2, Kind: KindEntry, Index: i, Blocks: []Block{{First: id, Items: [][]byte{
			item(2, id, 6000), item(2, id+1, 20)}}}}
		r.append(rec)
		r.l.Release(2, i, []Range{{id, id}})
		id += 2
		r.snapshotIfAsked(2, i)
		r.keep()
	}
	for range 60 {
		r.clk.Advance(time.Second)
		r.snapshotIfAsked(2, 99)
		r.commit()
		r.keep()
	}
	if s := r.l.Stats(); s.DiskBytes > 2*99*40+6*s.SegmentSize || s.LiveItems != 99 {
		t.Fatalf("%+v", s)
	}
	for id := uint64(2); id < 200; id += 2 {
		r.mustRead(2, id)
	}
}

// TestReadThatFailsOnce: a read that the disk refuses once or twice is no damage; one that it goes on refusing is.
func TestReadThatFailsOnce(t *testing.T) {
	r := newRig(t)
	r.start()
	r.append(entryRecord(2, 1, 1, 1, 100))
	for n := range readTries - 1 {
		for range n + 1 {
			r.fs.Inject(vfs.Fault{Op: vfs.OpRead, Name: ".seg", Err: syscall.EIO})
		}
		r.mustRead(2, 1)
		r.fs.ClearFaults()
	}
	if hits := r.l.Quarantined(); len(hits) > 0 {
		t.Fatalf("quarantined: %v", hits)
	}
	r.fs.Inject(vfs.Fault{Op: vfs.OpRead, Name: ".seg", Err: syscall.EIO, Forever: true})
	ref, ok := r.l.Pin(2, 1)
	if !ok {
		t.Fatal("the item is not there")
	}
	defer ref.Unpin()
	var damage *CorruptError
	if _, err := r.l.NewReader().Read(ref); !errors.As(err, &damage) || !errors.Is(err, syscall.EIO) {
		t.Fatalf("read: %v", err)
	}
	if hits := r.l.Quarantined(); len(hits) != 1 {
		t.Fatalf("quarantined: %v", hits)
	}
}
