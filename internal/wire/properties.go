package wire

import (
	"encoding/binary"
	"errors"
	"iter"
	"math/bits"
	"time"
)

// Property is the number of a message property: its bit in the flag word.
type Property uint8

// The properties of class basic, in the order their values are sent.
const (
	ContentType     Property = 15
	ContentEncoding Property = 14
	Headers         Property = 13
	DeliveryMode    Property = 12
	Priority        Property = 11
	CorrelationID   Property = 10
	ReplyTo         Property = 9
	Expiration      Property = 8
	MessageID       Property = 7
	Timestamp       Property = 6
	Type            Property = 5
	UserID          Property = 4
	AppID           Property = 3
	ClusterID       Property = 2
)

// knownFlags has a bit for each Property. Bit 1 is unused and bit 0 would
// announce a second flag word, which class basic never needs.
const knownFlags uint16 = 0xfffc

// DeliveryMode values.
const (
	Transient  uint8 = 1
	Persistent uint8 = 2
)

// Properties are the properties of a message as they travel: the flag word and
// the values of the properties it names. They are decoded on demand and handed
// on byte for byte. The zero Properties name nothing.
type Properties []byte

var errFlags = errors.New("unknown property flags")

// ParseProperties checks that b is a flag word with exactly the values it
// names, and returns it, borrowed.
func ParseProperties(b []byte) (Properties, error) {
	if len(b) < 2 {
		return nil, errShort
	}
	flags := binary.BigEndian.Uint16(b)
	if flags&^knownFlags != 0 {
		return nil, errFlags
	}
	rest := b[2:]
	for f := flags; f != 0; {
		p := Property(bits.Len16(f) - 1)
		f &^= 1 << p
		n, err := p.size(rest)
		if err != nil {
			return nil, err
		}
		if p == Headers {
			if err := checkTable(rest[4:n], 1); err != nil {
				return nil, err
			}
		}
		rest = rest[n:]
	}
	if len(rest) > 0 {
		return nil, errors.New("bytes left over after the last property")
	}
	return Properties(b), nil
}

// size returns how many bytes the value of p takes at the start of b.
func (p Property) size(b []byte) (int, error) {
	n := 1
	switch p {
	case DeliveryMode, Priority:
	case Timestamp:
		n = 8
	case Headers:
		if len(b) < 4 {
			return 0, errShort
		}
		table := binary.BigEndian.Uint32(b)
		if uint64(table)+4 > uint64(len(b)) {
			return 0, errShort
		}
		n = 4 + int(table)
	default:
		if len(b) < 1 {
			return 0, errShort
		}
		n = 1 + int(b[0])
	}
	if len(b) < n {
		return 0, errShort
	}
	return n, nil
}

// Flags returns the flag word.
func (p Properties) Flags() uint16 {
	if len(p) < 2 {
		return 0
	}
	return binary.BigEndian.Uint16(p)
}

// Has reports whether the property is there.
func (p Properties) Has(what Property) bool { return p.Flags()&(1<<what) != 0 }

// Encoded iterates over the properties that are there, in the order they are sent, with their borrowed encoded values.
func (p Properties) Encoded() iter.Seq2[Property, []byte] {
	return func(yield func(Property, []byte) bool) {
		flags := p.Flags()
		if flags == 0 {
			return
		}
		for rest := p[2:]; flags != 0; {
			what := Property(bits.Len16(flags) - 1)
			flags &^= 1 << what
			n, err := what.size(rest)
			if err != nil || !yield(what, rest[:n]) {
				return
			}
			rest = rest[n:]
		}
	}
}

// value returns the encoded value of a property, nil if it is not there.
func (p Properties) value(what Property) []byte {
	flags := p.Flags()
	if flags&(1<<what) == 0 {
		return nil
	}
	rest := p[2:]
	for flags != 0 {
		q := Property(bits.Len16(flags) - 1)
		flags &^= 1 << q
		n, err := q.size(rest)
		if err != nil {
			return nil
		}
		if q == what {
			return rest[:n]
		}
		rest = rest[n:]
	}
	return nil
}

// Bytes returns the borrowed text of a property that is a short string, nil if
// it is not there.
func (p Properties) Bytes(what Property) []byte {
	if v := p.value(what); len(v) > 0 {
		return v[1:]
	}
	return nil
}

// Str returns a copy of a property that is a short string, empty if it is not
// there.
func (p Properties) Str(what Property) string { return string(p.Bytes(what)) }

// DeliveryMode returns 1 (transient) or 2 (persistent); 0 if it is not there.
func (p Properties) DeliveryMode() uint8 {
	if v := p.value(DeliveryMode); len(v) == 1 {
		return v[0]
	}
	return 0
}

// Priority returns the priority, and whether there is one.
func (p Properties) Priority() (uint8, bool) {
	if v := p.value(Priority); len(v) == 1 {
		return v[0], true
	}
	return 0, false
}

// Timestamp returns the timestamp, and whether there is one.
func (p Properties) Timestamp() (time.Time, bool) {
	if v := p.value(Timestamp); len(v) == 8 {
		return time.Unix(int64(binary.BigEndian.Uint64(v)), 0).UTC(), true
	}
	return time.Time{}, false
}

// Headers returns the borrowed headers table, empty if there is none.
func (p Properties) Headers() Table {
	if v := p.value(Headers); len(v) > 4 {
		return Table(v[4:])
	}
	return nil
}

// ContentType returns the content-type property.
func (p Properties) ContentType() string { return p.Str(ContentType) }

// CorrelationID returns the correlation-id property.
func (p Properties) CorrelationID() string { return p.Str(CorrelationID) }

// ReplyTo returns the reply-to property.
func (p Properties) ReplyTo() string { return p.Str(ReplyTo) }

// Expiration returns the expiration property.
func (p Properties) Expiration() string { return p.Str(Expiration) }

// MessageID returns the message-id property.
func (p Properties) MessageID() string { return p.Str(MessageID) }

// UserID returns the user-id property.
func (p Properties) UserID() string { return p.Str(UserID) }

// WithHeaders returns a copy whose headers are h, be it empty. Every other
// property is kept byte for byte.
func (p Properties) WithHeaders(h Table) Properties {
	out := make([]byte, 0, len(p)+len(h)+6)
	out = binary.BigEndian.AppendUint16(out, p.Flags()|1<<Headers)
	written := false
	for what, v := range p.Encoded() {
		if what <= Headers && !written {
			out = h.AppendTo(out)
			written = true
		}
		if what != Headers {
			out = append(out, v...)
		}
	}
	if !written {
		out = h.AppendTo(out)
	}
	return out
}

// WithStr returns a copy in which a property that is a short string, and is
// there, has another value.
func (p Properties) WithStr(what Property, value string) Properties {
	out := make([]byte, 0, len(p)+len(value))
	out = binary.BigEndian.AppendUint16(out, p.Flags())
	for q, v := range p.Encoded() {
		if q == what {
			out = appendShort(out, value)
		} else {
			out = append(out, v...)
		}
	}
	return out
}

// PropertySet is what NewProperties builds Properties from. Empty strings,
// zeros and nil are left out.
type PropertySet struct {
	ContentType, ContentEncoding string
	Headers                      Table
	DeliveryMode                 uint8
	Priority                     *uint8
	CorrelationID, ReplyTo       string
	Expiration, MessageID        string
	Timestamp                    time.Time
	Type, UserID, AppID          string
	ClusterID                    string
}

// NewProperties encodes a set. Strings are cut at 255 bytes, the size of a
// short string.
func NewProperties(s PropertySet) Properties {
	out := Properties{0, 0}
	var flags uint16
	str := func(what Property, v string) {
		if v != "" {
			flags |= 1 << what
			out = appendShort(out, v)
		}
	}
	str(ContentType, s.ContentType)
	str(ContentEncoding, s.ContentEncoding)
	if len(s.Headers) > 0 {
		flags |= 1 << Headers
		out = s.Headers.AppendTo(out)
	}
	if s.DeliveryMode != 0 {
		flags |= 1 << DeliveryMode
		out = append(out, s.DeliveryMode)
	}
	if s.Priority != nil {
		flags |= 1 << Priority
		out = append(out, *s.Priority)
	}
	str(CorrelationID, s.CorrelationID)
	str(ReplyTo, s.ReplyTo)
	str(Expiration, s.Expiration)
	str(MessageID, s.MessageID)
	if !s.Timestamp.IsZero() {
		flags |= 1 << Timestamp
		out = binary.BigEndian.AppendUint64(out, uint64(s.Timestamp.Unix()))
	}
	str(Type, s.Type)
	str(UserID, s.UserID)
	str(AppID, s.AppID)
	str(ClusterID, s.ClusterID)
	binary.BigEndian.PutUint16(out, flags)
	return out
}

// Map returns the properties under RabbitMQ's names ("content_type", ...), as
// encoding/json can write them.
func (p Properties) Map() map[string]any {
	m := make(map[string]any)
	for what, v := range p.Encoded() {
		name := propertyNames[what]
		switch what {
		case Headers:
			m[name] = Table(v[4:]).Map()
		case DeliveryMode, Priority:
			m[name] = v[0]
		case Timestamp:
			m[name] = int64(binary.BigEndian.Uint64(v))
		default:
			m[name] = string(v[1:])
		}
	}
	return m
}

var propertyNames = [16]string{
	ContentType: "content_type", ContentEncoding: "content_encoding", Headers: "headers",
	DeliveryMode: "delivery_mode", Priority: "priority", CorrelationID: "correlation_id",
	ReplyTo: "reply_to", Expiration: "expiration", MessageID: "message_id",
	Timestamp: "timestamp", Type: "type", UserID: "user_id", AppID: "app_id",
	ClusterID: "cluster_id",
}

// appendShort appends a short string, cut at its longest possible size.
func appendShort[T string | []byte](dst []byte, s T) []byte {
	if len(s) > 255 {
		s = s[:255]
	}
	dst = append(dst, byte(len(s)))
	return append(dst, s...)
}
