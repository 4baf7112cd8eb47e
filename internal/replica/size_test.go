package replica

import (
	"testing"
	"unsafe"
)

// A node may have thousands of groups that rest. What each of them takes grows only on purpose: the bounds are sizes in
// which the runtime gives memory out.
func TestSizes(t *testing.T) {
	for _, x := range []struct {
		what      string
		got, most uintptr
	}{
		{"a raft group", unsafe.Sizeof(raftGroup{}), 640},
		{"a group", unsafe.Sizeof(Group{}), 128},
	} {
		if x.got > x.most {
			t.Errorf("%s takes %d bytes, more than %d", x.what, x.got, x.most)
		}
	}
}
