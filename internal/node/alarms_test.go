package node

import (
	"bytes"
	"errors"
	"maps"
	"testing"

	"holdfast/internal/broker"
	"holdfast/internal/detour"
)

// Alarms go with the heartbeat: nothing where there are none, so that it is that of a build that does not know them; what a later build
// adds is left alone, and nonsense is no alarm. R497
func TestAlarmsInAHeartbeat(t *testing.T) {
	if b := appendAlarms([]byte("beat"), nil); string(b) != "beat" {
		t.Errorf("without alarms it says %q", b)
	}
	list := []nodeAlarms{{7, alarmDisk}, {1 << 60, alarmMemory | alarmDisk}}
	b := appendAlarms(nil, list)
	if want := []byte{2, 7, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0x10, 3}; !bytes.Equal(b, want) {
		t.Errorf("written as %v, want %v", b, want)
	}
	want := map[uint64]alarmBits{7: alarmDisk, 1 << 60: alarmMemory | alarmDisk}
	for what, in := range map[string][]byte{"as written": b, "with more behind it": append(bytes.Clone(b), 1, 2, 3)} {
		if got := parseAlarms(in); !maps.Equal(got, want) {
			t.Errorf("%s: %v", what, got)
		}
	}
	for what, in := range map[string][]byte{"nothing": nil, "cut short": b[:len(b)-1], "no numbers": {0xFF, 0xFF}} {
		if got := parseAlarms(in); len(got) != 0 {
			t.Errorf("%s: %v", what, got)
		}
	}
	many := make([]nodeAlarms, 1000)
	for i := range many {
		many[i] = nodeAlarms{uint64(i) + 1, alarmMemory}
	}
	b = appendAlarms(nil, many)
	if got := parseAlarms(b); len(got) != mostAlarms || len(b) > detour.BeatRoom {
		t.Errorf("%d alarms in %d bytes", len(got), len(b))
	}
}

// A node is believed about itself. Of one whose heartbeats do not come here, others tell. R497
func TestWhoTellsOfAlarms(t *testing.T) {
	var k alarmBook
	says := func(node uint64, want alarmBits) {
		t.Helper()
		if got := k.of(node); got != want {
			t.Errorf("node %d has %b, want %b", node, got, want)
		}
	}
	if says(2, 0); !k.heard(2, map[uint64]alarmBits{2: alarmDisk}) || k.heard(2, map[uint64]alarmBits{2: alarmDisk}) {
		t.Error("only what has changed is news")
	}
	says(2, alarmDisk)
	k.heard(3, map[uint64]alarmBits{2: alarmMemory, 4: alarmMemory})
	says(2, alarmDisk)
	says(4, alarmMemory) // which has no link to this node
	if k.heard(4, nil); k.of(4) != 0 {
		t.Error("of itself it says something else")
	}
	if list := k.direct(); len(list) != 1 || list[0] != (nodeAlarms{2, alarmDisk}) {
		t.Errorf("told on: %v", list)
	}
	k.lost(2)
	says(2, alarmMemory) // by hearsay
	k.lost(3)
	says(2, 0)
}

// The bits that go over the links stay what they are.
func TestAlarmBits(t *testing.T) {
	all := []broker.Alarm{{Kind: broker.AlarmMemory}, {Kind: broker.AlarmDisk}}
	if asBits(all) != 3 || asBits(all[:1]) != 1 || asBits(nil) != 0 {
		t.Errorf("%b", asBits(all))
	}
	if got := alarmBits(0xFE).kinds(); len(got) != 1 || got[0] != broker.AlarmDisk {
		t.Errorf("bits that are not known: %v", got)
	}
}

// R491: both marks can be set while the node runs, and count at once; a share needs memory that is known.
func TestMarksAreSet(t *testing.T) {
	p := newPlace(t)
	o := options(p.settings(), p.disk)
	o.Memory = MemoryLimit{Bytes: 1 << 40, Source: "test"}
	n := must(Start(o))(t)
	t.Cleanup(func() { n.Stop() })
	alarms := func(want int) {
		t.Helper()
		eventually(t, "the alarms are as they are to be", func() bool { return len(n.Broker().Alarms()) == want })
	}
	set := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	set(n.SetDiskMark(0, 1<<60))
	if list := n.Broker().Alarms(); len(list) != 1 || list[0].Kind != broker.AlarmDisk || n.facts().DiskMark != 1<<60 {
		t.Errorf("alarms %v, mark %d", list, n.facts().DiskMark)
	}
	set(n.SetMemoryMark(0, 1))
	alarms(2)
	set(n.SetMemoryMark(0.5, 0))
	if got := n.facts().MemoryMark; got != 1<<39 {
		t.Errorf("the memory mark is %d", got)
	}
	alarms(1)
	set(n.SetDiskMark(0, 0))
	alarms(0)
	n.memory.Bytes = 0
	var no *broker.AdminError
	if err := n.SetDiskMark(1, 0); !errors.As(err, &no) || no.Kind != broker.Unavailable {
		t.Errorf("a multiple of nothing: %v", err)
	}
	if err := n.SetMemoryMark(1, 0); !errors.As(err, &no) {
		t.Errorf("a share of nothing: %v", err)
	}
}
