package queue

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// What a queue does that is not told of anything special is what it has done since before it could be: a log replays as it
// ran, its commands and snapshots have the same bytes. The sum is over a thousand entries, their effects and the snapshots
// after them. Whoever changes what the generator makes has to compute it with a machine that was right before: none
// of level 1 put messages into lanes from LowLane on.
func TestOrdinaryStays(t *testing.T) {
	sum := sha256.New()
	for seed := range uint64(20) {
		g, m := newGenerator(seed), New()
		for range 100 {
			e, fx := g.entry(), &Effects{}
			sum.Write(AppendCommands(nil, e.Commands))
			m.Apply(e, fx)
			for i := range fx.List {
				fmt.Fprintln(sum, printEffect(&fx.List[i]))
			}
			sum.Write(m.AppendSnapshot(nil))
		}
	}
	if got := fmt.Sprintf("%x", sum.Sum(nil)[:16]); got != "1458ece3bc3117b1b61e425ad6d472e0" {
		t.Errorf("sum %s", got)
	}
}

// The bytes of one version never change: a later binary reads the snapshots of this one. The states
// have something in every section.
func TestSnapshotBytesStay(t *testing.T) {
	m := New()
	m.Apply(&Entry{Index: 4, Time: 1_600_000_000_000_000_000, Commands: []Command{
		{Kind: SessionOpen, Session: 2, Node: 1 << 40, Incarnation: 7},
		{Kind: Attach, Session: 2, Consumer: 100, Getter: true, Outer: 33},
		{Kind: SessionSuspect, Session: 2},
	}}, &Effects{})
	goldenEntries(m)
	datadriven.RunTest(t, "testdata/snapshot-v2", func(t *testing.T, d *datadriven.TestData) string {
		if d.Cmd == "ready" {
			goldenReady(m)
		}
		restored(t, m)
		return hex.Dump(m.AppendSnapshot(nil))
	})
}

// The same for a machine that has what few have.
func TestSnapshotBytesOfRareStay(t *testing.T) {
	m := New()
	goldenEntries(m)
	goldenRare(m)
	datadriven.RunTest(t, "testdata/snapshot-v3", func(t *testing.T, d *datadriven.TestData) string {
		switch d.Cmd {
		case "keys":
			goldenKeys(m, &Settings{Deduplicate: MessageIDKey})
		case "window":
			goldenKeys(m, &Settings{Deduplicate: HeaderKey, Window: Most(60_000), WindowBytes: 1 << 20})
		case "publishers":
			goldenKeys(m, &Settings{Deduplicate: PublisherKey, WindowBytes: 1 << 20})
		case "generation":
			m.Apply(&Entry{Index: m.Applied() + 1, Commands: []Command{{Kind: Set, Epoch: 300, Terms: &Terms{Set: &Settings{}}}}}, &Effects{})
		case "screens":
			goldenScreens(m)
		}
		restored(t, m)
		if d.Cmd == "window" || d.Cmd == "publishers" {
			// It was written when a message that is to survive a restart was a duplicate of one that is not: the same commands give another
			// machine now, see TestSnapshotBytesOfPassingStay. But that is read, and means what it did.
			m = New()
			if err := m.Restore(undump(t, d.Expected)); err != nil {
				t.Fatal(err)
			}
		}
		return hex.Dump(m.AppendSnapshot(nil))
	})
}

// The same where messages that are to survive a restart come after the same ones that are not. R622
func TestSnapshotBytesOfPassingStay(t *testing.T) {
	datadriven.RunTest(t, "testdata/snapshot-v3-passing", func(t *testing.T, d *datadriven.TestData) string {
		m := New()
		switch d.Cmd {
		case "window":
			goldenKeys(m, &Settings{Deduplicate: HeaderKey, Window: Most(60_000), WindowBytes: 1 << 20})
		case "publishers":
			goldenKeys(m, &Settings{Deduplicate: PublisherKey, WindowBytes: 1 << 20})
		}
		restored(t, m)
		return hex.Dump(m.AppendSnapshot(nil))
	})
}

// A snapshot of the first version gives the same machine as the entries that it was made of: its sessions are
// nobody's.
func TestSnapshotV1(t *testing.T) {
	m := New()
	goldenEntries(m)
	datadriven.RunTest(t, "testdata/snapshot-v1", func(t *testing.T, d *datadriven.TestData) string {
		if d.Cmd == "ready" {
			goldenReady(m)
		}
		old := New()
		if err := old.Restore(undump(t, d.Expected)); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(old.AppendSnapshot(nil), m.AppendSnapshot(nil)) {
			t.Errorf("%s: another machine", d.Cmd)
		}
		return d.Expected
	})
}

// undump gives the bytes that hex.Dump was given.
func undump(t testing.TB, dump string) []byte {
	var b []byte
	for _, line := range strings.Split(strings.TrimSpace(dump), "\n") {
		middle, _, _ := strings.Cut(line[8:], "|")
		x, err := hex.DecodeString(strings.ReplaceAll(middle, " ", ""))
		if err != nil {
			t.Fatal(err)
		}
		b = append(b, x...)
	}
	return b
}

func goldenEntries(m *Machine) {
	m.Apply(&Entry{Index: 5, Time: 1_700_000_000_000_000_000, Commands: []Command{
		{Kind: Configure, AutoDelete: true},
		{Kind: SessionOpen, Session: 3},
		{Kind: EpochOpen, Session: 3, Epoch: 2},
		{Kind: Chunk, Session: 3, Upload: 1, Count: 2},
		{Kind: Chunk, Session: 3, Upload: 2, Count: 1},
		{Kind: Enqueue, Session: 3, Seq: 9, Count: 3, Persistent: true},
		{Kind: Enqueue, Session: 3, Seq: 10, Lane: 4, Count: 1, Chunks: 2, Upload: 1},
		{Kind: Attach, Session: 3, Consumer: 1, Credit: 7, Prefetch: 3, Priority: -2},
		{Kind: Settle, Session: 3, Consumer: 1, First: 2, Last: 2, How: Requeue},
		{Kind: Cancel, Consumer: 1},
		{Kind: Attach, Session: 3, Consumer: 2, Credit: 2},
	}}, &Effects{})
	m.Apply(&Entry{Index: 6, Time: 1_700_000_001_000_000_000, Commands: []Command{
		{Kind: Attach, Session: 3, Consumer: 3, Wake: true},
		{Kind: Settle, Session: 3, Consumer: 2, First: 1, Last: 2, How: Requeue, Blameless: true},
		{Kind: Attach, Session: 3, Consumer: 4, Credit: 1},
		{Kind: Settle, Session: 3, Consumer: 4, First: 1, Last: 1},
		{Kind: Attach, Session: 3, Consumer: 5, Credit: 1},
		{Kind: Attach, Session: 3, Consumer: 6, Credit: 1},
		{Kind: Attach, Session: 3, Consumer: 7, Credit: 1},
	}}, &Effects{})
}

// goldenRare gives a machine something of all that came with settings.
func goldenRare(m *Machine) {
	set := &Settings{MaxLength: Most(6), MaxBytes: Most(100), Overflow: OverflowReject, DeliveryLimit: Most(1), TTL: Most(5000),
		SingleActive: true, DeadLetter: DeadLetterHeld, Retry: RetryAll, RetryMin: 20, RetryMax: 30, Backoff: true}
	m.Apply(&Entry{Index: 7, Time: 1_700_000_002_000_000_000, Commands: []Command{
		{Kind: Set, Terms: &Terms{Set: set}},
		{Kind: Attach, Session: 3, Consumer: 8, Credit: 2, Priority: 5, Terms: &Terms{Ranked: true}},
		{Kind: Enqueue, Session: 3, Seq: 12, Count: 2, Bytes: 20, Persistent: true},
		{Kind: Settle, Session: 3, Consumer: 1, First: 1, Last: 1, How: Discard},
		{Kind: Settle, Session: 3, Consumer: 1, First: 3, Last: 3, How: Requeue},
		{Kind: Attach, Session: 3, Consumer: 9, Credit: 3, Priority: 6, Terms: &Terms{Ranked: true}},
		{Kind: Enqueue, Session: 3, Seq: 13, Count: 1, Bytes: 7, Terms: &Terms{TTL: Most(60), Delay: 1e9}},
		{Kind: Enqueue, Session: 3, Seq: 23, Count: 10, Bytes: 50, Persistent: true, Terms: &Terms{Heard: 12}},
		{Kind: EpochOpen, Session: 3, Epoch: 3},
		{Kind: Enqueue, Session: 3, Seq: 2, Count: 2, Bytes: 50, Persistent: true},
	}}, &Effects{})
}

// goldenKeys gives it something to find duplicates by, and a consumer a timeout.
func goldenKeys(m *Machine, set *Settings) {
	in := func(key byte, seq uint64, persistent bool) Command {
		return Command{Kind: Enqueue, Count: 1, Persistent: persistent, Terms: &Terms{Key: Key{key, 15: key + 1}, Sequence: Most(seq)}}
	}
	consumer := m.LastConsumer() + 1
	for i := range int64(2) {
		m.Apply(&Entry{Index: m.Applied() + 1, Time: m.now + 1e9*i + 3e6, Commands: []Command{
			{Kind: Set, Terms: &Terms{Set: set}}, in(1, uint64(i), true), in(2, 5+4*uint64(i), false), in(2, 6, true), in(2, 6, true),
			{Kind: SessionOpen, Session: 3}, {Kind: Attach, Session: 3, Consumer: consumer, Credit: 0, Terms: &Terms{Timeout: 5e9}},
		}}, &Effects{})
	}
}

// goldenScreens has messages come through exchanges that let nothing through twice, and some be in a transaction.
func goldenScreens(m *Machine) {
	in := func(exchange uint64, key byte, window Limit, tx uint32) Command {
		return Command{Kind: Enqueue, Count: 1, Session: 3, Persistent: key%2 > 0, Terms: &Terms{Tx: tx, Screen: &Screen{Exchange: exchange, Key: Key{key, 15: key}, Window: window, Keys: 9}}}
	}
	for i := range int64(2) {
		k := byte(10 * i)
		m.Apply(&Entry{Index: m.Applied() + 1, Time: m.now + 1e9*i + 5e6, Commands: []Command{
			in(300, k+1, 0, 0), in(300, k+2, Most(60_000), 0), in(7, k+1, Most(9000), 0), in(7, k+2, 0, 4), in(7, k+3, Most(1), 4),
		}}, &Effects{})
	}
}

// goldenReady makes messages ready: that, and a consumer that waits, exclude each other.
func goldenReady(m *Machine) {
	m.Apply(&Entry{Index: 7, Commands: []Command{{Kind: Enqueue, Count: 9}, {Kind: SessionSuspect, Session: 3}}}, &Effects{})
}
