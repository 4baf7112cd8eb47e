package node

import (
	"strings"
	"testing"

	"holdfast/internal/vfs"
)

// The identity is made once, survives, and is never made anew beside data.
func TestIdentity(t *testing.T) {
	disk := vfs.NewMem()
	if err := disk.MkdirAll("d"); err != nil {
		t.Fatal(err)
	}
	first, fresh, err := openIdentity(disk, "d")
	if err != nil || !fresh || first.ID == "" {
		t.Fatal(first, fresh, err)
	}
	if again, fresh, err := openIdentity(disk, "d"); err != nil || !fresh || again.ID != first.ID {
		t.Errorf("then %v, %v, %v", again, fresh, err)
	}
	rewrite := func(text string) {
		if err := writeFile(disk, "d", identityName, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	for text, word := range map[string]string{
		`{"format":99,"id":"x"}`: "later version",
		`{"format":1}`:           "damaged",
		`not json`:               "damaged",
		``:                       "damaged",
	} {
		rewrite(text)
		if _, _, err := openIdentity(disk, "d"); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%q: %v, want %q in it", text, err, word)
		}
	}
	if err := disk.Remove("d/" + identityName); err != nil {
		t.Fatal(err)
	}
	if err := disk.MkdirAll("d/log"); err != nil {
		t.Fatal(err)
	}
	f, err := disk.Create("d/log/segment")
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	if _, _, err := openIdentity(disk, "d"); err == nil || !strings.Contains(err.Error(), "has a log but no") {
		t.Errorf("a log without identity: %v", err)
	}
}
