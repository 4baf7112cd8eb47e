package members

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"holdfast/internal/broker"
	"holdfast/internal/catalog"
	"holdfast/internal/mgmt"
)

// statusWait is how long a node gets to say how its member stands.
const statusWait = 2 * time.Second

// Status tells how the members of a queue stand, by the names of their nodes. A node that does not answer is listed with
// the reason.
func (m *Manager) Status(ctx context.Context, vhost, queue string) ([]mgmt.QuorumMember, error) {
	q, err := m.queue(vhost, queue)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, statusWait)
	defer cancel()
	rows := make([]mgmt.QuorumMember, len(q.Members))
	stats := make([]*status, len(q.Members))
	var all sync.WaitGroup
	for i, x := range q.Members {
		all.Go(func() {
			rows[i].Node = m.o.Name(x.Node)
			if !m.o.Up(x.Node) {
				rows[i].State = "nodedown"
				return
			}
			r, err := m.asker.ask(ctx, x.Node, question{Do: doStatus, Queue: uint64(q.ID)})
			switch {
			case err != nil || r.Status == nil:
				rows[i].State = "timeout"
			case !r.Status.Here:
				rows[i].State = "noproc"
			default:
				stats[i] = r.Status
			}
		})
	}
	all.Wait()
	leader := leaderOf(stats)
	for i, s := range stats {
		if s == nil {
			continue
		}
		r := &rows[i]
		r.Known, r.State, r.Membership = true, s.State, s.Membership
		r.Last, r.Written, r.Applied, r.Commit, r.Snapshot, r.Term = s.Last, s.Written, s.Applied, s.Commit, s.Snapshot, s.Term
		r.Nacked = s.Nacked
		if s.State == "leader" && s != leader { // it has not heard yet that another one does
			r.State = "follower"
		}
	}
	if leader != nil {
		for i, x := range q.Members {
			if lag, has := leader.Lags[x.Node]; has {
				rows[i].Lag = &lag
			}
		}
	}
	slices.SortStableFunc(rows, func(a, b mgmt.QuorumMember) int { return strings.Compare(a.Node, b.Node) })
	return rows, nil
}

// leaderOf returns the status of the leader of the latest term.
func leaderOf(all []*status) *status {
	var leader *status
	for _, s := range all {
		if s != nil && s.State == "leader" && (leader == nil || s.Term > leader.Term) {
			leader = s
		}
	}
	return leader
}

// Critical tells which quorum queues would lose their majority if this node were stopped. A member counts if its leader
// hears it and it has caught up.
func (m *Manager) Critical(ctx context.Context) (mgmt.QuorumCritical, error) {
	r := mgmt.QuorumCritical{Node: m.o.Name(m.o.Self), Queues: []mgmt.CriticalQueue{}}
	v := m.o.View()
	self := v.Node(m.o.Self)
	switch {
	case v.Nodes().Len() <= 1:
		r.Alone = true
		return r, nil
	case self != nil && self.Drained:
		r.Maintenance = true
		return r, nil
	}
	ctx, cancel := context.WithTimeout(ctx, changeWait)
	defer cancel()
	c := m.survey().count(ctx)
	for q := range v.QueuesOn(m.o.Self).All() {
		if q.Type != catalog.Quorum || !isCritical(q, c[uint64(q.ID)], m.o.Self) {
			continue
		}
		r.Queues = append(r.Queues, named(q))
	}
	if g := m.o.Catalog(); g != nil {
		if critical, err := m.catalogCritical(ctx); err != nil {
			return r, &broker.AdminError{Kind: broker.Unavailable, Text: "the nodes that vote for the catalog are not known: " + err.Error()}
		} else if critical {
			r.Queues = append(r.Queues, mgmt.CriticalQueue{Name: "catalog", Type: "catalog", Readable: "the catalog of the cluster"})
		}
	}
	return r, nil
}

// Times of the check for queues without a leader: an election that is under way is waited for.
const (
	leaderlessLooks = 4
	leaderlessPause = 400 * time.Millisecond
)

// Leaderless lists the quorum queues that fit and that no node says it leads: nobody has been elected, or who has gives no answer.
func (m *Manager) Leaderless(ctx context.Context, only mgmt.Patterns) ([]mgmt.CriticalQueue, error) {
	ctx, cancel := context.WithTimeout(ctx, changeWait)
	defer cancel()
	list, err := m.choose(only, func(*catalog.Queue) bool { return true })
	if err != nil {
		return nil, err
	}
	s := m.survey()
	for look := 1; ; look++ {
		c := s.count(ctx)
		list = slices.DeleteFunc(list, func(q *catalog.Queue) bool {
			_, led := c[uint64(q.ID)]
			return led || m.o.View().QueueByID(q.ID) == nil
		})
		if len(list) == 0 || look == leaderlessLooks || !m.pause(ctx, m.patience(m.o.Self, leaderlessPause)) {
			break
		}
	}
	without := []mgmt.CriticalQueue{}
	for _, q := range list {
		without = append(without, named(q))
	}
	return without, nil
}

// named is a queue in the list of a check.
func named(q *catalog.Queue) mgmt.CriticalQueue {
	return mgmt.CriticalQueue{
		Name: q.Name, VHost: q.VHost, Type: string(q.Type),
		Readable: fmt.Sprintf("queue '%s' in vhost '%s'", q.Name, q.VHost),
	}
}

// isCritical reports whether a queue lives on by this node's member alone: without it, too few are left that could serve, or
// nobody leads it now.
func isCritical(q *catalog.Queue, l ledBy, self uint64) bool {
	if l.Group == 0 {
		return true
	}
	if !slices.Contains(l.Voters, self) {
		return false
	}
	others := 0
	for _, node := range l.Able {
		if node != self {
			others++
		}
	}
	return others < len(l.Voters)/2+1
}

// catalogCritical says the same of the catalog's own group, by who is up.
func (m *Manager) catalogCritical(ctx context.Context) (bool, error) {
	st, err := ask(ctx, m.o.Catalog())
	if err != nil {
		return false, err
	}
	voters, others, mine := 0, 0, false
	for _, x := range st.Members {
		if x.Learner {
			continue
		}
		voters++
		switch {
		case x.Node == m.o.Self:
			mine = true
		case m.o.Up(x.Node):
			others++
		}
	}
	return mine && others < voters/2+1, nil
}
