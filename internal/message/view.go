package message

import "errors"

// ErrFormat says that bytes are not the head of a message.
var ErrFormat = errors.New("message: malformed head")

// View is the fields of a message's head. Its slices are borrowed from the head.
type View struct {
	Persistent bool
	Exchange   []byte
	RoutingKey []byte
	Properties []byte // raw, as in a content header; convert to wire.Properties to read fields
	Body       []byte // nil if the body is in chunks
	BodySize   uint64
	Chunks     int // number of chunks the body is in; 0 = the body is Body
}

// Parse reads a head. It accepts exactly what a Builder makes.
func Parse(head []byte) (View, error) { return View{}, ErrFormat }
