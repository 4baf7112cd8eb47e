package members

import (
	"context"
	"maps"
	"slices"
	"time"

	"holdfast/internal/catalog"
	"holdfast/internal/cluster"
	"holdfast/internal/node/catgroup"
	"holdfast/internal/replica"
	"holdfast/internal/seglog"
)

// Times and bounds of what a leader does by itself.
const (
	// tendEvery is how often the groups that something is left to be done for are looked at.
	tendEvery = 200 * time.Millisecond
	// sweepEvery is after how many of these times some of all groups are.
	sweepEvery  = 5
	sweepAtOnce = 64
	// tendWait bounds what is done for one group at a time.
	tendWait = 5 * time.Second
)

// tend looks after the groups that are led here until the manager is closed: those that somebody has pointed at
// soon, all of them one after another in the course of time.
func (m *Manager) tend() {
	ticker := m.o.Clock.NewTicker(tendEvery)
	defer ticker.Stop()
	for ticks := 1; ; {
		select {
		case <-m.ctx.Done():
			return
		case <-m.wake:
		case <-ticker.C():
			if ticks++; ticks%sweepEvery == 0 {
				m.sweepOn()
				m.mend()
			}
		}
		m.round()
	}
}

// sweepOn points at the next groups in turn.
func (m *Manager) sweepOn() {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for q := range m.o.View().QueuesOn(m.o.Self).From(m.sweep) {
		if q.Type == catalog.Quorum {
			m.due[seglog.GroupID(q.ID)] = struct{}{}
		}
		if n++; n == sweepAtOnce {
			m.sweep += n
			return
		}
	}
	m.sweep = 0
	maps.DeleteFunc(m.troubles, func(id seglog.GroupID, _ trouble) bool { return m.o.View().QueueByID(catalog.QueueID(id)) == nil })
}

// round looks at the groups that are due. Those of which something is left stay so.
func (m *Manager) round() {
	m.mu.Lock()
	var ids []seglog.GroupID
	for id := range m.due {
		ids = append(ids, id)
	}
	clear(m.due)
	m.mu.Unlock()
	slices.Sort(ids)
	var left []seglog.GroupID
	for _, id := range ids {
		if m.ctx.Err() != nil {
			return
		}
		if m.lookAt(id) {
			left = append(left, id)
		}
	}
	m.mu.Lock()
	for _, id := range left {
		m.due[id] = struct{}{}
	}
	m.mu.Unlock()
}

// lookAt does the next thing that is to be done for a group that is led here. It reports whether more may follow soon.
func (m *Manager) lookAt(id seglog.GroupID) (more bool) {
	g := m.o.Group(id)
	if g == nil {
		m.forget(id)
		return false
	}
	ctx, cancel := context.WithTimeout(m.ctx, tendWait)
	defer cancel()
	st, err := ask(ctx, g)
	v := m.o.View()
	q := v.QueueByID(catalog.QueueID(id))
	if err != nil || !st.Serving || q == nil || q.Type != catalog.Quorum {
		m.forget(id)
		return false
	}
	if do, why := catgroup.NextOf(v, q, &st); do != nil {
		err := m.change(ctx, g, *do)
		m.said("quorum queue: "+why, q, do.Member.Node, err)
		return true
	}
	if catgroup.Follow(v, q.ID, &st, 0) != nil {
		err := m.record(ctx, id, g, 0)
		if what := "the catalog does not know the members of a quorum queue yet"; err != nil && m.isNews(id, trouble{what, 0, err.Error()}) {
			m.o.Logger.Warn(what, "queue", q.Name, "vhost", q.VHost, "error", err)
		}
		return true
	}
	if back, later := m.doubts.look(q, &st, time.Duration(m.o.Clock.Mono())); back != nil {
		m.takeBack(ctx, id, g)
		return true
	} else if later {
		return true
	}
	if self := v.Node(m.o.Self); self != nil && self.Drained {
		if to := m.heir(&st); to != nil {
			g.TransferLeader(to.ID)
			return true
		}
	}
	if node, ok := cluster.Grow(v, q, v.Effective(q).TargetSize, m.o.Up); ok && len(st.Members) == len(q.Members) {
		err := m.addHere(ctx, id, node)
		m.said("quorum queue: it grows towards its target size", q, node, err)
		return err == nil
	}
	return slices.ContainsFunc(st.Members, func(x replica.MemberStatus) bool { return x.Learner && x.Active })
}

// forget says that a group is not led here.
func (m *Manager) forget(id seglog.GroupID) {
	m.doubts.forget(id)
	delete(m.troubles, id)
}

// said logs what became of a change of members. What failed is tried again, and said again only if it fails in another way.
func (m *Manager) said(what string, q *catalog.Queue, node uint64, err error) {
	id := seglog.GroupID(q.ID)
	log := m.o.Logger.With("queue", q.Name, "vhost", q.VHost, "node", m.o.Name(node))
	if err == nil {
		delete(m.troubles, id)
		log.Info(what)
		return
	}
	if m.isNews(id, trouble{what, node, err.Error()}) {
		log.Info(what+": not done yet", "reason", err)
	}
}

// trouble is why something was not done for a group that is led here.
type trouble struct {
	what   string
	node   uint64
	reason string
}

// isNews reports whether trouble with a group is another than the last.
func (m *Manager) isNews(id seglog.GroupID, now trouble) bool {
	is := m.troubles[id] != now
	m.troubles[id] = now
	return is
}

// mend replaces members here whose part of the log is damaged: each is removed from its group, and another one takes its
// place, which is brought up to date. A queue that has no other member is left to an operator. What fails is tried again the next
// time, after all others have had their turn.
func (m *Manager) mend() {
	if !m.mending.CompareAndSwap(false, true) {
		return
	}
	damaged := m.o.Damaged()
	ids := slices.Concat(damaged, slices.Collect(maps.Keys(m.owed)))
	if len(ids) == 0 {
		m.mending.Store(false)
		return
	}
	slices.Sort(ids)
	m.loop.Go(func() {
		defer m.mending.Store(false)
		for _, id := range slices.Compact(ids) {
			q := m.o.View().QueueByID(catalog.QueueID(id))
			if q == nil {
				delete(m.owed, id)
				continue
			}
			is := slices.Contains(damaged, id)
			if _, here := q.MemberOn(m.o.Self); here && !is {
				delete(m.owed, id) // somebody else has seen to it
				continue
			} else if here && len(q.Members) < 2 || m.ctx.Err() != nil {
				continue
			}
			err := m.replace(id, q)
			log := m.o.Logger.With("queue", q.Name, "vhost", q.VHost)
			if err != nil {
				log.Warn("the damaged member of a quorum queue here is not replaced yet", "error", err)
				continue
			}
			log.Warn("the damaged member of a quorum queue here is replaced: the leader gives the new one the contents")
		}
	})
}

// replace removes the member here, unless that is done, and adds another one.
func (m *Manager) replace(id seglog.GroupID, q *catalog.Queue) error {
	m.owed[id] = struct{}{} // also if it is not known in time that the old one is removed
	if err := m.remove(m.ctx, q, m.o.Self); err != nil {
		return err
	}
	if q = m.o.View().QueueByID(q.ID); q != nil {
		if err := m.add(m.ctx, q, m.o.Self); err != nil {
			return err
		}
	}
	delete(m.owed, id)
	return nil
}
