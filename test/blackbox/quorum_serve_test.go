package blackbox

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"holdfast/test/raw"
)

// Four nodes, three members: everything that needs no harm, on one cluster.
func TestQuorumThroughAnyNode(t *testing.T) {
	t.Parallel()
	w := newWeb(t, 4)
	for _, one := range []struct {
		name string
		test func(t *testing.T, w *web)
	}{
		{"placement", placement},
		{"permutations", permutations},
		{"a new leader under an open channel", newLeaderUnderAChannel},
		{"counts", countsEverywhere},
		{"settling", settlingThroughAnyNode},
		{"gets in turn", getsThroughEachNode},
		{"types", typesOfQueues},
		{"fanout to both types", fanoutToBothTypes},
		{"members and leaders", membersAndLeaders},
		{"unlimited prefetch", unlimitedPrefetch},
		{"connections", connectionsOfOneNode},
		{"streams and routes", streamsAndRoutes},
		{"orders that are refused", ordersThatAreRefused},
	} {
		t.Run(one.name, func(t *testing.T) {
			mine := &web{Cluster: w.Cluster, t: t}
			for _, m := range w.node {
				mine.node = append(mine.node, &member{&node{m.Broker, t}, m.name, m.addr})
			}
			one.test(t, mine)
		})
	}
}

// R81 R82 R83: leader on each of three nodes, client on each of four: every publish is confirmed, and they come out in order.
func permutations(t *testing.T, w *web) {
	q := w.quorum(0, "permuted")
	equal(t, "members", fmt.Sprint(w.node[3].listing(q).Members), "[n1 n2 n3]")
	var want []string
	for leader := range 3 {
		w.lead(q, leader)
		for client := range w.node {
			batch := several(fmt.Sprintf("led by %d through %d", leader, client), 100)
			began := time.Now()
			if !all(publishes(t, w.node[client].confirming(), "", q, batch...), true) {
				t.Errorf("leader n%d, client on n%d: a publish was nacked", leader+1, client+1)
			}
			t.Logf("leader n%d, client on n%d: 100 confirmed in %v", leader+1, client+1, time.Since(began))
			want = append(want, batch...)
		}
	}
	ch := w.node[3].open()
	ok(t, ch.Qos(100, 0, false))
	in := consume(t, ch, q)
	for i, body := range want {
		d := next(t, in)
		if string(d.Body) != body || d.Redelivered {
			t.Fatalf("delivery %d is %q (redelivered %v), want %q", i, d.Body, d.Redelivered, body)
		}
		ok(t, d.Ack(false))
	}
}

// R64 R98: the leader moves while a channel publishes and another consumes: neither has to do anything.
func newLeaderUnderAChannel(t *testing.T, w *web) {
	q := w.quorum(0, "moved")
	for client := range w.node {
		d, s := w.node[client].drip(q, fmt.Sprintf("m%d", client), 500), w.node[(client+1)%4].sip(q, nil)
		for k := range 6 {
			d.flows(30)
			w.lead(q, (k+1)%3)
		}
		if _, _, nacks := d.end(); nacks != 0 {
			t.Errorf("client on n%d: %d publishes were nacked", client+1, nacks)
		}
		_, acks, _ := d.counts()
		s.until(acks)
		audit(t, fmt.Sprintf("m%d", client), d, s)
		if s.count() != acks {
			t.Errorf("%d deliveries of %d messages: a leader that hands over redelivers nothing", s.count(), acks)
		}
		ok(t, s.ch.Close())
	}
}

// R85 R86 R104 R147: what is confirmed is kept and counted, without any consumer, on every node and at once.
// R105: ready and unacknowledged are told apart.
func countsEverywhere(t *testing.T, w *web) {
	q := w.quorum(1, "counted")
	for round := range 10 {
		client := round % 4
		if !all(publishes(t, w.node[client].confirming(), "", q, several("x", 10)...), true) {
			t.Fatal("a publish was nacked")
		}
		for _, m := range w.node {
			equal(t, "counted on "+m.name, depth(t, m.open(), q), 10*(round+1))
		}
	}
	ch := w.node[3].open()
	var held []amqp.Delivery
	for range 7 {
		held = append(held, get(t, ch, q, false))
	}
	leader := w.node[w.leading(q, 0)]
	l := leader.listing(q)
	equal(t, "ready, unacked, total", fmt.Sprint(l.Ready, l.Unacked, l.Messages), "93 7 100")
	ok(t, held[6].Ack(true))
	settled(t, ch)
	until(t, "acknowledged is gone", func() bool {
		l := leader.listing(q)
		return l.Ready == 93 && l.Unacked == 0 && l.Messages == 93
	})
}

// R106 R108 R111: prefetch, nack and requeue through a node that has no member, and a consumer that is lost.
// R48: the leader delivers through the node that the consumer is connected to.
func settlingThroughAnyNode(t *testing.T, w *web) {
	q := w.quorum(0, "settled")
	publishes(t, w.node[2].confirming(), "", q, several("s", 6)...)
	ch := w.node[3].open()
	ok(t, ch.Qos(3, 0, false))
	in := consume(t, ch, q)
	first := []amqp.Delivery{next(t, in), next(t, in), next(t, in)}
	quiet(t, ch, in)
	ok(t, first[1].Nack(true, true)) // the first two
	again := []amqp.Delivery{next(t, in), next(t, in)}
	for i, d := range again {
		if string(d.Body) != fmt.Sprintf("s-%05d", i) || !d.Redelivered {
			t.Errorf("back comes %q, redelivered %v", d.Body, d.Redelivered)
		}
	}
	ok(t, again[0].Reject(false))
	fresh := next(t, in)
	equal(t, "after a rejected one comes", string(fresh.Body), "s-00003")
	ok(t, ch.Close()) // it holds 1, 2, 3
	ch = w.node[1].open()
	for i, want := range []string{"s-00001 true", "s-00002 true", "s-00003 true", "s-00004 false", "s-00005 false"} {
		d := get(t, ch, q, true)
		equal(t, fmt.Sprint("message ", i), fmt.Sprint(string(d.Body), " ", d.Redelivered), want)
	}
	empty(t, w.node[0].open(), q)
}

// R12 R13: clients of all nodes get from one queue in turn: each message comes once, in order, and what one has acknowledged no other one sees.
func getsThroughEachNode(t *testing.T, w *web) {
	for kind, q := range map[string]string{"classic": "in-turn", "quorum": w.quorum(1, "in-turn-copied")} {
		if kind == "classic" {
			must(w.node[2].open().QueueDeclare(q, true, false, false, false, nil))(t)
		}
		publishes(t, w.node[0].confirming(), "", q, several("g", 40)...)
		var chans []*amqp.Channel
		for _, m := range w.node {
			chans = append(chans, m.open())
		}
		for i := range 40 {
			d := get(t, chans[i%len(chans)], q, false)
			equal(t, kind, fmt.Sprint(string(d.Body), " ", d.Redelivered), fmt.Sprintf("g-%05d false", i))
			ok(t, d.Ack(false))
		}
		for _, ch := range chans {
			settled(t, ch)
			empty(t, ch, q)
		}
	}
}

// R58 R59: the type is told by x-queue-type alone, classic without it, and stays what it is.
func typesOfQueues(t *testing.T, w *web) {
	must(w.node[0].open().QueueDeclare("plain", true, false, false, false, nil))(t)
	must(w.node[1].open().QueueDeclare("plain", true, false, false, false, amqp.Table{"x-queue-type": "classic"}))(t)
	w.quorum(0, "copied")
	equal(t, "type", w.node[2].listing("plain").Type, "classic")
	equal(t, "type", w.node[2].listing("copied").Type, "quorum")
	_, err := w.node[2].open().QueueDeclare("plain", true, false, false, false, quorumArgs)
	refused(t, err, amqp.PreconditionFailed)
	_, err = w.node[2].open().QueueDeclare("copied", true, false, false, false, nil)
	refused(t, err, amqp.PreconditionFailed)
	for what, declare := range map[string]func(ch *amqp.Channel) error{
		"not durable": func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare("bad", false, false, false, false, quorumArgs)
			return err
		},
		"exclusive": func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare("bad", true, false, true, false, quorumArgs)
			return err
		},
		"auto-delete": func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare("bad", true, true, false, false, quorumArgs)
			return err
		},
		"no type": func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare("bad", true, false, false, false, amqp.Table{"x-queue-type": "quota"})
			return err
		},
	} {
		t.Log(what)
		refused(t, declare(w.node[0].open()), amqp.PreconditionFailed)
	}
	equal(t, "type", w.node[0].listing("plain").Type, "classic")
	equal(t, "type", w.node[0].listing("copied").Type, "quorum")
}

// R63 R65 R66 R93 R94: one exchange feeds a queue of each type; all of it is listed everywhere as soon as it is declared, with the
// members; what has no route is confirmed, and returned before that if mandatory.
// R117: whether a node has a member is in the listing.
func fanoutToBothTypes(t *testing.T, w *web) {
	ch := w.node[1].confirming()
	ok(t, ch.ExchangeDeclare("twofold", "fanout", true, false, false, false, nil))
	must(ch.QueueDeclare("single", true, false, false, false, nil))(t)
	w.quorum(1, "triple")
	for _, q := range []string{"single", "triple"} {
		ok(t, ch.QueueBind(q, "", "twofold", false, nil))
	}
	for _, m := range w.node {
		equal(t, "classic, on "+m.name, fmt.Sprint(m.listing("single").Members), "[n2]")
		equal(t, "quorum, on "+m.name, len(m.listing("triple").Members), 3)
		if out := m.does("list_exchanges", "-s", "name"); !strings.Contains(out, "twofold") {
			t.Errorf("%s lists no exchange twofold:\n%s", m.name, out)
		}
		out := m.does("list_bindings", "-s", "source_name", "destination_name")
		for _, q := range []string{"single", "triple"} {
			if !strings.Contains(out, "twofold\t"+q) {
				t.Errorf("%s lists no binding of %s:\n%s", m.name, q, out)
			}
		}
	}
	for _, m := range w.node {
		if !all(publishes(t, m.confirming(), "twofold", "any", "through "+m.name), true) {
			t.Errorf("through %s: nacked", m.name)
		}
	}
	for _, q := range []string{"single", "triple"} {
		for _, m := range w.node {
			equal(t, q, string(get(t, w.node[3].open(), q, true).Body), "through "+m.name)
		}
	}

	ch = w.node[3].confirming()
	returned := ch.NotifyReturn(make(chan amqp.Return, 1))
	ok(t, ch.Publish("", "nowhere", true, false, amqp.Publishing{Body: []byte("back")}))
	d := must(ch.PublishWithDeferredConfirm("", "nowhere", false, false, amqp.Publishing{Body: []byte("gone")}))(t)
	if !d.Wait() {
		t.Error("a message without a route is nacked")
	}
	select {
	case r := <-returned:
		equal(t, "reason", int(r.ReplyCode), amqp.NoRoute)
	case <-time.After(raw.Wait):
		t.Error("nothing was returned")
	}
}

// R71 R72 R75 R76: queues have leaders of their own, other ones than the catalog; no node gets two members of one queue.
// R45: each queue has one.
func membersAndLeaders(t *testing.T, w *web) {
	for i := range 3 {
		q := w.quorum(i, fmt.Sprint("led-", i))
		until(t, q+" is led where it was declared", func() bool { return w.node[(i+1)%3].listing(q).Leader == w.node[i].name })
	}
	w.node[0].does("add_member", "led-0", "n1") // it has one already
	l := w.node[3].listing("led-0")
	equal(t, "members", len(slices.Compact(l.Members)), 3)
	leader := ""
	for _, n := range w.node[0].cluster().Nodes {
		if n.Leader {
			leader = n.Name
		}
	}
	different := 0
	for i := range 3 {
		if w.node[i].listing(fmt.Sprint("led-", i)).Leader != leader {
			different++
		}
	}
	if different < 2 {
		t.Errorf("the catalog is led by %q, and %d of three queues by others", leader, different)
	}
}

// R109 R110: without a prefetch limit a consumer of a quorum queue holds 2,000 messages at most; the rest is for others.
func unlimitedPrefetch(t *testing.T, w *web) {
	q := w.quorum(0, "unlimited")
	if !all(publishes(t, w.node[0].confirming(), "", q, several("u", 2500)...), true) {
		t.Fatal("a publish was nacked")
	}
	ch := w.node[1].open()
	in := consume(t, ch, q)
	for range 2000 {
		next(t, in)
	}
	quiet(t, ch, in)
	other := w.node[3].open()
	rest := consume(t, other, q)
	for i := range 500 {
		equal(t, "the second consumer gets", string(next(t, rest).Body), fmt.Sprintf("u-%05d", 2000+i))
	}
}

// R67 R148: what is replicated is definitions and contents; connections are those of each node.
func connectionsOfOneNode(t *testing.T, w *web) {
	var rows [4][]struct{ Name string }
	dialURL(t, w.node[1].URL())
	ok(t, json.Unmarshal([]byte(w.node[0].does("list_connections", "name", "--formatter", "json")), &rows[0]))
	ok(t, json.Unmarshal([]byte(w.node[1].does("list_connections", "name", "--formatter", "json")), &rows[1]))
	for _, a := range rows[0] {
		for _, b := range rows[1] {
			if a.Name == b.Name {
				t.Errorf("connection %s is listed twice", a.Name)
			}
		}
	}
	if len(rows[1]) == 0 {
		t.Error("the connection is not listed")
	}
}
