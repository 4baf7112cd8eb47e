package broker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/internal/catalog"
	"holdfast/internal/clock"
	"holdfast/internal/cluster"
	"holdfast/internal/wire"
)

// village is how the nodes of a cluster of four stand.
type village struct{ down []uint64 }

func (village) Name(node uint64) string { return fmt.Sprint("n", node) }
func (v village) Up(node uint64) bool   { return !slices.Contains(v.down, node) }

func args(pairs ...any) wire.Table {
	m := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i].(string)] = pairs[i+1]
	}
	return wire.NewTable(m)
}

// inCluster makes the rig's node the first of four.
func (r *rig) inCluster(down ...uint64) {
	for id := uint64(1); id <= 4; id++ {
		r.must(catalog.AddNode(catalog.Node{ID: id, Name: fmt.Sprint("n", id)}))
		if id > 1 {
			r.must(catalog.NewIncarnation(id))
		}
	}
	r.others, r.self = village{down}, 1
}

// A quorum queue gets as many members as it asks for or there are nodes, one of them here, and its leader here or where
// there are fewest. R140, R141
func TestWhereAQueueIsPut(t *testing.T) {
	r := newRig(t)
	place := func(pairs ...any) (nodes []uint64, home uint64) {
		d := r.place(catalog.QueueDecl{VHost: vhost, Name: "q", Durable: true, Args: args(pairs...)})
		for _, m := range d.Members {
			if m.ID != m.Node {
				t.Errorf("member %d of the declaration is on node %d", m.ID, m.Node)
			}
			nodes = append(nodes, m.Node)
		}
		return nodes, d.Home
	}
	if nodes, _ := place("x-queue-type", "quorum"); !slices.Equal(nodes, []uint64{1}) {
		t.Errorf("alone: %v", nodes)
	}
	if nodes, home := place(); nodes != nil || home != 0 {
		t.Errorf("a classic queue of a node that is alone: %v, %d", nodes, home)
	}
	r.inCluster(4)
	for range 20 {
		nodes, _ := place("x-queue-type", "quorum")
		if slices.Sort(nodes[1:]); !slices.Equal(nodes, []uint64{1, 2, 3}) { // not on the one that is down
			t.Fatalf("three members: %v", nodes)
		}
		if nodes, _ := place("x-queue-type", "quorum", "x-quorum-initial-group-size", 1); !slices.Equal(nodes, []uint64{1}) {
			t.Fatalf("one member: %v", nodes)
		}
		if nodes, _ := place("x-queue-type", "quorum", "x-quorum-initial-group-size", 9); len(nodes) != 4 || nodes[0] != 1 {
			t.Fatalf("as many as there are: %v", nodes)
		}
	}
	seen := map[uint64]bool{}
	for range 200 {
		nodes, _ := place("x-queue-type", "quorum", "x-queue-leader-locator", "balanced")
		if seen[nodes[0]] = true; !slices.Contains(nodes, 1) {
			t.Fatalf("not here: %v", nodes)
		}
	}
	if len(seen) != 3 || seen[4] {
		t.Errorf("leaders of balanced queues: %v", seen)
	}
	if _, home := place(); home != 0 {
		t.Errorf("a classic queue is not here but on %d", home)
	}
	r.settings.QueueLeaderLocator = "balanced"
	clear(seen)
	for range 200 {
		_, home := place()
		seen[home] = true
	}
	if len(seen) != 3 || seen[4] { // 0: here
		t.Errorf("homes of balanced queues: %v", seen)
	}
	if _, home := place("x-queue-leader-locator", "client-local"); home != 0 {
		t.Errorf("client-local: %d", home)
	}
}

// default_queue_type = quorum is for queues that could be of that type.
func TestDefaultQueueType(t *testing.T) {
	r := newRig(t)
	c := r.connect()
	c.declare(DeclareQueue{Name: "before", Durable: true})
	r.settings.DefaultQueueType = "quorum"
	for _, x := range []struct {
		what string
		d    catalog.QueueDecl
		want catalog.QueueType
	}{
		{"durable", catalog.QueueDecl{Name: "q", Durable: true}, catalog.Quorum},
		{"durable with arguments", catalog.QueueDecl{Name: "q", Durable: true, Args: args("x-quorum-initial-group-size", 1)}, catalog.Quorum},
		{"explicit", catalog.QueueDecl{Name: "q", Durable: true, Args: args("x-queue-type", "classic")}, catalog.Classic},
		{"from before", catalog.QueueDecl{Name: "before", Durable: true}, catalog.Classic},
		{"not durable", catalog.QueueDecl{Name: "q"}, catalog.Classic},
		{"exclusive", catalog.QueueDecl{Name: "q", Durable: true, Exclusive: true}, catalog.Classic},
		{"auto-delete", catalog.QueueDecl{Name: "q", Durable: true, AutoDelete: true}, catalog.Classic},
		{"named by the server", catalog.QueueDecl{Name: "amq.gen-x", ServerNamed: true, Durable: true}, catalog.Classic},
	} {
		x.d.VHost = vhost
		n := x.d.Args.Len()
		if got := catalog.TypeOf(r.withType(x.d).Args); got != x.want {
			t.Errorf("%s: %s", x.what, got)
		}
		if x.d.Args.Len() != n {
			t.Errorf("%s: the request itself was changed", x.what)
		}
	}
}

// A queue that nobody can lead, or leads, is listed as what it is, and explained at once: the queue itself is not asked.
func TestQuorumQueueWithoutALeader(t *testing.T) {
	hands := clock.NewManual(time.Unix(1_700_000_000, 0))
	r := newRigAt(t, hands, nil)
	r.clock = hands
	r.inCluster()
	q := r.must(catalog.DeclareQueue(catalog.QueueDecl{
		VHost: vhost, Name: "q", Durable: true, Args: args("x-queue-type", "quorum"), Members: cluster.AsMembers([]uint64{2, 3, 4}),
	})).Queue
	h := r.make(q)
	explained := func(reason string, words ...string) {
		t.Helper()
		e, err := r.Explain(t.Context(), vhost, "q")
		if err != nil || e.Reason != reason {
			t.Errorf("reason %q, not %q; %v", e.Reason, reason, err)
		}
		all := strings.Join(e.Lines, "\n")
		for _, w := range words {
			if !strings.Contains(all, w) {
				t.Errorf("%q is not in:\n%s", w, all)
			}
		}
	}
	for _, x := range []struct {
		down  []uint64
		state string
		words []string
	}{
		{[]uint64{2, 3, 4}, "down", []string{"0 of its 3 members", "down: n2, n3, n4"}},
		{[]uint64{2, 4}, "minority", []string{"1 of its 3 members", "up: n3", "down: n2, n4", "force_shrink_member_to_current_member"}},
	} {
		r.others = village{x.down}
		list, _, err := r.ListQueues(vhost, QueuePage{})
		if err != nil || len(list) != 1 || list[0].State != x.state || !list[0].Stale {
			t.Errorf("down %v: %+v, %v", x.down, list, err)
		}
		explained("no majority", x.words...)
	}
	r.others = village{[]uint64{4}}
	if info := r.queueInfo(r.view(), q, h); info.State != "running" {
		t.Errorf("a queue that nobody has asked for a leader is listed as %s", info.State)
	}
	answers := make(chan Explanation)
	go func() {
		e, _ := r.Explain(t.Context(), vhost, "q")
		answers <- e
	}()
	eventually(t, "somebody waits", func() bool { return hands.Timers() == 1 })
	hands.Advance(explainWait)
	if e := <-answers; e.Reason != "no leader" {
		t.Errorf("the first one who asks is told %q", e.Reason)
	}
	eventually(t, "it is known that nobody leads", func() bool {
		hands.Advance(time.Second)
		return r.queueInfo(r.view(), q, h).State == "down"
	})
	explained("no leader", "Nobody leads the queue", "up: n2, n3", "down: n4", "quorum_status")
}

// deaf is a way to nodes that never answer.
type deaf struct{}

func (deaf) Self() uint64 { return 1 }

func (deaf) Send(_ uint64, _ bool, add func([]byte) []byte) bool {
	add(nil)
	return true
}

// A queue whose node is not heard is listed and explained at once, though the link to it still stands.
func TestQueueOfANodeThatIsNotHeard(t *testing.T) {
	hands := clock.NewManual(time.Unix(1_700_000_000, 0))
	r := newRigAt(t, hands, deaf{})
	r.clock = hands // nobody moves them
	r.inCluster(2)
	r.queues.LinkUp(2, 1)
	r.must(catalog.DeclareQueue(catalog.QueueDecl{VHost: vhost, Name: "q", Durable: true, Home: 2}))
	list, _, err := r.ListQueues(vhost, QueuePage{})
	if err != nil || len(list) != 1 || list[0].State != "down" || !list[0].Stale {
		t.Errorf("listed: %+v, %v", list, err)
	}
	if consumers, err := r.ListConsumers(vhost); err != nil || len(consumers) != 0 {
		t.Errorf("consumers: %v, %v", consumers, err)
	}
	if e, err := r.Explain(t.Context(), vhost, "q"); err != nil || e.Reason != "down" || len(e.Lines) == 0 || !strings.Contains(e.Lines[0], "n2") {
		t.Errorf("explained: %+v, %v", e, err)
	}
}

// Who explains waits no longer than who has asked.
func TestExplainEndsWithItsCaller(t *testing.T) {
	r := newRig(t)
	r.connect().declare(DeclareQueue{Name: "q"})
	defer r.halt("q")()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Explain(ctx, vhost, "q"); kind(err) != Unavailable {
		t.Errorf("explained: %v", err)
	}
}
