package session

import (
	"holdfast/internal/broker"
	"holdfast/internal/wire"
)

// The headers that tell a consumer how often a message came back, as RabbitMQ names them: altogether, and by the fault of
// consumers (https://www.rabbitmq.com/docs/quorum-queues#poison-message-handling).
const (
	acquiredHeader = "x-acquired-count"
	deliveryHeader = "x-delivery-count"
)

// withCounts returns properties with the counts of a delivery among the headers, in place of what a publisher called so. They are left out if the
// frame would become too large.
func withCounts(p wire.Properties, d *broker.Delivery, frameMax int) wire.Properties {
	var h wire.Table
	for key, v := range p.Headers().All() {
		if key != acquiredHeader && key != deliveryHeader {
			h = h.AppendValue(key, v)
		}
	}
	h = h.Append(acquiredHeader, int64(d.Acquired))
	if d.Count > 0 {
		h = h.Append(deliveryHeader, int64(d.Count))
	}
	with := p.WithHeaders(h)
	if len(with)+contentHeaderSize > frameMax {
		return p
	}
	return with
}

// contentHeaderSize is what a content header takes beside its properties: the frame, class, weight and size.
const contentHeaderSize = wire.FrameOverhead + 2 + 2 + 8
