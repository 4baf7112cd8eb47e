package session

import (
	"strings"
	"syscall"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"holdfast/internal/config"
	"holdfast/internal/queuehost"
	"holdfast/internal/vfs"
)

// spills has all bodies that are not in the log leave memory at once.
func spills(s *config.Settings, _ *Options, r *rig) {
	s.Storage.TailCache = 1
	r.disk = vfs.NewMem()
}

// spilled returns a channel, and a queue q with messages that are all on disk, in a block each.
func (r *rig) spilled(t *testing.T, bodies ...string) *amqp.Channel {
	ch, err := r.dial(t).Channel()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDeclare("q", false, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	for _, body := range bodies {
		before := r.bodies().BodiesSpilled
		if err := publishText(ch, "q", body); err != nil {
			t.Fatal(err)
		}
		until(t, "the message is spilled", func() bool {
			s := r.bodies()
			return s.BodiesSpilled >= before+uint64(len(body)) && s.BodiesInMemory == 0
		})
	}
	return ch
}

// bodies are the counters of the only queue there is.
func (r *rig) bodies() queuehost.Stats {
	for h := range r.queues.All() {
		return h.Stats()
	}
	return queuehost.Stats{}
}

// noBlocks waits until nothing is spilled any more.
func (r *rig) noBlocks(t *testing.T, lost uint64) {
	until(t, "nothing is left", func() bool { return r.spill.Stats().Blocks == 0 })
	if n := r.spill.Stats().Lost; n != lost {
		t.Errorf("%d messages count as lost", n)
	}
}

// cannotRead has the n-th read from now on fail, and its repetition.
func (r *rig) cannotRead(n int) {
	for range 2 { // the second does not see the call that the first fails
		r.disk.Inject(vfs.Fault{Op: vfs.OpRead, N: n, Err: syscall.EIO})
	}
}

// A spilled message that cannot be read back is lost, and no more than that: its
// consumer goes on with the next one, and is not sent it again and again. R269
func TestSpilledMessageIsLost(t *testing.T) {
	for _, noAck := range []bool{false, true} {
		r := newRig(t, spills)
		ch := r.spilled(t, "one", "two", "three")
		r.cannotRead(1)
		if err := ch.Qos(1, 0, true); err != nil {
			t.Fatal(err)
		}
		deliveries, err := ch.Consume("q", "c", noAck, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i, body := range []string{"two", "three"} {
			d := <-deliveries
			if string(d.Body) != body || d.DeliveryTag != uint64(i+1) || d.Redelivered {
				t.Fatalf("got %q, tag %d, redelivered %v", d.Body, d.DeliveryTag, d.Redelivered)
			}
			if !noAck {
				if err := d.Ack(false); err != nil {
					t.Fatal(err)
				}
			}
		}
		r.noBlocks(t, 1)
		if n := r.server.Counters().Unacked; n != 0 {
			t.Errorf("%d deliveries are not acknowledged", n)
		}
	}
}

// basic.get says that there is none.
func TestSpilledMessageOfAGetIsLost(t *testing.T) {
	for _, noAck := range []bool{false, true} {
		r := newRig(t, spills)
		ch := r.spilled(t, "one", "two")
		r.cannotRead(1)
		if d, ok, err := ch.Get("q", noAck); ok || err != nil {
			t.Fatalf("got %q, %v", d.Body, err)
		}
		d, ok, err := ch.Get("q", noAck)
		if !ok || err != nil || string(d.Body) != "two" || d.DeliveryTag != 1 {
			t.Fatalf("got %q, tag %d, %v", d.Body, d.DeliveryTag, err)
		}
		if !noAck {
			if err := d.Ack(false); err != nil {
				t.Fatal(err)
			}
		}
		r.noBlocks(t, 1)
	}
}

// Of a large message the client may have been sent a part: then its connection
// ends. The next one is not sent the message again.
func TestPieceOfASpilledMessageIsLost(t *testing.T) {
	r := newRig(t, spills)
	ch := r.spilled(t, strings.Repeat("x", 1<<20), "two")
	r.cannotRead(3)
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	if _, err := ch.Consume("q", "c", false, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	<-closed
	ch, err := r.dial(t).Channel()
	if err != nil {
		t.Fatal(err)
	}
	deliveries, err := ch.Consume("q", "c", true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	if d := <-deliveries; string(d.Body) != "two" {
		t.Fatalf("got %.10q", d.Body)
	}
	r.noBlocks(t, 1)
}

// A body that is asked for after the node has closed its files is not lost: the connection ends.
func TestSpilledMessageAtTheEnd(t *testing.T) {
	r := newRig(t, spills)
	ch := r.spilled(t, "one")
	if err := r.spill.Close(patience); err != nil {
		t.Fatal(err)
	}
	closed := ch.NotifyClose(make(chan *amqp.Error, 1))
	if _, err := ch.Consume("q", "c", false, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	<-closed
	if n := r.spill.Stats().Lost; n != 0 {
		t.Errorf("%d messages count as lost", n)
	}
}
