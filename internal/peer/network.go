package peer

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"holdfast/internal/clock"
	"holdfast/internal/invariant"
)

// Network is a network in memory, for tests and simulations. Nothing happens
// in it by itself: Step carries out one thing that could happen now, chosen with
// the seed, and calls the handlers of the nodes it concerns. The same seed, the
// same calls and the same clocks give the same course.
//
// Nodes keep the rules of Links and Handler. What a network may do to them is in
// network_fault.go; within the life of a link nothing is lost, repeated or put
// into another order, as nothing is in TCP.
//
// A Network and its nodes belong to one goroutine. Handlers may call their node's
// methods.
type Network struct {
	clock clock.Clock
	rng   *rand.Rand
	nodes []*netNode // alive, in order of their ids
	wires map[pair]*wire
	retry map[pair]int64 // when two nodes may be linked again
	held  map[way]bool
	delay map[way][2]time.Duration
	rate  map[way]int // bytes a second on a lane; 0: any
	able  []event     // of Step, used again
}

// pair is two nodes, the smaller id first.
type pair [2]NodeID

// way is from one node to another.
type way struct{ from, to NodeID }

func pairOf(a, b NodeID) pair { return pair{min(a, b), max(a, b)} }

// The states of one end of a wire.
type endState uint8

const (
	endOff     endState = iota
	endRaising          // Up is due
	endUp
	endFalling // Down is due
)

// wire is a link between two nodes: a link breaks at one end, and the other
// notices when word of it can get there.
type wire struct {
	ids   pair
	ends  [2]end
	flows [2]flow // from ends[i] to the other
}

type end struct {
	node  *netNode
	state endState
	why   error // of the fall
	told  error // why the other end falls, when it notices
	quota [Lanes]int
	full  [Lanes]bool // a message was refused, and Writable is to follow
}

// flow is what is under way from one end to the other.
type flow struct {
	lanes [Lanes][]packet
	last  [Lanes]int64 // when the last one put in may come out
	stuck int64        // since when something waits and cannot get through; 0: it can
}

type packet struct {
	due  int64
	msg  []byte
	beat bool
}

// event is one thing that can happen.
type event struct {
	kind eventKind
	node *netNode
	wire *wire
	at   int // which end it happens at
	lane Lane
	ids  pair
}

type eventKind uint8

const (
	evPulse eventKind = iota
	evConnect
	evUp
	evDown
	evNotice
	evStall
	evDeliver
	evWritable
)

var (
	errGivenUp = errors.New("the other node has given the link up")
	errBroken  = errors.New("the link was broken")
)

// NewNetwork returns a network without nodes. Delays, retries and stalls go by
// the monotonic time of c.
func NewNetwork(seed uint64, c clock.Clock) *Network {
	return &Network{
		clock: c, rng: rand.New(rand.NewPCG(seed, 0x9e3779b97f4a7c15)),
		wires: map[pair]*wire{}, retry: map[pair]int64{}, held: map[way]bool{}, delay: map[way][2]time.Duration{}, rate: map[way]int{},
	}
}

// Join starts a node. Options.Addr is where the others find it; its Clock, by
// default the network's, is what it judges silences by. A node that crashed or was
// closed may join again.
func (n *Network) Join(o Options) Links {
	if o.Clock == nil {
		o.Clock = n.clock
	}
	o.setDefaults()
	at, found := n.search(o.Node)
	if found {
		invariant.Failf("peer: node %d is in the network already", o.Node)
	}
	node := &netNode{
		net: n, o: o, cluster: o.Cluster, instance: n.rng.Uint64(), bound: map[string]NodeID{}, quiet: map[NodeID]*silence{},
		pulse: newPulse(o.BeatEvery, o.BeatsMissed, o.Clock.Mono()),
	}
	node.next = o.Clock.Mono() + n.rng.Int64N(node.pulse.period)
	n.nodes = slices.Insert(n.nodes, at, node)
	return node
}

func (n *Network) search(id NodeID) (int, bool) {
	return slices.BinarySearchFunc(n.nodes, id, func(node *netNode, id NodeID) int { return cmp.Compare(node.o.Node, id) })
}

// node is a living node, or nil.
func (n *Network) node(id NodeID) *netNode {
	if at, found := n.search(id); found {
		return n.nodes[at]
	}
	return nil
}

// at is the living node at an address, or nil.
func (n *Network) at(addr string) *netNode {
	for _, node := range n.nodes {
		if node.o.Addr == addr {
			return node
		}
	}
	return nil
}

// Step carries out one thing that can happen now. False says that nothing can
// until the clock moves.
func (n *Network) Step() bool {
	n.look(nil)
	if len(n.able) == 0 {
		return false
	}
	n.carryOut(n.able[n.rng.IntN(len(n.able))])
	return true
}

// Settle steps until nothing can happen any more, at most so many times, and
// returns how often.
func (n *Network) Settle(most int) (steps int) {
	for steps < most && n.Step() {
		steps++
	}
	return steps
}

// Next is how long the clocks have to move until something can happen: 0 if
// something can now; false if nothing will.
func (n *Network) Next() (time.Duration, bool) {
	var until int64 = -1
	n.look(func(d int64) {
		if until < 0 || d < until {
			until = d
		}
	})
	if len(n.able) > 0 {
		return 0, true
	}
	return time.Duration(max(until, 0)), until >= 0
}

// look fills able with what can happen now, in an order that does not depend on
// anything but the state, and tells later in how many ns something may.
func (n *Network) look(later func(ns int64)) {
	if later == nil {
		later = func(int64) {}
	}
	now := n.clock.Mono()
	n.able = n.able[:0]
	for _, node := range n.nodes {
		if node.paused {
			continue
		}
		if wait := node.next - node.o.Clock.Mono(); wait > 0 {
			later(wait)
		} else {
			n.able = append(n.able, event{kind: evPulse, node: node})
		}
	}
	for _, ids := range n.pairs() {
		if w := n.wires[ids]; w != nil {
			n.lookAt(w, now, later)
		} else if n.canConnect(ids) {
			if wait := n.retry[ids] - now; wait > 0 {
				later(wait)
			} else {
				n.able = append(n.able, event{kind: evConnect, ids: ids})
			}
		}
	}
}

// pairs are all pairs of nodes that live or have a wire, in order.
func (n *Network) pairs() []pair {
	var out []pair
	for i, a := range n.nodes {
		for _, b := range n.nodes[i+1:] {
			out = append(out, pair{a.o.Node, b.o.Node})
		}
	}
	for ids, w := range n.wires {
		if !w.ends[0].node.alive() || !w.ends[1].node.alive() {
			out = append(out, ids)
		}
	}
	slices.SortFunc(out, func(a, b pair) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	return slices.Compact(out)
}

// lookAt is look for one wire.
func (n *Network) lookAt(w *wire, now int64, later func(ns int64)) {
	for i := range w.ends {
		own, other := &w.ends[i], &w.ends[1-i]
		if own.node.paused || own.state == endOff {
			continue
		}
		if own.state == endRaising {
			n.able = append(n.able, event{kind: evUp, wire: w, at: i})
		}
		if own.state == endFalling {
			n.able = append(n.able, event{kind: evDown, wire: w, at: i})
		}
		closed := other.state == endOff || other.state == endFalling
		if closed && own.state != endFalling && !n.held[way{w.ids[1-i], w.ids[i]}] {
			n.able = append(n.able, event{kind: evNotice, wire: w, at: i})
		}
		for l := range own.full {
			if own.writable(Lane(l)) {
				n.able = append(n.able, event{kind: evWritable, wire: w, at: i, lane: Lane(l)})
			}
		}
		// What this end has sent: is it stuck?
		f := &w.flows[i]
		switch stuck := (n.held[way{w.ids[i], w.ids[1-i]}] || closed) && f.waiting(); {
		case !stuck || own.state == endFalling:
			f.stuck = 0
		case f.stuck == 0:
			f.stuck = max(now, 1)
			later(int64(own.node.o.Stall))
		case now-f.stuck < int64(own.node.o.Stall):
			later(int64(own.node.o.Stall) - (now - f.stuck))
		default:
			n.able = append(n.able, event{kind: evStall, wire: w, at: i})
		}
		// What comes to this end.
		if own.state == endRaising || n.held[way{w.ids[1-i], w.ids[i]}] {
			continue
		}
		for l, packets := range w.flows[1-i].lanes {
			if len(packets) == 0 {
				continue
			}
			if wait := packets[0].due - now; wait > 0 {
				later(wait)
			} else {
				n.able = append(n.able, event{kind: evDeliver, wire: w, at: i, lane: Lane(l)})
			}
		}
	}
}

func (f *flow) waiting() bool { return len(f.lanes[0])+len(f.lanes[1])+len(f.lanes[2]) > 0 }

// canConnect says whether two nodes would find each other.
func (n *Network) canConnect(ids pair) bool {
	a, b := n.node(ids[0]), n.node(ids[1])
	return a != nil && b != nil && !a.paused && !b.paused && a.wants(b) && b.wants(a) && !differ(a.cluster, b.cluster) &&
		!n.held[way{ids[0], ids[1]}] && !n.held[way{ids[1], ids[0]}]
}

// carryOut changes the network first and calls the handler last, so that the
// handler finds everything in order.
func (n *Network) carryOut(e event) {
	switch e.kind {
	case evPulse:
		e.node.step()
		return
	case evConnect:
		w := &wire{ids: e.ids}
		for i, id := range e.ids {
			node := n.node(id)
			w.ends[i] = end{node: node, state: endRaising, quota: node.o.LaneBytes}
		}
		n.wires[e.ids] = w
		return
	}
	own, other := &e.wire.ends[e.at], &e.wire.ends[1-e.at]
	switch e.kind {
	case evUp:
		own.state = endUp
		own.node.bound[other.node.o.Addr] = other.node.o.Node
		own.node.o.Handler.Up(other.node.o.Node, other.node.o.Incarnation, slices.Clone(other.node.o.Info))
	case evDown:
		n.switchOff(e.wire, e.at)
		own.node.o.Handler.Down(e.wire.ids[1-e.at], own.why)
	case evNotice:
		n.fall(e.wire, e.at, cmpErr(other.told, errGivenUp))
	case evStall:
		n.fall(e.wire, e.at, ErrStalled)
	case evWritable:
		own.full[e.lane] = false
		own.node.o.Handler.Writable(e.wire.ids[1-e.at], e.lane)
	case evDeliver:
		f := &e.wire.flows[1-e.at]
		p := f.lanes[e.lane][0]
		f.lanes[e.lane] = f.lanes[e.lane][1:]
		if p.beat {
			own.node.heard(e.wire.ids[1-e.at])
			own.node.o.Handler.Beat(e.wire.ids[1-e.at], p.msg)
			return
		}
		other.quota[e.lane] += frameHead + len(p.msg)
		own.node.o.Handler.Message(e.wire.ids[1-e.at], e.lane, p.msg)
	}
}

// writable says whether Writable is due for a lane.
func (e *end) writable(l Lane) bool {
	return e.full[l] && e.state == endUp && e.quota[l] > e.node.o.LaneBytes[l]/2
}

func cmpErr(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

// fall breaks a wire at one end.
func (n *Network) fall(w *wire, at int, why error) {
	switch e := &w.ends[at]; e.state {
	case endRaising:
		n.switchOff(w, at)
	case endUp:
		e.state, e.why = endFalling, why
	}
}

// switchOff ends a wire at one end. When both are off the nodes may meet again
// after a while.
func (n *Network) switchOff(w *wire, at int) {
	w.ends[at].state = endOff
	if w.ends[1-at].state != endOff {
		return
	}
	delete(n.wires, w.ids)
	backoff := int64(w.ends[at].node.o.BackoffMin)
	n.retry[w.ids] = n.clock.Mono() + backoff + n.rng.Int64N(backoff+1)
}

// put sends one packet.
func (n *Network) put(w *wire, at int, l Lane, p packet) {
	f := &w.flows[at]
	between := n.delay[way{w.ids[at], w.ids[1-at]}]
	p.due = n.clock.Mono() + int64(between[0])
	if d := int64(between[1] - between[0]); d > 0 {
		p.due += n.rng.Int64N(d + 1)
	}
	p.due = max(p.due, f.last[l])
	if rate := n.rate[way{w.ids[at], w.ids[1-at]}]; rate > 0 {
		p.due += int64(frameHead+len(p.msg)) * int64(time.Second) / int64(rate)
	}
	f.last[l] = p.due
	f.lanes[l] = append(f.lanes[l], p)
}
