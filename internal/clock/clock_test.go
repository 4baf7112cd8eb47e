package clock

import (
	"testing"
	"time"
)

func TestManualRunsTimersInOrderOfTheirTime(t *testing.T) {
	m := NewManual(time.Unix(100, 0))
	var got []int64
	note := func() { got = append(got, m.Mono()) }
	m.AfterFunc(3*time.Second, note)
	m.AfterFunc(time.Second, func() {
		note()
		m.AfterFunc(time.Second, note) // a timer set by a timer falls due in the same advance
	})
	stopped := m.AfterFunc(2*time.Second, func() { t.Error("a stopped timer ran") })
	if !stopped.Stop() || stopped.Stop() {
		t.Fatal("Stop must say true once")
	}
	m.Advance(5 * time.Second)
	want := []int64{1e9, 2e9, 3e9}
	if len(got) != 3 || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
		t.Fatalf("ran at %v, want %v", got, want)
	}
	if m.Now() != time.Unix(105, 0) || m.Timers() != 0 {
		t.Fatalf("now %v, %d timers left", m.Now(), m.Timers())
	}
}

func TestManualResetAndJump(t *testing.T) {
	m := NewManual(time.Unix(0, 0))
	n := 0
	tm := m.AfterFunc(time.Second, func() { n++ })
	m.Set(time.Unix(1000, 0)) // a jump of the wall clock fires nothing
	if n != 0 || m.Mono() != 0 {
		t.Fatal("a wall clock jump moved monotonic time")
	}
	m.Advance(time.Second)
	tm.Reset(time.Second)
	m.Advance(time.Second)
	if n != 2 {
		t.Fatalf("ran %d times, want 2", n)
	}
}

func TestManualTickerDropsTicksNobodyTook(t *testing.T) {
	m := NewManual(time.Unix(0, 0))
	k := m.NewTicker(time.Second)
	m.Advance(10 * time.Second)
	<-k.C()
	select {
	case <-k.C():
		t.Fatal("more than one tick waits")
	default:
	}
	k.Stop()
	m.Advance(10 * time.Second)
	select {
	case <-k.C():
		t.Fatal("tick after Stop")
	default:
	}
}

func TestSystemMonoNeverGoesBack(t *testing.T) {
	c := System()
	last := c.Mono()
	for range 1000 {
		if now := c.Mono(); now < last {
			t.Fatal("monotonic time went back")
		} else {
			last = now
		}
	}
}

func TestAfterEndsAWait(t *testing.T) {
	m := NewManual(time.Unix(0, 0))
	isOver := func(c <-chan struct{}) bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
	expired, done := After(m, time.Second)
	m.Advance(999 * time.Millisecond)
	if isOver(expired) {
		t.Fatal("too early")
	}
	m.Advance(time.Millisecond)
	if !isOver(expired) {
		t.Fatal("the time is over")
	}
	done()
	expired, done = After(m, time.Second)
	done()
	if m.Timers() != 0 {
		t.Fatal("a wait that has ended keeps its timer")
	}
	if m.Advance(time.Hour); isOver(expired) {
		t.Fatal("expired after its end")
	}
}
