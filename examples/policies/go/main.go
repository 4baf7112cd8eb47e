// Command go shows a policy: settings for queues that are there already, and that know nothing of them.
package main

import (
	"fmt"
	"log"
	"os"
	"os/exec"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

func main() {
	url := os.Getenv("AMQP_URL")
	if url == "" {
		url = "amqp://guest:guest@localhost:5672/%2F"
	}
	conn, err := amqp.Dial(url)
	check(err)
	defer conn.Close()
	ch, err := conn.Channel()
	check(err)
	check(ch.Confirm(false))
	for _, q := range []string{"events.a", "events.b"} {
		_, err := ch.QueueDeclare(q, true, false, false, false, nil)
		check(err)
		for n := 1; n <= 3; n++ {
			publish(ch, q, amqp.Publishing{Body: fmt.Append(nil, q, " ", n)})
		}
	}

	ctl("set_policy", "events", `^events\.`, `{"max-length":1}`, "--apply-to", "queues")
	fmt.Print(ctl("list_policies", "--quiet", "--no-table-headers"))
	for _, q := range []string{"events.a", "events.b"} {
		for depth(ch, q) != 1 { // takes effect at once, and not in the same moment
			time.Sleep(10 * time.Millisecond)
		}
		d, _, err := ch.Get(q, true)
		check(err)
		fmt.Printf("the latest is kept: %s\n", d.Body)
	}

	ctl("clear_policy", "events")
	for _, q := range []string{"events.a", "events.b"} {
		_, err := ch.QueueDelete(q, false, false, false)
		check(err)
	}
}

// ctl runs an administrator's command: HOLDFAST_CTL says how, "holdfast ctl" if it is not set.
func ctl(args ...string) string {
	command := strings.Fields(os.Getenv("HOLDFAST_CTL"))
	if len(command) == 0 {
		command = []string{"holdfast", "ctl"}
	}
	out, err := exec.Command(command[0], append(command[1:], args...)...).CombinedOutput()
	if err != nil {
		log.Fatalf("%v: %v\n%s", args, err, out)
	}
	return string(out)
}

// depth is how many messages of a queue are ready.
func depth(ch *amqp.Channel, queue string) int {
	q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
	check(err)
	return q.Messages
}

// publish puts a message into a queue and waits until it is there.
func publish(ch *amqp.Channel, queue string, m amqp.Publishing) {
	m.DeliveryMode = amqp.Persistent
	c, err := ch.PublishWithDeferredConfirm("", queue, true, false, m)
	check(err)
	if !c.Wait() {
		log.Fatalf("%q was not taken", m.Body)
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
