package session

import (
	"testing"

	"holdfast/internal/wire"
)

// A transaction of small messages is bounded by what they cost, not by the bytes
// they say.
func TestTransactionOfSmallMessages(t *testing.T) {
	r := newRig(t)
	c := r.client(t)
	c.method(1, &wire.TxSelect{})
	c.expect(wire.IDTxSelectOk)
	ch := r.session().channel(1)
	small := build(0)
	for n := 0; ch.txPublish(txPublish{message: small}) == nil; n++ {
		if n > maxTxBytes/txOverhead {
			t.Fatalf("%d messages are held", n)
		}
	}
	c.method(1, &wire.TxRollback{}) // from here on the channel is its owner's again
	c.expect(wire.IDTxRollbackOk)
}
