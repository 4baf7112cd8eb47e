package raw

import (
	"encoding/binary"
	"fmt"
)

// Long is a long string argument; a plain Go string is a short string.
type Long string

// Table is the bytes of a field table without its length.
type Table []byte

// Bits is a run of packed bit arguments.
type Bits []bool

// Raw is appended as it is.
type Raw []byte

// Encode writes arguments one after the other, each in the form its Go type
// names.
func Encode(args ...any) []byte {
	var b []byte
	for _, a := range args {
		switch v := a.(type) {
		case uint8:
			b = append(b, v)
		case uint16:
			b = binary.BigEndian.AppendUint16(b, v)
		case uint32:
			b = binary.BigEndian.AppendUint32(b, v)
		case uint64:
			b = binary.BigEndian.AppendUint64(b, v)
		case string:
			b = append(append(b, byte(len(v))), v...)
		case Long:
			b = append(binary.BigEndian.AppendUint32(b, uint32(len(v))), v...)
		case Table:
			b = append(binary.BigEndian.AppendUint32(b, uint32(len(v))), v...)
		case Raw:
			b = append(b, v...)
		case Bits:
			for i := 0; i < len(v); i += 8 {
				var o byte
				for k, set := range v[i:min(i+8, len(v))] {
					if set {
						o |= 1 << k
					}
				}
				b = append(b, o)
			}
		default:
			panic(fmt.Sprintf("raw.Encode: %T", a))
		}
	}
	return b
}

// Field is one entry of a table: key, type letter, value bytes.
func Field(key string, kind byte, value ...any) []byte {
	return append(append(Encode(key), kind), Encode(value...)...)
}

// Fields joins entries to a table.
func Fields(fields ...[]byte) Table {
	var t Table
	for _, f := range fields {
		t = append(t, f...)
	}
	return t
}

// Args reads arguments from the front of a payload. Reading past the end
// panics; the payload came from the broker under test, so that is a failure.
type Args []byte

// U8 reads an octet.
func (a *Args) U8() uint8 { v := (*a)[0]; *a = (*a)[1:]; return v }

// U16 reads a short.
func (a *Args) U16() uint16 { v := binary.BigEndian.Uint16(*a); *a = (*a)[2:]; return v }

// U32 reads a long.
func (a *Args) U32() uint32 { v := binary.BigEndian.Uint32(*a); *a = (*a)[4:]; return v }

// U64 reads a long long.
func (a *Args) U64() uint64 { v := binary.BigEndian.Uint64(*a); *a = (*a)[8:]; return v }

// Str reads a short string.
func (a *Args) Str() string { n := int(a.U8()); v := string((*a)[:n]); *a = (*a)[n:]; return v }

// Long reads a long string or the bytes of a table.
func (a *Args) Long() []byte { n := a.U32(); v := (*a)[:n:n]; *a = (*a)[n:]; return v }

// Header is the payload of a content header frame.
func Header(size uint64, properties []byte) []byte {
	return append(Encode(uint16(60), uint16(0), size), properties...)
}

// Properties with no flag set, and with only the headers table.
var NoProperties = []byte{0, 0}

// HeadersOnly is a property list with the headers table alone.
func HeadersOnly(t Table) []byte { return append([]byte{0x20, 0}, Encode(t)...) }
