package vfs

import (
	"fmt"
	"io/fs"
	"syscall"
	"testing"
)

// What passes when others give something back is a lack of space; what does not is not.
func TestIsSpace(t *testing.T) {
	for err, want := range map[error]bool{
		syscall.ENOSPC: true, syscall.EDQUOT: true, syscall.EMFILE: true, syscall.ENFILE: true,
		syscall.EIO: false, syscall.EROFS: false, syscall.EACCES: false,
	} {
		wrapped := fmt.Errorf("making a file: %w", &fs.PathError{Op: "open", Path: "x", Err: err})
		if IsSpace(wrapped) != want {
			t.Errorf("%v: %v", err, !want)
		}
	}
	if IsSpace(nil) {
		t.Error("nil")
	}
}
