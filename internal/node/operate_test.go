package node

import (
	"context"
	"fmt"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"holdfast/internal/broker"
)

// R471: a queue is paused by any node, and stays so with whoever leads it.
func TestClusterPausedQueueIsLedAnew(t *testing.T) {
	tr := newTrio(t)
	tr.start(t, 0, 1, 2)
	tr.raised(t)
	ch := open(t, tr.nodes[1])
	must(ch.QueueDeclare("q", true, false, false, false, quorum))(t)
	in := must(open(t, tr.nodes[0]).Consume("q", "", true, false, false, false, nil))(t)
	paused := func(on bool) {
		t.Helper()
		if err := tr.nodes[2].Broker().AdminPauseQueue("/", "q", on); err != nil {
			t.Fatal(err)
		}
	}
	paused(true)
	eventually(t, "the leader has heard of it", func() bool {
		x, err := tr.nodes[1].Broker().Explain(context.Background(), "/", "q")
		return err == nil && len(x.Lines) > 1 && x.Queue.Paused && x.Lines[1][:19] == "The queue is paused"
	})
	send(t, ch, "q", amqp.Persistent, "a")
	tr.abreast(t, "q", 1, 3)
	if err := tr.nodes[1].members.Transfer(t.Context(), "/", "q", "n3"); err != nil {
		t.Fatal(err)
	}
	send(t, ch, "q", amqp.Persistent, "b") // the new leader serves
	select {
	case d := <-in:
		t.Fatalf("delivered %q", d.Body)
	default:
	}
	paused(false)
	for _, want := range []string{"a", "b"} {
		if d := <-in; string(d.Body) != want {
			t.Errorf("delivered %q, want %q", d.Body, want)
		}
	}
}

// R475: a redrive runs in the node that is asked, whoever serves the queues.
func TestClusterRedrive(t *testing.T) {
	tr := newTrio(t)
	tr.start(t, 0, 1, 2)
	ch, other := open(t, tr.nodes[1]), open(t, tr.nodes[2])
	for kind, args := range map[string]amqp.Table{"classic": {}, "quorum": {"x-queue-type": "quorum"}} {
		all := amqp.Table{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": kind + "-dead"}
		for k, v := range args {
			all[k] = v
		}
		must(other.QueueDeclare(kind+"-dead", true, false, false, false, args))(t)
		must(ch.QueueDeclare(kind, true, false, false, false, all))(t)
		send(t, ch, kind, amqp.Persistent, numbered("m", 100)...)
		for range 100 {
			d, _, err := ch.Get(kind, false)
			if err != nil {
				t.Fatal(err)
			}
			if err := d.Reject(false); err != nil {
				t.Fatal(err)
			}
		}
		n := tr.nodes[0].Broker()
		eventually(t, "all are dead", func() bool {
			q, err := n.QueueInfo("/", kind+"-dead")
			return err == nil && q.MessagesReady == 100 && !q.Stale
		})
		said, err := n.Redrive(t.Context(), broker.Redrive{VHost: "/", Queue: kind + "-dead"}, func(broker.Redriven) {})
		if err != nil || fmt.Sprint(said) != fmt.Sprintf("{100 0 map[] map[%s:100]}", kind) {
			t.Fatalf("%s: %v, %v", kind, said, err)
		}
		eventually(t, "all are back", func() bool {
			q, err := n.QueueInfo("/", kind)
			dead, err2 := n.QueueInfo("/", kind+"-dead")
			return err == nil && err2 == nil && q.MessagesReady == 100 && dead.Messages == 0
		})
	}
}
