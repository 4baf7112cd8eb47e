package seglog

import (
	"fmt"
	"sync/atomic"
	"time"
)

// counters are summed up where things happen and read by Stats.
type counters struct {
	syncs                    atomic.Uint64
	records, items, written  atomic.Uint64
	rewritten, rewrittenSegs atomic.Uint64
	recycled, checkpoints    atomic.Uint64
	reads, readBytes         atomic.Uint64
}

// Stats returns a picture of the log.
func (l *Log) Stats() Stats {
	c := &l.stats
	s := Stats{
		Syncs:   c.syncs.Load(),
		Records: c.records.Load(), Items: c.items.Load(), WrittenBytes: c.written.Load(),
		RewrittenBytes: c.rewritten.Load(), RewrittenSegments: c.rewrittenSegs.Load(),
		RecycledSegments: c.recycled.Load(), Checkpoints: c.checkpoints.Load(),
		FrameReads: c.reads.Load(), ReadBytes: c.readBytes.Load(),
		Failed: l.failed.Load(),
	}
	l.in.mu.Lock()
	s.QueuedBytes, s.QueuedBatches = l.in.queued, l.in.queuedCount
	l.in.mu.Unlock()

	l.mu.Lock()
	defer l.mu.Unlock()
	for _, seg := range l.segs {
		if seg.kind == segmentCold {
			s.Cold++
		} else {
			s.Hot++
		}
		s.DiskBytes += seg.taken()
		live := seg.liveBytes
		if seg.kept > 0 {
			live = seg.taken()
			s.KeptBytes += live
		}
		s.LiveBytes += live
		s.DeadBytes += seg.taken() - live
		s.Runs += len(seg.runs)
	}
	for _, seg := range l.kee.dead {
		s.DiskBytes += seg.taken()
		s.DeadBytes += seg.taken()
		s.Hot++
	}
	for _, seg := range l.pool {
		s.Free++
		s.DiskBytes += seg.size
	}
	s.SegmentSize = l.target
	s.Groups, s.LiveItems = len(l.list), l.liveItems
	s.Quarantined = len(l.hits)
	s.SpaceAlarm = l.alarmOn
	return s
}

// ioWatch says since when a goroutine has been inside a write or sync.
type ioWatch struct{ since atomic.Int64 }

func (w *ioWatch) begin(mono int64) { w.since.Store(mono + 1) }
func (w *ioWatch) end()             { w.since.Store(0) }

// inside is how long the goroutine has been in there.
func (w *ioWatch) inside(mono int64) time.Duration {
	since := w.since.Load()
	if since == 0 {
		return 0
	}
	return time.Duration(mono + 1 - since)
}

// forgive takes a time in which this process did not run off the time in there.
func (w *ioWatch) forgive(d time.Duration) {
	if since := w.since.Load(); since != 0 {
		w.since.CompareAndSwap(since, since+int64(d)) // else it has come back meanwhile
	}
}

// hung tells whether a write has been going on for longer than the limit.
func (l *Log) hung() bool {
	now := l.o.Clock.Mono()
	return l.io[0].inside(now) > l.o.HangLimit || l.io[1].inside(now) > l.o.HangLimit
}

// watchLoop fails the log when a write or sync hangs: a disk that does not answer is a failed disk, and saying so late is
// worse than saying so wrongly. It starts no I/O itself.
func (l *Log) watchLoop() {
	defer l.wg.Done()
	w := watchdog{every: max(l.o.HangLimit/8, time.Millisecond), last: l.o.Clock.Mono()}
	tick := l.o.Clock.NewTicker(w.every)
	defer tick.Stop()
	for {
		select {
		case <-l.stop:
			return
		case <-tick.C():
		}
		l.watch(&w)
	}
}

// watchdog is what watchLoop keeps between two looks.
type watchdog struct {
	every time.Duration
	last  int64 // when it looked last
	slow  bool  // the alarm is on
}

// watch looks once. A look that comes much too late says that this process was stopped, or its machine, and not the disk:
// the time until then does not count.
func (l *Log) watch(w *watchdog) {
	now := l.o.Clock.Mono()
	if late := time.Duration(now-w.last) - w.every; late > w.every {
		for i := range l.io {
			l.io[i].forgive(late)
		}
	}
	w.last = now
	longest := max(l.io[0].inside(now), l.io[1].inside(now))
	on := longest > l.o.HangLimit/2
	if on != w.slow {
		w.slow = on
		why := ""
		if on {
			why = fmt.Sprintf("a write or sync has not returned for %v", longest)
			l.log.Warn("slow disk alarm", "why", why)
		} else {
			l.log.Info("slow disk alarm ended")
		}
		if l.o.Events.Alarm != nil {
			l.o.Events.Alarm(AlarmSlowSync, on, why)
		}
	}
	if longest > l.o.HangLimit {
		l.fail(fmt.Errorf("a write or sync has not returned for %v", longest))
	}
}
