package perf

import (
	"encoding/binary"

	"holdfast/internal/wire"
)

// stampSize is what a body begins with: when it was sent, and its id.
const stampSize = 16

// route is where a message is published to.
type route struct{ exchange, key string }

// ring is a run of encoded publishes, one after the other, that a producer
// sends again and again. Only the stamps change.
type ring struct {
	bytes  []byte
	starts []int // of each publish, and the end of the last
	bodies []int // where each one's stamp is
	at     int   // the publish to send next
	same   bool  // all go to one place, so that any publish will do for the next
}

// message is what the publishes of a ring are made of.
type message struct {
	properties wire.Properties
	mandatory  bool
	size       int
	frameMax   uint32
}

// newRing encodes publishes that go round the routes; one write is at most
// batch of them and about 128 KiB.
func newRing(m message, routes []route, batch int) *ring {
	r := &ring{same: len(routes) == 1}
	body := make([]byte, max(m.size, stampSize))
	for i := range body {
		body[i] = byte('a' + i%26)
	}
	for len(r.bodies) == 0 || len(r.bodies)%len(routes) != 0 || (len(r.bodies) < batch && len(r.bytes) < 128<<10) {
		to := routes[len(r.bodies)%len(routes)]
		r.starts = append(r.starts, len(r.bytes))
		r.bytes = wire.AppendMethod(r.bytes, 1, &wire.BasicPublish{
			Exchange: []byte(to.exchange), RoutingKey: []byte(to.key), Mandatory: m.mandatory,
		})
		r.bytes = wire.AppendContentHeader(r.bytes, 1, m.properties, uint64(len(body)))
		r.bodies = append(r.bodies, len(r.bytes)+wire.FrameHeaderSize)
		r.bytes = wire.AppendBody(r.bytes, 1, body, m.frameMax)
	}
	r.starts = append(r.starts, len(r.bytes))
	return r
}

// most is how many publishes may go out in the next write.
func (r *ring) most() int { return len(r.bodies) - r.at }

// stamp marks the i-th publish of the next write.
func (r *ring) stamp(i int, sent int64, id uint64) {
	b := r.bytes[r.bodies[r.at+i]:]
	binary.BigEndian.PutUint64(b, uint64(sent))
	binary.BigEndian.PutUint64(b[8:], id)
}

// take gives the bytes of the next n publishes and moves on.
func (r *ring) take(n int) []byte {
	b := r.bytes[r.starts[r.at]:r.starts[r.at+n]]
	if r.at += n; r.same || r.at == len(r.bodies) {
		r.at = 0
	}
	return b
}

// An id names a message: the producer's number above, the message's below.
const numberBits = 48

func messageID(producer int, number uint64) uint64 { return uint64(producer)<<numberBits | number }

func splitID(id uint64) (producer int, number uint64) {
	return int(id >> numberBits), id & (1<<numberBits - 1)
}
