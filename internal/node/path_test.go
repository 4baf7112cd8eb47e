package node

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"holdfast/internal/clock"
	"holdfast/internal/invariant"
	"holdfast/internal/vfs"
)

// pathRecorder writes down what one message passes.
type pathRecorder struct {
	mu    sync.Mutex
	steps []string
	on    bool
	body  []byte        // the write that carries it is the message's
	held  chan struct{} // closed when the queue has applied the publish: the disk waits for it
}

func (r *pathRecorder) pass(room, step string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.on {
		return
	}
	r.steps = append(r.steps, fmt.Sprintf("%-10s %s", room, step))
	if room == "queue" && step == "enqueue applied" && r.held != nil {
		close(r.held)
		r.held = nil
	}
}

// part starts a part of the story; what happens between parts is not recorded.
func (r *pathRecorder) part(title string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps = append(r.steps, "", title)
	r.on = true
}

// settled waits until nothing has been recorded for a while, and ends the part.
func (r *pathRecorder) settled(t *testing.T, last string) {
	t.Helper()
	eventually(t, "the step "+last, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		if !strings.HasSuffix(r.steps[len(r.steps)-1], last) {
			return false
		}
		r.on = false
		return true
	})
}

// recordedDisk notes the write that carries the message, and the sync after it.
// Writing waits until the queue has applied the publish, which otherwise
// happens at the same time: so the order of the notes is always the same.
type recordedDisk struct {
	vfs.FS
	r *pathRecorder
}

func (d recordedDisk) Create(name string) (vfs.File, error) {
	f, err := d.FS.Create(name)
	return &recordedFile{File: f, r: d.r}, err
}

func (d recordedDisk) Open(name string) (vfs.File, error) {
	f, err := d.FS.Open(name)
	return &recordedFile{File: f, r: d.r}, err
}

type recordedFile struct {
	vfs.File
	r    *pathRecorder
	mine bool // written to by the message, and not yet synced
}

func (f *recordedFile) WriteAt(p []byte, at int64) (int, error) {
	f.r.mu.Lock()
	f.mine = f.r.on && bytes.Contains(p, f.r.body)
	held := f.r.held
	f.r.mu.Unlock()
	if f.mine {
		if held != nil {
			<-held
		}
		f.r.pass("vfs", "frame written")
	}
	return f.File.WriteAt(p, at)
}

func (f *recordedFile) Datasync() error {
	err := f.File.Datasync()
	if f.mine {
		f.mine = false
		f.r.pass("vfs", "frame synced")
	}
	return err
}

// One message, one path: what a message passes on its way from the publisher
// to the disk and back as a confirm, then to a consumer, and what its
// acknowledgement passes. The texts are under testdata; UPDATE_GOLDEN=1 writes
// them anew.
func TestPathOfAMessage(t *testing.T) {
	for _, c := range []struct {
		file    string
		durable bool
	}{{"path-transient.txt", false}, {"path-durable.txt", true}} {
		t.Run(c.file, func(t *testing.T) {
			r := &pathRecorder{body: []byte("the message whose path is recorded")}
			p := newPlace(t)
			// The clock stands while a part is recorded: nothing comes in between
			// because a second has passed.
			hands := clock.NewManual(time.Unix(1_700_000_000, 0))
			o := options(p.settings(), recordedDisk{p.disk, r})
			o.Clock = hands
			n, err := Start(o)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { n.Stop() })
			quiet := func() {
				t.Helper()
				eventually(t, "all is on disk", func() bool {
					hands.Advance(2 * time.Second)
					return n.Log().Stats().QueuedBatches == 0
				})
			}
			ch := open(t, n)
			must(ch.QueueDeclare("q", c.durable, false, false, false, nil))(t)
			if err := ch.QueueBind("q", "k", "amq.direct", false, nil); err != nil {
				t.Fatal(err)
			}
			receiving := open(t, n)
			mode := amqp.Transient
			if c.durable {
				mode = amqp.Persistent
				r.held = make(chan struct{})
				// The first hand-out since the start waits for the disk: have it behind us.
				send(t, ch, "q", amqp.Persistent, "first")
				get(t, receiving, "q")
			}
			quiet()
			defer invariant.RecordPath(r.pass)()

			r.part("publish, up to the confirm")
			w, err := ch.PublishWithDeferredConfirmWithContext(context.Background(), "amq.direct", "k", false, false,
				amqp.Publishing{DeliveryMode: mode, Body: r.body})
			if err != nil {
				t.Fatal(err)
			}
			if !w.Wait() {
				t.Fatal("nack")
			}
			r.settled(t, "method appended")
			quiet()

			r.part("get")
			d, ok, err := receiving.Get("q", false)
			if err != nil || !ok || !bytes.Equal(d.Body, r.body) {
				t.Fatal(ok, err, string(d.Body))
			}
			r.settled(t, "method appended")
			quiet()

			r.part("acknowledge")
			if err := d.Ack(false); err != nil {
				t.Fatal(err)
			}
			r.settled(t, "settle applied")

			got := strings.TrimLeft(strings.Join(r.steps, "\n"), "\n") + "\n"
			file := filepath.Join("testdata", c.file)
			if os.Getenv("UPDATE_GOLDEN") != "" {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("the path is\n%s\nand should be\n%s", got, want)
			}
		})
	}
}
