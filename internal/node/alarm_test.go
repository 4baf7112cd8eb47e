package node

import (
	"bytes"
	"errors"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"holdfast/internal/clock"
	"holdfast/internal/config"
	"holdfast/internal/vfs"
)

// T49: a disk that fills up blocks who publishes, not who consumes; when the
// queue has been drained publishing goes on, and nothing is lost.
func TestDiskAlarm(t *testing.T) {
	p := newPlace(t)
	n := p.run(t, func(s *config.Settings) { s.DiskFreeLimitAbsolute = 2 * config.MiB })
	p.disk.SetCapacity(p.disk.Used() + 6<<20)
	publisher, consumer := dial(t, n), dial(t, n)
	blocked := publisher.NotifyBlocked(make(chan amqp.Blocking, 10))
	consumerBlocked := consumer.NotifyBlocked(make(chan amqp.Blocking, 10))
	ch := must(publisher.Channel())(t)
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	must(ch.QueueDeclare("q", true, false, false, false, nil))(t)

	var stop atomic.Bool
	body := bytes.Repeat([]byte("x"), 8<<10)
	sent := make(chan []*amqp.DeferredConfirmation)
	go func() {
		var all []*amqp.DeferredConfirmation
		for !stop.Load() {
			w, err := ch.PublishWithDeferredConfirm("", "q", false, false, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: body})
			if err != nil {
				t.Error(err)
				break
			}
			all = append(all, w)
		}
		sent <- all
	}()
	if b := <-blocked; !b.Active || b.Reason != "low on disk" {
		t.Fatalf("the publisher was told %+v", b)
	}
	if alarms := n.Broker().Alarms(); len(alarms) != 1 || alarms[0].Kind != "disk" {
		t.Errorf("alarms %+v", alarms)
	}
	stop.Store(true)

	from := must(consumer.Channel())(t)
	if err := from.Qos(100, 0, false); err != nil {
		t.Fatal(err)
	}
	deliveries := must(from.Consume("q", "", false, false, false, false, nil))(t)
	received, all := 0, []*amqp.DeferredConfirmation(nil)
	unblocked := false
	for all == nil || received < len(all) || !unblocked {
		select {
		case d := <-deliveries:
			received++
			if err := d.Ack(false); err != nil {
				t.Fatal(err)
			}
		case all = <-sent:
		case b := <-blocked:
			unblocked = !b.Active
		}
	}
	for i, w := range all {
		if !w.Wait() {
			t.Fatalf("publish %d was nacked", i)
		}
	}
	if received != len(all) {
		t.Errorf("received %d of %d", received, len(all))
	}
	select {
	case b := <-consumerBlocked:
		t.Errorf("a connection that only consumes was told %+v", b)
	default:
	}
	send(t, ch, "q", amqp.Persistent, "afterwards")
}

// L51: a disk that hangs: what waits for it is answered in time (a nack, which
// means unknown; 541), and when it goes on, everything does.
func TestHangingDisk(t *testing.T) {
	p := newPlace(t)
	hands := clock.NewManual(time.Unix(1_700_000_000, 0))
	o := options(p.settings(), p.disk)
	o.Clock = hands
	n, err := Start(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Stop() })
	ch, other := open(t, n), open(t, n)
	must(ch.QueueDeclare("q", true, false, false, false, nil))(t)
	send(t, ch, "q", amqp.Persistent, "before")

	hang := make(chan struct{})
	p.disk.Inject(vfs.Fault{Op: vfs.OpDatasync, Hang: hang})
	w, err := ch.PublishWithDeferredConfirm("", "q", false, false, amqp.Publishing{DeliveryMode: amqp.Persistent, Body: []byte("hung")})
	if err != nil {
		t.Fatal(err)
	}
	declared := make(chan error, 1)
	go func() {
		_, err := other.QueueDeclare("late", true, false, false, false, nil)
		declared <- err
	}()
	// Both are in the log, behind the sync that hangs.
	eventually(t, "both wait", func() bool {
		return n.Broker().Totals().WaitingForDisk == 1 && n.catalog.View().Queue("/", "late") != nil
	})
	for range 20 { // by the second, as time goes
		hands.Advance(time.Second)
		time.Sleep(time.Millisecond)
	}
	if w.Wait() {
		t.Error("confirmed, and not on disk")
	}
	var refusal *amqp.Error
	if err := <-declared; !errors.As(err, &refusal) || refusal.Code != 541 {
		t.Errorf("declare: %v, want 541", err)
	}
	if n.Err() != nil {
		t.Fatal(n.Err())
	}
	close(hang)
	send(t, ch, "q", amqp.Persistent, "after")
	must(open(t, n).QueueDeclare("late", true, false, false, false, nil))(t)
	// What was nacked is there all the same: a nack means unknown.
	if got := get(t, open(t, n), "q"); !reflect.DeepEqual(got, []string{"before", "hung", "after"}) {
		t.Errorf("got %v", got)
	}
}
