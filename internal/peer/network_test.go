package peer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"holdfast/internal/clock"
)

// city is a Network with nodes that know each other.
type city struct {
	t     *testing.T
	net   *Network
	clock *clock.Manual
	nodes map[NodeID]Links
	hears map[NodeID]*hears
	incs  map[NodeID]uint64
	peers []Target
}

func newCity(t *testing.T, seed uint64, ids ...NodeID) *city {
	c := &city{
		t: t, clock: clock.NewManual(time.Unix(0, 0)),
		nodes: map[NodeID]Links{}, hears: map[NodeID]*hears{}, incs: map[NodeID]uint64{},
	}
	c.net = NewNetwork(seed, c.clock)
	for _, id := range ids {
		c.peers = append(c.peers, Target{ID: id, Addr: fmt.Sprint("node", id)})
	}
	for _, id := range ids {
		c.start(id)
	}
	return c
}

// start begins a life of a node; what its handler has heard before is kept.
func (c *city) start(id NodeID) {
	if c.hears[id] == nil {
		c.hears[id] = newHears(c.t, newBoard(), fmt.Sprint("node", id))
	}
	c.incs[id]++
	c.nodes[id] = c.net.Join(Options{
		Node: id, Incarnation: c.incs[id], Name: fmt.Sprint("n", id), Addr: fmt.Sprint("node", id), Info: []byte("info"),
		Handler: c.hears[id], Logger: slog.New(slog.DiscardHandler),
		Beat: func(dst []byte) []byte { return append(dst, "well"...) },
	})
	c.nodes[id].SetPeers(c.peers)
}

// pass lets time go by in small steps, with everything that happens meanwhile.
func (c *city) pass(d time.Duration) {
	for end := c.clock.Mono() + int64(d); ; {
		c.net.Settle(1 << 20)
		rest := time.Duration(end - c.clock.Mono())
		if rest <= 0 {
			return
		}
		next, _ := c.net.Next()
		c.clock.Advance(min(max(next, time.Millisecond), rest))
	}
}

func (c *city) send(from, to NodeID, l Lane, n uint64) bool {
	return c.nodes[from].Send(to, l, numbered(n, 20))
}

func (c *city) want(what string, ok bool) {
	c.t.Helper()
	if !ok {
		c.t.Errorf("not so at %v: %s", time.Duration(c.clock.Mono()), what)
	}
}

func TestNetworkCarriesMessages(t *testing.T) {
	c := newCity(t, 1, 1, 2, 3)
	c.pass(time.Second)
	for i := range uint64(100) {
		for l := range Lane(Lanes) {
			c.want("room", c.send(1, 2, l, i))
		}
	}
	c.pass(time.Second)
	for l := range Lane(Lanes) {
		c.want("all of a lane, in order", slices.Equal(c.hears[2].last(1).messages[l], upTo(100)))
	}
	c.want("heartbeats", len(c.hears[1].beats[3]) >= 9 && len(c.hears[1].beats[3]) <= 11)
	c.want("nobody suspect", len(c.hears[1].said) == 2)
	if h, err := c.nodes[1].Probe(context.Background(), "node3"); err != nil || h.Node != 3 {
		t.Errorf("%+v, %v", h, err)
	}
	if answer, err := c.nodes[1].Call(context.Background(), "node3", []byte("hi")); err != nil || string(answer) != `node3 heard "hi" from n1` {
		t.Errorf("%q, %v", answer, err)
	}
	if _, err := c.nodes[1].Call(context.Background(), "node1", nil); !errors.Is(err, ErrSelf) {
		t.Errorf("a call to itself: %v", err)
	}
	if _, err := c.nodes[1].Call(context.Background(), "node9", nil); !errors.Is(err, ErrNoAnswer) {
		t.Errorf("a call to nobody: %v", err)
	}
}

func TestNetworkHoldsBackAndLetsGo(t *testing.T) {
	c := newCity(t, 2, 1, 2)
	c.pass(time.Second)
	c.net.Hold(1, 2, true)
	sent := uint64(0)
	for ; c.nodes[1].Room(2, Control) > 0; sent++ {
		c.want("room", c.send(1, 2, Control, sent))
	}
	c.want("no more than the budget", !c.send(1, 2, Control, 0))
	c.want("the other way is open", c.send(2, 1, Control, 0))
	c.pass(900 * time.Millisecond)
	c.want("not a word", len(c.hears[2].last(1).messages[Control]) == 0)
	c.want("silence is noticed", c.hears[2].doubt[1] && !c.hears[1].doubt[2])
	c.net.Hold(1, 2, false)
	c.pass(time.Millisecond)
	c.want("nothing lost", slices.Equal(c.hears[2].last(1).messages[Control], upTo(int(sent))))
	c.want("trust again", !c.hears[2].doubt[1])
	c.want("one link", len(c.hears[1].lives[2]) == 1)
}

func TestNetworkOneWayPartition(t *testing.T) {
	c := newCity(t, 3, 1, 2)
	c.pass(time.Second)
	c.net.Hold(1, 2, true)
	c.pass(5 * time.Second)
	c.want("the link has stalled", !c.hears[1].isUp(2) && !c.hears[2].isUp(1))
	c.want("both are silent to each other", c.hears[1].doubt[2] && c.hears[2].doubt[1])
	_, err := c.nodes[2].Call(context.Background(), "node1", nil)
	c.want("no call gets its answer", errors.Is(err, ErrNoAnswer))
	c.net.Heal()
	c.pass(time.Second)
	c.want("together again", c.hears[1].isUp(2) && c.hears[2].isUp(1) && !c.hears[1].doubt[2] && !c.hears[2].doubt[1])
}

func TestNetworkPartition(t *testing.T) {
	c := newCity(t, 4, 1, 2, 3, 4, 5)
	c.pass(time.Second)
	c.net.Partition([]NodeID{1, 2})
	c.pass(5 * time.Second)
	for a := range NodeID(5) {
		for b := range a {
			same := (a+1 <= 2) == (b+1 <= 2)
			c.want(fmt.Sprint(a+1, " and ", b+1), c.hears[a+1].isUp(b+1) == same && c.net.Up(b+1, a+1) == same)
		}
	}
}

func TestNetworkCrashAndStart(t *testing.T) {
	c := newCity(t, 5, 1, 2, 3)
	c.pass(time.Second)
	c.net.Crash(2)
	c.hears[2].last(1).ended, c.hears[2].last(3).ended = true, true // it does not hear of it
	c.pass(50 * time.Millisecond)
	c.want("the others notice", !c.hears[1].isUp(2) && errors.Is(c.hears[1].last(2).why, errCrashed))
	c.pass(time.Second)
	c.want("suspect", c.hears[1].doubt[2])
	c.hears[2].doubt = map[NodeID]bool{}
	c.start(2)
	c.pass(time.Second)
	c.want("a new start", c.hears[1].isUp(2) && c.hears[1].last(2).incarnation == 2 && !c.hears[1].doubt[2])

	c.nodes[3].Close()
	c.pass(50 * time.Millisecond)
	c.want("goodbye", errors.Is(c.hears[1].last(3).why, ErrGoodbye) && errors.Is(c.hears[3].last(1).why, ErrClosed))
}

func TestNetworkPause(t *testing.T) {
	c := newCity(t, 6, 1, 2)
	c.pass(time.Second)
	c.net.Pause(2, true)
	c.want("room", c.send(1, 2, Data, 0))
	c.pass(5 * time.Second)
	c.want("it is suspect, and the link stands", c.hears[1].doubt[2] && c.hears[1].isUp(2))
	c.net.Pause(2, false)
	c.pass(time.Second)
	c.want("its own stall made nobody suspect", len(c.hears[2].said) == 1)
	c.want("trust, and the message", !c.hears[1].doubt[2] && len(c.hears[2].last(1).messages[Data]) == 1)
}

func TestNetworkPeersAndClusters(t *testing.T) {
	c := newCity(t, 7, 1, 2)
	c.pass(time.Second)
	c.nodes[1].SetPeers(nil)
	c.pass(time.Second)
	c.want("gone", errors.Is(c.hears[1].last(2).why, ErrRemoved) && !c.hears[2].isUp(1))
	c.nodes[1].SetPeers([]Target{{Addr: "node2"}})
	c.pass(time.Second)
	c.want("back", c.hears[1].isUp(2) && c.hears[2].isUp(1))
	c.nodes[1].SetCluster(ClusterID{1})
	c.pass(time.Second)
	c.want("one without a cluster is no stranger", len(c.hears[1].lives[2]) == 2 && c.hears[1].isUp(2))
	c.nodes[2].SetCluster(ClusterID{2})
	c.pass(time.Second)
	c.want("another cluster", !c.hears[1].isUp(2) && errors.Is(c.hears[2].last(1).why, ErrCluster))
}

// chaos is a course of random faults; it returns all that the handlers heard.
func chaos(t *testing.T, seed uint64) string {
	rng := rand.New(rand.NewPCG(seed, 1))
	ids := []NodeID{1, 2, 3, 4}
	c := newCity(t, seed, ids...)
	type stream struct {
		from, to NodeID
		lane     Lane
	}
	next := map[stream]uint64{}
	sent := map[stream]*life{} // of the sender, to which next belongs
	crashed := map[NodeID]bool{}
	pick := func() NodeID { return ids[rng.IntN(len(ids))] }
	for range 600 {
		switch rng.IntN(12) {
		case 0:
			c.net.Break(pick(), pick())
		case 1:
			c.net.Hold(pick(), pick(), true)
		case 2:
			c.net.Heal()
		case 3:
			c.net.Delay(pick(), pick(), 0, time.Duration(rng.IntN(int(100*time.Millisecond))))
		case 4:
			if id := pick(); !crashed[id] && rng.IntN(4) == 0 {
				c.net.Crash(id)
				crashed[id] = true
				for _, l := range c.hears[id].lives {
					l[len(l)-1].ended = true
				}
				clear(c.hears[id].doubt)
			} else if crashed[id] {
				c.start(id)
				crashed[id] = false
			}
		case 5:
			c.net.Pause(pick(), rng.IntN(2) == 0)
		case 6:
			c.pass(time.Duration(rng.IntN(int(2 * time.Second))))
		default:
			c.net.Settle(rng.IntN(50))
			c.clock.Advance(time.Duration(rng.IntN(int(20 * time.Millisecond))))
		}
		for range 10 {
			s := stream{pick(), pick(), Lane(rng.IntN(Lanes))}
			if s.from == s.to || crashed[s.from] {
				continue
			}
			if life := c.hears[s.from].last(s.to); life != sent[s] {
				sent[s], next[s] = life, 0
			}
			if c.send(s.from, s.to, s.lane, next[s]) {
				next[s]++
			}
		}
	}
	for _, id := range ids {
		c.net.Pause(id, false)
		if crashed[id] {
			c.start(id)
		}
	}
	c.net.Heal()
	c.pass(5 * time.Second)
	course := ""
	for _, id := range ids {
		for _, other := range ids {
			if id == other {
				continue
			}
			c.want(fmt.Sprintf("seed %d: %d and %d have found each other", seed, id, other), c.hears[id].isUp(other) && !c.hears[id].doubt[other])
			for _, life := range c.hears[id].lives[other] {
				for l, got := range life.messages {
					c.want(fmt.Sprintf("seed %d: %d from %d on lane %d without a hole", seed, id, other, l), slices.Equal(got, upTo(len(got))))
				}
			}
			for l := range Lane(Lanes) {
				s := stream{other, id, l}
				if life := c.hears[other].last(id); life == sent[s] {
					got := len(c.hears[id].last(other).messages[l])
					c.want(fmt.Sprintf("seed %d: all that was sent on the last link has come (%d of %d)", seed, got, next[s]), uint64(got) == next[s])
				}
			}
		}
		course += fmt.Sprintln(id, c.hears[id].order)
	}
	return course
}

func TestNetworkChaos(t *testing.T) {
	courses := map[string]bool{}
	for seed := range uint64(40) {
		course := chaos(t, seed)
		if t.Failed() {
			return
		}
		if seed < 5 && chaos(t, seed) != course {
			t.Fatalf("seed %d has two courses", seed)
		}
		courses[course] = true
	}
	if len(courses) != 40 {
		t.Errorf("40 seeds have %d courses", len(courses))
	}
}
