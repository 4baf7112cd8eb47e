package queuehost

import (
	"testing"

	"holdfast/internal/message"
	"holdfast/internal/wire"
)

// R585: a header that is no delay is none: the message waits as long as its queue says.
func TestDelayOfWhatIsNone(t *testing.T) {
	const ofQueue = 7e6
	for _, c := range []struct {
		header any
		want   uint64
	}{
		{int32(9), 9e6}, {"9", 9e6}, {int32(3), ofQueue},
		{"soon", ofQueue}, {"", ofQueue}, {int32(-9), ofQueue}, {int64(message.MostDelay + 1), ofQueue}, {nil, ofQueue}, {true, ofQueue},
		{wire.NewTable(map[string]any{"ms": int32(9)}), ofQueue}, {[]any{int32(9)}, ofQueue},
	} {
		var b message.Builder
		b.Begin("", "q", wire.NewProperties(wire.PropertySet{Headers: wire.NewTable(nil).Append(message.DelayHeader, c.header)}), 0, true)
		p := pack{delay: ofQueue}
		want(t, "delay", p.delayOf(b.Message().Head), c.want)
	}
}
