package node

import (
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"holdfast/internal/broker"
)

// A node lists queues that live on others and that it has not used itself as they are: with what they hold and who serves
// them. R147
func TestClusterListsQueuesItHasNotUsed(t *testing.T) {
	tr := newTrio(t)
	tr.start(t, 0, 1, 2)
	ch := open(t, tr.nodes[1])
	must(ch.QueueDeclare("classic", true, false, false, false, nil))(t)
	must(ch.QueueDeclare("transient", false, false, false, false, amqp.Table{"x-queue-type": "classic"}))(t)
	must(ch.QueueDeclare("quorum", true, false, false, false, amqp.Table{"x-queue-type": "quorum", "x-quorum-initial-group-size": 1}))(t)
	names := []string{"classic", "quorum", "transient"}
	for _, q := range names {
		send(t, ch, q, amqp.Persistent, "a", "b")
		if _, got, err := ch.Get(q, false); !got || err != nil {
			t.Fatalf("get from %s: %v, %v", q, got, err)
		}
	}
	for _, i := range []int{0, 2} { // the first look of a node: nothing there has used the queues
		n := tr.nodes[i]
		eventually(t, "the node has heard of the queues, and what serves them answers", func() bool {
			list, _, err := n.Broker().ListQueues("/", broker.QueuePage{})
			if err != nil || len(list) != len(names) {
				return false
			}
			for k, q := range list {
				if q.Name != names[k] || q.Leader != "n2" || q.State != "running" || q.MessagesReady != 1 ||
					q.MessagesUnacknowledged != 1 || q.Counters.Published != 2 || q.Stale {
					return false
				}
			}
			return true
		})
	}
	tr.stop(t, 1) // what it last said is shown, and marked
	eventually(t, "the node is away, and its queues are listed as they were", func() bool {
		q, err := tr.nodes[0].Broker().QueueInfo("/", "classic")
		return err == nil && q.State == "down" && q.Stale && q.MessagesReady == 1 && q.MessagesUnacknowledged == 1
	})
}

// The same of their consumers. R147
func TestClusterListsConsumersOfQueuesItHasNotUsed(t *testing.T) {
	tr := newTrio(t)
	tr.start(t, 0, 1, 2)
	ch := open(t, tr.nodes[1])
	must(ch.QueueDeclare("classic", true, false, false, false, nil))(t)
	must(ch.QueueDeclare("quorum", true, false, false, false, amqp.Table{"x-queue-type": "quorum", "x-quorum-initial-group-size": 1}))(t)
	must(ch.Consume("classic", "on the other node", false, false, false, false, nil))(t)
	must(ch.Consume("quorum", "of the group", false, false, false, false, nil))(t)
	is := func(c broker.ConsumerInfo, queue, tag string) bool { return c.Queue == queue && c.Tag == tag }
	eventually(t, "the node lists the consumers", func() bool {
		list, err := tr.nodes[0].Broker().ListConsumers("/")
		return err == nil && len(list) == 2 && is(list[0], "classic", "on the other node") && is(list[1], "quorum", "of the group")
	})
}
