package broker

import (
	"math"

	"holdfast/internal/amqperr"
	"holdfast/internal/catalog"
	"holdfast/internal/wire"
)

// consumerPriority is the priority that the arguments of basic.consume name, 0 if they do not.
func consumerPriority(args wire.Table) int32 {
	v, _ := args.Get("x-priority")
	n, _ := v.Int()
	return int32(max(min(n, math.MaxInt32), math.MinInt32))
}

// checkConsumerArguments checks the arguments of basic.consume that RabbitMQ
// knows. An argument that asks for something that is not there is refused by
// name; any other is kept and means nothing.
func (b *Broker) checkConsumerArguments(q *catalog.Queue, args wire.Table) *amqperr.Error {
	if v, ok := args.Get("x-priority"); ok {
		n, isInt := v.Int()
		switch {
		case !isInt:
			return amqperr.InvalidConsumerArg(q.VHost, q.Name, "x-priority", "not an integer but "+v.TypeName())
		case n != 0 && b.view().Level() < catalog.PolicyLevel:
			return amqperr.InvalidConsumerArg(q.VHost, q.Name, "x-priority", "consumer priorities are not supported")
		}
	}
	for _, name := range []string{"x-stream-offset", "x-stream-filter", "x-stream-match-unfiltered"} {
		if _, ok := args.Get(name); ok && q.Type != catalog.Stream {
			return amqperr.InvalidConsumerArg(q.VHost, q.Name, name, "the queue is not a stream")
		}
	}
	if v, ok := args.Get("x-consumer-timeout"); ok {
		ms, isInt := v.Int()
		switch {
		case !isInt:
			return amqperr.InvalidConsumerArg(q.VHost, q.Name, "x-consumer-timeout", "not an integer but "+v.TypeName())
		case ms < 0:
			return amqperr.InvalidConsumerArg(q.VHost, q.Name, "x-consumer-timeout", "below 0")
		case b.view().Level() < catalog.PolicyLevel:
			return amqperr.InvalidConsumerArg(q.VHost, q.Name, "x-consumer-timeout", "consumer timeouts are not supported")
		}
	}
	return nil
}
