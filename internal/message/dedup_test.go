package message

import (
	"strings"
	"testing"
	"time"

	"holdfast/internal/wire"
)

// R431 R543: equal values of one type have one key, others not; nothing that is no scalar has one, nor has a header without a value.
func TestHeaderKeys(t *testing.T) {
	with := func(v any) (Key, bool) {
		return HeaderKey(wire.NewProperties(wire.PropertySet{Headers: wire.Table{}.Append(DeduplicationHeader, v)}))
	}
	same := [][]any{
		{int8(1), int16(1), int32(1), int64(1), uint8(1)},
		{"1", []byte("1")},
		{true}, {false}, {1.0, float32(1)}, {1.5}, {int64(0)}, {int64(-1)}, {""},
		{time.Unix(1, 0)}, {wire.Decimal{Scale: 1, Unscaled: 10}}, {wire.Decimal{Scale: 0, Unscaled: 10}},
		{strings.Repeat("x", 1000)}, {strings.Repeat("x", 1001)},
	}
	seen := map[Key]int{}
	for i, values := range same {
		for _, v := range values {
			key, ok := with(v)
			if !ok || key == (Key{}) || !HasHeaderKey(wire.NewProperties(wire.PropertySet{Headers: wire.Table{}.Append(DeduplicationHeader, v)})) {
				t.Fatalf("%T %v has no key", v, v)
			}
			if j, is := seen[key]; is && j != i {
				t.Errorf("%T %v has the key of %v", v, v, same[j])
			}
			seen[key] = i
		}
	}
	if len(seen) != len(same) {
		t.Errorf("%d keys, want %d", len(seen), len(same))
	}
	for _, v := range []any{nil, []any{int32(1)}, []any{}, wire.Table{}, wire.Table{}.Append("a", int32(1))} {
		if _, ok := with(v); ok || HasHeaderKey(wire.NewProperties(wire.PropertySet{Headers: wire.Table{}.Append(DeduplicationHeader, v)})) {
			t.Errorf("%v has a key", v)
		}
	}
	for _, p := range []wire.PropertySet{{}, {Headers: wire.Table{}.Append("other", "1")}} {
		if _, ok := HeaderKey(wire.NewProperties(p)); ok || HasHeaderKey(wire.NewProperties(p)) {
			t.Errorf("%v has a key", p)
		}
	}
}

// R432: so it is with message ids, and with publishers.
func TestKeysOfIDsAndPublishers(t *testing.T) {
	a, ok := IDKey(wire.NewProperties(wire.PropertySet{MessageID: "a"}))
	b, ok2 := IDKey(wire.NewProperties(wire.PropertySet{MessageID: "b"}))
	if _, none := IDKey(wire.NewProperties(wire.PropertySet{})); !ok || !ok2 || a == b || none {
		t.Errorf("%x %v, %x %v, without an id: %v", a, ok, b, ok2, none)
	}
	by := func(id, seq any) (Key, uint64, bool) {
		return PublisherKey(wire.NewProperties(wire.PropertySet{Headers: wire.Table{}.Append(PublisherHeader, id).Append(SequenceHeader, seq)}))
	}
	p, n, ok := by("p", int32(7))
	q, m, ok2 := by("q", int64(1<<62))
	if !ok || !ok2 || p == q || n != 7 || m != 1<<62 {
		t.Errorf("%x %d %v, %x %d %v", p, n, ok, q, m, ok2)
	}
	for _, c := range [][2]any{{"", int32(1)}, {int32(1), int32(1)}, {"p", "1"}, {"p", int32(-1)}, {"p", 1.0}} {
		if _, _, ok := by(c[0], c[1]); ok {
			t.Errorf("%v is a publisher", c)
		}
	}
	if _, _, ok := PublisherKey(wire.NewProperties(wire.PropertySet{})); ok {
		t.Error("nobody is a publisher")
	}
}

// R552 R557: for how long a message is to be known, and what makes no sense as that.
func TestCacheTTL(t *testing.T) {
	for _, c := range []struct {
		header  any
		ms      uint64
		ok      bool
		problem string
	}{
		{int8(5), 5, true, ""}, {int64(MostDelay), MostDelay, true, ""}, {int32(0), 0, true, ""}, {int64(-1 << 63), 0, true, ""}, {nil, 0, false, ""},
		{int64(MostDelay + 1), 0, false, "it is longer than ten years in milliseconds: 315360000001"}, {"5", 0, false, "it is no integer, but longstr"},
		{5.0, 0, false, "it is no integer, but double"},
	} {
		p := wire.NewProperties(wire.PropertySet{Headers: wire.Table{}.Append(CacheTTLHeader, c.header)})
		if ms, ok := CacheTTL(p); ms != c.ms || ok != c.ok {
			t.Errorf("%T %v: %d, %v", c.header, c.header, ms, ok)
		}
		if problem := CheckCacheTTL(p); problem != c.problem {
			t.Errorf("%T %v: %q", c.header, c.header, problem)
		}
	}
	if _, ok := CacheTTL(wire.NewProperties(wire.PropertySet{})); ok {
		t.Error("no headers say something")
	}
}
