package blackbox

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"holdfast/test/raw"
	"holdfast/test/rig"
)

// node is a broker of a test's own, which it may stop and start.
type node struct {
	*rig.Broker
	t *testing.T
}

// ownBroker starts a broker that the test may restart. It needs the binary.
func ownBroker(t *testing.T, extra ...string) *node {
	t.Helper()
	if target.binary == "" {
		t.Skip("the broker is not ours to restart")
	}
	b := must(rig.New(target.binary, t.TempDir(), extra...))(t)
	n := &node{Broker: b, t: t}
	t.Cleanup(func() {
		_ = b.Kill()
		if t.Failed() {
			t.Logf("end of the broker's log:\n%s", b.Tail())
		}
	})
	ok(t, b.Start())
	return n
}

// restarts are the two ways a broker goes down; each comes back by Start.
var restarts = map[string]func(n *node){
	"killed":  func(n *node) { n.t.Helper(); ok(n.t, n.Kill()); ok(n.t, n.Start()) },
	"stopped": func(n *node) { n.t.Helper(); ok(n.t, n.Stop()); ok(n.t, n.Start()) },
}

// afterRestart runs a test once for each way down, in parallel.
func afterRestart(t *testing.T, test func(t *testing.T, n *node, restart func())) {
	for how, restart := range restarts {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			n := ownBroker(t)
			test(t, n, func() { t.Helper(); restart(n) })
		})
	}
}

// open is a channel in confirm mode.
func (n *node) open() *amqp.Channel {
	n.t.Helper()
	ch := channel(n.t, dialURL(n.t, n.URL()))
	ok(n.t, ch.Confirm(false))
	return ch
}

// put publishes confirmed messages.
func (n *node) put(ch *amqp.Channel, exchange, key string, messages ...amqp.Publishing) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), raw.Wait)
	defer cancel()
	for _, m := range messages {
		d, err := ch.PublishWithDeferredConfirmWithContext(ctx, exchange, key, false, false, m)
		ok(n.t, err)
		acked, err := d.WaitContext(ctx)
		ok(n.t, err)
		equal(n.t, "acked", acked, true)
	}
}

func persistent(body string) amqp.Publishing {
	return amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte(body)}
}

// settledOnDisk waits until what was settled before on the channel is on the disk. A confirm says so of all that went into
// the queue before the message it is for; that message, "end", is the queue's last.
func (n *node) settledOnDisk(ch *amqp.Channel, queues ...string) {
	n.t.Helper()
	settled(n.t, ch)
	for _, q := range queues {
		n.put(ch, "", q, persistent("end"))
	}
}

// drain gets everything a queue has, as "body" or "body!" if redelivered.
func drain(t *testing.T, ch *amqp.Channel, q string) string {
	t.Helper()
	var out []string
	for {
		d, there, err := ch.Get(q, true)
		ok(t, err)
		if !there {
			return strings.Join(out, " ")
		}
		s := string(d.Body)
		if d.Redelivered {
			s += "!"
		}
		out = append(out, s)
	}
}

// R22 R23 R95 R246 R248: after a restart there is what is durable in a durable
// queue, and nothing else.
func TestDurableAndPersistent(t *testing.T) {
	t.Parallel()
	afterRestart(t, func(t *testing.T, n *node, restart func()) {
		ch := n.open()
		for q, durable := range map[string]bool{"durable": true, "transient": false} {
			must(ch.QueueDeclare(q, durable, false, false, false, nil))(t)
			n.put(ch, "", q, persistent("1"), amqp.Publishing{DeliveryMode: amqp.Transient, Body: []byte("2")},
				amqp.Publishing{Body: []byte("3")}, persistent("4"))
		}
		restart()
		ch = n.open()
		equal(t, "durable queue", drain(t, ch, "durable"), "1 4")
		_, err := ch.QueueDeclarePassive("transient", false, false, false, false, nil)
		refused(t, err, 404)
	})
}

// R34 R251: what was held when the broker went down comes back, in its place
// and marked; what was acked does not.
func TestHeldOverRestart(t *testing.T) {
	onEachType(t, func(t *testing.T, kind string) {
		afterRestart(t, func(t *testing.T, n *node, restart func()) {
			ch := n.open()
			must(ch.QueueDeclare("q", true, false, false, false, amqp.Table{"x-queue-type": kind}))(t)
			for i := range 6 {
				n.put(ch, "", "q", persistent(fmt.Sprint(i)))
			}
			for i := range 4 {
				d := get(t, ch, "q", false)
				if i%2 == 1 {
					ok(t, d.Ack(false))
				}
			}
			n.settledOnDisk(ch, "q")
			restart()
			got := drain(t, n.open(), "q")
			if clean := strings.HasSuffix(t.Name(), "stopped"); clean {
				equal(t, "messages", got, "0! 2! 4 5 end")
				return
			}
			// After a kill the broker may mark more than it has to.
			equal(t, "messages", strings.ReplaceAll(got, "!", ""), "0 2 4 5 end")
			equal(t, "the held ones are marked", strings.HasPrefix(got, "0! 2! "), true)
		})
	})
}

// R30 R246: a message comes back from the disk as it was published, small or
// large.
func TestMessageOverRestart(t *testing.T) {
	t.Parallel()
	afterRestart(t, func(t *testing.T, n *node, restart func()) {
		ch := n.open()
		must(ch.QueueDeclare("q", true, false, false, false, nil))(t)
		sizes := []int{0, 1, 4096, 256 << 10, 256<<10 + 1, 5 << 20}
		var sent []string
		for _, size := range sizes {
			m := amqp.Publishing{
				Headers: amqp.Table{"h": "v", "t": amqp.Table{"n": int32(size)}}, ContentType: "a/b", DeliveryMode: 2,
				Priority: 4, CorrelationId: "c", ReplyTo: "r", MessageId: fmt.Sprint(size),
				Timestamp: time.Unix(1700000000, 0), Type: "t", AppId: "a",
				Body: []byte(strings.Repeat(string(rune('a'+size%26)), size)),
			}
			sent = append(sent, fmt.Sprintf("%v %s %s %x", m.Headers, m.ContentType, m.MessageId, sha256.Sum256(m.Body)))
			n.put(ch, "", "q", m)
		}
		restart()
		ch = n.open()
		for i := range sizes {
			d := get(t, ch, "q", true)
			equal(t, "message", fmt.Sprintf("%v %s %s %x", d.Headers, d.ContentType, d.MessageId, sha256.Sum256(d.Body)), sent[i])
			equal(t, "priority", d.Priority, 4)
			equal(t, "key", d.RoutingKey, "q")
		}
		empty(t, ch, "q")
	})
}

// R51: durable exchanges, bindings and queues come back with their arguments;
// what is not durable, or exclusive, does not.
func TestTopologyOverRestart(t *testing.T) {
	t.Parallel()
	afterRestart(t, func(t *testing.T, n *node, restart func()) {
		ch := n.open()
		must(ch.QueueDeclare("q", true, false, false, false, amqp.Table{"x-queue-type": "classic", "x-foo": "bar"}))(t)
		must(ch.QueueDeclare("gone", false, false, false, false, nil))(t)
		must(ch.QueueDeclare("exclusive", true, false, true, false, nil))(t)
		ok(t, ch.ExchangeDeclare("x", "topic", true, false, false, false, amqp.Table{"alternate-exchange": "alternate"}))
		ok(t, ch.ExchangeDeclare("alternate", "fanout", true, false, false, false, nil))
		ok(t, ch.ExchangeDeclare("front", "fanout", true, false, false, false, nil))
		ok(t, ch.ExchangeDeclare("xgone", "fanout", false, false, false, false, nil))
		must(ch.QueueDeclare("alt", true, false, false, false, nil))(t)
		ok(t, ch.ExchangeBind("x", "", "front", false, nil))
		ok(t, ch.QueueBind("q", "a.#", "x", false, nil))
		ok(t, ch.QueueBind("q", "unbound", "x", false, nil))
		ok(t, ch.QueueUnbind("q", "unbound", "x", nil))
		ok(t, ch.QueueBind("alt", "", "alternate", false, nil))
		ok(t, ch.QueueBind("gone", "a.#", "x", false, nil))
		restart()
		ch = n.open()
		n.put(ch, "front", "a.b", persistent("bound"))
		n.put(ch, "front", "unbound", persistent("alternate"))
		equal(t, "bound", drain(t, ch, "q"), "bound")
		equal(t, "by the alternate", drain(t, ch, "alt"), "alternate")
		for _, q := range []string{"gone", "exclusive"} {
			_, err := n.open().QueueDeclarePassive(q, true, false, false, false, nil)
			refused(t, err, 404)
		}
		refused(t, n.open().ExchangeDeclarePassive("xgone", "fanout", false, false, false, false, nil), 404)
		_, err := n.open().QueueDeclare("q", true, false, false, false, amqp.Table{"x-queue-type": "quorum"})
		refused(t, err, 406)
	})
}

// R51: users, permissions and vhosts come back.
func TestAccessOverRestart(t *testing.T) {
	t.Parallel()
	afterRestart(t, func(t *testing.T, n *node, restart func()) {
		for _, args := range [][]string{
			{"add_vhost", "v"}, {"add_user", "u", "secret"}, {"set_permissions", "-p", "v", "u", ".*", ".*", "^none$"},
			{"set_permissions", "-p", "/", "guest", ".*", ".*", ".*"},
		} {
			must(n.Ctl(args...))(t)
		}
		restart()
		ch := channel(t, dialURL(t, "amqp://u:secret@"+n.Addr+"/v"))
		must(ch.QueueDeclare("q", true, false, false, false, nil))(t)
		_, _, err := ch.Get("q", true)
		refused(t, err, 403)
		_, err = amqp.Dial("amqp://u:secret@" + n.Addr + "/")
		refused(t, err, 530)
	})
}

// R104 R212: purged, deleted, dropped and acked messages stay away; a queue declared
// anew under an old name is empty.
func TestGoneStaysGone(t *testing.T) {
	onEachType(t, func(t *testing.T, kind string) {
		afterRestart(t, func(t *testing.T, n *node, restart func()) {
			ch := n.open()
			declare := func(q string) {
				must(ch.QueueDeclare(q, true, false, false, false, amqp.Table{"x-queue-type": kind}))(t)
			}
			for _, q := range []string{"purged", "deleted", "anew", "acked", "rejected", "noack"} {
				declare(q)
				for i := range 3 {
					n.put(ch, "", q, persistent(fmt.Sprint(i)))
				}
			}
			must(ch.QueuePurge("purged", false))(t)
			n.put(ch, "", "purged", persistent("after"))
			must(ch.QueueDelete("deleted", false, false, false))(t)
			must(ch.QueueDelete("anew", false, false, false))(t)
			declare("anew")
			n.put(ch, "", "anew", persistent("new"))
			for range 3 {
				ok(t, get(t, ch, "acked", false).Ack(false))
				ok(t, get(t, ch, "rejected", false).Reject(false))
				get(t, ch, "noack", true)
			}
			n.settledOnDisk(ch, "acked", "rejected", "noack")
			restart()
			ch = n.open()
			for q, want := range map[string]string{"purged": "after", "anew": "new", "acked": "end", "rejected": "end", "noack": "end"} {
				equal(t, q, strings.ReplaceAll(drain(t, ch, q), "!", ""), want)
			}
			_, err := ch.QueueDeclarePassive("deleted", true, false, false, false, nil)
			refused(t, err, 404)
		})
	})
}

// R38: a commit that was answered holds, one that was not leaves nothing.
func TestTxOverRestart(t *testing.T) {
	onEachType(t, func(t *testing.T, kind string) {
		afterRestart(t, func(t *testing.T, n *node, restart func()) {
			setup := n.open()
			for _, q := range []string{"a", "b"} {
				must(setup.QueueDeclare(q, true, false, false, false, amqp.Table{"x-queue-type": kind}))(t)
			}
			n.put(setup, "", "a", persistent("acked"), persistent("held"))
			ch := channel(t, dialURL(t, n.URL()))
			ok(t, ch.Tx())
			ok(t, get(t, ch, "a", false).Ack(false))
			for _, q := range []string{"a", "b"} {
				ok(t, ch.Publish("", q, false, false, persistent("committed")))
			}
			ok(t, ch.TxCommit())
			ok(t, get(t, ch, "a", false).Ack(false)) // not committed
			ok(t, ch.Publish("", "b", false, false, persistent("not committed")))
			settled(t, ch)
			restart()
			ch = n.open()
			equal(t, "a", strings.ReplaceAll(drain(t, ch, "a"), "!", ""), "held committed")
			equal(t, "b", strings.ReplaceAll(drain(t, ch, "b"), "!", ""), "committed")
		})
	})
}

// R27: messages returned before the restart are in their place after it.
func TestReturnedOverRestart(t *testing.T) {
	onEachType(t, func(t *testing.T, kind string) {
		afterRestart(t, func(t *testing.T, n *node, restart func()) {
			ch := n.open()
			must(ch.QueueDeclare("q", true, false, false, false, amqp.Table{"x-queue-type": kind}))(t)
			for i := range 6 {
				n.put(ch, "", "q", persistent(fmt.Sprint(i)))
			}
			var held []amqp.Delivery
			for range 4 {
				held = append(held, get(t, ch, "q", false))
			}
			for _, i := range []int{2, 0} {
				ok(t, held[i].Nack(false, true))
			}
			n.settledOnDisk(ch, "q")
			restart()
			got := drain(t, n.open(), "q")
			equal(t, "order", strings.ReplaceAll(got, "!", ""), "0 1 2 3 4 5 end")
			equal(t, "the delivered ones are marked", strings.HasPrefix(got, "0! 1! 2! 3! "), true)
		})
	})
}

// R246: many restarts in a row, with something new and something taken each
// time.
func TestManyRestarts(t *testing.T) {
	t.Parallel()
	n := ownBroker(t)
	ch := n.open()
	must(ch.QueueDeclare("q", true, false, false, false, nil))(t)
	next, first := 0, 0
	for round := range 6 {
		for range 20 {
			n.put(ch, "", "q", persistent(fmt.Sprint(next)))
			next++
		}
		for range 7 {
			d := get(t, ch, "q", false)
			equal(t, "body", string(d.Body), fmt.Sprint(first))
			ok(t, d.Ack(false))
			first++
		}
		settled(t, ch)
		if round%2 == 0 {
			n.put(ch, "", "q", persistent(fmt.Sprint(next))) // with it the acks are on the disk
			next++
			restarts["killed"](n)
		} else {
			restarts["stopped"](n)
		}
		ch = n.open()
		equal(t, "messages", must(ch.QueueDeclarePassive("q", true, false, false, false, nil))(t).Messages, next-first)
	}
}

// A durable auto-delete queue outlives a crash under its consumer.
func TestAutoDeleteOverKill(t *testing.T) {
	t.Parallel()
	n := ownBroker(t)
	ch := n.open()
	must(ch.QueueDeclare("q", true, true, false, false, nil))(t)
	n.put(ch, "", "q", persistent("x"))
	next(t, consume(t, ch, "q"))
	restarts["killed"](n)
	equal(t, "message", drain(t, n.open(), "q"), "x!")
}

// R114: a stopping broker tells its clients.
func TestStopTellsClients(t *testing.T) {
	t.Parallel()
	n := ownBroker(t)
	s := must(raw.Dial(n.URL()))(t)
	defer s.Close()
	ok(t, s.Handshake("/"))
	closed := make(chan error, 1)
	go func() {
		f, err := s.ReadFrame()
		switch {
		case err != nil:
			closed <- err
		case !f.Is(raw.ConnectionClose) || f.Args().U16() != 320:
			closed <- fmt.Errorf("wanted close 320, got %v", f)
		default:
			closed <- s.Send(0, raw.ConnectionCloseOk)
		}
	}()
	ok(t, n.Stop())
	ok(t, <-closed)
}

// Two brokers on one data folder would destroy it: the second does not start.
func TestDataFolderIsLocked(t *testing.T) {
	t.Parallel()
	n := ownBroker(t)
	second := must(rig.New(target.binary, t.TempDir()))(t)
	second.Data = n.Data
	ok(t, second.Launch())
	t.Cleanup(func() { _ = second.Kill() })
	select {
	case <-second.Ended():
	case <-time.After(raw.Wait):
		t.Fatal("the second broker runs")
	}
	must(n.open().QueueDeclare("q", true, false, false, false, nil))(t)
}

// R248: a data folder carried to another place is the same broker.
func TestDataFolderMoved(t *testing.T) {
	t.Parallel()
	n := ownBroker(t)
	ch := n.open()
	must(ch.QueueDeclare("q", true, false, false, false, nil))(t)
	n.put(ch, "", "q", persistent("x"))
	ok(t, n.Stop())
	ok(t, os.Rename(n.Data, n.Data+"-moved"))
	n.Data += "-moved"
	ok(t, n.Start())
	equal(t, "message", drain(t, n.open(), "q"), "x")
}

// R85 R96: messages not confirmed before a kill may be lost, those confirmed
// may not, however many are in flight.
func TestKillWhilePublishing(t *testing.T) {
	t.Parallel()
	n := ownBroker(t)
	ch := n.open()
	must(ch.QueueDeclare("q", true, false, false, false, nil))(t)
	confirmed := map[string]bool{}
	confirms := ch.NotifyPublish(make(chan amqp.Confirmation, 1000))
	killed, told := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(told)
		for c := range confirms { // closed with the connection
			if c.Ack {
				confirmed[fmt.Sprint(c.DeliveryTag)] = true
			}
			if len(confirmed) == 1000 && c.Ack {
				go func() { killed <- n.Kill() }()
			}
		}
	}()
	sent := 0
	for ; ; sent++ {
		if ch.Publish("", "q", false, false, persistent(fmt.Sprint(sent+1))) != nil {
			break
		}
	}
	<-told
	ok(t, <-killed)
	ok(t, n.Start())
	last := 0
	in := must(n.open().Consume("q", "", true, false, false, false, nil))(t)
	for len(confirmed) > 0 {
		d := next(t, in)
		var number int
		must(fmt.Sscan(string(d.Body), &number))(t)
		if number <= last {
			t.Fatalf("message %d after %d", number, last)
		}
		last = number
		delete(confirmed, string(d.Body))
	}
}
