package queuehost

import (
	"testing"

	"holdfast/internal/message"
	"holdfast/internal/queue"
)

// BenchmarkFarWire writes and reads what goes between nodes for one message: a publish, a delivery, an outcome and a
// settlement. Messages of 1 KiB, numbers as they are after an hour.
func BenchmarkFarWire(b *testing.B) {
	p := Publish{Message: message.Message{Head: make([]byte, 1100)}, Persistent: true}
	d := Delivery{ID: 1 << 24, Message: p.Message}
	o := op{kind: opSettle, how: queue.Ack, consumer: 300, first: 1 << 24, last: 1<<24 + 99}
	r := outcomes{first: 1 << 24, last: 1<<24 + 99}
	buf := make([]byte, 0, 4096)
	b.ReportAllocs()
	for b.Loop() {
		buf = appendPublish(buf[:0], &p)
		buf = appendDelivery(buf, &d, d.Message.Head, 0)
		buf = appendUrgent(buf, &o)
		buf = r.append(buf)
		c := newCut(buf)
		var chunks [][]byte
		var p2 Publish
		var d2 Delivery
		c.publish(&p2, &chunks)
		c.delivery(&d2, &chunks)
		if c.urgent() != o || c.outcomes() != r || !c.ended() {
			b.Fatal("what was written is not read")
		}
	}
}
