package sim

import (
	"errors"
	"time"

	"holdfast/internal/replica"
)

// route is one lane between two nodes: replica's three, the queues' two, then those of the catalog's commands.
type route struct {
	from, to uint64
	lane     int
}

const (
	lanes      = 7
	laneFar    = 3
	laneBulk   = 4
	laneOrders = 5 // commands for the catalog
	laneNews   = 6 // and what becomes of them
)

// line is messages on their way. It takes no more when as many bytes as its bound are in it, and says so when it is half empty.
type line struct {
	messages [][]byte
	bytes    int
	refused  bool
}

// pair is the link between two nodes, in one direction.
type pair struct{ from, to uint64 }

// links are the links between the nodes. A link breaks at one end, and the other end notices: up to then it sends into the
// void, and gets what was on its way.
type links struct {
	lines map[route]*line
	bound [lanes]int // bytes; 0: none
	ends  map[pair]bool
	cut   map[pair]bool // links that do not come back by themselves
	stuck map[pair]int  // what is sent this way stays on its way: so many steps; then the link breaks, or it goes on
	// silent is since when one end hears nothing of the other.
	silent map[pair]int64
}

func newLinks() links {
	return links{lines: map[route]*line{}, ends: map[pair]bool{}, cut: map[pair]bool{}, stuck: map[pair]int{}, silent: map[pair]int64{}}
}

var errBroken = errors.New("broken")

// linkUp makes a new link. Where the old one still seems to stand, its end is noticed first.
func (w *World) linkUp(a, b *node) {
	w.endDown(a, b)
	w.endDown(b, a)
	for _, x := range [][2]*node{{a, b}, {b, a}} {
		for lane := range lanes {
			delete(w.lines, route{x[0].id, x[1].id, lane})
		}
		w.ends[pair{x[0].id, x[1].id}] = true
	}
	for _, x := range [][2]*node{{a, b}, {b, a}} {
		x[0].rep.PeerUp(x[1].id)
		x[0].reg.LinkUp(x[1].id, x[1].starts)
		x[0].order.forward.Presence(x[1].id, true)
		x[0].follow(x[0].health.Up(w.clk.Mono(), x[1].id, x[1].starts))
	}
}

// linkDown breaks the link between two nodes. It may be that only one of them knows.
func (w *World) linkDown(a, b *node) {
	if w.o.Classic == 0 && !w.calm && w.rng.IntN(2) == 0 {
		if w.rng.IntN(2) == 0 || !a.up {
			w.endDown(a, b)
		} else {
			w.endDown(b, a)
		}
		return
	}
	w.endDown(a, b)
	w.endDown(b, a)
}

// endDown ends a link at n's end. What is on its way to n is lost; what n has sent may still get to m, until that notices.
func (w *World) endDown(n, m *node) {
	if !w.ends[pair{n.id, m.id}] {
		return
	}
	in, out := pair{m.id, n.id}, pair{n.id, m.id}
	delete(w.ends, out)
	for lane := range lanes {
		delete(w.lines, route{m.id, n.id, lane})
	}
	delete(w.stuck, in)
	delete(w.silent, in)
	if n.up {
		n.rep.PeerDown(m.id)
		n.reg.LinkDown(m.id, errBroken)
		n.order.forward.Lost(m.id)
		n.follow(n.health.Down(w.clk.Mono(), m.id, errBroken, false))
	}
	if w.ends[in] {
		if w.silent[out] == 0 {
			w.silent[out] = w.clk.Mono()
		}
		w.check.linkDown(n, m)
		return
	}
	for lane := range lanes {
		delete(w.lines, route{n.id, m.id, lane})
	}
	delete(w.stuck, out)
	delete(w.silent, out)
}

// notice lets ends of broken links find out, and links that nothing keeps broken come back.
func (w *World) notice(now bool) {
	for _, a := range w.nodes {
		for _, b := range w.nodes {
			ab, ba := pair{a.id, b.id}, pair{b.id, a.id}
			switch {
			case a == b || !a.up || a.paused > 0 || w.ends[ab] == w.ends[ba] && (w.ends[ab] || w.cut[ab]):
			case !now && w.rng.IntN(8) > 0:
			case w.ends[ab] && !w.ends[ba] && w.stuck[ba] == 0:
				w.trace("node %d notices that its link to node %d is broken", a.id, b.id)
				w.endDown(a, b)
			case !w.ends[ab] && !w.ends[ba] && b.up && !w.cut[ab]:
				w.linkUp(a, b)
			}
		}
	}
}

// stands reports whether the link between two nodes stands, and is known to by both.
func (w *World) stands(a, b *node) bool { return w.ends[pair{a.id, b.id}] && w.ends[pair{b.id, a.id}] }

// Send implements replica.Transport.
func (n *node) Send(to uint64, lane replica.Lane, add func([]byte) []byte) bool {
	return n.send(to, int(lane), add)
}

// farLink is the queues' link.
type farLink struct{ n *node }

func (l farLink) Self() uint64 { return l.n.id }

func (l farLink) Send(to uint64, bulk bool, add func([]byte) []byte) bool {
	lane := laneFar
	if bulk {
		lane = laneBulk
	}
	return l.n.send(to, lane, add)
}

func (n *node) send(to uint64, lane int, add func([]byte) []byte) bool {
	w := n.w
	if w.node(to) == nil || !n.up || !w.ends[pair{n.id, to}] {
		return false
	}
	if !w.ends[pair{to, n.id}] { // it is lost
		add(nil)
		return true
	}
	r := route{n.id, to, lane}
	l := w.lines[r]
	if l == nil {
		l = &line{}
		w.lines[r] = l
	}
	if most := w.bound[lane]; most > 0 && l.bytes >= most {
		l.refused = true
		w.check.stats.Full++
		return false
	}
	msg := add(nil)
	l.messages = append(l.messages, msg)
	l.bytes += len(msg)
	return true
}

func (w *World) node(id uint64) *node {
	i := (id - 1) % lives
	if id == 0 || i >= uint64(len(w.nodes)) || w.nodes[i].id != id {
		return nil
	}
	return w.nodes[i]
}

// deliver hands over the next message of a lane. False: there is none.
func (w *World) deliver(r route) bool {
	l, to := w.lines[r], w.node(r.to)
	if l == nil || len(l.messages) == 0 || to == nil || !to.up || to.paused > 0 || w.stuck[pair{r.from, r.to}] > 0 || !w.ends[pair{r.to, r.from}] {
		return false
	}
	msg := l.messages[0]
	l.messages = l.messages[1:]
	l.bytes -= len(msg)
	if l.refused && l.bytes < w.bound[r.lane]/2 {
		l.refused = false
		if r.lane == laneFar || r.lane == laneBulk {
			from := w.node(r.from)
			from.room = append(from.room, r.to)
		}
	}
	switch {
	case r.lane >= laneOrders:
		to.order.forward.Receive(r.from, msg)
	case r.lane >= laneFar:
		to.reg.Receive(r.from, msg)
	default:
		to.rep.Receive(r.from, msg)
	}
	return true
}

// flow lets what one node sends to another get there again.
func (w *World) flow(a, b *node) {
	w.trace("what node %d sends gets to node %d again", a.id, b.id)
	delete(w.stuck, pair{a.id, b.id})
	if !w.stands(a, b) {
		return
	}
	delete(w.silent, pair{a.id, b.id})
	if b.up && a.up {
		b.rep.PeerUp(a.id)
		b.order.forward.Presence(a.id, true)
		b.follow(b.health.Trust(w.clk.Mono(), a.id))
	}
}

// wakes ends a pause: the others hear of the node again.
func (n *node) wakes() {
	for _, x := range n.w.nodes {
		p := pair{n.id, x.id}
		if n.w.silent[p] == 0 || n.w.stuck[p] > 0 || !n.w.stands(n, x) {
			continue
		}
		delete(n.w.silent, p)
		if n.up && x.up {
			x.rep.PeerUp(n.id)
			x.order.forward.Presence(n.id, true)
			x.follow(x.health.Trust(n.w.clk.Mono(), n.id))
		}
	}
}

func (w *World) heal(a, b *node) {
	w.trace("link %d-%d heals", a.id, b.id)
	delete(w.cut, pair{a.id, b.id})
	delete(w.cut, pair{b.id, a.id})
	if a.up && b.up {
		w.linkUp(a, b)
	}
}

// beatEvery is how often nodes say that they are there.
const beatEvery = 100 * time.Millisecond

// hears reports whether beats of a node get to another one.
func (w *World) hears(n, from *node) bool {
	return w.stands(n, from) && w.stuck[pair{from.id, n.id}] == 0 && from.paused == 0
}
