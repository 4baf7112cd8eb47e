package node

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"path"
	"reflect"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// damage flips one bit of what the log says about text.
func (p place) damage(t *testing.T, text string) {
	t.Helper()
	hits := 0
	names, err := p.disk.List(path.Join(p.dir, logDir))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		name = path.Join(p.dir, logDir, name)
		data, err := readFile(p.disk, name)
		if err != nil {
			t.Fatal(err)
		}
		if at := bytes.Index(data, []byte(text)); at >= 0 && strings.HasSuffix(name, ".seg") {
			if err := p.disk.Flip(name, int64(at), 3); err != nil {
				t.Fatal(err)
			}
			hits++
		}
	}
	if hits == 0 {
		t.Fatalf("%q is not in the log", text)
	}
}

// damaged is a folder with the queues "good" and "bad", of which the second
// has lost a bit, after a power cut or an orderly stop.
func damaged(t *testing.T, clean bool) place {
	t.Helper()
	p := newPlace(t)
	n := p.run(t)
	ch := open(t, n)
	for _, q := range []string{"good", "bad"} {
		must(ch.QueueDeclare(q, true, false, false, false, nil))(t)
	}
	send(t, ch, "bad", amqp.Persistent, "before", "the damaged one", "after")
	for range 20 { // so that the damage lies well before the end of the log
		send(t, ch, "good", amqp.Persistent, "good")
	}
	if clean {
		stop(t, n)
	} else {
		crashed := place{p.disk.CrashClone(rand.New(rand.NewPCG(1, 1))), p.dir}
		stop(t, n)
		p = crashed
	}
	p.damage(t, "the damaged one")
	return p
}

// A queue whose part of the log is damaged is quarantined, and says so to all
// who ask; everything else works. D2
func TestDamagedQueueIsQuarantined(t *testing.T) {
	p := damaged(t, false)
	n := p.run(t)
	if n.Report().Quarantined != 1 || n.Report().Queues != 2 {
		t.Errorf("report: %+v", n.Report())
	}
	ch := open(t, n)
	if got := get(t, ch, "good"); len(got) != 20 {
		t.Errorf("the other queue has %d messages", len(got))
	}
	refusesAll(t, n)
	// It is still so after an orderly stop, and ends when an operator gives it up.
	stop(t, n)
	n = p.run(t)
	refusesAll(t, n)
	info, err := n.Broker().QueueInfo("/", "bad")
	if err != nil || info.State != "quarantined" || info.Reason == "" {
		t.Fatalf("listed as %+v, %v", info, err)
	}
	if e, err := n.Broker().Explain(t.Context(), "/", "bad"); err != nil || e.Reason != "quarantined" || len(e.Lines) < 2 {
		t.Errorf("explained as %+v, %v", e, err)
	}
	if err := n.Broker().DiscardGroup(info.ID); err != nil {
		t.Fatal(err)
	}
	ch = open(t, n)
	must(ch.QueueDeclare("bad", true, false, false, false, nil))(t)
	send(t, ch, "bad", amqp.Persistent, "new")
	stop(t, n)
	n = p.run(t)
	if got := get(t, open(t, n), "bad"); !reflect.DeepEqual(got, []string{"new"}) || n.Report().Quarantined != 0 {
		t.Errorf("after the discard: %v, %+v", got, n.Report())
	}
}

// refusesAll checks what clients get from the quarantined queue.
func refusesAll(t *testing.T, n *Node) {
	t.Helper()
	for what, do := range map[string]func(*amqp.Channel) error{
		"declare": func(ch *amqp.Channel) error {
			_, err := ch.QueueDeclare("bad", true, false, false, false, nil)
			return err
		},
		"get":    func(ch *amqp.Channel) error { _, _, err := ch.Get("bad", true); return err },
		"purge":  func(ch *amqp.Channel) error { _, err := ch.QueuePurge("bad", false); return err },
		"delete": func(ch *amqp.Channel) error { _, err := ch.QueueDelete("bad", false, false, false); return err },
		"consume": func(ch *amqp.Channel) error {
			_, err := ch.Consume("bad", "", true, false, false, false, nil)
			return err
		},
	} {
		var refusal *amqp.Error
		if err := do(open(t, n)); !errors.As(err, &refusal) || refusal.Code != 404 || !strings.Contains(refusal.Reason, "unavailable") {
			t.Errorf("%s: %v, want 404 with the reason", what, err)
		}
	}
	ch := open(t, n)
	w, err := ch.PublishWithDeferredConfirm("", "bad", false, false, amqp.Publishing{DeliveryMode: amqp.Persistent})
	if err != nil {
		t.Fatal(err)
	}
	if w.Wait() {
		t.Error("a publish to a quarantined queue was acknowledged")
	}
}

// Damage that an orderly start does not see comes up when the message is read:
// it is not delivered, and the queue is quarantined.
func TestDamageFoundWhileRunning(t *testing.T) {
	n := damaged(t, true).run(t)
	ch := open(t, n)
	// The session that meets the damage ends with its connection.
	deliveries, err := ch.Consume("bad", "", true, false, false, false, nil)
	for err == nil {
		d, more := <-deliveries
		if !more {
			break
		}
		if string(d.Body) != "before" && string(d.Body) != "after" {
			t.Errorf("delivered %q", d.Body)
		}
	}
	eventually(t, "the queue is quarantined", func() bool {
		info, err := n.Broker().QueueInfo("/", "bad")
		return err == nil && info.State == "quarantined"
	})
	refusesAll(t, n)
	if got := get(t, open(t, n), "good"); len(got) != 20 {
		t.Errorf("the other queue has %d messages", len(got))
	}
}

// A damaged catalog ends the start, with the reason and the way out; nothing is changed by it.
func TestDamagedCatalogEndsTheStart(t *testing.T) {
	p := newPlace(t)
	n := p.run(t)
	ch := open(t, n)
	for _, x := range []string{"x-first", "x-marked", "x-last"} {
		if err := ch.ExchangeDeclare(x, "fanout", true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
	}
	must(ch.QueueDeclare("q", true, false, false, false, nil))(t)
	for range 20 {
		send(t, ch, "q", amqp.Persistent, "m")
	}
	crashed := place{p.disk.CrashClone(rand.New(rand.NewPCG(1, 1))), p.dir}
	stop(t, n)
	sound := place{crashed.disk.Clone(), p.dir}
	crashed.damage(t, "x-marked")
	for range 2 { // the second time like the first
		_, err := crashed.start()
		var is *DamagedCatalogError
		if !errors.As(err, &is) || is.Reason == "" || !strings.Contains(err.Error(), "holdfast dump --data "+p.dir) {
			t.Fatalf("start: %v", err)
		}
	}
	// What the message names as a way out leads somewhere: the messages of all queues are copied out.
	copied, err := Salvage(crashed.disk, p.dir, t.TempDir(), nil, quiet)
	if err != nil || len(copied) != 1 || copied[0].Messages != 20 {
		t.Errorf("salvage: %+v, %v", copied, err)
	}
	if got := get(t, open(t, sound.run(t)), "q"); len(got) != 20 {
		t.Errorf("without the damage: %v", got)
	}
}
