package detour

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"testing"
	"time"

	"holdfast/internal/clock"
	"holdfast/internal/peer"
)

const tag = 0xD

// town is a network whose nodes take detours. It checks all along that each node keeps the rules of peer.Handler.
type town struct {
	t     *testing.T
	net   *peer.Network
	clock *clock.Manual
	peers []peer.Target
	incs  map[peer.NodeID]uint64
	nodes map[peer.NodeID]*resident
	lanes [peer.Lanes]int // bytes, if not as usual
	tick  int64
}

// resident is one life of a node: its rooms.
type resident struct {
	*Detours
	w      *town
	id     peer.NodeID
	up     map[peer.NodeID]bool
	doubt  map[peer.NodeID]bool
	ups    map[peer.NodeID]int
	got    map[peer.NodeID]*[peer.Lanes]uint64 // the last number of a lane within the life of a link
	sent   map[peer.NodeID]*[peer.Lanes]uint64
	refuse map[peer.NodeID]*[peer.Lanes]bool // Writable is to follow
	total  int
	onDown func(peer.NodeID)      // or nil
	said   map[peer.NodeID][]byte // in the last heartbeat
}

func newTown(t *testing.T, seed uint64, ids ...peer.NodeID) *town {
	w := &town{t: t, clock: clock.NewManual(time.Unix(0, 0)), incs: map[peer.NodeID]uint64{}, nodes: map[peer.NodeID]*resident{}}
	w.net = peer.NewNetwork(seed, w.clock)
	for _, id := range ids {
		w.peers = append(w.peers, peer.Target{ID: id, Addr: fmt.Sprint("node", id)})
	}
	return w
}

func (w *town) startAll() {
	for _, p := range w.peers {
		w.start(p.ID)
	}
}

// start begins a life of a node.
func (w *town) start(id peer.NodeID) {
	w.incs[id]++
	n := &resident{
		w: w, id: id, up: map[peer.NodeID]bool{}, doubt: map[peer.NodeID]bool{}, ups: map[peer.NodeID]int{},
		got: map[peer.NodeID]*[peer.Lanes]uint64{}, sent: map[peer.NodeID]*[peer.Lanes]uint64{}, refuse: map[peer.NodeID]*[peer.Lanes]bool{}, said: map[peer.NodeID][]byte{},
	}
	w.nodes[id] = n
	n.Detours = New(Options{
		Self: id, Incarnation: w.incs[id], Info: []byte("info"), Handler: n, Tag: tag, MaxMessage: 4 << 20, Logger: slog.New(slog.DiscardHandler),
	})
	n.Use(w.net.Join(peer.Options{
		Node: id, Incarnation: w.incs[id], Name: fmt.Sprint("n", id), Addr: fmt.Sprint("node", id), Info: []byte("info"),
		Handler: n.Handler(), Beat: n.Heard, Logger: slog.New(slog.DiscardHandler), LaneBytes: w.lanes, MaxMessage: 4<<20 + Overhead,
	}))
	n.SetPeers(w.peers)
}

func (w *town) crash(id peer.NodeID) {
	w.net.Crash(id)
	delete(w.nodes, id)
}

// pass lets time go by.
func (w *town) pass(d time.Duration) {
	for end := w.clock.Mono() + int64(d); ; {
		w.net.Settle(1 << 20)
		if w.clock.Mono() >= w.tick {
			w.tick = w.clock.Mono() + int64(TickEvery)
			for _, id := range slices.Sorted(maps.Keys(w.nodes)) {
				w.nodes[id].Tick()
			}
			continue
		}
		rest := time.Duration(min(end, w.tick) - w.clock.Mono())
		if w.clock.Mono() >= end {
			return
		}
		next, _ := w.net.Next()
		w.clock.Advance(min(max(next, time.Millisecond), rest))
	}
}

func (w *town) want(what string, ok bool) {
	w.t.Helper()
	if !ok {
		w.t.Fatalf("not so at %v: %s", time.Duration(w.clock.Mono()), what)
	}
}

// detours is how many nodes this one reaches by way of others.
func (n *resident) detours() (count int) {
	for _, p := range n.w.peers {
		if n.Via(p.ID) != 0 {
			count++
		}
	}
	return count
}

// whole checks that all nodes that run are up for each other, and that messages get through.
func (w *town) whole() {
	w.t.Helper()
	for a, n := range w.nodes {
		for b := range w.nodes {
			if a != b {
				w.want(fmt.Sprintf("%d is up for %d, and trusted", b, a), n.up[b] && !n.doubt[b])
			}
		}
	}
	before := map[peer.NodeID]int{}
	for id, n := range w.nodes {
		before[id] = n.total
	}
	for _, a := range slices.Sorted(maps.Keys(w.nodes)) {
		for _, b := range slices.Sorted(maps.Keys(w.nodes)) {
			if a != b {
				w.want("there is room", w.nodes[a].say(b, peer.Data, 100))
			}
		}
	}
	w.pass(time.Second)
	for id, n := range w.nodes {
		w.want(fmt.Sprintf("%d hears all", id), n.total-before[id] == len(w.nodes)-1)
	}
}

// say sends a numbered message of some bytes.
func (n *resident) say(to peer.NodeID, lane peer.Lane, size int) bool {
	s := n.sent[to]
	if s == nil {
		return false
	}
	ok := n.Send(to, lane, func(b []byte) []byte {
		b = append(b, 1)
		b = binary.BigEndian.AppendUint64(b, s[lane]+1)
		return append(b, make([]byte, size)...)
	})
	if ok {
		s[lane]++
	} else {
		n.refuse[to][lane] = true
	}
	return ok
}

func (n *resident) Up(id peer.NodeID, incarnation uint64, info []byte) {
	n.w.want(fmt.Sprintf("%d hears of %d: up once", n.id, id), !n.up[id])
	n.w.want("as it says of itself", incarnation <= n.w.incs[id] && string(info) == "info")
	n.up[id] = true
	n.ups[id]++
	n.got[id], n.sent[id], n.refuse[id] = new([peer.Lanes]uint64), new([peer.Lanes]uint64), new([peer.Lanes]bool)
}

func (n *resident) Down(id peer.NodeID, why error) {
	n.w.want(fmt.Sprintf("%d hears of %d: down after up", n.id, id), n.up[id] && why != nil)
	n.up[id] = false
	if n.onDown != nil {
		n.onDown(id)
	}
}

func (n *resident) Message(from peer.NodeID, lane peer.Lane, msg []byte) {
	n.w.want("messages while it is up", n.up[from])
	number := binary.BigEndian.Uint64(msg[1:])
	n.w.want(fmt.Sprintf("message %d of %d to %d after %d", number, from, n.id, n.got[from][lane]), number == n.got[from][lane]+1)
	n.got[from][lane]++
	n.total++
}

func (n *resident) Writable(id peer.NodeID, lane peer.Lane) {
	n.w.want("writable while it is up", n.up[id])
	n.refuse[id][lane] = false
}

func (n *resident) Beat(from peer.NodeID, said []byte) { n.said[from] = said }

func (n *resident) Suspect(id peer.NodeID) {
	n.w.want("suspect once", !n.doubt[id])
	n.doubt[id] = true
}

func (n *resident) Trust(id peer.NodeID) {
	n.w.want("trusted after suspect", n.doubt[id])
	n.doubt[id] = false
}

func (n *resident) Call(peer.Hello, []byte) []byte { return nil }

// apart holds what goes between two nodes, one way or both.
func (w *town) apart(a, b peer.NodeID, both, on bool) {
	w.net.Hold(a, b, on)
	if both {
		w.net.Hold(b, a, on)
	}
}
