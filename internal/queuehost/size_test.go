package queuehost

import (
	"testing"
	"unsafe"
)

// A node may have thousands of queues that rest. What each of them takes grows only on purpose: the bounds are sizes in
// which the runtime gives memory out.
func TestSizes(t *testing.T) {
	for _, x := range []struct {
		what      string
		got, most uintptr
	}{
		{"a host", unsafe.Sizeof(host{}), 640},
		{"what a host has besides as a member", unsafe.Sizeof(lead{}), 112},
	} {
		if x.got > x.most {
			t.Errorf("%s takes %d bytes, more than %d", x.what, x.got, x.most)
		}
	}
}
