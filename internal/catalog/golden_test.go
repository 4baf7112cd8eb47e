package catalog

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
)

// TestFormat compares commands and a snapshot with bytes written down once: what is in a log must be read by every later
// version. A new format gets a new version number and a new file; those there are stay and are replayed.
func TestFormat(t *testing.T) {
	datadriven.RunTest(t, "testdata/golden/version2.txt", func(t *testing.T, d *datadriven.TestData) string {
		switch d.Cmd {
		case "commands": // as encoded now
			var out strings.Builder
			for _, cmd := range sampleCommands() {
				fmt.Fprintf(&out, "%x\n", cmd)
			}
			return out.String()
		case "replay": // the bytes written down here, until the catalog is at its fullest
			return fmt.Sprintf("%x\n", replayed(t, d.Input).AppendSnapshot(nil))
		case "restore":
			m := restored(t, d.Input)
			if fmt.Sprintf("%x", m.AppendSnapshot(nil)) != strings.TrimSpace(d.Input) {
				t.Fatal("written anew it is different")
			}
			return listNodes(m.View()) + list(m.View())
		}
		t.Fatalf("unknown command %s", d.Cmd)
		return ""
	})
}

// TestFormat1 reads what was written before nodes had numbers and queues a place: commands and snapshot still give one and
// the same state.
func TestFormat1(t *testing.T) {
	var commands *Machine
	datadriven.RunTest(t, "testdata/golden/version1.txt", func(t *testing.T, d *datadriven.TestData) string {
		switch d.Cmd {
		case "replay":
			commands = replayed(t, d.Input)
			return listNodes(commands.View()) + list(commands.View())
		case "restore":
			m := restored(t, d.Input)
			if !bytes.Equal(m.AppendSnapshot(nil), commands.AppendSnapshot(nil)) {
				t.Fatal("the snapshot is not what the commands lead to")
			}
			return listNodes(m.View()) + list(m.View())
		}
		t.Fatalf("unknown command %s", d.Cmd)
		return ""
	})
}

// TestFormat3 is the same of what is written once a node knows more than the first level.
func TestFormat3(t *testing.T) {
	datadriven.RunTest(t, "testdata/golden/version3.txt", func(t *testing.T, d *datadriven.TestData) string {
		switch d.Cmd {
		case "commands":
			var out strings.Builder
			for _, cmd := range levelCommands() {
				fmt.Fprintf(&out, "%x\n", cmd)
			}
			return out.String()
		case "replay":
			return fmt.Sprintf("%x\n", replayed(t, d.Input).AppendSnapshot(nil))
		case "restore":
			m := restored(t, d.Input)
			if fmt.Sprintf("%x", m.AppendSnapshot(nil)) != strings.TrimSpace(d.Input) {
				t.Fatal("written anew it is different")
			}
			return listLevels(m.View())
		}
		t.Fatalf("unknown command %s", d.Cmd)
		return ""
	})
}

// TestFormat4 is the same of what is written at level 2: policies, and declares by the third rules.
func TestFormat4(t *testing.T) {
	datadriven.RunTest(t, "testdata/golden/version4.txt", func(t *testing.T, d *datadriven.TestData) string {
		switch d.Cmd {
		case "commands":
			var out strings.Builder
			for _, cmd := range policyCommands() {
				fmt.Fprintf(&out, "%x\n", cmd)
			}
			return out.String()
		case "replay":
			return fmt.Sprintf("%x\n", replayed(t, d.Input).AppendSnapshot(nil))
		case "restore":
			m := restored(t, d.Input)
			if fmt.Sprintf("%x", m.AppendSnapshot(nil)) != strings.TrimSpace(d.Input) {
				t.Fatal("written anew it is different")
			}
			return listLevels(m.View()) + list(m.View())
		}
		t.Fatalf("unknown command %s", d.Cmd)
		return ""
	})
}

func replayed(t *testing.T, input string) *Machine {
	m := New()
	for line := range strings.Lines(input) {
		cmd, err := hex.DecodeString(strings.TrimSpace(line))
		if err != nil {
			t.Fatal(err)
		}
		if res := m.Apply(1, 7, cmd).(*Result); res.Err != nil {
			t.Fatal(res.Err)
		}
	}
	return m
}

func restored(t *testing.T, input string) *Machine {
	snapshot, err := hex.DecodeString(strings.TrimSpace(input))
	if err != nil {
		t.Fatal(err)
	}
	m := New()
	if err := m.Restore(snapshot); err != nil {
		t.Fatal(err)
	}
	return m
}
