package members

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"holdfast/internal/broker"
	"holdfast/internal/mgmt"
	"holdfast/internal/wire"
)

func table(pairs ...any) wire.Table {
	m := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i].(string)] = pairs[i+1]
	}
	return wire.NewTable(m)
}

func told1(results []mgmt.MemberResult) string {
	var b strings.Builder
	for _, r := range results {
		fmt.Fprintf(&b, "%s %d %s;", r.Name, r.Size, r.Result)
	}
	return b.String()
}

func TestGrowAndShrink(t *testing.T) {
	c := newTown(t, 3)
	a, b, d := c.queue("a", 1), c.queue("b", 2, 1), c.queue("d", 3)
	r, err := c.nodes[2].Grow(soon(t), "n3", true, mgmt.Patterns{})
	good(t, err)
	if got := told1(r); got != "b 3 ok;" {
		t.Errorf("even: %s", got)
	}
	r, err = c.nodes[2].Grow(soon(t), "n3", false, mgmt.Patterns{VHost: "^/$", Queue: "^a|b$"})
	good(t, err)
	if got := told1(r); got != "a 2 ok;" {
		t.Errorf("all: %s", got)
	}
	for _, g := range []*group{a, b} {
		for _, id := range []uint64{1, 2} {
			c.nodes[id].Look(g.id)
			c.nodes[id].round()
		}
	}
	a.want("13", "13")
	b.want("123", "213")
	r, err = c.nodes[1].Shrink(soon(t), "n3")
	good(t, err)
	if got := told1(r); got != "a 1 ok;b 2 ok;d 1 error: the last node cannot be removed;" {
		t.Errorf("shrink: %s", got)
	}
	a.want("1", "1")
	b.want("12", "21")
	d.want("3", "3")
	_, err = c.nodes[1].Shrink(soon(t), "n9")
	bad(t, err, broker.Invalid, "n9")
}

func leaders(c *town, all []*group) (s string) {
	counts := map[uint64]int{}
	for _, g := range all {
		counts[c.leaderOf(g.id)]++
	}
	for id := uint64(1); id <= uint64(len(c.nodes)); id++ {
		s += fmt.Sprint(counts[id], " ")
	}
	return s
}

func TestRebalance(t *testing.T) {
	c := newTown(t, 3)
	var all []*group
	for i := range 9 {
		all = append(all, c.queue(fmt.Sprint("q", i), 1, 2, 3))
	}
	rows, err := c.nodes[3].Rebalance(soon(t), mgmt.Patterns{Queue: "q"})
	good(t, err)
	if got := leaders(c, all); got != "3 3 3 " {
		t.Errorf("leaders: %s", got)
	}
	if got := fmt.Sprint(rows); got != "[{n1 3} {n2 3} {n3 3}]" {
		t.Errorf("said %s", got)
	}
}

// R494: a node with an alarm is given nothing to lead, and what it leads goes to others.
func TestRebalanceWithAnAlarm(t *testing.T) {
	c := newTown(t, 3)
	var all []*group
	for i := range 4 {
		first := uint64(1 + i%2)
		all = append(all, c.queue(fmt.Sprint("q", i), first, 3-first, 3))
	}
	c.alarmed[2] = true
	_, err := c.nodes[1].Rebalance(soon(t), mgmt.Patterns{})
	good(t, err)
	if got := leaders(c, all); got != "2 0 2 " {
		t.Errorf("leaders: %s", got)
	}
}

// A node in maintenance leads nothing, not even what comes to it by an election; a queue that nobody else could lead stays.
func TestDrainAndRevive(t *testing.T) {
	c := newTown(t, 3)
	var all []*group
	for i := range 4 {
		all = append(all, c.queue(fmt.Sprint("q", i), 2, 1, 3))
	}
	single := c.queue("single", 2)
	d, err := c.nodes[2].Drain(soon(t))
	good(t, err)
	if d.Moved != 4 || d.Left != 1 || fmt.Sprint(d.To) != "map[n1:2 n3:2]" {
		t.Errorf("drained: %+v", d)
	}
	if got := leaders(c, all); got != "2 0 2 " {
		t.Errorf("leaders: %s", got)
	}
	if on := c.leaderOf(single.id); on != 2 {
		t.Errorf("the queue with one member is led by %d", on)
	}
	all[0].leader = 2 // by an election
	c.nodes[2].Look(all[0].id)
	c.nodes[2].round()
	if on := c.leaderOf(all[0].id); on == 2 {
		t.Error("a node in maintenance keeps a leadership")
	}
	if !c.catalog.View().Node(2).Drained {
		t.Error("the catalog does not know of the maintenance")
	}
	if rows, err := c.nodes[1].Rebalance(soon(t), mgmt.Patterns{}); err != nil || leaders(c, all) != "2 0 2 " {
		t.Errorf("rebalanced: %v, %v", rows, err)
	}
	good(t, c.nodes[2].Revive(soon(t)))
	if c.catalog.View().Node(2).Drained {
		t.Error("the catalog does not know of the end of the maintenance")
	}
}

func TestForceShrink(t *testing.T) {
	c := newTown(t, 3)
	g := c.queue("q", 1, 2, 3)
	c.down[1], c.down[3] = true, true
	good(t, c.nodes[2].ForceShrink(soon(t), "/", "q"))
	g.want("2", "2")
	if g.members[0].ID != 2 {
		t.Errorf("member %d is left", g.members[0].ID)
	}
}

func part(t *testing.T, err error, text string) {
	t.Helper()
	var p *mgmt.Incomplete
	if !errors.As(err, &p) || !strings.Contains(p.Text, text) {
		t.Errorf("error %v, want one that says in part, and %q", err, text)
	}
}

// A node that stands still is waited for a moment, once, and then left out: the order says what it did, and what it could not.
func TestRebalanceWithANodeThatStandsStill(t *testing.T) {
	c := newTown(t, 2)
	var all []*group
	for i := range 4 {
		all = append(all, c.queue(fmt.Sprint("q", i), 1, 2))
	}
	c.silent[2] = true
	c.nodes[1].patience = func(node uint64, d time.Duration) time.Duration {
		if node == 2 {
			return time.Millisecond
		}
		return d
	}
	rows, err := c.nodes[1].Rebalance(soon(t), mgmt.Patterns{})
	part(t, err, "node n2 does not say which quorum queues it leads")
	if got := fmt.Sprint(rows); got != "[{n1 4}]" || leaders(c, all) != "4 0 " {
		t.Errorf("said %s; leaders: %s", got, leaders(c, all))
	}
	d, err := c.nodes[1].Drain(soon(t))
	part(t, err, "node n2 does not say")
	if d.Moved != 0 || d.Left != 4 {
		t.Errorf("drained: %+v", d)
	}
}

// When the node is suspected to be gone nobody waits for it any longer.
func TestASuspectedNodeIsNotWaitedFor(t *testing.T) {
	c := newTown(t, 3)
	var all []*group
	for i := range 4 {
		all = append(all, c.queue(fmt.Sprint("q", i), 1, 2, 3))
	}
	c.silent[3] = true
	type answer struct {
		rows []mgmt.LeaderCount
		err  error
	}
	answered := make(chan answer)
	go func() {
		rows, err := c.nodes[1].Rebalance(soon(t), mgmt.Patterns{})
		answered <- answer{rows, err}
	}()
	for asked := false; !asked; {
		a := c.nodes[1].asker
		a.mu.Lock()
		for _, w := range a.pending {
			asked = asked || w.node == 3
		}
		a.mu.Unlock()
	}
	c.nodes[1].Lost(3)
	a := <-answered
	part(t, a.err, "node n3 does not say")
	if got := fmt.Sprint(a.rows); got != "[{n1 2} {n2 2}]" || leaders(c, all) != "2 2 0 " {
		t.Errorf("said %s; leaders: %s", got, leaders(c, all))
	}
}

// An order for many queues ends with its time, and says of each queue what became of it.
func TestTimeIsOver(t *testing.T) {
	c := newTown(t, 2)
	c.queue("q", 1)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	rows, err := c.nodes[1].Grow(ctx, "n2", false, mgmt.Patterns{})
	good(t, err)
	if got := told1(rows); got != "q 1 error: the time was over before its turn came; ask again;" {
		t.Errorf("grow: %s", got)
	}
	_, err = c.nodes[1].Rebalance(ctx, mgmt.Patterns{})
	part(t, err, "the time was over")
	bad(t, told(broker.ErrOverdue), broker.Unavailable, "no majority")
}
