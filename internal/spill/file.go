package spill

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"holdfast/internal/vfs"
)

const suffix = ".spill"

// file is one file of the store. It belongs to the store's goroutine, but for
// what readers use: f and name, which do not change.
type file struct {
	f      vfs.File
	name   string
	end    int64 // where the next block goes
	size   int64
	blocks int // that are not dead
	dead   []stretch
	idle   int64 // bytes of what died since the last try to make holes
	holes  int64 // bytes given back
	failed bool  // a write failed: no further one goes there
}

// maxLength is how long a file may become that takes blocks behind its holes.
const maxLength = 1 << 40

// used is how many of a file's bytes hold blocks, dead ones without a hole included.
func (f *file) used() int64 { return f.end - f.holes }

type stretch struct{ off, size int64 }

func aligned(n int64) int64 { return (n + vfs.PunchAlign - 1) &^ (vfs.PunchAlign - 1) }

// sweep removes what an earlier process has left.
func sweep(fs vfs.FS, dir string) error {
	names, err := fs.List(dir)
	if vfs.IsNotExist(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, name := range names {
		if strings.HasSuffix(name, suffix) {
			if err := fs.Remove(path.Join(dir, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// open makes the file that blocks go to next.
func (s *Store) open() (*file, error) {
	if err := s.fs.MkdirAll(s.dir); err != nil {
		return nil, err
	}
	s.lastFile++
	name := path.Join(s.dir, fmt.Sprintf("%08x%s", s.lastFile, suffix))
	f, err := s.fs.Create(name)
	if err != nil {
		return nil, err
	}
	s.stats.files.Add(1)
	made := &file{f: f, name: name}
	s.files[made] = struct{}{}
	return made, nil
}

// next returns the file to go on with: one of which at least half is holes, so that
// a few blocks that stay for long do not keep a file each, or else a new one.
func (s *Store) next() (*file, error) {
	var best *file
	for f := range s.files {
		if f == s.current || f.failed || f.used() > s.o.FileSize/2 || f.end >= maxLength {
			continue
		}
		if best == nil || f.used() < best.used() || f.used() == best.used() && f.name < best.name {
			best = f
		}
	}
	if best != nil {
		return best, nil
	}
	return s.open()
}

// write puts a block, filled up, at the end of the current file.
func (s *Store) write(buf []byte) (*file, int64, error) {
	if f := s.current; f == nil || f.used() >= s.o.FileSize || f.end >= maxLength {
		next, err := s.next()
		if err != nil {
			return nil, 0, err
		}
		s.leave()
		s.current = next
	}
	f, off := s.current, s.current.end
	if _, err := f.f.WriteAt(buf, off); err != nil {
		if !vfs.IsSpace(err) {
			f.failed = true // perhaps it is the file
			s.leave()
		}
		return nil, 0, err
	}
	f.end += int64(len(buf))
	f.blocks++
	s.stats.disk.Add(max(f.end-f.size, 0))
	f.size = max(f.size, f.end)
	return f, off, nil
}

// leave ends the current file: no further block goes there.
func (s *Store) leave() {
	f := s.current
	s.current = nil
	if f != nil && f.blocks == 0 {
		s.remove(f)
	}
}

// giveBack gives the space of a dead block back: with the file when that has no
// other, else with others of the file when that is worth a call.
func (s *Store) giveBack(b *Block) {
	f := b.file
	s.stats.blocks.Add(-1)
	s.stats.bytes.Add(-int64(b.size))
	f.blocks--
	switch {
	case f.blocks > 0:
	case s.current == f && f.holes == 0 && f.size <= s.o.PunchSize/8:
		// Small, and the next block may come soon: it goes to the beginning.
		f.end, f.dead, f.idle = 0, nil, 0
		return
	default:
		if s.current == f {
			s.current = nil
		}
		s.remove(f)
		return
	}
	f.dead = append(f.dead, stretch{b.off, b.Size()})
	if f.idle += b.Size(); f.idle >= s.o.PunchSize && !s.noPunch {
		s.punch(f)
	}
}

// punch makes holes where blocks were.
func (s *Store) punch(f *file) {
	slices.SortFunc(f.dead, func(a, b stretch) int { return int(a.off - b.off) })
	f.idle = 0
	for i := 0; i < len(f.dead); {
		from, hole := i, f.dead[i]
		for i++; i < len(f.dead) && f.dead[i].off == hole.off+hole.size; i++ {
			hole.size += f.dead[i].size
		}
		if err := f.f.Punch(hole.off, hole.size); err != nil {
			s.noHole(err)
			f.dead = slices.Delete(f.dead, 0, from) // the space waits for the next try, or for the whole file
			return
		}
		s.noHoles = false
		s.stats.holes.Add(1)
		s.stats.disk.Add(-hole.size)
		f.holes += hole.size
	}
	f.dead = f.dead[:0]
}

// noHole notes that a hole cannot be made. The log says so once, until one can be made again.
func (s *Store) noHole(err error) {
	if s.noPunch = errors.Is(err, errors.ErrUnsupported); s.noPunch {
		s.o.Logger.Info("spilled bodies: the file system makes no holes, so space is given back by whole files")
		return
	}
	if !s.noHoles {
		s.o.Logger.Warn("spilled bodies: space cannot be given back, which is tried again when there is more of it", "error", err)
	}
	s.noHoles = true
}

func (s *Store) remove(f *file) {
	delete(s.files, f)
	if err := errors.Join(f.f.Close(), s.fs.Remove(f.name)); err != nil {
		s.o.Logger.Warn("spilled bodies: a file that is not needed stays until the next start", "error", err)
	}
	s.stats.files.Add(-1)
	s.stats.disk.Add(f.holes - f.size)
}
