package session

import (
	"errors"

	"holdfast/internal/amqperr"
	"holdfast/internal/broker"
	"holdfast/internal/wire"
)

// waits reports whether a method has to wait for the rest of the broker, and so
// runs on a worker.
func waits(id wire.MethodID) bool {
	switch id {
	case wire.IDExchangeDeclare, wire.IDExchangeDelete, wire.IDExchangeBind, wire.IDExchangeUnbind,
		wire.IDQueueDeclare, wire.IDQueueDelete, wire.IDQueueBind, wire.IDQueueUnbind, wire.IDQueuePurge,
		wire.IDBasicConsume, wire.IDBasicCancel, wire.IDBasicGet,
		wire.IDTxCommit, wire.IDChannelClose:
		return true
	}
	return false
}

// method carries out one method of an open channel. The methods that come once
// per message are decoded without an allocation, the others by id.
func (ch *channel) method(payload []byte) *amqperr.Error {
	id, args, ok := wire.SplitMethod(payload)
	if !ok {
		return amqperr.MalformedFrame("method frame without a method")
	}
	var err *amqperr.Error
	switch id {
	case wire.IDBasicPublish:
		err = ch.publishMethod(args)
	case wire.IDBasicAck:
		var m wire.BasicAck
		if e := m.Decode(args); e != nil {
			err = malformed(e)
		} else {
			err = ch.settle(m.DeliveryTag, m.Multiple, broker.Ack)
		}
	default:
		err = ch.rareMethod(id, args)
	}
	if err != nil {
		return err.ForMethod(id.Class(), id.Method())
	}
	return nil
}

// malformed turns what a decoder says into what the client is told.
func malformed(err error) *amqperr.Error {
	var d *wire.DecodeError
	if !errors.As(err, &d) {
		return amqperr.MalformedFrame(err.Error())
	}
	if d.Field != "" {
		return amqperr.MalformedUTF8(d.Method.String(), d.Field)
	}
	return amqperr.MalformedMethod(d.Method.String(), d.Problem)
}

// rareMethod carries out the methods that do not come once per message.
func (ch *channel) rareMethod(id wire.MethodID, args []byte) *amqperr.Error {
	m := wire.NewMethod(id)
	if m == nil {
		return amqperr.UnknownMethod(id.Class(), id.Method())
	}
	if err := m.Decode(args); err != nil {
		return malformed(err)
	}
	switch m := m.(type) {
	case *wire.BasicNack:
		return ch.settle(m.DeliveryTag, m.Multiple, refusal(m.Requeue))
	case *wire.BasicReject:
		return ch.settle(m.DeliveryTag, false, rejection(m.Requeue))
	case *wire.BasicQos:
		return ch.qos(m)
	case *wire.BasicRecover:
		return ch.recover(m.Requeue, true)
	case *wire.BasicRecoverAsync:
		return ch.recover(m.Requeue, false)
	case *wire.BasicConsume:
		return ch.consume(m)
	case *wire.BasicCancel:
		return ch.cancel(m)
	case *wire.BasicGet:
		return ch.get(m)
	case *wire.ChannelOpen:
		return amqperr.ChannelAlreadyOpen(ch.number)
	case *wire.ChannelClose:
		ch.close()
		return nil
	case *wire.ChannelFlow:
		if !m.Active {
			return amqperr.Unsupported("active=false")
		}
		ch.conn.out.method(ch, &wire.ChannelFlowOk{Active: true})
		return nil
	case *wire.AccessRequest:
		ch.conn.out.method(ch, &wire.AccessRequestOk{Ticket: 1})
		return nil
	case *wire.ConfirmSelect:
		return ch.confirmSelect(m)
	case *wire.TxSelect:
		return ch.txSelect()
	case *wire.TxCommit:
		return ch.txCommit()
	case *wire.TxRollback:
		return ch.txRollback()
	}
	return ch.entityMethod(m)
}

// entityMethod carries out what concerns exchanges and queues.
func (ch *channel) entityMethod(m wire.Method) *amqperr.Error {
	switch m := m.(type) {
	case *wire.ExchangeDeclare:
		err := ch.conn.broker.DeclareExchange(broker.DeclareExchange{
			Name: m.Exchange, Type: m.Type, Passive: m.Passive, Durable: m.Durable,
			AutoDelete: m.AutoDelete, Internal: m.Internal, NoWait: m.NoWait, Arguments: m.Arguments.Clone(),
		})
		return ch.answer(err, m.NoWait, &wire.ExchangeDeclareOk{})
	case *wire.ExchangeDelete:
		err := ch.conn.broker.DeleteExchange(broker.DeleteExchange{Name: m.Exchange, IfUnused: m.IfUnused})
		return ch.answer(err, m.NoWait, &wire.ExchangeDeleteOk{})
	case *wire.ExchangeBind:
		err := ch.conn.broker.Bind(broker.Bind{
			Source: m.Source, Destination: m.Destination, RoutingKey: m.RoutingKey,
			ToExchange: true, Arguments: m.Arguments.Clone(),
		})
		return ch.answer(err, m.NoWait, &wire.ExchangeBindOk{})
	case *wire.ExchangeUnbind:
		err := ch.conn.broker.Unbind(broker.Bind{
			Source: m.Source, Destination: m.Destination, RoutingKey: m.RoutingKey,
			ToExchange: true, Arguments: m.Arguments.Clone(),
		})
		return ch.answer(err, m.NoWait, &wire.ExchangeUnbindOk{})
	case *wire.QueueDeclare:
		return ch.declareQueue(m)
	case *wire.QueueDelete:
		return ch.deleteQueue(m)
	case *wire.QueuePurge:
		return ch.purgeQueue(m)
	case *wire.QueueBind:
		return ch.bindQueue(m.Queue, m.Exchange, m.RoutingKey, m.Arguments, ch.conn.broker.Bind, m.NoWait, &wire.QueueBindOk{})
	case *wire.QueueUnbind:
		return ch.bindQueue(m.Queue, m.Exchange, m.RoutingKey, m.Arguments, ch.conn.broker.Unbind, false, &wire.QueueUnbindOk{})
	}
	return amqperr.MisplacedMethod(m.ID().String(), ch.number)
}

// answer sends the reply of a method that went well, unless it was not asked for.
func (ch *channel) answer(err *amqperr.Error, noWait bool, reply wire.Method) *amqperr.Error {
	if err != nil {
		return err
	}
	if !noWait {
		ch.conn.out.method(ch, reply)
	}
	return nil
}

// queueName resolves an empty queue name to the queue declared last.
func (ch *channel) queueName(name string) (string, *amqperr.Error) {
	if name != "" {
		return name, nil
	}
	if ch.lastQueue == "" {
		return "", amqperr.NoLastQueue()
	}
	return ch.lastQueue, nil
}

func (ch *channel) declareQueue(m *wire.QueueDeclare) *amqperr.Error {
	q, err := ch.conn.broker.DeclareQueue(broker.DeclareQueue{
		Name: m.Queue, Passive: m.Passive, Durable: m.Durable, Exclusive: m.Exclusive,
		AutoDelete: m.AutoDelete, NoWait: m.NoWait, Arguments: m.Arguments.Clone(),
	})
	if err != nil {
		return err
	}
	ch.lastQueue = q.Name
	return ch.answer(nil, m.NoWait, &wire.QueueDeclareOk{
		Queue: q.Name, MessageCount: count32(q.Messages), ConsumerCount: count32(q.Consumers),
	})
}

func (ch *channel) deleteQueue(m *wire.QueueDelete) *amqperr.Error {
	name, err := ch.queueName(m.Queue)
	if err != nil {
		return err
	}
	n, err := ch.conn.broker.DeleteQueue(broker.DeleteQueue{Name: name, IfUnused: m.IfUnused, IfEmpty: m.IfEmpty})
	return ch.answer(err, m.NoWait, &wire.QueueDeleteOk{MessageCount: count32(n)})
}

func (ch *channel) purgeQueue(m *wire.QueuePurge) *amqperr.Error {
	name, err := ch.queueName(m.Queue)
	if err != nil {
		return err
	}
	n, err := ch.conn.broker.PurgeQueue(name)
	return ch.answer(err, m.NoWait, &wire.QueuePurgeOk{MessageCount: count32(n)})
}

// bindQueue binds or unbinds a queue. An empty queue name stands for the queue
// declared last; with an empty routing key, the key is that name too.
func (ch *channel) bindQueue(queue, exchange, key string, arguments wire.Table,
	do func(broker.Bind) *amqperr.Error, noWait bool, reply wire.Method) *amqperr.Error {
	name, err := ch.queueName(queue)
	if err != nil {
		return err
	}
	if queue == "" && key == "" {
		key = name
	}
	return ch.answer(do(broker.Bind{
		Source: exchange, Destination: name, RoutingKey: key, Arguments: arguments.Clone(),
	}), noWait, reply)
}

// count32 is a count as the protocol has room for it.
func count32(n uint64) uint32 { return uint32(min(n, 1<<32-1)) }
