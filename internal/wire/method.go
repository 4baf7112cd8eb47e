package wire

import (
	"encoding/binary"
	"fmt"
	"unicode/utf8"
)

// MethodID names a method: the class in the upper half, the method in the lower.
type MethodID uint32

// Class returns the class id.
func (id MethodID) Class() uint16 { return uint16(id >> 16) }

// Method returns the id of the method in its class.
func (id MethodID) Method() uint16 { return uint16(id) }

// HasContent reports whether a content header follows the method.
func (id MethodID) HasContent() bool {
	return id == IDBasicPublish || id == IDBasicDeliver || id == IDBasicGetOk || id == IDBasicReturn
}

// Method is one method with its arguments.
type Method interface {
	// ID names the method.
	ID() MethodID
	// AppendTo appends the ids and the arguments: the payload of a method frame.
	AppendTo(dst []byte) []byte
	// Decode reads the arguments, borrowing from them. The error is a
	// *DecodeError.
	Decode(args []byte) error
}

// DecodeError says why the arguments of a method cannot be read.
type DecodeError struct {
	Method  MethodID
	Field   string // the short string that is not UTF-8, if that is the problem
	Problem string
}

// Error describes the problem with the method's name.
func (e *DecodeError) Error() string { return fmt.Sprintf("%s: %s", e.Method, e.Problem) }

// SplitMethod splits the payload of a method frame into id and arguments.
func SplitMethod(payload []byte) (id MethodID, args []byte, ok bool) {
	if len(payload) < 4 {
		return 0, nil, false
	}
	return MethodID(binary.BigEndian.Uint32(payload)), payload[4:], true
}

// reader reads arguments one after the other and remembers the first problem.
type reader struct {
	b       []byte
	field   string
	problem string
}

func (r *reader) take(n int) []byte {
	if len(r.b) < n {
		r.fail(errShort.Error())
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) fail(problem string) {
	if r.problem == "" {
		r.problem = problem
	}
	r.b = nil
}

func (r *reader) octet() uint8 {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) short() uint16 {
	if b := r.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (r *reader) long() uint32 {
	if b := r.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (r *reader) longlong() uint64 {
	if b := r.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (r *reader) shortstr(field string) []byte {
	n := int(r.octet())
	if n == 0 {
		return nil
	}
	b := r.take(n)
	if !utf8.Valid(b) {
		r.field = field
		r.fail("field '" + field + "' is not valid UTF-8")
	}
	return b
}

func (r *reader) longstr() []byte {
	n := r.long()
	if uint64(n) > uint64(len(r.b)) {
		r.fail(errShort.Error())
		return nil
	}
	return r.take(int(n))
}

func (r *reader) table() Table {
	b := r.longstr()
	if err := checkTable(b, 1); err != nil {
		r.fail(err.Error())
		return nil
	}
	return Table(b)
}

// done reports the first problem; arguments must have been used up.
func (r *reader) done(id MethodID) error {
	if r.problem == "" && len(r.b) > 0 {
		r.problem = "bytes left over after the last argument"
	}
	if r.problem == "" {
		return nil
	}
	return &DecodeError{Method: id, Field: r.field, Problem: r.problem}
}
