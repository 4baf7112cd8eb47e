package node

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"testing"
	"time"
)

// reach is a touch with a clock that is moved and a barrier that answers as it is told.
type reach struct {
	*touch
	clock    int64
	barriers int
	err      error
}

func newReach(leader uint64, voters ...uint64) *reach {
	r := &reach{clock: int64(time.Hour)}
	r.touch = &touch{
		self: 1, now: func() int64 { return r.clock }, ended: context.Background(), log: slog.New(slog.DiscardHandler), heard: map[uint64]int64{},
		barrier: func(done func(any, error)) {
			r.barriers++
			done(nil, r.err)
		},
	}
	r.votersAre(voters)
	r.lead(leader)
	return r
}

// asks routes something and reports whether a barrier came before it.
func (r *reach) asks() bool {
	before := r.barriers
	r.fresh()
	return r.barriers > before
}

func (r *reach) pass(d time.Duration) { r.clock += int64(d) }

// A node that has not heard the leader for a while does one read barrier before it routes; so does one that was late.
func TestTouch(t *testing.T) {
	r := newReach(2, 1, 2, 3)
	r.beat(2)
	if !r.asks() {
		t.Fatal("no barrier before the first message")
	}
	r.beat(2)
	if r.asks() || r.stale() != "" {
		t.Fatal("the leader was heard just now")
	}
	r.pass(outOfTouch - 1)
	r.beat(3) // does not lead
	if r.asks() {
		t.Fatal("a barrier before it is time")
	}
	r.pass(1)
	if r.stale() == "" || !r.asks() || r.stale() != "" {
		t.Fatal("no barrier after a silence")
	}
	if r.asks() {
		t.Fatal("a second barrier for the same silence")
	}
	r.pass(outOfTouch)
	r.beat(2) // sent long ago
	if r.stale() == "" || !r.asks() || r.asks() {
		t.Fatal("a heartbeat after a silence makes up for it")
	}
	r.doubt()
	r.beat(2)
	if r.stale() == "" || !r.asks() || r.asks() {
		t.Fatal("a node that was late does one barrier")
	}
}

// Without an answer the node goes on with what it knows, asks no more, and asks again when there is somebody to ask.
func TestTouchIsLost(t *testing.T) {
	r := newReach(2, 1, 2, 3)
	r.beat(2)
	r.pass(outOfTouch)
	r.err = errors.New("nobody")
	if !r.asks() || !r.blind.Load() {
		t.Fatal("it does not know that it is on its own")
	}
	for range 3 {
		r.pass(time.Minute)
		if r.asks() {
			t.Fatal("it asks although nothing was heard")
		}
	}
	r.lead(0)
	r.lead(3)
	r.beat(3)
	if !r.asks() || !r.blind.Load() {
		t.Fatal("it does not ask when there is a leader again")
	}
	r.pass(outOfTouch / 2)
	if r.asks() {
		t.Fatal("it asks a leader that gives no answer again at once")
	}
	r.pass(tryAgain)
	r.beat(3)
	r.err = nil
	if !r.asks() || r.blind.Load() || r.stale() != "" || r.asks() {
		t.Fatal("it goes on by itself although it got an answer")
	}
}

// A node on which nothing is routed does its barrier by itself, and no longer says that it is behind.
func TestTouchOfAnIdleNode(t *testing.T) {
	for what, late := range map[string]func(*reach){
		"it was late":         (*reach).doubtful,
		"after a silence":     (*reach).silent,
		"it is on its own":    (*reach).alone,
		"it was just started": func(*reach) {},
	} {
		r := newReach(2, 1, 2, 3)
		r.beat(2)
		late(r)
		if r.stale() == "" {
			t.Fatalf("%s: it does not say that it is behind", what)
		}
		asked := make(chan struct{})
		r.barrier = func(done func(any, error)) {
			done(nil, nil)
			close(asked)
		}
		r.tick()
		<-asked
		if why := r.stale(); why != "" {
			t.Errorf("%s: after the barrier: %s", what, why)
		}
	}
}

func (r *reach) doubtful() {
	r.fresh()
	r.doubt()
}

func (r *reach) silent() {
	r.fresh()
	r.pass(outOfTouch)
	r.beat(2)
}

func (r *reach) alone() {
	r.err = errors.New("nobody")
	r.fresh()
	r.pass(tryAgain)
	r.beat(2)
}

// Who leads is in touch while it hears a majority, itself among it.
func TestTouchOfTheLeader(t *testing.T) {
	if r := newReach(1, 1); r.until.Load() != math.MaxInt64 || r.asks() {
		t.Error("the only voter is always in touch")
	}
	r := newReach(1, 1, 2, 3, 4, 5)
	r.beat(2)
	r.fresh()
	r.pass(outOfTouch / 2)
	r.beat(3)
	r.beat(9)
	if r.asks() {
		t.Error("three of five are heard")
	}
	r.pass(outOfTouch / 2)
	r.beat(3)
	if !r.asks() {
		t.Error("two of five are no majority")
	}
}
