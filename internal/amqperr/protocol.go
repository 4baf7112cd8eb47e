package amqperr

// MalformedFrame: bytes that are no frame: wrong end octet, unknown type,
// nonsense inside.
func MalformedFrame(problem string) *Error { return newError(FrameError, "%s", problem) }

// FrameTooLarge: a frame above the negotiated size.
func FrameTooLarge(size, limit uint64) *Error {
	return newError(FrameError, "frame of %d bytes is larger than the negotiated frame_max of %d", size, limit)
}

// BodyTooLarge: a content header announces a body no server would take.
func BodyTooLarge(size, limit uint64) *Error {
	return newError(FrameError, "body size %d is larger than the limit of %d bytes", size, limit)
}

// MalformedMethod: a method whose arguments cannot be read.
func MalformedMethod(method, problem string) *Error {
	return newError(SyntaxError, "malformed arguments of %s: %s", method, problem)
}

// MalformedUTF8: a short string that is not UTF-8.
func MalformedUTF8(method, field string) *Error {
	return newError(FrameError, "field '%s' of %s is not valid UTF-8", field, method)
}

// MalformedProperties: a content header whose properties cannot be read.
func MalformedProperties(problem string) *Error {
	return newError(SyntaxError, "malformed message properties: %s", problem)
}

// UnknownMethod: class and method id that the protocol does not have.
func UnknownMethod(class, method uint16) *Error {
	e := newError(NotImplemented, "unknown method with class id %d and method id %d", class, method)
	e.Class, e.Method = class, method
	return e
}

// UnexpectedMethod: a method on channel 0 that makes no sense in the
// connection's state.
func UnexpectedMethod(method, state string) *Error {
	return newError(ChannelError, "unexpected method %s in connection state %s", method, state)
}

// ChannelNotOpen: a frame for a channel that was never opened.
func ChannelNotOpen(channel uint16) *Error {
	return newError(ChannelError, "expected 'channel.open' on channel %d", channel)
}

// ChannelAlreadyOpen: channel.open for an open channel.
func ChannelAlreadyOpen(channel uint16) *Error {
	return newError(ChannelError, "second 'channel.open' seen on channel %d", channel)
}

// DuringCommit: a method on a channel whose tx.commit is not answered yet.
func DuringCommit() *Error {
	return newError(ChannelError, "unexpected command while processing 'tx.commit'")
}

// ChannelOutOfRange: a channel number above what was negotiated.
func ChannelOutOfRange(channel, max uint16) *Error {
	return newError(NotAllowed, "channel id %d exceeds the negotiated channel_max (%d)", channel, max)
}

// MisplacedMethod: a method that no client sends on a channel other than 0.
func MisplacedMethod(method string, channel uint16) *Error {
	return newError(CommandInvalid, "unexpected method %s on channel %d", method, channel)
}

// HeartbeatOnChannel: a heartbeat frame on a channel other than 0.
func HeartbeatOnChannel(channel uint16) *Error {
	return newError(UnexpectedFrame, "unexpected heartbeat frame on channel %d", channel)
}

// ExpectedHeader: content was announced and something else came.
func ExpectedHeader(class uint16, got string) *Error {
	return newError(UnexpectedFrame, "expected content header for class %d, got %s instead", class, got)
}

// ExpectedBody: a content body was announced and something else came.
func ExpectedBody(got string) *Error {
	return newError(UnexpectedFrame, "expected content body, got %s instead", got)
}

// ExpectedMethod: content without the method it belongs to.
func ExpectedMethod(got string) *Error {
	return newError(UnexpectedFrame, "expected method frame, got %s instead", got)
}

// BodyOverrun: more body bytes than the content header announced.
func BodyOverrun(announced, got uint64) *Error {
	return newError(UnexpectedFrame, "content body overran its announced size: %d bytes announced, %d received", announced, got)
}

// TuneTooLow: tune-ok asks for less than is possible.
func TuneTooLow(name string, value, min uint64) *Error {
	return newError(NotAllowed, "negotiated %s = %d is lower than the minimum allowed value (%d)", name, value, min)
}

// TuneTooHigh: tune-ok asks for more than was offered; zero means no limit.
func TuneTooHigh(name string, value, max uint64) *Error {
	if value == 0 {
		return newError(NotAllowed, "negotiated %s = 0 (no limit) is higher than the maximum allowed value (%d)", name, max)
	}
	return newError(NotAllowed, "negotiated %s = %d is higher than the maximum allowed value (%d)", name, value, max)
}

// ConsumerTagInUse: basic.consume with a tag the channel uses already.
func ConsumerTagInUse(tag string) *Error {
	return newError(NotAllowed, "attempt to reuse consumer tag '%s'", tag)
}

// TooManyConsumers: basic.consume on a channel that has as many as it may.
func TooManyConsumers(most uint32) *Error {
	return newError(NotAllowed, "reached maximum (%d) of consumers per channel", most)
}

// Unsupported: an option of the protocol no server of this family carries out,
// such as "immediate=true".
func Unsupported(what string) *Error { return newError(NotImplemented, "%s", what) }

// ModeConflict: confirm.select on a transactional channel or the reverse.
func ModeConflict(from, to string) *Error {
	return newError(PreconditionFailed, "cannot switch from %s to %s mode", from, to)
}

// NotTransactional: tx.commit or tx.rollback without tx.select.
func NotTransactional() *Error {
	return newError(PreconditionFailed, "channel is not transactional")
}

// ReplyConsumerExists: a second consumer of the direct reply-to pseudo queue.
func ReplyConsumerExists() *Error {
	return newError(PreconditionFailed, "reply consumer already set")
}

// ReplyConsumerAcks: the direct reply-to pseudo queue knows no-ack only.
func ReplyConsumerAcks() *Error {
	return newError(PreconditionFailed, "reply consumer cannot acknowledge")
}

// ReplyConsumerMissing: a publish with reply-to set to the pseudo queue on a
// channel that does not consume from it.
func ReplyConsumerMissing() *Error {
	return newError(PreconditionFailed, "fast reply consumer does not exist")
}

// ReplyQueueBinding: the direct reply-to pseudo queue cannot be bound.
func ReplyQueueBinding() *Error {
	return newError(AccessRefused, "the direct reply-to pseudo queue cannot be bound or unbound")
}

// UnknownFrameType: a frame whose first octet names no type.
func UnknownFrameType(t uint8) *Error { return newError(FrameError, "unknown frame type %d", t) }

// WrongFrameEnd: a frame that does not end where its size says.
func WrongFrameEnd(got uint8) *Error {
	return newError(FrameError, "frame ends with octet 0x%02x instead of 0xce", got)
}
