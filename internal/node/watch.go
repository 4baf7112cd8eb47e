package node

import (
	"fmt"
	"math"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"time"

	"holdfast/internal/broker"
)

// The hysteresis under the memory mark: an alarm goes off only when memory has
// fallen clearly below it.
const (
	memoryBack    = 0.95 // of the mark
	memoryEvery   = time.Second
	collectorMark = 0.8 // of the limit: where the garbage collector starts to work harder
)

// How often memory is looked at that is near its mark: before what publishers may send meanwhile leads over it.
const (
	memoryOften  = 20 * time.Millisecond
	memoryInrush = 1 << 30 // bytes a second, more than a node takes in
)

// memoryWatch compares what the broker holds with the mark.
type memoryWatch struct {
	mark    func() uint64 // 0: none
	held    func() uint64
	collect func() // garbage, which counts as held
	alarm   func(on bool, why string)
	on      bool
	garbage int64 // clock.Mono: the last collection since the alarm, or its beginning
}

// collectEvery is the time between two collections of garbage while the alarm is on.
const collectEvery = 3 * time.Second

// look raises or clears the alarm, and returns after how long to look again.
func (w *memoryWatch) look(now int64) time.Duration {
	mark := w.mark()
	if mark == 0 && !w.on {
		return memoryEvery
	}
	if w.on && now-w.garbage >= int64(collectEvery) {
		// Publishers are blocked: perhaps nothing else would bring the collector to its next turn.
		w.garbage = now
		w.collect()
	}
	held := w.held()
	switch {
	case !w.on && held > mark:
		w.on, w.garbage = true, now
		w.alarm(true, fmt.Sprintf("%s in use, more than the mark of %s", size(held), size(mark)))
	case w.on && (mark == 0 || held < uint64(float64(mark)*memoryBack)):
		w.on = false
		w.alarm(false, fmt.Sprintf("%s in use", size(held)))
	}
	if w.on {
		return memoryEvery
	}
	return min(max(time.Duration(float64(mark-min(held, mark))/memoryInrush*float64(time.Second)), memoryOften), memoryEvery)
}

// heldMemory is what this process holds of the machine: all that the runtime
// has mapped, less what it has given back and what was never touched.
func (n *Node) heldMemory() uint64 {
	samples := []metrics.Sample{
		{Name: "/memory/classes/total:bytes"},
		{Name: "/memory/classes/heap/released:bytes"},
		{Name: "/memory/classes/heap/free:bytes"},
	}
	metrics.Read(samples)
	// Free spans are about to be used again or given back; they are not held by messages.
	return n.ballast.less(samples[0].Value.Uint64() - samples[1].Value.Uint64() - samples[2].Value.Uint64())
}

// collectorLimit is the memory from which on the collector works as hard as it must, and who says so; 0 is none. before is what
// the runtime was started with: GOMEMLIMIT, or no limit. What is found is taken only without it, and lies above the alarm's
// mark: first publishers are held back, and only then is time spent. The runtime counts the ballast, and so what is found does.
func collectorLimit(limit MemoryLimit, mark uint64, weight ballast, before int64) (at int64, source string) {
	switch {
	case before != math.MaxInt64:
		return before, "GOMEMLIMIT"
	case limit.Bytes == 0:
		return 0, ""
	}
	n := uint64(float64(limit.Bytes) * collectorMark)
	if mark < limit.Bytes {
		n = max(n, mark+(limit.Bytes-mark)/2)
	}
	return int64(n) + int64(len(weight)), limit.Source
}

// watchMemory looks until the node stops, once a second or, near the mark, more often.
func (n *Node) watchMemory(limit MemoryLimit) {
	w := &memoryWatch{
		mark: n.marks.memory.Load, held: n.heldMemory, collect: runtime.GC,
		alarm: func(on bool, why string) { n.alarm(n.broker, broker.AlarmMemory, on, why) },
	}
	collector, says := "none", "nobody"
	if at, source := collectorLimit(limit, w.mark(), n.ballast, debug.SetMemoryLimit(-1)); at > 0 {
		defer debug.SetMemoryLimit(debug.SetMemoryLimit(at)) // the process may run another node afterwards
		collector, says = size(uint64(at)), source
	}
	n.log.Info("memory limit", "bytes", limit.Bytes, "source", limit.Source, "mark", w.mark(), "collector", collector, "collector_source", says)
	back := newGiveBack(n.ballast)
	ticks := n.clock.NewTicker(memoryEvery)
	defer ticks.Stop()
	due := make(chan struct{}, 1)
	timer := n.clock.AfterFunc(w.look(n.clock.Mono()), func() { due <- struct{}{} })
	defer timer.Stop()
	for {
		select {
		case <-n.stopping:
			return
		case <-due:
		case <-n.marks.changed:
			if !timer.Stop() {
				select {
				case <-due:
				default:
				}
			}
		case <-ticks.C():
			back.look()
			continue
		}
		timer.Reset(w.look(n.clock.Mono()))
	}
}

// size is a number of bytes as people read it.
func size(n uint64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 10<<10:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d bytes", n)
}
