package session

import "testing"

// A transaction of small messages is bounded by what they cost, not by the bytes
// they say.
func TestTransactionOfSmallMessages(t *testing.T) {
	collected, small := &tx{}, build(0)
	for n := 0; collected.publish(txPublish{message: small}) == nil; n++ {
		if n > maxTxBytes/txOverhead {
			t.Fatalf("%d messages are held", n)
		}
	}
}
