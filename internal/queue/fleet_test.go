package queue

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// A fleet is some nodes that publish to one queue and consume from it through whoever leads it, in the way that
// docs/internals/queue.md calls resuming. Node and leader are as simple as they can be (fleet_node_test.go,
// fleet_leader_test.go); what is tested is that the machine lets them keep their promises while links break, leaders
// change and lose what they had packed, and nodes restart, are suspected and declared dead.
type fleet struct {
	*rand.Rand
	t     *testing.T
	m     *Machine
	index uint64
	lead  *fleetLeader // nil: nobody leads
	nodes []*fleetNode
	busy  int            // of a hundred things that clients do, so many are publishes
	seen  map[string]int // what has happened, to know that it did

	// What is true, whatever anybody knows of it. A publish is told by a number of its own; those of one node grow.
	publishes uint64
	accepted  map[uint64]Number
	by        map[uint64]uint64 // the node that published
	last      map[uint64]uint64 // of a node: its last one accepted
	body      map[Number]uint64
	released  map[Number]bool
	delivered map[Number]bool
	confirmed map[uint64]bool
	unknown   map[uint64]bool
	refused   map[uint64]bool // by the queue, whatever anybody knows of it
	nacked    map[uint64]bool
}

func newFleet(t *testing.T, r *rand.Rand, nodes int) *fleet {
	f := &fleet{
		Rand: r, t: t, m: New(), busy: 3 + r.IntN(45), seen: map[string]int{},
		accepted: map[uint64]Number{}, by: map[uint64]uint64{}, last: map[uint64]uint64{}, body: map[Number]uint64{},
		released: map[Number]bool{}, delivered: map[Number]bool{}, confirmed: map[uint64]bool{}, unknown: map[uint64]bool{},
		refused: map[uint64]bool{}, nacked: map[uint64]bool{},
	}
	if f.rarely(2) { // the queue refuses what is too much
		set := &Settings{MaxLength: Most(r.Uint64N(6)), Overflow: OverflowReject}
		f.apply(&packed{Entry: Entry{Commands: []Command{{Kind: Set, Terms: &Terms{Set: set}}}}})
	}
	for i := range nodes {
		n := &fleetNode{f: f, id: uint64(i + 1)}
		n.start()
		f.nodes = append(f.nodes, n)
	}
	return f
}

// parcel is what goes between a node and the leader. It is a flat union, like a Command.
type parcel struct {
	kind parcelKind
	try  uint64 // of the node's resuming; who has another one throws it away

	incarnation, epoch uint64 // resume
	session, count     uint64 // resumed: the session, and the last publish accepted in the epoch before
	outer              uint64
	received, limit    uint64  // attach: the last delivery id, and the last one there is credit for; more: limit
	known, getter      bool    // attach: it was attached in this session before
	seq, publish       uint64  // publish, accepted, refused
	heard              uint64  // publish: what became of those up to this one is known
	refused            []Range // resumed: of the epoch before
	chunks             uint32  // publish
	upload             uint64  // publish: where its chunks are, if they are packed
	request            uint64  // settle, cancel, detach, answered
	first, last        uint64  // settle
	how                Settlement
	id                 uint64 // delivery
	number             Number
}

type parcelKind int

const (
	resume parcelKind = iota
	attachIt
	publishIt
	settleIt
	more
	cancelIt
	detachIt
	getIt

	resumed
	attached
	accepted
	turnedAway
	delivery
	answered
	empty
)

// chunksOf says of how many chunks a publish is made: some are big.
func chunksOf(publish uint64) uint32 {
	if publish%7 == 0 {
		return 2
	}
	return 0
}

// packed is an entry, and the publishes its Enqueues are made of.
type packed struct {
	Entry
	publishes []uint64 // in the order of the Enqueues
}

// apply is what every member does with an entry that is agreed on.
func (f *fleet) apply(p *packed) *Effects {
	f.index++
	p.Index, p.Time = f.index, int64(f.index)
	next := f.m.Next(0)
	for _, id := range p.publishes {
		if _, twice := f.accepted[id]; twice {
			f.fail("publish %d of node %d is accepted twice", id, f.by[id])
		}
		if id < f.last[f.by[id]] {
			f.fail("publish %d of node %d is accepted after %d", id, f.by[id], f.last[f.by[id]])
		}
		if f.refused[id] {
			f.fail("publish %d of node %d comes again and was refused", id, f.by[id])
		}
		f.accepted[id], f.body[next], f.last[f.by[id]] = next, id, id
		next++
	}
	fx := &Effects{}
	f.m.Apply(&p.Entry, fx)
	if next != f.m.Next(0) {
		f.fail("the entry gave other numbers than it was packed with")
	}
	for i := range fx.List {
		e := &fx.List[i]
		for k := e.First; k <= e.Last && k.Lane() == 0 && k > 0; k++ {
			switch e.Kind {
			case Deliver:
				if !e.Redelivered && f.delivered[k] {
					f.fail("message %v is delivered again and not marked", k)
				}
				f.delivered[k] = true
			case Overflowed:
				id := f.body[k]
				delete(f.accepted, id)
				f.refused[id] = true
				f.seen["refused"]++
			case Released:
				if e.Reason == NoRoom {
					if !f.refused[f.body[k]] {
						f.fail("message %v is released since there is no room, and nobody is told", k)
					}
					delete(f.body, k)
					continue
				}
				if f.released[k] || f.body[k] == 0 || e.Reason == Aborted {
					f.fail("message %v of publish %d is released: %v", k, f.body[k], e.Reason)
				}
				f.released[k] = true
			}
		}
	}
	if err := f.m.Check(); err != nil {
		f.fail("%v", err)
	}
	return fx
}

func (f *fleet) fail(format string, args ...any) { f.t.Errorf(format, args...) }

// rarely is true once in n times.
func (f *fleet) rarely(n int) bool { return f.IntN(n) == 0 }

// step does one thing of what can happen.
func (f *fleet) step() {
	n := f.nodes[f.IntN(len(f.nodes))]
	switch p := f.IntN(100); {
	case p < 30:
		n.act()
	case p < 60:
		f.leaderTurn(false)
	case p < 90:
		n.hear(1 + f.IntN(4))
	case p < 94:
		f.breakLink(n)
	case p < 95:
		if f.rarely(3) {
			f.restart(n)
		}
	case p < 98:
		f.doubt(n)
	default:
		if f.lead == nil {
			f.elect()
		} else if f.rarely(3) {
			f.depose()
		}
	}
}

// breakLink ends what is under way between a node and the leader. Some of it may still be heard, late.
func (f *fleet) breakLink(n *fleetNode) {
	f.seen["break"]++
	if f.lead != nil && f.rarely(2) {
		delete(f.lead.links, n.id)
	}
	if f.rarely(2) {
		n.lateUp = append(n.lateUp, n.up...)
		n.lateDown = append(n.lateDown, n.down...)
	}
	n.up, n.down = nil, nil
	n.broken()
}

func (f *fleet) restart(n *fleetNode) {
	f.seen["restart"]++
	f.breakLink(n)
	n.start()
}

// elect lets a member lead that has what is applied from a snapshot.
func (f *fleet) elect() {
	f.seen["election"]++
	f.m = restored(f.t, f.m)
	f.lead = &fleetLeader{f: f, links: map[uint64]*fleetLink{}, lastConsumer: f.m.LastConsumer()}
}

// depose ends a leadership: with it go all links, and the entry under way is lost, or applied and not answered.
func (f *fleet) depose() {
	f.leaderTurn(true)
	f.lead = nil
	for _, n := range f.nodes {
		f.breakLink(n)
	}
}

// doubt suspects the session of a node that the leader is not linked with, or ends it.
func (f *fleet) doubt(n *fleetNode) {
	if f.lead == nil || f.lead.links[n.id] != nil {
		return
	}
	var c Command
	f.m.Sessions(func(s SessionInfo) {
		switch {
		case s.Node != n.id:
		case s.Suspect || f.rarely(3):
			c = Command{Kind: SessionDead, Session: s.ID, Blameless: true}
		default:
			c = Command{Kind: SessionSuspect, Session: s.ID}
		}
	})
	if c.Kind != 0 {
		f.seen[c.Kind.String()]++
		f.lead.carryOut(f.apply(&packed{Entry: Entry{Commands: []Command{c}}}), nil)
	}
}

// settleDown lets everything end: links hold, a leader stays, and all nodes do is to hear and to answer.
func (f *fleet) settleDown() {
	if f.lead == nil {
		f.elect()
	}
	for range 10_000 {
		quiet := true
		for _, n := range f.nodes {
			n.lateUp, n.lateDown = nil, nil
			if !n.resumed && !n.asked {
				n.askToResume()
			}
			quiet = quiet && n.resumed && len(n.up)+len(n.down)+len(n.flight)+len(n.asks) == 0
			n.hear(len(n.down))
		}
		if quiet {
			return
		}
		f.leaderTurn(false)
	}
	f.fail("it does not come to an end")
}

// verify compares what the nodes know with what is true, when nothing is under way.
func (f *fleet) verify() {
	sessions := 0
	f.m.Sessions(func(s SessionInfo) {
		sessions++
		n := f.nodes[s.Node-1]
		if s.Incarnation != n.incarnation || uint64(s.ID) != n.session || s.Suspect || s.Epoch != n.epoch || s.Last != n.base {
			f.fail("session %+v of node %+v", s, *n)
		}
		consumers := 0
		f.m.ConsumersOf(s.ID, func(c ConsumerRef) {
			consumers++
			own := n.consumers[c.Outer]
			if own == nil || c.Getter != own.getter || c.Delivered != own.received || c.Held != uint64(len(own.held)) {
				f.fail("consumer %+v is known as %+v", c, own)
				return
			}
			fx := &Effects{}
			f.m.Redeliver(c.ID, 0, fx)
			for _, e := range fx.List {
				for k := e.First; k <= e.Last; k++ {
					if id := e.Delivery + uint64(k-e.First); own.held[id] != k {
						f.fail("consumer %+v holds %v as %d, and knows of %v", c, k, id, own.held[id])
					}
				}
			}
		})
		if consumers != len(n.consumers) {
			f.fail("node %d has %d consumers and knows of %d", n.id, consumers, len(n.consumers))
		}
	})
	if sessions != len(f.nodes) {
		f.fail("%d sessions of %d nodes", sessions, len(f.nodes))
	}
	for id := uint64(1); id <= f.publishes; id++ {
		_, there := f.accepted[id]
		switch {
		case f.confirmed[id] && f.unknown[id] || f.nacked[id] && (f.confirmed[id] || f.unknown[id]):
			f.fail("publish %d is answered twice", id)
		case f.nacked[id] && (there || !f.refused[id]):
			f.fail("publish %d is nacked and not refused", id)
		case f.confirmed[id] && !there:
			f.fail("publish %d is confirmed and not accepted", id)
		case !f.confirmed[id] && !f.unknown[id] && !f.nacked[id]:
			f.fail("publish %d is not answered", id)
		}
	}
	if left := uint64(len(f.accepted) - len(f.released)); left != f.m.Ready()+f.m.Unacked() {
		f.fail("%d messages are there, %d ready and %d unacked", left, f.m.Ready(), f.m.Unacked())
	}
	chunks := uint64(0)
	for k, id := range f.body {
		if !f.released[k] {
			chunks += uint64(chunksOf(id))
		}
	}
	for _, r := range f.m.Live(nil) {
		if r.First.Lane() == ChunkLane {
			chunks -= r.Len()
		}
	}
	if chunks != 0 {
		f.fail("%d chunks are missing", int64(chunks))
	}
}

// Whatever happens, no publish of a session that lives is accepted twice, lost or out of order; what is confirmed is in
// the queue; a consumer of a session that lives gets each of its deliveries once, in order; and in the end every node knows of
// its messages what the queue knows.
func TestFleet(t *testing.T) {
	seeds := uint64(600)
	if testing.Short() {
		seeds = 40
	}
	seen := map[string]int{}
	for seed := range seeds {
		f := newFleet(t, rand.New(rand.NewPCG(seed, 17)), 1+int(seed%4))
		f.run(500)
		for k, n := range f.seen {
			seen[k] += n
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	for _, k := range []string{
		"break", "restart", "election", "session-suspect", "session-dead", "entry lost", "entry applied and not answered",
		"late and thrown away", "late resume", "resumed", "resumed in another session", "epoch asked again", "accepted before", "sent again",
		"unknown", "redelivered", "got", "got by redelivery", "empty", "attached again", "gone when attached again", "settled again", "message after its chunks", "refused", "refused before",
	} {
		if seen[k] < int(seeds)/20 {
			t.Errorf("%q happened %d times in %d runs: the test reaches too little", k, seen[k], seeds)
		}
	}
	if !testing.Short() && (seen["late incarnation"] == 0 || seen["late epoch"] == 0) {
		t.Error("nothing of an earlier incarnation, or of an earlier epoch, came late to a new leader")
	}
}

func (f *fleet) run(steps int) {
	for range steps {
		f.step()
		if f.t.Failed() {
			return
		}
		if f.rarely(150) {
			f.settleDown()
			f.verify()
		}
	}
	f.settleDown()
	f.verify()
}

// FuzzFleet lets the fuzzer choose what happens.
func FuzzFleet(f *testing.F) {
	f.Add([]byte("a fleet of nodes"), uint8(3))
	f.Add([]byte{}, uint8(1))
	f.Fuzz(func(t *testing.T, b []byte, nodes uint8) {
		newFleet(t, rand.New(newByteSource(b)), 1+int(nodes%4)).run(min(8+len(b), 500))
	})
}

// byteSource makes random numbers of bytes, and when these are used up, of a generator.
type byteSource struct {
	b    []byte
	rest rand.Source
}

func newByteSource(b []byte) *byteSource {
	return &byteSource{slices.Clone(b), rand.NewPCG(uint64(len(b)), 5)}
}

// Uint64 gives the next byte at both ends, where what is made of the number comes from.
func (s *byteSource) Uint64() uint64 {
	if len(s.b) == 0 {
		return s.rest.Uint64()
	}
	x := s.b[0]
	s.b = s.b[1:]
	return uint64(x)<<56 | uint64(x)
}
