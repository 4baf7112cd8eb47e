package vfs

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"syscall"
	"testing"
)

func rng(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 7)) }

func create(t *testing.T, m FS, name string) File {
	t.Helper()
	f, err := m.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func write(t *testing.T, f File, off int64, b byte, n int) {
	t.Helper()
	if _, err := f.WriteAt(bytes.Repeat([]byte{b}, n), off); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func readAll(t *testing.T, m FS, name string) []byte {
	t.Helper()
	f, err := m.Open(name)
	must(t, err)
	size, err := f.Size()
	must(t, err)
	p := make([]byte, size)
	if size > 0 {
		_, err = f.ReadAt(p, 0)
		must(t, err)
	}
	return p
}

func TestCrashKeepsWhatWasSynced(t *testing.T) {
	m := NewMem()
	f := create(t, m, "f")
	write(t, f, 0, 1, 4*SectorSize)
	must(t, f.Datasync())
	must(t, m.SyncDir("."))
	write(t, f, 0, 2, 4*SectorSize) // unsynced: each sector is old or new
	var old, new int
	for seed := range uint64(200) {
		got := readAll(t, m.CrashClone(rng(seed)), "f")
		for s := range 4 {
			sector := got[s*SectorSize : (s+1)*SectorSize]
			if !bytes.Equal(sector, bytes.Repeat(sector[:1], SectorSize)) {
				t.Fatal("a sector was torn")
			}
			switch sector[0] {
			case 1:
				old++
			case 2:
				new++
			default:
				t.Fatalf("sector holds %d", sector[0])
			}
		}
	}
	if old < 200 || new < 200 {
		t.Fatalf("%d old and %d new sectors: the crash is not fair", old, new)
	}
}

func TestCrashLosesNamesNotSynced(t *testing.T) {
	m := NewMem()
	f := create(t, m, "a")
	write(t, f, 0, 1, SectorSize)
	must(t, f.Sync())
	must(t, m.SyncDir("."))
	must(t, m.Rename("a", "b"))
	create(t, m, "c")
	seen := map[string]int{}
	for seed := range uint64(200) {
		names, err := m.CrashClone(rng(seed)).List(".")
		must(t, err)
		key := ""
		for _, n := range names {
			key += n
		}
		seen[key]++
	}
	if len(seen) != 3 || seen["a"] == 0 || seen["b"] == 0 || seen["bc"] == 0 {
		t.Fatalf("name sets after a crash: %v", seen)
	}
}

func TestFailedSyncLeavesGhosts(t *testing.T) {
	m := NewMem()
	f := create(t, m, "f")
	write(t, f, 0, 1, SectorSize)
	must(t, f.Sync())
	must(t, m.SyncDir("."))
	write(t, f, 0, 2, SectorSize)
	m.Inject(Fault{Op: OpDatasync, Err: syscall.EIO})
	if err := f.Datasync(); !errors.Is(err, syscall.EIO) {
		t.Fatalf("datasync: %v", err)
	}
	must(t, f.Datasync()) // the retry lies
	if got := readAll(t, m, "f"); got[0] != 2 {
		t.Fatal("the cache should still show the write")
	}
	d, err := m.OpenDirect("f")
	must(t, err)
	p := make([]byte, SectorSize)
	_, err = d.ReadAt(p, 0)
	must(t, err)
	if p[0] != 1 {
		t.Fatal("a direct read should see the platter")
	}
	for seed := range uint64(20) {
		if got := readAll(t, m.CrashClone(rng(seed)), "f"); got[0] != 1 {
			t.Fatal("the lost write came back")
		}
	}
	must(t, d.DropCache())
	if got := readAll(t, m, "f"); got[0] != 1 {
		t.Fatal("the ghost survived dropping the cache")
	}
}

func TestCrashAtCall(t *testing.T) {
	m := NewMem()
	f := create(t, m, "f") // call 1
	must(t, m.SyncDir("."))
	m.CrashAt(m.Calls() + 2)
	write(t, f, 0, 1, SectorSize)
	if err := f.Sync(); !errors.Is(err, ErrCrashed) {
		t.Fatalf("sync: %v", err)
	}
	if _, err := f.WriteAt([]byte{1}, 0); !errors.Is(err, ErrCrashed) || !m.Crashed() {
		t.Fatalf("after the crash: %v", err)
	}
	got := map[int]int{}
	for seed := range uint64(100) {
		got[len(readAll(t, m.CrashClone(rng(seed)), "f"))]++
	}
	if got[0] == 0 || got[SectorSize] == 0 {
		t.Fatalf("sizes after the crash: %v", got)
	}
}

func TestCapacityShortWriteAndFlip(t *testing.T) {
	m := NewMem()
	m.SetCapacity(2 * SectorSize)
	f := create(t, m, "f")
	write(t, f, 0, 0, 2*SectorSize)
	if _, err := f.WriteAt([]byte{1}, 2*SectorSize); !IsSpace(err) {
		t.Fatalf("write past the capacity: %v", err)
	}
	write(t, f, 0, 0, SectorSize) // overwriting needs no room
	m.Inject(Fault{Op: OpWrite, Short: true})
	if n, err := f.WriteAt(make([]byte, 100), 0); n != 50 || err == nil {
		t.Fatalf("short write: %d, %v", n, err)
	}
	must(t, f.Sync())
	must(t, m.Flip("f", 3, 2))
	if got := readAll(t, m, "f"); got[3] != 4 {
		t.Fatalf("flipped byte is %d", got[3])
	}
	if u, err := m.Usage("."); err != nil || u.Free != 0 || u.Total != 2*SectorSize {
		t.Fatalf("usage %+v, %v", u, err)
	}
}

func TestHangAndLock(t *testing.T) {
	m := NewMem()
	f := create(t, m, "f")
	c := make(chan struct{})
	m.Inject(Fault{Op: OpDatasync, Hang: c})
	done := make(chan error)
	go func() { done <- f.Datasync() }()
	write(t, f, 0, 1, 10) // others go on
	close(c)
	must(t, <-done)
	l, err := m.Lock("LOCK")
	must(t, err)
	if _, err := m.Lock("LOCK"); !errors.Is(err, ErrLocked) {
		t.Fatalf("second lock: %v", err)
	}
	must(t, l.Close())
	if _, err := m.Lock("LOCK"); err != nil {
		t.Fatal(err)
	}
}

func TestKillCloneKeepsWhatIsNotSyncedUnsynced(t *testing.T) {
	m := NewMem()
	f := create(t, m, "f")
	write(t, f, 0, 1, SectorSize)
	must(t, f.Sync())
	must(t, m.SyncDir("."))
	write(t, f, 0, 2, SectorSize)
	create(t, m, "g")
	k := m.KillClone()
	if got := readAll(t, k, "f"); got[0] != 2 {
		t.Fatal("the killed process's write is gone")
	}
	readAll(t, k, "g")
	seen := map[byte]bool{}
	for seed := range uint64(50) {
		seen[readAll(t, k.CrashClone(rng(seed)), "f")[0]] = true
	}
	if !seen[1] || !seen[2] {
		t.Fatal("after the kill the write was taken for synced")
	}
}
