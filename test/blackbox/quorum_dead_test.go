package blackbox

import (
	"fmt"
	"slices"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// R387 R386 R518: the node that leads a queue is killed while its dead letters are on their way: all arrive, the first times in their
// order. What had failed before has failed as often afterwards.
func TestQuorumDeadLettersOverALeadersEnd(t *testing.T) {
	t.Parallel()
	tr := newTrio(t)
	tr.start(0, 1, 2)
	first := tr.nodes[0].open()
	must(first.QueueDeclare("grave", true, false, false, false, quorumArgs))(t)
	must(first.QueueDeclare("source", true, false, false, false, amqp.Table{
		"x-queue-type": "quorum", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "grave"}))(t)
	must(first.QueueDeclare("failing", true, false, false, false, quorumArgs))(t)
	for _, q := range []string{"grave", "source", "failing"} {
		tr.nodes[1].seated(q, "n1*,n2,n3")
	}

	failing := tr.nodes[2].open()
	tr.nodes[2].put(failing, "", "failing", persistent("x"))
	tries := must(failing.Consume("failing", "tag", false, false, false, false, nil))(t)
	ok(t, next(t, tries).Reject(true))
	ok(t, next(t, tries).Nack(false, true))
	d := next(t, tries)
	equal(t, "before", countsOf(d), "true 2 1")

	const many = 500
	consumer := tr.nodes[2].open()
	in := must(consumer.Consume("source", "", false, false, false, false, nil))(t)
	tr.nodes[1].confirmed("source", many, nil)
	var want []string
	for i := range many {
		if i == many/2 {
			ok(t, tr.nodes[0].Kill())
		}
		m := next(t, in)
		want = append(want, string(m.Body))
		ok(t, m.Reject(false))
	}

	out := must(tr.nodes[1].open().Consume("grave", "", true, false, false, false, nil))(t)
	seen := map[string]bool{}
	var got []string
	for len(got) < many {
		m := next(t, out)
		if body := string(m.Body); !seen[body] {
			seen[body] = true
			got = append(got, body)
			equal(t, "reason", deaths(t, m)[0]["reason"], any("rejected"))
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("of %d letters came %d, or not in their order", many, len(got))
	}

	ok(t, d.Reject(true))
	equal(t, "afterwards", countsOf(next(t, tries)), "true 3 2")
}

// R387: letters that their target has no room for are there after a restart, and arrive when there is room.
func TestHeldLettersOverRestart(t *testing.T) {
	t.Parallel()
	kinds := []string{"classic", "quorum"}
	afterRestart(t, func(t *testing.T, n *node, restart func()) {
		ch := n.open()
		for _, kind := range kinds {
			grave := kind + " grave"
			must(ch.QueueDeclare(grave, true, false, false, false, amqp.Table{"x-queue-type": kind, "x-max-length": 1, "x-overflow": "reject-publish"}))(t)
			must(ch.QueueDeclare(kind, true, false, false, false, amqp.Table{"x-queue-type": kind, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": grave}))(t)
			for i := range 3 {
				n.put(ch, "", kind, persistent(fmt.Sprint(i)))
			}
			in := must(ch.Consume(kind, kind, false, false, false, false, nil))(t)
			for range 3 {
				ok(t, next(t, in).Reject(false))
			}
			eventually(t, "the first letter", func() bool {
				return must(ch.QueueDeclarePassive(grave, true, false, false, false, nil))(t).Messages == 1
			})
		}
		n.settledOnDisk(ch, kinds...)
		restart()
		for _, kind := range kinds {
			ch := n.open()
			ok(t, ch.Qos(1, 0, false))
			in := consume(t, ch, kind+" grave")
			left := map[string]bool{"0": true, "1": true, "2": true}
			for len(left) > 0 {
				m := next(t, in)
				delete(left, string(m.Body))
				ok(t, m.Ack(false))
			}
		}
	})
}
