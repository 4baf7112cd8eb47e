package wire

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math"
	"strconv"
	"time"
)

// The letters that say what kind of value follows in a table or an array.
// RabbitMQ's reading of them: both 'l' and 'L' are signed 64-bit.
const (
	KindBool      byte = 't'
	KindInt8      byte = 'b'
	KindUint8     byte = 'B'
	KindInt16     byte = 's'
	KindUint16    byte = 'u'
	KindInt32     byte = 'I'
	KindUint32    byte = 'i'
	KindInt64     byte = 'l'
	KindInt64L    byte = 'L'
	KindFloat32   byte = 'f'
	KindFloat64   byte = 'd'
	KindDecimal   byte = 'D'
	KindString    byte = 'S'
	KindArray     byte = 'A'
	KindTimestamp byte = 'T'
	KindTable     byte = 'F'
	KindBytes     byte = 'x'
	KindVoid      byte = 'V'
)

// Value is one value of a table or an array. It borrows its bytes from there.
// The zero Value is no value at all.
type Value struct {
	Kind byte
	// raw is the payload: fixed-size values as they stand, strings, byte
	// strings, tables and arrays without their length prefix.
	raw []byte
}

// IsZero reports whether v is no value at all.
func (v Value) IsZero() bool { return v.Kind == 0 }

// Int returns an integer of any width, and whether v is one. Timestamps are not.
func (v Value) Int() (int64, bool) {
	switch v.Kind {
	case KindInt8:
		return int64(int8(v.raw[0])), true
	case KindUint8:
		return int64(v.raw[0]), true
	case KindInt16:
		return int64(int16(binary.BigEndian.Uint16(v.raw))), true
	case KindUint16:
		return int64(binary.BigEndian.Uint16(v.raw)), true
	case KindInt32:
		return int64(int32(binary.BigEndian.Uint32(v.raw))), true
	case KindUint32:
		return int64(binary.BigEndian.Uint32(v.raw)), true
	case KindInt64, KindInt64L:
		return int64(binary.BigEndian.Uint64(v.raw)), true
	}
	return 0, false
}

// Float returns a float of either width, and whether v is one.
func (v Value) Float() (float64, bool) {
	switch v.Kind {
	case KindFloat32:
		return float64(math.Float32frombits(binary.BigEndian.Uint32(v.raw))), true
	case KindFloat64:
		return math.Float64frombits(binary.BigEndian.Uint64(v.raw)), true
	}
	return 0, false
}

// Bool returns a boolean, and whether v is one. Any octet but 0 is true.
func (v Value) Bool() (value, ok bool) {
	if v.Kind != KindBool {
		return false, false
	}
	return v.raw[0] != 0, true
}

// Str returns a copy of a long string, and whether v is one.
func (v Value) Str() (string, bool) {
	if v.Kind != KindString {
		return "", false
	}
	return string(v.raw), true
}

// Bytes returns the borrowed bytes of a long string or a byte string.
func (v Value) Bytes() ([]byte, bool) {
	if v.Kind != KindString && v.Kind != KindBytes {
		return nil, false
	}
	return v.raw, true
}

// Table returns the borrowed nested table, and whether v is one.
func (v Value) Table() (Table, bool) {
	if v.Kind != KindTable {
		return nil, false
	}
	return Table(v.raw), true
}

// Array iterates over the values of an array; nothing if v is none.
func (v Value) Array() iter.Seq[Value] {
	return func(yield func(Value) bool) {
		if v.Kind != KindArray {
			return
		}
		for rest := v.raw; len(rest) > 0; {
			var e Value
			e, rest = splitValue(rest)
			if !yield(e) {
				return
			}
		}
	}
}

// Time returns a timestamp, and whether v is one.
func (v Value) Time() (time.Time, bool) {
	if v.Kind != KindTimestamp {
		return time.Time{}, false
	}
	return time.Unix(int64(binary.BigEndian.Uint64(v.raw)), 0).UTC(), true
}

// Decimal is a value of kind 'D': Unscaled divided by ten to the power of Scale.
type Decimal struct {
	Scale    uint8
	Unscaled uint32
}

// Float returns the decimal as a float.
func (d Decimal) Float() float64 { return float64(d.Unscaled) / math.Pow10(int(d.Scale)) }

// Decimal returns a decimal, and whether v is one.
func (v Value) Decimal() (Decimal, bool) {
	if v.Kind != KindDecimal {
		return Decimal{}, false
	}
	return Decimal{v.raw[0], binary.BigEndian.Uint32(v.raw[1:])}, true
}

// Any returns the value in the form that encoding/json writes as RabbitMQ's
// management API does: numbers, strings, booleans, nil, []any, map[string]any.
// A timestamp is its number of seconds; a float that JSON cannot say is a
// string.
func (v Value) Any() any {
	switch v.Kind {
	case KindBool:
		b, _ := v.Bool()
		return b
	case KindFloat32, KindFloat64:
		f, _ := v.Float()
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return strconv.FormatFloat(f, 'g', -1, 64)
		}
		return f
	case KindDecimal:
		d, _ := v.Decimal()
		return d.Float()
	case KindString, KindBytes:
		return string(v.raw)
	case KindTimestamp:
		return int64(binary.BigEndian.Uint64(v.raw))
	case KindTable:
		return Table(v.raw).Map()
	case KindArray:
		list := []any{}
		for e := range v.Array() {
			list = append(list, e.Any())
		}
		return list
	}
	if n, ok := v.Int(); ok {
		return n
	}
	return nil
}

// TypeName returns the name of the kind as RabbitMQ's texts have it, such as
// "signedint" or "longstr".
func (v Value) TypeName() string {
	switch v.Kind {
	case KindBool:
		return "bool"
	case KindInt8:
		return "byte"
	case KindUint8:
		return "unsignedbyte"
	case KindInt16:
		return "short"
	case KindUint16:
		return "unsignedshort"
	case KindInt32:
		return "signedint"
	case KindUint32:
		return "unsignedint"
	case KindInt64, KindInt64L:
		return "long"
	case KindFloat32:
		return "float"
	case KindFloat64:
		return "double"
	case KindDecimal:
		return "decimal"
	case KindString:
		return "longstr"
	case KindArray:
		return "array"
	case KindTimestamp:
		return "timestamp"
	case KindTable:
		return "table"
	case KindBytes:
		return "binary"
	case KindVoid:
		return "void"
	}
	return "none"
}

// String describes the value with its type, as texts for clients do:
// "'100' of type 'signedint'".
func (v Value) String() string {
	return fmt.Sprintf("'%v' of type '%s'", v.Any(), v.TypeName())
}

// Equal reports whether two values mean the same: integers of any width are
// compared as numbers, floats likewise, everything else by kind and bytes.
func (v Value) Equal(w Value) bool {
	if a, ok := v.Int(); ok {
		b, ok := w.Int()
		return ok && a == b
	}
	if a, ok := v.Float(); ok {
		b, ok := w.Float()
		return ok && a == b
	}
	if a, ok := v.Bool(); ok {
		b, ok := w.Bool()
		return ok && a == b
	}
	return v.Kind == w.Kind && string(v.raw) == string(w.raw)
}
