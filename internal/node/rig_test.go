package node

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"holdfast/internal/clock"
	"holdfast/internal/config"
	"holdfast/internal/vfs"
)

// place is where a node lives: a disk in memory, and a folder that has the
// same name on it and, for the local socket, on the real disk.
type place struct {
	disk *vfs.Mem
	dir  string
}

func newPlace(t testing.TB) place { return place{vfs.NewMem(), t.TempDir()} }

// settings are those of a small node on a free port.
func (p place) settings() *config.Settings {
	s := config.Default()
	s.DataDir = p.dir
	s.TCPListeners = []string{"127.0.0.1:0"}
	s.HTTPPort, s.MetricsPort = 0, 0
	s.Storage.SegmentMin, s.Storage.SegmentMax = 256<<10, 1<<20
	s.Storage.CheckpointBytes = 1 << 20
	s.Shards = 2
	s.Heartbeat = 0 // the clock of some tests runs ahead of the client's
	return s
}

// start starts a node there.
func (p place) start(change ...func(*config.Settings)) (*Node, error) {
	s := p.settings()
	for _, c := range change {
		c(s)
	}
	return Start(options(s, p.disk))
}

func options(s *config.Settings, disk vfs.FS) Options {
	return Options{Settings: s, FS: disk, Clock: clock.System(), Logger: slog.New(slog.DiscardHandler), Version: "test"}
}

// run is start for a node that is to come up. It is stopped at the end of the
// test, unless the test has done so.
func (p place) run(t testing.TB, change ...func(*config.Settings)) *Node {
	t.Helper()
	n, err := p.start(change...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		select {
		case <-n.stopping:
		default:
			if err := n.Stop(); err != nil {
				t.Error(err)
			}
		}
	})
	return n
}

// stop stops a node in an orderly way.
func stop(t testing.TB, n *Node) {
	t.Helper()
	if err := n.Stop(); err != nil {
		t.Fatal(err)
	}
}

// dial connects a client.
func dial(t testing.TB, n *Node) *amqp.Connection {
	t.Helper()
	at, err := n.Addr(false)
	if err != nil {
		t.Fatal(err)
	}
	c, err := amqp.Dial("amqp://guest:guest@" + at.String() + "/?heartbeat=0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// open opens a channel on a connection of its own, in confirm mode.
func open(t testing.TB, n *Node) *amqp.Channel {
	t.Helper()
	ch, err := dial(t, n).Channel()
	if err != nil {
		t.Fatal(err)
	}
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	return ch
}

func must[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// send publishes messages to a queue through the default exchange and waits for their confirms.
func send(t testing.TB, ch *amqp.Channel, queue string, mode uint8, bodies ...string) {
	t.Helper()
	var waits []*amqp.DeferredConfirmation
	for _, body := range bodies {
		w, err := ch.PublishWithDeferredConfirmWithContext(context.Background(), "", queue, false, false,
			amqp.Publishing{DeliveryMode: mode, Body: []byte(body), MessageId: body})
		if err != nil {
			t.Fatal(err)
		}
		waits = append(waits, w)
	}
	for i, w := range waits {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		acked, err := w.WaitContext(ctx)
		cancel()
		if err != nil || !acked {
			t.Fatalf("message %q: confirmed %v, %v", bodies[i], acked, err)
		}
	}
}

// get fetches everything that is ready, with its redelivered flag as "*".
func get(t testing.TB, ch *amqp.Channel, queue string) (bodies []string) {
	t.Helper()
	for {
		d, ok, err := ch.Get(queue, true)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			return bodies
		}
		body := string(d.Body)
		if d.Redelivered {
			body += "*"
		}
		bodies = append(bodies, body)
	}
}

func numbered(prefix string, n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("%s%d", prefix, i)
	}
	return list
}

// patience bounds every wait for something that must come about. Only what goes
// wrong takes it, and a machine that is slow or busy is not wrong.
const patience = time.Minute

// eventually waits until something is true.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("in vain: %s", what)
		}
	}
}
