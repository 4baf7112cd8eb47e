package members

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"holdfast/internal/broker"
	"holdfast/internal/catalog"
	"holdfast/internal/cluster"
	"holdfast/internal/mgmt"
	"holdfast/internal/seglog"
)

// manyAtOnce is how many queues an order for all of them changes at a time.
const manyAtOnce = 8

// choose returns the quorum queues whose names fit, by vhost and name.
func (m *Manager) choose(only mgmt.Patterns, which func(*catalog.Queue) bool) ([]*catalog.Queue, error) {
	vhost, err := pattern(only.VHost)
	if err != nil {
		return nil, err
	}
	name, err := pattern(only.Queue)
	if err != nil {
		return nil, err
	}
	var list []*catalog.Queue
	for q := range m.o.View().AllQueues().All() {
		if q.Type == catalog.Quorum && vhost.MatchString(q.VHost) && name.MatchString(q.Name) && which(q) {
			list = append(list, q)
		}
	}
	slices.SortFunc(list, func(a, b *catalog.Queue) int {
		if c := strings.Compare(a.VHost, b.VHost); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
	return list, nil
}

func pattern(text string) (*regexp.Regexp, error) {
	p, err := regexp.Compile(text)
	if err != nil {
		return nil, &broker.AdminError{Kind: broker.Invalid, Text: fmt.Sprintf("the pattern %q is not a regular expression: %v", text, err)}
	}
	return p, nil
}

// forEach does something to each of some queues, several at a time, and says what became of each.
func (m *Manager) forEach(ctx context.Context, list []*catalog.Queue, do func(*catalog.Queue) error) []mgmt.MemberResult {
	results := make([]mgmt.MemberResult, len(list))
	turns := make(chan int)
	var all sync.WaitGroup
	for range manyAtOnce {
		all.Go(func() {
			for i := range turns {
				err := ctx.Err()
				if err != nil { // those before have taken all the time there was
					err = errNotBegun
				} else {
					err = do(list[i])
				}
				results[i] = m.result(list[i], err)
			}
		})
	}
	for i := range list {
		turns <- i
	}
	close(turns)
	all.Wait()
	return results
}

var errNotBegun = &failure{problem: late, text: "the time was over before its turn came; ask again"}

// result says what became of an order for a queue, and how many members it has now.
func (m *Manager) result(q *catalog.Queue, err error) mgmt.MemberResult {
	r := mgmt.MemberResult{VHost: q.VHost, Name: q.Name, Size: len(q.Members), Result: "ok"}
	if now := m.o.View().QueueByID(q.ID); now != nil {
		r.Size = len(now.Members)
	}
	var f *failure
	switch {
	case err == nil:
	case errors.As(err, &f) && f.text == errLast:
		r.Failed, r.Result = true, "error: the last node cannot be removed"
	default:
		r.Failed, r.Result = true, "error: "+err.Error()
	}
	return r
}

// Grow adds a member on a node to every quorum queue that fits and has none there: all of them, or those with an even number
// of members.
func (m *Manager) Grow(ctx context.Context, node string, even bool, only mgmt.Patterns) ([]mgmt.MemberResult, error) {
	id, err := m.node(node)
	if err != nil {
		return nil, err
	}
	if !m.o.Up(id) {
		return nil, &broker.AdminError{Kind: broker.Unavailable, Text: fmt.Sprintf("node_not_running: node %s is not up", node)}
	}
	list, err := m.choose(only, func(q *catalog.Queue) bool {
		_, has := q.MemberOn(id)
		return !has && (!even || len(q.Members)%2 == 0)
	})
	if err != nil {
		return nil, err
	}
	return m.forEach(ctx, list, func(q *catalog.Queue) error { return m.add(ctx, q, id) }), nil
}

// Shrink takes the members on a node away from all quorum queues.
func (m *Manager) Shrink(ctx context.Context, node string) ([]mgmt.MemberResult, error) {
	id, err := m.node(node)
	if err != nil {
		return nil, err
	}
	list, err := m.choose(mgmt.Patterns{}, func(q *catalog.Queue) bool {
		_, has := q.MemberOn(id)
		return has
	})
	if err != nil {
		return nil, err
	}
	return m.forEach(ctx, list, func(q *catalog.Queue) error { return m.remove(ctx, q, id) }), nil
}

// movesAtOnce is how many leaderships are handed over before it is looked again who leads what.
const movesAtOnce = 256

// Rebalance hands leaderships over until every node leads as many of the quorum queues that fit as any other, give or take
// one, and says how many each leads. *mgmt.Incomplete comes with how far it got: ctx has ended, or nodes gave no answer.
func (m *Manager) Rebalance(ctx context.Context, only mgmt.Patterns) ([]mgmt.LeaderCount, error) {
	if !m.balancing.TryLock() {
		return nil, &broker.AdminError{Kind: broker.Rejected, Text: "rebalance_in_progress: leaders are being moved already"}
	}
	defer m.balancing.Unlock()
	list, err := m.choose(only, func(*catalog.Queue) bool { return true })
	if err != nil {
		return nil, err
	}
	s, stuck := m.survey(), map[uint64]bool{}
	c := s.count(ctx)
	for ctx.Err() == nil {
		moves := cluster.Balance(m.groups(c, list, stuck), s.healthy, movesAtOnce)
		if len(moves) == 0 {
			break
		}
		s.carryOut(ctx, moves, c, stuck)
		c = s.recount(ctx, moves, c)
	}
	return m.leaders(c, list), s.incomplete(ctx)
}

// recount counts again when all groups that were to be moved are led, or a moment has passed; as it was before, if ctx ends.
func (s *survey) recount(ctx context.Context, moves []cluster.Move, before census) census {
	c := before
	for range recounts {
		now := s.count(ctx)
		if ctx.Err() != nil {
			return c
		}
		c = now
		if !slices.ContainsFunc(moves, func(move cluster.Move) bool { _, is := c[move.Group]; return !is }) {
			return c
		}
		if !s.m.pause(ctx, askAgain) {
			return c
		}
	}
	return c
}

// recounts is how often it is looked whether moved groups are led again.
const recounts = 40

// able reports whether a node may lead.
func (m *Manager) able(node uint64) bool {
	n := m.o.View().Node(node)
	return n != nil && !n.Drained && m.o.Up(node)
}

// groups are queues as they are led now; those that somebody failed to move are left out.
func (m *Manager) groups(c census, list []*catalog.Queue, stuck map[uint64]bool) []cluster.Led {
	var groups []cluster.Led
	for _, q := range list {
		if l, is := c[uint64(q.ID)]; is && !stuck[l.Group] {
			groups = append(groups, cluster.Led{Group: l.Group, Leader: l.node, Members: l.Able})
		}
	}
	return groups
}

// leaders counts who leads how many, by the names of the nodes.
func (m *Manager) leaders(c census, list []*catalog.Queue) []mgmt.LeaderCount {
	counts := map[uint64]int{}
	for _, q := range list {
		if l, is := c[uint64(q.ID)]; is {
			counts[l.node]++
		}
	}
	rows := []mgmt.LeaderCount{}
	for node, n := range counts {
		rows = append(rows, mgmt.LeaderCount{Node: m.o.Name(node), Queues: n})
	}
	slices.SortFunc(rows, func(a, b mgmt.LeaderCount) int { return strings.Compare(a.Node, b.Node) })
	return rows
}

// carryOut hands leaderships over, and notes in c those that were moved, and those that stay where they are as stuck. It says
// how many have come to each node.
func (s *survey) carryOut(ctx context.Context, moves []cluster.Move, c census, stuck map[uint64]bool) (moved map[uint64]int) {
	moved = map[uint64]int{}
	var (
		mu  sync.Mutex
		all sync.WaitGroup
	)
	turns := make(chan cluster.Move)
	for range manyAtOnce {
		all.Go(func() {
			for move := range turns {
				err := s.move(ctx, seglog.GroupID(move.Group), move.From, move.To)
				mu.Lock()
				if err == nil {
					moved[move.To]++
					l := c[move.Group]
					l.node = move.To
					c[move.Group] = l
				} else {
					stuck[move.Group] = true
				}
				mu.Unlock()
			}
		})
	}
	for _, move := range moves {
		turns <- move
	}
	close(turns)
	all.Wait()
	return moved
}

// Drain puts this node into maintenance: it leads nothing any more, and gets no new queues, until Revive. It says who has
// taken over how many quorum queues, and how many it still leads because no other member of theirs could.
func (m *Manager) Drain(ctx context.Context) (mgmt.Drained, error) {
	if _, err := m.propose(ctx, catalog.SetDrained(m.o.Self, true)); err != nil {
		return mgmt.Drained{}, told(err)
	}
	m.o.Logger.Warn("this node is put into maintenance: others take over what it leads")
	d := mgmt.Drained{To: map[string]int{}}
	s, stuck := m.survey(), map[uint64]bool{}
	list, err := m.choose(mgmt.Patterns{}, func(q *catalog.Queue) bool { _, here := q.MemberOn(m.o.Self); return here })
	if err != nil {
		return d, err
	}
	c := s.count(ctx)
	for ctx.Err() == nil {
		moves := cluster.Balance(m.groups(c, list, stuck), s.able, movesAtOnce)
		if moves = slices.DeleteFunc(moves, func(move cluster.Move) bool { return move.From != m.o.Self }); len(moves) == 0 {
			break
		}
		for node, n := range s.carryOut(ctx, moves, c, stuck) {
			d.Moved += n
			d.To[m.o.Name(node)] += n
		}
		c = s.recount(ctx, moves, c)
	}
	for _, l := range c {
		if l.node == m.o.Self {
			d.Left++
		}
	}
	if err := m.giveUpCatalog(ctx); err != nil && ctx.Err() == nil {
		return d, told(err)
	}
	return d, s.incomplete(ctx)
}

// giveUpCatalog hands the leadership of the catalog's group over, if it is here and somebody could take it.
func (m *Manager) giveUpCatalog(ctx context.Context) error {
	g := m.o.Catalog()
	if g == nil {
		return nil
	}
	st, err := ask(ctx, g)
	if err != nil || !st.Serving {
		return err
	}
	if to := m.heir(&st); to != nil {
		g.TransferLeader(to.ID)
		m.awaitLeader(ctx, g, to.ID)
	}
	return nil
}

// Revive ends the maintenance of this node.
func (m *Manager) Revive(ctx context.Context) error {
	_, err := m.propose(ctx, catalog.SetDrained(m.o.Self, false))
	return told(err)
}
