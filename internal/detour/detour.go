package detour

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"

	"holdfast/internal/peer"
)

// TickEvery is how often Tick is meant to be called.
const TickEvery = peer.BeatEvery / 2

// In ticks.
const (
	// openAfter is how long a node must not be heard, or have no link, before a detour is sought: longer than others take to
	// notice that it is gone.
	openAfter = 5
	// freshBeat is how old the heartbeat may be that says that a third node hears it.
	freshBeat = 3
	// patience is how long a detour may take to be opened, and how long it takes until the next is tried.
	patience = 10
	// slowAfter is how long what is sent may be under way on a detour before another way is looked for: as long as a link may take
	// to move anything at all.
	slowAfter = 15
	// shunFor is how long a way that could not be opened, or was slow, comes after all others.
	shunFor = 3000
	// suspectAfter is how long after the end of a detour the node at its end is suspect, if nothing is heard of it.
	suspectAfter = int(peer.SuspectAfter / TickEvery)
)

// Options of the detours of a node.
type Options struct {
	Self        peer.NodeID
	Incarnation uint64
	Info        []byte       // as peer.Options.Info
	Handler     peer.Handler // the rooms
	// Tag is the first byte of all messages between detours. No message of the rooms begins with it.
	Tag        byte
	MaxMessage int // the longest message of the rooms in bytes; peer.Options.MaxMessage has to be longer by Overhead
	Logger     *slog.Logger
	Called     func(peer.NodeID) string // as peer.Options.Called; nil: the number
	// Beat appends what the rooms say in each heartbeat, at most BeatRoom bytes; their Handler.Beat is given it, and nothing where the
	// other node says nothing of that kind. Nil: nothing. It must not block, nor call the detours.
	Beat func(dst []byte) []byte
}

// BeatRoom is how many bytes of a heartbeat are the rooms'.
const BeatRoom = 1 << 10

// Overhead is how many bytes a detour adds to a message.
const Overhead = 1 + head

// Detours are the detours of a node, and the peer.Links of its rooms.
type Detours struct {
	o     Options
	links peer.Links
	serve atomic.Pointer[map[peer.NodeID]*route] // the live ones, for Send; nil: none

	mu      sync.Mutex
	nodes   map[peer.NodeID]*node
	wanted  []peer.NodeID // the peers
	opened  uint64        // detours, by this node
	ticks   int           // so far
	passing []*passing
}

var _ peer.Links = (*Detours)(nil)

// node is another node.
type node struct {
	id peer.NodeID

	// gate is held for writing while the rooms are told that the node is up, down, suspect or trusted, and for reading while they
	// get what came by detour. Rooms may send meanwhile, which does not take it.
	gate      sync.RWMutex
	suspected bool // the rooms were told; of gate

	// With Detours.mu held.
	direct bool          // there is a link
	quiet  bool          // the link's heartbeats do not come
	listed bool          // over this link it has said that it hears this node
	deaf   bool          // and now it says that it does not
	hears  []peer.NodeID // by its last heartbeat, and they hear it
	beat   int           // ticks since then
	away   int           // ticks for which it cannot be used without a detour
	fear   int           // ticks until it is suspect after the end of a detour; 0: does not matter
	wait   int           // ticks until the next detour is tried
	fresh  int           // ticks for which a link counts as new
	route  *route
	shun   map[peer.NodeID]int // by Detours.ticks, until when nodes are not asked to lead on to this one if another can
}

// New returns the detours of a node. Use follows before anything else.
func New(o Options) *Detours {
	if o.Called == nil {
		o.Called = func(n peer.NodeID) string { return strconv.FormatUint(uint64(n), 10) }
	}
	return &Detours{o: o, nodes: map[peer.NodeID]*node{}}
}

// Use says which links there are.
func (d *Detours) Use(l peer.Links) { d.links = l }

// Heard is peer.Options.Beat: whom this node hears, and what its rooms say.
func (d *Detours) Heard(dst []byte) []byte {
	d.mu.Lock()
	var list []heard
	for _, id := range d.wanted {
		if n := d.nodes[id]; n != nil && n.direct && !n.quiet {
			list = append(list, heard{id, !n.deaf})
		}
	}
	d.mu.Unlock()
	dst = appendHeard(dst, list)
	if d.o.Beat != nil {
		dst = d.o.Beat(dst)
	}
	return dst
}

// sound says that there is a link and that both sides hear each other, as far as is known.
func (n *node) sound() bool { return n.direct && !n.quiet && !n.deaf }

// of returns what is known of a node. d.mu is held.
func (d *Detours) of(id peer.NodeID) *node {
	n := d.nodes[id]
	if n == nil {
		n = &node{id: id, beat: freshBeat + 1}
		d.nodes[id] = n
	}
	return n
}

func (d *Detours) get(id peer.NodeID) *node {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.of(id)
}

// publish makes the live detours known to Send. d.mu is held.
func (d *Detours) publish() {
	var m map[peer.NodeID]*route
	for id, n := range d.nodes {
		if n.route != nil && n.route.stage == live {
			if m == nil {
				m = map[peer.NodeID]*route{}
			}
			m[id] = n.route
		}
	}
	if m == nil {
		d.serve.Store(nil)
	} else {
		d.serve.Store(&m)
	}
}

func (d *Detours) by(to peer.NodeID) *route {
	if m := d.serve.Load(); m != nil {
		return (*m)[to]
	}
	return nil
}

// Via returns the node by way of which another is reached; 0 if there is no detour to it.
func (d *Detours) Via(to peer.NodeID) peer.NodeID {
	if r := d.by(to); r != nil {
		return r.via
	}
	return 0
}

// Send is peer.Links.Send.
func (d *Detours) Send(to peer.NodeID, lane peer.Lane, add func([]byte) []byte) bool {
	if r := d.by(to); r != nil {
		return r.send(lane, add)
	}
	return d.links.Send(to, lane, add)
}

// Room is peer.Links.Room.
func (d *Detours) Room(to peer.NodeID, lane peer.Lane) int {
	if r := d.by(to); r != nil {
		return r.room(lane)
	}
	return d.links.Room(to, lane)
}

// SetPeers is peer.Links.SetPeers.
func (d *Detours) SetPeers(list []peer.Target) {
	d.mu.Lock()
	before := d.wanted
	d.wanted = nil
	var added []*node
	for _, t := range list {
		if t.ID != 0 && t.ID != d.o.Self {
			d.wanted = append(d.wanted, t.ID)
			if !slices.Contains(before, t.ID) {
				added = append(added, d.of(t.ID))
			}
		}
	}
	var over []*route
	for id, n := range d.nodes {
		if n.route != nil && !slices.Contains(d.wanted, id) {
			over = append(over, n.route)
		}
	}
	d.mu.Unlock()
	for _, n := range added {
		d.trustAnew(n)
	}
	d.links.SetPeers(list)
	for _, r := range over {
		d.finish(r, peer.ErrRemoved, true)
	}
}

// SetCluster is peer.Links.SetCluster.
func (d *Detours) SetCluster(id peer.ClusterID) { d.links.SetCluster(id) }

// Break is peer.Links.Break.
func (d *Detours) Break(n peer.NodeID, why error) { d.links.Break(n, why) }

// Probe is peer.Links.Probe.
func (d *Detours) Probe(ctx context.Context, addr string) (peer.Hello, error) {
	return d.links.Probe(ctx, addr)
}

// Call is peer.Links.Call.
func (d *Detours) Call(ctx context.Context, addr string, msg []byte) ([]byte, error) {
	return d.links.Call(ctx, addr, msg)
}

// Close is peer.Links.Close.
func (d *Detours) Close() {
	d.mu.Lock()
	d.wanted = nil
	var over []*route
	for _, n := range d.nodes {
		if n.route != nil {
			over = append(over, n.route)
		}
	}
	d.mu.Unlock()
	for _, r := range over {
		d.finish(r, peer.ErrClosed, true)
	}
	d.links.Close()
}

// tell sends a frame on the control lane. Where that finds no room, something else notices in the end.
func (d *Detours) tell(via peer.NodeID, f *frame) bool {
	return d.links.Send(via, peer.Control, func(b []byte) []byte { return f.append(append(b, d.o.Tag)) })
}
