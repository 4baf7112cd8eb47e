package detour

import (
	"errors"
	"fmt"
	"slices"

	"holdfast/internal/peer"
)

// errSilent is why a link is given up for a detour.
var errSilent = errors.New("it is not heard on this link, but by another node")

// ears are the peer.Handler of a node's links.
type ears struct{ d *Detours }

// Handler returns what hears the links, for peer.Options.Handler.
func (d *Detours) Handler() peer.Handler { return ears{d} }

// Message is peer.Handler.Message.
func (e ears) Message(from peer.NodeID, lane peer.Lane, msg []byte) {
	d := e.d
	if len(msg) == 0 || msg[0] != d.o.Tag {
		d.o.Handler.Message(from, lane, msg)
		return
	}
	f, err := parse(msg[1:])
	switch {
	case err != nil || f.from == d.o.Self:
	case f.to != d.o.Self:
		d.pass(from, lane, &f, msg)
	case f.from != from:
		d.hear(from, lane, &f)
	}
}

// Up is peer.Handler.Up: a link ends the detour.
func (e ears) Up(id peer.NodeID, incarnation uint64, info []byte) {
	d := e.d
	d.mu.Lock()
	n := d.of(id)
	r := n.route
	n.direct, n.away, n.fresh = true, 0, patience
	n.listed, n.deaf = false, false
	d.mu.Unlock()
	if r != nil {
		d.finish(r, ErrOver, true)
	}
	d.trust(n) // if it was only deaf
	n.gate.Lock()
	defer n.gate.Unlock()
	d.o.Handler.Up(id, incarnation, info)
}

// Down is peer.Handler.Down. All detours by way of the node end. One to it begins only when the rooms know that the link is down.
func (e ears) Down(id peer.NodeID, why error) {
	d := e.d
	n := d.get(id)
	n.gate.Lock()
	d.mu.Lock()
	n.direct, n.hears, n.away = false, nil, 0
	n.listed, n.deaf = false, false
	d.forgetAll(id)
	d.mu.Unlock()
	d.o.Handler.Down(id, why)
	n.gate.Unlock()
	d.leave(id)
	d.mu.Lock()
	r := n.route
	answer := r != nil && r.stage == asked
	d.mu.Unlock()
	if answer {
		d.accept(r)
	}
}

// Writable is peer.Handler.Writable.
func (e ears) Writable(id peer.NodeID, lane peer.Lane) {
	d := e.d
	d.passOn(id, lane)
	d.o.Handler.Writable(id, lane)
	if m := d.serve.Load(); m != nil {
		for _, r := range sorted(*m) {
			if r.via == id && r.wasFull(lane) {
				d.writable(r, lane)
			}
		}
	}
}

// Beat is peer.Handler.Beat; the rooms are given what is theirs. Who says that it does not hear this node any more is as good as not heard.
func (e ears) Beat(from peer.NodeID, payload []byte) {
	d := e.d
	list, rest, known := parseHeard(payload)
	d.mu.Lock()
	n := d.of(from)
	n.hears, n.beat = n.hears[:0:0], 0
	listed := false
	for _, h := range list {
		if h.both {
			n.hears = append(n.hears, h.id)
		}
		listed = listed || h.id == d.o.Self
	}
	was := n.deaf
	if n.direct {
		n.listed = n.listed || listed
		n.deaf = known && n.listed && !listed && len(list) < mostHeard // a full list may have left this node out
	}
	is := n.deaf
	if is != was {
		n.away = 0
	}
	d.mu.Unlock()
	d.leave(0)
	d.o.Handler.Beat(from, rest)
	switch {
	case is && !was:
		d.o.Logger.Warn("a node does not hear this one any more", "node", d.o.Called(from))
		d.suspect(n)
	case was && !is:
		d.trust(n)
	}
}

// Suspect is peer.Handler.Suspect. Who can be reached by a detour is not suspect.
func (e ears) Suspect(id peer.NodeID) {
	d := e.d
	d.mu.Lock()
	n := d.of(id)
	n.quiet, n.away = true, 0
	d.mu.Unlock()
	d.leave(id)
	d.suspect(n)
}

// Trust is peer.Handler.Trust.
func (e ears) Trust(id peer.NodeID) {
	n := e.d.get(id)
	e.d.mu.Lock()
	n.quiet = false
	e.d.mu.Unlock()
	e.d.trust(n)
}

// Call is peer.Handler.Call.
func (e ears) Call(from peer.Hello, msg []byte) []byte { return e.d.o.Handler.Call(from, msg) }

// suspect tells the rooms that a node is not heard, unless it is.
func (d *Detours) suspect(n *node) {
	n.gate.Lock()
	defer n.gate.Unlock()
	d.mu.Lock()
	is := (n.quiet || n.deaf) && n.fear == 0 && (n.route == nil || n.route.stage != live)
	d.mu.Unlock()
	if is && !n.suspected {
		n.suspected = true
		d.o.Handler.Suspect(n.id)
	}
}

// trust tells the rooms that a node is heard, unless something else speaks against it.
func (d *Detours) trust(n *node) {
	n.gate.Lock()
	defer n.gate.Unlock()
	d.mu.Lock()
	is := !n.quiet && !n.deaf
	d.mu.Unlock()
	if is {
		d.trusted(n)
	}
}

// trusted tells the rooms that a node is heard. Its gate is held.
func (d *Detours) trusted(n *node) {
	if n.suspected {
		n.suspected = false
		d.o.Handler.Trust(n.id)
	}
}

// trustAnew begins with a node that is named as a peer, perhaps not for the first time: as trusted, without a word.
func (d *Detours) trustAnew(n *node) {
	n.gate.Lock()
	defer n.gate.Unlock()
	n.suspected = false
	d.mu.Lock()
	n.quiet, n.fear, n.away, n.wait = false, 0, 0, 0
	d.mu.Unlock()
}

// hear takes a frame that somebody led here.
func (d *Detours) hear(via peer.NodeID, lane peer.Lane, f *frame) {
	d.mu.Lock()
	var n *node
	if slices.Contains(d.wanted, f.from) {
		n = d.of(f.from)
	}
	var r *route
	if n != nil && n.route != nil && n.route.id == f.id && n.route.via == via {
		r = n.route
	}
	d.mu.Unlock()
	if f.kind == kindOpen {
		if n != nil {
			d.asked(n, via, f)
		}
		return
	}
	if r == nil {
		if f.kind != kindEnd && f.kind != kindAck {
			d.tell(via, &frame{kind: kindEnd, from: d.o.Self, to: f.from, id: f.id})
		}
		return
	}
	switch f.kind {
	case kindAccept:
		d.mu.Lock()
		is := r.ours && r.stage == opening && !n.direct
		if is {
			r.incarnation, r.info = f.incarnation, f.info
		}
		d.mu.Unlock()
		if is {
			d.begin(r)
			d.tell(via, &frame{kind: kindReady, from: d.o.Self, to: n.id, id: r.id})
		}
	case kindReady:
		d.ready(r)
	case kindData:
		d.ready(r) // it is, whether or not its word for it has come
		d.take(r, lane, f)
	case kindAck:
		for _, l := range r.acknowledged(f.taken) {
			d.writable(r, l)
		}
	case kindEnd:
		d.finish(r, errLost, false)
	}
}

// ready takes that the other end is ready.
func (d *Detours) ready(r *route) {
	if !r.ours {
		d.begin(r)
	}
}

// take hands a message on.
func (d *Detours) take(r *route, lane peer.Lane, f *frame) {
	n := r.node
	n.gate.RLock()
	d.mu.Lock()
	is := n.route == r && r.stage == live
	d.mu.Unlock()
	lost := is && f.seq != r.seen[lane]+1
	if is && !lost {
		r.seen[lane]++
		d.o.Handler.Message(n.id, lane, f.msg)
	}
	n.gate.RUnlock()
	switch {
	case lost:
		d.finish(r, fmt.Errorf("%w: a message is missing", errLost), true)
	case is:
		r.take(lane, len(f.msg)+Overhead)
	}
}

// writable tells the rooms that a lane has room again.
func (d *Detours) writable(r *route, lane peer.Lane) {
	n := r.node
	n.gate.RLock()
	defer n.gate.RUnlock()
	d.mu.Lock()
	is := n.route == r && r.stage == live
	d.mu.Unlock()
	if is {
		d.o.Handler.Writable(n.id, lane)
	}
}
