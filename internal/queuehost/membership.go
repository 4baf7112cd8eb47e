package queuehost

import (
	"slices"
	"sync"

	"holdfast/internal/seglog"
)

// CreateQuorum makes a quorum queue reachable here, whose members are on the nodes
// given. If one of them is this node, its member runs here: the one that was replayed,
// or a new one of a group that begins.
func (r *Registry) CreateQuorum(def QueueDef, members []Member) (*Handle, error) {
	r.loop.start()
	handle, over, err := r.createQuorum(def, members)
	if over != nil {
		r.endMember(over)
	}
	return handle, err
}

// createQuorum is CreateQuorum but for a replayed member that nobody needs: that is returned, and endMember must follow.
func (r *Registry) createQuorum(def QueueDef, members []Member) (_ *Handle, over *host, _ error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.far(def.ID) != nil {
		return nil, nil, errExists(def.ID)
	}
	h := r.hosts[def.ID]
	m, here := r.memberHere(members)
	switch {
	case h != nil && (h.claimed || h.lead == nil):
		return nil, nil, errExists(def.ID)
	case h != nil:
		if _, err := r.adopt(h, def); err != nil {
			return nil, nil, err
		}
		h.lead.unwanted = !here
		if h.over() {
			r.forgetMember(h)
			over = h
		} else {
			r.vacant.begin(def.ID, r.o.Clock.Mono())
		}
	case here && r.ending[def.ID] == 0 && !r.beginHit(def, m): // else it joins when the old one has ended
		if r.behind.is.Load() {
			r.beginLater(def.ID, m.ID, members)
		} else {
			r.found(def, m, members)
		}
	}
	return r.newEntry(def, members), over, nil
}

// found begins a member of a group that begins. The mutex is held.
func (r *Registry) found(def QueueDef, m Member, members []Member) {
	if !m.Learner {
		r.vacant.begin(def.ID, r.o.Clock.Mono())
	}
	r.o.Node.NewRaftGroup(def.ID, r.newMember(def), members)
}

// unborn is a member that the catalog wants here, and the log knows nothing of, while the catalog may be behind: what it says may be over long since, and
// the member have ended here. It must not vote as if nothing had happened, so it begins when that is known, if it is still wanted then.
type unborn struct {
	id       uint64
	founders []Member // nil: it joins a group that there is
}

// beginLater notes one, or that it is another one now; founders are kept for the member that they were given for. The mutex is held.
func (r *Registry) beginLater(id seglog.GroupID, member uint64, founders []Member) {
	if r.unborn == nil {
		r.unborn = map[seglog.GroupID]unborn{}
	}
	if u, is := r.unborn[id]; !is || u.id != member {
		r.unborn[id] = unborn{member, founders}
	}
}

// bear begins the members that have waited for the catalog.
func (r *Registry) bear() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range sortedKeys(r.unborn) {
		u, f := r.unborn[id], r.far(id)
		if f == nil || f.entry == nil || r.hosts[id] != nil {
			continue // it was deleted
		}
		f.mu.Lock()
		m, here := r.memberHere(f.entry.members)
		f.mu.Unlock()
		switch {
		case !here || r.ending[id] > 0:
		case u.founders != nil && u.id == m.ID:
			m, _ = r.memberHere(u.founders)
			r.found(f.defHere(), m, u.founders)
		default:
			r.join(f, m)
		}
	}
	r.unborn = nil
}

// beginHit begins a member out of service, if the log has lost something of it: it must not vote, and another one has to
// take its place. False: the log has not. The mutex is held.
func (r *Registry) beginHit(def QueueDef, m Member) bool {
	reason, hit := r.hit(def)
	if hit {
		h := r.newMember(def)
		h.outOfService(reason)
		h.lead.hit, h.lead.hitID = true, m.ID
		r.o.Node.NewGroup(def.ID, h, true)
	}
	return hit
}

// over reports whether a member can go: it is not to be here, and the group needs it no more, or gets nothing from
// it. The registry's mutex is held.
func (h *host) over() bool {
	return h.lead.unwanted && (h.lead.removed || h.unavailable.Load() != nil)
}

// memberHere is the member that is to be on this node.
func (r *Registry) memberHere(members []Member) (Member, bool) {
	i := slices.IndexFunc(members, func(m Member) bool { return m.Node == r.self() })
	if i < 0 {
		return Member{}, false
	}
	return members[i], true
}

// is tells which member of its group it is, or was before its data was found to be damaged; 0 if not even that could be read.
func (h *host) is() uint64 {
	if h.lead.hit {
		return h.lead.hitID
	}
	return h.group.Member()
}

// newMember returns the host of a member whose group is added by the caller. The
// registry's mutex is held.
func (r *Registry) newMember(def QueueDef) *host {
	h := r.newHost(def)
	h.lead = &lead{host: h}
	h.logged, h.items, h.claimed = true, true, true
	r.hosts[def.ID] = h
	return h
}

// SetMembers says which members a quorum queue has now. One that is new here begins
// empty and is brought up to date by the leader. One that is here no more gives its data
// up, but not before the group says that nobody needs its vote any more; one that cannot vote,
// or has another in its place on this node, at once: the group has gone on without it.
func (r *Registry) SetMembers(id seglog.GroupID, members []Member) {
	f := r.far(id)
	if f == nil || f.entry == nil {
		return
	}
	f.entry.setMembers(members)
	r.mu.Lock()
	h := r.hosts[id]
	m, here := r.memberHere(members)
	end := false
	switch {
	case h == nil && here && r.behind.is.Load():
		r.beginLater(id, m.ID, nil)
	case h == nil && here:
		r.join(f, m)
	case h == nil || h.lead == nil:
	case !here:
		h.lead.unwanted = true
		end = h.over()
	default:
		h.lead.unwanted = false
		// One of which nobody knows which it is may be the very one that the catalog has, and must not begin anew
		// as if it had promised nothing: it stays out of service until it is removed.
		is := h.is()
		end = is != m.ID && is != 0
	}
	if end {
		r.forgetMember(h)
	}
	r.mu.Unlock()
	if end {
		r.endMember(h)
	}
}

// defHere is the definition that a member would begin with here.
func (f *far) defHere() QueueDef {
	def := f.def
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.entry.settings; s != nil {
		def.Settings = s
	}
	return def
}

// join begins an empty member, unless one before it has yet to end. The mutex is held.
func (r *Registry) join(f *far, m Member) {
	def := f.defHere()
	if r.ending[def.ID] == 0 && !r.beginHit(def, m) {
		r.o.Node.JoinRaftGroup(def.ID, r.newMember(def), m.ID)
	}
}

// Removed implements replica.RemovedHost: nobody needs this member any more.
func (h *host) Removed() {
	r := h.reg
	r.mu.Lock()
	h.lead.removed = true
	end := h.lead.unwanted && r.hosts[h.def.ID] == h
	if end {
		r.forgetMember(h)
	}
	r.mu.Unlock()
	if end {
		r.endMember(h)
	}
}

// forgetMember takes a member, or data that nobody claims, out of the registry; endMember must follow. The mutex is held.
func (r *Registry) forgetMember(h *host) {
	delete(r.hosts, h.def.ID)
	delete(r.quarantined, h.def.ID)
	r.ending[h.def.ID]++
}

// endMember ends a member here; the queue may go on elsewhere. A new one begins only when it is in the log that this one has ended.
func (r *Registry) endMember(h *host) {
	id := h.def.ID
	if h.lead == nil || h.lead.hit { // no raft group
		h.handle.put(op{kind: opDrop, call: &call{reason: errQueueAbsent, done: func() { r.ended(id) }}})
		return
	}
	h.group.Do(func() {
		h.dropQueue(&call{reason: errQueueAbsent})
		h.group.Do(func() { r.ended(id) }) // in its next turn, which writes that
	})
}

// ended goes on when a member, or discarded data, have ended here.
func (r *Registry) ended(id seglog.GroupID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ending[id]--; r.ending[id] > 0 {
		return
	}
	delete(r.ending, id)
	if r.hosts[id] != nil {
		return
	}
	delete(r.quarantined, id) // damage that was found meanwhile is in what has ended
	f := r.far(id)
	if f == nil || f.entry == nil {
		return
	}
	f.mu.Lock()
	m, here := r.memberHere(f.entry.members)
	f.mu.Unlock()
	if here {
		r.join(f, m)
	}
}

// memberLists are lists of members that many queues have, so that each is in memory once.
type memberLists struct {
	mu   sync.Mutex
	list [][]Member
}

// keepLists is how many different lists are remembered.
const keepLists = 32

// same returns a list that is the same as this one and never changes.
func (l *memberLists) same(members []Member) []Member {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range l.list {
		if slices.Equal(m, members) {
			return m
		}
	}
	members = slices.Clone(members)
	if len(l.list) >= keepLists {
		l.list = nil
	}
	l.list = append(l.list, members)
	return members
}
