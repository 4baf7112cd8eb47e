package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
)

// MaxDepth is how deep tables and arrays may nest. The protocol sets no limit;
// ours keeps a hostile table from growing the stack.
const MaxDepth = 64

// Table is a field table: its raw bytes without the length prefix. A Table that
// came out of this package is valid; it travels and is stored byte for byte as
// the client sent it. The zero Table is empty.
type Table []byte

// Errors of tables that cannot be read.
var (
	errShort = errors.New("cut short")
	errDepth = fmt.Errorf("tables nested deeper than %d", MaxDepth)
)

// ParseTable checks that b is a table (without length prefix) and returns it,
// borrowed.
func ParseTable(b []byte) (Table, error) {
	if err := checkTable(b, 1); err != nil {
		return nil, err
	}
	return Table(b), nil
}

// Clone returns a copy that does not borrow.
func (t Table) Clone() Table {
	if len(t) == 0 {
		return nil
	}
	return append(Table(nil), t...)
}

// All iterates over the fields in the order they were sent. Keys are copied.
func (t Table) All() iter.Seq2[string, Value] {
	return func(yield func(string, Value) bool) {
		for key, v := range t.Fields() {
			if !yield(string(key), v) {
				return
			}
		}
	}
}

// Fields iterates over the fields in the order they were sent, with borrowed keys.
func (t Table) Fields() iter.Seq2[[]byte, Value] {
	return func(yield func([]byte, Value) bool) {
		for rest := []byte(t); len(rest) > 0; {
			n := 1 + int(rest[0])
			key := rest[1:n]
			var v Value
			v, rest = splitValue(rest[n:])
			if !yield(key, v) {
				return
			}
		}
	}
}

// Get returns the first field of this name, and whether there is one.
func (t Table) Get(key string) (Value, bool) {
	for k, v := range t.Fields() {
		if string(k) == key {
			return v, true
		}
	}
	return Value{}, false
}

// Len returns the number of fields.
func (t Table) Len() int {
	n := 0
	for range t.Fields() {
		n++
	}
	return n
}

// Map returns the table as a map of the values Any returns. Of several fields
// with one name the last one is kept.
func (t Table) Map() map[string]any {
	m := make(map[string]any)
	for k, v := range t.Fields() {
		m[string(k)] = v.Any()
	}
	return m
}

// AppendTo appends the table with its length prefix.
func (t Table) AppendTo(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(t)))
	return append(dst, t...)
}

// fixedSize returns the payload size of kinds that always have the same.
func fixedSize(kind byte) (int, bool) {
	switch kind {
	case KindVoid:
		return 0, true
	case KindBool, KindInt8, KindUint8:
		return 1, true
	case KindInt16, KindUint16:
		return 2, true
	case KindInt32, KindUint32, KindFloat32:
		return 4, true
	case KindDecimal:
		return 5, true
	case KindInt64, KindInt64L, KindFloat64, KindTimestamp:
		return 8, true
	}
	return 0, false
}

// splitValue cuts the first value off bytes that were checked before.
func splitValue(b []byte) (v Value, rest []byte) {
	kind := b[0]
	b = b[1:]
	n, fixed := fixedSize(kind)
	if !fixed {
		n = int(binary.BigEndian.Uint32(b))
		b = b[4:]
	}
	return Value{kind, b[:n:n]}, b[n:]
}

func checkTable(b []byte, depth int) error {
	if depth > MaxDepth {
		return errDepth
	}
	for len(b) > 0 {
		n := 1 + int(b[0])
		if len(b) < n {
			return errShort
		}
		var err error
		if b, err = checkValue(b[n:], depth); err != nil {
			return err
		}
	}
	return nil
}

func checkArray(b []byte, depth int) error {
	if depth > MaxDepth {
		return errDepth
	}
	var err error
	for len(b) > 0 {
		if b, err = checkValue(b, depth); err != nil {
			return err
		}
	}
	return nil
}

// checkValue checks the first value of b and returns what follows it.
func checkValue(b []byte, depth int) (rest []byte, err error) {
	if len(b) == 0 {
		return nil, errShort
	}
	kind := b[0]
	b = b[1:]
	if n, fixed := fixedSize(kind); fixed {
		if len(b) < n {
			return nil, errShort
		}
		return b[n:], nil
	}
	switch kind {
	case KindString, KindBytes, KindTable, KindArray:
	default:
		return nil, fmt.Errorf("unknown type 0x%02x of a table value", kind)
	}
	if len(b) < 4 {
		return nil, errShort
	}
	n := binary.BigEndian.Uint32(b)
	b = b[4:]
	if uint64(n) > uint64(len(b)) {
		return nil, errShort
	}
	switch kind {
	case KindTable:
		err = checkTable(b[:n], depth+1)
	case KindArray:
		err = checkArray(b[:n], depth+1)
	}
	return b[n:], err
}
