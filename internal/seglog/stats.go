package seglog

import (
	"fmt"
	"sync/atomic"
	"time"
)

// counters are summed up where things happen and read by Stats.
type counters struct {
	syncs, syncNanos         atomic.Uint64
	hist                     [len(SyncBuckets) + 1]atomic.Uint64
	records, items, written  atomic.Uint64
	rewritten, rewrittenSegs atomic.Uint64
	recycled, checkpoints    atomic.Uint64
	reads, readBytes         atomic.Uint64
}

func (c *counters) sync(nanos int64) {
	c.syncs.Add(1)
	c.syncNanos.Add(uint64(nanos))
	i := 0
	for i < len(SyncBuckets) && nanos > SyncBuckets[i] {
		i++
	}
	c.hist[i].Add(1)
}

// Stats returns a picture of the log.
func (l *Log) Stats() Stats {
	c := &l.stats
	s := Stats{
		Syncs: c.syncs.Load(), SyncNanos: c.syncNanos.Load(),
		Records: c.records.Load(), Items: c.items.Load(), WrittenBytes: c.written.Load(),
		RewrittenBytes: c.rewritten.Load(), RewrittenSegments: c.rewrittenSegs.Load(),
		RecycledSegments: c.recycled.Load(), Checkpoints: c.checkpoints.Load(),
		FrameReads: c.reads.Load(), ReadBytes: c.readBytes.Load(),
		Failed: l.failed.Load(),
	}
	for i := range s.SyncHist {
		s.SyncHist[i] = c.hist[i].Load()
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
		s.DiskBytes += seg.size
		s.LiveBytes += seg.liveBytes
		s.DeadBytes += seg.size - seg.liveBytes
		s.Runs += len(seg.runs)
	}
	for _, seg := range l.kee.dead {
		s.DiskBytes += seg.size
		s.DeadBytes += seg.size
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

// hung tells whether a write has been going on for longer than the limit.
func (l *Log) hung() bool {
	now := l.o.Clock.Mono()
	return l.io[0].inside(now) > l.o.HangLimit || l.io[1].inside(now) > l.o.HangLimit
}

// watchLoop fails the log when a write or sync hangs: a disk that does not answer is a failed disk, and saying so late is
// worse than saying so wrongly. It starts no I/O itself.
func (l *Log) watchLoop() {
	defer l.wg.Done()
	tick := l.o.Clock.NewTicker(max(l.o.HangLimit/8, time.Millisecond))
	defer tick.Stop()
	slow := false
	for {
		select {
		case <-l.stop:
			return
		case <-tick.C():
		}
		slow = l.watch(slow)
	}
}

// watch looks once. slow says whether the alarm is on, and comes back changed.
func (l *Log) watch(slow bool) bool {
	now := l.o.Clock.Mono()
	longest := max(l.io[0].inside(now), l.io[1].inside(now))
	on := longest > l.o.HangLimit/2
	if on != slow {
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
	return on
}
