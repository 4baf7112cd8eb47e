package members

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"holdfast/internal/catalog"
	"holdfast/internal/node/catgroup"
	"holdfast/internal/replica"
	"holdfast/internal/seglog"
)

// ledAtOnce bounds how many groups one answer names.
const ledAtOnce = 4096

// led is a group that is led on the node that says so.
type led struct {
	Group   uint64   `json:"g"`
	Voters  []uint64 `json:"v"` // nodes
	Able    []uint64 `json:"a"` // nodes of voters that could lead: heard of, and caught up; the leader's too
	Members int      `json:"m"` // learners too
}

// status is how a member stands, as its node says.
type status struct {
	Here       bool              `json:"here"`
	State      string            `json:"state"`      // leader, follower, candidate
	Membership string            `json:"membership"` // voter, promotable
	Last       uint64            `json:"last"`
	Written    uint64            `json:"written"`
	Applied    uint64            `json:"applied"`
	Commit     uint64            `json:"commit"`
	Snapshot   uint64            `json:"snapshot"`
	Term       uint64            `json:"term"`
	Lags       map[uint64]uint64 `json:"lags,omitempty"` // of the leader: how many entries nodes lack
	Nacked     uint64            `json:"nacked,omitempty"`
}

// serve answers a question that this node can answer by itself.
func (m *Manager) serve(ctx context.Context, q *question) *reply {
	id := seglog.GroupID(q.Queue)
	var err error
	switch q.Do {
	case doLed:
		return m.ledHere(ctx, q.After)
	case doStatus:
		return m.statusHere(ctx, id)
	case doAdd:
		err = m.addHere(ctx, id, q.Node)
	case doRemove:
		err = m.removeHere(ctx, id, q.Node)
	case doTransfer:
		err = m.transferHere(ctx, id, q.Node)
	default:
		return &reply{Problem: refused, Text: fmt.Sprintf("this node does not know what %q is", q.Do)}
	}
	if err != nil {
		return failed(err)
	}
	return new(reply)
}

// ask asks a group for its status.
func ask(ctx context.Context, g Group) (replica.RaftStatus, error) {
	answered := make(chan replica.RaftStatus, 1)
	g.AskRaftStatus(func(st replica.RaftStatus) { answered <- st })
	select {
	case st := <-answered:
		return st, nil
	case <-ctx.Done():
		return replica.RaftStatus{}, errLate
	}
}

// surely is ask of a leader that has made sure that it leads. One that stood still, or is cut off, may believe for a while that it does,
// and would tell the catalog of members that are gone.
func surely(ctx context.Context, g Group) (replica.RaftStatus, error) {
	sure := make(chan error, 1)
	g.ReadIndex(tendWait, func(_ uint64, err error) { sure <- err })
	select {
	case err := <-sure:
		if err != nil {
			return replica.RaftStatus{}, err
		}
	case <-ctx.Done():
		return replica.RaftStatus{}, errLate
	}
	st, err := ask(ctx, g)
	if err == nil && !st.Serving {
		err = &replica.NotLeaderError{Leader: st.LeadNode}
	}
	return st, err
}

// nodeOf returns the node of a member, 0 if there is none.
func nodeOf(st *replica.RaftStatus, member uint64) uint64 {
	for _, x := range st.Members {
		if x.ID == member {
			return x.Node
		}
	}
	return 0
}

// memberOn returns the member on a node (catgroup.MemberOn).
func (m *Manager) memberOn(id seglog.GroupID, st *replica.RaftStatus, node uint64) *replica.MemberStatus {
	return catgroup.MemberOn(m.o.View().QueueByID(catalog.QueueID(id)), st, node)
}

// leading returns the member here and its status, if it leads.
func (m *Manager) leading(ctx context.Context, id seglog.GroupID) (Group, replica.RaftStatus, error) {
	g := m.o.Group(id)
	if g == nil {
		return nil, replica.RaftStatus{}, &failure{notLeader, "no member is here", m.o.Leader(id)}
	}
	st, err := ask(ctx, g)
	if err == nil && !st.Serving {
		err = &failure{notLeader, "another node leads", nodeOf(&st, st.Lead)}
	}
	return g, st, err
}

func (m *Manager) statusHere(ctx context.Context, id seglog.GroupID) *reply {
	g := m.o.Group(id)
	if g == nil {
		return &reply{Status: new(status)}
	}
	st, err := ask(ctx, g)
	if err != nil {
		return failed(err)
	}
	s := &status{
		Nacked: m.o.Nacked(id),
		Here:   true, State: "follower", Membership: "promotable", Term: st.Term,
		Last: st.Last, Written: st.Last, Applied: st.Applied, Commit: st.Commit, Snapshot: st.FirstInTail - min(1, st.FirstInTail),
	}
	if st.Unwritten > 0 {
		s.Written = st.Applied
	}
	switch {
	case st.Lead == 0:
		s.State = "candidate"
	case st.Lead == st.Self:
		s.State = "leader"
		s.Lags = map[uint64]uint64{}
		for _, x := range st.Members {
			s.Lags[x.Node] = x.Lag
		}
	}
	for _, x := range st.Members { // a new one that has been told nothing yet is not among those that it knows
		if x.ID == st.Self && !x.Learner {
			s.Membership = "voter"
		}
	}
	return &reply{Status: s}
}

// ledHere lists the groups that are led here.
func (m *Manager) ledHere(ctx context.Context, after uint64) *reply {
	r := new(reply)
	var (
		mu   sync.Mutex
		all  sync.WaitGroup
		list []led
	)
	n, last := 0, after
	for q := range m.o.View().QueuesOn(m.o.Self).All() {
		g := Group(nil)
		if q.Type == catalog.Quorum && uint64(q.ID) > after {
			g = m.o.Group(seglog.GroupID(q.ID))
		}
		if g == nil {
			continue
		}
		if n++; n > ledAtOnce {
			r.Next = last
			break
		}
		last = uint64(q.ID)
		all.Add(1)
		g.AskRaftStatus(func(st replica.RaftStatus) {
			defer all.Done()
			if !st.Serving {
				return
			}
			l := led{Group: uint64(q.ID), Members: len(st.Members)}
			for i := range st.Members {
				x := &st.Members[i]
				if x.Learner {
					continue
				}
				l.Voters = append(l.Voters, x.Node)
				if catgroup.IsAble(&st, x) {
					l.Able = append(l.Able, x.Node)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			list = append(list, l)
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		return failed(ctx.Err())
	}
	slices.SortFunc(list, func(a, b led) int { return cmp.Compare(a.Group, b.Group) })
	r.Led = list
	return r
}

// change changes the members of a group that is led here.
func (m *Manager) change(ctx context.Context, g Group, c replica.MemberChange) error {
	ctx, cancel := context.WithTimeout(ctx, changeWait)
	defer cancel()
	done := make(chan error, 1)
	g.ChangeMembers(c, func(err error) { done <- err })
	select {
	case err := <-done:
		return changed(err)
	case <-ctx.Done():
		return errLate
	}
}

func changed(err error) error {
	var not *replica.NotLeaderError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &not):
		return &failure{notLeader, "another node leads", not.Leader}
	case errors.Is(err, replica.ErrUnknown), errors.Is(err, replica.ErrClosed), errors.Is(err, replica.ErrChangeRefused):
		// Whether it happened, the next leader knows: it is asked again.
		return &failure{notLeader, err.Error(), 0}
	}
	return err
}

// addHere adds a member to a group that is led here. It has come when the catalog has it, too: until then it is in doubt
// (doubt.go).
func (m *Manager) addHere(ctx context.Context, id seglog.GroupID, node uint64) error {
	if !m.doubts.begin(id) {
		return &failure{notLeader, "another member is added, or one is taken back", m.o.Self}
	}
	defer m.doubts.end(id)
	g, st, err := m.leading(ctx, id)
	if err != nil {
		return err
	}
	x := m.memberOn(id, &st, node)
	if x == nil {
		if m.o.View().Node(node) == nil {
			return &failure{problem: refused, text: fmt.Sprintf("node %s is not in the cluster", m.o.Name(node))}
		}
		x = &replica.MemberStatus{Member: replica.Member{ID: newMember(), Node: node}}
		if err := m.change(ctx, g, replica.MemberChange{Kind: replica.AddLearner, Member: x.Member}); err != nil {
			return err
		}
		m.o.Logger.Info("a quorum queue gets a member", "queue", uint64(id), "node", m.o.Name(node))
	}
	return m.record(ctx, id, g, x.ID)
}

// removeHere removes a member from a group that is led here.
func (m *Manager) removeHere(ctx context.Context, id seglog.GroupID, node uint64) error {
	g, st, err := m.leading(ctx, id)
	if err != nil {
		return err
	}
	x := m.memberOn(id, &st, node)
	if x != nil {
		if err := m.mayRemove(&st, x); err != nil {
			return err
		}
		if x.ID == st.Self { // somebody else does it
			to := m.heir(&st)
			if to == nil {
				return &failure{problem: unavailable, text: fmt.Sprintf("node %s leads, and no other member could", m.o.Name(node))}
			}
			g.TransferLeader(to.ID)
			m.awaitLeader(ctx, g, to.ID)
			return &failure{notLeader, "the leadership was handed over", to.Node}
		}
		if err := m.change(ctx, g, replica.MemberChange{Kind: replica.Remove, Member: x.Member}); err != nil {
			return err
		}
		m.o.Logger.Info("a member of a quorum queue is removed", "queue", uint64(id), "node", m.o.Name(node))
	}
	return m.record(ctx, id, g, 0)
}

// mayRemove refuses to take the last member, or the last that has a vote.
func (m *Manager) mayRemove(st *replica.RaftStatus, x *replica.MemberStatus) error {
	if len(st.Members) == 1 {
		return &failure{problem: refused, text: errLast}
	}
	voters := 0
	for _, y := range st.Members {
		if !y.Learner {
			voters++
		}
	}
	if !x.Learner && voters == 1 {
		return &failure{problem: unavailable, text: "the other members have not caught up yet"}
	}
	return nil
}

// errLast is what RabbitMQ says.
const errLast = "last_node: the last member of a queue cannot be removed"

// heir returns who should lead instead of the member here: one that could, on a node that is not drained, with the least
// to catch up.
func (m *Manager) heir(st *replica.RaftStatus) *replica.MemberStatus {
	v := m.o.View()
	var best *replica.MemberStatus
	for i := range st.Members {
		x := &st.Members[i]
		if n := v.Node(x.Node); x.ID == st.Self || x.Learner || !catgroup.IsAble(st, x) || n == nil || n.Drained || !m.o.Up(x.Node) {
			continue
		}
		if best == nil || x.Lag < best.Lag {
			best = x
		}
	}
	return best
}

// transferHere hands the leadership of a group over.
func (m *Manager) transferHere(ctx context.Context, id seglog.GroupID, node uint64) error {
	g, st, err := m.leading(ctx, id)
	if err != nil {
		return err
	}
	x := m.memberOn(id, &st, node)
	switch {
	case x == nil:
		return &failure{problem: refused, text: fmt.Sprintf("no member is on node %s", m.o.Name(node))}
	case x.ID == st.Self:
		return &failure{problem: refused, text: errAlready}
	case x.Learner:
		return &failure{problem: unavailable, text: fmt.Sprintf("the member on node %s has not caught up yet", m.o.Name(node))}
	case !x.Active:
		return &failure{problem: unavailable, text: fmt.Sprintf("the member on node %s is not heard", m.o.Name(node))}
	}
	g.TransferLeader(x.ID)
	if !m.awaitLeader(ctx, g, x.ID) {
		return &failure{problem: unavailable, text: notTaken(m.o.Name(node))}
	}
	return nil
}

// errAlready is what RabbitMQ says.
const errAlready = "The target node is already the leader of this queue"

// takeOver bounds how long a member gets to take the leadership over.
const takeOver = 3 * time.Second

// awaitLeader waits until the member here knows of another leader, and reports whether it is this one.
func (m *Manager) awaitLeader(ctx context.Context, g Group, member uint64) bool {
	for waited := time.Duration(0); waited < takeOver; waited += lookAgain {
		st, err := ask(ctx, g)
		if err != nil || st.Lead == member {
			return err == nil
		}
		if !m.pause(ctx, lookAgain) {
			return false
		}
	}
	return false
}

const lookAgain = 5 * time.Millisecond

// record has the catalog follow what the group here has agreed on. come is a learner that has come, or 0.
func (m *Manager) record(ctx context.Context, id seglog.GroupID, g Group, come uint64) error {
	st, err := surely(ctx, g)
	if err != nil {
		return err
	}
	cmd := catgroup.Follow(m.o.View(), catalog.QueueID(id), &st, come)
	if cmd == nil {
		return nil
	}
	_, err = m.propose(ctx, cmd)
	return err
}
