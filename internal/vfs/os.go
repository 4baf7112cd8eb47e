package vfs

import (
	"errors"
	"io"
	"os"
	"sort"
	"syscall"
	"unsafe"
)

// OS returns the disk of the operating system.
func OS() FS { return osFS{} }

type osFS struct{}

func (osFS) Create(name string) (File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return nil, err
	}
	return &osFile{f: f}, nil
}

// openExisting opens a file to read and write, or only to read where nothing
// can be written: a failing disk is mounted read-only, and is looked at then.
func openExisting(name string, flag int) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDWR|flag, 0)
	if IsReadOnly(err) {
		f, err = os.OpenFile(name, os.O_RDONLY|flag, 0)
	}
	return f, err
}

// IsReadOnly says that the file system takes no writes.
func IsReadOnly(err error) bool { return errors.Is(err, syscall.EROFS) }

func (osFS) Open(name string) (File, error) {
	f, err := openExisting(name, 0)
	if err != nil {
		return nil, err
	}
	return &osFile{f: f}, nil
}

func (osFS) OpenDirect(name string) (File, error) {
	if directFlag != 0 {
		// File systems without O_DIRECT (tmpfs, some overlays) say EINVAL: then dropping the cache is the next best.
		if f, err := openExisting(name, directFlag); err == nil {
			return &directFile{osFile{f: f}}, nil
		} else if !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.EOPNOTSUPP) {
			return nil, err
		}
	}
	f, err := openExisting(name, 0)
	if err != nil {
		return nil, err
	}
	file := &osFile{f: f}
	if err := file.DropCache(); err != nil {
		f.Close()
		return nil, err
	}
	return file, nil
}

func (osFS) Remove(name string) error     { return os.Remove(name) }
func (osFS) Rename(old, new string) error { return os.Rename(old, new) }
func (osFS) MkdirAll(name string) error   { return os.MkdirAll(name, 0o700) }

func (osFS) List(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	sort.Strings(names)
	return names, nil
}

func (osFS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	return err
}

func (osFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err != syscall.EINTR {
			break
		}
	}
	if err != nil {
		f.Close()
		if err == syscall.EWOULDBLOCK {
			err = ErrLocked
		}
		return nil, &os.PathError{Op: "lock", Path: name, Err: err}
	}
	return f, nil
}

func (osFS) Usage(dir string) (Usage, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return Usage{}, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	unit := uint64(st.Bsize)
	return Usage{Free: uint64(st.Bavail) * unit, Total: uint64(st.Blocks) * unit}, nil
}

// osFile keeps the *os.File referenced: a bare descriptor would be closed by the garbage collector under its user.
type osFile struct{ f *os.File }

func (o *osFile) ReadAt(p []byte, off int64) (int, error)  { return o.f.ReadAt(p, off) }
func (o *osFile) WriteAt(p []byte, off int64) (int, error) { return o.f.WriteAt(p, off) }
func (o *osFile) Close() error                             { return o.f.Close() }
func (o *osFile) Truncate(size int64) error                { return o.f.Truncate(size) }
func (o *osFile) Sync() error                              { return o.f.Sync() }
func (o *osFile) Datasync() error                          { return datasync(o.f) }
func (o *osFile) DropCache() error                         { return dropCache(o.f) }
func (o *osFile) Punch(off, size int64) error              { return punch(o.f, off, size) }

func (o *osFile) Size() (int64, error) {
	st, err := o.f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

// directFile was opened with O_DIRECT: reads and writes must be aligned in memory, offset and length. Reads that are not go
// through an aligned buffer; writes are only made by those who align.
type directFile struct{ osFile }

const directAlign = 4096

func (d *directFile) ReadAt(p []byte, off int64) (int, error) {
	if off%directAlign == 0 && len(p)%directAlign == 0 && aligned(p) {
		return d.f.ReadAt(p, off)
	}
	first := off &^ (directAlign - 1)
	last := (off + int64(len(p)) + directAlign - 1) &^ (directAlign - 1)
	buf := AlignedBuffer(int(last - first))
	n, err := d.f.ReadAt(buf, first)
	skip := int(off - first)
	if n <= skip {
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
		return 0, err
	}
	copied := copy(p, buf[skip:n])
	if copied == len(p) {
		return copied, nil
	}
	if err == nil {
		err = io.ErrUnexpectedEOF
	}
	return copied, err
}

func aligned(p []byte) bool {
	return len(p) == 0 || uintptr(unsafe.Pointer(unsafe.SliceData(p)))%directAlign == 0
}

// AlignedBuffer returns n bytes that start on a 4 KiB boundary, as direct reads like them.
func AlignedBuffer(n int) []byte {
	buf := make([]byte, n+directAlign)
	skip := 0
	if rest := int(uintptr(unsafe.Pointer(unsafe.SliceData(buf))) % directAlign); rest != 0 {
		skip = directAlign - rest
	}
	return buf[skip : skip+n : skip+n]
}
