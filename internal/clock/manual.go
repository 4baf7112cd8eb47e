package clock

import (
	"sync"
	"time"
)

// Manual is a clock that stands still until Advance moves it. Safe for use by several goroutines; functions of due timers
// run on the goroutine that calls Advance, in order of their time.
type Manual struct {
	mu    sync.Mutex
	now   time.Time
	mono  int64
	seq   uint64
	tasks []*task
}

type task struct {
	clock  *Manual
	at     int64 // mono
	seq    uint64
	every  time.Duration // > 0 for a ticker
	f      func()
	c      chan time.Time
	queued bool
}

// NewManual returns a Manual clock showing t.
func NewManual(t time.Time) *Manual { return &Manual{now: t} }

// Now is the wall time shown.
func (m *Manual) Now() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.now
}

// Mono is the time advanced since NewManual.
func (m *Manual) Mono() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mono
}

// Set moves the wall time alone, as a clock jump does. Timers and Mono do not notice.
func (m *Manual) Set(t time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.now = t
}

// Advance moves both times forward by d and runs what falls due on the way, each at its own time.
func (m *Manual) Advance(d time.Duration) {
	m.mu.Lock()
	end := m.mono + int64(d)
	for {
		next := m.nextDue(end)
		if next == nil {
			break
		}
		m.step(next.at)
		if next.every > 0 {
			next.at += int64(next.every)
			select {
			case next.c <- m.now:
			default:
			}
			continue
		}
		m.remove(next)
		f := next.f
		m.mu.Unlock()
		f()
		m.mu.Lock()
	}
	m.step(end)
	m.mu.Unlock()
}

// Timers is the number of timers and tickers not yet stopped or run.
func (m *Manual) Timers() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.tasks)
}

func (m *Manual) step(to int64) {
	if to > m.mono {
		m.now = m.now.Add(time.Duration(to - m.mono))
		m.mono = to
	}
}

func (m *Manual) nextDue(end int64) *task {
	var next *task
	for _, t := range m.tasks {
		if t.at <= end && (next == nil || t.at < next.at || t.at == next.at && t.seq < next.seq) {
			next = t
		}
	}
	return next
}

func (m *Manual) add(t *task, d time.Duration) {
	m.seq++
	t.clock, t.seq, t.at, t.queued = m, m.seq, m.mono+int64(d), true
	m.tasks = append(m.tasks, t)
}

func (m *Manual) remove(t *task) bool {
	if !t.queued {
		return false
	}
	t.queued = false
	for i := range m.tasks {
		if m.tasks[i] == t {
			m.tasks = append(m.tasks[:i], m.tasks[i+1:]...)
			break
		}
	}
	return true
}

// AfterFunc runs f when the clock has been advanced by d.
func (m *Manual) AfterFunc(d time.Duration, f func()) Timer {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := &task{f: f}
	m.add(t, d)
	return manualTimer{t}
}

// NewTicker ticks each time the clock has been advanced by d.
func (m *Manual) NewTicker(d time.Duration) Ticker {
	if d <= 0 {
		panic("clock: ticker needs a positive interval")
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	t := &task{every: d, c: make(chan time.Time, 1)}
	m.add(t, d)
	return manualTicker{t}
}

type manualTimer struct{ t *task }

func (t manualTimer) Stop() bool {
	t.t.clock.mu.Lock()
	defer t.t.clock.mu.Unlock()
	return t.t.clock.remove(t.t)
}

func (t manualTimer) Reset(d time.Duration) bool {
	t.t.clock.mu.Lock()
	defer t.t.clock.mu.Unlock()
	was := t.t.clock.remove(t.t)
	t.t.clock.add(t.t, d)
	return was
}

type manualTicker struct{ t *task }

func (t manualTicker) C() <-chan time.Time { return t.t.c }

func (t manualTicker) Stop() {
	t.t.clock.mu.Lock()
	defer t.t.clock.mu.Unlock()
	t.t.clock.remove(t.t)
}

// Rest returns at once.
func (m *Manual) Rest(time.Duration, <-chan struct{}) {}
