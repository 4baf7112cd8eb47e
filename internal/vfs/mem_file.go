package vfs

import (
	"io"
	"io/fs"
	"syscall"
)

// memFile is an open file of a Mem.
type memFile struct {
	m      *Mem
	n      *node
	name   string
	direct bool
	closed bool
}

func (f *memFile) fail(op string, err error) error {
	return &fs.PathError{Op: op, Path: f.name, Err: err}
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.m.enter(OpRead, f.name); err != nil {
		return 0, f.fail("read", err)
	}
	if f.closed {
		return 0, f.fail("read", fs.ErrClosed)
	}
	if off >= int64(len(f.n.cur)) {
		return 0, io.EOF
	}
	n := copy(p, f.n.cur[off:])
	if f.direct {
		f.n.overlayPlatter(p[:n], off)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// overlayPlatter replaces what the cache says by what the platter holds where the cache believes both are the same: a
// direct read writes dirty pages back first, and ghosts are not dirty.
func (n *node) overlayPlatter(p []byte, off int64) {
	for i := 0; i < len(p); {
		at := off + int64(i)
		s := at / SectorSize
		end := min(int((s+1)*SectorSize-off), len(p))
		if _, dirty := n.dirty[s]; !dirty {
			part := p[i:end]
			clear(part)
			if at < int64(len(n.durable)) {
				copy(part, n.durable[at:])
			}
		}
		i = end
	}
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	err := f.m.enter(OpWrite, f.name)
	if f.closed {
		return 0, f.fail("write", fs.ErrClosed)
	}
	if err == errShort {
		n := f.n.write(p[:len(p)/2], off)
		return n, f.fail("write", io.ErrShortWrite)
	}
	if err != nil && !f.m.applies(err) {
		return 0, f.fail("write", err)
	}
	if err == nil && !f.m.room(f.n, off+int64(len(p))) {
		return 0, f.fail("write", syscall.ENOSPC)
	}
	n := f.n.write(p, off)
	if err != nil {
		return 0, f.fail("write", err)
	}
	return n, nil
}

func (n *node) write(p []byte, off int64) int {
	end := off + int64(len(p))
	if end > int64(len(n.cur)) {
		n.resize(end)
	}
	copy(n.cur[off:], p)
	for h := off / PunchAlign; h*PunchAlign < end && len(n.holes) > 0; h++ {
		delete(n.holes, h)
	}
	for s := off / SectorSize; s*SectorSize < end; s++ {
		n.dirty[s] = struct{}{}
	}
	return len(p)
}

func (n *node) resize(size int64) {
	old := int64(len(n.cur))
	if size <= int64(cap(n.cur)) {
		n.cur = n.cur[:size]
		if size > old {
			clear(n.cur[old:])
		}
	} else {
		grown := make([]byte, size, max(size, 2*old))
		copy(grown, n.cur)
		n.cur = grown
	}
	n.sizeDirty = true
	for h := range n.holes {
		if (h+1)*PunchAlign > size {
			delete(n.holes, h)
		}
	}
	for s := min(old, size) / SectorSize; s*SectorSize < max(old, size); s++ {
		n.dirty[s] = struct{}{}
	}
}

func (m *Mem) room(n *node, size int64) bool {
	grow := size - int64(len(n.cur))
	return m.capacity == 0 || grow <= 0 || m.used()+grow <= m.capacity
}

func (f *memFile) Truncate(size int64) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.m.enter(OpTruncate, f.name); err != nil && !f.m.applies(err) {
		return f.fail("truncate", err)
	} else if err == nil && !f.m.room(f.n, size) {
		return f.fail("truncate", syscall.ENOSPC)
	} else if f.n.resize(size); err != nil {
		return f.fail("truncate", err)
	}
	return nil
}

func (f *memFile) Sync() error     { return f.sync(OpSync, "fsync") }
func (f *memFile) Datasync() error { return f.sync(OpDatasync, "fdatasync") }

func (f *memFile) sync(op Op, what string) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := f.m.enter(op, f.name); err != nil {
		if !f.m.crashed {
			clear(f.n.dirty) // the pages are clean now, and lost: they are ghosts until they leave the cache
		}
		return f.fail(what, err)
	}
	n := f.n
	if n.sizeDirty || len(n.durable) != len(n.cur) {
		grown := make([]byte, len(n.cur))
		copy(grown, n.durable)
		n.durable, n.sizeDirty = grown, false
	}
	for s := range n.dirty {
		lo := s * SectorSize
		if lo < int64(len(n.cur)) {
			copy(n.durable[lo:min(lo+SectorSize, int64(len(n.cur)))], n.cur[lo:])
		}
	}
	clear(n.dirty)
	return nil
}

func (f *memFile) DropCache() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.m.crashed {
		return f.fail("fadvise", ErrCrashed)
	}
	f.n.overlayPlatter(f.n.cur, 0)
	return nil
}

// Punch makes holes of the whole blocks of a stretch: they read as zero and take no space of the disk.
func (f *memFile) Punch(off, size int64) error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	err := f.m.enter(OpPunch, f.name)
	if f.closed {
		return f.fail("punch", fs.ErrClosed)
	}
	if err != nil && !f.m.applies(err) {
		return f.fail("punch", err)
	}
	end := min(off+size, int64(len(f.n.cur)))
	for h := (off + PunchAlign - 1) / PunchAlign; (h+1)*PunchAlign <= end; h++ {
		at := h * PunchAlign
		clear(f.n.cur[at : at+PunchAlign])
		for s := at / SectorSize; s*SectorSize < at+PunchAlign; s++ {
			f.n.dirty[s] = struct{}{}
		}
		if f.n.holes == nil {
			f.n.holes = map[int64]struct{}{}
		}
		f.n.holes[h] = struct{}{}
	}
	if err != nil {
		return f.fail("punch", err)
	}
	return nil
}

func (f *memFile) Size() (int64, error) {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if f.m.crashed {
		return 0, f.fail("stat", ErrCrashed)
	}
	return int64(len(f.n.cur)), nil
}

func (f *memFile) Close() error {
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	f.closed = true
	return nil
}
