package queue

import "fmt"

// Number is a message's number in its queue, and its id in the log. The top
// six bits are the lane, the rest counts up from 1 without gaps within the
// lane. It is never reused. The zero Number is no message.
type Number uint64

const (
	laneShift = 58

	// Lanes is the number of lanes. A message lane is a priority: a higher lane is served first, but those from LowLane on
	// after lane 0, which is that of messages without a priority.
	Lanes = 64
	// LowLane is the first of the lanes that are served after lane 0.
	LowLane = MaxLane - 3
	// ChunkLane numbers the chunks of big messages.
	ChunkLane = 63
	// MaxLane is the highest lane for messages.
	MaxLane = ChunkLane - 1

	// MaxOrdinal is the last place in a lane.
	MaxOrdinal = 1<<laneShift - 1
)

// MakeNumber returns the number of place ordinal in a lane.
func MakeNumber(lane uint8, ordinal uint64) Number {
	return Number(uint64(lane)<<laneShift | ordinal)
}

// Lane returns the lane the number belongs to.
func (n Number) Lane() uint8 { return uint8(n >> laneShift) }

// Ordinal returns the number's place in its lane.
func (n Number) Ordinal() uint64 { return uint64(n) & MaxOrdinal }

// String returns lane and place, the lane only if it is not 0.
func (n Number) String() string {
	switch l := n.Lane(); l {
	case 0:
		return fmt.Sprint(n.Ordinal())
	case ChunkLane:
		return fmt.Sprintf("c%d", n.Ordinal())
	default:
		return fmt.Sprintf("%d/%d", l, n.Ordinal())
	}
}

// Numbers is a range of message numbers, inclusive, all of one lane.
type Numbers struct{ First, Last Number }

// Len returns how many numbers there are in the range.
func (r Numbers) Len() uint64 { return uint64(r.Last-r.First) + 1 }

// String returns first-last, or the one number.
func (r Numbers) String() string {
	if r.First == r.Last {
		return r.First.String()
	}
	return r.First.String() + "-" + r.Last.String()
}

// Range is a range of delivery ids, inclusive.
type Range struct{ First, Last uint64 }

// ConsumerID names a consumer or getter of a queue. The host gives it out and
// uses it only once in an incarnation of the queue, from 1 up.
type ConsumerID uint64

// SessionID names the session that a node's incarnation has with the queue.
type SessionID uint64

// Unlimited, as credit, is not counted down.
const Unlimited = ^uint32(0)

// Settlement is how a checkout ends.
type Settlement uint8

const (
	// Ack: the message is done with and leaves the queue.
	Ack Settlement = iota
	// Requeue: the message goes back to its old place.
	Requeue
	// Discard: the message is rejected and leaves the queue.
	Discard
)

// String returns the settlement's name.
func (s Settlement) String() string {
	switch s {
	case Ack:
		return "ack"
	case Requeue:
		return "requeue"
	case Discard:
		return "discard"
	}
	return "settlement?"
}
