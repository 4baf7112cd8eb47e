package deadletter

import (
	"encoding/binary"

	"holdfast/internal/message"
	"holdfast/internal/wire"
)

// Bounds of what the server writes into headers, which have to fit into one frame.
const (
	// mostHistory is how many bytes of x-death are kept.
	mostHistory = 32 << 10
	// mostKeys is how many bytes of routing keys an entry has; the first key is there in any case.
	mostKeys = 2 << 10
)

// The headers that the server owns, in the order in which it adds them.
const (
	xDeath = "x-death"
	xFirst = "x-first-death-"
	xLast  = "x-last-death-"
)

var owned = [...]string{
	xDeath, xFirst + "reason", xFirst + "queue", xFirst + "exchange", xLast + "reason", xLast + "queue", xLast + "exchange",
}

const firstLast = 4 // of owned, where those of the last death begin

// place is where a header stands among those that the server owns, -1 for any other.
func place(name []byte) int {
	if len(name) < len(xDeath) || name[0] != 'x' {
		return -1
	}
	for i, o := range owned {
		if string(name) == o {
			return i
		}
	}
	return -1
}

// Record appends to dst the properties that a message has after a death: without an expiration, with the death in its history. keys are
// those that Keys calls shown. Everything else stays as it was, byte for byte and in its place. whole reports whether the history
// has all that it had before; it is cut, the oldest entries first, when it gets too long for the headers. As what was cut may have been in the
// way, such a message had better go on only if it was rejected.
func Record(dst []byte, v *message.View, keys [][]byte, d Death) (properties []byte, whole bool) {
	r := record{v: v, keys: keys, d: d, whole: true}
	dst = binary.BigEndian.AppendUint16(dst, v.Properties.Flags()&^(1<<wire.Expiration)|1<<wire.Headers)
	written := false
	for what, value := range v.Properties.Encoded() {
		if what <= wire.Headers && !written {
			dst, written = r.headers(dst), true
		}
		if what != wire.Headers && what != wire.Expiration {
			dst = append(dst, value...)
		}
	}
	if !written {
		dst = r.headers(dst)
	}
	return dst, r.whole
}

// record is one event on its way into the headers.
type record struct {
	v     *message.View
	keys  [][]byte
	d     Death
	whole bool
}

// headers appends the headers. What the server owns takes the place of what has its name; of several with one name, the first one's.
func (r *record) headers(dst []byte) []byte {
	dst, start := begin(dst)
	var seen [len(owned)]bool
	for name, value := range r.v.Properties.Headers().Fields() {
		i := place(name)
		switch {
		case i < 0:
			dst = value.AppendTo(append(append(dst, byte(len(name))), name...))
		case !seen[i]:
			seen[i] = true
			dst = r.header(dst, i, value)
		}
	}
	for i := range owned {
		if !seen[i] {
			dst = r.header(dst, i, wire.Value{})
		}
	}
	return finish(dst, start)
}

// header appends a header of the server's, which was old before.
func (r *record) header(dst []byte, i int, old wire.Value) []byte {
	dst = appendShort(dst, owned[i])
	switch {
	case i == 0:
		return r.deaths(dst, old)
	case i < firstLast && r.v.History:
		return old.AppendTo(dst)
	}
	switch (i - 1) % 3 {
	case 0:
		return appendLong(dst, r.d.Reason.String())
	case 1:
		return appendLong(dst, r.d.Queue)
	}
	return appendLong(dst, r.v.Exchange)
}

// deaths appends x-death: this event in front, whether it was there before or not, and then the others.
func (r *record) deaths(dst []byte, old wire.Value) []byte {
	dst, start := begin(append(dst, wire.KindArray))
	if !r.v.History {
		return finish(r.event(dst), start)
	}
	again, at := wire.Value{}, -1
	i := 0
	for e := range old.Array() {
		if queue, reason := eventOf(e); string(queue) == r.d.Queue && string(reason) == r.d.Reason.String() {
			again, at = e, i
			break
		}
		i++
	}
	if at >= 0 {
		dst = once(dst, again)
	} else {
		dst = r.event(dst)
	}
	i = 0
	for e := range old.Array() {
		if i != at {
			end := len(dst)
			if dst = e.AppendTo(dst); len(dst)-start > mostHistory {
				dst, r.whole = dst[:end], false
				break
			}
		}
		i++
	}
	return finish(dst, start)
}

// event appends a new entry of x-death.
func (r *record) event(dst []byte) []byte {
	dst, start := begin(append(dst, wire.KindTable))
	if x := r.v.Properties.Bytes(wire.Expiration); x != nil {
		dst = appendLong(appendShort(dst, "original-expiration"), x)
	}
	dst = appendInt(appendShort(dst, "count"), wire.KindInt64, 1)
	dst = appendLong(appendShort(dst, "reason"), r.d.Reason.String())
	dst = appendLong(appendShort(dst, "queue"), r.d.Queue)
	dst = appendInt(appendShort(dst, "time"), wire.KindTimestamp, r.d.Time)
	dst = appendLong(appendShort(dst, "exchange"), r.v.Exchange)
	dst, keys := begin(append(appendShort(dst, "routing-keys"), wire.KindArray))
	for i, key := range r.keys {
		if i > 0 && len(dst)-keys+len(key) > mostKeys {
			break
		}
		dst = appendLong(dst, key)
	}
	return finish(finish(dst, keys), start)
}

// once appends an entry of x-death with one more death.
func once(dst []byte, e wire.Value) []byte {
	t, _ := e.Table()
	dst, start := begin(append(dst, wire.KindTable))
	for name, f := range t.Fields() {
		dst = append(append(dst, byte(len(name))), name...)
		if n, is := f.Int(); is && string(name) == "count" {
			dst = appendInt(dst, wire.KindInt64, n+1)
		} else {
			dst = f.AppendTo(dst)
		}
	}
	return finish(dst, start)
}

// begin makes room for the length of what follows, which begins at start.
func begin(dst []byte) (out []byte, start int) {
	return append(dst, 0, 0, 0, 0), len(dst) + 4
}

// finish puts the length of what begins at start in front of it.
func finish(dst []byte, start int) []byte {
	binary.BigEndian.PutUint32(dst[start-4:], uint32(len(dst)-start))
	return dst
}

func appendShort(dst []byte, s string) []byte { return append(append(dst, byte(len(s))), s...) }

// appendLong appends a value that is a long string.
func appendLong[S string | []byte](dst []byte, s S) []byte {
	dst = binary.BigEndian.AppendUint32(append(dst, wire.KindString), uint32(len(s)))
	return append(dst, s...)
}

// appendInt appends a value of eight bytes.
func appendInt(dst []byte, kind byte, n int64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, kind), uint64(n))
}
