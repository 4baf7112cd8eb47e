package detour

import (
	"bytes"
	"slices"

	"holdfast/internal/peer"
)

// passing are messages of one lane from one node to another that this one is in the middle of, and that wait for room on the lane to
// the next node.
type passing struct {
	from, to peer.NodeID
	lane     peer.Lane
	list     []waiting
	bytes    int
	id       uint64 // of the detour that data came of last
}

// waiting is a message that waits. Data is worth nothing once its detour is over; what else there is is short.
type waiting struct {
	msg  []byte
	id   uint64
	data bool
}

// drop drops data: that of one detour, or that of all others.
func (p *passing) drop(id uint64, others bool) {
	p.list = slices.DeleteFunc(p.list, func(w waiting) bool {
		is := w.data && (w.id == id) != others
		if is {
			p.bytes -= len(w.msg)
		}
		return is
	})
}

// pass leads on what came from one end of a detour, msg being all of it with the tag. Both ends know that this node
// hears the other; if that is over, or an end does not keep to the window, the detour is.
func (d *Detours) pass(sender peer.NodeID, lane peer.Lane, f *frame, msg []byte) {
	if f.from != sender || f.to == sender {
		return
	}
	if !d.leadOn(lane, f, msg) && f.kind != kindEnd {
		d.tell(f.from, &frame{kind: kindEnd, from: f.to, to: f.from, id: f.id})
		d.tell(f.to, &frame{kind: kindEnd, from: f.from, to: f.to, id: f.id})
	}
}

func (d *Detours) leadOn(lane peer.Lane, f *frame, msg []byte) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := d.nodes[f.to]; n == nil || !n.direct {
		d.forget(f.from, f.to)
		return false
	}
	if f.kind == kindEnd {
		for _, p := range d.passing {
			if p.between(f.from, f.to) {
				p.drop(f.id, false)
			}
		}
		d.tidy()
	}
	at := slices.IndexFunc(d.passing, func(p *passing) bool { return p.from == f.from && p.to == f.to && p.lane == lane })
	if at < 0 {
		if d.links.Send(f.to, lane, func(b []byte) []byte { return append(b, msg...) }) {
			return true
		}
		at = len(d.passing)
		d.passing = append(d.passing, &passing{from: f.from, to: f.to, lane: lane})
	}
	p := d.passing[at]
	if f.kind == kindData && p.id != f.id { // who sends it has ended the detours before
		p.id = f.id
		p.drop(f.id, true)
	}
	p.list = append(p.list, waiting{own(msg), f.id, f.kind == kindData})
	if p.bytes += len(msg); p.bytes > window+d.o.MaxMessage+head {
		d.forget(f.from, f.to)
		return false
	}
	return true
}

// own copies a small message that waits: it shares its memory with others, which would be kept with it.
func own(msg []byte) []byte {
	if len(msg) < 32<<10 {
		return bytes.Clone(msg)
	}
	return msg
}

// passOn leads on what waited for a lane. What comes meanwhile waits behind it.
func (d *Detours) passOn(to peer.NodeID, lane peer.Lane) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.passing {
		if p.to != to || p.lane != lane {
			continue
		}
		for len(p.list) > 0 && d.links.Send(to, lane, func(b []byte) []byte { return append(b, p.list[0].msg...) }) {
			p.bytes -= len(p.list[0].msg)
			p.list[0] = waiting{}
			p.list = p.list[1:]
		}
	}
	d.tidy()
}

// tidy drops the lanes on which nothing waits any more. d.mu is held.
func (d *Detours) tidy() {
	d.passing = slices.DeleteFunc(d.passing, func(p *passing) bool { return len(p.list) == 0 })
}

// between says whether the messages go from one of two nodes to the other.
func (p *passing) between(a, b peer.NodeID) bool {
	return p.from == a && p.to == b || p.from == b && p.to == a
}

// forget drops what waits between two nodes. d.mu is held.
func (d *Detours) forget(a, b peer.NodeID) {
	d.passing = slices.DeleteFunc(d.passing, func(p *passing) bool { return p.between(a, b) })
}

// forgetAll drops what waits for a node or came from it. d.mu is held.
func (d *Detours) forgetAll(n peer.NodeID) {
	d.passing = slices.DeleteFunc(d.passing, func(p *passing) bool { return p.from == n || p.to == n })
}
