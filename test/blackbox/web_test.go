package blackbox

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"holdfast/test/raw"
	"holdfast/test/rig"
)

var heavyToo = flag.Bool("heavy", false, "run the tests of clusters that take long, too")

var longToo = flag.Bool("long", false, "run the tests of clusters that take very long, too")

// long leaves a test out of all but the nightly runs.
func long(t *testing.T) {
	t.Helper()
	if !*longToo {
		t.Skip("it takes very long: make nightly runs it")
	}
}

// heavy leaves a test out of ordinary runs.
func heavy(t *testing.T) {
	t.Helper()
	if !*heavyToo {
		t.Skip("it takes long: make cluster runs it")
	}
}

// web is nodes with a network between them that the test may cut.
type web struct {
	*rig.Cluster
	t    *testing.T
	node []*member
}

// newWeb starts nodes n1, n2 and so on, which found a cluster together.
func newWeb(t *testing.T, n int, extra ...string) *web {
	t.Helper()
	w := prepareWeb(t, n, extra...)
	ok(t, w.Start())
	w.raised()
	return w
}

// raised waits until all nodes are at the level of the formats that they know: a cluster that has just begun goes there when all have met.
func (w *web) raised() {
	w.t.Helper()
	for _, n := range w.Nodes {
		until(w.t, n.Name+" is at the newest level of the formats", func() bool {
			out, err := n.Ctl("cluster_status", "--formatter", "json")
			var status struct {
				Level int `json:"format_level"`
			}
			return err == nil && json.Unmarshal([]byte(out), &status) == nil && status.Level >= 2
		})
	}
}

// prepareWeb prepares nodes and does not start them.
func prepareWeb(t *testing.T, n int, extra ...string) *web {
	t.Helper()
	if target.binary == "" {
		t.Skip("the broker is not ours to start")
	}
	w := &web{Cluster: must(rig.NewCluster(target.binary, t.TempDir(), n, extra...))(t), t: t}
	for _, one := range w.Nodes {
		w.node = append(w.node, &member{&node{one.Broker, t}, one.Name, one.Front})
	}
	t.Cleanup(func() {
		w.Close()
		if t.Failed() {
			for _, one := range w.Nodes {
				t.Logf("end of the log of %s:\n%s", one.Name, one.Tail())
			}
		}
	})
	return w
}

// listed is a row of list_queues.
type listed struct {
	Name, Type, Leader, State string
	Members, Online           []string
	Messages                  int
	Ready                     int `json:"messages_ready"`
	Unacked                   int `json:"messages_unacknowledged"`
	Consumers                 int
}

// listing is how a node lists a queue.
func (n *node) listing(queue string) listed {
	n.t.Helper()
	var rows []listed
	out := must(n.Ctl("list_queues", "name", "type", "leader", "members", "online", "state", "messages", "messages_ready",
		"messages_unacknowledged", "consumers", "--formatter", "json"))(n.t)
	ok(n.t, json.Unmarshal([]byte(out), &rows))
	for _, q := range rows {
		if q.Name == queue {
			slices.Sort(q.Members)
			slices.Sort(q.Online)
			return q
		}
	}
	n.t.Fatalf("queue %s is not listed:\n%s", queue, out)
	return listed{}
}

// quorum declares a quorum queue through a node, which leads it. Of four nodes, the members are on the first three.
func (w *web) quorum(at int, name string, more ...any) string {
	w.t.Helper()
	args := amqp.Table{"x-queue-type": "quorum"}
	for i := 0; i < len(more); i += 2 {
		args[more[i].(string)] = more[i+1]
	}
	must(w.node[at].open().QueueDeclare(name, true, false, false, false, args))(w.t)
	if l := w.node[at].listing(name); len(w.node) == 4 && slices.Contains(l.Members, "n4") {
		w.node[at].does("delete_member", name, "n4")
		for _, m := range w.node[:3] {
			if !slices.Contains(l.Members, m.name) {
				w.node[at].does("add_member", name, m.name)
			}
		}
		until(w.t, "the members are others", func() bool {
			votes := 0
			for _, m := range w.node[at].members(name) {
				if m.Membership == "voter" {
					votes++
				}
			}
			return votes == len(l.Members) && !slices.Contains(w.node[at].listing(name).Members, "n4")
		})
	}
	return name
}

// lead has a node lead a queue.
func (w *web) lead(queue string, at int) {
	w.t.Helper()
	until(w.t, fmt.Sprintf("%s leads %s", w.node[at].name, queue), func() bool {
		if w.node[at].listing(queue).Leader == w.node[at].name {
			return true
		}
		_, _ = w.node[at].Ctl("transfer_leadership", queue, w.node[at].name)
		return false
	})
}

// leading waits until a queue has a leader other than the nodes named, as node on sees it.
func (w *web) leading(queue string, on int, but ...string) (leader int) {
	w.t.Helper()
	until(w.t, queue+" has a leader", func() bool {
		l := w.node[on].listing(queue)
		leader = slices.IndexFunc(w.node, func(m *member) bool { return m.name == l.Leader })
		return leader >= 0 && !slices.Contains(but, l.Leader) && slices.Contains(l.Online, l.Leader)
	})
	return leader
}

// caughtUp waits until all members of a queue have the same last index, the online ones being all there are.
func (w *web) caughtUp(queue string, on int) {
	w.t.Helper()
	until(w.t, "the members of "+queue+" are equal", func() bool {
		list := w.node[on].members(queue)
		for _, m := range list {
			if m.Last == "" || m.Last != list[0].Last {
				return false
			}
		}
		return len(list) > 0
	})
}

// confirming is a channel on a connection of its own, in confirm mode.
func (n *node) confirming() *amqp.Channel {
	n.t.Helper()
	ch := n.open()
	ok(n.t, ch.Confirm(false))
	return ch
}

// publishes sends messages and gives what became of each: true is confirmed.
func publishes(t *testing.T, ch *amqp.Channel, exchange, key string, bodies ...string) (answers []bool) {
	t.Helper()
	var waits []*amqp.DeferredConfirmation
	for _, body := range bodies {
		waits = append(waits, must(ch.PublishWithDeferredConfirmWithContext(context.Background(), exchange, key, false, false,
			amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte(body)}))(t))
	}
	ctx, cancel := context.WithTimeout(context.Background(), raw.Wait)
	defer cancel()
	for _, w := range waits {
		answers = append(answers, must(w.WaitContext(ctx))(t))
	}
	return answers
}

// several is n numbered texts.
func several(what string, n int) (list []string) {
	for i := range n {
		list = append(list, fmt.Sprintf("%s-%05d", what, i))
	}
	return list
}

// all says whether every answer is the same.
func all(answers []bool, is bool) bool { return !slices.Contains(answers, !is) }

// drip publishes numbered messages at a pace until it ends.
type drip struct {
	t    *testing.T
	ch   *amqp.Channel
	stop chan struct{}
	done chan struct{}

	mu      sync.Mutex
	sent    []time.Time
	answer  map[int]bool // by number: confirmed
	longest time.Duration
	err     error
}

// drip starts one on a node; bodies are "what-number".
func (n *node) drip(queue, what string, perSecond int) *drip {
	n.t.Helper()
	d := &drip{t: n.t, ch: n.confirming(), stop: make(chan struct{}), done: make(chan struct{}), answer: map[int]bool{}}
	answers := d.ch.NotifyPublish(make(chan amqp.Confirmation, 100_000))
	go func() {
		for a := range answers {
			d.mu.Lock()
			i := int(a.DeliveryTag) - 1
			d.answer[i] = a.Ack
			d.longest = max(d.longest, time.Since(d.sent[i]))
			d.mu.Unlock()
		}
	}()
	go func() {
		defer close(d.done)
		tick := time.NewTicker(time.Second / time.Duration(perSecond))
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-tick.C:
			case <-d.stop:
				return
			}
			d.mu.Lock()
			d.sent = append(d.sent, time.Now())
			d.mu.Unlock()
			err := d.ch.PublishWithContext(context.Background(), "", queue, false, false,
				amqp.Publishing{DeliveryMode: amqp.Persistent, Body: fmt.Appendf(nil, "%s-%05d", what, i)})
			if err != nil {
				d.mu.Lock()
				d.err = err
				d.mu.Unlock()
				return
			}
		}
	}()
	return d
}

// counts are how many were sent, confirmed and nacked so far.
func (d *drip) counts() (sent, acks, nacks int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, is := range d.answer {
		if is {
			acks++
		} else {
			nacks++
		}
	}
	return len(d.sent), acks, nacks
}

// flows waits until so many more are confirmed.
func (d *drip) flows(more int) {
	d.t.Helper()
	_, before, _ := d.counts()
	until(d.t, "publishes are confirmed", func() bool { _, acks, _ := d.counts(); return acks >= before+more })
}

// end stops publishing and waits for all answers.
func (d *drip) end() (sent, acks, nacks int) {
	d.t.Helper()
	close(d.stop)
	<-d.done
	if d.err != nil {
		d.t.Errorf("publishing: %v", d.err)
	}
	until(d.t, "every publish is answered", func() bool { sent, acks, nacks = d.counts(); return acks+nacks == sent })
	d.t.Logf("%d published, %d confirmed, %d nacked, the longest wait %v", sent, acks, nacks, d.longest)
	return sent, acks, nacks
}

// taken is one delivery.
type taken struct {
	body        string
	redelivered bool
}

// sip consumes from a queue and acknowledges everything.
type sip struct {
	t      *testing.T
	ch     *amqp.Channel
	ended  chan struct{}
	mu     sync.Mutex
	got    []taken
	last   time.Time
	gap    time.Duration // the longest between two deliveries
	closed error
}

// sip starts one on a node.
func (n *node) sip(queue string, args amqp.Table) *sip {
	n.t.Helper()
	s := &sip{t: n.t, ch: n.open(), ended: make(chan struct{})}
	ok(n.t, s.ch.Qos(50, 0, false))
	in := must(s.ch.Consume(queue, "", false, false, false, false, args))(n.t)
	go func() {
		defer close(s.ended)
		for d := range in {
			s.mu.Lock()
			if !s.last.IsZero() {
				s.gap = max(s.gap, time.Since(s.last))
			}
			s.got, s.last = append(s.got, taken{string(d.Body), d.Redelivered}), time.Now()
			s.mu.Unlock()
			if err := d.Ack(false); err != nil {
				return
			}
		}
	}()
	return s
}

// count is how many have come.
func (s *sip) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.got)
}

// until waits until so many have come.
func (s *sip) until(n int) {
	s.t.Helper()
	until(s.t, fmt.Sprintf("%d deliveries", n), func() bool { return s.count() >= n })
}

// audit checks that what a drip was told holds for what some consumers got: all that was confirmed came; nothing came twice
// without a flag; what came to one consumer for the first time was in order.
func audit(t *testing.T, what string, d *drip, consumers ...*sip) {
	t.Helper()
	plain, any := map[string]int{}, map[string]bool{}
	for k, s := range consumers {
		last := ""
		s.mu.Lock()
		for _, g := range s.got {
			if len(g.body) < len(what) || g.body[:len(what)] != what {
				continue
			}
			any[g.body] = true
			if g.redelivered {
				continue
			}
			plain[g.body]++
			if g.body < last {
				t.Errorf("consumer %d got %s after %s", k, g.body, last)
			}
			last = g.body
		}
		s.mu.Unlock()
	}
	for body, n := range plain {
		if n > 1 {
			t.Errorf("%s came %d times without the flag", body, n)
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for i, is := range d.answer {
		if body := fmt.Sprintf("%s-%05d", what, i); is && !any[body] {
			t.Errorf("%s was confirmed and never came", body)
		}
	}
}
