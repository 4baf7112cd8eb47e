package node

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"reflect"
	"strings"
	"syscall"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"holdfast/internal/broker"
	"holdfast/internal/vfs"
)

// A client of the real library declares, publishes, consumes and acknowledges.
func TestServesAClient(t *testing.T) {
	n := newPlace(t).run(t)
	ch := open(t, n)
	q := must(ch.QueueDeclare("", false, false, true, false, nil))(t)
	deliveries := must(ch.Consume(q.Name, "", false, false, false, false, nil))(t)
	want := numbered("m", 100)
	send(t, ch, q.Name, amqp.Transient, want...)
	for _, body := range want {
		d := <-deliveries
		if string(d.Body) != body || d.Redelivered || d.MessageId != body {
			t.Fatalf("got %q, want %q", d.Body, body)
		}
		if err := d.Ack(false); err != nil {
			t.Fatal(err)
		}
	}
	if q := must(ch.QueueDeclarePassive(q.Name, false, false, true, false, nil))(t); q.Consumers != 1 || q.Messages != 0 {
		t.Errorf("the queue says %+v", q)
	}
}

// A second process is refused the data folder, with a text that says so.
func TestDataFolderIsForOneProcess(t *testing.T) {
	p := newPlace(t)
	n := p.run(t)
	if _, err := p.start(); !errors.Is(err, ErrInUse) || !strings.Contains(err.Error(), p.dir) {
		t.Errorf("second start: %v", err)
	}
	stop(t, n)
	again := p.run(t)
	if again.identity.ID != n.identity.ID || again.incarnation <= n.incarnation {
		t.Errorf("first %v %d, then %v %d", n.identity, n.incarnation, again.identity, again.incarnation)
	}
}

// R246, R41: what is there after an orderly stop: the durable, with the persistent in it, and not redelivered.
func TestRestart(t *testing.T) {
	p := newPlace(t)
	n := p.run(t)
	ch := open(t, n)
	must(ch.QueueDeclare("durable", true, false, false, false, nil))(t)
	must(ch.QueueDeclare("transient", false, false, false, false, nil))(t)
	must(ch.QueueDeclare("mine", true, false, true, false, nil))(t)
	if err := ch.ExchangeDeclare("x", "topic", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := ch.ExchangeDeclare("gone", "topic", false, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := ch.QueueBind("durable", "a.#", "x", false, nil); err != nil {
		t.Fatal(err)
	}
	send(t, ch, "durable", amqp.Persistent, numbered("p", 50)...)
	send(t, ch, "durable", amqp.Transient, numbered("t", 50)...)
	send(t, ch, "durable", amqp.Persistent, numbered("last", 3)...)
	send(t, ch, "transient", amqp.Persistent, numbered("p", 50)...)
	stop(t, n)

	n = p.run(t)
	if !n.Report().Clean || n.Report().Queues != 1 {
		t.Errorf("report: %+v", n.Report())
	}
	ch = open(t, n)
	must(ch.QueueDeclare("durable", true, false, false, false, nil))(t)
	if got, want := get(t, ch, "durable"), append(numbered("p", 50), numbered("last", 3)...); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if err := ch.ExchangeDeclarePassive("x", "topic", true, false, false, false, nil); err != nil {
		t.Error(err)
	}
	queues, _, err := n.Broker().ListQueues("/", broker.QueuePage{})
	if err != nil || len(queues) != 1 {
		t.Errorf("queues %v, %v", queues, err)
	}
	exchanges, _ := n.Broker().ListExchanges("/")
	for _, x := range exchanges {
		if x.Name == "gone" {
			t.Error("a non-durable exchange is there after a restart")
		}
	}
	must(ch.QueueDeclare("mine", false, false, true, false, nil))(t)
}

// R34, R248: the power goes while clients publish and hold messages. What was
// confirmed is there, in order; what had been handed out comes back as redelivered.
func TestPowerCut(t *testing.T) {
	for seed := range uint64(8) {
		p := newPlace(t)
		n := p.run(t)
		ch := open(t, n)
		must(ch.QueueDeclare("q", true, false, false, false, nil))(t)
		must(ch.QueueDeclare("untouched", true, false, false, false, nil))(t)
		send(t, ch, "q", amqp.Persistent, numbered("c", 40)...)
		send(t, ch, "untouched", amqp.Persistent, numbered("u", 5)...)
		for range 3 {
			if _, ok, err := ch.Get("q", false); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}
		// Publishes in flight, nobody waits for them.
		for range 200 {
			if err := ch.Publish("", "q", false, false, amqp.Publishing{DeliveryMode: 2, Body: []byte("unconfirmed")}); err != nil {
				t.Fatal(err)
			}
		}
		after := place{p.disk.CrashClone(rand.New(rand.NewPCG(seed, 0))), p.dir}
		stop(t, n)

		n = after.run(t)
		if n.Report().Clean {
			t.Error("the report speaks of an orderly stop")
		}
		ch = open(t, n)
		got := get(t, ch, "q")
		if len(got) < 40 {
			t.Fatalf("seed %d: %d messages left of 40 confirmed ones: %v", seed, len(got), got)
		}
		for i, body := range numbered("c", 40) {
			if strings.TrimSuffix(got[i], "*") != body {
				t.Fatalf("seed %d: message %d is %q, want %q", seed, i, got[i], body)
			}
			if i < 3 && !strings.HasSuffix(got[i], "*") {
				t.Errorf("seed %d: %q had been handed out and is not marked redelivered", seed, got[i])
			}
		}
		if got := get(t, ch, "untouched"); !reflect.DeepEqual(got, numbered("u", 5)) {
			t.Errorf("seed %d: never handed out, and now %v", seed, got)
		}
		stop(t, n)
	}
}

// An orderly stop tells each client with 320.
func TestStopTellsClients(t *testing.T) {
	n := newPlace(t).run(t)
	var told []chan *amqp.Error
	for range 5 {
		told = append(told, dial(t, n).NotifyClose(make(chan *amqp.Error, 1)))
	}
	stop(t, n)
	for _, c := range told {
		if err := <-c; err == nil || err.Code != 320 {
			t.Errorf("a client was told %v", err)
		}
	}
}

// A disk that fails stops the node: nothing is confirmed any more, and it says why.
func TestFailStop(t *testing.T) {
	p := newPlace(t)
	n := p.run(t)
	ch := open(t, n)
	must(ch.QueueDeclare("q", true, false, false, false, nil))(t)
	send(t, ch, "q", amqp.Persistent, "one")
	p.disk.Inject(vfs.Fault{Op: vfs.OpAnySync, Err: syscall.EIO})
	confirmed := ch.NotifyPublish(make(chan amqp.Confirmation, 10))
	if err := ch.Publish("", "q", false, false, amqp.Publishing{DeliveryMode: 2}); err != nil {
		t.Fatal(err)
	}
	<-n.Done()
	if n.Err() == nil {
		t.Error("no reason")
	}
	for c := range confirmed { // closed with the connection
		if c.Ack {
			t.Error("confirmed after the disk had failed")
		}
	}
	if err := n.Stop(); err == nil {
		t.Error("the stop says that all was well")
	}
	// The folder is free, and holds what was confirmed.
	after := place{p.disk.CrashClone(rand.New(rand.NewPCG(1, 0))), p.dir}.run(t)
	if got := get(t, open(t, after), "q"); len(got) == 0 || got[0] != "one" {
		t.Errorf("after the failure: %v", got)
	}
}

// A start that fails says why and leaves the folder free.
func TestStartOnATakenPort(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	p := newPlace(t)
	s := p.settings()
	s.TCPListeners = []string{taken.Addr().String()}
	log := &endingLog{Handler: slog.DiscardHandler}
	o := options(s, p.disk)
	o.Logger, o.Memory = slog.New(log), MemoryLimit{Bytes: 1 << 40, Source: "test"}
	_, err = Start(o)
	log.ended = true
	if err == nil || !strings.Contains(err.Error(), "cannot listen on "+taken.Addr().String()) {
		t.Errorf("start: %v", err)
	}
	open(t, p.run(t))
	if log.late {
		t.Error("a goroutine of the node went on after its end")
	}
}

// endingLog notes what is logged after the end of the node. It has no lock: a
// goroutine that the node did not wait for shows to the race detector.
type endingLog struct {
	slog.Handler
	ended, late bool
}

func (l *endingLog) Enabled(context.Context, slog.Level) bool { return true }
func (l *endingLog) WithAttrs([]slog.Attr) slog.Handler       { return l }

func (l *endingLog) Handle(context.Context, slog.Record) error {
	if l.ended {
		l.late = true
	}
	return nil
}

// D6: a stop of the broker is not its clients' leaving: a durable auto-delete
// queue stays, with what is in it, and goes when a consumer has come and left.
func TestAutoDeleteQueueSurvivesAStop(t *testing.T) {
	p := newPlace(t)
	n := p.run(t)
	ch := open(t, n)
	must(ch.QueueDeclare("q", true, true, false, false, nil))(t)
	must(ch.Consume("q", "c", false, false, false, false, nil))(t)
	if err := ch.Cancel("none", false); err != nil { // and so the consumer is there
		t.Fatal(err)
	}
	send(t, ch, "q", amqp.Persistent, "one")
	stop(t, n)
	n = p.run(t)
	ch = open(t, n)
	if q := must(ch.QueueDeclare("q", true, true, false, false, nil))(t); q.Messages != 1 {
		t.Errorf("after the stop: %+v", q)
	}
	must(ch.Consume("q", "c", true, false, false, false, nil))(t)
	if err := ch.Cancel("c", false); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the queue goes", func() bool {
		_, err := n.Broker().QueueInfo("/", "q")
		return err != nil
	})
}
