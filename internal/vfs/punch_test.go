package vfs

import (
	"bytes"
	"errors"
	"path/filepath"
	"testing"
)

// A hole reads as zero, changes nothing beside it, and leaves the size as it is.
func TestPunch(t *testing.T) {
	mem := NewMem()
	for name, fs := range map[string]FS{"f": mem, filepath.Join(t.TempDir(), "f"): OS()} {
		f := create(t, fs, name)
		write(t, f, 0, 7, 4*PunchAlign+100)
		if err := f.Punch(PunchAlign, 2*PunchAlign); errors.Is(err, errors.ErrUnsupported) {
			t.Logf("%s: %v", name, err)
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		want := bytes.Repeat([]byte{7}, 4*PunchAlign+100)
		clear(want[PunchAlign : 3*PunchAlign])
		if got := readAll(t, fs, name); !bytes.Equal(got, want) {
			t.Fatalf("%s: other bytes after the punch", name)
		}
		must(t, f.Close())
	}
	if got, want := mem.Used(), int64(2*PunchAlign+100); got != want {
		t.Fatalf("%d bytes are used, want %d", got, want)
	}
}

// Only whole blocks become holes; what is written into one takes space again.
func TestPunchedBlocksAreWhole(t *testing.T) {
	m := NewMem()
	f := create(t, m, "f")
	write(t, f, 0, 7, 3*PunchAlign)
	must(t, f.Punch(1, 2*PunchAlign))
	if got := m.Used(); got != 2*PunchAlign {
		t.Fatalf("%d bytes are used after a punch that covers one block", got)
	}
	if got := readAll(t, m, "f"); got[PunchAlign-1] != 7 || got[PunchAlign] != 0 || got[2*PunchAlign] != 7 {
		t.Fatal("another block was punched")
	}
	write(t, f, PunchAlign+5, 9, 1)
	if got := m.Used(); got != 3*PunchAlign {
		t.Fatalf("%d bytes are used after a write into the hole", got)
	}
	must(t, f.Truncate(0))
	if got := m.Used(); got != 0 {
		t.Fatalf("%d bytes are used by an empty file", got)
	}
}
