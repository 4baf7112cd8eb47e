package node

import (
	"slices"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// R636: a node that hears nobody holds a dead letter whose exchange it does not know, and carries it when it hears that there is one.
func TestDeadLetterOutlivesABlindNode(t *testing.T) {
	tr := newTrio(t)
	tr.start(t, 0, 1, 2)
	tr.raised(t)
	ch := open(t, tr.nodes[0])
	must(ch.QueueDeclare("work", true, false, false, false, amqp.Table{"x-queue-type": "classic", "x-dead-letter-exchange": "later"}))(t)
	send(t, ch, "work", amqp.Persistent, "letter")
	d, got, err := ch.Get("work", false)
	if err != nil || !got {
		t.Fatal(got, err)
	}
	tr.stop(t, 1)
	tr.stop(t, 2)
	eventually(t, "it is alone", func() bool { return tr.nodes[0].stale() != "" })
	if err := d.Reject(false); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the letter is held", func() bool {
		e, err := tr.nodes[0].Broker().Explain(t.Context(), "/", "work")
		return err == nil && slices.ContainsFunc(e.Lines, func(line string) bool {
			return strings.Contains(line, "1 dead letter is held: this node is not in touch")
		})
	})
	tr.start(t, 1)
	other := open(t, tr.nodes[1])
	if err := other.ExchangeDeclare("later", "fanout", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	must(other.QueueDeclare("dead", true, false, false, false, nil))(t)
	if err := other.QueueBind("dead", "", "later", false, nil); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it has arrived", func() bool { return len(get(t, other, "dead")) == 1 })
}
