package blackbox

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

var quorumArgs = amqp.Table{"x-queue-type": "quorum"}

// seat is a row of quorum_status.
type seat struct {
	Node       string `json:"Node Name"`
	State      string `json:"Raft State"`
	Membership string `json:"Membership"`
	Last       any    `json:"Last Log Index"`
	Lag        any    `json:"Lag"`
}

func (n *node) members(queue string) (list []seat) {
	n.t.Helper()
	ok(n.t, json.Unmarshal([]byte(must(n.Ctl("quorum_status", queue, "--formatter", "json"))(n.t)), &list))
	return list
}

// seats is quorum_status in short: "n1*,n2,n3?" — a star leads, what has no vote has a question mark, what is away is in
// brackets.
func (n *node) seats(queue string) string {
	n.t.Helper()
	var parts []string
	for _, m := range n.members(queue) {
		switch {
		case m.State == "leader":
			m.Node += "*"
		case m.State != "follower":
			m.Node = "[" + m.Node + "]"
		case m.Membership != "voter":
			m.Node += "?"
		}
		parts = append(parts, m.Node)
	}
	return strings.Join(parts, ",")
}

func (n *node) seated(queue, want string) {
	n.t.Helper()
	last := ""
	defer func() {
		if n.t.Failed() {
			n.t.Logf("members of %s: %s", queue, last)
		}
	}()
	until(n.t, "the members are "+want, func() bool { last = n.seats(queue); return last == want })
}

// confirmed publishes to a queue and checks that every message is confirmed; while runs after the first half.
func (n *node) confirmed(queue string, count int, while func()) {
	n.t.Helper()
	ch := n.open()
	ok(n.t, ch.Confirm(false))
	var waits []*amqp.DeferredConfirmation
	for i := range count {
		if i == count/2 && while != nil {
			while()
		}
		waits = append(waits, must(ch.PublishWithDeferredConfirmWithContext(context.Background(), "", queue, false, false,
			amqp.Publishing{DeliveryMode: amqp.Persistent, Body: fmt.Appendf(nil, "%s-%06d", n.tag(), i)}))(n.t))
		if i%100 == 99 && !must(waits[i-50].WaitContext(n.t.Context()))(n.t) {
			n.t.Fatalf("message %d is not confirmed", i-50)
		}
	}
	for i, w := range waits {
		if !must(w.WaitContext(n.t.Context()))(n.t) {
			n.t.Errorf("message %d is not confirmed", i)
		}
	}
}

// tag names what was published through the node.
func (n *node) tag() string { return n.Extra[1] }

// R118, R119: the leader's node dies, or is stopped, under load. Publishers and consumers on the others notice nothing but a pause:
// every publish is confirmed and delivered, once and in order. When the node is back, its member catches up. R136
// R190: nobody has to do anything for it. R270: both ways of ending.
func TestQuorumLeaderEnds(t *testing.T) {
	for how, end := range map[string]func(*node) error{
		"killed":  func(n *node) error { return n.Kill() },
		"stopped": func(n *node) error { return n.Stop() },
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			tr := newTrio(t)
			tr.start(0, 1, 2)
			must(tr.nodes[0].open().QueueDeclare("q", true, false, false, false, quorumArgs))(t)
			tr.nodes[1].seated("q", "n1*,n2,n3")
			const each = 2000
			got := map[string][]string{}
			done := make(chan struct{})
			consumer := tr.nodes[2].open()
			ok(t, consumer.Qos(100, 0, false))
			deliveries := must(consumer.Consume("q", "", false, false, false, false, nil))(t)
			go func() {
				defer close(done)
				for n := range 2 * each {
					d, open := <-deliveries
					if !open {
						t.Errorf("the consumer was cancelled after %d messages", n)
						return
					}
					from := strings.SplitN(string(d.Body), "-", 2)[0]
					got[from] = append(got[from], string(d.Body))
					if err := d.Ack(false); err != nil {
						t.Error(err)
						return
					}
				}
			}()
			var ended sync.Once
			var all sync.WaitGroup
			for _, n := range tr.nodes[1:] {
				all.Go(func() {
					n.confirmed("q", each, func() { ended.Do(func() { ok(t, end(tr.nodes[0])) }) })
				})
			}
			all.Wait()
			<-done
			for _, n := range tr.nodes[1:] {
				want := make([]string, each)
				for i := range want {
					want[i] = fmt.Sprintf("%s-%06d", n.tag(), i)
				}
				if !slices.Equal(got[n.tag()], want) {
					t.Errorf("of %d messages of %s came %d, or not in their order, or twice", each, n.tag(), len(got[n.tag()]))
				}
			}
			ok(t, tr.nodes[0].Start())
			until(t, "the member of the node that came back has caught up", func() bool {
				list := tr.nodes[1].members("q")
				return len(list) == 3 && list[0].Last != "" && list[0].Last == list[1].Last && list[0].Last == list[2].Last
			})
		})
	}
}

// R137 R144: members are added, removed and moved by orders to any node.
func TestQuorumMembership(t *testing.T) {
	t.Parallel()
	tr := newTrio(t)
	tr.start(0, 1, 2)
	a, b, c := tr.nodes[0], tr.nodes[1], tr.nodes[2]
	fails := func(n *node, says string, args ...string) {
		t.Helper()
		if out, err := n.Ctl(args...); err == nil || !strings.Contains(out+err.Error(), says) {
			t.Errorf("%v: %v, %s; want %q", args, err, out, says)
		}
	}
	must(a.open().QueueDeclare("q", true, false, false, false, amqp.Table{"x-queue-type": "quorum", "x-quorum-initial-group-size": 1}))(t)
	a.confirmed("q", 500, nil)
	c.seated("q", "n1*")
	must(c.Ctl("add_member", "q", "n2"))(t)
	b.seated("q", "n1*,n2")
	must(b.Ctl("grow", "n3", "even"))(t)
	a.seated("q", "n1*,n2,n3")
	must(c.Ctl("transfer_leadership", "q", "n3"))(t)
	a.seated("q", "n1,n2,n3*")
	fails(a, "already the leader", "transfer_leadership", "q", "n3")
	must(a.Ctl("delete_member", "q", "n1"))(t)
	fails(a, "has no member on this node", "force_shrink_member_to_current_member", "q")
	b.seated("q", "n2,n3*")
	fails(b, "would lose quorum if node n2 is stopped", "check_if_node_is_quorum_critical")
	must(a.Ctl("check_if_node_is_quorum_critical"))(t)
	a.confirmed("q", 100, nil) // a node without a member
	must(a.Ctl("add_member", "q", "n1"))(t)
	b.seated("q", "n1,n2,n3*")
	must(b.Ctl("check_if_node_is_quorum_critical"))(t)
	must(b.Ctl("shrink", "n3"))(t)
	until(t, "another leads", func() bool { s := b.seats("q"); return s == "n1*,n2" || s == "n1,n2*" })
	if out := must(c.Ctl("list_queues", "-s", "name", "type", "members", "online"))(t); out != "q\tquorum\t[n2, n1]\t[n2, n1]\n" {
		t.Errorf("listed as %q", out)
	}
	must(c.Ctl("shrink", "n1"))(t)
	fails(c, "last_node", "delete_member", "q", "n2")
	if got := must(a.open().QueueDelete("q", false, false, false))(t); got != 600 {
		t.Errorf("%d messages went with the queue, not 600", got)
	}
	fails(a, "no queue 'q'", "quorum_status", "q")
}

// A node in maintenance leads nothing; afterwards leaders can be spread again.
func TestQuorumDrainAndRebalance(t *testing.T) {
	t.Parallel()
	tr := newTrio(t)
	tr.start(0, 1, 2)
	ch := tr.nodes[0].open()
	for i := range 12 {
		must(ch.QueueDeclare(fmt.Sprint("q", i), true, false, false, false, quorumArgs))(t)
	}
	leaders := func() string {
		counts := map[string]int{}
		for _, leader := range strings.Fields(must(tr.nodes[1].Ctl("list_queues", "-s", "leader"))(t)) {
			counts[leader]++
		}
		return fmt.Sprint(counts)
	}
	until(t, "all are led by the first", func() bool { return leaders() == "map[n1:12]" })
	must(tr.nodes[2].Ctl("rebalance", "quorum"))(t)
	until(t, "all lead some", func() bool { return leaders() == "map[n1:4 n2:4 n3:4]" })
	must(tr.nodes[0].Ctl("drain"))(t)
	until(t, "the first leads nothing", func() bool { return leaders() == "map[n2:6 n3:6]" })
	must(ch.QueueDeclare("new", true, false, false, false, quorumArgs))(t)
	until(t, "nor what is new", func() bool { return leaders() == "map[n2:7 n3:6]" || leaders() == "map[n2:6 n3:7]" })
	until(t, "the others know", func() bool {
		return strings.Contains(must(tr.nodes[1].Ctl("cluster_status"))(t), "Node: n1, status: marked for maintenance")
	})
	must(tr.nodes[0].Ctl("revive"))(t)
	must(tr.nodes[0].Ctl("rebalance", "all"))(t)
	until(t, "all lead some again", func() bool { return strings.Contains(leaders(), "n1:4") })
}

// R129: two of three nodes are lost for good. The queue is shrunk to what is left, or deleted.
func TestQuorumMajorityIsLost(t *testing.T) {
	t.Parallel()
	tr := newTrio(t)
	tr.start(0, 1, 2)
	must(tr.nodes[0].open().QueueDeclare("q", true, false, false, false, quorumArgs))(t)
	tr.nodes[0].confirmed("q", 100, nil)
	tr.nodes[2].seated("q", "n1*,n2,n3")
	until(t, "the third has all", func() bool { return fmt.Sprint(tr.nodes[2].members("q")[2].Lag) == "0" })
	ok(t, tr.nodes[0].Kill())
	ok(t, tr.nodes[1].Kill())
	until(t, "it is noticed", func() bool { return tr.nodes[2].seats("q") == "[n1],[n2],[n3]" })
	listed := ""
	defer func() {
		if t.Failed() {
			t.Logf("listed as %q", listed)
		}
	}()
	until(t, "the listing says so", func() bool {
		listed = must(tr.nodes[2].Ctl("list_queues", "-s", "name", "state", "leader", "online"))(t)
		return listed == "q\tminority\t\t[n3]\n"
	})
	must(tr.nodes[2].Ctl("force_shrink_member_to_current_member", "q"))(t)
	ch := tr.nodes[2].open()
	for i := range 100 {
		d, got, err := ch.Get("q", true)
		if want := fmt.Sprintf("n1-%06d", i); err != nil || !got || string(d.Body) != want {
			t.Fatalf("message %d: %v, %v, %q", i, got, err, d.Body)
		}
	}
}
