package queuehost

import (
	"iter"
	"slices"
	"sync"
	"sync/atomic"

	"holdfast/internal/planted"
	"holdfast/internal/queue"
	"holdfast/internal/replica"
	"holdfast/internal/seglog"
)

// Member is one member of a quorum queue: its number and its node.
type Member = replica.Member

// lead is what the host of a quorum queue keeps besides. A host that has one runs on
// a member of the queue's group: it implements replica.RaftHost. Only while this
// member leads and serves does it pack, deliver and answer; else it applies what
// others have packed. Everybody reaches it through sessions of entries (resume.go,
// serve.go), those of this node through the loop. Fields without another word belong
// to the worker.
type lead struct {
	host     *host
	term     uint64
	sessions map[uint64]*leadSession // by node; while serving
	named    uint64                  // sessions named in the entry being packed
	looked   int                     // of the urgent ops: they can wait
	look     atomic.Bool             // what is known of nodes has changed, or how long the queue bears with them
	release  atomic.Bool             // what is held back is to be packed
	serving  bool
	listed   bool // in Registry.holders
	// Guarded by the registry's mutex: nobody in the group needs it any more; the catalog has no such member.
	removed, unwanted bool
	hit               bool   // its log was found damaged at the start: it is a member no more, and waits to be dropped
	open              bool   // serving, and everything is in place for it; guarded by mu
	hitID             uint64 // which member it was when it was hit, as the catalog had it

	mu      sync.Mutex
	leader  uint64     // node; 0: nobody is known to lead
	waiting []*session // to be resumed as soon as this member serves
}

// leadSession is a node's session with a queue that is led here.
type leadSession struct {
	id          queue.SessionID
	node        uint64
	incarnation uint64
	suspect     bool
	guest       *session // whom its publishes and settlements come from; nil: it has not resumed it
}

// sessionsAtOnce is how many sessions one entry can open: their names are
// made of its index.
const sessionsAtOnce = 64

// leads reports whether this member leads and serves.
func (l *lead) leads() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
}

// leaderNode is the node that is thought to lead, or 0.
func (l *lead) leaderNode() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.leader
}

// Role implements replica.RaftHost.
func (h *host) Role(term, leader uint64, serving bool) {
	if h.m == nil {
		return // it was given up in this very turn
	}
	l := h.lead
	if l.serving && (!serving || term != l.term) {
		h.stopLeading(leader)
	}
	l.term = term
	l.mu.Lock()
	was := l.leader
	l.leader = leader
	var waiting []*session
	if leader != h.reg.self() {
		waiting, l.waiting = l.waiting, nil
	}
	l.mu.Unlock()
	for _, s := range waiting {
		s.lost(leader)
	}
	if serving && !l.serving {
		h.startLeading()
	}
	if leader != was {
		if leader == 0 {
			h.reg.vacant.begin(h.def.ID, h.reg.o.Clock.Mono())
		} else {
			h.reg.vacant.end(h.def.ID)
		}
		h.reg.leads(h.def.ID, leader)
	}
}

// leads tells those here who want to know who leads a queue.
func (r *Registry) leads(id seglog.GroupID, leader uint64) {
	if f := r.far(id); f != nil && leader != 0 {
		f.entry.told(leader)
	}
	if r.o.Leader != nil {
		r.o.Leader(id, leader)
	}
}

// startLeading takes over: the machine says which sessions and consumers there are,
// their entries will come and resume them.
func (h *host) startLeading() {
	l := h.lead
	l.serving = true
	l.sessions = map[uint64]*leadSession{}
	h.consumers = map[queue.ConsumerID]*consumer{}
	h.m.Sessions(func(si queue.SessionInfo) {
		l.sessions[si.Node] = &leadSession{id: si.ID, node: si.Node, incarnation: si.Incarnation, suspect: si.Suspect}
		h.reg.meet(si.Node)
		h.m.ConsumersOf(si.ID, func(c queue.ConsumerRef) {
			h.consumers[c.ID] = &consumer{
				id: c.ID, getter: c.Getter, attached: true, ended: c.Cancelled, session: si.ID,
				timeout: min(int64(c.Timeout), mostTimeout),
			}
		})
	})
	if !planted.Is(planted.IDsForgotten) {
		h.handle.ids.Store(uint64(h.m.LastConsumer()))
	}
	h.uploads = 0
	h.purge(h.reg.self())
	if h.unset, h.used = true, 0; planted.Is(planted.SettingsForgotten) && h.m.Applied() > 0 {
		h.unset = false
		h.alert.And(^uint32(alertSettings))
	}
	h.limitAll()
	h.alert.Or(alertDue)
	h.reweigh()
	l.look.Store(true)
	if !h.unknown() { // what publishes are to wait for only the catalog knows
		h.openUp()
	}
	if !planted.Is(planted.LettersUntold) {
		h.deadAgain()
	}
	h.group.Wake()
}

// unknown reports whether the catalog here has not come to know the queue yet.
func (h *host) unknown() bool { return h.expected && h.named.Load() == nil }

// openUp has a leader take what comes in.
func (h *host) openUp() {
	l := h.lead
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = true
	for _, s := range l.waiting {
		h.handle.put(op{kind: opResume, call: s.ref})
	}
	l.waiting = nil
}

// stopLeading ends what only a leader does. The sessions go on with the next one.
func (h *host) stopLeading(leader uint64) {
	l := h.lead
	l.serving = false
	l.mu.Lock()
	l.open = false
	l.mu.Unlock()
	for _, node := range sortedKeys(l.sessions) {
		if s := l.sessions[node].guest; s != nil {
			s.lost(leader)
		}
	}
	l.sessions, h.consumers, h.sealed = nil, nil, false
	h.endWeighing()
	if p := h.pack; p != nil {
		for _, publishes := range p.held {
			settleAll(publishes, Unknown)
		}
		p.held = p.held[:0]
	}
	h.purge(leader)
}

// resign is the end of this member here: it leads no more, and hears no more of who does.
func (h *host) resign() {
	h.stopLeading(0)
	h.reg.vacant.end(h.def.ID)
	l := h.lead
	l.mu.Lock()
	l.leader = 0
	waiting := l.waiting
	l.waiting = nil
	l.mu.Unlock()
	for _, s := range waiting {
		s.lost(0)
	}
}

// purge drops what waits to be packed: it comes again, from sessions that are resumed.
func (h *host) purge(leader uint64) {
	if h.urgent != nil {
		h.urgent.recycle()
		h.urgent = nil
	}
	if b := h.handle.in.takeUrgent(); b != nil {
		b.recycle()
	}
	if h.taken != nil {
		h.drop(h.taken, int(h.nextOp), int(h.nextPub), int(h.packedOfRun), leader)
		h.taken = nil
	}
	h.nextOp, h.nextPub, h.packedOfRun, h.chunksOfBig, h.deferred = 0, 0, 0, 0, false
	if b := h.handle.in.take(); b != nil {
		h.drop(b, 0, 0, 0, leader)
	}
	settleAll(h.unpark(), Unknown)
}

// drop answers a batch from an op on: nobody there hears it, but credit goes back.
func (h *host) drop(b *batch, nextOp, nextPub, ofRun int, leader uint64) {
	for ; nextOp < len(b.ops); nextOp++ {
		o := &b.ops[nextOp]
		switch {
		case o.kind == opPublish:
			n := int(o.n) - ofRun
			settleAll(b.publishes[nextPub:nextPub+n], Unknown)
			nextPub, ofRun = nextPub+n, 0
		case o.call != nil && o.call.guest != nil:
			o.call.guest.lost(leader)
		}
	}
	b.recycle()
}

// ApplyForeign implements replica.RaftHost.
func (h *host) ApplyForeign(e *replica.Entry, meta []byte, _ []seglog.Range, _ [][]byte) {
	if h.m == nil {
		return // it was given up in this very turn
	}
	l := h.lane
	cmds, err := queue.DecodeCommands(l.replayed[:0], meta)
	if err != nil {
		h.Failed(err)
		h.group.Fail(err)
		return
	}
	l.replayed = cmds
	if planted.Is(planted.FollowerSkips) && len(cmds) > 2 {
		cmds = cmds[:len(cmds)-1]
	}
	l.entry = queue.Entry{Index: e.Index, Time: e.Time, Commands: cmds}
	h.m.Apply(&l.entry, &l.fx)
	l.released = l.released[:0]
	for i := range l.fx.List {
		ef := &l.fx.List[i]
		switch ef.Kind {
		case queue.Released:
			h.releasedMessages(ef)
		case queue.Deliver:
			h.countDelivered(ef)
		}
	}
	if len(l.released) > 0 {
		h.reg.o.Log.Release(h.def.ID, e.Index, l.released)
	}
	for i := range cmds {
		if cmds[i].Kind == queue.Enqueue {
			h.stats.published.Add(uint64(cmds[i].Count))
		}
	}
	l.fx.Reset()
	l.entry.Commands = nil
	h.count(nil)
	h.applied(e.Index)
}

// applied tells Options.Applied.
func (h *host) applied(index uint64) {
	if h.reg.o.Applied != nil {
		h.reg.o.Applied(h.def.ID, index, h.m.AppendSnapshot)
	}
}

// Abandoned implements replica.RaftHost. What was in the entry comes again from the
// sessions, wherever they are resumed; should it be applied after all, they are told.
func (h *host) Abandoned() {
	if h.lead.serving {
		h.stopLeading(0)
	}
	p := h.pack
	h.pack = nil
	for ; h.unstable.len() > 0; h.unstable.pop() {
		h.bodies.remove(h.lane, h.unstable.front().Numbers)
	}
	if p == nil {
		return
	}
	for _, ls := range p.ended { // they are not among the sessions any more
		if ls.guest != nil {
			ls.guest.lost(0)
		}
	}
	if p.done != nil {
		p.done.recycle()
	}
	h.lane.freePack(p)
	h.countBodies()
}

// appliedOwn does what a leader does before the effects of its own entry: what it
// carries is on disk.
func (h *host) appliedOwn(index uint64) {
	for h.unstable.len() > 0 && h.unstable.front().index <= index {
		h.bodies.stable(h.lane, h.unstable.front().Numbers)
		h.unstable.pop()
	}
}

// Group returns the member of a quorum queue that runs here, or nil; one whose log was found damaged runs no more.
func (h *Handle) Group() *replica.Group {
	if m := h.member(); m != nil && !m.lead.hit {
		return m.group
	}
	return nil
}

// Served yields the handles of all queues that are served by this node, in the order of their ids: those that run here, and
// the quorum queues that it leads.
func (r *Registry) Served() iter.Seq[*Handle] {
	return func(yield func(*Handle) bool) {
		for _, h := range r.sorted(func(h *host) bool { return h.claimed && (h.lead == nil || h.lead.leads()) }) {
			handle := &h.handle
			if h.lead != nil {
				f := r.far(h.def.ID)
				if f == nil {
					continue
				}
				handle = &f.handle
			}
			if !yield(handle) {
				return
			}
		}
	}
}

// Damaged returns the quorum queues whose member here is out of service, because its part of the log is damaged, in
// order of id. Such a member takes no part in its group any more: it has to be removed, and another one added.
func (r *Registry) Damaged() (ids []seglog.GroupID) {
	r.mu.RLock()
	for id, h := range r.hosts {
		if h.lead != nil && h.claimed && h.unavailable.Load() != nil {
			ids = append(ids, id)
		}
	}
	r.mu.RUnlock()
	slices.Sort(ids)
	return ids
}

// Quorum reports whether it is a quorum queue.
func (h *Handle) Quorum() bool { return h.far != nil && h.far.entry != nil }

// Leader returns the node that is thought to lead a quorum queue; 0: nobody is known to. A node that was thought to and has
// no member any more does not.
func (h *Handle) Leader() uint64 {
	if !h.Quorum() {
		return 0
	}
	if m := h.member(); m != nil {
		if node := m.lead.leaderNode(); node != 0 && h.far.entry.hasMember(node) {
			return node
		}
	}
	// Whether this node leads its member knows.
	if node := h.far.entry.leader(); node != h.far.reg.self() && h.far.entry.hasMember(node) {
		return node
	}
	return 0
}

// member is the host of a quorum queue's member here, or nil.
func (h *Handle) member() *host {
	if !h.Quorum() {
		return nil
	}
	return h.far.reg.member(h.far.def.ID)
}

// MemberState has fn called, on its worker, with the encoded state of the member here and the last
// entry in it; for checks.
func (h *Handle) MemberState(fn func(index uint64, state []byte)) {
	if m := h.member(); m != nil {
		m.group.Do(func() { fn(m.m.Applied(), m.m.AppendSnapshot(nil)) })
	}
}

func (r *Registry) member(id seglog.GroupID) *host {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if h := r.hosts[id]; h != nil && h.lead != nil {
		return h
	}
	return nil
}
