package blackbox

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/url"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// cutter passes bytes between clients and the broker and cuts each connection
// after a random number of them, in the middle of whatever is going on.
func cutter(t *testing.T, most int64) string {
	t.Helper()
	u := must(url.Parse(target.url))(t)
	l := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", u.Host)
			if err != nil {
				client.Close()
				continue
			}
			pass := func(to, from net.Conn) {
				// The handshake takes less than a kilobyte and a half.
				_, _ = io.CopyN(to, from, 1500+rand.Int64N(most))
				client.Close()
				server.Close()
			}
			go pass(server, client)
			go pass(client, server)
		}
	}()
	return "amqp://guest:guest@" + l.Addr().String() + "/"
}

// R237 R238 R251: with the link cut again and again, after any hop, whoever
// sends again what was not confirmed loses nothing; what comes a second time is
// marked, or was sent a second time.
func TestCutLinks(t *testing.T) { onEachType(t, testCutLinks) }

func testCutLinks(t *testing.T, kind string) {
	const n = 300
	setup := open(t)
	q := queueOf(t, setup, kind)
	link := cutter(t, 6000)

	// The publisher goes on with the first message that is not confirmed.
	sent := map[string]int{} // times
	published := make(chan error, 1)
	go func() {
		confirmed := 0
		for try := 0; confirmed < n; try++ {
			if try > 5000 {
				published <- fmt.Errorf("%d confirmed after %d connections", confirmed, try)
				return
			}
			c, err := amqp.Dial(link)
			if err != nil {
				continue
			}
			ch, err := c.Channel()
			if err == nil {
				err = ch.Confirm(false)
			}
			for err == nil && confirmed < n {
				var d *amqp.DeferredConfirmation
				id := fmt.Sprint(confirmed)
				sent[id]++
				d, err = ch.PublishWithDeferredConfirm("", q, false, false, amqp.Publishing{DeliveryMode: 2, MessageId: id, Body: []byte(id)})
				if err != nil || !d.Wait() {
					break
				}
				confirmed++
			}
			_ = c.Close()
		}
		published <- nil
	}()

	seen := map[string]int{} // deliveries without the flag
	all := map[string]bool{}
	for end := time.Now().Add(3 * time.Minute); len(all) < n; {
		if time.Now().After(end) {
			t.Fatalf("%d of %d messages seen", len(all), n)
		}
		c, err := amqp.Dial(link)
		if err != nil {
			continue
		}
		ch, err := c.Channel()
		var in <-chan amqp.Delivery
		if err == nil {
			in, err = ch.Consume(q, "", false, false, false, false, nil)
		}
		for err == nil && len(all) < n {
			var d amqp.Delivery
			var there bool
			select {
			case d, there = <-in:
			case <-time.After(100 * time.Millisecond):
				there = true
			}
			if !there {
				break
			}
			if d.Acknowledger == nil {
				continue
			}
			all[d.MessageId] = true
			if !d.Redelivered {
				seen[d.MessageId]++
			}
			err = d.Ack(false)
		}
		_ = c.Close()
	}
	ok(t, <-published)
	for id, times := range seen {
		if times > sent[id] {
			t.Errorf("message %s came %d times without the flag, and was sent %d times", id, times, sent[id])
		}
	}
	// Nothing is left but what came a second time.
	eventually(t, "nothing is held", func() bool {
		d := must(setup.QueueDeclarePassive(q, true, false, false, false, nil))(t)
		return d.Consumers == 0
	})
}
