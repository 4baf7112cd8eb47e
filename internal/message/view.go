package message

import (
	"encoding/binary"
	"errors"
	"iter"

	"holdfast/internal/bytecodec"
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
	History    bool            // x-death and its relatives in the headers are this server's own
	Rekeyed    bool            // it has no routing keys but the one, whatever its CC header says
	Hidden     []byte          // keys of its BCC header, which nobody is shown; see HiddenKeys
	Body       []byte          // empty if the body is in chunks
	BodySize   uint64
	Chunks     int // number of chunks the body is in; 0 = the body is Body
}

// Parse reads a head. It accepts exactly what a Builder makes; it does not
// look into the properties.
func Parse(head []byte) (View, error) {
	if len(head) < minHead || head[0]&^flagsKnown != 0 {
		return View{}, ErrFormat
	}
	v := View{Persistent: head[0]&flagPersistent != 0, History: head[0]&flagHistory != 0, Rekeyed: head[0]&flagRekeyed != 0}
	rest := head[1:]
	var ok bool
	if v.Exchange, rest, ok = cutShort(rest); !ok {
		return View{}, ErrFormat
	}
	if v.RoutingKey, rest, ok = cutShort(rest); !ok {
		return View{}, ErrFormat
	}
	if v.Properties, rest, ok = cutLong(rest); !ok {
		return View{}, ErrFormat
	}
	if head[0]&flagHidden != 0 {
		if v.Hidden, rest, ok = cutLong(rest); !ok || len(v.Hidden) == 0 || !areKeys(v.Hidden) {
			return View{}, ErrFormat
		}
	}
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

// HiddenKeys yields the routing keys of the message's BCC header, borrowed.
func (v *View) HiddenKeys() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for c := bytecodec.Over(v.Hidden); len(c.Rest) > 0; {
			if key := c.Bytes(); !yield(key) {
				return
			}
		}
	}
}

// areKeys reports whether b is keys with their lengths.
func areKeys(b []byte) bool {
	c := bytecodec.Over(b)
	for len(c.Rest) > 0 {
		c.Bytes()
	}
	return !c.Bad()
}

// cutShort cuts a short string off the front of b.
func cutShort(b []byte) (s, rest []byte, ok bool) {
	if len(b) == 0 || len(b)-1 < int(b[0]) {
		return nil, nil, false
	}
	n := 1 + int(b[0])
	return b[1:n:n], b[n:], true
}

// cutLong cuts bytes behind their length, a u32, off the front of b.
func cutLong(b []byte) (s, rest []byte, ok bool) {
	if len(b) < 4 {
		return nil, nil, false
	}
	n, b := uint64(binary.BigEndian.Uint32(b)), b[4:]
	if n > uint64(len(b)) {
		return nil, nil, false
	}
	return b[:n:n], b[n:], true
}

// chunksFor returns in how many chunks a body of size bytes is cut.
func chunksFor(size uint64) uint64 {
	n := size / ChunkSize
	if size%ChunkSize != 0 {
		n++
	}
	return n
}

// Traits is what decides how a queue keeps a message.
type Traits struct {
	Priority    uint8 // 0 if there is none
	TTL         int64 // ms that it is to be kept for, from its expiration; only if Expires
	Expires     bool
	Size        uint64 // bytes of the body
	HasPriority bool
}

// Special reports whether the head of a message names a priority or an expiration, so that there is more to ReadTraits than the size. It
// takes a few nanoseconds.
func Special(head []byte) bool {
	const named = 1<<wire.Priority | 1<<wire.Expiration
	if len(head) < 2 {
		return false
	}
	at := 2 + int(head[1]) // behind the exchange is the key
	if at >= len(head) {
		return false
	}
	at += 5 + int(head[at]) // and the length of the properties, which begin with their flags
	return at+2 <= len(head) && head[at-1]|head[at-2]|head[at-3]|head[at-4] != 0 && binary.BigEndian.Uint16(head[at:])&named != 0
}

// ReadTraits reads the traits of a message from its head. An expiration that is no number, which no publisher gets past the broker with, is
// none. It does not allocate.
func ReadTraits(head []byte) (t Traits) {
	v, err := Parse(head)
	if err != nil {
		return t
	}
	t.Size = v.BodySize
	const examined = 1<<wire.Priority | 1<<wire.Expiration
	if v.Properties.Flags()&examined == 0 {
		return t
	}
	t.Priority, t.HasPriority = v.Properties.Priority()
	t.TTL, t.Expires = milliseconds(v.Properties.Bytes(wire.Expiration))
	return t
}

// milliseconds reads a number; of what is too large for a time, the largest there is.
func milliseconds(digits []byte) (n int64, ok bool) {
	for _, d := range digits {
		if d < '0' || d > '9' {
			return 0, false
		}
		if n = n*10 + int64(d-'0'); n > MostTTL {
			n = MostTTL
		}
	}
	return n, len(digits) > 0
}

// MostTTL is the longest time that a message can be kept for, in ms: ten years, as in RabbitMQ.
const MostTTL = 315_360_000_000
