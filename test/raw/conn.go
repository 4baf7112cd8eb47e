package raw

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"time"
)

// Wait bounds every read: nothing the tests ask for may hang. It is long because
// only what goes wrong takes it, and a machine that is slow or busy is not wrong.
const Wait = time.Minute

// Conn is a socket to a broker. It is for one goroutine.
type Conn struct {
	net.Conn
	in *bufio.Reader

	// What tune offered; zero before the handshake.
	ChannelMax uint16
	FrameMax   uint32
	Heartbeat  uint16
}

// Frame is one frame as it came.
type Frame struct {
	Type    byte
	Channel uint16
	Payload []byte
}

// Is says whether the frame is this method.
func (f Frame) Is(id ID) bool { return f.Type == FrameMethod && f.ID() == id }

// ID is the method of a method frame, 0 of any other.
func (f Frame) ID() ID {
	if f.Type != FrameMethod || len(f.Payload) < 4 {
		return 0
	}
	return ID(binary.BigEndian.Uint32(f.Payload))
}

// Args are the arguments of a method frame.
func (f Frame) Args() *Args { a := Args(f.Payload[4:]); return &a }

// String is for failure texts.
func (f Frame) String() string {
	if f.Type != FrameMethod {
		return fmt.Sprintf("frame type %d channel %d, %d bytes", f.Type, f.Channel, len(f.Payload))
	}
	s := fmt.Sprintf("method %d.%d channel %d", f.ID().Class(), f.ID().Method(), f.Channel)
	if f.Is(ConnectionClose) || f.Is(ChannelClose) {
		a := f.Args()
		s += fmt.Sprintf(" (%d %s)", a.U16(), a.Str())
	}
	return s
}

// Dial opens a socket and writes nothing.
func Dial(amqpURL string) (*Conn, error) {
	u, err := url.Parse(amqpURL)
	if err != nil {
		return nil, err
	}
	c, err := net.DialTimeout("tcp", u.Host, Wait)
	if err != nil {
		return nil, err
	}
	return &Conn{Conn: c, in: bufio.NewReaderSize(c, 64<<10)}, nil
}

// Write1 is one frame in one write.
func (c *Conn) Write1(kind byte, channel uint16, payload []byte) error {
	_, err := c.Conn.Write(AppendFrame(nil, kind, channel, payload))
	return err
}

// AppendFrame encodes a frame.
func AppendFrame(b []byte, kind byte, channel uint16, payload []byte) []byte {
	b = append(b, kind)
	b = binary.BigEndian.AppendUint16(b, channel)
	b = binary.BigEndian.AppendUint32(b, uint32(len(payload)))
	return append(append(b, payload...), FrameEnd)
}

// Method encodes the payload of a method frame.
func Method(id ID, args ...any) []byte { return append(Encode(uint32(id)), Encode(args...)...) }

// Send writes one method frame.
func (c *Conn) Send(channel uint16, id ID, args ...any) error {
	return c.Write1(FrameMethod, channel, Method(id, args...))
}

// Publish writes a whole message: method, header and body cut to frames.
func (c *Conn) Publish(channel uint16, exchange, key string, properties, body []byte) error {
	b := AppendFrame(nil, FrameMethod, channel, Method(BasicPublish, uint16(0), exchange, key, Bits{false, false}))
	b = AppendFrame(b, FrameHeader, channel, Header(uint64(len(body)), properties))
	room := 131072 - 8
	if c.FrameMax > 0 {
		room = int(c.FrameMax) - 8
	}
	for len(body) > 0 {
		n := min(room, len(body))
		b = AppendFrame(b, FrameBody, channel, body[:n])
		body = body[n:]
	}
	_, err := c.Conn.Write(b)
	return err
}

// ReadFrame reads the next frame, heartbeats left out; they do not prolong the
// wait.
func (c *Conn) ReadFrame() (Frame, error) {
	for end := time.Now().Add(Wait); ; {
		f, err := c.ReadAnyWithin(time.Until(end))
		if err != nil || f.Type != FrameHeartbeat {
			return f, err
		}
	}
}

// ReadAny reads the next frame of any type. It is a strict parser: a wrong
// frame end is an error.
func (c *Conn) ReadAny() (Frame, error) { return c.ReadAnyWithin(Wait) }

// ReadAnyWithin is ReadAny with its own bound.
func (c *Conn) ReadAnyWithin(d time.Duration) (Frame, error) {
	_ = c.SetReadDeadline(time.Now().Add(d))
	var h [7]byte
	if _, err := io.ReadFull(c.in, h[:]); err != nil {
		return Frame{}, err
	}
	f := Frame{Type: h[0], Channel: binary.BigEndian.Uint16(h[1:])}
	n := binary.BigEndian.Uint32(h[3:])
	if n > 64<<20 {
		return f, fmt.Errorf("frame of %d bytes", n)
	}
	p := make([]byte, n+1)
	if _, err := io.ReadFull(c.in, p); err != nil {
		return f, err
	}
	if p[n] != FrameEnd {
		return f, fmt.Errorf("frame end octet is %#x", p[n])
	}
	f.Payload = p[:n]
	return f, nil
}

// ReadRaw reads n bytes as they come.
func (c *Conn) ReadRaw(n int) ([]byte, error) {
	_ = c.SetReadDeadline(time.Now().Add(Wait))
	b := make([]byte, n)
	k, err := io.ReadFull(c.in, b)
	return b[:k], err
}

// Closed waits until the other side closes the socket; whatever comes before is
// dropped.
func (c *Conn) Closed() error {
	_ = c.SetReadDeadline(time.Now().Add(Wait))
	_, err := io.Copy(io.Discard, c.in)
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return fmt.Errorf("the socket is still open after %v", Wait)
	}
	return nil
}

// Expect reads a method on a channel and fails on anything else.
func (c *Conn) Expect(channel uint16, id ID) (*Args, error) {
	f, err := c.ReadFrame()
	if err != nil {
		return nil, fmt.Errorf("waiting for %d.%d: %w", id.Class(), id.Method(), err)
	}
	if !f.Is(id) || f.Channel != channel {
		return nil, fmt.Errorf("wanted method %d.%d on channel %d, got %v", id.Class(), id.Method(), channel, f)
	}
	return f.Args(), nil
}

// Call sends a method and waits for its answer.
func (c *Conn) Call(channel uint16, id, answer ID, args ...any) (*Args, error) {
	if err := c.Send(channel, id, args...); err != nil {
		return nil, err
	}
	return c.Expect(channel, answer)
}

// ClientProperties is the client-properties table of start-ok.
var ClientProperties = Fields(
	Field("product", 'S', Long("raw")),
	Field("capabilities", 'F', Fields(
		Field("authentication_failure_close", 't', uint8(1)),
		Field("basic.nack", 't', uint8(1)),
		Field("consumer_cancel_notify", 't', uint8(1)),
		Field("connection.blocked", 't', uint8(1)),
		Field("publisher_confirms", 't', uint8(1)),
	)),
)

// Start writes the protocol header and reads connection.start; its
// server-properties come back.
func (c *Conn) Start() (Table, error) {
	if _, err := c.Conn.Write([]byte("AMQP\x00\x00\x09\x01")); err != nil {
		return nil, err
	}
	a, err := c.Expect(0, ConnectionStart)
	if err != nil {
		return nil, err
	}
	a.U8()
	a.U8()
	return Table(a.Long()), nil
}

// Login answers connection.start with PLAIN and reads connection.tune.
func (c *Conn) Login(user, password string) error {
	a, err := c.Call(0, ConnectionStartOk, ConnectionTune,
		ClientProperties, "PLAIN", Long("\x00"+user+"\x00"+password), "en_US")
	if err != nil {
		return err
	}
	c.ChannelMax, c.FrameMax, c.Heartbeat = a.U16(), a.U32(), a.U16()
	return nil
}

// Tune answers connection.tune; nothing comes back.
func (c *Conn) Tune(channelMax uint16, frameMax uint32, heartbeat uint16) error {
	c.FrameMax = frameMax
	return c.Send(0, ConnectionTuneOk, channelMax, frameMax, heartbeat)
}

// Open asks for the vhost.
func (c *Conn) Open(vhost string) error {
	_, err := c.Call(0, ConnectionOpen, ConnectionOpenOk, vhost, "", Bits{false})
	return err
}

// Handshake is the whole opening as guest with what the server offers and no
// heartbeat.
func (c *Conn) Handshake(vhost string) error {
	if _, err := c.Start(); err != nil {
		return err
	}
	if err := c.Login("guest", "guest"); err != nil {
		return err
	}
	if err := c.Tune(c.ChannelMax, c.FrameMax, 0); err != nil {
		return err
	}
	return c.Open(vhost)
}

// OpenChannel opens one channel.
func (c *Conn) OpenChannel(channel uint16) error {
	_, err := c.Call(channel, ChannelOpen, ChannelOpenOk, "")
	return err
}
