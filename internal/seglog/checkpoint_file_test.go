package seglog

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"

	"holdfast/internal/vfs"
)

// checkpointed appends an entry to group 2 and writes a checkpoint.
func (r *rig) checkpointed(index uint64) {
	r.t.Helper()
	r.append(entryRecord(2, index, index, 1, 100))
	if err := r.l.checkpoint(false); err != nil {
		r.t.Fatal(err)
	}
}

// TestCheckpointsOverwriteTheirFiles: from the fourth checkpoint on no file is made and none is removed, and there are three.
func TestCheckpointsOverwriteTheirFiles(t *testing.T) {
	r := newRig(t)
	r.start()
	for i := uint64(1); i <= 3; i++ {
		r.checkpointed(i)
	}
	r.fs.Inject(vfs.Fault{Op: vfs.OpCreate | vfs.OpRemove | vfs.OpSync, Name: "checkpoint", Err: syscall.EIO, Forever: true})
	for i := uint64(4); i <= 20; i++ {
		r.checkpointed(i)
	}
	r.fs.ClearFaults()
	names := r.fs.Names("log/checkpoint")
	if want := "[log/checkpoint-0000000018 log/checkpoint-0000000019 log/checkpoint-0000000020]"; fmt.Sprint(names) != want {
		t.Fatalf("files %v, want %s", names, want)
	}
	// One that the file has no room for gets another, and so does one that takes little of a large one.
	for g := GroupID(100); g < 1500; g++ {
		r.append(entryRecord(g, 1, 1, 1, 10))
	}
	for i := uint64(21); i < 24; i++ {
		r.checkpointed(i)
	}
	large, err := r.l.readFile(checkpointName(23))
	if err != nil || len(large) < 40<<10 {
		t.Fatalf("the checkpoint of 1,400 groups has %d bytes, %v", len(large), err)
	}
	for g := GroupID(100); g < 1500; g++ {
		r.append(Record{Group: g, Kind: KindDrop, Index: 1})
	}
	for i := uint64(24); i < 28; i++ {
		r.checkpointed(i)
	}
	if small, err := r.l.readFile(checkpointName(27)); err != nil || len(small) > 4*checkpointRoom {
		t.Fatalf("the checkpoint of one group has a file of %d bytes, %v", len(small), err)
	}
	r.fs = r.fs.KillClone()
	r.mustOpen()
	if n := len(r.replay()); n != 27 || r.l.ckptNo != 27 {
		t.Fatalf("%d entries come back, the newest checkpoint is %d", n, r.l.ckptNo)
	}
}

// TestPowerCutWhileACheckpointIsOverwritten: at every call of it, the two checkpoints before are whole, and a damaged file is not taken
// for a newer one that was lost.
func TestPowerCutWhileACheckpointIsOverwritten(t *testing.T) {
	for n := 1; ; n++ {
		r := newRig(t)
		var complaints strings.Builder
		r.o.Logger = slog.New(slog.NewTextHandler(&complaints, nil))
		r.fs.SetGarbage(1)
		r.start()
		for i := uint64(1); i <= 5; i++ {
			r.checkpointed(i)
		}
		r.fs.CrashAt(r.fs.Calls() + n)
		err := r.l.checkpoint(false)
		if err == nil {
			if n < 5 {
				t.Fatalf("a checkpoint takes %d calls", n-1)
			}
			return
		}
		r.fs = r.fs.CrashClone(rand.New(rand.NewPCG(uint64(n), 1)))
		r.mustOpen()
		if got := len(r.replay()); got != 5 || r.l.ckptNo < 5 || strings.Contains(complaints.String(), "cannot be used") {
			t.Fatalf("call %d: %d entries come back, checkpoint %d, %s", n, got, r.l.ckptNo, &complaints)
		}
		r.l.begin()
		for i := uint64(6); i < 10; i++ {
			r.checkpointed(i)
		}
		if names := r.fs.Names("log/checkpoint"); len(names) > 3 {
			t.Fatalf("call %d: %v", n, names)
		}
	}
}
