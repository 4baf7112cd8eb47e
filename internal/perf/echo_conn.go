package perf

import (
	"encoding/binary"
	"io"
	"strings"
	"sync"

	"holdfast/internal/wire"
)

const echoFrameMax = 131072

// echoConn is one connection to the echo server. serve belongs to one
// goroutine; deliver and flush are for any.
type echoConn struct {
	server   *Echo
	conn     *conn
	channels map[uint16]*echoChannel
	touched  []*echoConn // connections with deliveries of this buffer
	confirms []byte

	mu   sync.Mutex
	out  []byte // deliveries to write
	tags map[uint16]uint64

	writing sync.Mutex // held while writing, so that nothing overtakes
	spare   []byte
}

// echoChannel is what a channel is in the middle of.
type echoChannel struct {
	confirm   bool
	published uint64
	confirmed uint64

	message echoMessage // exchange, key and properties belong to the channel
	left    uint64
	body    []byte // of a message in several frames
	split   bool
}

func (c *echoConn) serve() {
	defer c.server.forget(c)
	defer c.conn.nc.Close()
	var header [wire.ProtocolHeaderSize]byte
	if _, err := io.ReadFull(c.conn.nc, header[:]); err != nil || wire.ParseProtocolHeader(header) != wire.Accepted {
		return
	}
	c.reply(0, &wire.ConnectionStart{
		VersionMinor: 9, Mechanisms: []byte("PLAIN AMQPLAIN"), Locales: []byte("en_US"),
		ServerProperties: wire.NewTable(map[string]any{"product": "holdfast perf echo", "version": "1", "capabilities": map[string]any{
			"publisher_confirms": true, "basic.nack": true, "consumer_cancel_notify": true}}),
	})
	for c.conn.fill() == nil {
		full := c.conn.w == len(c.conn.buf)
		for {
			f, ok, err := c.conn.next()
			if err != nil {
				return
			}
			if !ok {
				break
			}
			if !c.frame(f) {
				return
			}
		}
		c.flushAll()
		if full && len(c.conn.buf) < 256<<10 {
			c.conn.grow(4 * len(c.conn.buf))
		}
	}
}

// flushAll writes the deliveries and confirms of one buffer.
func (c *echoConn) flushAll() {
	for _, to := range c.touched {
		to.flush()
	}
	c.touched = c.touched[:0]
	c.confirms = c.confirms[:0]
	for n, ch := range c.channels {
		if ch.confirm && ch.confirmed < ch.published {
			ch.confirmed = ch.published
			at := len(c.confirms)
			c.confirms = appendAck(c.confirms, ch.published, true)
			binary.BigEndian.PutUint16(c.confirms[at+1:], n)
		}
	}
	if len(c.confirms) > 0 {
		c.write(c.confirms)
	}
}

func (c *echoConn) write(b []byte) {
	c.writing.Lock()
	defer c.writing.Unlock()
	_, _ = c.conn.nc.Write(b)
}

func (c *echoConn) reply(channel uint16, m wire.Method) {
	c.write(wire.AppendMethod(nil, channel, m))
}

// deliver appends a delivery; flush writes it.
func (c *echoConn) deliver(k *echoConsumer, m echoMessage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tags == nil {
		c.tags = map[uint16]uint64{}
	}
	c.tags[k.channel]++
	at := len(c.out)
	b := wire.AppendFrameHead(c.out, wire.FrameMethod, k.channel, 0)
	b = append(b, 0, wire.ClassBasic, 0, 60)
	b = append(b, byte(len(k.tag)))
	b = append(b, k.tag...)
	b = binary.BigEndian.AppendUint64(b, c.tags[k.channel])
	b = append(b, 0, byte(len(m.exchange)))
	b = append(b, m.exchange...)
	b = append(b, byte(len(m.key)))
	b = append(b, m.key...)
	binary.BigEndian.PutUint32(b[at+3:], uint32(len(b)-at-wire.FrameHeaderSize))
	b = append(b, wire.FrameEnd)
	c.out = wire.AppendContent(b, k.channel, m.properties, m.body, echoFrameMax)
}

// flush writes what was delivered. A consumer that does not read holds its
// publishers back.
func (c *echoConn) flush() {
	c.writing.Lock()
	defer c.writing.Unlock()
	c.mu.Lock()
	out := c.out
	c.out = c.spare[:0]
	c.mu.Unlock()
	if len(out) > 0 {
		_, _ = c.conn.nc.Write(out)
	}
	c.spare = out
}

func (c *echoConn) channel(n uint16) *echoChannel {
	ch := c.channels[n]
	if ch == nil {
		ch = &echoChannel{}
		c.channels[n] = ch
	}
	return ch
}

// frame handles one frame; false ends the connection.
func (c *echoConn) frame(f wire.Frame) bool {
	switch f.Type {
	case wire.FrameMethod:
		return c.method(f)
	case wire.FrameHeader:
		h, err := wire.ParseContentHeader(f.Payload)
		if err != nil {
			return false
		}
		ch := c.channel(f.Channel)
		ch.left, ch.body, ch.split = h.BodySize, ch.body[:0], false
		ch.message.properties = append(ch.message.properties[:0], h.Properties...)
		if ch.left == 0 {
			c.publish(ch, nil)
		}
	case wire.FrameBody:
		ch := c.channel(f.Channel)
		whole := !ch.split && ch.left == uint64(len(f.Payload))
		ch.left -= min(ch.left, uint64(len(f.Payload)))
		switch {
		case whole:
			c.publish(ch, f.Payload)
		default:
			ch.split = true
			ch.body = append(ch.body, f.Payload...)
			if ch.left == 0 {
				c.publish(ch, ch.body)
			}
		}
	}
	return true
}

// publish routes a message that has come whole.
func (c *echoConn) publish(ch *echoChannel, body []byte) {
	ch.published++
	m := ch.message
	m.body = body
	nth := uint64(0)
	if c.server.planted.kind != "" {
		nth = c.server.seen.Add(1)
	}
	for _, q := range c.server.route(m.exchange, m.key) {
		c.touched = q.put(m, c, c.server.planted, nth, c.touched)
	}
}

// method answers a request. Those that the load generator does not send are
// answered with the method whose number is one higher, which is what the
// protocol has for nearly all.
func (c *echoConn) method(f wire.Frame) bool {
	id, args, ok := wire.SplitMethod(f.Payload)
	if !ok {
		return false
	}
	if id == wire.IDBasicPublish {
		return c.beginPublish(f.Channel, args)
	}
	m := wire.NewMethod(id)
	if m == nil || m.Decode(args) != nil {
		return false
	}
	s := c.server
	switch m := m.(type) {
	case *wire.ConnectionStartOk:
		c.reply(0, &wire.ConnectionTune{ChannelMax: 2047, FrameMax: echoFrameMax})
	case *wire.ConnectionTuneOk, *wire.BasicAck, *wire.BasicNack, *wire.BasicReject, *wire.ConnectionCloseOk, *wire.ChannelCloseOk:
	case *wire.ConnectionClose:
		c.flushAll()
		c.reply(0, &wire.ConnectionCloseOk{})
		return false
	case *wire.ChannelClose:
		delete(c.channels, f.Channel)
		c.reply(f.Channel, &wire.ChannelCloseOk{})
	case *wire.ConfirmSelect:
		c.channel(f.Channel).confirm = true
		c.reply(f.Channel, &wire.ConfirmSelectOk{})
	case *wire.ExchangeDeclare:
		s.exchange(strings.Clone(m.Exchange), m.Type)
		c.reply(f.Channel, &wire.ExchangeDeclareOk{})
	case *wire.QueueDeclare:
		q := s.queue(strings.Clone(m.Queue))
		messages, consumers := q.counts()
		c.reply(f.Channel, &wire.QueueDeclareOk{Queue: q.name, MessageCount: uint32(messages), ConsumerCount: uint32(consumers)})
	case *wire.QueueBind:
		s.bind(strings.Clone(m.Queue), m.Exchange, strings.Clone(m.RoutingKey))
		c.reply(f.Channel, &wire.QueueBindOk{})
	case *wire.QueueDelete:
		s.remove(m.Queue)
		c.reply(f.Channel, &wire.QueueDeleteOk{})
	case *wire.BasicConsume:
		c.consume(f.Channel, m)
	default:
		answer := wire.NewMethod(id + 1)
		if answer == nil {
			return false
		}
		c.reply(f.Channel, answer)
	}
	return true
}

func (c *echoConn) consume(channel uint16, m *wire.BasicConsume) {
	tag := m.ConsumerTag
	if tag == "" {
		tag = "amq.ctag-0123456789abcdefghijkl"
	}
	if !m.NoWait {
		c.reply(channel, &wire.BasicConsumeOk{ConsumerTag: tag})
	}
	c.server.queue(strings.Clone(m.Queue)).consume(&echoConsumer{c, channel, []byte(tag)})
	c.flush()
}

// beginPublish keeps exchange and key until the content has come, which may be
// in the next buffer.
func (c *echoConn) beginPublish(channel uint16, args []byte) bool {
	if len(args) < 4 {
		return false
	}
	x := int(args[2])
	if len(args) < 4+x {
		return false
	}
	k := int(args[3+x])
	if len(args) < 5+x+k {
		return false
	}
	m := &c.channel(channel).message
	m.exchange = append(m.exchange[:0], args[3:3+x]...)
	m.key = append(m.key[:0], args[4+x:4+x+k]...)
	return true
}
