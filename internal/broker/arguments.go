package broker

import (
	"holdfast/internal/amqperr"
	"holdfast/internal/catalog"
	"holdfast/internal/wire"
)

// checkConsumerArguments checks the arguments of basic.consume that RabbitMQ
// knows. An argument that asks for something that is not there is refused by
// name; any other is kept and means nothing.
func checkConsumerArguments(q *catalog.Queue, args wire.Table) *amqperr.Error {
	if v, ok := args.Get("x-priority"); ok {
		n, isInt := v.Int()
		switch {
		case !isInt:
			return amqperr.InvalidConsumerArg(q.VHost, q.Name, "x-priority", "not an integer but "+v.TypeName())
		case n != 0:
			return amqperr.InvalidConsumerArg(q.VHost, q.Name, "x-priority", "consumer priorities are not supported")
		}
	}
	if _, ok := args.Get("x-stream-offset"); ok && q.Type != catalog.Stream {
		return amqperr.InvalidConsumerArg(q.VHost, q.Name, "x-stream-offset", "the queue is not a stream")
	}
	if v, ok := args.Get("x-consumer-timeout"); ok {
		if _, isInt := v.Int(); !isInt {
			return amqperr.InvalidConsumerArg(q.VHost, q.Name, "x-consumer-timeout", "not an integer but "+v.TypeName())
		}
		return amqperr.InvalidConsumerArg(q.VHost, q.Name, "x-consumer-timeout", "consumer timeouts are not supported")
	}
	return nil
}
