package members

import (
	"context"
	"sync"
	"time"

	"holdfast/internal/catalog"
	"holdfast/internal/node/catgroup"
	"holdfast/internal/replica"
	"holdfast/internal/seglog"
)

// inDoubt is how long a leader knows of a learner that the catalog does not have, before it takes it out of the group. Whoever
// ordered it had a part of this to wait (changeWait) when the leader saw it first, and an order that finds it there can have
// been carried out where another one led shortly before.
const inDoubt = changeWait + 10*time.Second

// doubts are learners that have come to groups which are led here, and which the catalog does not have. Such a one was
// ordered, and who ordered it is being told, or was told that it may not come: because it was not agreed on in time, or the
// leader lost its place. It has no vote and gets none, and its node does not begin it, so that nothing is lost with it.
type doubts struct {
	mu   sync.Mutex
	busy map[seglog.GroupID]struct{} // a member is added, or taken back
	seen map[seglog.GroupID]doubt
}

type doubt struct {
	member uint64
	since  time.Duration
}

func newDoubts() doubts {
	return doubts{busy: map[seglog.GroupID]struct{}{}, seen: map[seglog.GroupID]doubt{}}
}

// begin says that a member is added to a group, or taken back; false: that is being done already.
func (d *doubts) begin(id seglog.GroupID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, is := d.busy[id]; is {
		return false
	}
	d.busy[id] = struct{}{}
	return true
}

func (d *doubts) end(id seglog.GroupID) {
	d.mu.Lock()
	delete(d.busy, id)
	d.mu.Unlock()
}

// forget says that a group is not led here.
func (d *doubts) forget(id seglog.GroupID) {
	d.mu.Lock()
	delete(d.seen, id)
	d.mu.Unlock()
}

// look returns the learner of a group that is to be taken back now, if any, and whether there is one that may have to be later.
func (d *doubts) look(q *catalog.Queue, st *replica.RaftStatus, now time.Duration) (back *replica.MemberStatus, later bool) {
	id := seglog.GroupID(q.ID)
	d.mu.Lock()
	defer d.mu.Unlock()
	for i := range st.Members {
		x := &st.Members[i]
		if !x.Learner || catgroup.Entered(q, x) {
			continue
		}
		if seen, is := d.seen[id]; !is || seen.member != x.ID {
			d.seen[id] = doubt{x.ID, now}
		} else if now-seen.since >= inDoubt {
			return x, true
		}
		return nil, true
	}
	delete(d.seen, id)
	return nil, false
}

// takeBack takes a learner out of a group again, unless an order that is just carried out wants it.
func (m *Manager) takeBack(ctx context.Context, id seglog.GroupID, g Group) {
	if !m.doubts.begin(id) {
		return
	}
	defer m.doubts.end(id)
	st, err := ask(ctx, g)
	q := m.o.View().QueueByID(catalog.QueueID(id))
	if err != nil || !st.Serving || q == nil {
		return
	}
	if x, _ := m.doubts.look(q, &st, time.Duration(m.o.Clock.Mono())); x != nil {
		err := m.change(ctx, g, replica.MemberChange{Kind: replica.Remove, Member: x.Member})
		m.said("quorum queue: a member that came too late is taken back", q, x.Node, err)
	}
}
