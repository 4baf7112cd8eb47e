package node

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"holdfast/internal/vfs"
)

// A data folder that is emptied is, wherever the power fails, either as it was or empty, with a new identity.
func TestResetAndACrash(t *testing.T) {
	full := vfs.NewMem()
	for _, dir := range []string{"d", "d/" + logDir, "d/" + spillDir} {
		if err := full.MkdirAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	old, _, err := openIdentity(full, "d")
	if err != nil {
		t.Fatal(err)
	}
	var files []string
	for _, dir := range []string{logDir, spillDir} {
		for i := range 3 {
			name := fmt.Sprintf("d/%s/%d", dir, i)
			f, err := full.Create(name)
			if err == nil {
				err = f.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, name)
		}
		if err := full.SyncDir("d/" + dir); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"theirs", lockName} {
		if _, err := full.Create("d/" + name); err != nil {
			t.Fatal(err)
		}
	}
	if err := full.SyncDir("d"); err != nil {
		t.Fatal(err)
	}
	kept := full.Names("d/theirs")

	before, after := 0, 0
	for k := 1; ; k++ {
		disk := full.Clone()
		disk.CrashAt(disk.Calls() + k)
		next := newIdentity()
		err := resetFolder(disk, "d", next)
		if !disk.Crashed() {
			if err != nil {
				t.Fatal(err)
			}
			break
		}
		for seed := range uint64(8) {
			survived := disk.CrashClone(rand.New(rand.NewPCG(seed, 1)))
			id, fresh, err := openIdentity(survived, "d")
			if err != nil {
				t.Fatalf("crash at call %d: %v", k, err)
			}
			left := append(survived.Names("d/"+logDir), survived.Names("d/"+spillDir)...)
			left = slices.DeleteFunc(left, func(name string) bool { return !slices.Contains(files, name) })
			switch {
			case id.ID == old.ID && len(left) == len(files):
				before++
			case id.ID == next.ID && fresh && len(left) == 0:
				after++
			default:
				t.Fatalf("crash at call %d: identity %q (was %q, to be %q), files %v", k, id.ID, old.ID, next.ID, left)
			}
			if now := survived.Names("d/theirs"); !slices.Equal(now, kept) {
				t.Fatalf("what is not ours is gone: %v", now)
			}
			if again, _, err := openIdentity(survived, "d"); err != nil || again.ID != id.ID {
				t.Fatalf("then %v, %v", again.ID, err)
			}
		}
	}
	if before == 0 || after == 0 {
		t.Errorf("%d crashes left the old state, %d the empty one", before, after)
	}
}
