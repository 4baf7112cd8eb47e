package perf

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"holdfast/internal/wire"
)

// callTimeout bounds a handshake and each request before and after the load.
const callTimeout = 30 * time.Second

// target is a broker to connect to.
type target struct {
	addr, user, password, vhost string
	tls                         bool
	insecure                    bool   // any certificate will do
	frameMax                    uint32 // 0 = what the broker offers
	brief                       bool   // the connection is closed at once: no TCP keep-alive, which is four system calls
}

// parseTarget reads an AMQP URI, or just HOST:PORT. As in PerfTest what the URI does not say is guest, guest and /: a user
// without a password, or with an empty one, has the password guest.
func parseTarget(text string) (target, error) {
	if !strings.Contains(text, "://") {
		text = "amqp://" + text
	}
	u, err := url.Parse(text)
	if err != nil {
		return target{}, err
	}
	t := target{user: "guest", password: "guest", vhost: "/", tls: u.Scheme == "amqps"}
	port := "5672"
	switch u.Scheme {
	case "amqp":
	case "amqps":
		port = "5671"
	default:
		return target{}, fmt.Errorf("%q is neither amqp:// nor amqps://", text)
	}
	if p := u.Port(); p != "" {
		port = p
	}
	host := u.Hostname()
	if host == "" {
		host = "localhost"
	}
	t.addr = net.JoinHostPort(host, port)
	if u.User != nil {
		t.user = u.User.Username()
		if password, _ := u.User.Password(); password != "" {
			t.password = password
		}
	}
	if len(u.Path) > 1 {
		t.vhost = u.Path[1:]
	}
	return t, nil
}

// brokerError is a connection or channel that the broker closed.
type brokerError struct {
	what string
	code uint16
	text string
}

// Error says what was closed and why.
func (e *brokerError) Error() string {
	return fmt.Sprintf("the broker closed the %s: %d %s", e.what, e.code, e.text)
}

// conn is a connection with one channel, number 1. Before the load starts it is
// used with call; then its owner reads frames with fill and next. It has no
// locks: one goroutine reads, one writes.
type conn struct {
	nc       net.Conn
	buf      []byte
	r, w     int
	frameMax uint32
	broker   string // product and version, as the broker says
}

// dial opens a connection and its channel. The read buffer starts with size
// bytes and grows for a frame that is larger.
func dial(ctx context.Context, t target, size int) (*conn, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var nc net.Conn
	var err error
	if t.tls {
		host, _, _ := net.SplitHostPort(t.addr)
		d := tls.Dialer{Config: &tls.Config{ServerName: host, InsecureSkipVerify: t.insecure}}
		nc, err = d.DialContext(ctx, "tcp", t.addr)
	} else {
		var d net.Dialer
		if t.brief {
			d.KeepAlive = -1
		}
		nc, err = d.DialContext(ctx, "tcp", t.addr)
	}
	if err != nil {
		return nil, err
	}
	c := &conn{nc: nc, buf: make([]byte, size)}
	_ = nc.SetDeadline(time.Now().Add(callTimeout))
	if err := c.handshake(t); err != nil {
		nc.Close()
		return nil, fmt.Errorf("connecting to %s: %w", t.addr, err)
	}
	_ = nc.SetDeadline(time.Time{})
	return c, nil
}

var clientProperties = wire.NewTable(map[string]any{
	"product": "holdfast perf",
	"capabilities": map[string]any{
		"publisher_confirms": true, "basic.nack": true, "consumer_cancel_notify": true, "connection.blocked": true,
		"exchange_exchange_bindings": true, "authentication_failure_close": true,
	},
})

func (c *conn) handshake(t target) error {
	if _, err := c.nc.Write([]byte("AMQP\x00\x00\x09\x01")); err != nil {
		return err
	}
	var start wire.ConnectionStart
	if err := c.await(&start); err != nil {
		return err
	}
	c.broker = product(start.ServerProperties)
	err := c.send(0, &wire.ConnectionStartOk{
		ClientProperties: clientProperties, Mechanism: "PLAIN",
		Response: []byte("\x00" + t.user + "\x00" + t.password), Locale: "en_US",
	})
	if err != nil {
		return err
	}
	var tune wire.ConnectionTune
	if err := c.await(&tune); err != nil {
		return err
	}
	c.frameMax = tune.FrameMax
	if t.frameMax != 0 && (c.frameMax == 0 || t.frameMax < c.frameMax) {
		c.frameMax = t.frameMax
	}
	if c.frameMax == 0 {
		c.frameMax = 131072
	}
	// No heartbeat is asked for, so a broker neither sends any nor misses any.
	out := wire.AppendMethod(nil, 0, &wire.ConnectionTuneOk{ChannelMax: tune.ChannelMax, FrameMax: c.frameMax})
	out = wire.AppendMethod(out, 0, &wire.ConnectionOpen{VirtualHost: t.vhost})
	if _, err := c.nc.Write(out); err != nil {
		return err
	}
	if err := c.await(&wire.ConnectionOpenOk{}); err != nil {
		return err
	}
	if err := c.send(1, &wire.ChannelOpen{}); err != nil {
		return err
	}
	return c.await(&wire.ChannelOpenOk{})
}

// product is the name of a broker. Holdfast says what it is where clients do not look for it.
func product(properties wire.Table) string {
	if v, ok := properties.Get("platform"); ok {
		if s, ok := v.Str(); ok && strings.HasPrefix(s, "Holdfast ") {
			return s
		}
	}
	var words []string
	for _, key := range []string{"product", "version"} {
		if v, ok := properties.Get(key); ok {
			if s, ok := v.Str(); ok {
				words = append(words, s)
			}
		}
	}
	return strings.Join(words, " ")
}

// fill reads at least one more byte into the buffer. What next returned before
// is not valid any more.
func (c *conn) fill() error {
	switch {
	case c.r == c.w:
		c.r, c.w = 0, 0
	case c.w == len(c.buf) && c.r == 0:
		c.grow(2 * len(c.buf))
	case c.w == len(c.buf):
		c.w = copy(c.buf, c.buf[c.r:c.w])
		c.r = 0
	}
	n, err := c.nc.Read(c.buf[c.w:])
	c.w += n
	if n > 0 {
		return nil
	}
	return err
}

// grow moves what is not read yet into a larger buffer.
func (c *conn) grow(size int) {
	larger := make([]byte, size)
	c.w = copy(larger, c.buf[c.r:c.w])
	c.r, c.buf = 0, larger
}

// next takes a whole frame out of the buffer, borrowed; there is none if ok is
// false.
func (c *conn) next() (f wire.Frame, ok bool, err error) {
	have := c.buf[c.r:c.w]
	if len(have) < wire.FrameHeaderSize {
		return f, false, nil
	}
	head := wire.ParseFrameHead(have)
	whole := int(head.Size) + wire.FrameOverhead
	if head.Size > 1<<30 || !head.Type.Known() {
		return f, false, fmt.Errorf("no AMQP frame: % x", have[:wire.FrameHeaderSize])
	}
	if len(have) < whole {
		return f, false, nil
	}
	if have[whole-1] != wire.FrameEnd {
		return f, false, fmt.Errorf("a %s of %d bytes has no end", head.Type, head.Size)
	}
	c.r += whole
	return wire.Frame{Type: head.Type, Channel: head.Channel, Payload: have[wire.FrameHeaderSize : whole-1]}, true, nil
}

func (c *conn) send(channel uint16, m wire.Method) error {
	_, err := c.nc.Write(wire.AppendMethod(nil, channel, m))
	return err
}

// await reads until the answer m comes and decodes it, borrowed until the next
// read. It skips what is not a method.
func (c *conn) await(m wire.Method) error {
	for {
		f, ok, err := c.next()
		if err == nil && !ok {
			err = c.fill()
		}
		if err != nil {
			return err
		}
		if !ok || f.Type != wire.FrameMethod {
			continue
		}
		id, args, _ := wire.SplitMethod(f.Payload)
		if id == m.ID() {
			return m.Decode(args)
		}
		if err := c.closed(f); err != nil {
			return err
		}
	}
}

// closed answers a connection.close or channel.close and gives its reason; nil
// for any other method.
func (c *conn) closed(f wire.Frame) error {
	id, args, _ := wire.SplitMethod(f.Payload)
	var e *brokerError
	switch id {
	case wire.IDConnectionClose:
		var m wire.ConnectionClose
		_ = m.Decode(args)
		e = &brokerError{"connection", m.ReplyCode, m.ReplyText}
		_ = c.send(0, &wire.ConnectionCloseOk{})
	case wire.IDChannelClose:
		var m wire.ChannelClose
		_ = m.Decode(args)
		e = &brokerError{"channel", m.ReplyCode, m.ReplyText}
		_ = c.send(f.Channel, &wire.ChannelCloseOk{})
	default:
		return nil
	}
	return e
}

// call sends a request on the channel and waits for its answer.
func (c *conn) call(request, answer wire.Method) error {
	_ = c.nc.SetDeadline(time.Now().Add(callTimeout))
	defer c.nc.SetDeadline(time.Time{})
	if err := c.send(1, request); err != nil {
		return err
	}
	return c.await(answer)
}

var goodbye = wire.AppendMethod(nil, 0, &wire.ConnectionClose{ReplyCode: 200, ReplyText: "goodbye"})

// close ends the connection in an orderly way: when it returns without an
// error the broker has taken everything that was sent.
func (c *conn) close() error {
	defer c.nc.Close()
	_ = c.nc.SetDeadline(time.Now().Add(callTimeout))
	if _, err := c.nc.Write(goodbye); err != nil {
		return err
	}
	return c.await(&wire.ConnectionCloseOk{})
}

// appendAck appends one basic.ack on channel 1.
func appendAck(dst []byte, tag uint64, multiple bool) []byte {
	dst = append(dst, byte(wire.FrameMethod), 0, 1, 0, 0, 0, 13, 0, wire.ClassBasic, 0, 80)
	dst = binary.BigEndian.AppendUint64(dst, tag)
	if multiple {
		return append(dst, 1, wire.FrameEnd)
	}
	return append(dst, 0, wire.FrameEnd)
}

// started is where the clock of all stamps begins: monotonic within the
// process, and close to wall time, so that the producer and the consumer may be
// two processes.
var started = time.Now()

// now is the time for stamps, in nanoseconds.
func now() int64 { return started.UnixNano() + int64(time.Since(started)) }
