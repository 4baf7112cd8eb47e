package clock

import "time"

// Clock tells and measures time.
type Clock interface {
	// Now is the wall time. It may jump.
	Now() time.Time
	// Mono is a monotonic time in nanoseconds; only differences mean something.
	Mono() int64
	// AfterFunc runs f once after d, on a goroutine of the clock. f must not block.
	AfterFunc(d time.Duration, f func()) Timer
	// NewTicker delivers a tick every d. A tick nobody took is dropped.
	NewTicker(d time.Duration) Ticker
	// Rest holds back background work for d, or until stop is closed. Nothing
	// but its pace may depend on it: where time stands still it does not wait.
	Rest(d time.Duration, stop <-chan struct{})
}

// Timer is a pending AfterFunc.
type Timer interface {
	// Stop prevents the call; false means it already ran or was stopped.
	Stop() bool
	// Reset makes the call happen d from now, whether or not it already happened.
	Reset(d time.Duration) bool
}

// Ticker is a source of ticks.
type Ticker interface {
	// C is where ticks arrive.
	C() <-chan time.Time
	// Stop ends the ticks; C is not closed.
	Stop()
}

// After is what a bounded wait selects on beside what it waits for: expired is
// closed when d has passed on c. Whoever has stopped waiting calls done.
func After(c Clock, d time.Duration) (expired <-chan struct{}, done func()) {
	over := make(chan struct{})
	t := c.AfterFunc(d, func() { close(over) })
	return over, func() { t.Stop() }
}

// System returns the clock of the machine.
func System() Clock { return system{} }

type system struct{}

var start = time.Now()

func (system) Now() time.Time { return time.Now() }
func (system) Mono() int64    { return int64(time.Since(start)) }

func (system) AfterFunc(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) }

func (system) NewTicker(d time.Duration) Ticker { return sysTicker{time.NewTicker(d)} }

func (system) Rest(d time.Duration, stop <-chan struct{}) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-stop:
	}
}

type sysTicker struct{ t *time.Ticker }

func (t sysTicker) C() <-chan time.Time { return t.t.C }
func (t sysTicker) Stop()               { t.t.Stop() }
