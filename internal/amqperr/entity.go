package amqperr

import "time"

// Kind is the kind of an entity as a text names it.
type Kind string

const (
	// Queue is a queue.
	Queue Kind = "queue"
	// Exchange is an exchange.
	Exchange Kind = "exchange"
)

// NoQueue: the queue does not exist.
func NoQueue(vhost, name string) *Error {
	e := notFound(Queue, vhost, name)
	e.is = ErrNoQueue
	return e
}

// NoExchange: the exchange does not exist.
func NoExchange(vhost, name string) *Error { return notFound(Exchange, vhost, name) }

func notFound(kind Kind, vhost, name string) *Error {
	return newError(NotFound, "no %s '%s' in vhost '%s'", kind, name, vhost)
}

// NoLastQueue: an empty queue name stands for the channel's last declared
// queue, and there is none.
func NoLastQueue() *Error { return newError(NotFound, "no previously declared queue") }

// QueueUnavailable: the queue exists but cannot serve; the reason says why and,
// where there is one, the way out.
func QueueUnavailable(vhost, name, reason string) *Error {
	return newError(NotFound, "queue '%s' in vhost '%s' is unavailable: %s", name, vhost, reason)
}

// QueueLocked: an exclusive queue of another connection, or a declare whose
// exclusive flag differs.
func QueueLocked(vhost, name string) *Error {
	return newError(ResourceLocked, "cannot obtain exclusive access to locked queue '%s' in vhost '%s'. It could be originally declared on another connection or the exclusive property value does not match that of the original declaration.", name, vhost)
}

// GetOfSingleActive: basic.get of a quorum queue that has a single active consumer.
func GetOfSingleActive(vhost, name string) *Error {
	return newError(ResourceLocked, "cannot obtain access to locked queue '%s' in vhost '%s'. basic.get operations are not supported by quorum queues with single active consumer", name, vhost)
}

// QueueInUse: queue.delete with if-unused while it has consumers.
func QueueInUse(vhost, name string) *Error {
	return newError(PreconditionFailed, "queue '%s' in vhost '%s' in use", name, vhost)
}

// QueueNotEmpty: queue.delete with if-empty while it holds messages.
func QueueNotEmpty(vhost, name string) *Error {
	return newError(PreconditionFailed, "queue '%s' in vhost '%s' is not empty", name, vhost)
}

// ExchangeInUse: exchange.delete with if-unused while it has bindings.
func ExchangeInUse(vhost, name string) *Error {
	return newError(PreconditionFailed, "exchange '%s' in vhost '%s' in use", name, vhost)
}

// ConsumeExclusive: exclusive access asked for while others consume, or the
// queue has an exclusive consumer.
func ConsumeExclusive(vhost, name string) *Error {
	return newError(AccessRefused, "queue '%s' in vhost '%s' in exclusive use", name, vhost)
}

// DeliveryTimeout: a consumer, or a channel by basic.get, has held deliveries for longer than it may. after is 0 if how long
// that is is not known any more.
func DeliveryTimeout(channel uint16, after time.Duration) *Error {
	ms := after.Milliseconds()
	if after == 0 {
		ms = -1
	}
	return newError(PreconditionFailed, "delivery acknowledgement on channel %d timed out. Timeout value used: %d ms. This timeout value can be configured, see consumers doc guide to learn more", channel, ms)
}

// InequivalentFlag: a declare of something that exists with another property.
func InequivalentFlag(kind Kind, vhost, name, flag, received, current string) *Error {
	return newError(PreconditionFailed, "inequivalent arg '%s' for %s '%s' in vhost '%s': received '%s' but current is '%s'", flag, kind, name, vhost, received, current)
}

// InequivalentArg: the same for an optional argument. Received and current
// describe a typed value, or are empty where there is none.
func InequivalentArg(kind Kind, vhost, name, arg, received, current string) *Error {
	return newError(PreconditionFailed, "inequivalent arg '%s' for %s '%s' in vhost '%s': received %s but current is %s", arg, kind, name, vhost, valueOrNone(received), valueOrNone(current))
}

func valueOrNone(v string) string {
	if v == "" {
		return "none"
	}
	return "the value " + v
}

// InvalidArg: an argument whose value cannot be: wrong type, out of range.
func InvalidArg(kind Kind, vhost, name, arg, problem string) *Error {
	return newError(PreconditionFailed, "invalid arg '%s' for %s '%s' in vhost '%s': %s", arg, kind, name, vhost, problem)
}

// ArgNotForType: an argument that is known, but not for this type of queue.
func ArgNotForType(vhost, name, arg, queueType string) *Error {
	return newError(PreconditionFailed, "invalid arg '%s' for queue '%s' in vhost '%s' of queue type %s", arg, name, vhost, queueType)
}

// UnsupportedArg: an argument that asks for a feature this server lacks.
func UnsupportedArg(kind Kind, vhost, name, arg string) *Error {
	return newError(PreconditionFailed, "arg '%s' for %s '%s' in vhost '%s' asks for a feature that this server does not support", arg, kind, name, vhost)
}

// UnsupportedQueueType: x-queue-type names a type this server does not have.
func UnsupportedQueueType(vhost, name, queueType string) *Error {
	return newError(PreconditionFailed, "queue '%s' in vhost '%s': unsupported queue type '%s'", name, vhost, queueType)
}

// InvalidProperty: a property of a queue that its type does not allow, such as
// a quorum queue that is not durable.
func InvalidProperty(vhost, name, property, queueType string) *Error {
	return newError(PreconditionFailed, "invalid property '%s' for queue '%s' in vhost '%s' of queue type %s", property, name, vhost, queueType)
}

// InvalidConsumerArg: an argument of basic.consume whose value cannot be.
func InvalidConsumerArg(vhost, queue, arg, problem string) *Error {
	return newError(PreconditionFailed, "invalid arg '%s' for consumer of queue '%s' in vhost '%s': %s", arg, queue, vhost, problem)
}

// UnknownExchangeType: declare of an exchange type this server does not have.
func UnknownExchangeType(typ string) *Error {
	return newError(PreconditionFailed, "unknown exchange type '%s'", typ)
}

// InvalidExchange: declare of an exchange with arguments its type cannot do with.
func InvalidExchange(problem string) *Error { return newError(PreconditionFailed, "%s", problem) }

// InvalidBinding: a binding the exchange type does not allow.
func InvalidBinding(problem string) *Error { return newError(PreconditionFailed, "%s", problem) }

// InvalidBindingKey: a binding key the exchange type cannot match with.
func InvalidBindingKey(key, exchange, vhost, problem string) *Error {
	return newError(PreconditionFailed, "invalid binding key '%s' for exchange '%s' in vhost '%s': %s", key, exchange, vhost, problem)
}

// InvalidBindingArg: arguments of a binding the exchange type cannot match with.
func InvalidBindingArg(arg, exchange, vhost, problem string) *Error {
	return newError(PreconditionFailed, "invalid arg '%s' for binding to exchange '%s' in vhost '%s': %s", arg, exchange, vhost, problem)
}

// ReservedName: a name that starts with "amq." for something that is not there.
func ReservedName(kind Kind, vhost, name string) *Error {
	return newError(AccessRefused, "%s name '%s' in vhost '%s' contains reserved prefix 'amq.*'", kind, name, vhost)
}

// InvalidName: an entity name the server does not take.
func InvalidName(kind Kind, vhost, name, problem string) *Error {
	return newError(PreconditionFailed, "invalid name '%s' for %s in vhost '%s': %s", name, kind, vhost, problem)
}

// DefaultExchange: the default exchange cannot be declared, deleted or bound.
func DefaultExchange() *Error {
	return newError(AccessRefused, "operation not permitted on the default exchange")
}

// PredeclaredExchange: the exchanges a vhost is born with cannot be deleted.
func PredeclaredExchange(vhost, name string) *Error {
	return newError(AccessRefused, "exchange '%s' in vhost '%s' is predeclared and cannot be deleted", name, vhost)
}

// InternalExchange: clients may not publish to an internal exchange.
func InternalExchange(vhost, name string) *Error {
	return newError(AccessRefused, "cannot publish to internal exchange '%s' in vhost '%s'", name, vhost)
}

// UnknownDeliveryTag: the tag is not outstanding on this channel.
func UnknownDeliveryTag(tag uint64) *Error {
	return newError(PreconditionFailed, "unknown delivery tag %d", tag)
}

// MessageTooLarge: a body above the server's limit for messages.
func MessageTooLarge(size, limit uint64) *Error {
	return newError(PreconditionFailed, "message size %d is larger than configured max size %d", size, limit)
}

// InvalidExpiration: the expiration property is no number of milliseconds the
// server can honour.
func InvalidExpiration(text, problem string) *Error {
	return newError(PreconditionFailed, "invalid expiration '%s': %s", text, problem)
}

// InvalidDelay: the header that says for how long a message waits is no number of milliseconds the server can honour.
func InvalidDelay(header, problem string) *Error {
	return newError(PreconditionFailed, "invalid header '%s': %s", header, problem)
}

// InvalidCacheTTL: the header that says for how long an exchange is to know a message again is no number of milliseconds the server can honour.
func InvalidCacheTTL(header, problem string) *Error {
	return newError(PreconditionFailed, "invalid header '%s': %s", header, problem)
}

// InvalidCopies: the CC or BCC header is not a list of routing keys.
func InvalidCopies(header string) *Error {
	return newError(PreconditionFailed, "invalid header '%s': must be an array of strings", header)
}
