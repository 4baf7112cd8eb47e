package blackbox

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"holdfast/test/raw"
)

// R37 R38 T3 T4 T7: mistakes in frames and methods, and who pays for them.
func TestFrameFaults(t *testing.T) {
	publish := raw.Method(raw.BasicPublish, uint16(0), "", "nowhere", raw.Bits{false, false})
	send := func(kind byte, channel uint16, payload []byte) func(c *raw.Conn) error {
		return func(c *raw.Conn) error { return c.Write1(kind, channel, payload) }
	}
	all := func(steps ...func(c *raw.Conn) error) func(c *raw.Conn) error {
		return func(c *raw.Conn) error {
			for _, step := range steps {
				if err := step(c); err != nil {
					return err
				}
			}
			return nil
		}
	}
	method := func(channel uint16, id raw.ID, args ...any) func(c *raw.Conn) error {
		return send(raw.FrameMethod, channel, raw.Method(id, args...))
	}
	for _, c := range []struct {
		name  string
		do    func(c *raw.Conn) error
		scope scope
		code  int
	}{
		{"frame end octet", func(c *raw.Conn) error {
			f := raw.AppendFrame(nil, raw.FrameMethod, 1, raw.Method(raw.ChannelFlow, raw.Bits{true}))
			f[len(f)-1] = 0xCD
			_, err := c.Conn.Write(f)
			return err
		}, connFault, 501},
		{"frame type 5", send(5, 1, []byte{1, 2, 3, 4}), connFault, 501},
		{"frame type 0", send(0, 0, nil), connFault, 501},
		{"frame over frame_max", send(raw.FrameMethod, 1, make([]byte, 131073)), connFault, 501},
		{"heartbeat on channel 1", send(raw.FrameHeartbeat, 1, nil), connFault, 505},
		{"method on a channel not open", method(7, raw.BasicQos, uint32(0), uint16(0), raw.Bits{false}), connFault, 504},
		{"channel.open twice", method(1, raw.ChannelOpen, ""), connFault, 504},
		{"channel.open on 0", method(0, raw.ChannelOpen, ""), connFault, anyCode},
		{"basic.qos on 0", method(0, raw.BasicQos, uint32(0), uint16(0), raw.Bits{false}), connFault, anyCode},
		{"channel over the agreed number", method(2048, raw.ChannelOpen, ""), connFault, pick(t, "channel-number", unnoticed, 530)},
		{"connection method on a channel", method(1, raw.ConnectionOpen, "/", "", raw.Bits{false}), connFault, anyCode},
		{"unknown class", send(raw.FrameMethod, 1, raw.Encode(uint16(99), uint16(10))), connFault, pick(t, "decode-crash", dropped, anyCode)},
		{"unknown method", send(raw.FrameMethod, 1, raw.Encode(uint16(60), uint16(99))), connFault, pick(t, "decode-crash", dropped, anyCode)},
		{"method of the server", method(1, raw.BasicGetEmpty, ""), connFault, 503},
		{"arguments cut off", send(raw.FrameMethod, 1, raw.Encode(uint32(raw.QueueDeclare), uint16(0), uint8(200))), connFault, syntax},
		{"method frame of two octets", send(raw.FrameMethod, 1, []byte{0, 60}), connFault, syntax},
		{"unknown table type", method(1, raw.QueueDeclare, uint16(0), "", raw.Bits{false, false, true, false, false},
			raw.Fields(raw.Field("x", 'Z', uint32(1)))), connFault, pick(t, "decode-crash", dropped, syntax)},
		{"table shorter than it says", method(1, raw.QueueDeclare, uint16(0), "", raw.Bits{false, false, true, false, false},
			raw.Fields(raw.Field("x", 'S', uint32(100), raw.Raw("short")))), connFault, pick(t, "decode-crash", dropped, syntax)},
		{"short string not UTF-8", method(1, raw.QueueDeclare, uint16(0), "\xff\xfe", raw.Bits{false, false, true, false, false}, raw.Table{}),
			connFault, 501},
		{"header without a method", send(raw.FrameHeader, 1, raw.Header(0, raw.NoProperties)), connFault, 505},
		{"body without a method", send(raw.FrameBody, 1, []byte("x")), connFault, 505},
		{"body instead of a header", all(send(raw.FrameMethod, 1, publish), send(raw.FrameBody, 1, []byte("x"))), connFault, 505},
		{"method instead of a header", all(send(raw.FrameMethod, 1, publish), method(1, raw.TxSelect)), connFault, 505},
		{"method instead of a body", all(send(raw.FrameMethod, 1, publish),
			send(raw.FrameHeader, 1, raw.Header(10, raw.NoProperties)), method(1, raw.TxSelect)), connFault, 505},
		{"header of another class", all(send(raw.FrameMethod, 1, publish),
			send(raw.FrameHeader, 1, append(raw.Encode(uint16(50), uint16(0), uint64(0)), 0, 0))), connFault, 505},
		{"header cut off", all(send(raw.FrameMethod, 1, publish),
			send(raw.FrameHeader, 1, raw.Encode(uint16(60), uint16(0)))), connFault, syntax},
		{"properties cut off", all(send(raw.FrameMethod, 1, publish),
			send(raw.FrameHeader, 1, raw.Header(0, []byte{0x80, 0x00, 0x20, 'x'}))), connFault, pick(t, "bad-properties", 541, syntax)},
		{"body longer than the header said", all(send(raw.FrameMethod, 1, publish),
			send(raw.FrameHeader, 1, raw.Header(1, raw.NoProperties)), send(raw.FrameBody, 1, []byte("xy"))), connFault, pick(t, "long-body", unnoticed, anyCode)},
		{"declared body over 512 MiB", all(send(raw.FrameMethod, 1, publish),
			send(raw.FrameHeader, 1, raw.Header(512<<20+1, raw.NoProperties))), connFault, pick(t, "huge-body", unnoticed, 501)},
		{"close-ok nobody asked for", method(1, raw.ChannelCloseOk), connFault, anyCode},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := frames(t)
			if c.code == unnoticed {
				return
			}
			ok(t, c.do(s))
			if c.code == dropped {
				ok(t, s.Closed())
				return
			}
			faults(t, s, c.scope, c.code)
		})
	}
}

// T7: a body over the configured size is a mistake of the channel, and the
// connection goes on even though the body arrives.
func TestMessageTooLarge(t *testing.T) {
	t.Parallel()
	const size = 16<<20 + 1
	s := frames(t)
	ok(t, s.Write1(raw.FrameMethod, 1, raw.Method(raw.BasicPublish, uint16(0), "", "nowhere", raw.Bits{false, false})))
	ok(t, s.Write1(raw.FrameHeader, 1, raw.Header(size, raw.NoProperties)))
	if pick(t, "max-message-size", true, false) {
		return
	}
	for sent := 0; sent < size; sent += 100_000 {
		ok(t, s.Write1(raw.FrameBody, 1, make([]byte, min(100_000, size-sent))))
	}
	faults(t, s, chanFault, 406)
	ok(t, s.OpenChannel(3))
}

// T6: a message with nothing in it is complete after its header, and comes
// without a body frame.
func TestEmptyBody(t *testing.T) { onEachType(t, testEmptyBody) }

func testEmptyBody(t *testing.T, kind string) {
	s := frames(t)
	q := queueOf(t, open(t), kind)
	must(s.Call(1, raw.BasicConsume, raw.BasicConsumeOk, uint16(0), q, "", raw.Bits{false, true, false, false}, raw.Table{}))(t)
	for _, last := range []string{"", "end"} {
		ok(t, s.Publish(1, "", q, raw.NoProperties, []byte(last)))
	}
	for _, want := range []string{"", "end"} {
		must(s.Expect(1, raw.BasicDeliver))(t)
		h := must(s.ReadFrame())(t)
		equal(t, "frame type", h.Type, byte(raw.FrameHeader))
		equal(t, "body size", binary.BigEndian.Uint64(h.Payload[4:]), uint64(len(want)))
		if want != "" {
			b := must(s.ReadFrame())(t)
			equal(t, "frame type", b.Type, byte(raw.FrameBody))
			equal(t, "body", string(b.Payload), want)
		}
	}
}

// T6: bodies in many frames, empty ones among them, come out whole.
func TestBodyInPieces(t *testing.T) { onEachType(t, testBodyInPieces) }

func testBodyInPieces(t *testing.T, kind string) {
	s := frames(t)
	q := queueOf(t, open(t), kind)
	ok(t, s.Write1(raw.FrameMethod, 1, raw.Method(raw.BasicPublish, uint16(0), "", q, raw.Bits{false, false})))
	ok(t, s.Write1(raw.FrameHeader, 1, raw.Header(6, raw.NoProperties)))
	for _, piece := range []string{"a", "", "bc", "", "def"} {
		ok(t, s.Write1(raw.FrameBody, 1, []byte(piece)))
	}
	must(s.Call(1, raw.BasicConsume, raw.BasicConsumeOk, uint16(0), q, "", raw.Bits{false, true, false, false}, raw.Table{}))(t)
	must(s.Expect(1, raw.BasicDeliver))(t)
	must(s.ReadFrame())(t)
	equal(t, "body", string(must(s.ReadFrame())(t).Payload), "abcdef")
}

// privateQueue declares an exclusive queue on channel 1.
func privateQueue(t *testing.T, s *raw.Conn) string {
	t.Helper()
	q := name(t)
	must(s.Call(1, raw.QueueDeclare, raw.QueueDeclareOk, uint16(0), q, raw.Bits{false, false, true, false, false}, raw.Table{}))(t)
	return q
}

// R30 T9: a headers table with every type there is comes back as it went in,
// byte for byte.
func TestTableRoundTrip(t *testing.T) { onEachType(t, testTableRoundTrip) }

func testTableRoundTrip(t *testing.T, kind string) {
	deep := raw.Fields(raw.Field("leaf", 'I', uint32(1)))
	for range 10 {
		deep = raw.Fields(raw.Field("deeper", 'F', deep))
	}
	fields := map[string][]byte{
		"S":                 raw.Field("k", 'S', raw.Long("text")),
		"S with any octets": raw.Field("k", 'S', raw.Long("\x00\xff\xfe")),
		"t true":            raw.Field("k", 't', uint8(1)),
		"t false":           raw.Field("k", 't', uint8(0)),
		"b":                 raw.Field("k", 'b', uint8(0x80)),
		"B":                 raw.Field("k", 'B', uint8(0xff)),
		"s":                 raw.Field("k", 's', uint16(0x8000)),
		"u":                 raw.Field("k", 'u', uint16(0xffff)),
		"I":                 raw.Field("k", 'I', uint32(1<<31)),
		"i":                 raw.Field("k", 'i', uint32(1<<32-1)),
		"l":                 raw.Field("k", 'l', uint64(1<<63)),
		"f":                 raw.Field("k", 'f', uint32(0x3fc00000)),
		"d":                 raw.Field("k", 'd', uint64(0x3ff8000000000000)),
		"D":                 raw.Field("k", 'D', uint8(2), uint32(314)),
		"T":                 raw.Field("k", 'T', uint64(1<<40)),
		"F":                 raw.Field("k", 'F', deep),
		"A":                 raw.Field("k", 'A', raw.Long(append(raw.Encode(uint8('F'), deep), raw.Encode(uint8('S'), raw.Long("x"))...))),
		"A empty":           raw.Field("k", 'A', raw.Long("")),
		"F empty":           raw.Field("k", 'F', raw.Table{}),
		"x":                 raw.Field("k", 'x', raw.Long("\x00\x01bytes")),
		"V":                 raw.Field("k", 'V'),
		"empty key":         raw.Field("", 'I', uint32(1)),
		"key of 128 octets": raw.Field(string(bytes.Repeat([]byte("k"), 128)), 'I', uint32(1)),
		"key of 255 octets": raw.Field(string(bytes.Repeat([]byte("k"), 255)), 'I', uint32(1)),
		"the same key twice": append(raw.Field("k", 'I', uint32(1)),
			raw.Field("k", 'I', uint32(2))...),
	}
	if !pick(t, "bytes-kept", true, false) {
		fields["t of 2"] = raw.Field("k", 't', uint8(2))
		fields["t of 255"] = raw.Field("k", 't', uint8(255))
		fields["L"] = raw.Field("k", 'L', uint64(1<<63))
	}
	s := frames(t)
	comesBack := sentThrough(t, s, kind)
	for what, field := range fields {
		comesBack(what, raw.HeadersOnly(raw.Table(field)))
	}
}

// R30 T9: every property, alone and all together.
func TestPropertiesRoundTrip(t *testing.T) { onEachType(t, testPropertiesRoundTrip) }

func testPropertiesRoundTrip(t *testing.T, kind string) {
	values := [][]byte{ // highest flag first
		raw.Encode("text/plain"), raw.Encode("gzip"), raw.Encode(raw.Fields(raw.Field("h", 'S', raw.Long("v")))), {2}, {9},
		raw.Encode("correlation"), raw.Encode("reply.to"), raw.Encode("3600000"), raw.Encode("message-id"), raw.Encode(uint64(1 << 33)),
		raw.Encode("type"), raw.Encode("guest"), raw.Encode("app"), raw.Encode("cluster"),
	}
	properties := func(has func(i int) bool) []byte {
		var flags uint16
		var rest []byte
		for i, v := range values {
			if has(i) {
				flags |= 1 << (15 - i)
				rest = append(rest, v...)
			}
		}
		return append(binary.BigEndian.AppendUint16(nil, flags), rest...)
	}
	check := sentThrough(t, frames(t), kind)
	for i := range values {
		check(fmt.Sprintf("property %d", i), properties(func(k int) bool { return k == i }))
	}
	check("all", properties(func(int) bool { return true }))
	check("none", properties(func(int) bool { return false }))
}

// sentThrough sends messages without a body through a queue of a type, and checks that their properties are what they were.
func sentThrough(t *testing.T, s *raw.Conn, kind string) func(what string, properties []byte) {
	t.Helper()
	q := queueOf(t, open(t), kind)
	must(s.Call(1, raw.BasicConsume, raw.BasicConsumeOk, uint16(0), q, "", raw.Bits{false, true, false, false}, raw.Table{}))(t)
	return func(what string, sent []byte) {
		t.Helper()
		ok(t, s.Publish(1, "", q, sent, nil))
		must(s.Expect(1, raw.BasicDeliver))(t)
		h := must(s.ReadFrame())(t)
		if got, want := fmt.Sprintf("%x", h.Payload[12:]), fmt.Sprintf("%x", sent); got != want {
			t.Errorf("%s: properties %s, sent %s", what, got, want)
		}
	}
}

// R39: the frames of one delivery are never broken up by another frame of that
// channel, with many consumers and mixed sizes on one connection.
func TestDeliveriesAreContiguous(t *testing.T) {
	t.Parallel()
	const consumers, each = 16, 40
	s := frames(t)
	var queues []string
	for i := range uint16(consumers) {
		if i > 0 {
			ok(t, s.OpenChannel(i+1))
		}
		q := privateQueue(t, s)
		queues = append(queues, q)
	}
	for i, q := range queues {
		// Two consumers on half of the channels.
		ch := uint16(i/2*2 + 1)
		must(s.Call(ch, raw.BasicConsume, raw.BasicConsumeOk, uint16(0), q, "", raw.Bits{false, true, false, false}, raw.Table{}))(t)
	}
	sizes := []int{0, 1, 1000, 131064, 131065, 300_000}
	sent := make(chan error, 1)
	go func() {
		p, err := raw.Dial(target.url)
		if err == nil {
			defer p.Close()
			err = p.Handshake("/")
		}
		if err == nil {
			err = p.OpenChannel(1)
		}
		for k := 0; err == nil && k < each; k++ {
			for i, q := range queues {
				if err == nil {
					// Exclusive queues still take publishes from anywhere.
					err = p.Publish(1, "", q, raw.NoProperties, bytes.Repeat([]byte{byte(i)}, sizes[(k+i)%len(sizes)]))
				}
			}
		}
		if err == nil {
			_, err = p.Call(1, raw.ChannelClose, raw.ChannelCloseOk, uint16(200), "", uint16(0), uint16(0))
		}
		sent <- err
	}()
	type half struct {
		left   uint64
		header bool
	}
	open := map[uint16]*half{}
	for done := 0; done < consumers*each; {
		f, err := s.ReadFrame()
		ok(t, err)
		h := open[f.Channel]
		switch {
		case f.Is(raw.BasicDeliver):
			if h != nil {
				t.Fatalf("a delivery begins on channel %d before the last one ended", f.Channel)
			}
			open[f.Channel] = &half{header: true}
		case f.Type == raw.FrameHeader:
			if h == nil || !h.header {
				t.Fatalf("a header out of place on channel %d", f.Channel)
			}
			h.header, h.left = false, binary.BigEndian.Uint64(f.Payload[4:])
		case f.Type == raw.FrameBody:
			if h == nil || h.header || uint64(len(f.Payload)) > h.left || len(f.Payload) == 0 {
				t.Fatalf("a body out of place on channel %d", f.Channel)
			}
			h.left -= uint64(len(f.Payload))
		default:
			t.Fatalf("unexpected %v", f)
		}
		if h := open[f.Channel]; !h.header && h.left == 0 {
			delete(open, f.Channel)
			done++
		}
	}
	ok(t, <-sent)
}

// R40: a large message on its way to a slow reader lets the other channels
// through.
func TestLargeBodyLetsOthersPass(t *testing.T) {
	t.Parallel()
	s := frames(t)
	ok(t, s.OpenChannel(2))
	large, small := privateQueue(t, s), privateQueue(t, s)
	for ch, q := range map[uint16]string{1: large, 2: small} {
		must(s.Call(ch, raw.BasicConsume, raw.BasicConsumeOk, uint16(0), q, "", raw.Bits{false, true, false, false}, raw.Table{}))(t)
	}
	const size = 15 << 20
	put(t, large, string(make([]byte, size)))
	must(s.Expect(1, raw.BasicDeliver))(t) // the large one is on its way and the socket full
	put(t, small, "small")
	overtaken := false
	for got := 0; got < size; {
		f := must(s.ReadFrame())(t)
		if f.Channel == 2 {
			overtaken = true
		} else if f.Type == raw.FrameBody {
			got += len(f.Payload)
		}
	}
	equal(t, "the small message came before the end of the large one", overtaken, pick(t, "large-body", false, true))
}

// R38 T45: a client that is gone without a word is noticed, and what it held
// comes back once.
func TestVanishedClient(t *testing.T) {
	t.Parallel()
	ch := open(t)
	q := queue(t, ch)
	put(t, q, "one", "two")
	s := frames(t)
	must(s.Call(1, raw.BasicGet, raw.BasicGetOk, uint16(0), q, raw.Bits{false}))(t)
	vanish(t, s)
	eventually(t, "the message is back", func() bool { return depth(t, ch, q) == 2 })
	first, second := get(t, ch, q, true), get(t, ch, q, true)
	equal(t, "first", string(first.Body), "one")
	equal(t, "first redelivered", first.Redelivered, true)
	equal(t, "second", string(second.Body), "two")
	equal(t, "second redelivered", second.Redelivered, false)
	empty(t, ch, q)
}

// T45: connection.close while deliveries are under way is answered.
func TestCloseUnderDeliveries(t *testing.T) {
	t.Parallel()
	ch := open(t)
	q := queue(t, ch)
	for range 200 {
		send(t, ch, "", q, string(make([]byte, 10_000)))
	}
	settled(t, ch)
	eventually(t, "all arrived", func() bool { return depth(t, ch, q) == 200 })
	s := frames(t)
	ok(t, s.Send(1, raw.BasicConsume, uint16(0), q, "", raw.Bits{false, false, false, true}, raw.Table{}))
	ok(t, s.Send(0, raw.ConnectionClose, uint16(200), "bye", uint16(0), uint16(0)))
	for {
		f := must(s.ReadFrame())(t)
		if f.Is(raw.ConnectionCloseOk) {
			break
		}
	}
	eventually(t, "all are back", func() bool { return depth(t, ch, q) == 200 })
}

// T31: 255 octets of routing key are fine.
func TestLongKeys(t *testing.T) {
	t.Parallel()
	ch := open(t)
	long := string(bytes.Repeat([]byte("ä"), 127)) + "x"
	q := must(ch.QueueDeclare("", false, true, true, false, nil))(t).Name
	x := exchange(t, ch, "direct", nil)
	ok(t, ch.QueueBind(q, long, x, false, nil))
	route(t, x, long, "reached")
	d := get(t, ch, q, true)
	equal(t, "key", d.RoutingKey, long)
}

// R41: closes that cross each other. Client and broker close the same channel at
// once, in every order the answers may come; then the connection is closed.
func TestCrossingCloses(t *testing.T) {
	ack := func(s *raw.Conn) error { return s.Send(1, raw.BasicAck, uint64(42), raw.Bits{false}) }
	closeChannel := func(s *raw.Conn) error {
		return s.Send(1, raw.ChannelClose, uint16(200), "", uint16(0), uint16(0))
	}
	closeOk := func(s *raw.Conn) error { return s.Send(1, raw.ChannelCloseOk) }
	for what, steps := range map[string][]func(s *raw.Conn) error{
		"close, then close-ok":          {ack, closeChannel, closeOk},
		"faults around the close":       {ack, ack, closeChannel, ack, ack, closeOk},
		"close-ok only":                 {ack, ack, closeOk},
		"close twice":                   {ack, closeChannel, closeChannel, closeOk},
		"no answer to broker's close":   {ack, closeChannel},
		"connection closed at once":     {ack},
		"nothing on the channel at all": nil,
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := frames(t)
			for _, step := range steps {
				ok(t, step(s))
			}
			ok(t, s.Send(0, raw.ConnectionClose, uint16(200), "", uint16(0), uint16(0)))
			for {
				f, err := s.ReadFrame()
				ok(t, err)
				if f.Is(raw.ConnectionCloseOk) {
					return
				}
				if f.Is(raw.ConnectionClose) {
					return // the broker may find fault with the connection instead
				}
			}
		})
	}
}
