package blackbox

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"holdfast/test/rig"
)

// nackBound is within what a publish is nacked when the queue has no majority; the rest is the machine's.
const (
	nackBound = 15 * time.Second
	slack     = 10 * time.Second
)

// R114 R115 R116: the node ends that clients use and that holds no member. They are told, or see their connections break, and go on
// through another one; the queue notices nothing.
// R272: with consumers on the node that ends, and on others.
func TestQuorumAccessNodeEnds(t *testing.T) {
	t.Parallel()
	w := newWeb(t, 4)
	q := w.quorum(0, "q")
	before := w.node[0].listing(q)
	for how, end := range map[string]func() error{"stopped": w.node[3].Stop, "killed": w.node[3].Kill} {
		conn := dialURL(t, w.node[3].URL())
		ended := conn.NotifyClose(make(chan *amqp.Error, 1))
		ch := channel(t, conn)
		ok(t, ch.Confirm(false))
		ok(t, ch.Qos(1, 0, false))
		in := consume(t, ch, q)
		if !all(publishes(t, ch, "", q, "before"), true) {
			t.Fatal("nacked")
		}
		equal(t, "body", string(next(t, in).Body), "before") // and it is not acknowledged
		ok(t, end())
		if e := <-ended; how == "stopped" && (e == nil || e.Code != amqp.ConnectionForced) {
			t.Errorf("%s: the connection ended with %v", how, e)
		}
		if _, err := ch.PublishWithDeferredConfirm("", q, false, false, amqp.Publishing{}); err == nil {
			t.Errorf("%s: it is still published", how)
		}
		ch = w.node[2].confirming() // the client goes to another node
		if !all(publishes(t, ch, "", q, several(how, 100)...), true) {
			t.Errorf("%s: a publish on another node was nacked", how)
		}
		in = consume(t, ch, q)
		back, fresh := false, 0
		for !back || fresh < 100 { // what the lost one held comes back when its node is back, or counts as gone
			if fresh == 100 && w.node[3].Pid() == 0 {
				ok(t, w.node[3].Start())
			}
			d := next(t, in)
			if string(d.Body) == "before" {
				back = true
				if !d.Redelivered {
					t.Errorf("%s: what the lost consumer held is not marked", how)
				}
			} else if equal(t, "body", string(d.Body), fmt.Sprintf("%s-%05d", how, fresh)); d.Redelivered {
				t.Errorf("%s is marked as redelivered", d.Body)
			} else {
				fresh++
			}
			ok(t, d.Ack(false))
		}
		ok(t, ch.Close())
		if w.node[3].Pid() == 0 {
			ok(t, w.node[3].Start())
		}
		after := w.node[0].listing(q)
		equal(t, how+": leader and members", fmt.Sprint(after.Leader, after.Members, after.Online), fmt.Sprint(before.Leader, before.Members, before.Online))
		w.node[0].known("n1", "n2", "n3", "n4")
	}
}

// R120 R121 R306: the leader's node is killed while consumers on the others hold messages: these stay theirs, nothing is delivered
// twice, and what they give back afterwards is marked. R149: the listing names the node no more.
// R21: who holds what is known to all members.
func TestQuorumHeldOverALeadersEnd(t *testing.T) {
	t.Parallel()
	w := newWeb(t, 3)
	q := w.quorum(0, "q")
	publishes(t, w.node[0].confirming(), "", q, several("h", 20)...)
	ch := w.node[1].open()
	ok(t, ch.Qos(5, 0, false))
	in := consume(t, ch, q)
	var held []amqp.Delivery
	for range 5 {
		held = append(held, next(t, in))
	}
	other := w.node[2].open()
	ok(t, other.Qos(5, 0, false))
	theirs := consume(t, other, q)
	var more []amqp.Delivery
	for range 5 {
		more = append(more, next(t, theirs))
	}
	ok(t, w.node[0].Kill())
	lead := w.leading(q, 1, "n1")
	until(t, "n1 is not listed as online", func() bool {
		l := w.node[lead].listing(q)
		return !slices.Contains(l.Online, "n1") && l.Leader != "n1"
	})
	for _, d := range held {
		ok(t, d.Ack(false))
	}
	for i := range 5 {
		d := next(t, in)
		if want := fmt.Sprintf("h-%05d", 10+i); string(d.Body) != want || d.Redelivered {
			t.Errorf("after the change comes %q, redelivered %v; want %q", d.Body, d.Redelivered, want)
		}
		held[i] = d
	}
	ok(t, more[0].Nack(false, true))
	ok(t, more[1].Ack(false))
	d := next(t, theirs)
	if string(d.Body) != "h-00005" || !d.Redelivered {
		t.Errorf("given back and delivered again: %q, redelivered %v", d.Body, d.Redelivered)
	}
	quiet(t, ch, in)
	ok(t, ch.Close())
	ok(t, other.Close())
	var left []string
	rest := w.node[2].open()
	for {
		d, there, err := rest.Get(q, true)
		ok(t, err)
		if !there {
			break
		}
		left = append(left, fmt.Sprint(string(d.Body), d.Redelivered))
	}
	want := []string{"h-00005true", "h-00007true", "h-00008true", "h-00009true", "h-00010true", "h-00011true", "h-00012true", "h-00013true", "h-00014true"}
	if len(left) != 14 || !slices.Equal(left[:9], want) && !strings.HasPrefix(left[9], "h-00015") {
		t.Errorf("left are %v", left)
	}
}

// R68 R74 R123 R124 R126 R128: the majority is lost. Publishes on an open channel and on a new one are nacked within the bound, a control
// queue on the surviving node takes its own at once, no order repairs it; when the majority is back, consumers go on by themselves.
// R273: in the same moment another queue is well.
func TestQuorumMajorityAway(t *testing.T) {
	t.Parallel()
	heavy(t)
	w := newWeb(t, 3)
	q := w.quorum(0, "q")
	must(w.node[0].open().QueueDeclare("control", true, false, false, false, nil))(t)
	s := w.node[0].sip(q, nil)
	old := w.node[0].confirming()
	if !all(publishes(t, old, "", q, several("a", 10)...), true) {
		t.Fatal("nacked")
	}
	s.until(10)
	ok(t, w.node[1].Kill())
	if !all(publishes(t, old, "", q, several("b", 10)...), true) {
		t.Error("nacked with two of three members")
	}
	s.until(20)
	ok(t, w.node[2].Kill())

	answers := make(chan time.Duration, 2)
	for _, ch := range []*amqp.Channel{old, w.node[0].confirming()} {
		go func() {
			began := time.Now()
			c, err := ch.PublishWithDeferredConfirm("", q, false, false, amqp.Publishing{DeliveryMode: 2, Body: []byte("lost")})
			if err != nil {
				t.Error(err)
			} else if c.Wait() {
				t.Error("it is confirmed without a majority")
			}
			answers <- time.Since(began)
		}()
	}
	if !all(publishes(t, w.node[0].confirming(), "", "control", several("c", 10)...), true) {
		t.Error("the control queue nacks")
	}
	for range 2 {
		if took := <-answers; took > nackBound+slack {
			t.Errorf("nacked after %v", took)
		} else {
			t.Logf("nacked after %v", took)
		}
	}
	for _, order := range [][]string{{"transfer_leadership", q, "n2"}, {"delete_member", q, "n2"}} {
		if out, err := w.node[0].Ctl(append(order, "--timeout", "40")...); err == nil {
			t.Errorf("%v without a majority: %s", order, out)
		}
	}
	before := s.count()
	ok(t, w.node[1].Start())
	if !all(publishes(t, w.node[1].confirming(), "", q, several("d", 10)...), true) {
		t.Error("nacked after the majority came back")
	}
	s.until(before + 10)
	ok(t, w.node[2].Start())
	w.caughtUp(q, 0)
	seen := map[string]bool{}
	for _, g := range s.got {
		if seen[g.body] && !g.redelivered && g.body != "lost" {
			t.Errorf("%s came twice without the flag", g.body)
		}
		seen[g.body] = true
	}
}

// R113: 3,000 messages, a consumer that is killed with one of them, the majority lost and back: 3,001 deliveries, none lost, and the
// queue ends empty.
func TestQuorumPresetBacklogSurvives(t *testing.T) {
	t.Parallel()
	heavy(t)
	w := newWeb(t, 3)
	q := w.quorum(0, "q")
	if !all(publishes(t, w.node[0].confirming(), "", q, several("p", 3000)...), true) {
		t.Fatal("nacked")
	}
	first := w.node[1].open()
	ok(t, first.Qos(1, 0, false))
	held := next(t, consume(t, first, q))
	deliveries := 1
	s := w.node[2].sip(q, nil)
	s.until(500)
	ok(t, w.node[1].Kill()) // with the consumer that holds a message
	ok(t, w.node[0].Kill())
	until(t, "it is noticed", func() bool { return w.node[2].listing(q).State == "minority" })
	ok(t, w.node[0].Start())
	ok(t, w.node[1].Start())
	s.until(3000)
	until(t, "the queue is empty", func() bool { l := w.node[w.leading(q, 2)].listing(q); return l.Messages == 0 && l.State == "running" })
	seen := map[string]int{string(held.Body): 1}
	for _, g := range s.got {
		seen[g.body]++
		if seen[g.body] > 1 && !g.redelivered {
			t.Errorf("%s came again without the flag", g.body)
		}
	}
	deliveries += s.count()
	if len(seen) != 3000 || deliveries != 3001 {
		t.Errorf("%d messages in %d deliveries", len(seen), deliveries)
	}
}

// R125: consumers without a leader are told if they asked for it; the others go on when there is one.
func TestQuorumCancelWithoutLeader(t *testing.T) {
	t.Parallel()
	heavy(t)
	w := newWeb(t, 3)
	q := w.quorum(0, "q")
	asked, waits := w.node[0].open(), w.node[0].sip(q, nil)
	cancelled := asked.NotifyCancel(make(chan string, 1))
	must(asked.Consume(q, "asked", false, false, false, false, amqp.Table{"x-cancel-without-leader": true}))(t)
	ok(t, w.node[1].Kill())
	ok(t, w.node[2].Kill())
	began := time.Now()
	select {
	case tag := <-cancelled:
		equal(t, "cancelled", tag, "asked")
		t.Logf("cancelled after %v", time.Since(began))
	case <-time.After(nackBound + slack):
		t.Error("the consumer is not told")
	}
	ok(t, w.node[1].Start())
	publishes(t, w.node[1].confirming(), "", q, "again")
	waits.until(1)
}

// R60 R87 R88 R89 R90 R91 R92 R130 R131 R132 R133 R134: the home of a classic queue is killed. What goes to it and to a quorum queue is nacked,
// and kept by the quorum queue; what goes to the quorum queue alone is confirmed; get and consume are answered; when the home is
// back it has what was confirmed and nothing else.
func TestClusterConfirmIsTheAnd(t *testing.T) {
	t.Parallel()
	w := newWeb(t, 3)
	q := w.quorum(0, "copied")
	ch := w.node[0].open()
	must(ch.QueueDeclare("single", true, false, false, false, nil))(t)
	ok(t, ch.ExchangeDeclare("both", "fanout", true, false, false, false, nil))
	for _, name := range []string{q, "single"} {
		ok(t, ch.QueueBind(name, "", "both", false, nil))
	}
	old := w.node[1].confirming()
	if !all(publishes(t, old, "both", "", several("before", 10)...), true) {
		t.Fatal("nacked while all is well")
	}
	ok(t, w.node[0].Kill())
	began := time.Now()
	if !all(publishes(t, old, "both", "", several("during", 10)...), false) {
		t.Error("confirmed although one of two queues is away")
	}
	if !all(publishes(t, w.node[2].confirming(), "", "single", several("refused", 10)...), false) {
		t.Error("confirmed although the queue is away")
	}
	took := time.Since(began)
	t.Logf("twenty nacks after %v", took)
	if !all(publishes(t, old, "", q, several("control", 5)...), true) {
		t.Error("the quorum queue alone nacks")
	}
	if took > nackBound+slack {
		t.Errorf("the nacks took %v", took)
	}
	for _, m := range w.node[1:] {
		nacked := must(m.Series("/metrics/per-object"))(t)
		equal(t, m.name+" counts nacks of the queue that is away", nacks(nacked, "single"), 10)
		equal(t, m.name+" counts nacks of the other", nacks(nacked, "copied"), 0)
	}
	equal(t, "messages of the quorum queue", depth(t, w.node[2].open(), q), 25)
	began = time.Now()
	_, _, err := w.node[1].open().Get("single", true)
	refused(t, err, amqp.NotFound)
	_, err = w.node[1].open().Consume("single", "", false, false, false, false, nil)
	refused(t, err, amqp.NotFound)
	if took := time.Since(began); took > nackBound+slack {
		t.Errorf("get and consume were answered after %v", took)
	}
	ok(t, w.node[0].Start())
	var again *amqp.Channel
	until(t, "the queue is reached", func() bool {
		again = w.node[1].open()
		_, err := again.QueueDeclarePassive("single", true, false, false, false, nil)
		return err == nil
	})
	for i := range 10 {
		equal(t, "in the classic queue", string(get(t, again, "single", true).Body), fmt.Sprintf("before-%05d", i))
	}
	empty(t, again, "single")
	until(t, "all members are online", func() bool { return len(w.node[1].listing(q).Online) == 3 })
	for _, what := range []string{"before", "during"} {
		for i := range 10 {
			equal(t, "in the quorum queue", string(get(t, again, q, true).Body), fmt.Sprintf("%s-%05d", what, i))
		}
	}
	if !all(publishes(t, old, "both", "", several("during", 10)...), true) { // the client sends them again
		t.Error("nacked when all is well again")
	}
}

// R68: of two members one is not enough; what was confirmed before is there when the other one is back.
func TestQuorumOfTwoTolerantOfNone(t *testing.T) {
	t.Parallel()
	heavy(t)
	w := newWeb(t, 3)
	q := w.quorum(0, "two", "x-quorum-initial-group-size", 2)
	l := w.node[0].listing(q)
	equal(t, "members", len(l.Members), 2)
	other, third := 1, 2
	if slices.Contains(l.Members, "n3") {
		other, third = 2, 1
	}
	ch := w.node[third].confirming() // a node without a member
	if !all(publishes(t, ch, "", q, several("a", 10)...), true) {
		t.Fatal("nacked")
	}
	ok(t, w.node[other].Kill())
	if !all(publishes(t, ch, "", q, "lost"), false) {
		t.Error("one of two confirms")
	}
	ok(t, w.node[other].Start())
	until(t, "it confirms again", func() bool { return all(publishes(t, ch, "", q, "b"), true) })
	in := consume(t, w.node[third].open(), q)
	for i := range 10 {
		equal(t, "body", string(next(t, in).Body), fmt.Sprintf("a-%05d", i))
	}
}

// R301: a leader that stood still while another one was elected confirms nothing of what it was sent meanwhile that the
// majority lacks, and delivers nothing that others have got.
func TestQuorumPausedLeader(t *testing.T) {
	t.Parallel()
	w := newWeb(t, 3)
	q := w.quorum(0, "q")
	old := w.node[0].confirming()
	s := w.node[0].sip(q, nil)
	if !all(publishes(t, old, "", q, several("before", 50)...), true) {
		t.Fatal("nacked")
	}
	s.until(50)
	ok(t, w.node[0].Pause())
	var waits []*amqp.DeferredConfirmation
	for _, body := range several("paused", 50) { // they lie in the socket of a process that stands still
		waits = append(waits, must(old.PublishWithDeferredConfirmWithContext(context.Background(), "", q, false, false, amqp.Publishing{DeliveryMode: 2, Body: []byte(body)}))(t))
	}
	w.leading(q, 1, "n1")
	if !all(publishes(t, w.node[1].confirming(), "", q, several("others", 50)...), true) {
		t.Error("the other two nack")
	}
	ok(t, w.node[0].Resume())
	ctx, cancel := context.WithTimeout(context.Background(), nackBound+slack)
	defer cancel()
	kept := map[string]bool{}
	for i, c := range waits {
		acked := must(c.WaitContext(ctx))(t)
		kept[fmt.Sprintf("paused-%05d", i)] = acked
	}
	s.until(100)
	until(t, "the queue is drained", func() bool { return w.node[w.leading(q, 0)].listing(q).Messages == 0 })
	came := map[string]int{}
	for _, g := range s.got {
		if came[g.body]++; came[g.body] > 1 && !g.redelivered {
			t.Errorf("%s came twice without the flag", g.body)
		}
	}
	for body, acked := range kept {
		if acked && came[body] == 0 {
			t.Errorf("%s was confirmed by the one that stood still, and is lost", body)
		}
	}
	for _, what := range []string{"before", "others"} {
		for _, body := range several(what, 50) {
			if came[body] == 0 {
				t.Errorf("%s is lost", body)
			}
		}
	}
}

// R302: one direction is dead. Whether the leader is heard no more, or hears nothing, the queue goes on; afterwards all is well, and
// nothing confirmed is lost.
// R275: the network fails, not the node.
func TestQuorumOneWayPartition(t *testing.T) {
	t.Parallel()
	heavy(t)
	for what, out := range map[string]bool{"it is not heard": true, "it hears nothing": false} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			w := newWeb(t, 3)
			q := w.quorum(0, "q")
			mine, theirs := w.node[0].drip(q, "mine", 100), w.node[1].drip(q, "theirs", 100)
			sips := []*sip{w.node[0].sip(q, nil), w.node[2].sip(q, nil)}
			mine.flows(50)
			theirs.flows(50)
			for _, other := range []string{"n2", "n3"} {
				if out {
					w.Net.Set("n1", other, rig.Way{Held: true})
				} else {
					w.Net.Set(other, "n1", rig.Way{Held: true})
				}
			}
			w.leading(q, 1, "n1")
			theirs.flows(200)
			w.Net.Heal()
			mine.flows(50)
			mine.end()
			if _, _, nacks := theirs.end(); nacks != 0 {
				t.Errorf("%d publishes on a node of the majority were nacked", nacks)
			}
			until(t, "the queue is drained", func() bool { return w.node[w.leading(q, 0)].listing(q).Messages == 0 })
			audit(t, "mine", mine, sips...)
			audit(t, "theirs", theirs, sips...)
			w.caughtUp(q, 0)
		})
	}
}

// R69 R303: one follower is slow, or holds everything back: the others confirm without it, in their own time, and it catches up afterwards.
func TestQuorumSlowFollower(t *testing.T) {
	t.Parallel()
	heavy(t)
	w := newWeb(t, 3)
	q := w.quorum(0, "q")
	const late = 5 * time.Second
	w.Isolate(w.Nodes[2], rig.Way{Delay: late, Rate: 20_000})
	d, s := w.node[0].drip(q, "d", 300), w.node[1].sip(q, nil)
	d.flows(900)
	sent, _, nacks := d.end()
	if nacks != 0 {
		t.Errorf("%d of %d were nacked because of one slow follower", nacks, sent)
	}
	if d.longest > late {
		t.Errorf("a publish took %v: the slow follower is waited for", d.longest)
	}
	s.until(sent)
	audit(t, "d", d, s)
	w.Net.Heal()
	w.caughtUp(q, 0)
}

// R307: order per publisher and queue holds over changes of leader of any kind.
func TestQuorumOrderOverLeaders(t *testing.T) {
	t.Parallel()
	heavy(t)
	w := newWeb(t, 3)
	q := w.quorum(0, "q")
	d := []*drip{w.node[0].drip(q, "a", 200), w.node[1].drip(q, "b", 200)}
	s := w.node[0].sip(q, nil)
	for _, harm := range []func(){
		func() { w.lead(q, 1) },
		func() { w.Isolate(w.Nodes[2], rig.Way{Cut: true}); d[0].flows(20); w.Net.Heal() },
		func() { w.lead(q, 2) },
		func() { ok(t, w.node[2].Kill()); d[0].flows(50); ok(t, w.node[2].Start()) },
		func() { w.lead(q, 2); ok(t, w.node[2].Pause()); d[1].flows(50); ok(t, w.node[2].Resume()) },
		func() { w.lead(q, 2); ok(t, w.node[2].Stop()); d[1].flows(50); ok(t, w.node[2].Start()) },
	} {
		harm()
		d[0].flows(50)
		d[1].flows(50)
	}
	for i, one := range d {
		if sent, _, nacks := one.end(); nacks != 0 {
			t.Errorf("%d of %d publishes of %d were nacked, all of them on nodes that survived", nacks, sent, i)
		}
	}
	until(t, "the queue is drained", func() bool { return w.node[w.leading(q, 0)].listing(q).Messages == 0 })
	audit(t, "a", d[0], s)
	audit(t, "b", d[1], s)
}

// R308: each node is restarted in turn under load: whoever is on another node notices nothing.
func TestQuorumRollingRestart(t *testing.T) {
	t.Parallel()
	heavy(t)
	w := newWeb(t, 4)
	var queues []string
	for i := range 3 {
		queues = append(queues, w.quorum(i, fmt.Sprint("q", i)))
	}
	var d []*drip
	var s []*sip
	for i, q := range queues {
		d = append(d, w.node[3].drip(q, fmt.Sprint("r", i), 100))
		s = append(s, w.node[3].sip(q, nil))
	}
	for i := range 3 {
		ok(t, w.node[i].Stop())
		d[i].flows(50)
		ok(t, w.node[i].Start())
		w.node[3].known("n1", "n2", "n3", "n4")
		for _, q := range queues {
			w.caughtUp(q, 3)
		}
	}
	for i := range queues {
		sent, _, nacks := d[i].end()
		if nacks != 0 {
			t.Errorf("%d of %d publishes were nacked", nacks, sent)
		}
		s[i].until(sent)
		if s[i].count() != sent {
			t.Errorf("%d deliveries of %d messages", s[i].count(), sent)
		}
		audit(t, fmt.Sprint("r", i), d[i], s[i])
	}
}

// R60 R130: the home of a classic queue stands still: its system takes every byte and nothing comes back. Publishes on other nodes are
// nacked within the bound all the same, and consumers there are cancelled.
func TestClusterHomeStandsStill(t *testing.T) {
	t.Parallel()
	heavy(t)
	w := newWeb(t, 3)
	must(w.node[0].open().QueueDeclare("single", true, false, false, false, nil))(t)
	ch := w.node[1].confirming()
	in := consume(t, ch, "single")
	if !all(publishes(t, ch, "", "single", "first"), true) {
		t.Fatal("nacked")
	}
	first := next(t, in)
	ok(t, w.node[0].Pause())
	began := time.Now()
	if !all(publishes(t, ch, "", "single", "second"), false) {
		t.Error("confirmed by a node that stands still")
	}
	t.Logf("nacked after %v", time.Since(began))
	if took := time.Since(began); took > nackBound+slack {
		t.Errorf("nacked after %v", took)
	}
	select {
	case _, open := <-in:
		if open {
			t.Error("a delivery of a queue that stands still")
		}
	case <-time.After(slack):
		t.Error("the consumer is not cancelled")
	}
	ok(t, w.node[0].Resume())
	until(t, "the queue is reached again", func() bool {
		_, err := w.node[1].open().QueueDeclarePassive("single", true, false, false, false, nil)
		return err == nil
	})
	d := get(t, w.node[1].open(), "single", true)
	if string(d.Body) != string(first.Body) || !d.Redelivered {
		t.Errorf("first comes %q, redelivered %v", d.Body, d.Redelivered)
	}
}

// nacks is how many publishes a page of metrics says were nacked because of a queue.
func nacks(page map[string]float64, queue string) (n float64) {
	for _, how := range []string{"refused", "unknown"} {
		n += page[fmt.Sprintf(`holdfast_queue_publishes_%s_total{vhost="/",queue=%q}`, how, queue)]
	}
	return n
}
