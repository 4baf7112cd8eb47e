package node

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"holdfast/internal/vfs"
)

var quiet = slog.New(slog.DiscardHandler)

// damage flips one bit in the first place on the disk where text stands, and says whether it stands there.
func damage(t *testing.T, disk *vfs.Mem, text string) {
	t.Helper()
	for _, name := range disk.Names("") {
		content, err := readFile(disk, name)
		if err != nil {
			continue // a folder
		}
		if at := bytes.Index(content, []byte(text)); at >= 0 {
			if err := disk.Flip(name, int64(at), 0); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("%q is nowhere on the disk", text)
}

// salvagedLines reads a file that Salvage wrote.
func salvagedLines(t *testing.T, file string) (lines []salvagedMessage) {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(content) {
		var m salvagedMessage
		if err := json.Unmarshal(line, &m); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, m)
	}
	return lines
}

// One flipped bit: the queue it hit says so and serves nobody, everything else serves, what is whole can be copied out,
// and the rest is given up only when an operator says so.
func TestADamagedQueue(t *testing.T) {
	p := newPlace(t)
	n := p.run(t)
	ch := open(t, n)
	for _, queue := range []string{"hurt", "well"} {
		must(ch.QueueDeclare(queue, true, false, false, false, nil))(t)
		for _, body := range numbered(queue+"-", 9) { // one by one: a frame for each
			send(t, ch, queue, amqp.Persistent, body)
		}
	}
	p.disk = p.disk.Clone() // as after a power cut: what was confirmed is there, and no clean mark
	stop(t, n)
	damage(t, p.disk, numbered("hurt-", 9)[4])

	n = p.run(t)
	o := operator{t, n}
	if out := o.ctl("-s", "list_queues", "name", "state"); out != "hurt\tquarantined\nwell\trunning\n" {
		t.Fatalf("%q", out)
	}
	if out := o.ctl("status"); !strings.Contains(out, "Queue 'hurt' in vhost '/' is quarantined: ") {
		t.Errorf("status: %s", out)
	}
	if out := o.ctl("explain", "hurt"); !strings.Contains(out, "dump --salvage") {
		t.Errorf("explain: %s", out)
	}
	ch = open(t, n)
	if bodies := get(t, ch, "well"); len(bodies) != 9 {
		t.Errorf("the other queue has %d messages", len(bodies))
	}
	confirmed, err := ch.PublishWithDeferredConfirm("", "hurt", false, false, amqp.Publishing{Body: []byte("x"), DeliveryMode: amqp.Persistent})
	if err != nil {
		t.Fatal(err)
	}
	if confirmed.Wait() {
		t.Error("a publish to the damaged queue was confirmed")
	}
	if _, err := ch.QueueDeclarePassive("hurt", true, false, false, false, nil); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("declare: %v", err)
	}
	if err := Dump(p.disk, p.dir, &bytes.Buffer{}, quiet); !errors.Is(err, ErrInUse) {
		t.Errorf("dump beside a running node: %v", err)
	}
	stop(t, n)

	folder := filepath.Join(t.TempDir(), "out")
	copied, err := Salvage(p.disk, p.dir, folder, nil, quiet)
	if err != nil || len(copied) != 1 || copied[0].Reason == "" {
		t.Fatalf("%+v, %v", copied, err)
	}
	var bodies []string
	for _, m := range salvagedLines(t, copied[0].File) {
		bodies = append(bodies, string(m.Payload))
		if m.RoutingKey != "hurt" || m.Properties["delivery_mode"] == nil {
			t.Errorf("salvaged %+v", m)
		}
	}
	want := numbered("hurt-", 9)
	want = append(want[:4:4], want[5:]...)
	if strings.Join(bodies, " ") != strings.Join(want, " ") || copied[0].Messages != 8 {
		t.Errorf("salvaged %q, want %q", bodies, want)
	}
	if _, err := Salvage(p.disk, p.dir, folder, nil, quiet); !errors.Is(err, os.ErrExist) {
		t.Errorf("a file that is there was written over: %v", err)
	}

	n = p.run(t)
	o = operator{t, n}
	o.ctl("discard", "hurt")
	if out := o.ctl("status"); strings.Contains(out, "quarantined") {
		t.Errorf("status after discard: %s", out)
	}
	o.ctl("publish", "--declare", "hurt", "new")
	if out := o.ctl("-s", "list_queues", "name", "messages", "state"); out != "hurt\t1\trunning\nwell\t0\trunning\n" {
		t.Errorf("after discard: %q", out)
	}
}

// Any group can be copied out of a stopped node, large bodies in pieces.
func TestSalvageOfAWholeQueue(t *testing.T) {
	p := newPlace(t)
	n := p.run(t)
	ch := open(t, n)
	must(ch.QueueDeclare("q", true, false, false, false, nil))(t)
	large := strings.Repeat("0123456789abcdef", 50_000)
	send(t, ch, "q", amqp.Persistent, "small")
	if err := ch.Publish("", "q", false, false, amqp.Publishing{Body: []byte(large), DeliveryMode: amqp.Persistent}); err != nil {
		t.Fatal(err)
	}
	send(t, ch, "q", amqp.Persistent, "last")
	info, err := n.broker.QueueInfo("/", "q")
	if err != nil {
		t.Fatal(err)
	}
	stop(t, n)
	copied, err := Salvage(p.disk, p.dir, t.TempDir(), []uint64{info.ID}, quiet)
	if err != nil {
		t.Fatal(err)
	}
	var bodies []string
	var pieces strings.Builder
	for _, m := range salvagedLines(t, copied[0].File) {
		switch {
		case m.Chunk != 0:
			pieces.Write(m.Payload)
		case m.Chunks > 0:
			if m.BodyBytes != uint64(len(large)) {
				t.Errorf("the large body has %d bytes", m.BodyBytes)
			}
		default:
			bodies = append(bodies, string(m.Payload))
		}
	}
	if strings.Join(bodies, " ") != "small last" || pieces.String() != large {
		t.Errorf("salvaged %q and %d bytes in pieces", bodies, pieces.Len())
	}
	folder := t.TempDir()
	copied, err = Salvage(p.disk, p.dir, folder, []uint64{info.ID, info.ID + 1000}, quiet)
	if len(copied) != 1 || !errors.Is(err, errNoGroup) || !strings.Contains(err.Error(), fmt.Sprint(info.ID+1000)) {
		t.Errorf("a group that is not there: %+v, %v", copied, err)
	}
	if names, err := os.ReadDir(folder); err != nil || len(names) != 1 {
		t.Errorf("in the folder: %v, %v", names, err)
	}
	var dump bytes.Buffer
	if err := Dump(p.disk, p.dir, &dump, quiet); err != nil || !strings.Contains(dump.String(), "group") {
		t.Errorf("dump: %v\n%s", err, dump.String())
	}
	dump.Reset()
	if err := Dump(readOnly{p.disk}, p.dir, &dump, quiet); err != nil || !strings.Contains(dump.String(), "group") {
		t.Errorf("dump of a read-only folder: %v\n%s", err, dump.String())
	}
	if n = p.run(t); n.Report().Queues != 1 {
		t.Errorf("after dump and salvage: %+v", n.Report())
	}
}

// readOnly is a disk that takes no writes.
type readOnly struct{ vfs.FS }

func (readOnly) Lock(name string) (io.Closer, error) {
	return nil, &os.PathError{Op: "open", Path: name, Err: syscall.EROFS}
}
