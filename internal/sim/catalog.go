package sim

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"holdfast/internal/broker"
	"holdfast/internal/catalog"
	"holdfast/internal/cluster"
	"holdfast/internal/config"
	"holdfast/internal/node/catgroup"
	"holdfast/internal/queuehost"
	"holdfast/internal/replica"
	"holdfast/internal/seglog"
	"holdfast/internal/wire"
)

// order is a node's part in the catalog: its own copy, its member of the catalog's group, the way of its commands to whoever
// leads, and the broker, which has queues follow what the copy says.
type order struct {
	machine  *simCatalog
	commands *replica.SimpleGroup
	forward  *catgroup.Forwarder
	broker   *broker.Broker

	inc     catalog.Incarnation
	entered bool  // the catalog knows of this start: clients are served
	failed  error // why the catalog here is of no use

	busy    bool                           // duties are carried out
	gone    map[uint64]catalog.Incarnation // starts that were reported to be over
	tending map[seglog.GroupID]bool        // queues that are led here and looked after just now
	later   []func()                       // what nobody waits for
}

// simCatalog is a node's copy of the catalog; what it applies is compared with what others have applied.
type simCatalog struct {
	*catgroup.Machine
	n     *node
	index uint64 // of the entry applied last
	place uint64 // of the command in it: they rise
}

// Apply implements replica.SimpleMachine.
func (c *simCatalog) Apply(index uint64, now int64, cmd []byte) any {
	if c.place++; c.index != index {
		c.index, c.place = index, index<<16
	}
	r := c.Machine.Apply(index, now, cmd)
	c.n.w.orders.compare(c)
	return r
}

// settings are those of every node.
var settings = config.Default()

// openCatalog makes the rooms of a node that are about the catalog. It comes before the log is replayed.
func (n *node) openCatalog(quiet *slog.Logger) {
	w := n.w
	o := &n.order
	*o = order{gone: map[uint64]catalog.Incarnation{}, tending: map[seglog.GroupID]bool{}}
	o.forward = catgroup.NewForwarder(catgroup.Options{
		Self: n.id, Session: n.starts, Wait: settings.DeclareTimeout, Now: n.clk.Mono,
		Propose: func(cmd []byte, done func(any, error)) { o.commands.Propose(cmd, true, done) },
		Send: func(to uint64, control bool, add func([]byte) []byte) bool {
			if control {
				return n.send(to, laneNews, add)
			}
			return n.send(to, laneOrders, add)
		},
		Stale: func() {}, // it asks before it routes
	})
	o.machine = &simCatalog{n: n, Machine: &catgroup.Machine{Machine: catalog.New(), Self: n.id, Most: catalog.KnownLevels().Most, Applied: n.carriedOut, Restored: n.restored}}
	o.machine.Raising = func(level uint16) { n.raised = max(n.raised, level) }
	if n.founder {
		o.commands = n.rep.NewSimpleRaftGroup(catgroup.Group, o.machine, w.founders())
	} else {
		o.commands = n.rep.JoinSimpleRaftGroup(catgroup.Group, o.machine, n.id)
	}
	o.commands.OnFailed(func(err error) { o.failed = err })
	o.commands.OnRole(func(_, leader uint64, _ bool) { o.forward.Lead(leader) })
	o.broker = broker.New(broker.Options{
		Catalog: o.machine.Machine.Machine, Commands: o.forward, Queues: n.reg, Settings: settings, Clock: liveClock{n.clk, n, n.starts}, Logger: quiet,
		Self: n.id, Node: n.id, Others: others{n}, Go: n.soon,
		NewReader: func() *broker.Reader { return queuehost.NewReader(n.disk.Log.NewReader()) },
		Barrier:   func(done func(any, error)) { n.barrier(func(err error) { done(nil, err) }) },
	})
	n.reg.SetOwner(owner{o.broker, n})
}

// view is what the catalog of a node says.
func (n *node) view() *catalog.View { return n.order.machine.View() }

// soon has something done that nobody waits for.
func (n *node) soon(fn func()) { n.order.later = append(n.order.later, fn) }

// others tells how nodes stand, as one sees it.
type others struct{ n *node }

// Name implements broker.Nodes.
func (o others) Name(node uint64) string { return fmt.Sprint(node) }

// Up implements broker.Nodes.
func (o others) Up(node uint64) bool { return o.n.isUp(node) }

func (n *node) isUp(node uint64) bool {
	is, _ := n.health.Condition(node)
	return node == n.id || is == cluster.Up
}

// founders are the members that the catalog's group begins with.
func (w *World) founders() (list []replica.Member) {
	for i := range w.o.Nodes {
		id := uint64(i + 1)
		list = append(list, replica.Member{ID: id, Node: id, Learner: i >= founderVotes})
	}
	return list
}

// founderVotes is how many founders vote. Others get a vote when they have caught up, if there should be more.
const founderVotes = 3

// begin makes what runs from the start on, as far as the catalog knows that has been replayed.
func (n *node) begin() {
	has := func(id seglog.GroupID) bool { return n.rep.Group(id) != nil }
	for q := range n.view().AllQueues().All() {
		if !catgroup.Begins(q, n.id, has, n.disk.Quarantined()) {
			continue
		}
		if err := n.order.broker.Open(q); err != nil {
			n.w.failf("node %d, queue %d: %v", n.id, q.ID, err)
		}
	}
	n.reg.Expect()
}

// ask has the catalog carry out a command, or nothing (nil), as often as it takes. then gets the result, nil for nothing.
func (n *node) ask(cmd []byte, then func(*catalog.Result)) {
	n.order.forward.Put(cmd, func(result any, err error) {
		n.soon(func() {
			r, _ := result.(*catalog.Result)
			switch {
			case err != nil:
				n.ask(cmd, then)
			case r != nil && r.Err != nil:
				n.w.failf("node %d: the catalog refuses a command of the start: %v", n.id, r.Err)
			default:
				then(r)
			}
		})
	}, int64(5*time.Second))
}

// enter makes the start of a node known to the catalog, and fills that if it is new. Then clients are served.
func (n *node) enter() {
	n.ask(nil, func(*catalog.Result) {
		switch v := n.view(); {
		case !v.Bootstrapped():
			n.addFounders(1)
		case v.Node(n.id) == nil:
			n.w.failf("node %d has been taken out of the cluster", n.id)
		default:
			n.starting()
		}
	})
}

func (n *node) addFounders(id uint64) {
	if id > uint64(n.w.o.Nodes) {
		n.starting()
		return
	}
	name := fmt.Sprint("node ", id)
	n.ask(catalog.AddNode(catalog.Node{ID: id, Name: name, Addr: name, Voter: id <= founderVotes}), func(*catalog.Result) { n.addFounders(id + 1) })
}

func (n *node) starting() {
	n.ask(catalog.NewIncarnation(n.id), func(r *catalog.Result) {
		n.order.inc = r.Incarnation
		n.knows(func() {
			if n.view().Bootstrapped() {
				n.started()
				return
			}
			n.ask(catalog.Bootstrap(catalog.Defaults{VHost: "/", User: catalog.User{Name: "guest"}}), func(*catalog.Result) { n.started() })
		})
	})
}

func (n *node) started() {
	o := &n.order
	o.broker.Begin(o.inc)
	o.broker.Sync()
	n.reg.CaughtUp()
	o.entered = true
	n.w.trace("node %d is in", n.id)
	for _, x := range n.reg.Orphans() {
		if whose := catgroup.Belongs(n.view(), x.ID, n.id, false); whose != catgroup.Deleted && x.ID != 0 {
			n.w.failf("node %d: group %d was not taken up (%d): %s", n.id, x.ID, whose, x.Reason)
		} else if err := n.reg.Discard(x.ID); err != nil {
			n.w.failf("node %d: group %d: %v", n.id, x.ID, err)
		}
	}
	n.retarget()
	if n.grave.again {
		n.settleIn()
	}
}

// carriedOut follows what the catalog's group has applied.
func (n *node) carriedOut(origin, session, seq uint64, r *catalog.Result) {
	o := &n.order
	n.w.orders.decided(o.machine, origin, session, seq, r)
	if !n.rep.Started() {
		return
	}
	if r != nil && r.Err == nil {
		o.broker.Changed(r, o.forward.Awaits(origin, session, seq))
		if r.Node != nil || r.Incarnation != 0 {
			n.soon(n.retarget)
		}
	}
	o.forward.Applied(origin, session, seq, r)
}

// restored follows a catalog that came whole.
func (n *node) restored() {
	if !n.rep.Started() {
		return
	}
	n.w.check.stats.Restored++
	n.w.trace("node %d gets the catalog whole", n.id)
	n.order.forward.Restored()
	n.soon(n.retarget)
	n.soon(n.order.broker.Sync)
}

// known are the other nodes that the catalog has.
func (n *node) known() (list []uint64) {
	for m := range n.view().Nodes().All() {
		if m.ID != n.id {
			list = append(list, m.ID)
		}
	}
	return list
}

// retarget watches the nodes there are now.
func (n *node) retarget() {
	v := n.view()
	if !v.Bootstrapped() || v.Node(n.id) == nil {
		return
	}
	list := n.known()
	for _, id := range n.watched {
		if v.Node(id) == nil {
			n.reg.Removed(id)
		}
	}
	was := n.watched
	n.watched = list
	n.health.Watch(n.w.clk.Mono(), list)
	for _, m := range n.w.nodes { // a link to one that nobody watched yet is made when it is known
		if n.w.ends[pair{n.id, m.id}] && m.up && slices.Contains(list, m.id) && !slices.Contains(was, m.id) {
			n.follow(n.health.Up(n.w.clk.Mono(), m.id, m.starts))
		}
	}
}

// barrier answers when a node has applied all that was committed anywhere before, and says so if it has not.
func (n *node) barrier(done func(error)) {
	w := n.w
	most := w.orders.most
	n.order.commands.Group().ReadIndex(time.Second, func(index uint64, err error) {
		if err == nil && index < most>>16 {
			w.failf("node %d: a read barrier was answered at entry %d of the catalog; another node had applied %d before it was asked for", n.id, index, most>>16)
		}
		done(err)
	})
}

// duties are what the catalog's leader does for the cluster.
func (n *node) duties() {
	o := &n.order
	if o.busy || o.forward.Leader() != n.id || !n.view().Bootstrapped() {
		return
	}
	o.commands.Group().AskRaftStatus(func(st replica.RaftStatus) {
		if st.Serving {
			n.soon(func() { n.carryOut(st) })
		}
	})
}

func (n *node) carryOut(st replica.RaftStatus) {
	o := &n.order
	if o.busy {
		return
	}
	v := n.view()
	for m := range v.Nodes().All() {
		if is, _ := n.health.Condition(m.ID); is != cluster.Gone || m.ID == n.id || m.Incarnation == 0 || o.gone[m.ID] == m.Incarnation {
			continue
		}
		o.gone[m.ID] = m.Incarnation
		n.command(catalog.NodeGone(m.ID, m.Incarnation), func() { delete(o.gone, m.ID) })
	}
	n.raise()
	change, why := catgroup.NextChange(v, st, n.id, n.isUp)
	if change == nil {
		for _, cmd := range catgroup.Votes(v, st) {
			n.command(cmd, func() {})
		}
		return
	}
	o.busy = true
	o.commands.Group().ChangeMembers(*change, func(err error) {
		n.w.trace("the catalog's group, node %d: %s: node %d (%v)", n.id, why, change.Member.Node, err)
		o.busy = false
	})
}

func (n *node) command(cmd []byte, failed func()) {
	n.order.forward.Propose(cmd, true, func(result any, err error) {
		if r, is := result.(*catalog.Result); is && r.Err == nil {
			n.order.broker.Changed(r, false)
		} else {
			failed()
		}
	})
}

// tend looks after the members of queues that are led here.
func (n *node) tend() {
	o := &n.order
	if !o.entered {
		return
	}
	for q := range n.view().QueuesOn(n.id).All() {
		id := seglog.GroupID(q.ID)
		h := n.reg.Get(id)
		if q.Type != catalog.Quorum || o.tending[id] || h == nil || h.Leader() != n.id || h.Group() == nil {
			continue
		}
		o.tending[id] = true
		h.Group().AskRaftStatus(func(st replica.RaftStatus) { n.lookAt(q.ID, h, &st) })
	}
}

func (n *node) lookAt(id catalog.QueueID, h *queuehost.Handle, st *replica.RaftStatus) {
	o := &n.order
	delete(o.tending, seglog.GroupID(id))
	v := n.view()
	q, g := v.QueueByID(id), h.Group()
	if q == nil || g == nil || !st.Serving {
		return
	}
	if change, why := catgroup.NextOf(v, q, st); change != nil {
		o.tending[seglog.GroupID(id)] = true
		g.ChangeMembers(*change, func(err error) {
			n.w.trace("queue %d: %s: node %d (%v)", id, why, change.Member.Node, err)
			delete(o.tending, seglog.GroupID(id))
		})
	} else if catgroup.Follow(v, id, st, 0) != nil {
		o.tending[seglog.GroupID(id)] = true
		n.record(id, g, 0, func() { delete(o.tending, seglog.GroupID(id)) })
	}
}

// record has the catalog follow the members of a group that is led here, if that is sure.
func (n *node) record(id catalog.QueueID, g *replica.Group, come uint64, done func()) {
	g.ReadIndex(time.Second, func(_ uint64, err error) {
		if err != nil {
			n.soon(done)
			return
		}
		g.AskRaftStatus(func(st replica.RaftStatus) {
			n.soon(func() {
				if cmd := catgroup.Follow(n.view(), id, &st, come); cmd != nil && st.Serving {
					n.order.forward.Propose(cmd, true, func(any, error) { done() })
				} else {
					done()
				}
			})
		})
	})
}

// orders are what was asked of the catalog, and what has become of it.
type orders struct {
	w       *World
	most    uint64               // place of the command that was applied last anywhere
	applied map[[3]uint64]uint64 // the place of a command, by node, start and number
	states  map[uint64]uint64    // sums of the catalog's states by place
	decls   []*decl
}

// decl is a declare of a queue. Every one has a name of its own.
type decl struct {
	name string
	n    *node
	told bool
	ok   bool // it was accepted
	no   bool // it was refused; else nobody knows
}

func newOrders(w *World) orders {
	return orders{w: w, applied: map[[3]uint64]uint64{}, states: map[uint64]uint64{}}
}

// compare compares a node's copy with that of others at the same command.
func (o *orders) compare(c *simCatalog) {
	w := o.w
	w.scratch = c.AppendSnapshot(w.scratch[:0])
	s := sum(w.scratch)
	first, known := o.states[c.place]
	switch {
	case !known:
		o.states[c.place] = s
	case first != s:
		w.failf("node %d: at entry %d its catalog is another than the one seen first", c.n.id, c.index)
	default:
		w.check.stats.compared++
	}
}

// decided takes note of a command that a node has applied; the first one tells the people.
func (o *orders) decided(c *simCatalog, origin, session, seq uint64, r *catalog.Result) {
	w := o.w
	if r != nil {
		key := [3]uint64{origin, session, seq}
		if was, is := o.applied[key]; is && was != c.place {
			w.failf("node %d applies a command of node %d at entry %d of the catalog, and it was applied at entry %d", c.n.id, origin, c.index, was>>16)
		}
		o.applied[key] = c.place
	}
	if c.place <= o.most {
		return
	}
	o.most = c.place
	if r == nil || r.Err != nil {
		return
	}
	w.check.stats.Commands++
	if r.Created && r.Queue != nil {
		w.met(r.Queue, c.View())
	}
	for _, q := range r.Stores {
		w.metStore(q)
	}
	w.noteAll(c.View())
	for _, q := range r.Removed.Queues {
		w.isDeleted(q)
	}
}

// declare has people declare a queue at a node.
func (w *World) declare(n *node, classic bool) {
	o := &w.orders
	name := fmt.Sprintf("q%d", len(o.decls)+1)
	if w.o.Settings && n.hasLetters() && w.rng.IntN(3) > 0 {
		name += "d"
	}
	w.declareAs(n, name, classic, 0)
}

// declareAs has people declare a queue of some name, which is to be a target of letters, or is not (0).
func (w *World) declareAs(n *node, name string, classic bool, role int) {
	o := &w.orders
	d := catalog.QueueDecl{VHost: "/", Name: name, Durable: true, User: "guest", Conn: catalog.MakeConnID(n.order.inc, 1)}
	if !classic {
		d.Args = quorumArgs(w.o.Members)
	}
	if w.o.Settings && n.view().Level() >= catalog.PolicyLevel {
		args := map[string]any{}
		if role > 0 {
			args = w.targetArguments(role, classic)
		} else {
			args = w.arguments(classic)
		}
		d.Args = wire.NewTable(args)
		w.trace("queue %s: %v", name, d.Args.Map())
	}
	x := &decl{name: name, n: n}
	o.decls = append(o.decls, x)
	w.trace("queue %s is declared at node %d", name, n.id)
	n.order.broker.Declare(d, func(q *catalog.Queue, h *queuehost.Handle, err error) {
		if x.told {
			w.failf("node %d: the declare of %s is answered twice", n.id, name)
		}
		x.told = true
		if err != nil {
			w.trace("queue %s: %v", name, err)
			if x.no = !errors.Is(err, broker.ErrOverdue); x.no && w.check.stats.Buried == 0 && (w.frail() == nil || w.frail().grave.why == "") { // or it was to live on a node that has left
				w.failf("node %d: the declare of %s is answered with: %v", n.id, name, err)
			}
			return
		}
		x.ok = true
		w.trace("queue %s is there, as %d", name, q.ID)
		o.everywhere(n, q)
	})
}

// everywhere checks that a queue whose declare was answered is known to all that the answer has waited for.
func (o *orders) everywhere(n *node, q *catalog.Queue) {
	if s := o.w.queue(seglog.GroupID(q.ID)); s == nil || s.unwanted {
		if s == nil {
			o.w.failf("node %d says that queue %d is declared, and nobody has it", n.id, q.ID)
		}
		return
	}
	for _, m := range o.w.nodes {
		if m != n && (!m.up || !m.order.entered || !n.order.forward.Waits(m.id)) {
			continue
		}
		if m.view().QueueByID(q.ID) == nil {
			o.w.failf("node %d says that queue %d is declared, and node %d does not know it", n.id, q.ID, m.id)
		}
	}
}

// lost takes note that a node has crashed: nobody hears what becomes of what was asked there.
func (o *orders) lost(n *node) {
	for _, x := range o.decls {
		if x.n == n && !x.told {
			x.told = true
		}
	}
}

// end checks, when all is at rest, that all nodes have the same catalog, and everything in it that there should be.
func (o *orders) end() {
	w := o.w
	var first []byte
	var index uint64
	for i, n := range w.nodes {
		var applied uint64
		n.order.commands.Group().AskRaftStatus(func(st replica.RaftStatus) { applied = st.Applied })
		w.settle()
		state := n.order.machine.AppendSnapshot(nil)
		if i == 0 {
			first, index = state, applied
		} else if !slices.Equal(first, state) || applied != index || index == 0 {
			w.failf("node %d has applied entry %d of the catalog, node %d entry %d; equal: %v", n.id, applied, w.nodes[0].id, index, slices.Equal(first, state))
			return
		}
		if left := n.order.forward.Waiting(); left > 0 {
			w.failf("node %d: %d commands for the catalog have no answer", n.id, left)
		}
	}
	v := w.nodes[0].view()
	for _, x := range o.decls {
		name, q := x.name, v.Queue("/", x.name)
		switch s := w.named(name); {
		case !x.told:
			w.failf("the declare of %s at node %d has no answer", name, x.n.id)
		case x.ok && q == nil && (s == nil || !s.unwanted):
			w.failf("queue %s was declared, and is lost", name)
		case q != nil && (s == nil || s.deleted || x.no):
			w.failf("queue %s is there, and was never declared, or deleted", name)
		}
	}
	o.votes(v)
}

// votes checks that as many nodes vote as should, and that the catalog knows them.
func (o *orders) votes(v *catalog.View) {
	w := o.w
	led := false
	for _, n := range w.nodes {
		n.order.commands.Group().AskRaftStatus(func(st replica.RaftStatus) {
			if !st.Serving {
				return
			}
			led = true
			voters := 0
			for _, m := range st.Members {
				if !m.Learner {
					voters++
				}
				if x := v.Node(m.Node); x == nil || x.Voter == m.Learner {
					w.failf("node %d votes on the catalog: %v, which says another thing", m.Node, !m.Learner)
				}
			}
			if want := len(w.nodes) - 1 + len(w.nodes)%2; voters != want || len(st.Members) != len(w.nodes) {
				w.failf("%d of %d nodes vote on the catalog, %d should", voters, len(st.Members), want)
			}
		})
	}
	if w.settle(); !led {
		w.failf("nobody leads the catalog's group at the end")
	}
}
