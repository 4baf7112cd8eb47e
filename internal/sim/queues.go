package sim

import (
	"errors"
	"fmt"
	"slices"

	"holdfast/internal/queuehost"
	"holdfast/internal/replica"
)

// simQueue is a queue as a catalog has it.
type simQueue struct {
	def     queuehost.QueueDef
	home    uint64 // node of a classic queue; 0: a quorum queue
	members []replica.Member
	deleted bool

	crashes int     // of its home
	purge   *purge  // the last one
	change  *change // under way
	// Detaches that were begun, and that were answered: each may have given back a message that its consumer had not got yet.
	leaving, left int
}

// purge is one that was asked for.
type purge struct {
	open  bool
	until int64 // clock.Mono; of one that nobody knows of: it may happen up to then
}

// change is a change of members: of one that comes, or goes.
type change struct {
	member replica.Member
	add    bool
	repair bool // of a damaged member: another one takes its place
	joined bool // the catalog knows it, and the group
	asked  bool // an answer is awaited
	begun  int  // step
}

// hasMember reports whether a member of a queue is to be on a node.
func (q *simQueue) hasMember(n *node) bool {
	return slices.ContainsFunc(q.members, func(m replica.Member) bool { return m.Node == n.id })
}

var errDeleted = errors.New("deleted")

// live returns the queues that there are.
func (w *World) live() []*simQueue { return w.queues }

// declare makes a queue at a place: its nodes hear of it one by one.
func (w *World) declare(place int, classic bool) *simQueue {
	w.lastQueue++
	q := &simQueue{def: queuehost.QueueDef{ID: w.lastQueue, VHost: "/", Name: fmt.Sprintf("q%d", w.lastQueue), Durable: true}}
	if classic {
		q.home = uint64(1 + w.rng.IntN(len(w.nodes)))
	} else {
		// Later ones begin anywhere.
		first := 0
		if w.steps > 0 {
			first = w.rng.IntN(len(w.nodes))
		}
		for i := range min(w.o.Members, len(w.nodes)) {
			id := w.nodes[(first+i)%len(w.nodes)].id
			q.members = append(q.members, replica.Member{ID: id, Node: id})
		}
	}
	if place == len(w.queues) {
		w.queues = append(w.queues, q)
	} else {
		w.queues[place] = q
	}
	w.all = append(w.all, q)
	w.tellAll(func(n *node) { n.open(q) })
	return q
}

// tellAll has every node that is up hear news of the catalog, each in its own time.
func (w *World) tellAll(fn func(n *node)) {
	for _, n := range w.nodes {
		if n.up {
			n.news = append(n.news, func() { fn(n) })
		}
	}
}

// hear takes word of room on a lane, or the oldest news of the catalog. False: there is neither.
func (n *node) hear() bool {
	if len(n.room) > 0 {
		to := n.room[0]
		n.room = n.room[1:]
		n.reg.Writable(to)
		return true
	}
	if len(n.news) == 0 {
		return false
	}
	fn := n.news[0]
	n.news = n.news[1:]
	fn()
	return true
}

// open makes a queue reachable on a node, as the broker does.
func (n *node) open(q *simQueue) {
	if q.deleted || n.handles[q] != nil {
		return
	}
	var h *queuehost.Handle
	var err error
	switch {
	case q.home == n.id:
		h, err = n.reg.Create(q.def)
	case q.home != 0:
		h, err = n.reg.CreateFar(q.def, q.home)
	default:
		if i := slices.IndexFunc(q.members, func(m replica.Member) bool { return m.Node == n.id }); i >= 0 && q.members[i].ID != n.id {
			h, err = n.reg.CreateQuorum(q.def, []replica.Member{{ID: q.members[i].ID, Node: n.id, Learner: true}})
		} else {
			h, err = n.reg.CreateQuorum(q.def, q.members)
		}
		if err == nil && n.rep.Started() {
			n.reg.SetMembers(q.def.ID, q.members)
		}
	}
	if err != nil {
		n.w.failf("node %d, queue %d: %v", n.id, q.def.ID, err)
		return
	}
	n.handles[q] = h
}

// remove deletes the queue at a place; another one comes there.
func (w *World) remove(place int) {
	q := w.queues[place]
	w.trace("queue %d is deleted", q.def.ID)
	q.deleted = true
	w.tellAll(func(n *node) {
		delete(n.handles, q)
		n.reg.Drop(q.def.ID, errDeleted, nil)
	})
	for _, n := range w.nodes {
		for _, c := range slices.Clone(n.clients) {
			if c.q == q {
				n.retire(c)
			}
		}
	}
	w.declare(place, q.home != 0)
}

// clean frees what the log of a node that starts holds of queues that were deleted.
func (n *node) clean() {
	for _, o := range n.reg.Orphans() {
		i := slices.IndexFunc(n.w.all, func(q *simQueue) bool { return q.def.ID == o.ID })
		if i < 0 && o.ID != 0 || i >= 0 && !n.w.all[i].deleted && n.w.all[i].hasMember(n) {
			n.w.failf("node %d: group %d is nobody's: %s", n.id, o.ID, o.Reason)
			continue
		}
		if err := n.reg.Discard(o.ID); err != nil {
			n.w.failf("node %d: group %d: %v", n.id, o.ID, err)
		}
	}
}

// reshape begins a change of the members of some queue.
func (w *World) reshape() {
	q := w.queues[w.rng.IntN(len(w.queues))]
	if q.home != 0 || q.change != nil || w.harmed {
		return
	}
	least := 1
	if w.o.Frail != 0 {
		least = 3 // or the queue would end with a damaged member
	}
	var without []*node
	for _, n := range w.nodes {
		if !q.hasMember(n) {
			without = append(without, n)
		}
	}
	c := &change{begun: w.steps}
	switch {
	case len(without) > 0 && (len(q.members) < 3 || w.rng.IntN(2) == 0):
		c.add, c.member = true, w.newMember(without[w.rng.IntN(len(without))].id)
	case len(q.members) > least:
		c.member = q.members[w.rng.IntN(len(q.members))]
	default:
		return
	}
	q.change = c
	w.trace("queue %d: member %d on node %d: add %v", q.def.ID, c.member.ID, c.member.Node, c.add)
}

func (w *World) newMember(node uint64) replica.Member {
	w.lastMember++
	return replica.Member{ID: 100 + w.lastMember, Node: node}
}

// mend has damaged members replaced, as each node does with its own.
func (w *World) mend() {
	n := w.node(w.o.Frail)
	if n == nil || !n.up || n.paused > 0 || len(n.news) > 0 {
		return
	}
	damaged := n.reg.Damaged()
	if w.harmed = w.harmed || len(damaged) > 0; !w.harmed {
		return
	}
	w.harmed = len(damaged) > 0
	for _, q := range w.queues {
		switch i := slices.IndexFunc(q.members, func(m replica.Member) bool { return m.Node == n.id }); {
		case q.change != nil && !(q.change.joined && q.change.member.Node == n.id && slices.Contains(damaged, q.def.ID)):
			w.harmed = true
		case i >= 0 && slices.Contains(damaged, q.def.ID):
			q.change = &change{begun: w.steps, member: q.members[i], repair: true}
			w.trace("queue %d: the damaged member %d on node %d is replaced", q.def.ID, q.members[i].ID, n.id)
		}
	}
}

// goOn goes on with a change of members: the one who leads is asked, again and again.
func (q *simQueue) goOn(w *World) {
	c := q.change
	if c == nil || c.asked || q.deleted {
		return
	}
	kind := replica.Remove
	switch {
	case c.add && !c.joined:
		kind = replica.AddLearner
	case c.add:
		kind = replica.Promote
	}
	first := w.rng.IntN(len(w.nodes)) // who has gone may believe that it leads
	for i := range w.nodes {
		n := w.nodes[(first+i)%len(w.nodes)]
		h := n.handles[q]
		if !n.up || n.paused > 0 || h == nil || h.Leader() != n.id || h.Group() == nil {
			continue
		}
		if kind == replica.Remove && c.member.Node == n.id { // somebody else does it
			h.Group().TransferLeaderTo(0, func(err error) {
				if err != nil {
					w.trace("queue %d: handing over: %v", q.def.ID, err)
				}
			})
			return
		}
		c.asked = true
		n.asking = append(n.asking, c)
		h.Group().ChangeMembers(replica.MemberChange{Kind: kind, Member: c.member}, func(err error) {
			c.asked = false
			if q.change == c {
				q.changed(w, c, err)
			}
		})
		return
	}
}

// changed hears what has become of a step of a change.
func (q *simQueue) changed(w *World, c *change, err error) {
	switch {
	case errors.Is(err, replica.ErrLastVoter):
		q.change = nil // the others have no vote yet
		return
	case errors.Is(err, replica.ErrIsVoter) && c.add:
		c.joined = true
	case err != nil:
		return // asked again
	}
	switch {
	case c.add && !c.joined:
		c.joined = true
		q.members = append(slices.Clone(q.members), c.member)
	case c.add:
		if q.change = nil; c.repair {
			w.check.stats.Repaired++
		}
		return
	default:
		if q.change = nil; c.repair {
			q.change = &change{begun: w.steps, add: true, repair: true, member: w.newMember(c.member.Node)}
		}
		q.members = slices.DeleteFunc(slices.Clone(q.members), func(m replica.Member) bool { return m.ID == c.member.ID })
	}
	members := q.members
	w.trace("queue %d: members %v", q.def.ID, members)
	w.tellAll(func(n *node) {
		if !q.deleted && n.handles[q] != nil {
			n.reg.SetMembers(q.def.ID, members)
		}
	})
}
