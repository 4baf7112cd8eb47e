package session

import (
	"io"

	"holdfast/internal/amqperr"
	"holdfast/internal/wire"
)

// Sizes of the buffer that a connection is read into.
const (
	readMin = 4 << 10  // of an idle connection
	readMax = 64 << 10 // under load; more only for a frame that is larger
	// calmReads is how many small reads in a row end a burst.
	calmReads = 32
)

// slab is what a connection is read into. Frames are parsed where they lie and
// are valid until the next fill.
type slab struct {
	buf  []byte
	r, w int // what was read and not parsed is buf[r:w]
	need int // size of the frame that lies at r in part; 0: unknown
	calm int // small reads in a row
}

// next returns the next whole frame; ok is false if more has to be read.
func (s *slab) next(frameMax uint32) (f wire.Frame, ok bool, err *amqperr.Error) {
	b := s.buf[s.r:s.w]
	if len(b) < wire.FrameHeaderSize {
		s.need = 0
		return f, false, nil
	}
	head := wire.ParseFrameHead(b)
	if !head.Type.Known() {
		return f, false, amqperr.UnknownFrameType(uint8(head.Type))
	}
	size := uint64(head.Size) + wire.FrameOverhead
	if size > uint64(frameMax) {
		return f, false, amqperr.FrameTooLarge(size, uint64(frameMax))
	}
	if uint64(len(b)) < size {
		s.need = int(size)
		return f, false, nil
	}
	if end := b[size-1]; end != wire.FrameEnd {
		return f, false, amqperr.WrongFrameEnd(end)
	}
	s.need = 0
	s.r += int(size)
	return wire.Frame{Type: head.Type, Channel: head.Channel, Payload: b[wire.FrameHeaderSize : size-1]}, true, nil
}

// fill reads more. What was not parsed moves to the front; the buffer grows
// when a read filled it or a frame needs it, and shrinks when a burst is over.
func (s *slab) fill(from io.Reader) (int, error) {
	rest := s.w - s.r
	size := len(s.buf)
	switch {
	case size == 0:
		size = readMin
	case s.w == size && size < readMax:
		size = min(2*size, readMax)
	case rest == 0 && s.calm > calmReads && size > readMin:
		size = readMin
	}
	size = max(size, s.need, rest)
	if size != len(s.buf) {
		old := s.buf
		s.buf = make([]byte, size)
		copy(s.buf, old[s.r:s.w])
		s.calm = 0
	} else if s.r > 0 {
		copy(s.buf, s.buf[s.r:s.w])
	}
	s.r, s.w = 0, rest
	n, err := from.Read(s.buf[s.w:])
	s.w += n
	if n < readMin/4 {
		s.calm++
	} else {
		s.calm = 0
	}
	return n, err
}
