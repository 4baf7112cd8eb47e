package blackbox

import (
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// watched is a publisher that hears when it is held back.
type watched struct {
	t    *testing.T
	ch   *amqp.Channel
	word chan amqp.Blocking
	to   string
}

// watched connects a publisher to a queue.
func (n *node) watched(to string) *watched {
	n.t.Helper()
	c := dialURL(n.t, n.URL())
	p := &watched{n.t, channel(n.t, c), c.NotifyBlocked(make(chan amqp.Blocking, 16)), to}
	ok(n.t, p.ch.Confirm(false))
	return p
}

// publish sends a message and does not wait.
func (p *watched) publish(body string) *amqp.DeferredConfirmation {
	p.t.Helper()
	return must(p.ch.PublishWithDeferredConfirm("", p.to, false, false, persistent(body)))(p.t)
}

// told is what it hears next.
func (p *watched) told(active bool, reason string) {
	p.t.Helper()
	until(p.t, p.to+": the publisher is told", func() bool { return len(p.word) > 0 })
	w := <-p.word
	equal(p.t, p.to+": blocked", w.Active, active)
	equal(p.t, p.to+": the reason", w.Reason, reason)
}

// R494 R495 R496 R497 R498: the disk alarm of one node of three. It hands over what others can lead. Publishers on another node are held
// back at their first publish to what it still serves, and that publish is kept; those that publish elsewhere, and consumers, go on. All
// nodes list the alarm. It is over when there is room, and when the node is gone.
func TestClusterAlarm(t *testing.T) {
	heavy(t)
	t.Parallel()
	w := newWeb(t, 3)
	n1, n2, n3 := w.node[0], w.node[1], w.node[2]
	must(n1.open().QueueDeclare("there", true, false, false, false, nil))(t)
	must(n2.open().QueueDeclare("here", true, false, false, false, nil))(t)
	q, alone := w.quorum(0, "q"), w.quorum(0, "alone", "x-quorum-initial-group-size", 1)
	w.lead(q, 0)
	until(t, "n2 knows the queues", func() bool { return n2.listing(alone).Leader == "n1" && n2.listing("there").Leader == "n1" })
	to, here, both, only := n2.watched("there"), n2.watched("here"), n2.watched(q), n2.watched(alone)
	equal(t, "confirmed before", to.publish("1").Wait(), true)
	consumer := dialURL(t, n2.URL())
	told := consumer.NotifyBlocked(make(chan amqp.Blocking, 4))
	in := consume(t, channel(t, consumer), "there")
	equal(t, "consumed before", string(next(t, in).Body), "1")

	const alarm, reason = "Free disk space alarm on node n1", "low on disk at node n1"
	n1.does("set_disk_free_limit", "1048576GiB")
	until(t, "the other nodes know", func() bool {
		_, err2 := n2.Ctl("check_alarms")
		_, err3 := n3.Ctl("check_alarms")
		return err2 != nil && err3 != nil && strings.Contains(err2.Error(), alarm)
	})
	n2.does("check_local_alarms")
	if _, err := n1.Ctl("check_local_alarms"); err == nil {
		t.Error("n1 has no alarm of its own")
	}
	for _, n := range w.node {
		if out := must(n.Ctl("cluster_status"))(t); !strings.Contains(out, "Alarms\n\n"+alarm+"\n\n") {
			t.Errorf("%s:\n%s", n.name, out)
		}
	}
	w.leading(q, 1, "n1")
	for _, p := range []*watched{here, both} {
		for range 3 {
			equal(t, p.to+": confirmed under the alarm", p.publish("x").Wait(), true)
		}
		equal(t, p.to+": told", len(p.word), 0)
	}
	kept := to.publish("2")
	to.told(true, reason)
	equal(t, "kept", kept.Wait(), true)
	equal(t, "consumed under the alarm", string(next(t, in).Body), "2")
	waiting := to.publish("3")
	until(t, "a queue that cannot be handed over holds its publisher back, too", func() bool {
		only.publish("x")
		return len(only.word) > 0
	})
	only.told(true, reason)
	if out := must(n2.Ctl("list_connections", "state"))(t); strings.Count(out, "blocked") != 2 {
		t.Errorf("two connections are blocked:\n%s", out)
	}
	own := n1.watched(q)
	own.publish("x")
	own.told(true, "low on disk")

	n1.does("set_disk_free_limit", "1MB")
	for _, p := range []*watched{to, only, own} {
		p.told(false, "")
	}
	equal(t, "confirmed afterwards", waiting.Wait(), true)
	equal(t, "consumed afterwards", string(next(t, in).Body), "3")
	until(t, "the alarm is over for all", func() bool { _, err := n2.Ctl("check_alarms"); return err == nil })

	n1.does("set_disk_free_limit", "1048576GiB")
	until(t, "n2 knows again", func() bool { _, err := n2.Ctl("check_alarms"); return err != nil })
	to.publish("4")
	to.told(true, reason)
	ok(t, n1.Kill())
	to.told(false, "")
	until(t, "the alarm went with its node", func() bool { _, err := n2.Ctl("check_alarms"); return err == nil })
	for _, p := range []*watched{to, here, both, only} {
		equal(t, p.to+": told more", len(p.word), 0)
	}
	equal(t, "the consumer was told", len(told), 0)
}
