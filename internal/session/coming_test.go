package session

import (
	"testing"

	"holdfast/internal/wire"
)

// R410: what has come of a message counts as such until the message is complete, or will not be.
func TestIncompleteMessagesCount(t *testing.T) {
	r := newRig(t)
	c := r.client(t)
	const frameMax = 131072
	piece := make([]byte, 50_000)
	begin := func(exchange string, size uint64, pieces int) {
		c.method(1, &wire.BasicPublish{Exchange: []byte(exchange), RoutingKey: []byte("nobody")})
		b := wire.AppendContentHeader(nil, 1, nil, size)
		for range pieces {
			b = wire.AppendBody(b, 1, piece, frameMax)
		}
		c.write(b)
	}
	credit := r.session().credit
	counts := func(what string, want int64) {
		t.Helper()
		until(t, what, func() bool { return credit.Incomplete() == want })
	}
	begin("", 150_000, 2)
	counts("two pieces have come", 100_000)
	c.write(wire.AppendBody(nil, 1, piece, frameMax))
	counts("it is complete", 0)
	begin("", 60_000, 1)
	c.method(2, &wire.ChannelOpen{})
	c.expect(wire.IDChannelOpenOk)
	counts("a small one does not count", 0)
	c.write(wire.AppendBody(nil, 1, piece[:10_000], frameMax))
	begin("", 100_000, 1)
	counts("a piece has come", 50_000)
	c.method(1, &wire.ChannelOpen{}) // which makes no sense here
	c.expect(wire.IDConnectionClose)
	counts("the connection is over", 0)
}
