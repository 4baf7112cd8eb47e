package members

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/internal/broker"
	"holdfast/internal/catalog"
	"holdfast/internal/clock"
	"holdfast/internal/mgmt"
	"holdfast/internal/replica"
	"holdfast/internal/seglog"
)

func good(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func bad(t *testing.T, err error, kind broker.AdminErrorKind, text string) {
	t.Helper()
	var e *broker.AdminError
	if !errors.As(err, &e) || e.Kind != kind || !strings.Contains(e.Text, text) {
		t.Errorf("error %v, want one of kind %d with %q", err, kind, text)
	}
}

// An order given to any node is carried out where the queue is led. A new member has no vote until it has caught up, and an
// id that nobody had before. R143
func TestAMemberComes(t *testing.T) {
	c := newTown(t, 4)
	g := c.queue("q", 1, 2, 3)
	good(t, c.nodes[4].Add(soon(t), "/", "q", "n4"))
	g.want("1234l", "1234")
	good(t, c.nodes[2].Add(soon(t), "/", "q", "n4")) // it is there
	g.want("1234l", "1234")
	id := g.members[3].ID
	if id == 4 {
		t.Error("the new member has the number of its node")
	}
	g.behind[id] = true
	c.nodes[1].Look(g.id)
	c.nodes[1].round()
	g.want("1234l", "1234")
	g.behind[id] = false
	c.nodes[1].round() // still due
	g.want("1234", "1234")
}

func TestOrdersThatMakeNoSense(t *testing.T) {
	c := newTown(t, 3)
	c.queue("q", 1, 2)
	c.must(catalog.DeclareQueue(catalog.QueueDecl{VHost: "/", Name: "classic", Durable: true, Home: 1}))
	m, ctx := c.nodes[3], soon(t)
	bad(t, m.Add(ctx, "/", "none", "n3"), broker.NotFound, "no queue 'none'")
	bad(t, m.Add(ctx, "elsewhere", "q", "n3"), broker.NotFound, "Virtual host 'elsewhere'")
	bad(t, m.Add(ctx, "/", "classic", "n3"), broker.Rejected, "is a classic queue")
	bad(t, m.Add(ctx, "/", "q", "n9"), broker.Invalid, "'n9' is not in the cluster")
	bad(t, m.Transfer(ctx, "/", "q", "n3"), broker.Rejected, "no member is on node n3")
	bad(t, m.Transfer(ctx, "/", "q", "n1"), broker.Rejected, "already the leader") // R146
	bad(t, m.ForceShrink(ctx, "/", "q"), broker.Rejected, "has no member on this node")
	c.down[2] = true
	bad(t, m.Transfer(ctx, "/", "q", "n2"), broker.Unavailable, "is not heard")
	c.down[3] = true
	bad(t, c.nodes[1].Add(ctx, "/", "q", "n3"), broker.Unavailable, "node_not_running")
	_, err := m.Grow(ctx, "n1", false, mgmt.Patterns{Queue: "("})
	bad(t, err, broker.Invalid, "not a regular expression")
}

// The last member stays; one that leads hands over first. R144
func TestAMemberGoes(t *testing.T) {
	c := newTown(t, 3)
	g := c.queue("q", 1, 2, 3)
	good(t, c.nodes[2].Delete(soon(t), "/", "q", "n1"))
	g.want("23", "23")
	if on := c.leaderOf(g.id); on != 2 {
		t.Errorf("node %d leads", on)
	}
	good(t, c.nodes[1].Delete(soon(t), "/", "q", "n1")) // it is gone
	good(t, c.nodes[1].Delete(soon(t), "/", "q", "n3"))
	bad(t, c.nodes[3].Delete(soon(t), "/", "q", "n2"), broker.Rejected, "last_node")
	g.want("2", "2")
	good(t, c.nodes[2].Add(soon(t), "/", "q", "n3"))
	g.behind[g.members[1].ID] = true
	bad(t, c.nodes[1].Delete(soon(t), "/", "q", "n2"), broker.Unavailable, "have not caught up")
}

// What a leader has changed and not told the catalog of is told by the next one.
func TestTheCatalogFollowsTheGroup(t *testing.T) {
	c := newTown(t, 4)
	g := c.queue("q", 1, 2, 3)
	g.members = append(g.members[:2:2], replica.Member{ID: 77, Node: 4})
	g.leader = 2
	for _, id := range []uint64{1, 3} { // do not lead
		c.nodes[id].Look(g.id)
		c.nodes[id].round()
	}
	g.want("124", "123")
	c.nodes[2].Look(g.id)
	c.nodes[2].round()
	g.want("124", "124")
}

// Who only believes that it leads a group tells the catalog nothing of its members: one of them may be gone, and would begin anew
// as if it had promised nothing.
func TestTheCatalogFollowsNobodyWhoBelievesToLead(t *testing.T) {
	c := newTown(t, 3)
	g := c.queue("q", 1, 2)
	g.members = append(g.members, replica.Member{ID: 3, Node: 3})
	g.deposed = 1
	c.nodes[1].lookAt(g.id)
	if q := c.catalog.View().Queue("/", "q"); len(q.Members) != 2 {
		t.Errorf("the catalog has the members %v", q.Members)
	}
	c.nodes[1].lookAt(g.id)
	if q := c.catalog.View().Queue("/", "q"); len(q.Members) != 3 {
		t.Errorf("of who does lead the catalog has learnt the members %v", q.Members)
	}
}

// Once a minute or so every queue is looked at, whether or not anybody has pointed at it.
func TestEveryQueueHasItsTurn(t *testing.T) {
	c := newTown(t, 2)
	var all []*group
	for i := range 3*sweepAtOnce + 5 {
		g := c.queue(fmt.Sprint("q", i), 1, 2)
		g.members = g.members[:1]
		all = append(all, g)
	}
	for range 4 {
		c.nodes[1].sweepOn()
		c.nodes[1].round()
	}
	for _, g := range all {
		g.want("1", "1")
	}
}

// The members of a node that was taken out of the cluster are taken out of their groups.
func TestANodeIsForgotten(t *testing.T) {
	c := newTown(t, 3)
	g, other := c.queue("q", 1, 2, 3), c.queue("other", 3, 1)
	c.down[3] = true
	other.leader = 1
	r := c.must(catalog.RemoveNode(3))
	if len(r.Removed.Members) != 2 {
		t.Fatalf("the catalog removed %v", r.Removed.Members)
	}
	for _, lost := range r.Removed.Members {
		c.nodes[1].Look(seglog.GroupID(lost.Queue.ID))
	}
	c.nodes[1].round()
	g.want("12", "12")
	other.want("1", "1")
}

// A change that is refused as long as other members are away is tried again and again, and the log says so once.
func TestTheSameTroubleIsSaidOnce(t *testing.T) {
	c := newTown(t, 3)
	g := c.queue("q", 1, 2, 3)
	m := c.nodes[1]
	var log strings.Builder
	m.o.Logger = slog.New(slog.NewTextHandler(&log, nil))
	said := func(want int) {
		t.Helper()
		if n := strings.Count(log.String(), "not done yet"); n != want {
			t.Errorf("said %d times, want %d:\n%s", n, want, log.String())
		}
	}
	c.must(catalog.RemoveNode(3))
	g.refuses = replica.ErrNoMajority
	m.Look(g.id)
	for range 10 {
		m.round()
	}
	said(1)
	g.refuses = replica.ErrUnknown
	m.round()
	said(2)
	g.leader = 2
	m.round()
	m.Look(g.id)
	g.leader = 1
	m.round()
	said(3)
	g.refuses = nil
	m.round()
	g.want("12", "12")
	if said(3); len(m.troubles) > 0 {
		t.Error("there is trouble left")
	}
}

// A queue that asks for more members than it has gets them as nodes come. R141
func TestAQueueGrowsToItsTarget(t *testing.T) {
	c := newTown(t, 2)
	g := c.queue("q", 1)
	q := c.catalog.View().QueueByID(catalog.QueueID(g.id))
	c.must(catalog.DeleteQueues([]catalog.QueueID{q.ID}))
	q = c.must(catalog.DeclareQueue(catalog.QueueDecl{
		VHost: "/", Name: "q", Durable: true, Members: []catalog.Member{{ID: 1, Node: 1}},
		Args: table("x-queue-type", "quorum", "x-quorum-target-group-size", 2),
	})).Queue
	g.id = seglog.GroupID(q.ID)
	c.groups[g.id] = g
	c.nodes[1].Look(g.id)
	c.nodes[1].round()
	g.want("12l", "12")
	c.nodes[1].round()
	g.want("12", "12")
}

// A change that is not agreed on in time is reported as in doubt, and taken back should it come about later, whoever leads
// then. R145
func TestAChangeThatComesTooLate(t *testing.T) {
	for _, leads := range []uint64{1, 2} {
		c := newTown(t, 3)
		clk := clock.NewManual(time.Unix(1_700_000_000, 0))
		c.nodes[leads].o.Clock = clk
		g := c.queue("q", 1, 2)
		g.hold = true
		ctx, cancel := context.WithCancel(soon(t))
		answered := make(chan error)
		go func() { answered <- c.nodes[1].Add(ctx, "/", "q", "n3") }()
		var late func()
		for late == nil {
			c.mu.Lock()
			if len(g.held) > 0 {
				late = g.held[0]
			}
			c.mu.Unlock()
		}
		cancel()
		bad(t, <-answered, broker.Unavailable, "timed out and may not have been completed")
		g.want("12", "12")
		c.mu.Lock()
		g.hold, g.leader = false, leads
		c.mu.Unlock()
		late()
		m := c.nodes[leads]
		m.Look(g.id)
		for _, d := range []time.Duration{0, inDoubt - 1} {
			clk.Advance(d)
			m.round()
			g.want("123l", "12") // it gets no vote, and the catalog does not have it
		}
		clk.Advance(1)
		m.round()
		g.want("12", "12")
		m.round()
		if len(m.doubts.seen)+len(m.doubts.busy) > 0 {
			t.Error("there are doubts left")
		}
	}
}

// doubtful is a town in which the group of a queue has a member on node 3, of which the catalog does not know. Node 1 has seen it.
func doubtful(t *testing.T) (*town, *Manager, *group, *clock.Manual) {
	c := newTown(t, 3)
	clk := clock.NewManual(time.Unix(1_700_000_000, 0))
	m := c.nodes[1]
	m.o.Clock = clk
	g := c.queue("q", 1, 2)
	g.members = append(g.members, replica.Member{ID: 77, Node: 3, Learner: true})
	m.Look(g.id)
	m.round()
	return c, m, g, clk
}

// A member in doubt that is ordered again has come. R145
func TestAMemberInDoubtIsOrderedAgain(t *testing.T) {
	c, m, g, clk := doubtful(t)
	g.want("123l", "12")
	good(t, c.nodes[2].Add(soon(t), "/", "q", "n3"))
	g.want("123l", "123")
	clk.Advance(inDoubt)
	m.round()
	g.want("123", "123")
}

// An order that came about twice leaves one member on its node, the one that the catalog has. R145
func TestAMemberCameTwice(t *testing.T) {
	for _, id := range []uint64{66, 88} {
		c := newTown(t, 3)
		clk := clock.NewManual(time.Unix(1_700_000_000, 0))
		m := c.nodes[1]
		m.o.Clock = clk
		g := c.queue("q", 1, 2)
		g.members = append(g.members, replica.Member{ID: 77, Node: 3, Learner: true})
		good(t, m.Add(soon(t), "/", "q", "n3"))
		g.want("123l", "123")
		g.members = append(g.members, replica.Member{ID: id, Node: 3, Learner: true})
		slices.SortFunc(g.members, func(a, b replica.Member) int { return cmp.Compare(a.ID, b.ID) })
		good(t, m.addHere(soon(t), g.id, 3))
		g.want("123l3l", "123")
		m.Look(g.id)
		m.round() // the one that is known gets its vote
		m.round()
		clk.Advance(inDoubt)
		m.round()
		g.want("123", "123")
		if last := g.members[2].ID; last != 77 {
			t.Errorf("member %d is left", last)
		}
		good(t, m.Delete(soon(t), "/", "q", "n3"))
		g.want("12", "12")
	}
}

// While a member is taken back, an order for one waits, and the other way round. R145
func TestOrdersWaitForWhatIsTakenBack(t *testing.T) {
	_, m, g, clk := doubtful(t)
	clk.Advance(inDoubt)
	if !m.doubts.begin(g.id) {
		t.Fatal("something is under way")
	}
	m.round()
	g.want("123l", "12")
	var f *failure
	if err := m.addHere(soon(t), g.id, 3); !errors.As(err, &f) || f.problem != notLeader {
		t.Fatalf("error %v", err)
	}
	m.doubts.end(g.id)
	m.round()
	g.want("12", "12")
	good(t, m.addHere(soon(t), g.id, 3))
	g.want("123l", "123")
}

// A member that is out of service is replaced by another one on its node, unless it is the only one.
func TestADamagedMemberIsReplaced(t *testing.T) {
	c := newTown(t, 3)
	g, single := c.queue("q", 1, 2, 3), c.queue("single", 3)
	c.mu.Lock()
	c.ruined[3] = true
	c.mu.Unlock()
	m := c.nodes[3]
	m.mend()
	m.loop.Wait()
	g.want("123l", "123")
	if id := g.members[2].ID; id == 3 {
		t.Error("the member is the old one")
	}
	single.want("3", "3")
}

// A queue that gets no new member yet does not keep others from getting theirs, and has its own as soon as that can be.
func TestADamagedMemberIsReplacedLater(t *testing.T) {
	c := newTown(t, 3)
	g, other := c.queue("q", 1, 2, 3), c.queue("other", 1, 2, 3)
	c.mu.Lock()
	c.ruined[3] = true
	c.mu.Unlock()
	g.closed = errors.New("not now")
	m := c.nodes[3]
	mend := func() {
		m.mend()
		m.loop.Wait()
	}
	mend()
	g.want("12", "12")
	other.want("123l", "123")
	mend()
	g.want("12", "12")
	other.want("123l", "123")
	g.closed = nil
	mend()
	g.want("123l", "123")
	if mend(); len(m.owed) > 0 {
		t.Error("members are owed")
	}
}

// An order finds the leader when it has changed, and when the one that was asked falls silent.
func TestTheLeaderIsElsewhere(t *testing.T) {
	c := newTown(t, 4)
	g := c.queue("q", 1, 2, 3)
	c.mu.Lock()
	c.silent[1] = true
	c.mu.Unlock()
	answered := make(chan error)
	go func() { answered <- c.nodes[4].Add(soon(t), "/", "q", "n4") }()
	for asked := false; !asked; {
		a := c.nodes[4].asker
		a.mu.Lock()
		asked = len(a.pending) > 0
		a.mu.Unlock()
	}
	c.mu.Lock()
	c.down[1], g.leader = true, 3
	c.mu.Unlock()
	c.nodes[4].Lost(1)
	good(t, <-answered)
	g.want("1234l", "1234")
}

// R137, R139: a member counts for the majority if it is heard and has caught up.
func TestQuorumCritical(t *testing.T) {
	c := newTown(t, 3)
	a, b := c.queue("a", 1, 2, 3), c.queue("b", 2, 1, 3)
	critical := func(node uint64) (names string) {
		t.Helper()
		r, err := c.nodes[node].Critical(soon(t))
		good(t, err)
		for _, q := range r.Queues {
			names += q.Name
		}
		return names
	}
	if got := critical(1); got != "" {
		t.Errorf("critical: %s", got)
	}
	b.behind[3] = true
	if got := critical(1); got != "b" {
		t.Errorf("critical: %s, want b", got)
	}
	if got := critical(3); got != "" { // it is the one that lags
		t.Errorf("critical: %s", got)
	}
	c.down[3] = true
	if got := critical(2); got != "ab" {
		t.Errorf("critical: %s, want ab", got)
	}
	c.down[3] = false
	a.leader = 0 // nobody leads
	if got := critical(1); got != "ab" {
		t.Errorf("critical: %s, want ab", got)
	}
	c.must(catalog.SetDrained(1, true))
	if r, err := c.nodes[1].Critical(soon(t)); err != nil || !r.Maintenance || len(r.Queues) > 0 {
		t.Errorf("in maintenance: %+v, %v", r, err)
	}
}

func TestQuorumStatus(t *testing.T) {
	c := newTown(t, 4)
	g := c.queue("q", 2, 1, 3)
	g.behind[3] = true
	c.down[1] = true
	rows, err := c.nodes[4].Status(soon(t), "/", "q")
	good(t, err)
	var got []string
	for _, r := range rows {
		lag := "?"
		if r.Lag != nil {
			lag = fmt.Sprint(*r.Lag)
		}
		got = append(got, fmt.Sprint(r.Node, " ", r.State, " ", r.Membership, " ", r.Last, " ", r.Snapshot, " ", lag, " ", r.Nacked))
	}
	want := "n1 nodedown  0 0 0 0|n2 leader voter 100 50 0 102|n3 follower voter 100 50 90 103"
	if s := strings.Join(got, "|"); s != want {
		t.Errorf("have %s\nwant %s", s, want)
	}

	// A member that is on its way to be one has no vote, though it does not know yet. R143
	g.blank = map[uint64]bool{3: true}
	rows, err = c.nodes[4].Status(soon(t), "/", "q")
	good(t, err)
	if r := rows[2]; r.Membership != "promotable" || r.Last != 0 {
		t.Errorf("a member that knows nothing is shown as %+v", r)
	}
}

// A queue that no node says it leads is found, and one that is being elected is waited for.
func TestQueuesWithoutALeader(t *testing.T) {
	c := newTown(t, 3)
	a, _ := c.queue("a", 1, 2, 3), c.queue("b", 2, 3)
	m := c.nodes[1]
	without := func(only mgmt.Patterns) (names string) {
		t.Helper()
		list, err := m.Leaderless(soon(t), only)
		good(t, err)
		for _, q := range list {
			names += q.Readable + ";"
		}
		return names
	}
	m.patience = func(_ uint64, d time.Duration) time.Duration {
		if d == leaderlessPause {
			return time.Millisecond
		}
		return d
	}
	if got := without(mgmt.Patterns{}); got != "" {
		t.Errorf("without a leader: %s", got)
	}
	c.mu.Lock()
	a.leader = 0
	c.mu.Unlock()
	if got := without(mgmt.Patterns{VHost: "^/$"}); got != "queue 'a' in vhost '/';" {
		t.Errorf("without a leader: %s", got)
	}
	if got := without(mgmt.Patterns{Queue: "^b"}); got != "" {
		t.Errorf("without a leader: %s", got)
	}
	m.patience = func(_ uint64, d time.Duration) time.Duration {
		if d == leaderlessPause { // it is elected meanwhile
			c.mu.Lock()
			a.leader = 3
			c.mu.Unlock()
			return time.Millisecond
		}
		return d
	}
	if got := without(mgmt.Patterns{}); got != "" {
		t.Errorf("without a leader: %s", got)
	}
	c.mu.Lock()
	a.leader, c.down[3] = 3, true
	c.mu.Unlock()
	if got := without(mgmt.Patterns{}); got != "queue 'a' in vhost '/';" {
		t.Errorf("without a leader that answers: %s", got)
	}
	_, err := m.Leaderless(soon(t), mgmt.Patterns{Queue: "("})
	bad(t, err, broker.Invalid, "not a regular expression")
}
