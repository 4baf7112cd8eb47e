package replica

import (
	"testing"
	"time"

	"holdfast/internal/clock"
	"holdfast/internal/seglog"
)

// jumping is a clock whose wall time is another one.
type jumping struct {
	*clock.Manual
	by time.Duration
}

// Now implements clock.Clock.
func (c *jumping) Now() time.Time { return c.Manual.Now().Add(c.by) }

// timekeeper is a machine that notes the times of its commands.
type timekeeper struct{ last int64 }

func (m *timekeeper) Apply(_ uint64, now int64, _ []byte) any { m.last = now; return nil }
func (m *timekeeper) AppendSnapshot(dst []byte) []byte        { return append(dst, 1) }
func (m *timekeeper) Restore([]byte) error                    { return nil }

// What queues keep for a time is kept for that time, whatever the wall clock does.
func TestTimeOfEntriesPassesAsTimeDoes(t *testing.T) {
	l := &fakeLog{}
	c := &jumping{Manual: clock.NewManual(testTime)}
	begin := func() (g *SimpleGroup, now func() time.Duration) {
		n := open(t, l, Options{Clock: c})
		m := &timekeeper{}
		g = n.NewSimpleGroup(1, m)
		if err := n.Replay(func(seglog.GroupID, bool) Host { return nil }); err != nil {
			t.Fatal(err)
		}
		n.Prepare()
		return g, func() time.Duration {
			g.Propose([]byte("x"), false, func(any, error) {})
			steps(n)
			return time.Duration(m.last - testTime.UnixNano()).Truncate(time.Millisecond)
		}
	}
	_, now := begin()
	want(t, "at first", now(), 0)
	c.by = 240 * time.Hour
	c.Advance(time.Second)
	want(t, "after a jump forward", now(), time.Second)
	c.by = -240 * time.Hour
	c.Advance(time.Second)
	want(t, "after a jump back", now(), 2*time.Second)

	_, now = begin() // the log ends at a time that is still to come
	want(t, "after a restart", now(), 2*time.Second)
	c.Advance(time.Second)
	want(t, "a second later", now(), 3*time.Second)
	c.by = time.Hour
	_, now = begin() // who was off for long
	want(t, "after a while", now(), time.Hour+3*time.Second)
}

// The next leader goes on from the time of the one before, though its own clock is behind: also if it knows of that time only by its
// own snapshot, after a start, or by a state that came whole.
func TestTimeOfRaftEntriesGoesOn(t *testing.T) {
	for way, hand := range map[string]func(c *cluster, l *member){
		"entries": func(c *cluster, l *member) {
			l.crash()
			c.settleFor(6 * restTicks)
		},
		"its snapshot": func(c *cluster, l *member) {
			for _, m := range c.nodes[:3] {
				m.n.NeedSnapshots([]seglog.GroupID{c.group})
			}
			c.settle()
			for _, m := range c.nodes[:3] {
				m.crash()
			}
			for _, m := range c.nodes[:3] {
				if m != l {
					m.start()
				}
			}
			c.settleFor(6 * restTicks)
		},
		"a state": func(c *cluster, l *member) {
			for _, err := range []error{c.change(l, AddLearner, 4), c.change(l, Promote, 4), c.transfer(l, 4)} {
				if err != nil {
					t.Fatal(err)
				}
			}
			c.settle()
		},
	} {
		c := newCluster(t, 75, 4, 3, Options{})
		c.nodes[3].start()
		c.settleFor(restTicks)
		l := c.mustLead()
		for _, s := range l.n.shards {
			s.began += int64(time.Hour)
		}
		c.propose(l)
		c.settle()
		first := l.h.g.raft.time
		hand(c, l)
		next := c.mustLead()
		before := c.clk.Mono()
		c.propose(next)
		c.settle()
		begun := next.h.g.raft.time
		c.settleFor(restTicks)
		c.propose(next)
		c.settle()
		if next == l || begun < first || begun > first+int64(time.Minute) {
			t.Errorf("%s: the time of the second leader begins %v after that of the first", way, time.Duration(begun-first))
		}
		passed, real := next.h.g.raft.time-begun, c.clk.Mono()-before
		if real < int64(100*time.Millisecond) || passed < real-int64(milli) || passed > real+int64(milli) {
			t.Errorf("%s: %v have passed, and %v in the group", way, time.Duration(real), time.Duration(passed))
		}
	}
}
