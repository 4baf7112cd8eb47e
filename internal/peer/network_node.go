package peer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"holdfast/internal/invariant"
)

// netNode is one life of a node in a Network.
type netNode struct {
	net      *Network
	o        Options
	cluster  ClusterID
	instance uint64
	targets  []Target
	bound    map[string]NodeID // who answered at an address
	quiet    map[NodeID]*silence
	pulse    pulse
	next     int64 // when the pulse steps, by the node's clock
	paused   bool
	ended    bool
}

var _ Links = (*netNode)(nil)

var errCrashed = errors.New("the connection was reset")

func (d *netNode) alive() bool { return !d.ended }

func (d *netNode) hello() Hello {
	return Hello{
		Least: d.o.least, Most: d.o.most, Cluster: d.cluster, Node: d.o.Node, Incarnation: d.o.Incarnation,
		Instance: d.instance, Name: d.o.Name, Addr: d.o.Addr, Info: slices.Clone(d.o.Info),
	}
}

// wants says whether a node is a peer of this one.
func (d *netNode) wants(other *netNode) bool {
	return slices.ContainsFunc(d.targets, func(t Target) bool {
		return t.Addr == other.o.Addr && (t.ID == other.o.Node || t.ID == 0)
	})
}

// SetPeers is Links.SetPeers.
func (d *netNode) SetPeers(list []Target) {
	d.targets = slices.Clone(list)
	quiet := map[NodeID]*silence{}
	for _, t := range d.targets {
		if id := d.idOf(t); id != 0 && id != d.o.Node {
			if quiet[id] = d.quiet[id]; quiet[id] == nil {
				quiet[id] = &silence{}
			}
		}
	}
	d.quiet = quiet
	d.eachWire(func(w *wire, at int) {
		if !d.wants(w.ends[1-at].node) {
			d.net.fall(w, at, ErrRemoved)
		}
	})
}

func (d *netNode) idOf(t Target) NodeID {
	if t.ID != 0 {
		return t.ID
	}
	return d.bound[t.Addr]
}

// eachWire visits the node's wires in order of the other nodes.
func (d *netNode) eachWire(visit func(w *wire, at int)) {
	for _, ids := range d.net.pairs() {
		w := d.net.wires[ids]
		if w == nil || ids[0] != d.o.Node && ids[1] != d.o.Node {
			continue
		}
		if at := endOf(w, d.o.Node); w.ends[at].node == d {
			visit(w, at)
		}
	}
}

// SetCluster is Links.SetCluster.
func (d *netNode) SetCluster(id ClusterID) {
	d.cluster = id
	d.eachWire(func(w *wire, at int) {
		if differ(id, w.ends[1-at].node.cluster) {
			d.net.fall(w, at, ErrCluster)
		}
	})
}

// wireTo is the wire to a node and our end of it, if Send may use it.
func (d *netNode) wireTo(to NodeID) (*wire, int) {
	w := d.net.wires[pairOf(d.o.Node, to)]
	if w == nil || d.ended {
		return nil, 0
	}
	at := endOf(w, d.o.Node)
	if e := &w.ends[at]; e.node != d || e.state != endUp && e.state != endFalling {
		return nil, 0
	}
	return w, at
}

// Send is Links.Send. On a link that has broken, of which the node has not heard
// yet, it succeeds and the message is lost.
func (d *netNode) Send(to NodeID, l Lane, write func(dst []byte) []byte) bool {
	w, at := d.wireTo(to)
	if w == nil {
		return false
	}
	if w.ends[at].quota[l] <= 0 {
		w.ends[at].full[l] = true
		return false
	}
	msg := write(nil)
	if len(msg) > d.o.MaxMessage {
		invariant.Failf("peer: a message of %d bytes, at most %d are allowed", len(msg), d.o.MaxMessage)
	}
	w.ends[at].quota[l] -= frameHead + len(msg)
	if w.ends[at].state == endUp {
		d.net.put(w, at, l, packet{msg: slices.Clip(msg)})
	}
	return true
}

// Room is Links.Room.
func (d *netNode) Room(to NodeID, l Lane) int {
	if w, at := d.wireTo(to); w != nil {
		return max(w.ends[at].quota[l], 0)
	}
	return 0
}

// Break is Links.Break.
func (d *netNode) Break(n NodeID, why error) {
	if w, at := d.wireTo(n); w != nil {
		d.net.fall(w, at, why)
	}
}

// step is one step of the node's pulse.
func (d *netNode) step() {
	now := d.o.Clock.Mono()
	d.next = now + d.pulse.period
	by := d.pulse.step(now)
	if by.beat {
		d.eachWire(func(w *wire, at int) {
			if w.ends[at].state == endUp {
				d.net.put(w, at, Control, packet{msg: d.o.beat(nil), beat: true})
			}
		})
	}
	for _, id := range d.bound {
		if d.quiet[id] == nil && slices.ContainsFunc(d.targets, func(t Target) bool { return d.idOf(t) == id }) {
			d.quiet[id] = &silence{}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(d.quiet)) {
		if s := d.quiet[id]; s != nil && !d.ended && s.grow(by, d.pulse.limit) {
			d.o.Handler.Suspect(id)
		}
	}
}

// heard is called for every heartbeat.
func (d *netNode) heard(id NodeID) {
	if s := d.quiet[id]; s != nil && s.heard() {
		d.o.Handler.Trust(id)
	}
}

// reach finds who answers at an address, as far as the network lets them.
func (d *netNode) reach(ctx context.Context, addr string) (*netNode, error) {
	if d.ended {
		return nil, ErrClosed
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	other := d.net.at(addr)
	if other == d {
		return other, ErrSelf
	}
	if other == nil || other.paused || d.net.held[way{d.o.Node, other.o.Node}] || d.net.held[way{other.o.Node, d.o.Node}] {
		return nil, ErrNoAnswer
	}
	return other, nil
}

// Probe is Links.Probe; it is carried out at once.
func (d *netNode) Probe(ctx context.Context, addr string) (Hello, error) {
	other, err := d.reach(ctx, addr)
	if err != nil {
		err = fmt.Errorf("%s: %w", addr, err)
	}
	if other == nil {
		return Hello{}, err
	}
	return other.hello(), err
}

// Call is Links.Call; it is carried out at once, on the other node's Handler.
func (d *netNode) Call(ctx context.Context, addr string, msg []byte) ([]byte, error) {
	other, err := d.reach(ctx, addr)
	if err == nil && differ(d.cluster, other.cluster) {
		err = ErrCluster
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", addr, err)
	}
	return slices.Clone(other.o.Handler.Call(d.hello(), slices.Clone(msg))), nil
}

// Close is Links.Close.
func (d *netNode) Close() {
	if d.ended {
		return
	}
	var down []NodeID
	d.eachWire(func(w *wire, at int) {
		if s := w.ends[at].state; s == endUp || s == endFalling {
			down = append(down, w.ids[1-at])
		}
	})
	d.net.remove(d, ErrGoodbye)
	for _, id := range down {
		d.o.Handler.Down(id, ErrClosed)
	}
}

// remove takes a node out; told is what the others hear as the reason.
func (n *Network) remove(d *netNode, told error) {
	d.eachWire(func(w *wire, at int) {
		w.ends[at].told = told
		n.switchOff(w, at)
	})
	d.ended = true
	at, _ := n.search(d.o.Node)
	n.nodes = append(n.nodes[:at:at], n.nodes[at+1:]...)
}
