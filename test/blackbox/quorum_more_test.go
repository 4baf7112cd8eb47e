package blackbox

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"holdfast/test/raw"
	"holdfast/test/rig"
)

// R61 R73: as many members as are asked for, three if nothing is said, and not more than there are nodes. R141: one of them is on the
// node that declares, the others are where there are fewest. It begins with a cluster without quorum queues.
func placement(t *testing.T, w *web) {
	for i := range 6 {
		q := fmt.Sprint("of-two-", i)
		ch := w.node[0].open()
		must(ch.QueueDeclare(q, true, false, false, false, amqp.Table{"x-queue-type": "quorum", "x-quorum-initial-group-size": 2}))(t)
		if l := w.node[3].listing(q); len(l.Members) != 2 || l.Members[0] != "n1" {
			t.Errorf("%s has the members %v", q, l.Members)
		}
	}
	equal(t, "members of each node", fmt.Sprint(w.perNode("of-two-")), "[6 2 2 2]")
	for size, want := range map[int]int{0: 3, 1: 1, 3: 3, 9: 4} {
		q := fmt.Sprint("of-", size)
		args := amqp.Table{"x-queue-type": "quorum"}
		if size > 0 {
			args["x-quorum-initial-group-size"] = size
		}
		must(w.node[2].open().QueueDeclare(q, true, false, false, false, args))(t)
		l := w.node[1].listing(q)
		if len(l.Members) != want || !slices.Contains(l.Members, "n3") {
			t.Errorf("members of %s: %v, want %d", q, l.Members, want)
		}
		if !all(publishes(t, w.node[3].confirming(), "", q, several("x", 10)...), true) {
			t.Errorf("%s nacks", q)
		}
		must(w.node[1].open().QueueDelete(q, false, false, false))(t)
	}
	for i := range 6 {
		must(w.node[1].open().QueueDelete(fmt.Sprint("of-two-", i), false, false, false))(t)
	}
	// R140: balanced, the leader is where there are fewest; else it is the node that declares.
	leaders := map[string]int{}
	for i := range 8 {
		q := fmt.Sprint("balanced-", i)
		must(w.node[0].open().QueueDeclare(q, true, false, false, false,
			amqp.Table{"x-queue-type": "quorum", "x-queue-leader-locator": "balanced", "x-quorum-initial-group-size": 4}))(t)
		until(t, q+" is led", func() bool { return w.node[0].listing(q).Leader != "" })
		leaders[w.node[0].listing(q).Leader]++
	}
	equal(t, "queues led by each", fmt.Sprint(leaders), "map[n1:2 n2:2 n3:2 n4:2]")
	for i := range 8 {
		must(w.node[1].open().QueueDelete(fmt.Sprint("balanced-", i), false, false, false))(t)
	}
	for i, m := range w.node {
		q := fmt.Sprint("local-", i)
		must(m.open().QueueDeclare(q, true, false, false, false, amqp.Table{"x-queue-type": "quorum", "x-queue-leader-locator": "client-local"}))(t)
		until(t, q+" is led where it was declared", func() bool { return w.node[0].listing(q).Leader == m.name })
		must(m.open().QueueDelete(q, false, false, false))(t)
	}
}

// perNode is how many members of the queues with a prefix each node has.
func (w *web) perNode(prefix string) []int {
	w.t.Helper()
	counts := make([]int, len(w.node))
	for _, line := range strings.Split(w.node[0].does("list_queues", "-s", "name", "members"), "\n") {
		for i, m := range w.node {
			if strings.HasPrefix(line, prefix) && strings.Contains(line, m.name) {
				counts[i]++
			}
		}
	}
	return counts
}

// R62: there are no streams yet: one is refused, and nothing is declared. R56: a queue is reached by its bindings alone, and a consumer
// subscribes to a queue, not to an exchange.
func streamsAndRoutes(t *testing.T, w *web) {
	for _, m := range w.node {
		_, err := m.open().QueueDeclare("river", true, false, false, false, amqp.Table{"x-queue-type": "stream"})
		refused(t, err, amqp.PreconditionFailed)
	}
	w.node[2].absent("river")
	q := w.quorum(0, "bound")
	ch := w.node[1].confirming()
	ok(t, ch.ExchangeDeclare("reaches", "direct", true, false, false, false, nil))
	if !all(publishes(t, ch, "reaches", "k", "before the binding"), true) {
		t.Error("what has no route is nacked")
	}
	ok(t, ch.QueueBind(q, "k", "reaches", false, nil))
	publishes(t, ch, "reaches", "k", "bound")
	publishes(t, ch, "reaches", q, "by the queue's name")
	ok(t, ch.QueueUnbind(q, "k", "reaches", nil))
	publishes(t, ch, "reaches", "k", "after it")
	equal(t, "what came", string(get(t, w.node[3].open(), q, true).Body), "bound")
	empty(t, w.node[3].open(), q)
	_, err := w.node[2].open().Consume("reaches", "", false, false, false, false, nil)
	refused(t, err, amqp.NotFound)
}

// R144 R146: the last member stays, and who leads already is not handed the leadership.
func ordersThatAreRefused(t *testing.T, w *web) {
	q := w.quorum(0, "single-member", "x-quorum-initial-group-size", 1)
	w.node[3].refuses(69, "last_node", "delete_member", q, "n1")
	w.node[2].refuses(69, "already the leader", "transfer_leadership", q, "n1")
	w.node[1].refuses(69, "", "transfer_leadership", q, "n2")
	equal(t, "members", fmt.Sprint(w.node[1].listing(q).Members), "[n1]")
	if !all(publishes(t, w.node[1].confirming(), "", q, "still"), true) {
		t.Error("nacked")
	}
}

// R68 R73: five members bear the loss of two, and four no more than three do; without a majority publishes are nacked within the bound; all
// of it comes back.
func TestQuorumFiveMembers(t *testing.T) {
	t.Parallel()
	long(t)
	w := newWeb(t, 5)
	five, four := w.quorum(0, "five", "x-quorum-initial-group-size", 5), w.quorum(0, "four", "x-quorum-initial-group-size", 4)
	equal(t, "members", len(w.node[4].listing(five).Members), 5)
	members := w.node[4].listing(four).Members
	equal(t, "members", len(members), 4)
	at := func(name string) int { return slices.IndexFunc(w.node, func(m *member) bool { return m.name == name }) }
	lost := []int{0, at(members[1])} // two members of both queues, of which one leads them
	var stay []int
	for i := range w.node {
		if !slices.Contains(lost, i) {
			stay = append(stay, i)
		}
	}
	d, s := w.node[stay[0]].drip(five, "d", 100), w.node[stay[1]].sip(five, nil)
	if !all(publishes(t, w.node[stay[2]].confirming(), "", four, several("f", 20)...), true) {
		t.Fatal("nacked while all is well")
	}
	d.flows(50)
	for _, i := range lost {
		ok(t, w.node[i].Kill())
		d.flows(100)
	}
	if _, _, nacks := d.counts(); nacks != 0 {
		t.Errorf("%d publishes were nacked although three of five members are there", nacks)
	}
	if !all(publishes(t, w.node[stay[0]].confirming(), "", four, "two of four"), false) {
		t.Error("two of four members confirm")
	}
	third := stay[2]
	ok(t, w.node[third].Kill())
	before := time.Now()
	if !all(publishes(t, w.node[stay[0]].confirming(), "", five, "two of five"), false) {
		t.Error("two of five members confirm")
	}
	if took := time.Since(before); took > nackBound+slack {
		t.Errorf("nacked after %v", took)
	}
	equal(t, "state", w.node[stay[0]].listing(five).State, "minority")
	for _, i := range []int{third, lost[0], lost[1]} {
		ok(t, w.node[i].Start())
		d.flows(50)
	}
	sent, acks, nacks := d.end()
	t.Logf("%d sent, %d confirmed, %d nacked", sent, acks, nacks)
	w.caughtUp(five, stay[0])
	w.caughtUp(four, stay[0])
	until(t, "the queue is drained", func() bool { return w.node[w.leading(five, stay[0])].listing(five).Messages == 0 })
	audit(t, "d", d, s)
	in := consume(t, w.node[stay[1]].open(), four)
	for i := range 20 {
		equal(t, "of the queue of four", string(next(t, in).Body), fmt.Sprintf("f-%05d", i))
	}
}

// R73: seven members are possible, too, and bear the loss of three.
func TestQuorumSevenMembers(t *testing.T) {
	t.Parallel()
	long(t)
	w := newWeb(t, 7)
	q := w.quorum(0, "q", "x-quorum-initial-group-size", 7)
	equal(t, "members", len(w.node[6].listing(q).Members), 7)
	d, s := w.node[6].drip(q, "d", 50), w.node[5].sip(q, nil)
	d.flows(50)
	for i := range 3 {
		ok(t, w.node[i].Kill())
		d.flows(50)
	}
	if _, _, nacks := d.end(); nacks != 0 {
		t.Errorf("%d publishes were nacked although four of seven members are there", nacks)
	}
	until(t, "the queue is drained", func() bool { return w.node[w.leading(q, 6)].listing(q).Messages == 0 })
	audit(t, "d", d, s)
}

// R70 R142: who lacks something that was confirmed does not lead, although it is the only one left that was a member from the start and
// has just come back; where the leader was declared to be is a hint, and elections decide.
func TestQuorumOnlyTheFreshLead(t *testing.T) {
	t.Parallel()
	heavy(t)
	w := newWeb(t, 3)
	q := w.quorum(0, "q")
	if !all(publishes(t, w.node[0].confirming(), "", q, several("a", 10)...), true) {
		t.Fatal("nacked")
	}
	w.caughtUp(q, 0)
	w.Isolate(w.Nodes[2], rig.Way{Cut: true})
	if !all(publishes(t, w.node[1].confirming(), "", q, several("b", 200)...), true) {
		t.Fatal("nacked with two of three members")
	}
	ok(t, w.node[0].Kill())
	w.Net.Heal()
	equal(t, "the first leader", w.node[w.leading(q, 1, "n1")].name, "n2")
	ok(t, w.node[0].Start())
	w.caughtUp(q, 1)
	equal(t, "the leader when all are back", w.node[w.leading(q, 0)].name, "n2")
	ch := w.node[2].open()
	for _, want := range append(several("a", 10), several("b", 200)...) {
		equal(t, "body", string(get(t, ch, q, true).Body), want)
	}
	empty(t, ch, q)
}

// R70: what the leader of a former term has in its log and no majority has seen is settled by the next one: the publish is answered, and
// its message is there once or not at all, on all members alike.
func TestQuorumTailOfAFormerTerm(t *testing.T) {
	t.Parallel()
	heavy(t)
	w := newWeb(t, 3)
	q := w.quorum(0, "q")
	old := w.node[0].confirming()
	if !all(publishes(t, old, "", q, several("a", 10)...), true) {
		t.Fatal("nacked")
	}
	w.caughtUp(q, 0)
	w.Isolate(w.Nodes[0], rig.Way{Held: true})
	var waits []*amqp.DeferredConfirmation
	for _, body := range several("tail", 20) {
		waits = append(waits, must(old.PublishWithDeferredConfirmWithContext(context.Background(), "", q, false, false, amqp.Publishing{DeliveryMode: 2, Body: []byte(body)}))(t))
	}
	w.leading(q, 1, "n1")
	if !all(publishes(t, w.node[1].confirming(), "", q, several("b", 10)...), true) {
		t.Error("the other two nack")
	}
	w.Net.Heal()
	ctx, cancel := context.WithTimeout(context.Background(), raw.Wait)
	defer cancel()
	var want []string
	for i, c := range waits {
		if must(c.WaitContext(ctx))(t) {
			want = append(want, fmt.Sprintf("tail-%05d", i))
		}
	}
	t.Logf("%d of %d were confirmed after all", len(want), len(waits))
	w.caughtUp(q, 1)
	got := map[string]int{}
	ch := w.node[2].open()
	for {
		d, there, err := ch.Get(q, true)
		ok(t, err)
		if !there {
			break
		}
		got[string(d.Body)]++
	}
	for body, n := range got {
		if n > 1 {
			t.Errorf("%s is there %d times", body, n)
		}
	}
	for _, body := range slices.Concat(several("a", 10), several("b", 10), want) {
		if got[body] != 1 {
			t.Errorf("%s was confirmed, and is there %d times", body, got[body])
		}
	}
}

// R97: what a quorum queue has confirmed is there as long as a majority of its members' disks is, whichever one is lost; of a classic
// queue nothing is left without its one disk, and what had no route was never anywhere.
func TestQuorumOneDiskIsLost(t *testing.T) {
	t.Parallel()
	long(t)
	for lost := range 3 {
		t.Run(fmt.Sprintf("n%d", lost+1), func(t *testing.T) {
			t.Parallel()
			w := newWeb(t, 3)
			q := w.quorum(0, "copied")
			must(w.node[lost].open().QueueDeclare("single", true, false, false, false, nil))(t)
			for _, to := range []string{q, "single", "nowhere"} {
				if !all(publishes(t, w.node[1].confirming(), "", to, several("x", 300)...), true) {
					t.Fatalf("%s nacks", to)
				}
			}
			for _, m := range w.node { // at once, with what each of them had
				ok(t, m.Kill())
			}
			w.node[lost].wipe()
			var left []int
			for i, m := range w.node {
				if i != lost {
					left = append(left, i)
					ok(t, m.Launch())
				}
			}
			for _, i := range left {
				ok(t, w.node[i].Ready())
			}
			ch := w.node[left[0]].open()
			w.leading(q, left[0], w.node[lost].name)
			for _, body := range several("x", 300) {
				equal(t, "body", string(get(t, ch, q, true).Body), body)
			}
			empty(t, ch, q)
			w.node[left[1]].does("forget_cluster_node", w.node[lost].name)
			w.node[left[0]].absent("single")
			w.node[left[0]].absent("nowhere")
		})
	}
}

// R102 R103: one message of a quorum queue is held while many go through: it pins its own bytes, on each member, and not the log.
func TestQuorumHeldMessageDoesNotPinTheLog(t *testing.T) {
	t.Parallel()
	long(t)
	w := prepareWeb(t, 3, config(t, "storage.segment_size.max = 16MiB\n")...)
	ok(t, w.Start())
	q := w.quorum(0, "q")
	ch := w.node[1].open()
	publishes(t, w.node[1].confirming(), "", q, "held")
	held := get(t, ch, q, false)
	pub := w.node[2].confirming()
	const rounds, each, size = 30, 100, 128 << 10
	for range rounds {
		if refused := bulk(t, pub, q, each, size); refused != 0 {
			t.Fatalf("%d publishes were nacked", refused)
		}
		in := w.node[1].open()
		ok(t, in.Qos(each, 0, false))
		from := consume(t, in, q)
		for range each - 1 {
			next(t, from)
		}
		ok(t, next(t, from).Ack(true))
		ok(t, in.Close())
	}
	for _, m := range w.node {
		until(t, "the space comes back on "+m.name, func() bool {
			total, _, err := rig.DiskUsed(m.Data)
			ok(t, err)
			return total <= 8*must(rig.LargestFile(m.Data))(t)
		})
	}
	ok(t, held.Reject(true))
	again := get(t, w.node[0].open(), q, true)
	equal(t, "what was held", fmt.Sprint(string(again.Body), again.Redelivered), "heldtrue")
}

// wipe loses the data folder of a node that does not run.
func (n *node) wipe() {
	n.t.Helper()
	ok(n.t, os.RemoveAll(n.Data))
}

// bulk publishes messages of a size and gives how many were not confirmed.
func bulk(t *testing.T, ch *amqp.Channel, queue string, n, size int) (refused int) {
	t.Helper()
	bodies := make([]string, n)
	for i := range bodies {
		bodies[i] = strings.Repeat("x", size)
	}
	for _, acked := range publishes(t, ch, "", queue, bodies...) {
		if !acked {
			refused++
		}
	}
	return refused
}

// R145: a change of members that cannot come about within 20 s is reported as in doubt. When the queue is whole again it goes on, with the
// members from before: the new one does not come, or is taken back.
func TestQuorumChangeThatTakesTooLong(t *testing.T) {
	t.Parallel()
	long(t)
	w := newWeb(t, 5)
	q := w.quorum(0, "q", "x-quorum-initial-group-size", 2)
	other := w.node[0].listing(q).Members[1]
	var away, third *member
	for _, m := range w.node[1:] {
		if m.name == other {
			away = m
		} else {
			third = m
		}
	}
	ok(t, away.Kill())
	began := time.Now()
	code, text := w.node[0].fails("add_member", q, third.name, "--timeout", "60")
	t.Logf("after %v: code %d, %s", time.Since(began), code, text)
	if code != 69 || !strings.Contains(text, "may not have been completed") && !strings.Contains(text, "timeout") {
		t.Errorf("code %d, %s", code, text)
	}
	ok(t, away.Start())
	if !all(publishes(t, third.confirming(), "", q, "whole again"), true) {
		t.Error("nacked")
	}
	before := slices.Sorted(slices.Values([]string{"n1", other}))
	until(t, "the change is taken back", func() bool {
		return slices.Equal(w.node[0].listing(q).Members, before) && len(w.node[0].members(q)) == 2
	})
	w.caughtUp(q, 0)
	equal(t, "what was published then", string(get(t, third.open(), q, true).Body), "whole again")
}
