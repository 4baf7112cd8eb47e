package blackbox

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"
)

// fill publishes bodies of 32 KiB, numbered from a number on, and gives the first that was not confirmed, or ""
func fill(t *testing.T, ch *amqp.Channel, queue string, from, to int) (refused []string) {
	t.Helper()
	pad := strings.Repeat("x", 32<<10)
	for at := from; at < to; at += 20 {
		var bodies []string
		for i := at; i < min(at+20, to); i++ {
			bodies = append(bodies, fmt.Sprintf("%06d%s", i, pad))
		}
		for i, acked := range publishes(t, ch, "", queue, bodies...) {
			if !acked {
				refused = append(refused, bodies[i][:6])
			}
		}
	}
	return refused
}

// drained takes all messages of a queue that fill has put there, in order.
func drained(t *testing.T, ch *amqp.Channel, queue string, n int) {
	t.Helper()
	ok(t, ch.Qos(50, 0, false))
	in := consume(t, ch, queue)
	for i := range n {
		d := next(t, in)
		if string(d.Body[:6]) != fmt.Sprintf("%06d", i) || len(d.Body) != 6+32<<10 || bytes.Count(d.Body, []byte("x")) != 32<<10 {
			t.Fatalf("delivery %d begins %q and has %d bytes", i, d.Body[:6], len(d.Body))
		}
		ok(t, d.Ack(false))
	}
	ok(t, ch.Close())
}

// R304: the disk of one node is full, which leads the queue, or follows. Publishers on the other nodes notice nothing; when there is room
// again, the member catches up, and nothing is lost.
func TestQuorumFullDisk(t *testing.T) {
	heavy(t)
	for what, leader := range map[string]int{"the leader's": 0, "a follower's": 1} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			fullDisk(t, leader)
		})
	}
}

func fullDisk(t *testing.T, leader int) {
	w := prepareWeb(t, 3)
	disk := t.TempDir()
	small := smallDisk(t, disk, 160<<20)
	config := filepath.Join(t.TempDir(), "conf")
	ok(t, os.WriteFile(config, []byte("disk_free_limit.absolute = 1MiB\nstorage.segment_size.max = 16MiB\n"), 0o644))
	w.node[0].Data = filepath.Join(small, "data")
	w.node[0].Extra = append(w.node[0].Extra, "--config", config)
	ok(t, w.Start())
	q := w.quorum(leader, "q")
	ch := w.node[2].confirming()
	if refused := fill(t, ch, q, 0, 200); refused != nil {
		t.Fatalf("nacked: %v", refused)
	}
	ballast := must(os.Create(filepath.Join(small, "ballast")))(t)
	block := make([]byte, 64<<10)
	for err := error(nil); err == nil; {
		_, err = ballast.Write(block)
	}
	ok(t, ballast.Close())
	refused := fill(t, ch, q, 200, 2000)
	if refused != nil {
		t.Errorf("%d publishes were nacked since the disk of one of three nodes is full: %v", len(refused), refused)
	}
	w.node[0].said("disk space alarm")
	w.leading(q, 1, "n1")
	ok(t, os.Remove(ballast.Name()))
	if w.node[0].Pid() != 0 {
		select {
		case <-w.node[0].Ended():
			ok(t, w.node[0].Kill())
			ok(t, w.node[0].Start())
		default:
		}
	}
	drained(t, w.node[2].open(), q, 2000)
	w.caughtUp(q, 1)
	until(t, "the node is online", func() bool { return len(w.node[1].listing(q).Online) == 3 })
}

// R305: bytes of a stopped member's log are changed. When it runs again and leads, it serves nothing wrong: others deliver what it cannot
// read. It is replaced by a member that gets everything from them, and can then do without one of them.
func TestQuorumDamagedMember(t *testing.T) {
	t.Parallel()
	heavy(t)
	w := newWeb(t, 3)
	q := w.quorum(0, "q")
	if refused := fill(t, w.node[1].confirming(), q, 0, 600); refused != nil {
		t.Fatalf("nacked: %v", refused)
	}
	w.caughtUp(q, 0)
	ok(t, w.node[2].Stop())
	flip(t, w.node[2].Data, []byte("000300xxxx"))
	ok(t, w.node[2].Start())
	w.caughtUp(q, 0)
	w.lead(q, 2) // and so it finds the damage when it reads
	drained(t, w.node[1].open(), q, 600)
	w.node[2].said("checksum does not match")
	until(t, "the member is whole again", func() bool {
		list := w.node[0].members(q)
		return len(list) == 3 && !slices.ContainsFunc(list, func(m seat) bool {
			return m.Last == "" || m.Last != list[0].Last || m.Membership != "voter"
		})
	})
	if refused := fill(t, w.node[1].confirming(), q, 0, 100); refused != nil {
		t.Fatalf("nacked: %v", refused)
	}
	w.lead(q, 2)
	ok(t, w.node[0].Kill())
	w.leading(q, 2, "n1")
	drained(t, w.node[2].open(), q, 100)
}

// flip changes a byte of a text in a log.
func flip(t *testing.T, data string, text []byte) {
	t.Helper()
	for _, path := range must(filepath.Glob(filepath.Join(data, "log", "*.seg")))(t) {
		b := must(os.ReadFile(path))(t)
		if at := bytes.Index(b, text); at >= 0 {
			b[at+len(text)-1] ^= 0x20
			ok(t, os.WriteFile(path, b, 0o600))
			return
		}
	}
	t.Fatalf("%q is in no segment", text)
}
