package session

import (
	"holdfast/internal/amqperr"
	"holdfast/internal/wire"
)

// frame carries out one frame of an open connection. An error ends it.
func (c *conn) frame(f wire.Frame) error {
	if f.Type == wire.FrameHeartbeat {
		if f.Channel != 0 {
			return amqperr.HeartbeatOnChannel(f.Channel)
		}
		return nil
	}
	if f.Channel == 0 {
		return c.frameZero(f)
	}
	ch := c.last
	if ch == nil || ch.number != f.Channel || ch.gone.Load() {
		c.countUnfinished()
		if ch = c.channel(f.Channel); ch == nil {
			if err := c.openChannel(f); err != nil {
				return err
			}
			return nil
		}
		c.last = ch
	}
	if err := ch.receive(f); err != nil {
		return err
	}
	return nil
}

func (c *conn) channel(n uint16) *channel {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.channels[n]
}

// openChannel takes in a frame for a channel that is not open: only
// channel.open makes sense there.
func (c *conn) openChannel(f wire.Frame) *amqperr.Error {
	if f.Channel > c.channelMax {
		return amqperr.ChannelOutOfRange(f.Channel, c.channelMax)
	}
	if f.Type != wire.FrameMethod {
		return amqperr.ChannelNotOpen(f.Channel)
	}
	id, args, _ := wire.SplitMethod(f.Payload)
	switch id {
	case wire.IDChannelOpen:
		var m wire.ChannelOpen
		if err := m.Decode(args); err != nil {
			return malformed(err)
		}
	case wire.IDChannelCloseOk:
		return nil // answered twice; nobody is confused by that
	default:
		return amqperr.ChannelNotOpen(f.Channel).ForMethod(id.Class(), id.Method())
	}
	ch := &channel{conn: c, number: f.Channel}
	c.mu.Lock()
	if c.channels == nil {
		c.channels = make(map[uint16]*channel)
	}
	c.channels[f.Channel] = ch
	c.mu.Unlock()
	c.server.counters.channelsOpened.Add(1)
	c.out.method(ch, &wire.ChannelOpenOk{})
	return nil
}

// forget takes a closed channel out of the table.
func (c *conn) forget(ch *channel) {
	c.mu.Lock()
	known := c.channels[ch.number] == ch
	if known {
		delete(c.channels, ch.number)
	}
	c.mu.Unlock()
	ch.gone.Store(true)
	if known {
		c.server.channelClosed(ch)
	}
}

// frameZero carries out a frame of channel 0, which carries the connection's
// own methods only. Every error there ends the connection.
func (c *conn) frameZero(f wire.Frame) error {
	if f.Type != wire.FrameMethod {
		return amqperr.ExpectedMethod(f.Type.String())
	}
	id, args, ok := wire.SplitMethod(f.Payload)
	if !ok {
		return amqperr.MalformedFrame("method frame without a method")
	}
	if err := c.methodZero(id, args); err != nil {
		if told, ok := err.(*amqperr.Error); ok {
			return told.ForMethod(id.Class(), id.Method()).AsConnection()
		}
		return err
	}
	return nil
}

func (c *conn) methodZero(id wire.MethodID, args []byte) error {
	m := wire.NewMethod(id)
	if m == nil {
		return amqperr.UnknownMethod(id.Class(), id.Method())
	}
	if id.Class() == wire.ClassChannel {
		return amqperr.ChannelNotOpen(0)
	}
	if id.Class() != wire.ClassConnection {
		return amqperr.UnexpectedMethod(id.String(), "running")
	}
	if err := m.Decode(args); err != nil {
		return malformed(err)
	}
	switch m := m.(type) {
	case *wire.ConnectionClose:
		if m.ReplyCode != amqperr.ReplySuccess && m.ReplyCode != 0 {
			c.log.Warn("client closes the connection with an error", "code", m.ReplyCode, "text", m.ReplyText)
		}
		return errClosedByClient
	case *wire.ConnectionUpdateSecret:
		// The internal user database has no secrets that expire: a new one is
		// taken note of, and the connection goes on with what it may do.
		c.log.Info("connection's secret updated", "reason", m.Reason)
		c.out.method(nil, &wire.ConnectionUpdateSecretOk{})
		return nil
	}
	return amqperr.UnexpectedMethod(id.String(), "running")
}
