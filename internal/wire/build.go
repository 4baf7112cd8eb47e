package wire

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"slices"
	"time"

	"holdfast/internal/invariant"
)

// NewTable builds a table from a map, keys in sorted order so that equal maps
// give equal bytes. Integers become the widest kind that RabbitMQ's clients
// expect: int and int64 are 'l', int32 is 'I'. The kinds of value are those
// that Any returns, the sized Go numbers, []byte, time.Time, Decimal, Table and
// []string; any other is a bug of the caller.
func NewTable(m map[string]any) Table {
	if len(m) == 0 {
		return nil
	}
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	var t Table
	for _, k := range keys {
		t = t.Append(k, m[k])
	}
	return t
}

// Append returns the table with one more field.
func (t Table) Append(key string, value any) Table {
	if len(key) > 255 {
		invariant.Failf("table key of %d bytes", len(key))
	}
	b := append([]byte(t), byte(len(key)))
	b = append(b, key...)
	return appendAny(b, value)
}

// AppendValue returns the table with one more field, copied byte for byte.
func (t Table) AppendValue(key string, v Value) Table {
	if len(key) > 255 {
		invariant.Failf("table key of %d bytes", len(key))
	}
	b := append([]byte(t), byte(len(key)))
	b = append(b, key...)
	return v.AppendTo(b)
}

// AppendTo appends the value as it stands in a table or an array, its kind in front.
func (v Value) AppendTo(dst []byte) []byte {
	dst = append(dst, v.Kind)
	if _, fixed := fixedSize(v.Kind); !fixed {
		dst = binary.BigEndian.AppendUint32(dst, uint32(len(v.raw)))
	}
	return append(dst, v.raw...)
}

// ValueOf returns one value as it would stand in a table.
func ValueOf(value any) Value {
	v, _ := splitValue(appendAny(nil, value))
	return v
}

func appendAny(b []byte, value any) []byte {
	be := binary.BigEndian
	switch x := value.(type) {
	case nil:
		return append(b, KindVoid)
	case Value:
		return x.AppendTo(b)
	case bool:
		if x {
			return append(b, KindBool, 1)
		}
		return append(b, KindBool, 0)
	case int8:
		return append(b, KindInt8, byte(x))
	case uint8:
		return append(b, KindUint8, x)
	case int16:
		return be.AppendUint16(append(b, KindInt16), uint16(x))
	case uint16:
		return be.AppendUint16(append(b, KindUint16), x)
	case int32:
		return be.AppendUint32(append(b, KindInt32), uint32(x))
	case uint32:
		return be.AppendUint32(append(b, KindUint32), x)
	case int:
		return be.AppendUint64(append(b, KindInt64), uint64(x))
	case int64:
		return be.AppendUint64(append(b, KindInt64), uint64(x))
	case float32:
		return be.AppendUint32(append(b, KindFloat32), math.Float32bits(x))
	case float64:
		return be.AppendUint64(append(b, KindFloat64), math.Float64bits(x))
	case json.Number:
		return appendNumber(b, x)
	case Decimal:
		return be.AppendUint32(append(b, KindDecimal, x.Scale), x.Unscaled)
	case time.Time:
		return be.AppendUint64(append(b, KindTimestamp), uint64(x.Unix()))
	case string:
		return appendLong(append(b, KindString), x)
	case []byte:
		return appendLong(append(b, KindBytes), x)
	case Table:
		return x.AppendTo(append(b, KindTable))
	case map[string]any:
		return NewTable(x).AppendTo(append(b, KindTable))
	case []any:
		return appendArray(b, x)
	case []string:
		return appendArray(b, x)
	}
	invariant.Failf("no table value for Go type %T", value)
	return nil
}

func appendArray[E any](b []byte, list []E) []byte {
	b = append(b, KindArray, 0, 0, 0, 0)
	start := len(b)
	for _, e := range list {
		b = appendAny(b, e)
	}
	binary.BigEndian.PutUint32(b[start-4:], uint32(len(b)-start))
	return b
}

// appendNumber keeps a whole JSON number an integer.
func appendNumber(b []byte, n json.Number) []byte {
	if i, err := n.Int64(); err == nil {
		return appendAny(b, i)
	}
	f, err := n.Float64()
	if err != nil {
		return appendAny(b, n.String())
	}
	return appendAny(b, f)
}

func appendLong[T string | []byte](b []byte, s T) []byte {
	b = binary.BigEndian.AppendUint32(b, uint32(len(s)))
	return append(b, s...)
}
