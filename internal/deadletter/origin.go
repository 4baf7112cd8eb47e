package deadletter

import (
	"slices"

	"holdfast/internal/message"
	"holdfast/internal/wire"
)

// Origin is where a message died, and how it had come there.
type Origin struct {
	Queue, Exchange string
	Reason          string
	Keys            []string // its routing key, and those of its CC header, if they counted
	Time            int64    // of its first death there for this reason, s since 1970
}

// LastOrigin is where a message died last, as its history says, if it has one of the server's own.
func LastOrigin(v *message.View) (Origin, bool) {
	return findOrigin(v, func(*Origin) bool { return true })
}

// FirstOrigin is where it died first. Of a history that was cut it may be unknown.
func FirstOrigin(v *message.View) (Origin, bool) {
	queue, _ := v.Properties.Headers().Get(xFirst + "queue")
	reason, _ := v.Properties.Headers().Get(xFirst + "reason")
	inQueue, _ := queue.Str()
	because, _ := reason.Str()
	return findOrigin(v, func(o *Origin) bool { return o.Queue == inQueue && o.Reason == because })
}

// findOrigin returns the newest entry that fits.
func findOrigin(v *message.View, fits func(*Origin) bool) (o Origin, found bool) {
	if !v.History || !v.Properties.Has(wire.Headers) {
		return Origin{}, false
	}
	deaths, _ := v.Properties.Headers().Get(xDeath)
	for e := range deaths.Array() {
		if o = origin(e); fits(&o) {
			return o, true
		}
	}
	return Origin{}, false
}

func origin(e wire.Value) (o Origin) {
	t, _ := e.Table()
	for name, f := range t.Fields() {
		switch string(name) {
		case "queue":
			o.Queue, _ = f.Str()
		case "exchange":
			o.Exchange, _ = f.Str()
		case "reason":
			o.Reason, _ = f.Str()
		case "time":
			at, _ := f.Time()
			o.Time = at.Unix()
		case "routing-keys":
			for key := range f.Array() {
				text, _ := key.Str()
				o.Keys = append(o.Keys, text)
			}
		}
	}
	return o
}

// IsReason reports whether messages die of what has this name.
func IsReason(name string) bool { return slices.Contains(reasonNames[:], name) }
