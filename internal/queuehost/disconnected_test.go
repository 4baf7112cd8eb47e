package queuehost

import (
	"fmt"
	"testing"
	"time"

	"holdfast/internal/clock"
	"holdfast/internal/queue"
	"holdfast/internal/seglog"
	"holdfast/internal/vfs"
	"holdfast/internal/wire"
)

// R660: consumers on a node that is silent keep what they hold of a quorum queue for as long as the queue says, be that shorter or longer than it
// takes until the node is gone; where it says nothing, until then. Another time counts at once.
func TestDisconnectedTimeout(t *testing.T) {
	const short, long, none, quiet, silent = 7, 8, 9, 10, 3 // nobody publishes to the quiet one meanwhile
	clk := clock.NewManual(testTime)
	bearing := func(id seglog.GroupID, d time.Duration) QueueDef {
		def := durable(id)
		def.Settings = &Settings{Disconnected: d}
		return def
	}
	x := newTrioWith(t, 3, func(o *Options) { o.Clock, o.Level = clk, func() uint16 { return 2 } }, func(int) (vfs.FS, string) { return vfs.NewMem(), "data" },
		bearing(short, 5*time.Second), bearing(long, time.Minute), durable(none), bearing(quiet, 5*time.Second))
	defer x.close(t)
	tell := func(fn func(r *Registry)) {
		for _, v := range x.nodes[:silent-1] {
			fn(v.reg)
		}
	}
	put := func(text string, queues ...seglog.GroupID) { // when it is accepted, the leader has looked at the nodes
		for _, id := range queues {
			done := make(chan Outcome, 1)
			x.nodes[0].reg.Get(id).Publish([]Publish{{Message: body(text, wire.PropertySet{}), Persistent: true, Ticket: ticketFunc(func(o Outcome) { done <- o }), Seq: 1}})
			if o := <-done; o != Accepted {
				t.Fatalf("%s: %v", text, o)
			}
		}
	}
	keeps := func(when string, ready uint64, queues ...seglog.GroupID) {
		t.Helper()
		for _, id := range queues {
			said := make(chan string, 1)
			x.nodes[0].reg.Get(id).Explain(func(e Explanation) { said <- fmt.Sprint(e.Unacked, " held, ", e.Ready, " ready") })
			want(t, fmt.Sprint(when, ", queue ", id), <-said, fmt.Sprint("1 held, ", ready, " ready"))
		}
	}
	holders := map[seglog.GroupID]*holding{}
	for _, id := range []seglog.GroupID{short, long, none, quiet} {
		for x.leader(id).reg.self() == silent {
			x.move(id)
		}
		c := newHolding()
		holders[id] = c
		x.nodes[silent-1].reg.Get(id).Attach(unlimited(0), c, func(queue.ConsumerID, error) {})
		put("a", id)
		c.wait(func() bool { return len(c.got) == 1 })
	}
	// The links stand: as soon as a session has ended the node opens another one, a moment later, and gets what is ready.
	comesBack := func(id seglog.GroupID, more int) {
		c := holders[id]
		for moment := 0; moment < 20_000; moment++ {
			c.mu.Lock()
			n := len(c.got)
			c.mu.Unlock()
			if n == 1+more {
				return
			}
			clk.Advance(time.Millisecond)
			time.Sleep(time.Millisecond)
		}
		t.Fatalf("queue %d: %v", id, c.got)
	}

	tell(func(r *Registry) { r.Suspect(silent) })
	clk.Advance(4900 * time.Millisecond)
	put("b", short, long, none)
	keeps("before the shortest time is over", 1, short, long, none)
	clk.Advance(200 * time.Millisecond)
	comesBack(short, 2)
	comesBack(quiet, 1)
	put("c", long, none)
	keeps("when the shortest is over", 2, long, none)
	tell(func(r *Registry) { r.Gone(silent, 1) })
	comesBack(none, 3)
	put("d", long)
	keeps("when the node is gone", 3, long)
	tell(func(r *Registry) { r.SetSettings(long, Settings{Disconnected: time.Second}) })
	comesBack(long, 4)
}

// R660: a node that is heard again in time keeps everything, and one that has ended, or was removed, nothing, whatever the queue says.
func TestWhoIsOver(t *testing.T) {
	const second = int64(time.Second)
	for what, c := range map[string]struct {
		is       nodeHealth
		patience int64
		now      int64
		over     bool
		at       int64
	}{
		"heard":                             {nodeHealth{incarnation: 3}, 5 * second, 100 * second, false, 0},
		"silent for a while":                {nodeHealth{suspect: true, since: 96 * second, incarnation: 3}, 5 * second, 100 * second, false, 101 * second},
		"silent for long enough":            {nodeHealth{suspect: true, since: 95 * second, incarnation: 3}, 5 * second, 100 * second, true, 95*second + 5*second},
		"silent, and nobody says":           {nodeHealth{suspect: true, since: 1, incarnation: 3}, 0, 100 * second, false, 0},
		"gone, and nobody says":             {nodeHealth{suspect: true, since: 1, incarnation: 3, gone: 3}, 0, 100 * second, true, 0},
		"gone, and the queue bears with it": {nodeHealth{suspect: true, since: 60 * second, incarnation: 3, gone: 3}, 60 * second, 100 * second, false, 120 * second},
		"removed":                           {nodeHealth{gone: everyProcess}, 60 * second, 100 * second, true, 0},
		"begun anew":                        {nodeHealth{incarnation: 4}, 60 * second, 100 * second, true, 0},
	} {
		over, at := c.is.over(3, c.patience, c.now)
		want(t, what, fmt.Sprint(over, at), fmt.Sprint(c.over, c.at))
	}
}
