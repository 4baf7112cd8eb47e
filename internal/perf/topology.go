package perf

import (
	"context"
	"fmt"

	"holdfast/internal/wire"
)

// topology is what a run publishes to and consumes from.
type topology struct {
	queues   []string
	exchange string // "" = the default exchange
	kind     string
	key      string // routing key for all queues; "" = the queue's name
	durable  bool
	auto     bool // auto-delete
	args     wire.Table
	says     wire.Table // arguments of the exchange
}

// keyOf is the routing key that reaches a queue.
func (t *topology) keyOf(queue string) string {
	if t.key != "" && t.exchange != "" {
		return t.key
	}
	return queue
}

// declare makes exchange, queues and bindings, with several brokers the queues in turn.
func (t *topology) declare(ctx context.Context, to []target) error {
	var all []*conn
	defer func() {
		for _, c := range all {
			_ = c.close()
		}
	}()
	for _, a := range to[:min(len(to), max(1, len(t.queues)))] {
		c, err := dial(ctx, a, 16<<10)
		if err != nil {
			return err
		}
		all = append(all, c)
	}
	c := all[0]
	if t.exchange != "" {
		err := c.call(&wire.ExchangeDeclare{Exchange: t.exchange, Type: t.kind, Durable: t.durable, Arguments: t.says}, &wire.ExchangeDeclareOk{})
		if err != nil {
			return fmt.Errorf("declaring exchange %s: %w", t.exchange, err)
		}
	}
	for i, q := range t.queues {
		c := all[i%len(all)]
		if err := c.call(t.queue(q), &wire.QueueDeclareOk{}); err != nil {
			return fmt.Errorf("declaring queue %s: %w", q, err)
		}
		if t.exchange == "" {
			continue
		}
		err := c.call(&wire.QueueBind{Queue: q, Exchange: t.exchange, RoutingKey: t.keyOf(q)}, &wire.QueueBindOk{})
		if err != nil {
			return fmt.Errorf("binding queue %s: %w", q, err)
		}
	}
	return nil
}

func (t *topology) queue(name string) *wire.QueueDeclare {
	return &wire.QueueDeclare{Queue: name, Durable: t.durable, AutoDelete: t.auto, Arguments: t.args}
}

// remove deletes what declare made, at the first of the brokers that answers.
func (t *topology) remove(ctx context.Context, at []target) (err error) {
	var c *conn
	for _, to := range at {
		if c, err = dial(ctx, to, 16<<10); err == nil {
			break
		}
	}
	if err != nil {
		return err
	}
	defer c.close()
	for _, q := range t.queues {
		if err := c.call(&wire.QueueDelete{Queue: q}, &wire.QueueDeleteOk{}); err != nil {
			return fmt.Errorf("deleting queue %s: %w", q, err)
		}
	}
	if t.exchange != "" {
		return c.call(&wire.ExchangeDelete{Exchange: t.exchange}, &wire.ExchangeDeleteOk{})
	}
	return nil
}

// prepare declares a topology, unless it is there.
func (o *options) prepare(ctx context.Context, t *topology) error {
	if o.predeclared {
		return nil
	}
	return t.declare(ctx, o.declarer)
}

// cleanUp deletes what prepare declared, unless it is to be kept; also after an interruption, which ends ctx.
func (o *options) cleanUp(ctx context.Context, t *topology) error {
	if o.predeclared || o.keep {
		return nil
	}
	return t.remove(context.WithoutCancel(ctx), o.targets)
}

// depth is how many messages are ready in the queues together.
func (t *topology) depth(c *conn) (uint64, error) {
	var n uint64
	for _, q := range t.queues {
		var ok wire.QueueDeclareOk
		if err := c.call(&wire.QueueDeclare{Queue: q, Passive: true}, &ok); err != nil {
			return n, err
		}
		n += uint64(ok.MessageCount)
	}
	return n, nil
}

// share deals the queues out to n workers: the i-th gets every n-th queue, and
// where there are more workers than queues several get the same.
func share(queues []string, i, n int) []string {
	if n >= len(queues) {
		return []string{queues[i%len(queues)]}
	}
	var mine []string
	for k := i; k < len(queues); k += n {
		mine = append(mine, queues[k])
	}
	return mine
}
