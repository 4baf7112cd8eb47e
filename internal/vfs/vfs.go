package vfs

import (
	"errors"
	"io"
	"io/fs"
	"syscall"
)

// FS is one disk. All methods may be called from several goroutines.
type FS interface {
	// Create makes a new, empty file; it fails with fs.ErrExist if there is one. The name is durable after SyncDir.
	Create(name string) (File, error)
	// Open opens an existing file for reading and writing.
	Open(name string) (File, error)
	// OpenDirect opens an existing file so that reads bypass the page cache where the system can do that: what is read
	// is what the disk holds, not what the cache remembers. Unaligned reads work; they cost a copy.
	OpenDirect(name string) (File, error)
	// Remove deletes a file. Durable after SyncDir.
	Remove(name string) error
	// Rename replaces new by old, atomically. Durable after SyncDir.
	Rename(old, new string) error
	// MkdirAll makes a directory and its parents.
	MkdirAll(name string) error
	// List returns the names in a directory, sorted, without the directory.
	List(dir string) ([]string, error)
	// SyncDir makes the names in a directory durable.
	SyncDir(dir string) error
	// Lock takes an exclusive lock for this process; it fails with ErrLocked if another holds it. The lock ends with
	// Close or with the process.
	Lock(name string) (io.Closer, error)
	// Usage tells how full the disk under dir is.
	Usage(dir string) (Usage, error)
}

// File is an open file. All methods may be called from several goroutines.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Size is the length of the file.
	Size() (int64, error)
	// Truncate sets the length of the file; what is added reads as zero.
	Truncate(size int64) error
	// Sync makes content and metadata durable.
	Sync() error
	// Datasync makes content durable, and of the metadata only what is needed to read it back.
	Datasync() error
	// DropCache asks the system to forget clean cached pages of this file. It is advice; nothing depends on it being
	// followed except that a read afterwards more likely sees the disk.
	DropCache() error
	// Punch gives the space of a stretch back to the disk; what is read there afterwards is zero, the size stays. What
	// is not a whole block of the file system may be kept. It fails with errors.ErrUnsupported where that cannot be done.
	Punch(off, size int64) error
}

// PunchAlign is what offset and size of File.Punch should be multiples of.
const PunchAlign = 4096

// Usage is how full a disk is, in bytes. Free is what an ordinary process may still use.
type Usage struct{ Free, Total uint64 }

// ErrLocked is returned by Lock when another process holds the lock.
var ErrLocked = errors.New("locked by another process")

// IsSpace tells whether err says that there is no room at the moment: on the disk, in the quota, or in the table of open files.
func IsSpace(err error) bool {
	for _, short := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EMFILE, syscall.ENFILE} {
		if errors.Is(err, short) {
			return true
		}
	}
	return false
}

// IsNotExist tells whether err says that a file is not there.
func IsNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }
