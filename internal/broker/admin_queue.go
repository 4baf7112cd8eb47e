package broker

import (
	"fmt"
	"sync"
	"time"

	"holdfast/internal/amqperr"
	"holdfast/internal/catalog"
	"holdfast/internal/message"
	"holdfast/internal/queue"
	"holdfast/internal/queuehost"
	"holdfast/internal/seglog"
	"holdfast/internal/wire"
)

// adminQueue finds a queue for an operator, be it exclusive or quarantined.
func (b *Broker) adminQueue(vhost, name string) (*catalog.Queue, *queuehost.Handle, error) {
	if b.view().VHost(vhost) == nil {
		return nil, nil, noVHost(vhost)
	}
	q := b.view().Queue(vhost, name)
	if q == nil {
		return nil, nil, &AdminError{NotFound, fmt.Sprintf("no queue '%s' in vhost '%s'", name, vhost)}
	}
	h := b.handle(q)
	if h == nil {
		return nil, nil, &AdminError{NotFound, fmt.Sprintf("no queue '%s' in vhost '%s'", name, vhost)}
	}
	return q, h, nil
}

// servingQueue is adminQueue for an operation that needs the queue's contents.
func (b *Broker) servingQueue(vhost, name string) (*catalog.Queue, *queuehost.Handle, error) {
	q, h, err := b.adminQueue(vhost, name)
	if err != nil {
		return nil, nil, err
	}
	if err := h.Unavailable(); err != nil {
		return nil, nil, adminError(err)
	}
	return q, h, nil
}

// AdminDeclareQueue declares a queue.
func (b *Broker) AdminDeclareQueue(q AdminQueue) error {
	if err := checkText("the name of a queue", q.Name); err != nil {
		return err
	}
	if _, err := wire.ParseTable(q.Arguments); err != nil {
		return &AdminError{Invalid, "these arguments cannot be: " + err.Error()}
	}
	d := catalog.QueueDecl{
		VHost: q.VHost, Name: catalog.CleanName(q.Name),
		Durable: q.Durable, AutoDelete: q.AutoDelete, Args: q.Arguments,
		// A queue that is not durable belongs to this start of the node.
		Conn: catalog.MakeConnID(b.incarnation, 0),
	}
	if b.view().VHost(d.VHost) == nil {
		return noVHost(d.VHost)
	}
	if _, err := b.declareQueue(d); err != nil {
		return adminError(err)
	}
	return nil
}

// AdminDeleteQueue deletes a queue and says how many ready messages went with it.
func (b *Broker) AdminDeleteQueue(vhost, name string, ifUnused, ifEmpty bool) (uint64, error) {
	q, h, err := b.servingQueue(vhost, name)
	if err != nil {
		return 0, err
	}
	n, refused := b.deleteQueue(q, h, ifUnused, ifEmpty)
	if refused != nil {
		return 0, adminError(refused)
	}
	return n, nil
}

// AdminPurgeQueue removes the ready messages of a queue and says how many.
func (b *Broker) AdminPurgeQueue(vhost, name string) (uint64, error) {
	q, h, err := b.servingQueue(vhost, name)
	if err != nil {
		return 0, err
	}
	n, refused := b.purgeQueue(q, h)
	if refused != nil {
		return 0, adminError(refused)
	}
	return n, nil
}

// AdminPauseQueue has nothing of a queue delivered any more, or has it go on. Consumers stay. A queue that another node serves hears of it a
// moment later.
func (b *Broker) AdminPauseQueue(vhost, name string, on bool) error {
	v := b.view()
	switch {
	case v.VHost(vhost) == nil:
		return noVHost(vhost)
	case v.Level() < catalog.PolicyLevel:
		return &AdminError{Unavailable, catalog.NoPauses}
	}
	q := v.Queue(vhost, name)
	if q != nil && q.Paused == on && b.settled() {
		return nil
	}
	r, err := b.command(catalog.PauseQueue(vhost, name, on))
	if err != nil {
		return err
	}
	b.log.Info("queue paused or resumed", "queue", r.Queue.Name, "vhost", vhost, "paused", on)
	if b.isHere(r.Queue) {
		b.settingsChanged(r.Queue)
	}
	return nil
}

// AdminPublish publishes a message and waits until it is as safe as its route
// makes it. It says into how many queues it went; 0: unroutable.
func (b *Broker) AdminPublish(p AdminPublish) (queues int, err error) {
	if b.fresh != nil {
		b.fresh()
	}
	v := b.view()
	if v.VHost(p.VHost) == nil {
		return 0, noVHost(p.VHost)
	}
	if err := checkText("a routing key", p.RoutingKey); err != nil {
		return 0, err
	}
	x := v.Exchange(p.VHost, p.Exchange)
	if x == nil {
		return 0, &AdminError{NotFound, fmt.Sprintf("no exchange '%s' in vhost '%s'", p.Exchange, p.VHost)}
	}
	properties, err := adminProperties(p.Properties)
	if err != nil {
		return 0, err
	}
	var builder message.Builder
	persistent := properties.DeliveryMode() == 2
	builder.Begin(p.Exchange, p.RoutingKey, properties, uint64(len(p.Body)), persistent)
	if len(p.Body) > 0 {
		builder.Write(p.Body)
	}
	m := builder.Message()
	ways := b.routeWhole(v, x, p.RoutingKey, properties, m)
	for _, w := range ways {
		if a := b.alarmFor(b.AlarmsElsewhere(), w.queue); a != nil {
			return 0, &AdminError{Unavailable, fmt.Sprintf("queue '%s' is served by another node: %s", w.queue.Def().Name, a.reason())}
		}
	}
	b.counters.published.Add(1)
	if len(ways) == 0 {
		b.counters.unroutableDropped.Add(1)
		return 0, nil
	}
	b.counters.routed.Add(uint64(len(ways)))
	worst, err := await(b, func(done func(Outcome, error)) {
		t := &adminTicket{left: len(ways), done: done}
		for _, w := range ways {
			w.queue.Publish([]queuehost.Publish{{Message: m, Persistent: persistent, Screen: w.screen, Ticket: t}})
		}
	})
	switch {
	case err != nil:
		return len(ways), adminError(err)
	case worst == Refused || worst == Unknown:
		return len(ways), &AdminError{Unavailable, "at least one queue did not take the message: " + worst.String()}
	}
	return len(ways), nil
}

// adminTicket waits for the outcome in all queues and answers with the worst.
type adminTicket struct {
	mu    sync.Mutex
	left  int
	worst Outcome
	done  func(Outcome, error)
}

func (t *adminTicket) Settled(_, _ uint64, o Outcome) {
	t.mu.Lock()
	if o == Refused || o == Unknown {
		t.worst = o
	}
	t.left--
	last, worst := t.left == 0, t.worst
	t.mu.Unlock()
	if last {
		t.done(worst, nil)
	}
}

// adminProperties makes properties from a map by AMQP's names.
func adminProperties(m map[string]any) (wire.Properties, error) {
	var s wire.PropertySet
	for name, v := range m {
		ok := true
		number := func(most float64) uint8 {
			f, isNumber := v.(float64)
			ok = isNumber && f >= 0 && f <= most && f == float64(uint8(f))
			return uint8(f)
		}
		text := func(to *string) { *to, ok = v.(string); ok = ok && len(*to) <= 255 }
		switch name {
		case "content_type":
			text(&s.ContentType)
		case "content_encoding":
			text(&s.ContentEncoding)
		case "correlation_id":
			text(&s.CorrelationID)
		case "reply_to":
			text(&s.ReplyTo)
		case "expiration":
			text(&s.Expiration)
			if ok && checkExpiration(s.Expiration) != nil {
				ok = false
			}
		case "message_id":
			text(&s.MessageID)
		case "type":
			text(&s.Type)
		case "user_id":
			text(&s.UserID)
		case "app_id":
			text(&s.AppID)
		case "cluster_id":
			text(&s.ClusterID)
		case "delivery_mode":
			s.DeliveryMode = number(2)
		case "priority":
			n := number(255)
			s.Priority = &n
		case "timestamp":
			var f float64
			f, ok = v.(float64)
			s.Timestamp = time.Unix(int64(f), 0)
		case "headers":
			var h map[string]any
			if h, ok = v.(map[string]any); ok {
				s.Headers = wire.NewTable(h)
			}
		default:
			return nil, &AdminError{Invalid, fmt.Sprintf("there is no property '%s'", name)}
		}
		if !ok {
			return nil, &AdminError{Invalid, fmt.Sprintf("property '%s' cannot have the value %v", name, v)}
		}
	}
	p, err := wire.ParseProperties(wire.NewProperties(s))
	if err != nil {
		return nil, &AdminError{Invalid, "these properties cannot be: " + err.Error()}
	}
	return p, nil
}

// mostFetched is how many bytes of bodies an operator fetches at once; a message
// more may come on top.
const mostFetched = 16 << 20

// AdminGet fetches up to n messages, fewer if they are large. With requeue they
// go back afterwards, marked as redelivered; else they are gone.
func (b *Broker) AdminGet(vhost, name string, n int, requeue bool) ([]AdminMessage, error) {
	q, h, err := b.servingQueue(vhost, name)
	if err != nil {
		return nil, err
	}
	id := h.Getter(queuehost.ConsumerSpec{}, noConsumer{})
	// Whatever is not acknowledged below goes back with the getter.
	defer h.Detach(id, nil)
	reader := b.newReader()
	type got struct {
		d    Delivery
		left uint64
	}
	came := make(chan got, 1)
	list := []AdminMessage{}
	for bytes := 0; len(list) < n && bytes < mostFetched; {
		ok, err := b.fetch(h, id, false, func(d Delivery, left uint64) { came <- got{d, left} })
		if err != nil {
			return list, adminError(b.clientError(err, "get", amqperr.Queue, vhost, q.Name))
		}
		if !ok {
			break
		}
		g := <-came
		m, err := adminMessage(g.d, reader)
		if queuehost.Lost(err) {
			b.log.Error("a message is lost: it was spilled and cannot be read", "queue", q.Name, "vhost", q.VHost, "error", err)
			h.Settle(id, []Range{{First: g.d.ID, Last: g.d.ID}}, queue.Discard)
			continue
		}
		if err != nil {
			return list, &AdminError{Unavailable, "a message cannot be read: " + err.Error()}
		}
		m.Remaining = g.left
		list = append(list, m)
		bytes += len(m.Body)
		if !requeue {
			h.Settle(id, []Range{{First: g.d.ID, Last: g.d.ID}}, queue.Ack)
		}
	}
	return list, nil
}

// adminMessage reads a delivery whole.
func adminMessage(d Delivery, reader *Reader) (AdminMessage, error) {
	m, chunks := d.Message, 0
	if d.Load != nil {
		defer d.Load.Drop()
		var err error
		if m, err = d.Load.Load(reader); err != nil {
			return AdminMessage{}, err
		}
		chunks = d.Load.Chunks()
	}
	v, err := message.Parse(m.Head)
	if err != nil {
		return AdminMessage{}, err
	}
	body := append([]byte(nil), v.Body...)
	a := AdminMessage{
		Exchange: string(v.Exchange), RoutingKey: string(v.RoutingKey), Redelivered: d.Redelivered,
		Properties: wire.Properties(append([]byte(nil), v.Properties...)).Map(),
	}
	for _, c := range m.Chunks {
		body = append(body, c...)
	}
	for i := range chunks {
		c, err := d.Load.Chunk(reader, i)
		if err != nil {
			return AdminMessage{}, err
		}
		body = append(body, c...)
	}
	a.Body = body
	return a, nil
}

// DiscardGroup gives up on a quarantined queue or on a group that the catalog
// does not know: its data is freed.
func (b *Broker) DiscardGroup(group uint64) error {
	id := seglog.GroupID(group)
	q := b.view().QueueByID(catalog.QueueID(group))
	if q == nil {
		return adminError(b.queues.Discard(id))
	}
	h := b.handle(q)
	if h == nil || h.Unavailable() == nil {
		return &AdminError{Rejected, fmt.Sprintf("queue '%s' in vhost '%s' is not quarantined: delete it if it is to go", q.Name, q.VHost)}
	}
	_, err := await(b, func(done func(*catalog.Result, error)) {
		b.remove(catalog.DeleteQueues([]catalog.QueueID{q.ID}), true, done)
	})
	return adminError(err)
}
