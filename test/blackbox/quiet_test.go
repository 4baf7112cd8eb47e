package blackbox

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"holdfast/test/rig"
)

// written is how many bytes a process has had written to a disk.
func written(t *testing.T, pid int) string {
	t.Helper()
	text := string(must(os.ReadFile(fmt.Sprintf("/proc/%d/io", pid)))(t))
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "write_bytes:") {
			return strings.TrimSpace(line)
		}
	}
	t.Fatalf("no write_bytes in %q", text)
	return ""
}

// R52: idle queues, with consumers and messages, write nothing.
func TestIdleQueuesWriteNothing(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("the figures are Linux's")
	}
	n := ownBroker(t)
	ch := n.open()
	for i := range 300 {
		q := fmt.Sprint(i)
		must(ch.QueueDeclare(q, i%3 > 0, false, false, false, nil))(t)
		n.put(ch, "", q, persistent("x"))
		if i%2 == 0 {
			must(ch.Consume(q, "", false, false, false, false, nil))(t)
		}
	}
	eventually(t, "two seconds without a write", func() bool {
		before := written(t, n.Pid())
		time.Sleep(2 * time.Second)
		return written(t, n.Pid()) == before
	})
}

// R100: a drained queue gives its space back, whichever way it was drained.
func TestDrainedQueueGivesSpaceBack(t *testing.T) {
	t.Parallel()
	n := ownBroker(t)
	ch := n.open()
	drains := map[string]func(q string){
		"acked": func(q string) {
			in := consume(t, ch, q)
			for range 100 {
				ok(t, next(t, in).Ack(false))
			}
		},
		"purged":  func(q string) { must(ch.QueuePurge(q, false))(t) },
		"deleted": func(q string) { must(ch.QueueDelete(q, false, false, false))(t) },
	}
	body := bytes.Repeat([]byte("x"), 1<<20)
	for q, drain := range drains {
		must(ch.QueueDeclare(q, true, false, false, false, nil))(t)
		var last *amqp.DeferredConfirmation
		for range 100 {
			last = must(ch.PublishWithDeferredConfirm("", q, false, false, amqp.Publishing{DeliveryMode: 2, Body: body}))(t)
		}
		equal(t, "confirmed", last.Wait(), true)
		drain(q)
	}
	settled(t, ch)
	eventually(t, "at most six segments are left", func() bool {
		total, _, err := rig.DiskUsed(n.Data)
		ok(t, err)
		return total <= 6*must(rig.LargestFile(n.Data))(t)+1<<20 // and checkpoints
	})
}
