package vfs

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

const directFlag = syscall.O_DIRECT

func datasync(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var serr error
	err = raw.Control(func(fd uintptr) {
		for {
			serr = unix.Fdatasync(int(fd))
			if serr != unix.EINTR {
				return
			}
		}
	})
	if err == nil && serr != nil {
		err = &os.PathError{Op: "fdatasync", Path: f.Name(), Err: serr}
	}
	return err
}

func dropCache(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var aerr error
	err = raw.Control(func(fd uintptr) { aerr = unix.Fadvise(int(fd), 0, 0, unix.FADV_DONTNEED) })
	if err == nil && aerr != nil {
		err = &os.PathError{Op: "fadvise", Path: f.Name(), Err: aerr}
	}
	return err
}

func punch(f *os.File, off, size int64) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var perr error
	err = raw.Control(func(fd uintptr) {
		for {
			perr = unix.Fallocate(int(fd), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, size)
			if perr != unix.EINTR {
				return
			}
		}
	})
	if err == nil && perr != nil {
		if perr == unix.EOPNOTSUPP || perr == unix.ENOSYS {
			perr = errors.ErrUnsupported
		}
		err = &os.PathError{Op: "punch", Path: f.Name(), Err: perr}
	}
	return err
}
