package session

import (
	"errors"
	"io"
	"strings"
	"time"

	"holdfast/internal/amqperr"
	"holdfast/internal/wire"
)

// handshakeFrameMax bounds frames before the client has tuned the connection.
const handshakeFrameMax = 16 << 10

// errGivenUp ends a handshake that has been answered, or cannot be.
var errGivenUp = errors.New("handshake given up")

// handshake takes the connection from its first byte to an open virtual host.
// It returns false when the connection is to end, and has told the client why
// as far as the protocol has words for it.
func (c *conn) handshake() bool {
	limit := c.server.settings.HandshakeTimeout
	if limit > 0 {
		timer := c.server.clock.AfterFunc(limit, func() {
			c.log.Warn("handshake took too long", "limit", limit)
			c.socket.Close()
		})
		err := c.negotiate()
		timer.Stop()
		return c.negotiated(err)
	}
	return c.negotiated(c.negotiate())
}

// negotiated ends the handshake; err says how it went.
func (c *conn) negotiated(err error) bool {
	var told *amqperr.Error
	var turn outOfTurn
	switch {
	case err == nil:
		return true
	case errors.As(err, &turn):
		// It may be no AMQP client at all, and would not understand an answer.
		c.log.Warn("client does not keep to the order of the handshake", "error", err)
		c.server.sleepUntil(c.server.options.SilentDelay, c.stop)
	case errors.As(err, &told):
		c.goodbye(told.AsConnection())
	case errors.Is(err, errGivenUp):
	case errors.Is(err, errClosedByClient):
		c.agreeToClose()
	case errors.Is(err, io.EOF) && c.receivedBytes.Load() == 0:
		c.log.Debug("connection closed before the first byte") // a probe of the port
	default:
		c.logBroken(err)
	}
	return false
}

// outOfTurn is a method that does not belong into the state of the handshake.
type outOfTurn struct{ method, state string }

func (o outOfTurn) Error() string { return o.method + " while " + o.state }

func (c *conn) negotiate() error {
	if err := c.greet(); err != nil {
		return err
	}
	if err := c.logIn(); err != nil {
		return err
	}
	if err := c.tune(); err != nil {
		return err
	}
	return c.open()
}

// greet reads the protocol header.
func (c *conn) greet() error {
	for c.slab.w < wire.ProtocolHeaderSize {
		if err := c.fill(); err != nil {
			return err
		}
	}
	header := [wire.ProtocolHeaderSize]byte(c.slab.buf)
	c.slab.r = wire.ProtocolHeaderSize
	greeting := wire.ParseProtocolHeader(header)
	if greeting == wire.Accepted {
		return nil
	}
	c.log.Warn("client speaks another protocol", "first bytes", string(header[:]))
	c.out.rawEnd(greeting.Answer())
	c.linger(lingerWait, true)
	return errGivenUp
}

// expect reads the next method and decodes it into want.
func (c *conn) expect(want wire.Method, state string) error {
	for {
		f, ok, err := c.slab.next(c.frameMax)
		if err != nil {
			return err
		}
		if !ok {
			if err := c.fill(); err != nil {
				return err
			}
			continue
		}
		if f.Type == wire.FrameHeartbeat && f.Channel == 0 {
			continue
		}
		if f.Channel != 0 || f.Type != wire.FrameMethod {
			return amqperr.ExpectedMethod(f.Type.String())
		}
		id, args, ok := wire.SplitMethod(f.Payload)
		if !ok {
			return amqperr.MalformedFrame("method frame without a method")
		}
		if id == wire.IDConnectionClose {
			return errClosedByClient
		}
		if id != want.ID() {
			return outOfTurn{id.String(), state}
		}
		if err := want.Decode(args); err != nil {
			return malformed(err).ForMethod(id.Class(), id.Method())
		}
		return nil
	}
}

// logIn sends connection.start and takes the client's login.
func (c *conn) logIn() error {
	c.out.method(nil, &wire.ConnectionStart{
		VersionMajor: 0, VersionMinor: 9, ServerProperties: c.server.properties,
		Mechanisms: []byte(strings.Join(c.server.broker.Mechanisms(), " ")), Locales: []byte("en_US"),
	})
	var m wire.ConnectionStartOk
	if err := c.expect(&m, "starting"); err != nil {
		return err
	}
	c.client = parseClientProperties(m.ClientProperties)
	c.mechanism = m.Mechanism
	user, err := c.server.broker.Login(m.Mechanism, m.Response, c.socket.RemoteAddr())
	if err == nil {
		c.user = user
		return nil
	}
	err = err.ForMethod(m.ID().Class(), m.ID().Method())
	if err.Code != amqperr.AccessRefused || c.client.failureClose {
		return err
	}
	// A client that does not understand more is cut off, after a while so that
	// guessing passwords takes its time.
	c.server.sleepUntil(c.server.options.LoginDelay, c.stop)
	return errGivenUp
}

// parseClientProperties keeps what a client said of itself.
func parseClientProperties(t wire.Table) clientProperties {
	p := clientProperties{table: t.Clone()}
	v, _ := p.table.Get("capabilities")
	capabilities, _ := v.Table()
	can := func(name string) bool {
		v, _ := capabilities.Get(name)
		yes, _ := v.Bool()
		return yes
	}
	p.cancelNotify = can("consumer_cancel_notify")
	p.blocked = can("connection.blocked")
	p.failureClose = can("authentication_failure_close")
	return p
}

// tune agrees on the limits of the connection.
func (c *conn) tune() error {
	s := c.server.settings
	c.out.method(nil, &wire.ConnectionTune{
		ChannelMax: s.ChannelMax, FrameMax: s.FrameMax, Heartbeat: uint16(s.Heartbeat / time.Second),
	})
	var m wire.ConnectionTuneOk
	if err := c.expect(&m, "tuning"); err != nil {
		return err
	}
	frame, channels := uint64(m.FrameMax), uint64(m.ChannelMax)
	var err *amqperr.Error
	switch {
	case m.FrameMax != 0 && m.FrameMax < wire.MinFrameMax:
		err = amqperr.TuneTooLow("frame_max", frame, wire.MinFrameMax)
	case s.FrameMax != 0 && (m.FrameMax == 0 || m.FrameMax > s.FrameMax):
		err = amqperr.TuneTooHigh("frame_max", frame, uint64(s.FrameMax))
	case s.ChannelMax != 0 && (m.ChannelMax == 0 || m.ChannelMax > s.ChannelMax):
		err = amqperr.TuneTooHigh("channel_max", channels, uint64(s.ChannelMax))
	}
	if err != nil {
		return err.ForMethod(m.ID().Class(), m.ID().Method())
	}
	if c.frameMax = m.FrameMax; c.frameMax == 0 {
		c.frameMax = noFrameMax
	}
	if c.channelMax = m.ChannelMax; c.channelMax == 0 {
		c.channelMax = 65535
	}
	c.heartbeat = time.Duration(m.Heartbeat) * time.Second
	return nil
}

// open opens the virtual host.
func (c *conn) open() error {
	var m wire.ConnectionOpen
	if err := c.expect(&m, "opening"); err != nil {
		return err
	}
	c.vhost = m.VirtualHost
	registered, err := c.server.broker.Register(c.user, m.VirtualHost, c.name, c)
	if err != nil {
		return err.ForMethod(m.ID().Class(), m.ID().Method())
	}
	c.broker = registered
	c.credit = registered.Credit()
	c.credit.OnGivenUp(c.giveUp)
	c.opened.Store(true)
	c.startPulse()
	c.out.method(nil, &wire.ConnectionOpenOk{})
	return nil
}
