package blackbox

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"holdfast/test/rig"
)

// bulk is how many bytes a node has received from another one on the lane of whole states, over all links.
func (m *member) bulk(from string) float64 {
	m.t.Helper()
	return must(m.Series("/metrics"))(m.t)[fmt.Sprintf(`holdfast_peer_received_bytes_total{lane="bulk",peer=%q}`, from)]
}

// seatOf is the row of quorum_status about a member, as another node tells it.
func (n *node) seatOf(queue, name string) (s seat) {
	n.t.Helper()
	list := n.members(queue)
	if i := slices.IndexFunc(list, func(s seat) bool { return s.Node == name }); i >= 0 {
		s = list[i]
	}
	return s
}

// adds has a queue get a member, and waits until it votes. The node may not be seen up yet.
func (n *node) adds(queue, name string) {
	n.t.Helper()
	until(n.t, name+" has a vote", func() bool {
		s := n.seatOf(queue, name)
		if s.Membership == "" {
			_, _ = n.Ctl("add_member", queue, name)
		}
		return s.Membership == "voter"
	})
}

// alone makes the member on a node the only one of a queue, as soon as it has seen that it has no majority: it may have led.
func (m *member) alone(queue string) {
	m.t.Helper()
	until(m.t, "the queue is shrunk to the member on "+m.name, func() bool {
		_, err := m.Ctl("force_shrink_member_to_current_member", queue)
		return err == nil
	})
}

// R143: a queue with a large backlog gets another member while publishes go on. It is sent the state beside them and has no vote before it
// has all; when the link breaks half-way, it goes on where it was and does not begin anew; publishers notice nothing. What it has
// then is the whole queue.
func TestQuorumCatchUpWithALargeBacklog(t *testing.T) {
	t.Parallel()
	long(t)
	w := newWeb(t, 4)
	q := w.quorum(0, "q")
	const messages, size = 12_000, 32 << 10
	const backlog = messages * size
	pad := strings.Repeat("x", size-8)
	ch := w.node[0].confirming()
	for at := 0; at < messages; at += 400 {
		var bodies []string
		for i := at; i < at+400; i++ {
			bodies = append(bodies, fmt.Sprintf("%08d%s", i, pad))
		}
		if !all(publishes(t, ch, "", q, bodies...), true) {
			t.Fatal("a publish of the backlog was nacked")
		}
	}
	w.caughtUp(q, 0)
	w.lead(q, 0)
	w.Net.Set("n1", "n4", rig.Way{Rate: 40 << 20}) // so that half-way can be seen
	d := w.node[1].drip(q, "d", 100)
	d.flows(100)
	order := make(chan error, 1)
	go func() { _, err := w.node[2].Ctl("add_member", q, "n4", "--timeout", "60"); order <- err }()
	until(t, "half of it is there", func() bool { return w.node[3].bulk("n1") > backlog/2 })
	_, before, _ := d.counts()
	if s := w.node[0].seatOf(q, "n4"); s.Membership == "voter" {
		t.Errorf("it votes with half of the queue: %+v", s)
	}
	half := w.node[3].bulk("n1")
	w.Isolate(w.Nodes[3], rig.Way{Cut: true})
	d.flows(200)
	if s := w.node[0].seatOf(q, "n4"); s.Membership == "voter" {
		t.Errorf("it votes with half of the queue: %+v", s)
	}
	w.Net.Heal()
	t.Logf("add_member: %v", <-order)
	untilIn(t, time.Minute, "it votes", func() bool { return w.node[0].seatOf(q, "n4").Membership == "voter" })
	_, after, _ := d.counts()
	if after-before < 200 {
		t.Errorf("%d publishes were confirmed meanwhile", after-before)
	}
	sent, _, nacks := d.end()
	if nacks != 0 {
		t.Errorf("%d of %d publishes were nacked while a member was added", nacks, sent)
	}
	w.caughtUp(q, 0)
	all := w.node[3].bulk("n1")
	t.Logf("the backlog is %d MiB: %.0f MiB came before the break, %.0f MiB in all", backlog>>20, half/(1<<20), all/(1<<20))
	if all > backlog*1.25 {
		t.Errorf("%.0f MiB came: it began anew", all/(1<<20))
	}

	// It alone is left, and has everything.
	for _, name := range []string{"n1", "n2", "n3"} {
		until(t, name+" is not a member any more", func() bool {
			_, _ = w.node[3].Ctl("delete_member", q, name)
			return !slices.Contains(w.node[3].listing(q).Members, name)
		})
	}
	until(t, "n4 leads", func() bool { return w.node[3].listing(q).Leader == "n4" })
	in := must(w.node[3].open().Consume(q, "", true, false, false, false, nil))(t)
	for i := range messages {
		if got := string(next(t, in).Body); len(got) != size || got[:8] != fmt.Sprintf("%08d", i) {
			t.Fatalf("message %d has %d bytes and begins %q", i, len(got), got[:min(8, len(got))])
		}
	}
	for i := range sent {
		equal(t, "published meanwhile", string(next(t, in).Body), fmt.Sprintf("d-%05d", i))
	}
}

// R135 R136 R137 R139: a node that is up need not have caught up: its member goes on from where its own log ends, over a slow link here,
// and counts for nothing until it is there.
// R138: that it answers says nothing of that.
func TestQuorumUpIsNotCaughtUp(t *testing.T) {
	t.Parallel()
	heavy(t)
	w := newWeb(t, 3)
	q := w.quorum(0, "q")
	ch := w.node[1].confirming()
	const first, more = 1200, 400
	if refused := fill(t, ch, q, 0, first); refused != nil {
		t.Fatalf("nacked: %v", refused)
	}
	w.caughtUp(q, 0)
	ok(t, w.node[2].Stop())
	if refused := fill(t, ch, q, first, first+more); refused != nil {
		t.Fatalf("nacked: %v", refused)
	}
	for _, from := range []string{"n1", "n2"} {
		w.Net.Set(from, "n3", rig.Way{Rate: 256 << 10})
	}
	ok(t, w.node[2].Launch()) // it may take as long as the catching up until it is ready
	w.node[0].known("n1", "n2", "n3")
	s := w.node[0].seatOf(q, "n3")
	if s.Last == w.node[0].seatOf(q, "n1").Last && s.Last != "" {
		t.Fatalf("it has caught up already: %+v", s)
	}
	if code, text := w.node[1].fails("check_if_node_is_quorum_critical"); code != 69 || !strings.Contains(text, "would lose quorum") {
		t.Errorf("a node may be stopped that is needed: code %d, %s", code, text)
	}
	w.Net.Heal()
	ok(t, w.node[2].Ready())
	w.caughtUp(q, 0)
	until(t, "a node may be stopped", func() bool { _, err := w.node[1].Ctl("check_if_node_is_quorum_critical"); return err == nil })
	came := 0.0
	series := must(w.node[2].Series("/metrics"))(t)
	for _, from := range []string{"n1", "n2"} {
		for _, lane := range []string{"data", "bulk"} {
			came += series[fmt.Sprintf(`holdfast_peer_received_bytes_total{lane=%q,peer=%q}`, lane, from)]
		}
	}
	t.Logf("it lacked %d MiB and was sent %.1f MiB", more*32>>10, came/(1<<20))
	if came < more*32<<10 || came > (more+first/2)*32<<10 {
		t.Errorf("it lacked %d MiB of %d, and was sent %.1f MiB", more*32>>10, (first+more)*32>>10, came/(1<<20))
	}
	ok(t, w.node[0].Kill())
	drained(t, w.node[2].open(), q, first+more)
}

// R129: a majority of a queue's members is lost for good while the cluster goes on. The lost nodes are forgotten; the queue is shrunk to the
// member that is left, and serves again with everything that it had, to the consumers that had waited, too; it gets members again.
// A queue of which no member is left is gone with the last one's node, and can be declared anew.
func TestQuorumNodesAreLostForGood(t *testing.T) {
	t.Parallel()
	long(t)
	w := newWeb(t, 5)
	q := w.quorum(0, "q")
	for _, name := range w.node[0].listing(q).Members { // its members are to be on the first three
		if name > "n3" {
			for _, m := range w.node[1:3] {
				if !slices.Contains(w.node[0].listing(q).Members, m.name) {
					w.node[0].adds(q, m.name)
					break
				}
			}
			w.node[0].does("delete_member", q, name)
		}
	}
	until(t, "the members are on the first three", func() bool { return fmt.Sprint(w.node[4].listing(q).Members) == "[n1 n2 n3]" })
	must(w.node[0].open().QueueDeclare("dead", true, false, false, false, amqp.Table{"x-queue-type": "quorum", "x-quorum-initial-group-size": 1}))(t)
	must(w.node[1].open().QueueDeclare("home-is-lost", true, false, false, false, nil))(t)
	if !all(publishes(t, w.node[4].confirming(), "", "dead", several("gone", 10)...), true) {
		t.Fatal("nacked")
	}
	if !all(publishes(t, w.node[4].confirming(), "", q, several("a", 500)...), true) {
		t.Fatal("nacked")
	}
	w.caughtUp(q, 4)
	waits := w.node[3].open()
	ok(t, waits.Qos(10, 0, false))
	in := consume(t, waits, q)
	var held []amqp.Delivery
	for range 10 {
		held = append(held, next(t, in))
	}
	w.caughtUp(q, 4)
	for _, m := range w.node[:2] {
		ok(t, m.Kill())
		m.wipe()
	}
	until(t, "it is noticed", func() bool { return w.node[2].listing(q).State == "minority" })
	w.node[3].refuses(69, "has no member on this node", "force_shrink_member_to_current_member", q)
	for _, name := range []string{"n1", "n2"} {
		w.node[3].does("forget_cluster_node", name)
	}
	for _, m := range w.node[2:] {
		m.known("n3", "n4", "n5")
		m.absent("home-is-lost")
		m.said("first=[dead]")
		m.said("first=[home-is-lost]")
	}
	w.node[2].alone(q)
	until(t, "one member is left, and leads", func() bool {
		l := w.node[4].listing(q)
		return fmt.Sprint(l.Members) == "[n3]" && l.Leader == "n3"
	})
	if !all(publishes(t, w.node[4].confirming(), "", q, several("b", 50)...), true) {
		t.Error("nacked after the shrink")
	}
	for _, d := range held { // they are still its own
		ok(t, d.Ack(false))
	}
	for i := 10; i < 550; i++ {
		want := fmt.Sprintf("a-%05d", i)
		if i >= 500 {
			want = fmt.Sprintf("b-%05d", i-500)
		}
		d := next(t, in)
		if string(d.Body) != want || d.Redelivered {
			t.Fatalf("delivery %d is %q, redelivered %v; want %q", i, d.Body, d.Redelivered, want)
		}
		ok(t, d.Ack(false))
	}
	ok(t, waits.Close())
	for _, name := range []string{"n4", "n5"} {
		w.node[3].adds(q, name)
	}
	if !all(publishes(t, w.node[3].confirming(), "", q, several("c", 50)...), true) {
		t.Error("nacked with three members again")
	}
	ok(t, w.node[2].Kill())
	w.leading(q, 3, "n3")
	for _, body := range several("c", 50) {
		equal(t, "after another loss", string(get(t, w.node[4].open(), q, true).Body), body)
	}

	// The other queue, of which no member was left, went with its node, and the log says so.
	w.node[3].absent("dead")
	w.node[4].absent("dead")
	w.node[4].refuses(65, "", "force_delete", "dead")
	must(w.node[3].open().QueueDeclare("dead", true, false, false, false, quorumArgs))(t)
	empty(t, w.node[4].open(), "dead") // R212
	if !all(publishes(t, w.node[3].confirming(), "", "dead", "anew"), true) {
		t.Error("the new queue of that name nacks")
	}
	equal(t, "in the new one", string(get(t, w.node[4].open(), "dead", true).Body), "anew")
}

// R26: what the clients of a node held that is lost, and forgotten before it counts as gone, goes back to the queues.
func TestQuorumHeldByANodeThatIsForgotten(t *testing.T) {
	t.Parallel()
	w := newWeb(t, 3)
	q := w.quorum(0, "q")
	if !all(publishes(t, w.node[1].confirming(), "", q, several("h", 10)...), true) {
		t.Fatal("nacked")
	}
	held := w.node[2].open()
	ok(t, held.Qos(5, 0, false))
	in := consume(t, held, q)
	for range 5 {
		next(t, in)
	}
	ok(t, w.node[2].Kill())
	until(t, "n3 can be forgotten", func() bool { _, err := w.node[0].Ctl("forget_cluster_node", "n3"); return err == nil })
	in = consume(t, w.node[1].open(), q)
	got := map[string]bool{}
	for len(got) < 10 {
		d := next(t, in)
		if first := string(d.Body) < "h-00005"; first != d.Redelivered || got[string(d.Body)] {
			t.Errorf("%s comes, redelivered %v", d.Body, d.Redelivered)
		}
		got[string(d.Body)] = true
		ok(t, d.Ack(false))
	}
}

// force_delete also deletes a queue that is whole, whose members are away, and one that lives on a node that is.
func TestQuorumForceDelete(t *testing.T) {
	t.Parallel()
	long(t)
	w := newWeb(t, 5)
	whole := w.quorum(0, "whole", "x-quorum-initial-group-size", 3)
	publishes(t, w.node[4].confirming(), "", whole, several("x", 20)...)
	consumer := w.node[3].open()
	cancelled := consumer.NotifyCancel(make(chan string, 1))
	must(consumer.Consume(whole, "told", false, false, false, false, nil))(t)
	w.node[4].does("force_delete", whole)
	equal(t, "cancelled", <-cancelled, "told")
	for _, m := range w.node {
		m.absent(whole)
	}

	away := w.quorum(0, "away", "x-quorum-initial-group-size", 2)
	other := w.node[0].listing(away).Members[1]
	publishes(t, w.node[4].confirming(), "", away, several("x", 20)...)
	var lost []*member
	for _, m := range w.node {
		if m.name == "n1" || m.name == other {
			lost = append(lost, m)
			ok(t, m.Kill())
		}
	}
	left := slices.DeleteFunc(slices.Clone(w.node), func(m *member) bool { return slices.Contains(lost, m) })
	left[0].does("force_delete", away)
	left[1].absent(away)
	must(left[2].open().QueueDeclare(away, true, false, false, false, quorumArgs))(t)
	if !all(publishes(t, left[0].confirming(), "", away, "anew"), true) {
		t.Error("the new queue of that name nacks")
	}
	for _, m := range lost { // they come back, and have nothing of the old one to say
		ok(t, m.Start())
	}
	for _, m := range w.node {
		var rows []listed
		ok(t, json.Unmarshal([]byte(m.does("list_queues", "name", "messages", "--formatter", "json")), &rows))
		if len(rows) != 1 {
			t.Errorf("%s lists %+v", m.name, rows)
		}
		equal(t, "messages on "+m.name, depth(t, m.open(), away), 1)
	}
	until(t, "nothing is left of it in the logs", func() bool {
		for _, m := range lost {
			if g := must(m.Gauges())(t); g["holdfast_log_orphans"] != 0 || g["holdfast_log_live_messages"] > 5 {
				return false
			}
		}
		return true
	})
	equal(t, "body", string(get(t, lost[0].open(), away, true).Body), "anew")
}
