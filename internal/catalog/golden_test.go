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
// version. A new format gets a new version number and a new file; this one stays and is replayed.
func TestFormat(t *testing.T) {
	datadriven.RunTest(t, "testdata/golden/version1.txt", func(t *testing.T, d *datadriven.TestData) string {
		switch d.Cmd {
		case "commands": // as encoded now
			var out strings.Builder
			for _, cmd := range sampleCommands() {
				fmt.Fprintf(&out, "%x\n", cmd)
			}
			return out.String()
		case "replay": // the bytes written down here, until the catalog is at its fullest
			m := New()
			for line := range strings.Lines(d.Input) {
				cmd, err := hex.DecodeString(strings.TrimSpace(line))
				if err != nil {
					t.Fatal(err)
				}
				if res := m.Apply(1, 7, cmd).(*Result); res.Err != nil {
					t.Fatal(res.Err)
				}
			}
			return fmt.Sprintf("%x\n", m.AppendSnapshot(nil))
		case "restore":
			snapshot, err := hex.DecodeString(strings.TrimSpace(d.Input))
			if err != nil {
				t.Fatal(err)
			}
			m := New()
			if err := m.Restore(snapshot); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(m.AppendSnapshot(nil), snapshot) {
				t.Fatal("written anew it is different")
			}
			return list(m.View())
		}
		t.Fatalf("unknown command %s", d.Cmd)
		return ""
	})
}
