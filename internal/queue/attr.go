package queue

import "holdfast/internal/planted"

// attr is the history of a message, packed so that neighbours with the same
// history are told by one comparison: bits 0-27 the delivery count, 28-55 the
// acquisitions that ended with a return, 56 on flags. The counts saturate.
type attr uint64

const (
	countMask     = 1<<28 - 1
	acquiredShift = 28

	flagTransient   attr = 1 << 56
	flagRedelivered attr = 1 << 57
	flagBig         attr = 1 << 58 // its body is in chunks; see Machine.big

	flagShift = 56
	flagMask  = 1<<3 - 1
	attrMask  = 1<<(flagShift+3) - 1 // all bits that have a meaning
)

func (a attr) is(f attr) bool        { return a&f != 0 }
func (a attr) deliveryCount() uint32 { return uint32(a & countMask) }
func (a attr) acquired() uint32      { return uint32(a >> acquiredShift & countMask) }

// returned gives the history after one more return to the queue.
func (a attr) returned(blameless bool) attr {
	if a.acquired() < countMask {
		a += 1 << acquiredShift
	}
	if !blameless && a.deliveryCount() < countMask && !planted.Is(planted.CountLost) {
		a++
	}
	if planted.Is(planted.FlagLost) {
		return a
	}
	return a | flagRedelivered
}
