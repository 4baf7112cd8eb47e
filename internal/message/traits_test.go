package message

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"holdfast/internal/wire"
)

func TestTraits(t *testing.T) {
	for _, c := range []struct {
		set  wire.PropertySet
		want Traits
	}{
		{wire.PropertySet{}, Traits{Size: 5}},
		{wire.PropertySet{MessageID: "1", Priority: new(uint8(7))}, Traits{Size: 5, Priority: 7, HasPriority: true}},
		{wire.PropertySet{Expiration: "0"}, Traits{Size: 5, Expires: true}},
		{wire.PropertySet{Expiration: "60000", Priority: new(uint8(255)), UserID: "x"}, Traits{Size: 5, Priority: 255, HasPriority: true, Expires: true, TTL: 60000}},
		{wire.PropertySet{Expiration: "99999999999999999999999"}, Traits{Size: 5, Expires: true, TTL: MostTTL}},
		{wire.PropertySet{Expiration: "-1"}, Traits{Size: 5}},
	} {
		var b Builder
		m := build(&b, published{"x", "k", wire.NewProperties(c.set), []byte("hello"), true}, 5)
		if got := ReadTraits(m.Head); got != c.want {
			t.Errorf("%+v: %+v, want %+v", c.set, got, c.want)
		}
		if got := Special(m.Head); got != (c.set.Priority != nil || c.set.Expiration != "") {
			t.Errorf("%+v: special: %v", c.set, got)
		}
	}
	if got := ReadTraits([]byte{9}); got != (Traits{}) {
		t.Errorf("of no message: %+v", got)
	}
	// A body is not taken for properties, and what is no head does no harm.
	var b Builder
	m := build(&b, published{"x", "k", nil, bytes.Repeat([]byte{255}, 20), true}, 20)
	for n := range len(m.Head) + 1 {
		if Special(m.Head[:n]) {
			t.Errorf("the first %d bytes are special", n)
		}
	}
	for _, head := range [][]byte{nil, {0, 255}, {0, 0, 255}, {0, 0, 0, 1, 1, 1, 1}} {
		if Special(head) {
			t.Errorf("%v is special", head)
		}
	}
}

func TestReaddress(t *testing.T) {
	keys := []string{"", "a", strings.Repeat("k", 1000)}
	var hidden []byte
	for _, k := range keys {
		hidden = AppendHidden(hidden, k)
	}
	for _, size := range []int{0, 1, ownSize, ChunkSize, ChunkSize + 1, 2*ChunkSize + 5} {
		var b Builder
		old := published{"from", "key", wire.NewProperties(wire.PropertySet{Expiration: "5"}), noise[:size], size%2 == 0}
		m := build(&b, old, 1000)
		v, err := Parse(m.Head)
		if err != nil {
			t.Fatal(err)
		}
		if v.History || v.Rekeyed || v.Hidden != nil {
			t.Fatalf("a message as it was published has a history: %+v", v)
		}
		fresh := old
		fresh.exchange, fresh.key, fresh.properties = "to", "another", wire.NewProperties(wire.PropertySet{MessageID: "7", Priority: new(uint8(3))})
		h := Heading{
			Exchange: []byte(fresh.exchange), Key: []byte(fresh.key), Properties: fresh.properties, Persistent: fresh.persistent,
			Hidden: hidden, History: true, Rekeyed: size%2 == 1,
		}
		again := b.Readdress(&h, v, m.Chunks)
		same(t, again, fresh)
		same(t, m, old)
		v, _ = Parse(again.Head)
		var got []string
		for k := range v.HiddenKeys() {
			got = append(got, string(k))
		}
		if !slices.Equal(got, keys) || !v.History || v.Rekeyed != h.Rekeyed {
			t.Fatalf("history %v, rekeyed %v, hidden %q", v.History, v.Rekeyed, got)
		}
		if got := ReadTraits(again.Head); !Special(again.Head) || got != (Traits{Size: uint64(size), Priority: 3, HasPriority: true}) {
			t.Fatalf("traits %+v", got)
		}
		for n := range len(again.Head) - len(v.Body) {
			if _, err := Parse(again.Head[:n]); err == nil {
				t.Fatalf("the first %d bytes parse", n)
			}
		}
	}
}

func BenchmarkSpecial(b *testing.B) {
	var x Builder
	m := build(&x, published{"x", "k", wire.NewProperties(wire.PropertySet{ContentType: "text/plain", DeliveryMode: 2}), bytes.Repeat([]byte("x"), 1024), true}, 1024)
	b.ReportAllocs()
	for b.Loop() {
		if Special(m.Head) {
			b.Fatal()
		}
	}
}
