package blackbox

import (
	"fmt"
	"syscall"
	"testing"
)

// smallDisk mounts a disk of so many bytes; the test is left out where that is not allowed.
func smallDisk(t *testing.T, at string, bytes int) string {
	t.Helper()
	if err := syscall.Mount("holdfast-test", at, "tmpfs", 0, fmt.Sprintf("size=%d", bytes)); err != nil {
		t.Skipf("no small disk can be mounted: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(at, syscall.MNT_DETACH) })
	return at
}
