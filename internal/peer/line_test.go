package peer

import (
	"bytes"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
)

// descent is what a node tells as its line, and which others it takes.
type descent struct {
	line  atomic.Pointer[[]byte]
	meet  atomic.Pointer[func(its Hello) error]
	apart atomic.Int32
}

func (d *descent) set(line string) {
	b := []byte(line)
	d.line.Store(&b)
}

func (d *descent) options(o *Options) {
	o.Line = func() []byte { return *d.line.Load() }
	o.Meet = func(its Hello) error {
		if meet := d.meet.Load(); meet != nil {
			return (*meet)(its)
		}
		return nil
	}
	o.Apart = func(its Hello) { d.apart.Add(1) }
}

// only has the node refuse all other lines.
func (d *descent) only() {
	meet := func(its Hello) error {
		if line := *d.line.Load(); !bytes.Equal(line, its.Line) {
			return fmt.Errorf("%w: %q is not %q", ErrLine, its.Line, line)
		}
		return nil
	}
	d.meet.Store(&meet)
}

// Two nodes of which one does not take the other's line have no link, whoever dials, and both hear why. They have one when they tell the
// same; a node whose line changes greets all others again, but those that have told that one.
func TestNodesOfDifferentLines(t *testing.T) {
	b := newBoard()
	var of [3]descent
	var nodes [3]*tcpNode
	for i, line := range []string{"one", "two", "one"} {
		of[i].set(line)
		nodes[i] = startTCP(t, b, NodeID(i+1), of[i].options)
	}
	x, y, z := nodes[0], nodes[1], nodes[2]
	of[0].only()
	x.SetPeers([]Target{y.target(), z.target()})
	y.SetPeers([]Target{x.target()})
	z.SetPeers([]Target{x.target()})
	x.awaitUp(t, 1, z)
	x.awaitLog(t, "no link to a node yet", ErrLine.Error(), `"two" is not "one"`)
	x.awaitLog(t, "was refused", ErrLine.Error(), `"two" is not "one"`)
	y.awaitLog(t, "no link to a node yet", ErrLine.Error())
	if of[0].apart.Load() == 0 || of[1].apart.Load() == 0 || of[2].apart.Load() != 0 {
		t.Error("who has come apart was not told")
	}
	of[1].set("one")
	x.awaitUp(t, 1, y)
	y.awaitUp(t, 1, x)

	of[0].set("three")
	x.Regreet(ErrLine, func(its Hello) bool { return string(its.Line) == "three" })
	b.await(t, "the links are over", func() bool {
		return len(x.lives(y)) == 1 && x.lives(y)[0].ended && len(x.lives(z)) == 1 && x.lives(z)[0].ended
	})
	of[2].set("three")
	x.awaitUp(t, 2, z)
	x.Regreet(ErrLine, func(its Hello) bool { return string(its.Line) == "three" })
	of[1].set("three")
	x.awaitUp(t, 2, y)
	b.holds(func() bool {
		if len(x.lives(z)) != 2 || x.lives(z)[1].ended {
			t.Error("a link to a node of the same line was broken")
		}
		return true
	})
}

// A connection in whose greeting the node told what it would not tell any more is of no use, unless the other node told what it tells now.
func TestALineThatChangesWhileNodesGreet(t *testing.T) {
	b := newBoard()
	var of descent
	of.set("new")
	x := startTCP(t, b, 1, of.options)
	for _, c := range []struct {
		told, its string
		taken     bool
	}{{"old", "old", false}, {"old", "new", true}, {"new", "old", true}, {"", "", false}} {
		g := newTarget(x.TCP, Target{ID: 2})
		near, far := net.Pipe()
		g.take(near, Control, Hello{Node: 2, Line: []byte(c.its)}, []byte(c.told))
		g.mu.Lock()
		taken := g.link.count == 1
		g.mu.Unlock()
		if taken != c.taken {
			t.Errorf("told %q, it told %q: taken %v", c.told, c.its, taken)
		}
		g.giveUp(ErrClosed)
		far.Close()
	}
}
