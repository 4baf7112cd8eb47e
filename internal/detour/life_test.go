package detour

import (
	"testing"
	"time"

	"holdfast/internal/peer"
)

// What a room sends before it has heard that a detour is over does not come within the life of the link that ended it.
func TestNothingOfADetourGoesByTheNextLink(t *testing.T) {
	w := newTown(t, 7, 1, 2, 3)
	w.startAll()
	w.pass(2 * time.Second)
	w.apart(1, 2, true, true)
	w.pass(4 * time.Second)
	w.whole()
	told := 0
	for _, n := range w.nodes {
		n.onDown = func(id peer.NodeID) {
			told++
			w.want("not up for Send", n.Room(id, peer.Data) == 0 && !n.say(id, peer.Data, 10))
		}
	}
	w.net.Heal()
	w.pass(5 * time.Second)
	w.want("told once each", told == 2)
	w.whole()
}

// A detour may be agreed on as soon as a link has ended: rooms hear first that the link is down.
func TestTheLinkIsDownBeforeADetourIsUp(t *testing.T) {
	w := newTown(t, 8, 1, 2, 3, 4)
	w.startAll()
	w.pass(2 * time.Second)
	w.apart(1, 2, true, true)
	w.pass(4 * time.Second)
	n := w.nodes[1]
	w.want("a detour", n.Via(2) == 3)
	n.onDown = func(id peer.NodeID) {
		if id != 2 {
			return
		}
		for _, k := range []kind{kindOpen, kindReady} {
			f := frame{kind: k, from: 3, to: 1, id: 1 << 40, incarnation: 1, info: []byte("info")}
			n.Handler().Message(4, peer.Control, f.append([]byte{tag}))
		}
		n.onDown = nil
	}
	w.net.Break(1, 3)
	for n.onDown != nil {
		w.pass(time.Millisecond)
	}
	w.want("a detour to who was in the middle", n.ups[3] == 2)
	w.pass(10 * time.Second)
	w.net.Heal()
	w.pass(10 * time.Second)
	w.whole()
}

// A link that comes up while a detour is about to be opened in the place of one that was slow is not given up, though nothing has been
// heard on it yet.
func TestANewLinkIsNotGivenUp(t *testing.T) {
	w := cutTown(t, 11, 1, 2, 3, 4)
	n := w.nodes[1]
	w.net.Heal()
	for !w.net.Up(1, 2) || !w.net.Up(2, 1) {
		w.pass(time.Millisecond)
	}
	n.open(n.get(2))
	w.pass(5 * time.Second)
	w.want("the same link", n.ups[2] == 3 && n.detours() == 0)
	w.whole()
}

// A node that was suspect and is named as a peer once more begins as trusted, as links do.
func TestANewPeerIsTrusted(t *testing.T) {
	w := newTown(t, 9, 1, 2, 3)
	w.startAll()
	w.pass(2 * time.Second)
	w.crash(2)
	w.pass(2 * time.Second)
	n := w.nodes[1]
	w.want("suspect", n.doubt[2])
	n.SetPeers([]peer.Target{w.peers[0], w.peers[2]})
	w.pass(time.Second)
	n.doubt[2] = false // its rooms begin anew
	n.SetPeers(w.peers)
	w.pass(2 * time.Second)
	w.want("suspect again", n.doubt[2])
	n.SetPeers([]peer.Target{w.peers[0], w.peers[2]})
	w.start(2)
	w.pass(time.Second)
	n.doubt[2] = false
	n.SetPeers(w.peers)
	w.pass(5 * time.Second)
	w.want("up once", n.ups[2] == 2)
	w.whole()
}

// Memory is spent on peers only, whoever is named in what comes.
func TestWhoIsNoPeerIsNotRemembered(t *testing.T) {
	w := newTown(t, 10, 1, 2, 3)
	w.startAll()
	w.pass(2 * time.Second)
	n := w.nodes[1]
	for id := range peer.NodeID(100) {
		for k := kindOpen; k <= lastKind; k++ {
			f := frame{kind: k, from: 1000 + id, to: 1, id: 1}
			n.Handler().Message(2, peer.Control, f.append([]byte{tag}))
		}
	}
	w.want("two others", len(n.nodes) == 2)
	w.whole()
}
