package blackbox

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// R269: with memory for hardly anything, what waits is on disk: it comes whole
// and in order, goes with its queue, and nothing of it is left after a restart.
func TestBacklogOnDisk(t *testing.T) {
	t.Parallel()
	n := ownBroker(t, config(t, "storage.tail_cache = 1\n")...)
	ch := n.open()
	body := func(q string, i int) string { return fmt.Sprintf("%s %d %s", q, i, strings.Repeat("x", i%900)) }
	queues := map[string][3]bool{"transient": {}, "durable": {true}, "exclusive": {false, false, true}, "deleted": {}}
	const messages = 1500
	for q, is := range queues {
		must(ch.QueueDeclare(q, is[0], is[1], is[2], false, nil))(t)
		for from := 0; from < messages; from += 100 {
			var ms []amqp.Publishing
			for i := from; i < from+100; i++ {
				m := amqp.Publishing{Body: []byte(body(q, i))}
				if q == "durable" && i%3 == 0 {
					m.DeliveryMode = amqp.Persistent
				}
				ms = append(ms, m)
			}
			n.put(ch, "", q, ms...)
		}
	}
	big := strings.Repeat("chunk", 200_000)
	n.put(ch, "", "transient", amqp.Publishing{Body: []byte(big)})
	spilled := filepath.Join(n.Data, "spill")
	if names, err := os.ReadDir(spilled); err != nil || len(names) == 0 {
		t.Fatalf("nothing is spilled: %v, %v", names, err)
	}
	must(ch.QueueDelete("deleted", false, false, false))(t)
	held := get(t, ch, "transient", false)
	equal(t, "the oldest", string(held.Body), body("transient", 0))
	for _, q := range []string{"transient", "durable", "exclusive"} {
		for i := range messages {
			if q == "transient" && i == 0 {
				continue
			}
			d := get(t, ch, q, true)
			if want := body(q, i); string(d.Body) != want {
				t.Fatalf("queue %s, message %d: got %.40q, want %.40q", q, i, d.Body, want)
			}
		}
	}
	equal(t, "the big one", string(get(t, ch, "transient", true).Body), big)
	ok(t, held.Reject(true))
	again := get(t, ch, "transient", true)
	equal(t, "the oldest again", string(again.Body), body("transient", 0))
	if !again.Redelivered {
		t.Error("it is not marked as redelivered")
	}

	n.put(ch, "", "durable", persistent("kept"), amqp.Publishing{Body: []byte(big)})
	ok(t, n.Kill())
	ok(t, n.Start())
	equal(t, "after the restart", drain(t, n.open(), "durable"), "kept!")
	if names, err := os.ReadDir(spilled); err != nil || len(names) > 0 {
		t.Errorf("left after a restart: %v, %v", names, err)
	}
}
