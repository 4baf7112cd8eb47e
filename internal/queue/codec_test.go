package queue

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"unsafe"

	"github.com/cockroachdb/datadriven"

	"holdfast/internal/bytecodec"
)

// sampleCommands has a command of each kind, and the extremes of the fields.
func sampleCommands() []Command {
	return []Command{
		{Kind: Configure, AutoDelete: true},
		{Kind: Enqueue, Count: 1, Bytes: 100, Persistent: true, Session: 7, Seq: 12},
		{Kind: Enqueue, Count: MaxCount, Bytes: 1 << 40, Lane: MaxLane},
		{Kind: Enqueue, Count: 1, Chunks: 1 << 31, Upload: 1<<64 - 1, Session: 1<<64 - 1, Seq: 1<<64 - 1},
		{Kind: Chunk, Count: 3, Session: 7, Upload: 2, Bytes: 3 << 18},
		{Kind: Attach, Session: 7, Consumer: 1, Prefetch: 100, Credit: Unlimited, Priority: -5},
		{Kind: Attach, Session: 7, Consumer: 1, NoAck: true, Exclusive: true, Wake: true, Getter: true, Priority: -1 << 31},
		{Kind: Cancel, Consumer: 1},
		{Kind: Detach, Consumer: 1<<64 - 1, Blameless: true},
		{Kind: Credit, Consumer: 3, Credit: 10, Drain: true},
		{Kind: Get, Consumer: 3, NoAck: true},
		{Kind: Settle, Session: 7, Consumer: 3, First: 10, Last: 20, How: Requeue, Blameless: true},
		{Kind: Settle, Session: 7, Consumer: 3, First: 0, Last: 1<<64 - 1},
		{Kind: Settle, Session: 7, Consumer: 3, First: 10, Last: 9, How: Discard},
		{Kind: Purge},
		{Kind: DropHead, First: 1, Last: 5},
		{Kind: Expire, First: uint64(MakeNumber(3, 1)), Last: uint64(MakeNumber(3, 9))},
		{Kind: SessionOpen, Session: 7},
		{Kind: SessionOpen, Session: 8, Node: 1<<64 - 1, Incarnation: 3},
		{Kind: Attach, Session: 8, Consumer: 2, Outer: 1<<64 - 1},
		{Kind: CreditTo, Consumer: 3, Last: 1<<64 - 1, Drain: true},
		{Kind: CreditTo, Consumer: 3, Credit: Unlimited},
		{Kind: SessionSuspect, Session: 7},
		{Kind: SessionDead, Session: 7, Blameless: true},
		{Kind: EpochOpen, Session: 7, Epoch: 1<<64 - 1},
		{Kind: Recover, Clean: true},
		{Kind: Enqueue, Count: 1, Session: 7, Seq: 12, Terms: &Terms{Heard: 1<<64 - 1}},
		{Kind: Bury, First: 7, Last: 9},
		{Kind: Due},
		{Kind: TimeOut, Consumer: 5, Last: 1 << 62, Blameless: true},
		{Kind: Enqueue, Count: 3, Persistent: true, Session: 4, Terms: &Terms{Tx: 1<<32 - 1, TTL: Most(5)}},
		{Kind: Commit, Session: 4, Seq: 9, Terms: &Terms{Tx: 7, Parts: 1 << 40, Heard: 3}},
		{Kind: Commit, Session: 4, Terms: &Terms{Tx: 7, Parts: 2, Strict: true}},
		{Kind: Abort, Session: 4, Terms: &Terms{Tx: 7}},
		{Kind: Enqueue, Count: 2, Terms: &Terms{Delay: 1<<64 - 1}},
		{Kind: Enqueue, Count: 2, Session: 4, Seq: 9, Terms: &Terms{Carried: true}},
		{Kind: Weigh, First: 7, Last: 9, Bytes: 1 << 40},
		{Kind: Attach, Session: 7, Consumer: 1, Credit: 5, Priority: -5, Terms: &Terms{Ranked: true}},
		{Kind: Attach, Session: 7, Consumer: 1, Getter: true, Terms: &Terms{Timeout: 1<<64 - 1}},
		{Kind: Enqueue, Count: 1, Terms: &Terms{Key: Key{1, 15: 2}, Sequence: Most(^uint64(0))}},
		{Kind: Enqueue, Count: 1, Terms: &Terms{Key: Key{5: 1}}},
		{Kind: Enqueue, Count: 1, Terms: &Terms{Screen: &Screen{Exchange: 1<<64 - 1, Key: Key{1, 15: 2}, Keys: 1}}},
		{Kind: Enqueue, Count: 1, Terms: &Terms{Key: Key{5: 1}, Tx: 3, Carried: true, Screen: &Screen{Exchange: 1, Key: Key{3}, Window: Most(0), Keys: 1<<64 - 1}}},
		{Kind: Enqueue, Count: 2, Terms: &Terms{TTL: Most(^uint64(0)), Heard: 9}},
		{Kind: Enqueue, Count: 2, Terms: &Terms{TTL: Most(0)}},
		{Kind: Settle, Session: 7, Consumer: 3, First: 10, Last: 10, How: Discard, Blameless: true},
		{Kind: Set, Terms: &Terms{Set: &Settings{}}},
		{Kind: Set, Terms: &Terms{Set: allSettings()}},
		{Kind: Set, Terms: &Terms{Set: &Settings{Overflow: OverflowReject, Paused: true}}},
		{Kind: Set, Epoch: 1<<64 - 1, Terms: &Terms{Set: &Settings{Paused: true}}},
	}
}

// allSettings has every setting, with the extreme of its value.
func allSettings() *Settings {
	return &Settings{
		AutoDelete: true, MaxLength: Most(^uint64(0)), MaxBytes: Most(0), Overflow: OverflowRejectDLX, DeliveryLimit: 300,
		TTL: Most(1 << 40), SingleActive: true, TopPriority: MaxLane, DeadLetter: DeadLetterHeld, HeldMost: 5, HeldMostBytes: 1 << 50,
		Retry: RetryAll, RetryMin: 10, RetryMax: 1 << 63, Backoff: true, Paused: true, Forward: true,
		Deduplicate: PublisherKey, Window: Most(^uint64(0)), WindowBytes: 16 << 20,
	}
}

func TestCommandsRoundTrip(t *testing.T) {
	cs := sampleCommands()
	seen := map[Kind]bool{}
	for _, c := range cs {
		seen[c.Kind] = true
	}
	for k := Configure; k <= lastKind; k++ {
		if !seen[k] {
			t.Errorf("no sample of %v", k)
		}
	}
	b := AppendCommands(nil, cs)
	got, err := DecodeCommands(nil, b)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, cs) {
		t.Fatalf("got  %+v\nwant %+v", got, cs)
	}
	for n := range len(b) {
		if got, err := DecodeCommands(nil, b[:n]); err == nil && len(AppendCommands(nil, got)) != n {
			t.Errorf("%d of %d bytes were accepted as more than they are", n, len(b))
		}
	}
}

// The bytes of one version never change: logs are read by later binaries.
func TestCommandBytesStay(t *testing.T) {
	for _, tc := range []struct {
		c    Command
		want string
	}{
		{Command{Kind: Enqueue, Count: 3, Bytes: 300, Persistent: true}, "\x01\x02\x19\x01\x03\xac\x02"},
		{Command{Kind: Settle, Session: 2, Consumer: 1, First: 5, Last: 9, How: Requeue}, "\x01\x09\xe6\x01\x01\x02\x05\x04\x01"},
		{Command{Kind: Recover, Clean: true}, "\x01\x11\x01\x80\x01"},
		{Command{Kind: SessionOpen, Session: 4}, "\x01\x0d\x04\x04"},
		{Command{Kind: SessionOpen, Session: 4, Node: 300, Incarnation: 2}, "\x01\x0d\x84\x80\x0c\x04\xac\x02\x02"},
		{Command{Kind: Attach, Session: 4, Consumer: 6, Credit: 9, Outer: 7}, "\x01\x04\x86\xa0\x10\x06\x04\x09\x07"},
		{Command{Kind: CreditTo, Consumer: 6, Last: 9, Drain: true}, "\x01\x12\x43\x20\x06\x09"},
	} {
		if got := string(AppendCommands(nil, []Command{tc.c})); got != tc.want {
			t.Errorf("%v: %q, want %q", tc.c.Kind, got, tc.want)
		}
	}
}

// Every kind of command, and every field, has the bytes it has had since it came: logs are read by later binaries. A
// line is a command as in the scripts.
func TestCommandBytesOfAllKinds(t *testing.T) {
	datadriven.RunTest(t, "testdata/commands-v1", func(t *testing.T, d *datadriven.TestData) string {
		var out strings.Builder
		for _, line := range strings.Split(strings.TrimSpace(d.Input), "\n") {
			fmt.Fprintf(&out, "%-50s %x\n", line, AppendCommands(nil, []Command{parseCommand(t, line)})[1:])
		}
		return out.String()
	})
}

func TestDecodeRefuses(t *testing.T) {
	for name, b := range map[string]string{
		"nothing":                  "",
		"other version":            "\x02\x0a\x00",
		"no kind":                  "\x01\x00\x00",
		"later kind":               "\x01" + string(rune(lastKind+1)) + "\x00",
		"later field":              "\x01\x0a" + string(bytecodec.AppendUint(nil, fieldsAll+1)) + "\x01",
		"later setting":            "\x01\x13" + string(bytecodec.AppendUint(nil, fieldSet)) + "\x02" + string(rune(lastTag+1)) + "\x01",
		"setting twice":            "\x01\x13" + string(bytecodec.AppendUint(nil, fieldSet)) + "\x04\x02\x01\x02\x01",
		"setting of nothing":       "\x01\x13" + string(bytecodec.AppendUint(nil, fieldSet)) + "\x02\x02\x00",
		"setting cut off":          "\x01\x13" + string(bytecodec.AppendUint(nil, fieldSet)) + "\x01\x02",
		"other overflow":           "\x01\x13" + string(bytecodec.AppendUint(nil, fieldSet)) + "\x02\x04\x03",
		"settings elsewhere":       "\x01\x0a" + string(bytecodec.AppendUint(nil, fieldSet)) + "\x00",
		"later flag":               "\x01\x0a\x01" + string(bytecodec.AppendUint(nil, bitsAll+1)),
		"enqueue of nothing":       "\x01\x02\x01\x01",
		"message in lane 63":       "\x01\x02\x88\x04\x01\x3f",
		"two big at once":          "\x01\x02\x88\x08\x02\x01",
		"two that one screen sees": "\x01\x02" + string(bytecodec.AppendUint(nil, fieldScreen|fieldCount)) + "\x02\x0701234567890abcde\x00\x01",
		"screen of no exchange":    "\x01\x02" + string(bytecodec.AppendUint(nil, fieldScreen|fieldCount)) + "\x01\x0001234567890abcde\x00\x01",
		"screen without room":      "\x01\x02" + string(bytecodec.AppendUint(nil, fieldScreen|fieldCount)) + "\x01\x0701234567890abcde\x00\x00",
		"screen of a purge":        "\x01\x0a" + string(bytecodec.AppendUint(nil, fieldScreen)) + "\x0701234567890abcde\x00\x01",
		"field cut off":            "\x01\x09\x02",
		"overlong number":          "\x01\x09\x02\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"other settlement":         "\x01\x09\x80\x01\x03",
	} {
		if _, err := DecodeCommands(nil, []byte(b)); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// The shortest commands are those that take most memory for their bytes.
func TestDecodeMemory(t *testing.T) {
	var cs []Command
	for n := range 3000 {
		cs = append(cs, Command{Kind: Purge})
		src := AppendCommands(nil, cs)
		got, err := DecodeCommands(nil, src)
		if took := cap(got) * int(unsafe.Sizeof(Command{})); err != nil || took > 140*len(src) {
			t.Fatalf("%d commands in %d bytes take %d bytes, %v", n+1, len(src), took, err)
		}
	}
}

func FuzzDecodeCommands(f *testing.F) {
	f.Add(AppendCommands(nil, sampleCommands()))
	f.Fuzz(func(t *testing.T, b []byte) {
		cs, err := DecodeCommands(nil, b)
		if err != nil {
			return
		}
		again, err := DecodeCommands(nil, AppendCommands(nil, cs))
		if err != nil || !reflect.DeepEqual(again, cs) {
			t.Fatalf("%+v became %+v, %v", cs, again, err)
		}
		// What can be decoded can be applied.
		total := uint64(0)
		for _, c := range cs {
			total += uint64(c.Count)
		}
		if total > 1<<16 {
			return
		}
		m, fx := New(), &Effects{}
		m.Apply(&Entry{Index: 1, Commands: cs}, fx)
		if err := m.Check(); err != nil {
			t.Fatal(err)
		}
	})
}

func BenchmarkCodec(b *testing.B) {
	var cs []Command
	for i := range 100 {
		cs = append(cs,
			Command{Kind: Enqueue, Session: 1, Seq: uint64(1000 + i), Count: 1, Bytes: uint64(rand.IntN(2000)), Persistent: true},
			Command{Kind: Settle, Session: 1, Consumer: 3, First: uint64(5000 + i), Last: uint64(5000 + i)})
	}
	bytes := AppendCommands(nil, cs)
	b.Run("append", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			bytes = AppendCommands(bytes[:0], cs)
		}
		perCommand(b, len(cs))
		b.ReportMetric(float64(len(bytes))/float64(len(cs)), "bytes/command")
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		var dst []Command
		for range b.N {
			dst, _ = DecodeCommands(dst[:0], bytes)
		}
		perCommand(b, len(cs))
	})
}

func perCommand(b *testing.B, n int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/command")
}
