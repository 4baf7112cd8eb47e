package node

import (
	"fmt"
	"slices"
	"testing"

	"holdfast/internal/catalog"
	"holdfast/internal/routing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// R361 R364 R365: on three nodes a key leads to the same queue everywhere, a local exchange keeps to the node that it is published on,
// and a queue that is bound gets what was published before on any of them.
func TestExchangeTypesOnThreeNodes(t *testing.T) {
	tr := newTrio(t)
	tr.start(t, 0, 1, 2)
	tr.raised(t)
	var chans [3]*amqp.Channel
	for i, n := range tr.nodes {
		chans[i] = open(t, n)
	}
	for x, kind := range map[string]string{"hash": "x-consistent-hash", "local": "x-local-random", "recent": "x-recent-history"} {
		must(0, chans[0].ExchangeDeclare(x, kind, true, false, false, false, nil))(t)
	}
	for i, ch := range chans {
		q := fmt.Sprint("q", i)
		must(ch.QueueDeclare(q, true, false, false, false, nil))(t)
		must(0, ch.QueueBind(q, fmt.Sprint(1+i), "hash", false, nil))(t)
		must(0, ch.QueueBind(q, "", "local", false, nil))(t)
	}
	send := func(i int, x, body string) {
		t.Helper()
		d := must(chans[i].PublishWithDeferredConfirm(x, "key", false, false, amqp.Publishing{Body: []byte(body)}))(t)
		if !d.Wait() {
			t.Fatalf("%s to %s was refused", body, x)
		}
	}
	drain := func(q string) (bodies []string) {
		t.Helper()
		for {
			d, ok, err := chans[0].Get(q, true)
			if err != nil {
				t.Fatal(err)
			}
			if !ok {
				return bodies
			}
			bodies = append(bodies, string(d.Body))
		}
	}

	var routes [3][]catalog.QueueID
	for i, n := range tr.nodes {
		eventually(t, "the bindings", func() bool { return n.catalog.View().Bindings("/").Len() == 6 })
		v := n.catalog.View()
		for k := range 300 {
			routes[i] = v.Route(v.Exchange("/", "hash"), &routing.Message{Key: fmt.Sprint(k)}, routes[i])
		}
	}
	if len(routes[0]) != 300 || !slices.Equal(routes[0], routes[1]) || !slices.Equal(routes[0], routes[2]) {
		t.Error("keys lead to other queues on other nodes")
	}

	for i := range chans {
		for range 5 {
			send(i, "local", fmt.Sprint(i))
		}
	}
	for i := range chans {
		if got, want := drain(fmt.Sprint("q", i)), slices.Repeat([]string{fmt.Sprint(i)}, 5); !slices.Equal(got, want) {
			t.Errorf("the queue on node %d got %v", i, got)
		}
	}

	for k := range 6 {
		send(k%3, "recent", fmt.Sprint(k))
	}
	must(0, chans[1].QueueBind("q2", "", "recent", false, nil))(t)
	got := drain("q2")
	for i := range 3 { // each node's in its order
		if slices.Index(got, fmt.Sprint(i)) > slices.Index(got, fmt.Sprint(i+3)) {
			t.Errorf("the history: %v", got)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, []string{"0", "1", "2", "3", "4", "5"}) {
		t.Errorf("the history: %v", got)
	}
}
