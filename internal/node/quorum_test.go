package node

import (
	"fmt"
	"slices"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

var quorum = amqp.Table{"x-queue-type": "quorum"}

// A node that is alone has quorum queues with one member; they keep everything over a restart.
func TestQuorumQueueOfANodeAlone(t *testing.T) {
	p := newPlace(t)
	n := p.run(t)
	ch := open(t, n)
	must(ch.QueueDeclare("q", true, false, false, false, quorum))(t)
	send(t, ch, "q", amqp.Transient, numbered("m", 10)...) // persistent all the same
	if _, ok, err := ch.Get("q", true); err != nil || !ok {
		t.Fatal(ok, err)
	}
	info, err := n.Broker().QueueInfo("/", "q")
	if err != nil || info.Type != "quorum" || info.Leader != n.name() || !slices.Equal(info.Members, []string{n.name()}) || info.State != "running" {
		t.Errorf("listed as %+v, %v", info, err)
	}
	stop(t, n)
	n = p.run(t)
	ch = open(t, n)
	must(ch.QueueDeclare("q", true, false, false, false, quorum))(t)
	if got, want := get(t, ch, "q"), numbered("m", 10)[1:]; !slices.Equal(got, want) {
		t.Errorf("after the restart: %v, want %v", got, want)
	}
	if n := must(ch.QueueDelete("q", true, true, false))(t); n != 0 {
		t.Errorf("%d messages went with the queue", n)
	}
	if _, err := open(t, n).QueueDeclarePassive("q", true, false, false, false, quorum); err == nil {
		t.Error("the deleted queue is there")
	}
}

// leads waits until a node of the trio leads a queue, and says which.
func (tr *trio) leads(t *testing.T, queue string, on int) int {
	t.Helper()
	found := -1
	eventually(t, "the queue has a leader", func() bool {
		info, err := tr.nodes[on].Broker().QueueInfo("/", queue)
		if err != nil || info.Leader == "" {
			return false
		}
		found = int(info.Leader[1] - '1')
		return true
	})
	return found
}

// A quorum queue is declared on one node and used on all of them. It is led where it was declared, and listed everywhere.
func TestClusterQuorumQueueEverywhere(t *testing.T) {
	tr := newTrio(t)
	tr.start(t, 0, 1, 2)
	var chans [3]*amqp.Channel
	for i, n := range tr.nodes {
		chans[i] = open(t, n)
	}
	for k := range 12 {
		name, on := fmt.Sprint("q", k), k%3
		args := amqp.Table{"x-queue-type": "quorum"}
		if k >= 9 {
			args["x-quorum-initial-group-size"] = 2
		}
		must(chans[on].QueueDeclare(name, true, false, false, false, args))(t)
		for i := range chans { // R81, R82
			send(t, chans[i], name, amqp.Persistent, fmt.Sprint("from", i))
		}
		for i := range chans {
			d, ok, err := chans[i].Get(name, true)
			if err != nil || !ok || string(d.Body) != fmt.Sprint("from", i) {
				t.Fatalf("queue %s on node %d: %v, %v, %q", name, i, err, ok, d.Body)
			}
		}
		if lead := tr.leads(t, name, (k+1)%3); lead != on {
			t.Errorf("queue %s was declared on node %d and is led by %d", name, on, lead)
		}
		for i, n := range tr.nodes { // R65, R66
			info, err := n.Broker().QueueInfo("/", name)
			if want := 3 - k/9; err != nil || len(info.Members) != want || len(info.Online) != want || info.State != "running" || info.Members[0] != fmt.Sprint("n", on+1) {
				t.Errorf("node %d lists %+v, %v", i, info, err)
			}
		}
	}
	must(chans[0].QueueDelete("q1", false, false, false))(t)
	for i := range chans {
		if _, err := open(t, tr.nodes[i]).QueueDeclarePassive("q1", true, false, false, false, quorum); err == nil {
			t.Errorf("node %d has the deleted queue", i)
		}
	}
}
