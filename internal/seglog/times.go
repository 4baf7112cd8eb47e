package seglog

import "holdfast/internal/metrics"

// Times says how long the steps of the log took, in seconds, and how much one commit carried.
type Times struct {
	Write, Sync metrics.Distribution // one frame: handing it to the system; fdatasync
	Index       metrics.Distribution // entering a frame into the index, waiting for its lock included
	Change      metrics.Distribution // going on in another segment, waiting for one included
	Checkpoint  metrics.Distribution // one checkpoint; commits go on beside it
	Rewrite     metrics.Distribution // one frame of survivors: encoded, written, synced and entered
	Hold        metrics.Distribution // the index's lock in the hands of the keeper: so long a commit or a shard may wait for it

	Records, Items metrics.Distribution // of one frame
}

// timers are where times are noted. Any goroutine may.
type timers struct {
	write, sync, index, change, checkpoint, rewrite, hold timer
	records, items                                        *metrics.Histogram
}

type timer struct{ *metrics.Histogram }

func (t *timers) init() {
	for _, one := range []*timer{&t.write, &t.sync, &t.index, &t.change, &t.checkpoint, &t.rewrite, &t.hold} {
		one.Histogram = metrics.NewHistogram(metrics.Durations())
	}
	t.records, t.items = metrics.NewHistogram(metrics.Amounts()), metrics.NewHistogram(metrics.Amounts())
}

// since notes what took from began to now, both of clock.Mono.
func (t timer) since(began, now int64) { t.Observe(float64(now-began) * 1e-9) }

// Times returns how long things took since the start.
func (l *Log) Times() Times {
	t := &l.times
	return Times{
		Write: t.write.Read(), Sync: t.sync.Read(), Index: t.index.Read(), Change: t.change.Read(),
		Checkpoint: t.checkpoint.Read(), Rewrite: t.rewrite.Read(), Hold: t.hold.Read(),
		Records: t.records.Read(), Items: t.items.Read(),
	}
}

// hold takes Log.mu for work behind the writing whose length depends on how much there is. It is to be short all the same,
// and letGo, given what hold returned, notes how short it was.
func (l *Log) hold() int64 {
	l.mu.Lock()
	return l.o.Clock.Mono()
}

func (l *Log) letGo(held int64) {
	now := l.o.Clock.Mono()
	l.mu.Unlock()
	l.times.hold.since(held, now)
}
