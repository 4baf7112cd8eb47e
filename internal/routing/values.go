package routing

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"

	"holdfast/internal/wire"
)

// Canonical returns args with its fields in order of their names: two tables that differ in the order of fields only have
// the same canonical form.
func Canonical(args wire.Table) string {
	var keys []string
	sorted, last := true, ""
	for k := range args.All() {
		if k < last {
			sorted = false
		}
		last = k
		keys = append(keys, k)
	}
	if sorted {
		return string(args)
	}
	type field struct {
		key   string
		value wire.Value
	}
	fields := make([]field, 0, len(keys))
	for k, v := range args.All() {
		fields = append(fields, field{k, v})
	}
	slices.SortStableFunc(fields, func(a, b field) int { return strings.Compare(a.key, b.key) })
	var t wire.Table
	for _, f := range fields {
		t = t.AppendValue(f.key, f.value)
	}
	return string(t)
}

// appendMeaning appends bytes that are equal for two values exactly if a headers exchange takes them for equal: integers
// of any width by their number, floats of either width likewise (a float equals no integer: RabbitMQ 3.10 thought it
// did), long strings and byte strings by their bytes, everything else by kind and bytes.
func appendMeaning(dst []byte, v wire.Value) []byte {
	if n, ok := v.Int(); ok {
		return binary.BigEndian.AppendUint64(append(dst, 'i'), uint64(n))
	}
	if f, ok := v.Float(); ok {
		if f == 0 {
			f = 0 // there is a negative zero, and it is equal
		}
		return binary.BigEndian.AppendUint64(append(dst, 'f'), math.Float64bits(f))
	}
	if b, ok := v.Bool(); ok {
		if b {
			return append(dst, 't', 1)
		}
		return append(dst, 't', 0)
	}
	if b, ok := v.Bytes(); ok {
		return append(append(dst, 'S'), b...)
	}
	return wire.Table(append(dst, v.Kind)).AppendValue("", v)
}
