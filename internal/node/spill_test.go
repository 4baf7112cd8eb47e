package node

import (
	"strings"
	"syscall"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"holdfast/internal/config"
	"holdfast/internal/vfs"
)

// A disk that does not take what memory has no room for is an alarm, which ends
// when it does. R269
func TestSpillAlarm(t *testing.T) {
	p := newPlace(t)
	n := p.run(t, func(s *config.Settings) { s.Storage.TailCache = 0 })
	p.disk.Inject(vfs.Fault{Op: vfs.OpWrite, Name: ".spill", Err: syscall.ENOSPC, Forever: true})
	c := dial(t, n)
	blocked := c.NotifyBlocked(make(chan amqp.Blocking, 10))
	ch := must(c.Channel())(t)
	must(ch.QueueDeclare("q", false, false, false, false, nil))(t)
	for i := range 3 {
		if err := ch.Publish("", "q", false, false, amqp.Publishing{Body: []byte{byte('a' + i)}}); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the alarm is on", func() bool { return len(n.Broker().Alarms()) == 1 })
	if err := ch.Publish("", "q", false, false, amqp.Publishing{Body: []byte("d")}); err != nil {
		t.Fatal(err) // only who publishes is told
	}
	if b := <-blocked; !b.Active || b.Reason != "low on disk" {
		t.Fatalf("the publisher was told %+v", b)
	}
	if a := n.Broker().Alarms(); len(a) != 1 || !strings.Contains(a[0].Reason, "no space left") {
		t.Errorf("alarms %+v", a)
	}
	n.logAlarm(0, false, "") // of another kind
	n.diskAlarm(&n.alarms.log, true, "the log has no room either")
	n.diskAlarm(&n.alarms.log, false, "it has")
	if a := n.Broker().Alarms(); len(a) != 1 {
		t.Errorf("the log's alarm took that of the spill with it: %+v", a)
	}
	p.disk.ClearFaults()
	if b := <-blocked; b.Active {
		t.Fatalf("the publisher was told %+v", b)
	}
	eventually(t, "the metrics tell what is spilled", func() bool {
		q := n.values().Queues
		return q.BodiesInMemory == 0 && q.BodiesSpilled >= 4
	})
	deliveries := must(ch.Consume("q", "", true, false, false, false, nil))(t)
	for i := range 4 {
		if d := <-deliveries; string(d.Body) != string(byte('a'+i)) {
			t.Fatalf("delivery %d: %q", i, d.Body)
		}
	}
	v := n.values()
	if v.Spill.Writes == 0 || v.Spill.Failures == 0 {
		t.Errorf("the metrics say %+v", v.Spill)
	}
}
