package wire

import (
	"bytes"
	"fmt"
	"math/bits"
	"testing"
	"time"
)

func everyProperty() Properties {
	prio := uint8(9)
	return NewProperties(PropertySet{
		ContentType: "text/plain", ContentEncoding: "gzip", Headers: NewTable(map[string]any{"k": "v"}),
		DeliveryMode: Persistent, Priority: &prio, CorrelationID: "c-1", ReplyTo: "answers", Expiration: "1000",
		MessageID: "m-1", Timestamp: time.Unix(1700000000, 0), Type: "order", UserID: "ann", AppID: "shop", ClusterID: "old",
	})
}

func TestPropertiesOfEveryKind(t *testing.T) {
	p, err := ParseProperties(everyProperty())
	if err != nil {
		t.Fatal(err)
	}
	want := "map[app_id:shop cluster_id:old content_encoding:gzip content_type:text/plain correlation_id:c-1 delivery_mode:2 " +
		"expiration:1000 headers:map[k:v] message_id:m-1 priority:9 reply_to:answers timestamp:1700000000 type:order user_id:ann]"
	if got := fmt.Sprint(p.Map()); got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	got := fmt.Sprint(p.ContentType(), p.CorrelationID(), p.ReplyTo(), p.Expiration(), p.MessageID(), p.UserID(), p.DeliveryMode())
	if got != "text/plain c-1 answers 1000 m-1 ann 2" && got != "text/plainc-1answers1000m-1ann2" {
		t.Error(got)
	}
	if v, _ := p.Headers().Get("k"); v.Kind != KindString {
		t.Errorf("headers: %v", p.Headers().Map())
	}
	if n, ok := p.Priority(); n != 9 || !ok {
		t.Errorf("priority %d %v", n, ok)
	}
	if ts, ok := p.Timestamp(); ts.Unix() != 1700000000 || !ok {
		t.Errorf("timestamp %v %v", ts, ok)
	}
}

func TestNoProperties(t *testing.T) {
	for _, p := range []Properties{nil, {0, 0}} {
		if p.DeliveryMode() != 0 || p.UserID() != "" || p.Headers() != nil || p.Has(ContentType) || len(p.Map()) != 0 {
			t.Errorf("%x names something: %v", []byte(p), p.Map())
		}
	}
}

func TestPropertiesRefused(t *testing.T) {
	whole := everyProperty()
	for i := range whole {
		if _, err := ParseProperties(whole[:i]); err == nil {
			t.Errorf("cut at %d of %d was accepted", i, len(whole))
		}
	}
	for name, b := range map[string][]byte{
		"second flag word":  {0, 1, 0, 0},
		"unused flag":       {0, 2},
		"bytes left over":   append(append([]byte(nil), whole...), 0),
		"headers not valid": {0x20, 0, 0, 0, 0, 2, 1, 'k'},
	} {
		if _, err := ParseProperties(b); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

func TestWithHeaders(t *testing.T) {
	h := NewTable(map[string]any{"new": 1})
	for _, p := range []Properties{nil, everyProperty(), NewProperties(PropertySet{ContentType: "a", AppID: "b"}), NewProperties(PropertySet{AppID: "b"})} {
		with, err := ParseProperties(p.WithHeaders(h))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(with.Headers(), h) || with.Str(AppID) != p.Str(AppID) || with.ContentType() != p.ContentType() {
			t.Errorf("%v became %v", p.Map(), with.Map())
		}
		empty, err := ParseProperties(with.WithHeaders(nil))
		if err != nil || !empty.Has(Headers) || empty.Headers().Len() != 0 || empty.Str(AppID) != p.Str(AppID) {
			t.Errorf("%v became %v, %v", with.Map(), empty.Map(), err)
		}
	}
}

func TestWithStr(t *testing.T) {
	p, err := ParseProperties(everyProperty().WithStr(ReplyTo, "elsewhere"))
	if err != nil || p.ReplyTo() != "elsewhere" || p.CorrelationID() != "c-1" || p.Str(ClusterID) != "old" {
		t.Errorf("%v, %v", p.Map(), err)
	}
}

func FuzzProperties(f *testing.F) {
	f.Add([]byte(everyProperty()))
	f.Add([]byte{0, 0})
	f.Add([]byte{0x20, 0, 0, 0, 0, 2, 1, 'k'})
	f.Fuzz(func(t *testing.T, b []byte) {
		p, err := ParseProperties(b)
		if err != nil {
			return
		}
		n := 0
		for what := range p.Encoded() {
			if !p.Has(what) || p.value(what) == nil {
				t.Fatalf("property %d is lost", what)
			}
			n++
		}
		if n != bits.OnesCount16(p.Flags()) {
			t.Fatalf("%d properties, flags %04x", n, p.Flags())
		}
		_ = p.Map()
		if h := p.Headers(); len(h) > 0 && !bytes.Equal(p.WithHeaders(h), p) {
			t.Fatal("putting the same headers back changed the bytes")
		}
	})
}

func BenchmarkParseProperties(b *testing.B) {
	raw := NewProperties(PropertySet{ContentType: "application/json", DeliveryMode: Persistent, MessageID: "0af7651916cd43dd"})
	b.ReportAllocs()
	for b.Loop() {
		p, err := ParseProperties(raw)
		if err != nil || p.DeliveryMode() != Persistent {
			b.Fatal(err)
		}
	}
}
