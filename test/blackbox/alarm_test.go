package blackbox

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"holdfast/test/raw"
)

// config writes a configuration file and gives the argument that names it.
func config(t *testing.T, text string) []string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "holdfast.conf")
	ok(t, os.WriteFile(path, []byte(text), 0o644))
	return []string{"--config", path}
}

// R261 R265 T49: under the memory alarm whoever publishes is told once and not
// read any further; whoever only consumes goes on; when memory is back, the
// blocked go on where they stopped.
func TestMemoryAlarm(t *testing.T) {
	t.Parallel()
	// Bodies are to stay in memory until it runs short.
	n := ownBroker(t, config(t, "vm_memory_high_watermark.absolute = 96MiB\nstorage.tail_cache = 1GiB\n")...)
	defer func() { ok(t, n.Kill()) }() // or else closing may wait for the alarm
	setup := n.open()
	must(setup.QueueDeclare("filling", false, false, false, false, nil))(t)
	must(setup.QueueDeclare("other", true, false, false, false, nil))(t)
	n.put(setup, "", "other", persistent("before"))

	consumer := channel(t, dialURL(t, n.URL()))
	ok(t, consumer.Qos(1, 0, false))

	// Transient messages nobody takes: they are held in memory.
	filler := must(raw.Dial(n.URL()))(t)
	t.Cleanup(func() { filler.Close() })
	ok(t, filler.Handshake("/"))
	ok(t, filler.OpenChannel(1))
	must(filler.Call(1, raw.ConfirmSelect, raw.ConfirmSelectOk, raw.Bits{false}))(t)
	const size = 1 << 20
	sent := make(chan int, 1)
	body := bytes.Repeat([]byte("x"), size)
	go func() {
		i := 0
		for ; i < 400; i++ {
			_ = filler.SetWriteDeadline(time.Now().Add(raw.Wait))
			if filler.Publish(1, "", "filling", raw.NoProperties, body) != nil {
				break
			}
		}
		sent <- i
	}()
	confirmed, blocked := 0, false
	for !blocked {
		f := must(filler.ReadFrame())(t)
		switch {
		case f.Is(raw.BasicAck):
			confirmed++
		case f.Is(raw.ConnectionBlocked):
			blocked = true
		default:
			t.Fatalf("unexpected %v", f)
		}
	}

	// A new connection publishes: it is told, and read no further.
	late := must(raw.Dial(n.URL()))(t)
	t.Cleanup(func() { late.Close() })
	must(late.Start())(t)
	ok(t, late.Login("guest", "guest"))
	ok(t, late.Tune(2047, 131072, 2)) // a heartbeat every 2 s: silence while blocked is no death
	ok(t, late.Open("/"))
	ok(t, late.OpenChannel(1))
	must(late.Call(1, raw.ConfirmSelect, raw.ConfirmSelectOk, raw.Bits{false}))(t)
	ok(t, late.Publish(1, "", "other", []byte{0x10, 0, 2}, []byte("late 1")))
	lateAcked, lateBlocked := 0, false
	for !lateBlocked {
		f := must(late.ReadFrame())(t)
		switch {
		case f.Is(raw.BasicAck): // the first one may have been taken in
			lateAcked++
		case f.Is(raw.ConnectionBlocked):
			if f.Args().Str() == "" {
				t.Fatal("blocked without a reason")
			}
			lateBlocked = true
		default:
			t.Fatalf("unexpected %v", f)
		}
	}
	ok(t, late.Publish(1, "", "other", []byte{0x10, 0, 2}, []byte("late 2")))

	// Who only consumes notices nothing.
	equal(t, "consumed under the alarm", string(get(t, consumer, "other", true).Body), "before")
	time.Sleep(6 * time.Second)
	settled(t, consumer)

	// Memory comes back, and with it the publishers. From then on silence counts again.
	beating := make(chan struct{})
	defer close(beating)
	go func() {
		for {
			select {
			case <-beating:
				return
			case <-time.After(200 * time.Millisecond):
				_ = late.Write1(raw.FrameHeartbeat, 0, nil)
			}
		}
	}()
	must(consumer.QueuePurge("filling", false))(t)
	done := make(chan struct{})
	go func() { // what the filler still has to send must go somewhere
		defer close(done)
		for end := time.Now().Add(raw.Wait); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			if _, err := consumer.QueuePurge("filling", false); err != nil {
				return
			}
			if len(sent) > 0 {
				return
			}
		}
	}()
	for lateBlocked || lateAcked < 2 {
		f := must(late.ReadFrame())(t)
		switch {
		case f.Is(raw.ConnectionUnblocked):
			lateBlocked = false
		case f.Is(raw.BasicAck):
			a := f.Args()
			lateAcked = max(lateAcked+1, int(a.U64()))
		case f.Is(raw.ConnectionBlocked): // the filler may bring the alarm back
			lateBlocked = true
		default:
			t.Fatalf("unexpected %v", f)
		}
	}
	<-done
	for _, want := range []string{"late 1", "late 2"} {
		equal(t, "the late ones arrived", string(get(t, consumer, "other", true).Body), want)
	}
}

// R261 T49: under the disk alarm the same holds; what is there can be consumed.
func TestDiskAlarm(t *testing.T) {
	t.Parallel()
	n := ownBroker(t)
	ch := n.open()
	must(ch.QueueDeclare("q", true, false, false, false, nil))(t)
	n.put(ch, "", "q", persistent("1"), persistent("2"))
	ok(t, n.Stop())
	n.Extra = config(t, "disk_free_limit.absolute = 1048576GiB\n")
	ok(t, n.Start())

	defer func() { ok(t, n.Kill()) }() // or else closing waits until the alarm is over
	c := dialURL(t, n.URL())
	blocked := c.NotifyBlocked(make(chan amqp.Blocking, 4))
	publisher := channel(t, c)
	ok(t, publisher.Confirm(false))
	consumer := channel(t, dialURL(t, n.URL()))
	// The disk is looked at soon after the start; the publish that meets the
	// alarm may be taken in.
	eventually(t, "the publisher is told", func() bool {
		ok(t, publisher.Publish("", "other", false, false, persistent("x")))
		return len(blocked) > 0
	})
	equal(t, "blocked", (<-blocked).Active, true)
	d, err := publisher.PublishWithDeferredConfirm("", "q", false, false, persistent("4"))
	ok(t, err)
	ok(t, get(t, consumer, "q", false).Ack(false))
	equal(t, "consumed", string(get(t, consumer, "q", true).Body), "2")
	settled(t, consumer)
	equal(t, "told once", len(blocked), 0)
	equal(t, "confirmed meanwhile", d.Acked(), false)
}
