package peer

import (
	"encoding/binary"
	"fmt"
	"io"
)

// A frame on a lane:
//
//	 0        4
//	+--------+----------------+
//	| length | payload        |     little-endian
//	+--------+----------------+
//
// The top bit of the length says that the frame is the links' own, and the first
// byte of its payload what it is: a beat (followed by what the node says in it),
// a goodbye, a ping (followed by eight bytes) or its echo (by the same eight). An
// own frame that is not known is left alone.
const (
	frameHead = 4
	ownFrame  = 1 << 31

	ownBeat    = 1
	ownGoodbye = 2
	ownPing    = 3
	ownEcho    = 4

	pingSize = 8
)

const (
	minBlock = 8 << 10
	maxBlock = 256 << 10
)

// appendOwn appends a frame of the links' own.
func appendOwn(dst []byte, kind byte, payload []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, ownFrame|uint32(1+len(payload)))
	return append(append(dst, kind), payload...)
}

// frames cuts a stream into frames. It reads into blocks and hands out pieces
// of them, so that nothing is copied but the frame that a block's end cuts in
// two. It uses a block for as long as there is room, and never again.
//
// A block is as large as what came lately needs, never as a frame's head
// promises: memory is taken for bytes that are there.
type frames struct {
	r   io.Reader
	max int // length of a frame

	block    []byte
	at, have int // block[at:have] is read and not handed out
	size     int // of the next block
	small    int // reads in a row that needed little of the room
}

func newFrames(r io.Reader, max int) *frames { return &frames{r: r, max: max, size: minBlock} }

// next returns the next frame that is there whole; ok false asks for a fill.
// The payload is the caller's for good.
func (f *frames) next() (payload []byte, own, ok bool, err error) {
	if f.have-f.at < frameHead {
		return nil, false, false, nil
	}
	word := binary.LittleEndian.Uint32(f.block[f.at:])
	n := int(word &^ ownFrame)
	if n > f.max {
		return nil, false, false, fmt.Errorf("%w: a message of %d bytes, at most %d are allowed", ErrGarbage, n, f.max)
	}
	start := f.at + frameHead
	if f.have-start < n {
		return nil, false, false, nil
	}
	f.at = start + n
	return f.block[start:f.at:f.at], word&ownFrame != 0, true, nil
}

// fill reads once. It is called when next has no whole frame.
func (f *frames) fill() error {
	f.makeRoom()
	room := f.block[f.have:]
	n, err := f.r.Read(room)
	f.have += n
	switch {
	case n == len(room):
		f.size, f.small = min(2*max(f.size, minBlock), maxBlock), 0
	case n >= f.size/8:
		f.small = 0
	default:
		if f.small++; f.small == 64 {
			f.size, f.small = max(f.size/2, minBlock), 0
		}
	}
	if n > 0 {
		return nil // an error comes again
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// makeRoom begins a new block if what comes next does not fit into this one.
func (f *frames) makeRoom() {
	waiting := f.have - f.at
	whole := 0 // the length of the frame that has begun, if its head is there
	if waiting >= frameHead {
		whole = frameHead + int(binary.LittleEndian.Uint32(f.block[f.at:])&^ownFrame)
	}
	if len(f.block)-f.have >= max(len(f.block)/8, 1) && f.at+whole <= len(f.block) {
		return
	}
	block := make([]byte, max(f.size, min(whole, 2*waiting)))
	f.have = copy(block, f.block[f.at:f.have])
	f.block, f.at = block, 0
}
