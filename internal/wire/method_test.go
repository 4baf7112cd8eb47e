package wire

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
)

// decodeMethod reads the payload of a method frame. An id the protocol does not
// have gives a nil Method and no error.
func decodeMethod(payload []byte) (Method, error) {
	id, args, ok := SplitMethod(payload)
	if !ok {
		return nil, &DecodeError{Problem: errShort.Error()}
	}
	m := NewMethod(id)
	if m == nil {
		return nil, nil
	}
	return m, m.Decode(args)
}

// allMethods has one of each method, every field filled in.
func allMethods(t testing.TB) []Method {
	var all []Method
	for class := range uint16(100) {
		for method := range uint16(130) {
			m := NewMethod(MethodID(class)<<16 | MethodID(method))
			if m == nil {
				continue
			}
			fill(reflect.ValueOf(m).Elem())
			all = append(all, m)
		}
	}
	if len(all) != 66 {
		t.Fatalf("%d methods", len(all))
	}
	return all
}

func fill(v reflect.Value) {
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.Bool:
			f.SetBool(i%2 == 0)
		case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
			f.SetUint(uint64(i + 3))
		case reflect.String:
			f.SetString(fmt.Sprintf("field-%d", i))
		case reflect.Slice:
			if f.Type() == reflect.TypeFor[Table]() {
				f.Set(reflect.ValueOf(everyKind()))
			} else {
				f.SetBytes([]byte(fmt.Sprintf("bytes-%d", i)))
			}
		}
	}
}

func TestEveryMethodRoundTrips(t *testing.T) {
	for _, m := range allMethods(t) {
		payload := m.AppendTo(nil)
		again, err := decodeMethod(payload)
		if err != nil {
			t.Errorf("%s: %v", m.ID(), err)
			continue
		}
		if !reflect.DeepEqual(m, again) {
			t.Errorf("%s:\n%+v\n%+v", m.ID(), m, again)
		}
	}
}

func TestEveryMethodRefusesOtherLengths(t *testing.T) {
	for _, m := range allMethods(t) {
		payload := m.AppendTo(nil)
		for n := 4; n < len(payload); n++ {
			if _, err := decodeMethod(payload[:n]); err == nil {
				t.Errorf("%s cut at %d of %d was accepted", m.ID(), n, len(payload))
			}
		}
		if _, err := decodeMethod(append(payload, 0)); err == nil {
			t.Errorf("%s with a byte too many was accepted", m.ID())
		}
	}
}

func TestMethodsAsOthersEncodeThem(t *testing.T) {
	for _, c := range []struct {
		m    Method
		want string
	}{
		{&QueueDeclare{Queue: "q", Durable: true, NoWait: true}, "003200" + "0a" + "0000" + "0171" + "12" + "00000000"},
		{&ExchangeDeclare{Exchange: "x", Type: "topic", AutoDelete: true, Internal: true}, "0028000a" + "0000" + "0178" + "05746f706963" + "0c" + "00000000"},
		{&BasicNack{DeliveryTag: 7, Multiple: true, Requeue: true}, "003c0078" + "0000000000000007" + "03"},
		{&ConnectionOpen{VirtualHost: "/"}, "000a0028" + "012f" + "00" + "00"},
		{&ChannelOpenOk{}, "0014000b" + "00000000"},
	} {
		if got := fmt.Sprintf("%x", c.m.AppendTo(nil)); got != c.want {
			t.Errorf("%s: %s, want %s", c.m.ID(), got, c.want)
		}
	}
}

// T9
func TestShortStringMustBeUTF8(t *testing.T) {
	m := &QueueDeclare{Queue: "q\xff"}
	_, err := decodeMethod(m.AppendTo(nil))
	var de *DecodeError
	if !errors.As(err, &de) || de.Field != "queue" || de.Method != IDQueueDeclare {
		t.Fatalf("got %v", err)
	}
}

func TestLongestShortString(t *testing.T) {
	for n, want := range map[int]int{255: 255, 256: 255} {
		m := &QueueDeclare{Queue: strings.Repeat("q", n)}
		again, err := decodeMethod(m.AppendTo(nil))
		if err != nil || len(again.(*QueueDeclare).Queue) != want {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

// T1
func TestProtocolHeader(t *testing.T) {
	for _, c := range []struct {
		header string
		want   Greeting
		answer string
	}{
		{"AMQP\x00\x00\x09\x01", Accepted, ""},
		{"AMQP\x01\x01\x00\x09", Accepted, ""},
		{"AMQP\x00\x00\x0a\x00", Refused091, "AMQP\x00\x00\x09\x01"},
		{"AMQP\x00\x00\x09\x02", Refused091, "AMQP\x00\x00\x09\x01"},
		{"AMQP\x03\x01\x00\x00", Refused100SASL, "AMQP\x00\x00\x09\x01"},
		{"AMQP\x00\x01\x00\x00", RefusedOther, "AMQP\x03\x01\x00\x00"},
		{"GET / HT", RefusedOther, "AMQP\x03\x01\x00\x00"},
		{"\x16\x03\x01\x02\x00\x01\x00\x01", RefusedOther, "AMQP\x03\x01\x00\x00"},
	} {
		got := ParseProtocolHeader([8]byte([]byte(c.header)))
		if got != c.want || string(got.Answer()) != c.answer {
			t.Errorf("%q: %d, answer %q", c.header, got, got.Answer())
		}
	}
}

func TestContentFrames(t *testing.T) {
	body := bytes.Repeat([]byte("x"), 10000)
	out := AppendContent(nil, 3, everyProperty(), body, MinFrameMax)
	var got []byte
	for n := 0; len(out) > 0; n++ {
		head := ParseFrameHead(out)
		size := int(head.Size) + FrameOverhead
		if head.Channel != 3 || size > MinFrameMax || out[size-1] != FrameEnd {
			t.Fatalf("frame %d: %+v", n, head)
		}
		payload := out[FrameHeaderSize : size-1]
		if n == 0 {
			h, err := ParseContentHeader(payload)
			if err != nil || head.Type != FrameHeader || h.BodySize != 10000 || h.Class != ClassBasic || !bytes.Equal(h.Properties, everyProperty()) {
				t.Fatalf("header %+v: %v", h, err)
			}
		} else {
			if head.Type != FrameBody {
				t.Fatalf("frame %d: %+v", n, head)
			}
			got = append(got, payload...)
		}
		out = out[size:]
	}
	if !bytes.Equal(got, body) {
		t.Error("body differs")
	}
	// T6: an empty body has no body frame.
	empty := AppendContent(nil, 3, nil, nil, MinFrameMax)
	if head := ParseFrameHead(empty); int(head.Size)+FrameOverhead != len(empty) {
		t.Errorf("%x", empty)
	}
}

func FuzzMethod(f *testing.F) {
	for _, m := range allMethods(f) {
		f.Add(m.AppendTo(nil))
	}
	f.Add([]byte{0, 60, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMethod(b)
		if err != nil || m == nil {
			return
		}
		again, err := decodeMethod(m.AppendTo(nil))
		if err != nil || !reflect.DeepEqual(m, again) {
			t.Fatalf("%+v became %+v, %v", m, again, err)
		}
	})
}

func FuzzContentHeader(f *testing.F) {
	f.Add([]byte("\x00\x3c\x00\x00\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00"))
	f.Add(AppendContentHeader(nil, 1, everyProperty(), 9)[FrameHeaderSize:])
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ParseContentHeader(b)
		if err != nil {
			return
		}
		out := AppendContentHeader(nil, 1, h.Properties, h.BodySize)
		again, err := ParseContentHeader(out[FrameHeaderSize : len(out)-1])
		if err != nil || again.BodySize != h.BodySize || !bytes.Equal(again.Properties, h.Properties) {
			t.Fatalf("%+v became %+v, %v", h, again, err)
		}
	})
}

func BenchmarkDecodePublish(b *testing.B) {
	payload := (&BasicPublish{Exchange: []byte("orders"), RoutingKey: []byte("eu.de.created")}).AppendTo(nil)
	var m BasicPublish
	b.ReportAllocs()
	for b.Loop() {
		_, args, _ := SplitMethod(payload)
		if err := m.Decode(args); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendDelivery(b *testing.B) {
	body := make([]byte, 1024)
	p := NewProperties(PropertySet{DeliveryMode: Transient})
	m := BasicDeliver{ConsumerTag: []byte("ctag"), Exchange: []byte("orders"), RoutingKey: []byte("eu.de.created")}
	buf := make([]byte, 0, 64<<10)
	b.ReportAllocs()
	for b.Loop() {
		m.DeliveryTag++
		buf = AppendMethod(buf[:0], 1, &m)
		buf = AppendContent(buf, 1, p, body, 131072)
	}
}

// BenchmarkPublishFrames is what arrives of a publish of 1 KiB: three frame heads, the method, and the content header.
func BenchmarkPublishFrames(b *testing.B) {
	bytes := appendPublish(nil, make([]byte, 1024))
	var m BasicPublish
	b.ReportAllocs()
	for b.Loop() {
		var frames [3]Frame
		for at, i := 0, 0; at < len(bytes); i++ {
			head := ParseFrameHead(bytes[at:])
			frames[i] = Frame{Type: head.Type, Channel: head.Channel, Payload: bytes[at+FrameHeaderSize : at+FrameHeaderSize+int(head.Size)]}
			at += int(head.Size) + FrameOverhead
		}
		_, args, _ := SplitMethod(frames[0].Payload)
		if err := m.Decode(args); err != nil {
			b.Fatal(err)
		}
		if h, err := ParseContentHeader(frames[1].Payload); err != nil || int(h.BodySize) != len(frames[2].Payload) {
			b.Fatal(h.BodySize, err)
		}
	}
}

// BenchmarkAppendPublish encodes the same.
func BenchmarkAppendPublish(b *testing.B) {
	body, buf := make([]byte, 1024), make([]byte, 0, 64<<10)
	b.ReportAllocs()
	for b.Loop() {
		buf = appendPublish(buf[:0], body)
	}
}

var (
	benchProperties = NewProperties(PropertySet{DeliveryMode: Transient})
	benchPublish    = &BasicPublish{Exchange: []byte("orders"), RoutingKey: []byte("eu.de.created")}
)

func appendPublish(dst, body []byte) []byte {
	dst = AppendMethod(dst, 1, benchPublish)
	return AppendContent(dst, 1, benchProperties, body, 131072)
}
