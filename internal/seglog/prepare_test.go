package seglog

import (
	"runtime"
	"testing"

	"holdfast/internal/vfs"
)

// TestSegmentIsCutShort: a frame that comes to wait while a segment is being filled with zeros gets what there is of it, or a
// quarter of the smallest size; one that waits from the beginning gets such a quarter.
func TestSegmentIsCutShort(t *testing.T) {
	const smallest = 4 << 20
	for _, one := range []struct{ waitsAfter, need, size int64 }{
		{0, 64 << 10, smallest / 4},
		{0, 2<<20 + 1, 2<<20 + pageSize},
		{1 << 20, 64 << 10, smallest / 4},
		{1 << 20, 2<<20 + 1, 2<<20 + pageSize},
		{2 << 20, 64 << 10, 2 << 20},
		{smallest, 64 << 10, smallest},
	} {
		r := newRig(t)
		r.o.SegmentMin, r.o.SegmentMax = smallest, 4*smallest
		r.start()
		r.append(entryRecord(2, 1, 1, 1, 100))
		r.l.noLoop = false
		got := make(chan *segment, 1)
		wait := func() {
			go func() { got <- r.l.takeFree(one.need, segmentHot) }()
			waits := func() bool {
				r.l.mu.Lock()
				defer r.l.mu.Unlock()
				return r.l.need > 0
			}
			for !waits() {
				runtime.Gosched()
			}
		}
		r.l.fs = zeroed{r.fs, func(to int64) {
			if to == one.waitsAfter {
				wait()
			}
		}}
		if one.waitsAfter == 0 {
			wait()
		}
		if !r.l.prepareStep() {
			t.Fatal("no segment is made")
		}
		if s := <-got; s == nil || s.size != one.size {
			t.Errorf("%+v: got %+v", one, s)
		} else if n, err := s.file.Size(); n != one.size || err != nil {
			t.Errorf("%+v: the file has %d bytes, %v", one, n, err)
		}
	}
}

// zeroed tells how far a file has been filled with zeros.
type zeroed struct {
	vfs.FS
	wrote func(to int64)
}

func (z zeroed) OpenDirect(name string) (vfs.File, error) {
	f, err := z.FS.OpenDirect(name)
	return zeroedFile{f, z.wrote}, err
}

type zeroedFile struct {
	vfs.File
	wrote func(to int64)
}

func (z zeroedFile) WriteAt(p []byte, off int64) (int, error) {
	n, err := z.File.WriteAt(p, off)
	z.wrote(off + int64(n))
	return n, err
}

// A segment that is made while none is free, and so of the size of the small one being filled, is not thrown away at once for being
// too small for a log that has grown, and made again, without end.
func TestSegmentsMadeAreKept(t *testing.T) {
	r := newRig(t)
	r.o.SegmentMax = 1 << 20
	r.start()
	r.append(entryRecord(2, 1, 1, 1, 100))
	r.keep()
	r.l.mu.Lock()
	for _, s := range r.l.pool {
		s.file.Close()
	}
	r.l.pool, r.l.target, r.l.want = nil, r.o.SegmentMax, poolBusy
	before := r.l.nextID
	r.l.mu.Unlock()
	r.keep()
	if made := r.l.nextID - before; made != poolBusy {
		t.Errorf("%d segments are made, of which %d are kept", made, len(r.l.pool))
	}
}
