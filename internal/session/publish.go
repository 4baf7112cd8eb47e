package session

import (
	"slices"

	"holdfast/internal/amqperr"
	"holdfast/internal/broker"
	"holdfast/internal/invariant"
	"holdfast/internal/message"
	"holdfast/internal/wire"
)

// maxBody is the largest body a content header may announce at all; a smaller
// limit for messages closes the channel only.
const maxBody = 512 << 20

// flushPublishes is how many publishes a channel collects at most before they
// are handed on, even if more frames wait in the buffer.
const flushPublishes = 512

type contentStage uint8

const (
	contentNone   contentStage = iota // a method is expected
	contentHeader                     // basic.publish came, its header is expected
	contentBody                       // the header came, body frames are expected
)

// content is the publish whose frames are coming in.
type content struct {
	stage     contentStage
	method    wire.BasicPublish
	exchange  []byte // copies: header and body may come with a later read
	key       []byte
	mandatory bool
	size      uint64
	builder   message.Builder
	route     broker.Route
	routedAt  uint64          // the channel's count of flushes when the route was found
	whole     wire.Properties // with the BCC header, which the message does not keep; nil: there is none
	held      broker.Held     // of a transaction, instead of route
}

// unexpected is the error of a frame that does not continue the content.
func (c *content) unexpected(got wire.FrameType) *amqperr.Error {
	switch c.stage {
	case contentHeader:
		return amqperr.ExpectedHeader(wire.ClassBasic, got.String())
	case contentBody:
		return amqperr.ExpectedBody(got.String())
	}
	return amqperr.ExpectedMethod(got.String())
}

// publishMethod takes in basic.publish.
func (ch *channel) publishMethod(args []byte) *amqperr.Error {
	c := &ch.content
	if err := c.method.Decode(args); err != nil {
		return malformed(err)
	}
	if c.method.Immediate {
		return amqperr.Unsupported("immediate=true")
	}
	ch.conn.block.notePublish()
	c.exchange = append(c.exchange[:0], c.method.Exchange...)
	c.key = append(c.key[:0], c.method.RoutingKey...)
	c.mandatory = c.method.Mandatory
	c.method = wire.BasicPublish{} // it borrows from the reader's buffer
	c.stage = contentHeader
	return nil
}

// header takes in the content header: the publish is checked, its queues are
// found and the message is begun.
func (ch *channel) header(payload []byte) *amqperr.Error {
	c := &ch.content
	if c.stage != contentHeader {
		return c.unexpected(wire.FrameHeader)
	}
	h, e := wire.ParseContentHeader(payload)
	if e != nil {
		return amqperr.MalformedProperties(e.Error())
	}
	if h.Class != wire.ClassBasic {
		return c.unexpected(wire.FrameHeader)
	}
	if h.BodySize > maxBody {
		return amqperr.BodyTooLarge(h.BodySize, maxBody)
	}
	if limit := ch.conn.server.maxMessage; h.BodySize > limit {
		return ch.publishError(amqperr.MessageTooLarge(h.BodySize, limit))
	}
	properties, err := ch.replaceReplyTo(h.Properties)
	if err != nil {
		return ch.publishError(err)
	}
	if ch.publisher == nil {
		ch.publisher = ch.conn.broker.Publisher()
	}
	if c.route, err = ch.publisher.Route(c.exchange, c.key, properties); err != nil {
		return ch.publishError(err)
	}
	c.routedAt = ch.flushes
	c.whole = nil
	if ch.tx != nil {
		c.held = ch.publisher.Hold(&c.route)
	} else if c.route.Stripped() {
		c.whole = slices.Clone(properties)
	}
	c.size = h.BodySize
	persistent := properties.DeliveryMode() == wire.Persistent
	c.builder.BeginWith(&message.Heading{
		Exchange: c.exchange, Key: c.key, Properties: c.route.Properties(), Hidden: c.route.Hidden(), Persistent: persistent,
	}, h.BodySize)
	c.stage = contentBody
	if h.BodySize == 0 {
		return ch.complete()
	}
	return nil
}

func (ch *channel) publishError(err *amqperr.Error) *amqperr.Error {
	return err.ForMethod(wire.ClassBasic, wire.IDBasicPublish.Method())
}

// replaceReplyTo puts the channel's own name in place of the direct reply-to
// pseudo queue.
func (ch *channel) replaceReplyTo(p wire.Properties) (wire.Properties, *amqperr.Error) {
	if !p.Has(wire.ReplyTo) || string(p.Bytes(wire.ReplyTo)) != broker.ReplyTo {
		return p, nil
	}
	if ch.replyTo == "" {
		return nil, amqperr.ReplyConsumerMissing()
	}
	return p.WithStr(wire.ReplyTo, ch.replyTo), nil
}

// body takes in a body frame.
func (ch *channel) body(payload []byte) *amqperr.Error {
	c := &ch.content
	if c.stage != contentBody {
		if c.stage == contentNone && len(payload) == 0 {
			return nil // an empty frame after an empty body does no harm
		}
		return c.unexpected(wire.FrameBody)
	}
	left := c.builder.Remaining()
	if uint64(len(payload)) > left {
		return amqperr.BodyOverrun(c.size, c.size-left+uint64(len(payload)))
	}
	c.builder.Write(payload)
	if c.builder.Remaining() == 0 {
		return ch.complete()
	}
	return nil
}

// complete hands a whole message to the transaction or to the queues.
func (ch *channel) complete() *amqperr.Error {
	c := &ch.content
	c.stage = contentNone
	ch.arrived()
	m := c.builder.Message()
	invariant.Pass("session", "publish complete")
	if ch.tx != nil {
		return ch.txPublish(txPublish{m, c.held, c.mandatory})
	}
	if c.routedAt != ch.flushes {
		var err *amqperr.Error
		if c.route, err = ch.routeAgain(m, c.whole); err != nil {
			return ch.publishError(err)
		}
	}
	if ch.confirms == nil {
		ch.publish(&c.route, m, c.mandatory, nil, 0)
	} else {
		ch.lastSeq++
		ch.publish(&c.route, m, c.mandatory, ch.confirms, ch.lastSeq)
	}
	if ch.publisher.Pending() >= flushPublishes && !ch.busy.Load() { // a worker looks by itself
		ch.flush()
		ch.conn.waitForCredit()
	}
	return nil
}

// routeAgain finds the queues of a message whose route is out of date. whole is
// its properties with the BCC header, if it had one.
func (ch *channel) routeAgain(m message.Message, whole wire.Properties) (broker.Route, *amqperr.Error) {
	v, err := message.Parse(m.Head)
	if err != nil {
		return broker.Route{}, amqperr.Internal(err.Error())
	}
	if whole == nil {
		whole = v.Properties
	}
	return ch.publisher.Route(v.Exchange, v.RoutingKey, whole)
}

// publish lines a message up for its queues, or sends it back. The ticket is the channel's
// confirms, nil if nobody waits.
func (ch *channel) publish(route *broker.Route, m message.Message, mandatory bool, ticket broker.Ticket, seq uint64) {
	ch.touch()
	if len(ch.settling.parts) > 0 && ch.settling.isOf(route) {
		ch.flushSettled() // or the queue would not know yet who has room for the message
	}
	n := route.Queues()
	if mandatory && route.Unroutable() {
		ch.publisher.Returned(route, m)
		if ch.confirms != nil {
			// Settled by the writer, so that the return goes first.
			ch.queues = append(ch.queues, 1)
			ch.noteConfirms()
		}
		ch.conn.out.giveBack(ch, noRoute(m, seq))
		return
	}
	p := broker.Publish{Message: m, Persistent: m.Persistent(), Ticket: ticket, Seq: seq}
	if ch.confirms != nil {
		ch.queues = append(ch.queues, uint32(n))
	}
	if mandatory && route.MayVanish() {
		if ch.confirms != nil {
			ch.confirms.mayVanish(seq, m)
		} else {
			if ch.vanishing == nil {
				ch.vanishing = &vanishing{ch: ch, open: map[uint64]*vanisher{}}
			}
			p.Ticket, p.Seq, p.Unhurried = ch.vanishing, ch.vanishing.add(n, m), true
		}
	}
	ch.publisher.Publish(route, p)
}

// noRoute is a mandatory message that goes back because it leads nowhere.
func noRoute(m message.Message, seq uint64) *returned {
	return &returned{message: m, code: amqperr.NoRoute, text: amqperr.CodeName(amqperr.NoRoute), seq: seq}
}

// confirmSelect puts the channel into confirm mode.
func (ch *channel) confirmSelect(m *wire.ConfirmSelect) *amqperr.Error {
	if ch.tx != nil {
		return amqperr.ModeConflict("tx", "confirm")
	}
	if ch.confirms == nil {
		c := &confirms{ch: ch, base: 1}
		ch.mu.Lock()
		ch.confirms = c
		ch.mu.Unlock()
	}
	return ch.answer(nil, m.NoWait, &wire.ConfirmSelectOk{})
}
