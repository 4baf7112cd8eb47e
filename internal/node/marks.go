package node

import (
	"sync/atomic"

	"holdfast/internal/broker"
)

// marks are where the alarms are raised. The settings say where they begin; what is set later holds until the node ends.
type marks struct {
	memory  atomic.Uint64 // bytes in use; 0: none
	changed chan struct{} // the memory's
}

// beginMarks takes the memory's mark from the settings; the log keeps that of the disk.
func (n *Node) beginMarks() {
	n.marks.changed = make(chan struct{}, 1)
	if n.memory.Bytes > 0 {
		n.marks.memory.Store(n.settings.MemoryLimit(n.memory.Bytes))
	}
}

// errNoMemory is why a share of the memory is no mark.
var errNoMemory error = &broker.AdminError{Kind: broker.Unavailable, Text: "how much memory there is is not known here: set the mark as a size"}

// SetMemoryMark has publishing blocked while more is in use than a share of the memory there is, or, if that is 0, than so many bytes.
func (n *Node) SetMemoryMark(share float64, bytes uint64) error {
	if share > 0 {
		if n.memory.Bytes == 0 {
			return errNoMemory
		}
		bytes = uint64(share * float64(n.memory.Bytes))
	}
	n.marks.memory.Store(bytes)
	n.log.Info("the memory mark was set; it holds until the node ends", "mark", bytes)
	select {
	case n.marks.changed <- struct{}{}:
	default:
	}
	return nil
}

// SetDiskMark has publishing blocked while less is free on the disk than a multiple of the memory there is, or, if that is 0, than so
// many bytes.
func (n *Node) SetDiskMark(multiple float64, bytes uint64) error {
	if multiple > 0 {
		if n.memory.Bytes == 0 {
			return errNoMemory
		}
		bytes = uint64(multiple * float64(n.memory.Bytes))
	}
	n.log.Info("the disk mark was set; it holds until the node ends", "mark", bytes)
	n.seglog.SetFreeMark(bytes)
	return nil
}

// nodeCredit is how many bytes all publishers together may have in flight towards queues, on a disk with that mark and with so much
// memory, 0 where that is not known.
func nodeCredit(mark, memory uint64) int64 {
	const most, least = 256 << 20, 1 << 20
	credit := min(mark/2, most)
	if memory > 0 {
		credit = min(credit, memory/8)
	}
	return int64(max(credit, least))
}
