package blackbox

import (
	"bytes"
	"net/url"
	"strings"
	"testing"
	"time"

	"holdfast/test/raw"
)

// R36 R41 T1: the first eight bytes decide; what is not AMQP 0-9-1 is answered
// with a header the client may use, and closed.
func TestProtocolHeader(t *testing.T) {
	const v091, v10sasl = "AMQP\x00\x00\x09\x01", "AMQP\x03\x01\x00\x00"
	for _, c := range []struct {
		name, sent, answer string
	}{
		{"0-9-1", v091, ""},
		{"0-9", "AMQP\x01\x01\x00\x09", ""},
		{"0-0-10", "AMQP\x00\x00\x0a\x00", v091},
		{"1.0 with sasl", v10sasl, v091},
		{"1.0 plain", "AMQP\x00\x01\x00\x00", pick(t, "refused-header", v091, v10sasl)},
		{"http", "GET / HTTP/1.1\r\n\r\n", pick(t, "refused-header", v091, v10sasl)},
		{"tls", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", pick(t, "refused-header", v091, v10sasl)},
		{"zeros", "\x00\x00\x00\x00\x00\x00\x00\x00", pick(t, "refused-header", v091, v10sasl)},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := socket(t)
			must(s.Write([]byte(c.sent)))(t)
			if c.answer == "" {
				a := must(s.Expect(0, raw.ConnectionStart))(t)
				equal(t, "version major", a.U8(), 0)
				equal(t, "version minor", a.U8(), 9)
				return
			}
			got := must(s.ReadRaw(8))(t)
			equal(t, "answer", string(got), c.answer)
			ok(t, s.Closed())
		})
	}
}

// R36: what the server says about itself is what client libraries look for.
func TestServerProperties(t *testing.T) {
	t.Parallel()
	c := dial(t)
	for _, key := range []string{"product", "version", "platform", "copyright", "information", "cluster_name"} {
		if s, is := c.Properties[key].(string); !is || s == "" {
			t.Errorf("server property %s is %v", key, c.Properties[key])
		}
	}
	s := socket(t)
	a := must(s.Start())(t)
	for _, capability := range []string{
		"publisher_confirms", "exchange_exchange_bindings", "basic.nack", "consumer_cancel_notify",
		"connection.blocked", "consumer_priorities", "authentication_failure_close", "per_consumer_qos", "direct_reply_to",
	} {
		if !bytes.Contains(a, raw.Field(capability, 't', uint8(1))) {
			t.Errorf("capability %s is missing", capability)
		}
	}
}

// R41: the mechanisms and the locale are named in connection.start.
func TestMechanisms(t *testing.T) {
	t.Parallel()
	s := socket(t)
	must(s.Write([]byte("AMQP\x00\x00\x09\x01")))(t)
	a := must(s.Expect(0, raw.ConnectionStart))(t)
	a.U16()
	a.Long()
	mechanisms := strings.Fields(string(a.Long()))
	for _, want := range []string{"PLAIN", "AMQPLAIN"} {
		if !strings.Contains(strings.Join(mechanisms, " "), want) {
			t.Errorf("mechanism %s is not offered: %v", want, mechanisms)
		}
	}
	equal(t, "locales", string(a.Long()), "en_US")
}

// D13: what tune offers.
func TestTuneOffer(t *testing.T) {
	t.Parallel()
	s := socket(t)
	must(s.Start())(t)
	ok(t, s.Login("guest", "guest"))
	equal(t, "channel_max", s.ChannelMax, 2047)
	equal(t, "frame_max", s.FrameMax, 131072)
	equal(t, "heartbeat", s.Heartbeat, 60)
}

// T10: what a client may answer to tune.
func TestTuneOk(t *testing.T) {
	for _, c := range []struct {
		name     string
		channels uint16
		frame    uint32
		code     int
	}{
		{"frame 4095", 2047, 4095, 530},
		{"frame 4096", 2047, 4096, 0},
		{"frame 8191", 2047, 8191, 0},
		{"frame 8192", 2047, 8192, 0},
		{"frame 0 means no limit", 2047, 0, 530},
		{"frame larger", 2047, 131073, 530},
		{"channels 0 means no limit", 0, 131072, 530},
		{"channels larger", 2048, 131072, 530},
		{"channels 1", 1, 131072, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := socket(t)
			must(s.Start())(t)
			ok(t, s.Login("guest", "guest"))
			ok(t, s.Tune(c.channels, c.frame, 0))
			if c.code != 0 {
				// No connection.open: the answer of the broker is due at once.
				earlyFault(t, s, c.code)
				return
			}
			ok(t, s.Open("/"))
			ok(t, s.OpenChannel(1))
			if c.channels == 1 {
				ok(t, s.Send(2, raw.ChannelOpen, ""))
				faults(t, s, connFault, 530)
			}
		})
	}
}

// T10: a frame over the agreed size is refused, the broker itself keeps to it.
func TestFrameMaxHolds(t *testing.T) {
	t.Parallel()
	s := socket(t)
	must(s.Start())(t)
	ok(t, s.Login("guest", "guest"))
	ok(t, s.Tune(2047, 4096, 0))
	ok(t, s.Open("/"))
	ok(t, s.OpenChannel(1))
	q := name(t)
	must(s.Call(1, raw.QueueDeclare, raw.QueueDeclareOk, uint16(0), q, raw.Bits{false, false, true, false, false}, raw.Table{}))(t)
	body := bytes.Repeat([]byte("x"), 10_000)
	ok(t, s.Publish(1, "", q, raw.NoProperties, body))
	must(s.Call(1, raw.BasicConsume, raw.BasicConsumeOk, uint16(0), q, "", raw.Bits{false, true, false, false}, raw.Table{}))(t)
	must(s.Expect(1, raw.BasicDeliver))(t)
	var got []byte
	for len(got) < len(body) {
		f := must(s.ReadFrame())(t)
		if len(f.Payload) > 4096-8 {
			t.Fatalf("frame of %d bytes, 4096 agreed", len(f.Payload)+8)
		}
		if f.Type == raw.FrameBody {
			got = append(got, f.Payload...)
		}
	}
	equal(t, "body", string(got), string(body))

	ok(t, s.Write1(raw.FrameBody, 1, make([]byte, 4096+1)))
	faults(t, s, connFault, 501)
}

// T11: authentication that fails.
func TestAuthenticationFails(t *testing.T) {
	without := raw.Fields(raw.Field("product", 'S', raw.Long("raw")))
	for _, c := range []struct {
		name       string
		properties raw.Table
		mechanism  string
		response   string
		code       int // 0: the socket is closed without a word
	}{
		{"bad password", raw.ClientProperties, "PLAIN", "\x00guest\x00wrong", 403},
		{"unknown user", raw.ClientProperties, "PLAIN", "\x00nobody-here\x00wrong", 403},
		{"bad password, old client", without, "PLAIN", "\x00guest\x00wrong", 0},
		{"unknown mechanism", raw.ClientProperties, "FOO", "x", 503},
		{"plain without zeros", raw.ClientProperties, "PLAIN", "guest", 502},
		{"plain with nothing", raw.ClientProperties, "PLAIN", "", 502},
		{"empty password", raw.ClientProperties, "PLAIN", "\x00guest\x00", 403},
		{"amqplain without a password", raw.ClientProperties, "AMQPLAIN", string(raw.Field("LOGIN", 'S', raw.Long("guest"))), 502},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := socket(t)
			must(s.Start())(t)
			ok(t, s.Send(0, raw.ConnectionStartOk, c.properties, c.mechanism, raw.Long(c.response), "en_US"))
			if c.code == 0 {
				b, _ := s.ReadRaw(1)
				equal(t, "bytes before the close", len(b), 0)
				return
			}
			if c.code == 403 && c.mechanism == "PLAIN" {
				faults(t, s, connFault, c.code)
				return
			}
			earlyFault(t, s, c.code)
		})
	}
}

// earlyFault is a mistake before connection.open.
func earlyFault(t *testing.T, s *raw.Conn, code int) {
	t.Helper()
	if pick(t, "early-fault", true, false) {
		b, _ := s.ReadRaw(1)
		equal(t, "bytes before the close", len(b), 0)
		return
	}
	faults(t, s, connFault, code)
}

// R41: AMQPLAIN carries a table without its length.
func TestAmqplain(t *testing.T) {
	t.Parallel()
	s := socket(t)
	must(s.Start())(t)
	response := append(raw.Field("LOGIN", 'S', raw.Long("guest")), raw.Field("PASSWORD", 'S', raw.Long("guest"))...)
	must(s.Call(0, raw.ConnectionStartOk, raw.ConnectionTune, raw.ClientProperties, "AMQPLAIN", raw.Long(response), "en_US"))(t)
}

// T12: a vhost that is not there.
func TestMissingVhost(t *testing.T) {
	t.Parallel()
	s := socket(t)
	must(s.Start())(t)
	ok(t, s.Login("guest", "guest"))
	ok(t, s.Tune(s.ChannelMax, s.FrameMax, 0))
	ok(t, s.Send(0, raw.ConnectionOpen, "no-such-vhost", "", raw.Bits{false}))
	faults(t, s, connFault, 530)
}

// R41: methods out of turn during the handshake end the connection.
func TestHandshakeOutOfTurn(t *testing.T) {
	t.Parallel()
	t.Run("tune-ok instead of start-ok", func(t *testing.T) {
		t.Parallel()
		s := socket(t)
		must(s.Start())(t)
		ok(t, s.Send(0, raw.ConnectionTuneOk, uint16(0), uint32(0), uint16(0)))
		ok(t, s.Closed())
	})
	t.Run("channel before open", func(t *testing.T) {
		t.Parallel()
		s := socket(t)
		must(s.Start())(t)
		ok(t, s.Login("guest", "guest"))
		ok(t, s.Send(1, raw.ChannelOpen, ""))
		ok(t, s.Closed())
	})
	t.Run("start-ok again", func(t *testing.T) {
		t.Parallel()
		s := frames(t)
		ok(t, s.Send(0, raw.ConnectionStartOk, raw.ClientProperties, "PLAIN", raw.Long("\x00guest\x00guest"), "en_US"))
		faults(t, s, connFault, anyCode)
	})
}

// T3: silence during the handshake is closed by its timer.
func TestHandshakeSilence(t *testing.T) {
	t.Parallel()
	for _, sent := range []string{"", "AMQP", "AMQP\x00\x00\x09\x01"} {
		t.Run("after "+url.QueryEscape(sent), func(t *testing.T) {
			t.Parallel()
			s := socket(t)
			must(s.Write([]byte(sent)))(t)
			ok(t, s.Closed())
		})
	}
}

// T3: a heartbeat interval agreed on is kept by both sides: the broker sends
// heartbeats when it has nothing else to say, and closes a silent connection,
// in the middle of a frame or not.
func TestHeartbeat(t *testing.T) {
	t.Parallel()
	for _, sent := range []string{"", "\x01\x00\x01\x00\x00"} {
		t.Run("after "+url.QueryEscape(sent), func(t *testing.T) {
			t.Parallel()
			s := socket(t)
			must(s.Start())(t)
			ok(t, s.Login("guest", "guest"))
			ok(t, s.Tune(s.ChannelMax, s.FrameMax, 1))
			ok(t, s.Open("/"))
			f := must(s.ReadAny())(t)
			equal(t, "frame type", f.Type, byte(raw.FrameHeartbeat))
			equal(t, "channel", f.Channel, 0)
			equal(t, "length", len(f.Payload), 0)
			must(s.Write([]byte(sent)))(t)
			ok(t, s.Closed())
		})
	}
}

// T3: a client that sends heartbeats stays.
func TestHeartbeatKeepsAlive(t *testing.T) {
	t.Parallel()
	s := socket(t)
	must(s.Start())(t)
	ok(t, s.Login("guest", "guest"))
	ok(t, s.Tune(s.ChannelMax, s.FrameMax, 3)) // two intervals are long beside the pause below, whatever else the machine does
	ok(t, s.Open("/"))
	for range 20 {
		ok(t, s.Write1(raw.FrameHeartbeat, 0, nil))
		time.Sleep(400 * time.Millisecond)
	}
	ok(t, s.OpenChannel(1))
}

// R36: the secret may be renewed on a living connection.
func TestUpdateSecret(t *testing.T) {
	t.Parallel()
	s := frames(t)
	must(s.Call(0, raw.UpdateSecret, raw.UpdateSecretOk, raw.Long("guest"), "renewed"))(t)
	ok(t, s.OpenChannel(2))
}

// R41: connection.close is answered.
func TestConnectionClose(t *testing.T) {
	t.Parallel()
	s := frames(t)
	must(s.Call(0, raw.ConnectionClose, raw.ConnectionCloseOk, uint16(200), "bye", uint16(0), uint16(0)))(t)
}
