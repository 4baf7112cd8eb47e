package spill

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/internal/vfs"
)

func TestItemsComeBack(t *testing.T) {
	r := newRig(t, Options{})
	a := r.write(100, "one", "", "three")
	j, b := &Job{Numbers: []uint64{7, 9, 500}, Items: [][]byte{[]byte("seven"), []byte("nine"), []byte("far")}}, (*Block)(nil)
	j.Done = func(_ *Job, got *Block) { b = got }
	r.s.Put(j)
	r.step()
	reader := &Reader{}
	r.read(reader, a, 102, "three")
	r.read(reader, a, 100, "one")
	r.read(reader, a, 101, "")
	r.read(reader, b, 500, "far")
	r.read(reader, b, 9, "nine")
	want(t, "reads of the disk", r.s.Stats().Reads, 2)
	if _, err := reader.Read(b, 8); err == nil {
		t.Fatal("an item that is not there is read")
	}
}

// Random jobs, holds and releases: what is held can be read, what is not takes
// no space but for what a hole is not yet worth.
func TestSpaceComesBack(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 3))
		o := Options{FileSize: 64 << 10, PunchSize: 8 << 10}
		r := newRig(t, o)
		type held struct {
			b     *Block
			first uint64
			items []string
			holds int
		}
		var all []*held
		readers := []*Reader{{}, {}}
		first := uint64(1)
		for range 500 {
			switch k := rng.IntN(10); {
			case k < 4:
				items := make([]string, 1+rng.IntN(40))
				for i := range items {
					items[i] = strings.Repeat(fmt.Sprint(rng.Uint32()), rng.IntN(60))
				}
				all = append(all, &held{r.write(first, items...), first, items, 1})
				first += uint64(len(items) + rng.IntN(10))
			case k < 7 && len(all) > 0:
				h := all[rng.IntN(len(all))]
				if rng.IntN(3) == 0 {
					h.b.Hold(2)
					h.holds += 2
				}
				for range 3 {
					i := rng.IntN(len(h.items))
					r.read(readers[rng.IntN(2)], h.b, h.first+uint64(i), h.items[i])
				}
			case len(all) > 0:
				i := 0
				if rng.IntN(3) == 0 {
					i = rng.IntN(len(all))
				}
				all[i].b.Let()
				if all[i].holds--; all[i].holds == 0 {
					all = append(all[:i], all[i+1:]...)
				}
				r.step()
			}
			live := int64(0)
			for _, h := range all {
				live += h.b.Size()
			}
			st := r.s.Stats()
			want(t, "blocks", st.Blocks, int64(len(all)))
			want(t, "files", st.Files, int64(len(r.disk.Names("spill/"))))
			want(t, "bytes on disk", st.DiskBytes, r.disk.Used())
			if most := live + st.Files*o.PunchSize; st.DiskBytes > most {
				t.Fatalf("seed %d: %d bytes on disk for %d bytes of blocks", seed, st.DiskBytes, live)
			}
		}
		for _, h := range all {
			for range h.holds {
				h.b.Let()
			}
		}
		r.step()
		want(t, "files at the end", len(r.disk.Names("spill/")), 0)
		st := r.s.Stats()
		want(t, "bytes at the end", st.Bytes+st.DiskBytes+st.Blocks+st.Files, 0)
	}
}

// Blocks that stay for long among many that do not share their files: there are
// as many files as what is on disk needs, not as many as were ever filled.
func TestFewBlocksKeepFewFiles(t *testing.T) {
	o := Options{FileSize: 64 << 10, PunchSize: 8 << 10}
	r := newRig(t, o)
	var stay []*Block
	body := strings.Repeat("x", 4000)
	n := uint64(1)
	for range 50 {
		stay = append(stay, r.write(n, "stays"))
		var blocks []*Block
		for range 20 {
			n++
			blocks = append(blocks, r.write(n, body))
		}
		for _, b := range blocks {
			b.Let()
		}
		r.step()
		n++
	}
	st := r.s.Stats()
	want(t, "blocks", st.Blocks, 50)
	if st.Files > 8 || st.DiskBytes > 50*vfs.PunchAlign+st.Files*o.PunchSize {
		t.Fatalf("%d files, %d bytes on disk", st.Files, st.DiskBytes)
	}
	want(t, "bytes on disk", st.DiskBytes, r.disk.Used())
	for i, b := range stay {
		r.read(&Reader{}, b, uint64(i)*21+1, "stays")
		b.Let()
	}
	r.step()
	want(t, "files at the end", len(r.disk.Names("spill/")), 0)
}

// A file that a write failed on is not gone on with.
func TestFailedFileIsLeft(t *testing.T) {
	r := newRig(t, Options{})
	a := r.write(1, "a")
	r.disk.Inject(vfs.Fault{Op: vfs.OpWrite, Err: syscall.EIO})
	_, b := r.put(2, "b")
	r.step()
	r.clock.Advance(time.Second)
	r.step()
	if *b == nil || (*b).file == a.file {
		t.Fatal("the file that failed is written to again")
	}
}

// A store that has little to do goes on with the file it has.
func TestSmallFileIsUsedAgain(t *testing.T) {
	r := newRig(t, Options{FileSize: 1 << 20}) // 16 KiB are small
	for i := range uint64(9) {
		b := r.write(i*10+1, "some")
		r.read(&Reader{}, b, i*10+1, "some")
		b.Let()
		r.step()
	}
	want(t, "files made", r.s.lastFile, 1)
	want(t, "bytes on disk", r.s.Stats().DiskBytes, vfs.PunchAlign)
	want(t, "bytes used", r.disk.Used(), vfs.PunchAlign)
	b := r.write(1, strings.Repeat("x", 20<<10))
	b.Let()
	r.step()
	want(t, "files", r.s.Stats().Files, 0)
	want(t, "bytes on disk", r.s.Stats().DiskBytes, 0)
}

// Where no holes can be made, space waits for the whole file.
func TestNoHoles(t *testing.T) {
	for _, err := range []error{errors.ErrUnsupported, syscall.EIO} {
		r := newRig(t, Options{FileSize: 16 << 10, PunchSize: 1})
		r.disk.Inject(vfs.Fault{Op: vfs.OpPunch, Err: err, Forever: true})
		var blocks []*Block
		for i := range uint64(4) {
			blocks = append(blocks, r.write(10*i+1, "a", "b"))
		}
		for _, b := range blocks[:3] {
			b.Let()
		}
		r.step()
		want(t, "files", r.s.Stats().Files, 1)
		r.read(&Reader{}, blocks[3], 31, "a")
		blocks[3].Let()
		r.step()
		want(t, "files", len(r.disk.Names("spill/")), 0)
	}
}

// A hole that could not be made is made with the next.
func TestFailedHoles(t *testing.T) {
	r := newRig(t, Options{PunchSize: 2 * vfs.PunchAlign})
	var blocks []*Block
	for i := range uint64(9) {
		blocks = append(blocks, r.write(10*i+1, "a", "b"))
	}
	let := func(list ...int) {
		for _, i := range list {
			blocks[i].Let()
		}
		r.step()
	}
	r.disk.Inject(vfs.Fault{Op: vfs.OpPunch, N: 2, Err: syscall.EIO})
	let(0, 2)
	want(t, "holes", r.s.Stats().Holes, 1)
	want(t, "bytes on disk", r.s.Stats().DiskBytes, r.disk.Used())
	let(4)
	want(t, "holes before it is worth a try", r.s.Stats().Holes, 1)
	let(6)
	want(t, "holes", r.s.Stats().Holes, 4)
	want(t, "bytes on disk", r.s.Stats().DiskBytes, 5*vfs.PunchAlign)
	want(t, "bytes used", r.disk.Used(), 5*vfs.PunchAlign)
	let(1, 3, 5, 7, 8)
	want(t, "files", len(r.disk.Names("spill/")), 0)
}

// A disk that is full or fails keeps the job; it is tried again after a pause,
// or when space was given back, and the alarm says so once.
func TestFailedWrites(t *testing.T) {
	for name, fault := range map[string]vfs.Fault{
		"full":   {Op: vfs.OpWrite, Err: syscall.ENOSPC, Forever: true},
		"broken": {Op: vfs.OpWrite, Err: syscall.EIO, Forever: true},
		"short":  {Op: vfs.OpWrite, Short: true, Forever: true},
		"create": {Op: vfs.OpCreate, Err: syscall.EMFILE, Forever: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, Options{FileSize: 1 << 10}) // every block gets a file
			before := r.write(1, "before")
			r.disk.Inject(fault)
			_, a := r.put(10, "first")
			_, b := r.put(20, "second")
			for range 3 {
				r.step()
				r.clock.Advance(time.Second)
			}
			if *a != nil || *b != nil {
				t.Fatal("a block that was not written is done")
			}
			want(t, "tries", r.s.Stats().Failures, 3)
			want(t, "alarms", strings.Join(r.alarms, " "), "true")
			before.Let() // there may be room now
			r.step()
			want(t, "tries", r.s.Stats().Failures, 4)
			r.disk.ClearFaults()
			r.step()
			want(t, "tries before the pause is over", r.s.Stats().Failures, 4)
			r.clock.Advance(time.Second)
			r.step()
			want(t, "alarms", strings.Join(r.alarms, " "), "true false")
			r.read(&Reader{}, *a, 10, "first")
			r.read(&Reader{}, *b, 20, "second")
			(*a).Let()
			(*b).Let()
			r.step()
			want(t, "files", len(r.disk.Names("spill/")), 0)
		})
	}
}

// What nobody needs any more is not written, and no reason for an alarm.
func TestDroppedJobs(t *testing.T) {
	r := newRig(t, Options{})
	r.disk.Inject(vfs.Fault{Op: vfs.OpWrite, Err: syscall.ENOSPC, Forever: true})
	j, a := r.put(1, "x")
	done := false
	j.Done = func(_ *Job, b *Block) { *a, done = b, true }
	r.step()
	j.Drop()
	r.step()
	if !done || *a != nil {
		t.Fatal("a dropped job is not done, or has a block")
	}
	want(t, "alarms", strings.Join(r.alarms, " "), "true false")
}

// Damage is found and told, with the place; other blocks can be read.
func TestDamage(t *testing.T) {
	r := newRig(t, Options{})
	a, b := r.write(1, "one", "two"), r.write(11, "three")
	name := r.disk.Names("spill/")[0]
	for off := range int64(a.size) {
		if err := r.disk.Flip(name, off, uint(off)); err != nil {
			t.Fatal(err)
		}
		var corrupt *CorruptError
		if got, err := (&Reader{}).Read(a, 1); !errors.As(err, &corrupt) || corrupt.File != name || corrupt.Offset != 0 {
			t.Fatalf("byte %d is wrong: %q, %v", off, got, err)
		}
		if err := r.disk.Flip(name, off, uint(off)); err != nil {
			t.Fatal(err)
		}
	}
	reader := &Reader{}
	r.read(reader, a, 2, "two")
	r.disk.Inject(vfs.Fault{Op: vfs.OpRead, Err: syscall.EIO})
	r.read(reader, b, 11, "three") // it passed
	r.read(reader, a, 2, "two")
	r.disk.Inject(vfs.Fault{Op: vfs.OpRead, Err: syscall.EIO})
	r.disk.Inject(vfs.Fault{Op: vfs.OpRead, Err: syscall.EIO})
	if _, err := reader.Read(b, 11); !errors.Is(err, syscall.EIO) {
		t.Fatalf("a failed read: %v", err)
	}
	want(t, "items that count as lost", r.s.Stats().Lost, uint64(a.size)+1)
	r.read(reader, a, 2, "two") // what it kept before the failure is not trusted
	r.read(reader, b, 11, "three")
	// One block in the place of another has a good checksum.
	b.off = a.off
	if _, err := (&Reader{}).Read(b, 11); err == nil {
		t.Fatal("another block is taken for this one")
	}
	// Who reads while the node stops has lost nothing.
	if err := r.s.Close(0); err != nil {
		t.Fatal(err)
	}
	n := r.s.Stats().Lost
	var corrupt *CorruptError
	if _, err := (&Reader{}).Read(a, 1); !errors.Is(err, fs.ErrClosed) || errors.As(err, &corrupt) {
		t.Fatalf("a read of a closed store: %v", err)
	}
	want(t, "items that count as lost", r.s.Stats().Lost, n)
}

// A store begins empty, removes its files at the end, and leaves alone what is not its own.
func TestNothingOutlivesTheProcess(t *testing.T) {
	r := newRig(t, Options{})
	r.write(1, "left behind")
	f, err := r.disk.Create("spill/notes")
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	s, err := Open(r.disk, "spill", Options{Clock: r.clock, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	want(t, "files", strings.Join(r.disk.Names("spill/"), " "), "spill/notes")
	s.Start()
	done := make(chan *Block)
	j := &Job{Numbers: []uint64{1}, Items: [][]byte{[]byte("x")}, Done: func(_ *Job, b *Block) { done <- b }}
	s.Put(j)
	b := <-done
	if got, err := (&Reader{}).Read(b, 1); err != nil || string(got) != "x" {
		t.Fatalf("%q, %v", got, err)
	}
	if err := s.Close(time.Second); err != nil {
		t.Fatal(err)
	}
	want(t, "files", strings.Join(r.disk.Names("spill/"), " "), "spill/notes")
}

// A store that sleeps is woken by whatever there is to do: a job, a block that
// nobody holds any more, the end of a pause, the end.
func TestSleepingStoreIsWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{})
		r.s.Start()
		synctest.Wait()
		_, b := r.put(1, "x")
		synctest.Wait()
		if *b == nil {
			t.Fatal("a job is not done")
		}
		r.disk.Inject(vfs.Fault{Op: vfs.OpWrite, Err: syscall.ENOSPC})
		_, late := r.put(2, "y")
		synctest.Wait()
		r.clock.Advance(time.Second)
		synctest.Wait()
		if *late == nil {
			t.Fatal("a job is not tried again")
		}
		(*b).Let()
		synctest.Wait()
		want(t, "blocks", r.s.Stats().Blocks, 1)
		r.disk.Inject(vfs.Fault{Op: vfs.OpWrite, Err: syscall.ENOSPC})
		j, _ := r.put(3, "z")
		synctest.Wait()
		want(t, "alarms", strings.Join(r.alarms, " "), "true false true")
		j.Drop()
		synctest.Wait()
		want(t, "alarms", strings.Join(r.alarms, " "), "true false true false")
		if err := r.s.Close(time.Second); err != nil {
			t.Fatal(err)
		}
	})
}

// A disk that hangs does not hold up the end for longer than it may.
func TestCloseDoesNotWaitForAHangingDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{})
		hang := make(chan struct{})
		r.disk.Inject(vfs.Fault{Op: vfs.OpWrite, Hang: hang})
		r.s.Start()
		_, b := r.put(1, "x")
		synctest.Wait() // it is being written
		closed := make(chan error, 1)
		go func() { closed <- r.s.Close(time.Second) }()
		synctest.Wait()
		if len(closed) != 0 {
			t.Fatal("a write that may still end is not waited for")
		}
		r.clock.Advance(time.Second)
		if err := <-closed; err == nil {
			t.Fatal("a write that hangs is an orderly end")
		}
		close(hang)
		synctest.Wait()
		if *b == nil {
			t.Fatal("what was being written is not done in the end")
		}
	})
}

func TestLargeItems(t *testing.T) {
	r := newRig(t, Options{})
	big := strings.Repeat("x", 300<<10)
	a, b := r.write(1, big), r.write(2, "small")
	reader := &Reader{}
	r.read(reader, a, 1, big)
	r.read(reader, b, 2, "small")
	if cap(reader.buf) > 2*BlockSize {
		t.Fatalf("the reader keeps %d bytes", cap(reader.buf))
	}
}

func BenchmarkWrite(b *testing.B) {
	benchStore(b, func(s *Store, j *Job, done chan *Block) {
		for b.Loop() {
			s.Put(j)
			(<-done).Let()
		}
	})
}

func BenchmarkRead(b *testing.B) {
	benchStore(b, func(s *Store, j *Job, done chan *Block) {
		s.Put(j)
		block := <-done
		r := &Reader{}
		for b.Loop() {
			r.block = nil
			for _, n := range j.Numbers {
				if _, err := r.Read(block, n); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}

// benchStore makes a job of a block of messages of 130 bytes, on the disk there is.
func benchStore(b *testing.B, run func(*Store, *Job, chan *Block)) {
	s, err := Open(vfs.OS(), b.TempDir(), Options{Logger: quiet})
	if err != nil {
		b.Fatal(err)
	}
	s.Start()
	done := make(chan *Block)
	j := &Job{Done: func(_ *Job, b *Block) { done <- b }}
	for i := range BlockSize / 130 {
		j.Numbers = append(j.Numbers, uint64(i))
		j.Items = append(j.Items, bytes.Repeat([]byte{byte(i)}, 130))
	}
	b.SetBytes(int64(len(j.Items) * 130))
	run(s, j, done)
	if err := s.Close(time.Minute); err != nil {
		b.Fatal(err)
	}
}
