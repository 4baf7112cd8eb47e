package detour

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"holdfast/internal/peer"
)

func sorted(m map[peer.NodeID]*route) (list []*route) {
	for _, id := range slices.Sorted(maps.Keys(m)) {
		list = append(list, m[id])
	}
	return list
}

// Tick lets time pass. It must not be called by two goroutines at a time.
func (d *Detours) Tick() {
	d.mu.Lock()
	d.ticks++
	var give, hold []*route
	var fears, seek []*node
	for _, n := range d.nodes {
		n.beat = min(n.beat+1, freshBeat+1)
		n.wait, n.fresh = max(n.wait-1, 0), max(n.fresh-1, 0)
		maps.DeleteFunc(n.shun, func(_ peer.NodeID, until int) bool { return until <= d.ticks })
	}
	for _, id := range d.wanted {
		n := d.of(id)
		r := n.route
		if n.fear > 0 {
			if n.fear--; n.fear == 0 {
				fears = append(fears, n)
			}
		}
		switch {
		case r != nil && r.stage == live:
			hold = append(hold, r)
		case r != nil:
			if r.patience--; r.patience <= 0 {
				d.avoid(n, r.via)
				give = append(give, r)
			}
		case n.sound():
			n.away = 0
		default:
			if n.away++; n.away >= openAfter && n.wait == 0 {
				seek = append(seek, n)
			}
		}
	}
	d.mu.Unlock()
	for _, n := range fears {
		d.suspect(n)
	}
	for _, r := range give {
		d.finish(r, errLost, true)
	}
	for _, r := range hold {
		for l := range peer.Lane(peer.Lanes) {
			r.take(l, 0)
		}
		if r.slow() {
			d.move(r)
		}
	}
	for _, n := range seek {
		d.seek(n)
	}
}

// avoid has other nodes than this one asked first to lead on to n. d.mu is held.
func (d *Detours) avoid(n *node, via peer.NodeID) {
	if n.shun == nil {
		n.shun = map[peer.NodeID]int{}
	}
	n.shun[via] = d.ticks + shunFor
}

// ways returns who could lead on to a node, the best first: those that are avoided come last, the longest avoided of them first. d.mu is held.
func (d *Detours) ways(n *node) (able []peer.NodeID) {
	for _, id := range d.wanted {
		if c := d.of(id); c.sound() && c.beat <= freshBeat && slices.Contains(c.hears, n.id) {
			able = append(able, id)
		}
	}
	slices.SortFunc(able, func(a, b peer.NodeID) int { return cmp.Or(cmp.Compare(n.shun[a], n.shun[b]), cmp.Compare(a, b)) })
	return able
}

// seek tries to open a detour to a node, once there is no link any more.
func (d *Detours) seek(n *node) {
	d.mu.Lock()
	silent := n.direct && !n.sound() && n.route == nil && len(d.ways(n)) > 0
	d.mu.Unlock()
	if silent {
		d.links.Break(n.id, errSilent)
		return
	}
	d.open(n)
}

// open tries to open a detour to a node without a link, through another one that hears it.
func (d *Detours) open(n *node) {
	d.mu.Lock()
	able := d.ways(n)
	if len(able) == 0 || n.route != nil || n.direct {
		d.mu.Unlock()
		return
	}
	d.opened++
	r := &route{d: d, node: n, via: able[0], id: d.o.Incarnation<<32 | d.opened, ours: true, stage: opening, patience: patience}
	n.route = r
	d.mu.Unlock()
	d.tell(r.via, &frame{kind: kindOpen, from: d.o.Self, to: n.id, id: r.id, incarnation: d.o.Incarnation, info: d.o.Info})
}

// move opens a detour by another way than that of one that is slow, if there is a way that is not known to be. If all
// are it stays.
func (d *Detours) move(r *route) {
	n := r.node
	d.mu.Lock()
	d.avoid(n, r.via)
	able := d.ways(n)
	is := n.route == r && len(able) > 0 && n.shun[able[0]] == 0
	d.mu.Unlock()
	if !is {
		return
	}
	d.finish(r, errSlow, false)
	d.open(n)
	// This comes behind the wish for the new one, by which the other end knows that there was a move. It is for the one in the middle,
	// which drops what waits, and for the other end if nobody leads the wish there.
	d.tell(r.via, &frame{kind: kindEnd, from: d.o.Self, to: n.id, id: r.id})
}

// asked takes the wish of another node for a detour to this one.
func (d *Detours) asked(n *node, via peer.NodeID, f *frame) {
	d.mu.Lock()
	old := n.route
	is := d.of(via).direct && (old == nil || old.stage != opening || n.id < d.o.Self) // of two that ask each other, the one with the smaller id
	is = is && (old == nil || old.ours || f.id >= old.id)                             // else it was given up for this one, and comes late
	if is && old != nil && old.stage != opening && old.via != via {                   // it has moved
		d.avoid(n, old.via)
	}
	d.mu.Unlock()
	if !is {
		return
	}
	if old != nil {
		d.finish(old, errLost, false)
	}
	r := &route{d: d, node: n, via: via, id: f.id, stage: asked, patience: patience, incarnation: f.incarnation, info: f.info}
	d.mu.Lock()
	taken := n.route == nil && slices.Contains(d.wanted, n.id)
	direct := n.direct
	if taken = taken && !(direct && n.fresh > 0); taken { // the other end will hear of a link that is new
		n.route = r
	}
	d.mu.Unlock()
	switch {
	case !taken:
	case direct:
		d.links.Break(n.id, errSilent) // Down goes on
	default:
		d.accept(r)
	}
}

// accept says that this end is there.
func (d *Detours) accept(r *route) {
	d.mu.Lock()
	is := r.node.route == r && r.stage == asked && !r.node.direct
	if is {
		r.stage = accepted
	}
	d.mu.Unlock()
	if is {
		d.tell(r.via, &frame{kind: kindAccept, from: d.o.Self, to: r.node.id, id: r.id, incarnation: d.o.Incarnation, info: d.o.Info})
	}
}

// begin has the rooms know that the node is up, if both ends are ready.
func (d *Detours) begin(r *route) {
	n := r.node
	d.mu.Lock()
	due := n.route == r && !n.direct && (r.ours && r.stage == opening || r.stage == accepted)
	d.mu.Unlock()
	if !due {
		return
	}
	n.gate.Lock()
	defer n.gate.Unlock()
	d.mu.Lock()
	if due = n.route == r && !n.direct && r.stage != live; due {
		r.stage = live
		n.fear = 0
		d.publish()
	}
	d.mu.Unlock()
	if !due {
		return
	}
	d.o.Logger.Warn("a node without a link is reached by way of another", "node", d.o.Called(n.id), "by", d.o.Called(r.via))
	d.trusted(n)
	d.o.Handler.Up(n.id, r.incarnation, r.info)
}

// finish ends a detour. tell has the other end know. Until the rooms have heard of it nothing can be sent to the node, also if
// there is a link again: it would be of the detour's life and come within the link's.
func (d *Detours) finish(r *route, why error, tell bool) {
	n := r.node
	n.gate.Lock()
	d.mu.Lock()
	is := n.route == r
	was := is && r.stage == live
	d.mu.Unlock()
	r.end()
	if was {
		d.o.Logger.Info("a detour is over", "node", d.o.Called(n.id), "by", d.o.Called(r.via), "reason", why)
		d.o.Handler.Down(n.id, why)
	}
	d.mu.Lock()
	if is {
		n.route, n.away, n.wait = nil, 0, patience
		if was {
			d.publish()
			n.fear = suspectAfter
		}
	}
	d.mu.Unlock()
	n.gate.Unlock()
	if is && tell {
		d.tell(r.via, &frame{kind: kindEnd, from: d.o.Self, to: n.id, id: r.id})
	}
}

// leave ends the detours by way of a node that is not heard any more (0: of any) or does not hear the other end.
func (d *Detours) leave(by peer.NodeID) {
	d.mu.Lock()
	var over []*route
	for _, id := range d.wanted {
		r := d.of(id).route
		if r == nil || by != 0 && r.via != by {
			continue
		}
		if c := d.of(r.via); !c.sound() || !slices.Contains(c.hears, id) && r.stage == live {
			over = append(over, r)
		}
	}
	d.mu.Unlock()
	for _, r := range over {
		d.finish(r, fmt.Errorf("%w: %s does not hear it", errLost, d.o.Called(r.via)), true)
	}
}
