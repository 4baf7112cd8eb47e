package queuehost

import (
	"cmp"
	"fmt"
	"slices"
	"sync"

	"holdfast/internal/seglog"
)

// Link carries messages to other nodes. To each there are two paths, that of
// bodies (bulk) and that of what must get through when bodies are stuck. Messages
// of one path arrive in order, or the link breaks; LinkUp and LinkDown of a node
// take turns. Send is called by any goroutine and must not block or call back.
type Link interface {
	// Send appends one message: append is called once, at once, or not at all. False:
	// the link is not up, or the path is full; Registry.LinkUp, or Registry.Writable,
	// is called when there is room again.
	Send(node uint64, bulk bool, append func(dst []byte) []byte) bool
	// Self is this node's id, which is not 0.
	Self() uint64
}

// peerCredit is what one node may have in flight towards the queues of another
// before its publishes wait (Options.PeerCredit).
const peerCredit = 16 << 20

// neighbours is what a registry knows of other nodes.
type neighbours struct {
	mu        sync.RWMutex
	homes     map[uint64]*home
	guests    map[uint64]*guest
	fars      map[seglog.GroupID]*far
	watch     watch
	mailboxes map[uint64]*Handle // by the node that they lead to
	lists     memberLists
}

func (r *Registry) far(id seglog.GroupID) *far {
	r.near.mu.RLock()
	defer r.near.mu.RUnlock()
	return r.near.fars[id]
}

// home returns a node as one that serves queues to us.
func (r *Registry) home(node uint64) *home {
	return known(r, r.near.homes, node, func() *home {
		return &home{reg: r, node: node, why: "there is no link to it", fars: map[*far]struct{}{}}
	})
}

// guest returns a node as one that our queues serve.
func (r *Registry) guest(node uint64) *guest {
	return known(r, r.near.guests, node, func() *guest {
		return &guest{reg: r, node: node, sessions: map[seglog.GroupID]*session{}}
	})
}

// known returns what there is of a node in a map that near.mu guards, made now if there was nothing.
func known[T any](r *Registry, of map[uint64]*T, node uint64, create func() *T) *T {
	r.near.mu.RLock()
	x := of[node]
	r.near.mu.RUnlock()
	if x != nil {
		return x
	}
	r.near.mu.Lock()
	defer r.near.mu.Unlock()
	if x = of[node]; x == nil {
		x = create()
		of[node] = x
	}
	return x
}

// Receive takes a message of another node. It is called by the link's reader,
// one call at a time for each node and path, and never blocks. msg is the
// registry's for good: bodies are pieces of it.
func (r *Registry) Receive(from uint64, msg []byte) {
	c := newCut(msg)
	head, ok := c.head()
	switch {
	case !ok:
		r.o.Logger.Error("a message of another node makes no sense", "node", r.o.Name(from), "bytes", len(msg))
		r.home(from).restart("it sent what makes no sense")
		r.guest(from).reject()
	case head.kind.fromEntry():
		if !r.guest(from).receive(head, c) {
			r.o.Logger.Error("a message for a queue makes no sense", "node", r.o.Name(from), "queue", uint64(head.queue), "kind", int(head.kind))
			r.guest(from).reject()
		}
	default:
		if !r.home(from).receive(head, c) {
			r.o.Logger.Error("a message of a queue makes no sense", "node", r.o.Name(from), "queue", uint64(head.queue), "kind", int(head.kind))
			r.home(from).restart("it sent what makes no sense")
		}
	}
}

// LinkUp says that messages go to and come from a node. incarnation is the start of its process.
func (r *Registry) LinkUp(node uint64, incarnation uint64) {
	r.home(node).linkUp()
	r.guest(node).writable()
	r.newsOf(node, func(n *nodeHealth) { n.incarnation = max(n.incarnation, incarnation) })
}

// LinkDown says that the link to a node has broken, and that nothing sent on it
// is known to have arrived. When it returns, nothing comes of what was sent
// before: the sessions are over.
func (r *Registry) LinkDown(node uint64, why error) {
	text := "the link to it broke"
	if why != nil {
		text = why.Error()
	}
	r.guest(node).linkDown()
	r.home(node).linkDown(text)
}

// Writable says that the link to a node, which has refused a message, has room again.
func (r *Registry) Writable(node uint64) {
	r.home(node).writable()
	r.guest(node).writable()
}

// CreateFar makes a queue that runs on another node, home, reachable here.
// The handle is as good as any; what a link that breaks does to it says far.go.
func (r *Registry) CreateFar(def QueueDef, home uint64) (*Handle, error) {
	if r.o.Link == nil {
		return nil, fmt.Errorf("queuehost: queue %d runs on node %s, and there are no links to other nodes", def.ID, r.o.Name(home))
	}
	h := r.home(home)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.near.mu.Lock()
	defer r.near.mu.Unlock()
	if r.hosts[def.ID] != nil || r.near.fars[def.ID] != nil {
		return nil, fmt.Errorf("queuehost: group %d exists", def.ID)
	}
	return r.addFar(def, h), nil
}

// addFar makes a far. The mutex of near is held.
func (r *Registry) addFar(def QueueDef, h *home) *Handle {
	f := newFar(r, def, h)
	f.handle.group = r.o.Node.NewGroup(def.ID, f, false)
	r.near.fars[def.ID] = f
	h.enter(f)
	return &f.handle
}

// home is another node as the queues see it that are reachable here and run
// there. It is where credit goes round: what one node has in flight towards
// another.
//
// A publish is owed to the connection that made it from the moment it is sent
// until the home says that as many bytes were given back there. So what a stuck
// home holds of a connection stays bounded by the connection's credit, though
// the message is confirmed. Further, all of them together have a window: past
// it, publishes wait in the queues' inboxes, unless something else waits behind them.
type home struct {
	reg  *Registry
	node uint64

	mu       sync.Mutex
	up       bool
	why      string // why it is not up, or was not lately
	epoch    uint64 // lives of the link
	beginDue bool
	window   int64 // 0: not told yet
	sent     int64 // cost of the publishes of this life
	returned int64 // of that, what the home has given back
	paid     int64 // of that, what was given back here
	owed     fifo[debt]
	blocked  []*far            // wait for the link or the window
	waiting  map[*far]struct{} // the same
	fars     map[*far]struct{}
}

// debt is credit of neighbours under way.
type debt struct {
	credit *Credit // nil: nobody's
	cost   int64
}

// standing is a home as of a moment.
type standing struct {
	epoch uint64
	up    bool
	why   string
}

func (h *home) standing() standing {
	h.mu.Lock()
	defer h.mu.Unlock()
	return standing{h.epoch, h.up, h.why}
}

func (h *home) head(kind farKind, epoch uint64, queue seglog.GroupID) farHead {
	return farHead{kind: kind, life: life{h.reg.o.Incarnation, epoch}, queue: queue}
}

func (h *home) enter(f *far) {
	h.mu.Lock()
	h.fars[f] = struct{}{}
	h.mu.Unlock()
}

func (h *home) leave(f *far) {
	h.mu.Lock()
	delete(h.fars, f)
	h.mu.Unlock()
}

func (h *home) linkUp() {
	h.end("the link to it broke", true)
	h.begin()
}

func (h *home) linkDown(why string) { h.end(why, false) }

// restart ends all sessions as if the link had broken and were back at once.
func (h *home) restart(why string) {
	h.mu.Lock()
	up := h.up
	h.mu.Unlock()
	if up {
		h.end(why, true)
		h.begin()
	}
}

// end ends a life of the link; with up another one begins.
func (h *home) end(why string, up bool) {
	h.mu.Lock()
	if !h.up && !up {
		h.mu.Unlock()
		return
	}
	if h.up {
		h.why = why
	}
	h.up = up
	h.epoch++
	h.window, h.sent, h.returned, h.paid = 0, 0, 0, 0
	h.beginDue = up
	owed := h.owed
	h.owed, h.blocked, h.waiting = fifo[debt]{}, nil, nil
	fars := make([]*far, 0, len(h.fars))
	for f := range h.fars {
		fars = append(fars, f)
	}
	h.mu.Unlock()
	slices.SortFunc(fars, func(a, b *far) int { return cmp.Compare(a.def.ID, b.def.ID) })
	for ; owed.len() > 0; owed.pop() {
		owed.front().give()
	}
	for _, f := range fars {
		f.handle.group.Wake()
	}
}

func (d *debt) give() {
	if d.credit != nil {
		d.credit.give(d.cost)
	}
}

// begin tells the home that a life begins, so that it ends what is left of
// earlier ones and tells the window.
func (h *home) begin() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.beginDue {
		h.beginDue = !h.reg.send(h.node, false, h.head(farBegin, h.epoch, 0).append)
	}
}

// receive takes a message of the home. What is of another life is dropped.
func (h *home) receive(head farHead, c cut) bool {
	st := h.standing()
	if !st.up || head.life != (life{h.reg.o.Incarnation, st.epoch}) {
		return true
	}
	switch head.kind {
	case farRoom:
		given, window := c.Uint(), c.Uint()
		if !c.ended() || given > 1<<62 || window > 1<<62 {
			return false
		}
		h.giveBack(st.epoch, int64(given), int64(window))
		return true
	case farOver:
		h.restart("it has ended the session")
		return c.ended()
	case farOutcomes:
		given := c.Uint()
		if c.Bad() || given > 1<<62 {
			return false
		}
		h.giveBack(st.epoch, int64(given), 0)
	}
	if f := h.reg.far(head.queue); f != nil {
		f.come(heard{head.kind, h, st.epoch, head.try, c.Rest})
	}
	return true
}

// mayPublish reports whether the window has room.
func (h *home) mayPublish() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.sent-h.returned < h.window
}

// owe notes the cost of publishes that were sent in a life of the link.
func (h *home) owe(epoch uint64, ps []Publish) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range ps {
		d := debt{ps[i].Credit, ps[i].cost()}
		switch {
		case epoch != h.epoch:
			d.give()
			continue
		case h.owed.len() > 0 && h.owed.last().credit == d.credit:
			h.owed.last().cost += d.cost
		default:
			h.owed.push(d)
		}
		h.sent += d.cost
	}
	h.pay()
}

// giveBack notes what the home has given back since the life began, and how much
// may be out (0: as before).
func (h *home) giveBack(epoch uint64, returned, window int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if epoch != h.epoch {
		return
	}
	h.returned = max(h.returned, returned)
	if window > 0 {
		h.window = window
	}
	h.pay()
	if h.sent-h.returned < h.window {
		h.unblock()
	}
}

// pay gives back what is owed, oldest first. It may have been given back before it
// was noted. The mutex is held.
func (h *home) pay() {
	for h.owed.len() > 0 && h.paid < h.returned {
		d := h.owed.front()
		n := min(d.cost, h.returned-h.paid)
		h.paid += n
		d.cost -= n
		(&debt{d.credit, n}).give()
		if d.cost == 0 {
			h.owed.pop()
		}
	}
}

// block has f woken when the link or the window has room.
func (h *home) block(f *far) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, is := h.waiting[f]; is {
		return
	}
	if h.waiting == nil {
		h.waiting = map[*far]struct{}{}
	}
	h.waiting[f] = struct{}{}
	h.blocked = append(h.blocked, f)
}

// unblock wakes who waits. The mutex is held.
func (h *home) unblock() {
	for _, f := range h.blocked {
		f.handle.group.Wake()
	}
	h.blocked, h.waiting = nil, nil
}

func (h *home) writable() {
	h.begin()
	h.mu.Lock()
	h.unblock()
	h.mu.Unlock()
}
