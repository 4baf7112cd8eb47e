package session

import (
	"testing"

	"holdfast/internal/amqperr"
	"holdfast/internal/wire"
)

// A channel that its client closed cannot be opened again before that is
// answered; after a channel error it is the closing handshake that is awaited.
func TestOpenWhileClosing(t *testing.T) {
	open := wire.Frame{Type: wire.FrameMethod, Payload: (&wire.ChannelOpen{}).AppendTo(nil)}
	for _, c := range []struct {
		state channelState
		code  uint16
	}{{channelFailing, 0}, {channelFailed, 0}, {channelClosed, amqperr.ChannelError}} {
		ch := &channel{ended: true, state: c.state}
		var code uint16
		if err := ch.frame(open); err != nil {
			code = err.Code
		}
		if code != c.code {
			t.Errorf("state %d: %d, want %d", c.state, code, c.code)
		}
	}
}
