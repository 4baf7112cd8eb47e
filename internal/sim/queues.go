package sim

import (
	"errors"
	"slices"
	"time"

	"holdfast/internal/broker"
	"holdfast/internal/catalog"
	"holdfast/internal/node/catgroup"
	"holdfast/internal/queuehost"
	"holdfast/internal/replica"
	"holdfast/internal/seglog"
	"holdfast/internal/wire"
)

// simQueue is a queue that the catalog has, or had: some node has applied its declaration.
type simQueue struct {
	def      queuehost.QueueDef
	home     uint64 // node of a classic queue; 0: a quorum queue
	unwanted bool   // its deletion is asked for
	ordered  bool   // by people
	deleted  bool   // some node has applied that

	crashes int     // of its home
	purge   *purge  // the last one
	change  *change // under way
	// Detaches that were begun, and that were answered: each may have given back a message that its consumer had not got yet.
	leaving, left int

	may       may
	fresh     bool      // it was declared with what arguments and policies said then
	active    *consumer // of a single active one: who got something last
	deaths    map[uint64]*death
	lastDeath uint64
	unread    bool                 // some of its letters could not be read where it was led: their order is not known
	delay     int64                // of its arguments, ms; -1: its messages do not wait, whatever they say
	keyed     map[uint64][]*record // by key, of a queue that looks for messages that come twice; nil: it does not
	keys      keySource            // what those keys are
	passed    [len(screens)]uint64 // the last key by way of each exchange
	flipped   int64                // clock.Mono: when people have paused it last, or had it go on
	seen      seen
	expires   time.Duration // after so long without use it goes; 0: it stays
	expired   bool          // it was about to
	used      int64         // clock.Mono: somebody has used it since
	quiet     bool          // all its letters have arrived, and no others are to come
	store     bool          // it is that of an exchange
}

// purge is one that was asked for.
type purge struct {
	open  bool
	until int64 // clock.Mono; of one that nobody knows of: it may happen up to then
}

// change is a change of members that people have ordered: of one that comes to a node, or goes from there.
type change struct {
	node   uint64
	add    bool
	repair bool // of a damaged member: another one takes its place
	asked  bool // an answer is awaited
	begun  int  // step
}

func (q *simQueue) id() catalog.QueueID { return catalog.QueueID(q.def.ID) }

// quorumArgs are the arguments of a quorum queue with so many members.
func quorumArgs(members int) wire.Table {
	return wire.NewTable(map[string]any{"x-queue-type": "quorum", "x-quorum-initial-group-size": members})
}

// queue returns the queue of a group, nil if there was none.
func (w *World) queue(id seglog.GroupID) *simQueue { return w.byID[id] }

// named returns the queue of a name, nil if there was none.
func (w *World) named(name string) *simQueue {
	for _, q := range w.all {
		if q.def.Name == name {
			return q
		}
	}
	return nil
}

// met takes note of a queue that the first node has heard of.
func (w *World) met(q *catalog.Queue, v *catalog.View) {
	s := &simQueue{def: broker.QueueDef(q), delay: -1}
	if q.Type != catalog.Quorum {
		s.home = q.Home
	}
	if s.fresh = v.Level() >= catalog.PolicyLevel; s.fresh {
		ttl, _ := q.Args.Get("x-message-ttl")
		s.may.note(v.Effective(q), true)
		s.may.ttlArgument, _ = ttl.Int()
		expires, _ := q.Args.Get("x-expires")
		ms, _ := expires.Int()
		s.expires, s.used = time.Duration(ms)*time.Millisecond, w.clk.Mono()
		if _, is := q.Args.Get("x-message-deduplication"); is {
			s.keyed, s.keys = map[uint64][]*record{}, keysOf(q.Args)
		}
		if s.keyed == nil && w.o.Carried && q.ID%2 == 0 { // it is bound to exchanges that do
			s.keyed, s.keys = map[uint64][]*record{}, screenKeys
		}
		if d, is := q.Args.Get("x-delivery-delay"); is {
			s.delay, _ = d.Int()
		}
	}
	if w.named(q.Name) != nil || !slices.ContainsFunc(w.orders.decls, func(x *decl) bool { return x.name == q.Name }) {
		w.failf("queue %s comes to be, and nobody has declared it, or it was there", q.Name)
	}
	w.queues, w.all = append(w.queues, s), append(w.all, s)
	w.byID[s.def.ID] = s
	if role := roleOf(q.Name); role > 0 && w.target[role-1] == nil {
		w.target[role-1] = s
	}
}

// isDeleted takes note of a queue that the first node has seen deleted.
func (w *World) isDeleted(q *catalog.Queue) {
	s := w.queue(seglog.GroupID(q.ID))
	if s == nil || !s.unwanted {
		w.failf("queue %s is deleted, and nobody has asked for it", q.Name)
		return
	}
	w.trace("queue %d is deleted", s.def.ID)
	s.deleted = true
	w.check.owesNothing(s)
	w.queues = slices.DeleteFunc(w.queues, func(x *simQueue) bool { return x == s })
	for _, n := range w.nodes {
		for _, c := range slices.Clone(n.clients) {
			if c.q == s {
				n.retire(c)
			}
		}
	}
}

// anyNode is some node that serves clients, nil if it does not just now.
func (w *World) anyNode() *node {
	n := w.nodes[w.rng.IntN(len(w.nodes))]
	if !n.serves() {
		return nil
	}
	return n
}

// serves reports whether a node serves clients.
func (n *node) serves() bool { return n.up && n.paused == 0 && n.order.entered }

// manage has people declare a queue, if there are too few, or delete one.
func (w *World) manage() {
	n := w.anyNode()
	if n == nil {
		return
	}
	wanted, classic := w.wanted(), 0
	for _, q := range w.queues {
		if !q.unwanted && !q.isTarget() && q.home != 0 {
			classic++
		}
	}
	for _, x := range w.orders.decls {
		if !x.told && roleOf(x.name) == 0 {
			wanted++ // perhaps
		}
	}
	if wanted < w.o.Queues+w.o.Classic {
		if n.view().Nodes().Len() < 3 {
			return
		}
		w.declare(n, classic < w.o.Classic)
		return
	}
	if len(w.queues) == 0 { // those that are wanted are perhaps
		return
	}
	q := w.queues[w.rng.IntN(len(w.queues))]
	def := n.view().QueueByID(q.id())
	h := n.handle(q)
	if q.isTarget() || def == nil || h == nil || q.home != 0 && !w.node(q.home).up {
		return
	}
	w.trace("the deletion of queue %d is ordered at node %d", q.def.ID, n.id)
	q.unwanted, q.ordered = true, true
	n.order.broker.Delete(def, h, false, false, func(_ uint64, err error) {
		w.trace("the deletion of queue %d: %v", q.def.ID, err)
		if err == nil && n.view().QueueByID(q.id()) != nil {
			w.failf("node %d says that queue %d is deleted, and has it", n.id, q.def.ID)
		}
	})
}

// wanted is how many queues there are that people want, but for those that letters go to.
func (w *World) wanted() (n int) {
	for _, q := range w.queues {
		if !q.unwanted && !q.isTarget() {
			n++
		}
	}
	return n
}

// handle is a node's handle of a queue, nil if it has not heard of it.
func (n *node) handle(q *simQueue) *queuehost.Handle { return n.order.broker.Handle(q.id()) }

// hear takes word of room on a lane, or does what nobody waits for. False: there is neither.
func (n *node) hear() bool {
	if len(n.room) > 0 {
		to := n.room[0]
		n.room = n.room[1:]
		n.reg.Writable(to)
		return true
	}
	o := &n.order
	if len(o.later) == 0 {
		return false
	}
	fn := o.later[0]
	o.later = o.later[1:]
	fn()
	return true
}

// membersOf are the members of a queue as some node knows them that has heard most.
func (w *World) membersOf(q *simQueue) []catalog.Member {
	var best *node
	for _, n := range w.nodes {
		if n.up && (best == nil || n.view().Generation() > best.view().Generation()) {
			best = n
		}
	}
	if best == nil {
		return nil
	}
	if def := best.view().QueueByID(q.id()); def != nil {
		return def.Members
	}
	return nil
}

func hasMember(members []catalog.Member, node uint64) bool {
	return slices.ContainsFunc(members, func(m catalog.Member) bool { return m.Node == node })
}

// reshape begins a change of the members of some queue.
func (w *World) reshape() {
	if len(w.queues) == 0 {
		return
	}
	q := w.queues[w.rng.IntN(len(w.queues))]
	if q.home != 0 || q.change != nil || w.harmed {
		return
	}
	least := 1
	if w.o.Frail != 0 {
		least = 3 // or the queue would end with a damaged member, or with a node that is given up
	}
	members := w.membersOf(q)
	var without []*node
	for _, n := range w.nodes {
		if !hasMember(members, n.id) {
			without = append(without, n)
		}
	}
	c := &change{begun: w.steps}
	switch {
	case len(without) > 0 && (len(members) < 3 || w.rng.IntN(2) == 0):
		c.add, c.node = true, without[w.rng.IntN(len(without))].id
	case len(members) > least:
		c.node = members[w.rng.IntN(len(members))].Node
	default:
		return
	}
	q.change = c
	w.trace("queue %d: the member on node %d: add %v", q.def.ID, c.node, c.add)
}

func (w *World) newMember(node uint64) replica.Member {
	w.lastMember++
	return replica.Member{ID: 100 + w.lastMember, Node: node}
}

// mend has damaged members replaced, as each node does with its own.
func (w *World) mend() {
	n := w.frail()
	if n == nil || !n.serves() || len(n.order.later) > 0 {
		return
	}
	damaged := n.reg.Damaged()
	if w.harmed = w.harmed || len(damaged) > 0; !w.harmed {
		return
	}
	w.harmed = len(damaged) > 0
	for _, q := range w.withStores() {
		has := hasMember(w.membersOf(q), n.id)
		switch c := q.change; {
		case c != nil && !(c.add && c.node == n.id && has && slices.Contains(damaged, q.def.ID)):
			w.harmed = true
		case has && slices.Contains(damaged, q.def.ID):
			q.change = &change{begun: w.steps, node: n.id, repair: true}
			w.trace("queue %d: the damaged member on node %d is replaced", q.def.ID, n.id)
		}
	}
}

// goOn goes on with a change of members: the one who leads is asked, again and again.
func (q *simQueue) goOn(w *World) {
	c := q.change
	if c == nil || c.asked || q.deleted {
		return
	}
	first := w.rng.IntN(len(w.nodes)) // who has gone may believe that it leads
	for i := range w.nodes {
		n := w.nodes[(first+i)%len(w.nodes)]
		if !n.serves() {
			continue
		}
		h := n.handle(q)
		if h == nil || h.Leader() != n.id || h.Group() == nil {
			continue
		}
		c.asked = true
		n.asking = append(n.asking, c)
		g := h.Group()
		g.AskRaftStatus(func(st replica.RaftStatus) {
			if c.asked = false; q.change == c && st.Serving {
				q.step(w, n, g, c, &st)
			}
		})
		return
	}
}

// step does the next thing for a change at the node that leads.
func (q *simQueue) step(w *World, n *node, g *replica.Group, c *change, st *replica.RaftStatus) {
	v := n.view()
	def := v.QueueByID(q.id())
	if def == nil {
		return
	}
	if c.add && v.Node(c.node) == nil {
		q.change = nil // it has left
		return
	}
	x := catgroup.MemberOn(def, st, c.node)
	order, come := replica.MemberChange{Kind: replica.AddLearner}, uint64(0)
	switch {
	case c.add && x == nil:
		order.Member = w.newMember(c.node)
	case c.add:
		order.Kind, come = 0, x.ID
	case x != nil && x.ID == st.Self: // somebody else does it
		g.TransferLeaderTo(0, func(err error) {
			if err != nil {
				w.trace("queue %d: handing over: %v", q.def.ID, err)
			}
		})
		return
	case x != nil:
		order = replica.MemberChange{Kind: replica.Remove, Member: x.Member}
	default:
		order.Kind = 0
	}
	c.asked = true
	if order.Kind != 0 {
		g.ChangeMembers(order, func(err error) {
			w.trace("queue %d: change %d of member %d on node %d: %v", q.def.ID, order.Kind, order.Member.ID, c.node, err)
			if c.asked = false; errors.Is(err, replica.ErrLastVoter) && q.change == c {
				q.change = nil // the others have no vote yet
			}
		})
		return
	}
	if catgroup.Follow(v, q.id(), st, come) != nil {
		n.record(q.id(), g, come, func() { c.asked = false })
		return
	}
	c.asked = false
	switch {
	case c.add && x.Learner: // it gets its vote when it has caught up
	case c.add:
		if q.change = nil; c.repair {
			w.check.stats.Repaired++
		}
	default:
		if q.change = nil; c.repair {
			q.change = &change{begun: w.steps, add: true, repair: true, node: c.node}
		}
	}
}
