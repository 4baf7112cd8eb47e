package session

import (
	"testing"

	"holdfast/internal/wire"
)

// Queues named in the BCC header get the message though it does not say so any
// more, even when the route has to be found a second time.
func TestBCCSurvivesASecondRoute(t *testing.T) {
	properties := wire.NewProperties(wire.PropertySet{
		Headers: wire.NewTable(map[string]any{"BCC": []any{"hidden"}}),
	})
	start := func(t *testing.T) *frameClient {
		c := newRig(t).client(t)
		for _, q := range []string{"seen", "hidden"} {
			c.method(1, &wire.QueueDeclare{Queue: q})
			c.expect(wire.IDQueueDeclareOk)
		}
		return c
	}
	publish := wire.AppendMethod(nil, 1, &wire.BasicPublish{RoutingKey: []byte("seen")})
	publish = wire.AppendContentHeader(publish, 1, properties, 1)
	body := wire.AppendBody(nil, 1, []byte("x"), 0)
	arrived := func(c *frameClient, n uint32) {
		t.Helper()
		for _, q := range []string{"seen", "hidden"} {
			c.method(1, &wire.QueuePurge{Queue: q})
			f, err := c.frame()
			if err != nil {
				t.Fatal(err)
			}
			var m wire.QueuePurgeOk
			if err := m.Decode(f.Payload[4:]); err != nil || m.MessageCount != n {
				t.Errorf("%s: %d messages, %v, want %d", q, m.MessageCount, err, n)
			}
		}
	}
	t.Run("flushed between header and body", func(t *testing.T) {
		c := start(t)
		c.method(1, &wire.ConfirmSelect{})
		c.expect(wire.IDConfirmSelectOk)
		c.write(append(append(append([]byte(nil), publish...), body...), publish...))
		c.expect(wire.IDBasicAck)
		c.write(body)
		c.expect(wire.IDBasicAck)
		arrived(c, 2)
	})
	t.Run("transaction", func(t *testing.T) {
		c := start(t)
		c.method(1, &wire.TxSelect{})
		c.expect(wire.IDTxSelectOk)
		c.write(append(append([]byte(nil), publish...), body...))
		c.method(1, &wire.TxCommit{})
		c.expect(wire.IDTxCommitOk)
		arrived(c, 1)
	})
}
