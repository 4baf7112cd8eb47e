package detour

import (
	"fmt"
	"testing"
	"time"

	"holdfast/internal/peer"
)

// cutTown is a town whose nodes 1 and 2 have lost each other, with a detour by way of 3; 4 and those behind it could lead as well.
func cutTown(t *testing.T, seed uint64, ids ...peer.NodeID) *town {
	w := newTown(t, seed, ids...)
	w.startAll()
	w.pass(2 * time.Second)
	w.apart(1, 2, true, true)
	w.pass(4 * time.Second)
	w.want("a detour by way of 3", w.nodes[1].Via(2) == 3 && w.nodes[2].Via(1) == 3)
	return w
}

// talk has a node send what it can for so long, in messages of 64 KiB.
func (w *town) talk(from, to peer.NodeID, long time.Duration) (sent int) {
	for end := w.clock.Mono() + int64(long); w.clock.Mono() < end; w.pass(100 * time.Millisecond) {
		if n := w.nodes[from]; n.up[to] && n.say(to, peer.Data, 64<<10) {
			sent++
		}
	}
	return sent
}

// A detour whose way is slow is moved to another, whichever end notices, and stays there: rooms see a link that went down and came up.
func TestASlowDetourIsMoved(t *testing.T) {
	for _, how := range []struct {
		name           string
		from, to       peer.NodeID // where it is slow
		sender, hearer peer.NodeID
	}{
		{"to the other end", 3, 2, 1, 2},
		{"to the one in the middle", 1, 3, 1, 2},
		{"back", 3, 1, 2, 1},
		{"back, to the one in the middle", 2, 3, 2, 1},
	} {
		t.Run(how.name, func(t *testing.T) {
			w := cutTown(t, 20, 1, 2, 3, 4, 5)
			w.net.Narrow(how.from, how.to, 50<<10)
			w.talk(how.sender, how.hearer, 4*time.Second)
			w.want("by another way", w.nodes[1].Via(2) == 4 && w.nodes[2].Via(1) == 4)
			w.want("down and up once", w.nodes[1].ups[2] == 3 && w.nodes[2].ups[1] == 3)
			before := w.nodes[how.hearer].total
			sent := w.talk(how.sender, how.hearer, time.Minute)
			w.pass(time.Second)
			w.want("all goes on there", sent > 590 && w.nodes[how.hearer].total-before == sent && w.nodes[1].ups[2] == 3)
			w.want("nobody is suspect", !w.nodes[1].doubt[2] && !w.nodes[2].doubt[1])
			for a := range peer.NodeID(2) {
				w.want("links as before", w.nodes[3].ups[a+1] == 1)
			}
			w.whole()
		})
	}
}

// Where the ways are slow in different directions, each end tells the other by moving: they come to one that is slow for neither.
func TestBothEndsOfADetourKnowSlowWays(t *testing.T) {
	w := cutTown(t, 21, 1, 2, 3, 4, 5)
	w.net.Narrow(3, 2, 50<<10) // noticed by 1
	w.net.Narrow(4, 1, 50<<10) // noticed by 2
	for range 12 {
		w.talk(1, 2, 500*time.Millisecond)
		w.talk(2, 1, 500*time.Millisecond)
	}
	w.want("the third way", w.nodes[1].Via(2) == 5 && w.nodes[2].Via(1) == 5)
	w.want("moved twice", w.nodes[1].ups[2] == 4 && w.nodes[2].ups[1] == 4)
	w.pass(30 * time.Second) // what lies at the slow ones gets over
	w.whole()
}

// A wish that was given up, and comes late by a slow way, does not break the detour that was opened after it.
func TestALateWish(t *testing.T) {
	w := cutTown(t, 24, 1, 2, 3, 4)
	opened, asked := w.nodes[1], w.nodes[2]
	if !opened.get(2).route.ours {
		opened, asked = asked, opened
	}
	r := asked.get(opened.id).route
	asked.hear(4, peer.Control, &frame{kind: kindOpen, from: opened.id, to: asked.id, id: r.id - 1, incarnation: r.incarnation})
	w.pass(10 * time.Second)
	w.want("the same detour", asked.get(opened.id).route == r && w.nodes[1].ups[2] == 2 && w.nodes[2].ups[1] == 2)
	w.whole()
}

// Where all ways are slow the detour stays, but for a try now and then: each move breaks what is under way.
func TestADetourStaysWhereAllWaysAreSlow(t *testing.T) {
	w := cutTown(t, 22, 1, 2, 3, 4)
	w.net.Narrow(3, 2, 100<<10)
	w.net.Narrow(4, 2, 100<<10)
	w.talk(1, 2, 4*time.Minute)
	w.want("moved once", w.nodes[1].ups[2] == 3 && w.nodes[2].ups[1] == 3 && w.nodes[1].Via(2) == 4)
	w.net.Narrow(3, 2, 0)
	w.talk(1, 2, 2*time.Minute)
	w.want("moved to the way that has become better", w.nodes[1].ups[2] == 4 && w.nodes[1].Via(2) == 3)
	w.pass(20 * time.Second)
	w.whole()
}

// A detour on which nothing is said, or little at a time, is not slow, and one without another way stays whatever it is.
func TestADetourThatIsNotMoved(t *testing.T) {
	for _, ids := range [][]peer.NodeID{{1, 2, 3}, {1, 2, 3, 4}} {
		t.Run(fmt.Sprint(len(ids)), func(t *testing.T) {
			w := cutTown(t, 23, ids...)
			w.net.Delay(3, 2, 0, 400*time.Millisecond)
			w.net.Delay(2, 3, 0, 400*time.Millisecond)
			if len(ids) == 3 {
				w.net.Narrow(3, 2, 50<<10)
			}
			w.pass(10 * time.Second)
			w.talk(1, 2, 20*time.Second)
			w.want("the same detour", w.nodes[1].ups[2] == 2 && w.nodes[1].Via(2) == 3)
			w.pass(30 * time.Second)
			w.whole()
		})
	}
}
