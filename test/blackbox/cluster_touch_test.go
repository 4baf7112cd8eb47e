package blackbox

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"holdfast/test/raw"
)

// closed is a watch over the end of a connection.
func closed(t *testing.T, c *amqp.Connection) func() *amqp.Error {
	ended := c.NotifyClose(make(chan *amqp.Error, 1))
	return func() *amqp.Error {
		t.Helper()
		select {
		case e := <-ended:
			return e
		case <-time.After(raw.Wait):
			t.Fatal("the connection stays open")
			return nil
		}
	}
}

// confirmed publishes a message to a queue and waits until it is confirmed.
func confirmed(t *testing.T, ch *amqp.Channel, exchange, key, body string) {
	t.Helper()
	d := must(ch.PublishWithDeferredConfirmWithContext(context.Background(), exchange, key, false, false,
		amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte(body)}))(t)
	ctx, cancel := context.WithTimeout(context.Background(), raw.Wait)
	defer cancel()
	if acked, err := d.WaitContext(ctx); err != nil || !acked {
		t.Fatalf("%q: confirmed %v, %v", body, acked, err)
	}
}

// Who is deleted on one node is disconnected from all of them, and so is who uses a virtual host that is deleted.
func TestClusterDeletionsCloseConnectionsElsewhere(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	for _, command := range [][]string{
		{"add_user", "ada", "secret"}, {"set_permissions", "ada", ".*", ".*", ".*"},
		{"add_vhost", "away"}, {"set_permissions", "-p", "away", "guest", ".*", ".*", ".*"},
	} {
		c[0].does(command...)
	}
	ada := closed(t, dialURL(t, "amqp://ada:secret@"+c[1].Addr+"/"))
	away := closed(t, dialURL(t, "amqp://guest:guest@"+c[2].Addr+"/away"))
	stays := dialURL(t, c[2].URL())
	c[0].does("delete_user", "ada")
	if e := ada(); e == nil || e.Code != amqp.ConnectionForced {
		t.Errorf("the connection of the deleted user: %v", e)
	}
	c[0].does("delete_vhost", "away")
	if e := away(); e == nil || e.Code != amqp.ConnectionForced {
		t.Errorf("the connection to the deleted virtual host: %v", e)
	}
	if _, err := stays.Channel(); err != nil {
		t.Errorf("another connection: %v", err)
	}
	if _, err := amqp.Dial("amqp://ada:secret@" + c[2].Addr + "/"); err == nil {
		t.Error("the deleted user logs in")
	}
}

// An exclusive name is free again as soon as its owner's node is suspected to be gone.
func TestClusterExclusiveNameOfALostNode(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	must(c[2].open().QueueDeclare("mine", false, false, true, false, nil))(t)
	_, err := c[0].open().QueueDeclare("mine", false, false, true, false, nil)
	var e *amqp.Error
	if !errors.As(err, &e) || e.Code != amqp.ResourceLocked {
		t.Fatalf("the name of another's exclusive queue: %v, want 405", err)
	}
	ok(t, c[2].Kill())
	began := time.Now()
	until(t, "the name is free", func() bool {
		_, err := c[0].open().QueueDeclare("mine", false, false, true, false, nil)
		return err == nil
	})
	if took := time.Since(began); took > 20*time.Second { // what dies with a node for good does so after 30 s
		t.Errorf("it took %v", took)
	}
	ok(t, c[2].Start())
}

// A node that stood still asks before it routes: what it gets is routed by what was bound meanwhile.
func TestClusterPausedNodeRoutesByTheNewest(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	ch := c[0].open()
	ok(t, ch.ExchangeDeclare("x", "fanout", true, false, false, false, nil))
	for _, q := range []string{"before", "after"} {
		must(ch.QueueDeclare(q, true, false, false, false, nil))(t)
	}
	ok(t, ch.QueueBind("before", "", "x", false, nil))
	entry := c[2].open()
	ok(t, entry.Confirm(false))
	confirmed(t, entry, "x", "", "first") // it knows the route by now

	ok(t, pause(c[2].Pid()))
	ok(t, ch.QueueBind("after", "", "x", false, nil)) // is answered when the others have it, a second at most
	waiting := must(entry.PublishWithDeferredConfirmWithContext(context.Background(), "x", "", false, false, amqp.Publishing{Body: []byte("second")}))(t)
	ok(t, resume(c[2].Pid()))
	ctx, cancel := context.WithTimeout(context.Background(), raw.Wait)
	defer cancel()
	if acked, err := waiting.WaitContext(ctx); err != nil || !acked {
		t.Fatalf("confirmed %v, %v", acked, err)
	}
	if d := get(t, ch, "after", true); string(d.Body) != "second" {
		t.Errorf("got %q", d.Body)
	}
}

// R79 R80: without a majority a node goes on with what it knows: its own queues take messages, and listings, metrics and log say
// that they may be out of date.
func TestClusterNodeOnItsOwn(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	ch := c[0].open()
	must(ch.QueueDeclare("here", true, false, false, false, nil))(t)
	ok(t, ch.Confirm(false))
	confirmed(t, ch, "", "here", "one")
	if out := c[0].does("list_queues", "name"); strings.Contains(out, "out of date") {
		t.Errorf("the listing of a whole cluster: %s", out)
	}
	ok(t, c[1].Kill())
	ok(t, c[2].Kill())
	until(t, "nobody leads", func() bool {
		for _, n := range c[0].cluster().Nodes {
			if n.Leader {
				return false
			}
		}
		return true
	})
	began := time.Now()
	for i := range 30 {
		confirmed(t, ch, "", "here", fmt.Sprint(i))
	}
	if took := time.Since(began); took > 20*time.Second { // one of them waits for a barrier, for a second
		t.Errorf("thirty messages took %v", took)
	}
	if gauges := must(c[0].Gauges())(t); gauges["holdfast_cluster_catalog_stale"] != 1 {
		t.Errorf("holdfast_cluster_catalog_stale is %v", gauges["holdfast_cluster_catalog_stale"])
	}
	c[0].said("messages are routed by what this node knew last")
	if out := c[0].both("list_queues", "name"); !strings.Contains(out, "here") || !strings.Contains(out, "Warning: this may be out of date") {
		t.Errorf("the listing: %s", out)
	}
	// Nobody is removed without a majority; nor when there is one again.
	c[0].refuses(69, "no majority", "forget_cluster_node", "n2")
	ok(t, c[1].Start())
	if disk := c[1].cluster().Disk; len(disk) != 3 {
		t.Errorf("disk nodes: %v", disk)
	}
	until(t, "all is well", func() bool { return must(c[0].Gauges())(t)["holdfast_cluster_catalog_stale"] == 0 })
	c[0].said("routed by what the whole cluster knows again")
	confirmed(t, ch, "", "here", "last")
	if out := c[0].both("list_queues", "name"); strings.Contains(out, "out of date") {
		t.Errorf("the listing afterwards: %s", out)
	}
}
