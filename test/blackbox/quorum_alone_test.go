package blackbox

import (
	"fmt"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// R129: two of three nodes are lost for good, and with them the majority of the catalog and of every queue. The one that is left goes on by
// order: with the definitions, the classic queues that live on it, and everything that its members have. New nodes join it and get members.
func TestQuorumOneNodeIsLeft(t *testing.T) {
	t.Parallel()
	long(t)
	w := newWeb(t, 3)
	left := w.node[2]
	q := w.quorum(0, "q")
	must(left.open().QueueDeclare("here", true, false, false, false, nil))(t)
	must(w.node[0].open().QueueDeclare("there", true, false, false, false, nil))(t)
	for _, to := range []string{q, "here", "there"} {
		if !all(publishes(t, w.node[1].confirming(), "", to, several("a", 100)...), true) {
			t.Fatalf("%s nacks", to)
		}
	}
	w.caughtUp(q, 2)
	ch := left.open()
	ok(t, ch.Qos(10, 0, false))
	in := consume(t, ch, q)
	var held []amqp.Delivery
	for range 10 {
		held = append(held, next(t, in))
	}
	w.caughtUp(q, 2)
	left.refuses(69, "", "force_boot") // there is a leader
	for _, m := range w.node[:2] {
		ok(t, m.Kill())
		m.wipe()
	}
	until(t, "it is noticed", func() bool { return left.listing(q).State == "minority" })
	until(t, "it goes on alone", func() bool { _, err := left.Ctl("force_boot"); return err == nil })
	for _, name := range []string{"n1", "n2"} {
		left.does("forget_cluster_node", name)
	}
	left.known("n3")
	left.absent("there")
	must(left.open().QueueDeclare("new", true, false, false, false, nil))(t)
	left.alone(q)
	until(t, "it leads", func() bool { return left.listing(q).Leader == "n3" })
	if !all(publishes(t, left.confirming(), "", q, several("b", 10)...), true) {
		t.Error("nacked")
	}
	for _, d := range held {
		ok(t, d.Ack(false))
	}
	for i := 10; i < 110; i++ {
		d := next(t, in)
		want := fmt.Sprintf("a-%05d", i)
		if i >= 100 {
			want = fmt.Sprintf("b-%05d", i-100)
		}
		if string(d.Body) != want || d.Redelivered {
			t.Fatalf("delivery %d is %q, redelivered %v; want %q", i, d.Body, d.Redelivered, want)
		}
		if i < 100 {
			ok(t, d.Ack(false))
		}
	}
	ok(t, ch.Close()) // and the last ten come back
	for i, body := range several("a", 100) {
		equal(t, fmt.Sprint("message ", i, " of the classic queue"), string(get(t, left.open(), "here", true).Body), body)
	}

	for _, m := range w.node[:2] { // others take their names and places
		ok(t, m.Start())
	}
	for _, m := range w.node {
		m.known("n1", "n2", "n3")
	}
	left.votes(3)
	for _, name := range []string{"n1", "n2"} {
		left.adds(q, name)
	}
	w.caughtUp(q, 2)
	ok(t, left.Kill())
	w.leading(q, 0, "n3")
	ch = w.node[1].open()
	for _, body := range several("b", 10) {
		d := get(t, ch, q, true)
		equal(t, "after the loss of the one that was left", fmt.Sprint(string(d.Body), d.Redelivered), body+"true")
	}
	empty(t, ch, q)
}
