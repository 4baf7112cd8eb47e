package message

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"

	"holdfast/internal/wire"
)

// DelayHeader is the header that says how many milliseconds a message is to wait: before an exchange of the type x-delayed-message routes it,
// or before it is ready in a queue with a delay.
const DelayHeader = "x-delay"

// MostDelay is the longest delay, in ms: ten years.
const MostDelay = 315_360_000_000

// Delay returns how many milliseconds a message is to wait, by its header: 0 if it has none, a negative one, or one that is no number.
func Delay(p wire.Properties) int64 {
	if !p.Has(wire.Headers) {
		return 0
	}
	v, ok := p.Headers().Get(DelayHeader)
	if !ok {
		return 0
	}
	ms, problem := delayOf(v)
	if problem != "" {
		return 0
	}
	return max(ms, 0)
}

// CheckDelay returns what is wrong with the header of a message that an exchange is to delay, "" if nothing is.
func CheckDelay(p wire.Properties) (problem string) {
	v, _ := p.Headers().Get(DelayHeader)
	_, problem = delayOf(v)
	return problem
}

// delayOf reads a delay. As in RabbitMQ's plugin, text may be a number, of a float the whole part counts, and what is neither means none.
func delayOf(v wire.Value) (ms int64, problem string) {
	ms, ok := v.Int()
	if text, isText := v.Str(); isText {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return 0, fmt.Sprintf("'%s' is no number of milliseconds", text)
		}
		ms, ok = n, true
	}
	if f, isFloat := v.Float(); isFloat && !math.IsNaN(f) {
		ms, ok = int64(max(min(f, MostDelay+1), -MostDelay-1)), true
	}
	if ok && ms > MostDelay {
		return 0, fmt.Sprintf("it is longer than ten years in milliseconds: %v", v.Any())
	}
	return ms, ""
}

// AppendDelayed appends the properties of a message whose delay is over, and returns them: the header says so by a minus sign. Nothing else
// changes.
func AppendDelayed(dst []byte, p wire.Properties) wire.Properties {
	start := len(dst)
	if !p.Has(wire.Headers) {
		return append(dst, p...)[start:]
	}
	dst = append(dst, p[:2]...)
	for what, value := range p.Encoded() {
		if what != wire.Headers {
			dst = append(dst, value...)
			continue
		}
		at := len(dst)
		dst = append(dst, 0, 0, 0, 0)
		for name, v := range p.Headers().Fields() {
			if string(name) == DelayHeader {
				ms, _ := delayOf(v)
				v = wire.ValueOf(-max(ms, -ms))
			}
			dst = v.AppendTo(append(append(dst, byte(len(name))), name...))
		}
		binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	}
	return dst[start:]
}
