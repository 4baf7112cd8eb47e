package seglog

import (
	"testing"
	"time"
)

// TestStoppedProcessIsNoHang: a process that was stopped in the middle of a sync finds much time gone when it goes on. The disk
// gets its full time from then on, and no more.
func TestStoppedProcessIsNoHang(t *testing.T) {
	r := newRig(t)
	r.o.HangLimit = 8 * time.Second
	r.start()
	w := watchdog{every: time.Second, last: r.clk.Mono()}
	tick := func(d time.Duration) {
		r.clk.Advance(d)
		r.l.watch(&w)
	}
	tick(time.Second)
	r.l.io[0].begin(r.clk.Mono())
	tick(time.Second)
	tick(time.Minute)
	for range 5 {
		tick(time.Second)
	}
	if r.fatal != nil {
		t.Fatal("stopped for a pause of its own:", r.fatal)
	}
	for range 3 {
		tick(time.Second)
	}
	if r.fatal == nil {
		t.Fatal("a sync that hangs is not noticed after a pause")
	}
}
