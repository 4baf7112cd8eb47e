package deadletter

import (
	"testing"

	"holdfast/internal/wire"
)

// R475: where a message died last, and first, is what the server has written, and nothing that a client has.
func TestOrigin(t *testing.T) {
	v := view("work", "k", wire.PropertySet{Headers: wire.NewTable(map[string]any{"CC": []any{"c"}, "x-death": []any{entry(7, "expired", "f", 1, "", "x")}})})
	if o, is := LastOrigin(&v); is {
		t.Errorf("of a forged history: %v", o)
	}
	v = die(t, v, Death{Expired, "a", 10}, "dlx", new("only"))
	first := Origin{Queue: "a", Exchange: "work", Reason: "expired", Keys: []string{"k", "c"}, Time: 10}
	for range 2 {
		o, _ := LastOrigin(&v)
		expect(t, "last", o, first)
		o, _ = FirstOrigin(&v)
		expect(t, "first", o, first)
	}
	v = die(t, v, Death{Rejected, "a", 20}, "", nil)
	v = die(t, v, Death{MaxLen, "b", 30}, "", nil)
	o, _ := LastOrigin(&v)
	expect(t, "last", o, Origin{Queue: "b", Reason: "maxlen", Keys: []string{"only"}, Time: 30})
	o, _ = FirstOrigin(&v)
	expect(t, "first", o, first)
	if !IsReason("delivery_limit") || IsReason("other") {
		t.Error("reasons")
	}
}
