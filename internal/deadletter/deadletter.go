package deadletter

import (
	"holdfast/internal/message"
	"holdfast/internal/wire"
)

// Reason is why a message has died.
type Reason uint8

const (
	// Rejected: a consumer did not want it.
	Rejected Reason = iota
	// Expired: its time was over.
	Expired
	// MaxLen: the queue had no room for it.
	MaxLen
	// DeliveryLimit: it came back too often.
	DeliveryLimit

	// Reasons is how many there are.
	Reasons = iota
)

var reasonNames = [Reasons]string{"rejected", "expired", "maxlen", "delivery_limit"}

// String returns the reason as the headers have it.
func (r Reason) String() string { return reasonNames[r] }

// Death is one death of a message.
type Death struct {
	Reason Reason
	Queue  string // it died there
	Time   int64  // s since 1970
}

// Keys appends the routing keys that a message has, borrowed: its own, those of its CC header, and the hidden ones. shown is how many
// there are without the hidden ones.
func Keys(dst [][]byte, v *message.View) (keys [][]byte, shown int) {
	start := len(dst)
	dst = append(dst, v.RoutingKey)
	if v.Rekeyed {
		return dst, 1
	}
	if v.Properties.Has(wire.Headers) {
		cc, _ := v.Properties.Headers().Get("CC")
		for e := range cc.Array() {
			if e.Kind == wire.KindString {
				key, _ := e.Bytes()
				dst = append(dst, key)
			}
		}
	}
	shown = len(dst) - start
	for key := range v.HiddenKeys() {
		dst = append(dst, key)
	}
	return dst, shown
}

// Cycle reports whether a message that has just died would be in a queue for the second time without that any consumer had anything to do with
// it: it is not to go there. p are its properties with its last death recorded, for another reason than Rejected.
func Cycle(p wire.Properties, queue string) bool {
	deaths, _ := p.Headers().Get(xDeath)
	for v := range deaths.Array() {
		in, reason := eventOf(v)
		if string(reason) == reasonNames[Rejected] {
			return false
		}
		if string(in) == queue {
			return true
		}
	}
	return false
}

// eventOf is the queue and the reason of an entry of x-death, borrowed.
func eventOf(v wire.Value) (queue, reason []byte) {
	t, _ := v.Table()
	for name, f := range t.Fields() {
		switch string(name) {
		case "queue":
			queue, _ = f.Bytes()
		case "reason":
			reason, _ = f.Bytes()
		}
	}
	return queue, reason
}
