package message

import (
	"encoding/binary"
	"errors"

	"holdfast/internal/wire"
)

// ErrFormat says that bytes are not the head of a message.
var ErrFormat = errors.New("message: malformed head")

// View is the fields of a message's head. Its slices are borrowed from the head.
type View struct {
	Persistent bool
	Exchange   []byte
	RoutingKey []byte
	Properties wire.Properties // raw, as in a content header
	Body       []byte          // empty if the body is in chunks
	BodySize   uint64
	Chunks     int // number of chunks the body is in; 0 = the body is Body
}

// Parse reads a head. It accepts exactly what a Builder makes; it does not
// look into the properties.
func Parse(head []byte) (View, error) {
	if len(head) < minHead || head[0]&^(flagPersistent|flagChunked) != 0 {
		return View{}, ErrFormat
	}
	v := View{Persistent: head[0]&flagPersistent != 0}
	rest := head[1:]
	var ok bool
	if v.Exchange, rest, ok = cutShort(rest); !ok {
		return View{}, ErrFormat
	}
	if v.RoutingKey, rest, ok = cutShort(rest); !ok || len(rest) < 4 {
		return View{}, ErrFormat
	}
	n := uint64(binary.BigEndian.Uint32(rest))
	rest = rest[4:]
	if n > uint64(len(rest)) {
		return View{}, ErrFormat
	}
	v.Properties, rest = rest[:n:n], rest[n:]
	if head[0]&flagChunked == 0 {
		if len(rest) > ChunkSize {
			return View{}, ErrFormat
		}
		v.Body, v.BodySize = rest, uint64(len(rest))
		return v, nil
	}
	if len(rest) != chunkTrailer {
		return View{}, ErrFormat
	}
	v.BodySize = binary.BigEndian.Uint64(rest)
	v.Chunks = int(binary.BigEndian.Uint32(rest[8:]))
	if v.BodySize <= ChunkSize || chunksFor(v.BodySize) != uint64(v.Chunks) {
		return View{}, ErrFormat
	}
	return v, nil
}

// cutShort cuts a short string off the front of b.
func cutShort(b []byte) (s, rest []byte, ok bool) {
	if len(b) == 0 || len(b)-1 < int(b[0]) {
		return nil, nil, false
	}
	n := 1 + int(b[0])
	return b[1:n:n], b[n:], true
}

// chunksFor returns in how many chunks a body of size bytes is cut.
func chunksFor(size uint64) uint64 {
	n := size / ChunkSize
	if size%ChunkSize != 0 {
		n++
	}
	return n
}
