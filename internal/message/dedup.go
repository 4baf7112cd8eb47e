package message

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math"

	"holdfast/internal/wire"
)

// The headers by which a queue finds messages that come twice.
const (
	// DeduplicationHeader is any scalar that is not void. Those of another type are not equal; integers of all widths are of one type.
	DeduplicationHeader = "x-deduplication-header"
	// PublisherHeader says who has published a message, SequenceHeader which of its messages it is.
	PublisherHeader = "x-publisher-id"
	SequenceHeader  = "x-publisher-sequence"
	// CacheTTLHeader says for how many milliseconds the key of a message is remembered that goes through an exchange of the type
	// x-message-deduplication.
	CacheTTLHeader = "x-cache-ttl"
)

// Key is a hash of what tells messages apart.
type Key = [16]byte

// HeaderKey is the key of a message by DeduplicationHeader, and whether it has one.
func HeaderKey(p wire.Properties) (key Key, ok bool) {
	if !p.Has(wire.Headers) {
		return key, false
	}
	v, ok := p.Headers().Get(DeduplicationHeader)
	if !ok {
		return key, false
	}
	var scratch [128]byte
	b := scratch[:0]
	number := func(kind byte, n uint64) { b = binary.BigEndian.AppendUint64(append(b, kind), n) }
	if text, is := v.Bytes(); is {
		b = append(append(b, wire.KindString), text...)
	} else if n, is := v.Int(); is {
		number(wire.KindInt64, uint64(n))
	} else if f, is := v.Float(); is {
		number(wire.KindFloat64, math.Float64bits(f))
	} else if on, is := v.Bool(); is {
		number(wire.KindBool, 0)
		if on {
			b[len(b)-1] = 1
		}
	} else if at, is := v.Time(); is {
		number(wire.KindTimestamp, uint64(at.Unix()))
	} else if d, is := v.Decimal(); is {
		number(wire.KindDecimal, uint64(d.Scale)<<32|uint64(d.Unscaled))
	} else {
		return key, false // nothing, a table, or an array
	}
	return keyOf(b), true
}

// HasHeaderKey reports whether a message has a key by DeduplicationHeader.
func HasHeaderKey(p wire.Properties) bool {
	if !p.Has(wire.Headers) {
		return false
	}
	v, ok := p.Headers().Get(DeduplicationHeader)
	return ok && v.Kind != wire.KindArray && v.Kind != wire.KindTable && v.Kind != wire.KindVoid
}

// CacheTTL is what CacheTTLHeader says, in ms: 0 if that is negative. ok is false if the message does not say, or says what makes no sense.
func CacheTTL(p wire.Properties) (ms uint64, ok bool) {
	if !p.Has(wire.Headers) {
		return 0, false
	}
	v, ok := p.Headers().Get(CacheTTLHeader)
	n, isInt := v.Int()
	if !ok || !isInt || n > MostDelay {
		return 0, false
	}
	return uint64(max(n, 0)), true
}

// CheckCacheTTL returns what is wrong with CacheTTLHeader, "" if nothing is. Without a value (void) it counts as not there.
func CheckCacheTTL(p wire.Properties) (problem string) {
	v, ok := p.Headers().Get(CacheTTLHeader)
	n, isInt := v.Int()
	switch {
	case !ok || v.Kind == wire.KindVoid || isInt && n <= MostDelay:
		return ""
	case isInt:
		return fmt.Sprintf("it is longer than ten years in milliseconds: %d", n)
	}
	return "it is no integer, but " + v.TypeName()
}

// IDKey is the key of a message by its message id, and whether it has one.
func IDKey(p wire.Properties) (key Key, ok bool) {
	id := p.Bytes(wire.MessageID)
	if len(id) == 0 {
		return key, false
	}
	return keyOf(id), true
}

// PublisherKey is the key of who has published a message, and which of its messages it is. ok is false if it does not say so by a text and an
// integer that is not negative.
func PublisherKey(p wire.Properties) (key Key, sequence uint64, ok bool) {
	if !p.Has(wire.Headers) {
		return key, 0, false
	}
	headers := p.Headers()
	who, _ := headers.Get(PublisherHeader)
	which, _ := headers.Get(SequenceHeader)
	id, isText := who.Bytes()
	n, isInt := which.Int()
	if !isText || !isInt || len(id) == 0 || n < 0 {
		return key, 0, false
	}
	return keyOf(id), uint64(n), true
}

// keyOf hashes what makes a key. It is never all zeros: that is none.
func keyOf(b []byte) (key Key) {
	sum := sha256.Sum256(b)
	copy(key[:], sum[:])
	if key == (Key{}) {
		key[0] = 1
	}
	return key
}
