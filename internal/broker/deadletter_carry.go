package broker

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"sync"

	"holdfast/internal/catalog"
	"holdfast/internal/deadletter"
	"holdfast/internal/message"
	"holdfast/internal/planted"
	"holdfast/internal/queue"
	"holdfast/internal/queuehost"
	"holdfast/internal/routing"
	"holdfast/internal/seglog"
)

// strategy is how much is done for a dead letter to arrive.
type strategy uint8

const (
	// asDurable: nobody has asked. At least once, where the queue that it comes from and the one that it goes to are durable.
	asDurable strategy = iota
	// atMostOnce: it is buried when it is sent.
	atMostOnce
	// atLeastOnce: it is buried when it has arrived, however long that takes, and wherever it is to go.
	atLeastOnce
)

// deadLettering is where the dead letters of a queue go.
type deadLettering struct {
	exchange string
	rekeyed  bool // they get key, else they keep their own
	key      string
	strategy strategy
	forwards bool // they have not died: an exchange has delayed them, and is to route them now
}

// deadLetteringOf returns where the dead letters of a queue go, and whether it has any.
func deadLetteringOf(v *catalog.View, q *catalog.Queue) (deadLettering, bool) {
	if q.Of != 0 {
		return deadLettering{forwards: true}, true
	}
	e := &v.Effective(q).DeadLetter
	d := deadLettering{exchange: e.Exchange, rekeyed: e.Rekeyed, key: e.Key[:min(len(e.Key), 255)]}
	switch e.Strategy {
	case "at-most-once":
		d.strategy = atMostOnce
	case "at-least-once":
		d.strategy = atLeastOnce
	}
	return d, e.On
}

// carrier carries the letters of one source at a time. It belongs to one goroutine.
type carrier struct {
	batch   []*letter
	room    int64 // bytes of messages that may come under way
	reader  *Reader
	unread  error // why a letter of the batch could not be read
	builder message.Builder

	// For one batch.
	s        *letterSource
	view     *catalog.View
	stale    bool // the view may not have all that there is
	exchange *catalog.Exchange
	to       deadLettering
	asked    deadLettering   // what to was made of
	name     []byte          // to.exchange
	rekey    []byte          // to.key
	sends    []*letterTicket // that have something lined up, in the order in which they got it
	arrived  []queue.Range

	// For one letter.
	properties []byte
	keys       [][]byte
	found      []catalog.QueueID
	screened   []routing.Screened // of them
	key        string             // found is for this key, with known
	known      bool               // it is
}

var carriers = sync.Pool{New: func() any { return new(carrier) }}

// rest puts the carrier aside. What it read last goes, and the block of messages that it was about to fill.
func (c *carrier) rest() {
	clear(c.batch[:cap(c.batch)])
	c.batch, c.reader, c.builder, c.s, c.view, c.exchange = c.batch[:0], nil, message.Builder{}, nil, nil, nil
	if cap(c.properties) > 1<<16 || cap(c.keys) > 1000 || cap(c.found) > 10000 {
		c.properties, c.keys, c.found, c.screened = nil, nil, nil, nil
	}
	clear(c.keys[:cap(c.keys)])
	carriers.Put(c)
}

// carry carries the batch, which is letters of s, as far as there is room.
func (c *carrier) carry(s *letterSource) {
	l := s.l
	if fresh := l.b.fresh; fresh != nil {
		fresh()
	}
	c.stale = l.b.stale != nil && l.b.stale() != "" // before the view is had, which may be a better one then
	c.s, c.view, c.known, c.arrived = s, l.b.view(), false, nil
	q := c.view.QueueByID(catalog.QueueID(s.id))
	if q == nil {
		l.mu.Lock()
		for _, x := range c.batch {
			s.end(x)
		}
		s.leave()
		l.mu.Unlock()
		return
	}
	var is bool
	c.to, is = l.settings(c.view, q)
	if c.asked = c.to; is {
		c.name, c.rekey = append(c.name[:0], c.to.exchange...), append(c.rekey[:0], c.to.key...)
		c.exchange = c.view.Exchange(s.vhost, c.to.exchange)
		if q.Of != 0 {
			c.exchange = c.view.ExchangeByID(s.vhost, q.Of)
		}
	} else {
		c.exchange = nil
	}
	if c.to.strategy == asDurable && (!q.Durable || q.Exclusive || planted.Is(planted.BuriedEarly)) {
		c.to.strategy = atMostOnce
	}
	done := 0
	for _, x := range c.batch {
		if done > 0 && c.room <= 0 {
			break
		}
		c.room -= c.letter(x, q, is)
		done++
	}
	c.send(done)
}

// letter routes one letter and lines it up for its targets. It returns how many bytes of memory the message takes.
func (c *carrier) letter(x *letter, q *catalog.Queue, wanted bool) int64 {
	l := c.s.l
	x.targets, x.left, x.failed, x.untried, x.missed, x.bytes = 0, 0, false, false, false, 0
	x.every = c.to.strategy == atLeastOnce
	if x.tries == 0 && len(x.has) == 0 && c.to.forwards {
		l.counts.forwarded.Add(1)
	} else if x.tries == 0 && len(x.has) == 0 {
		l.count(c.s.id, q.Type, x.reason, c.to.strategy, wanted && c.exchange != nil)
	}
	if !wanted {
		c.lost(x, droppedUnwanted, "")
		return 0
	}
	if c.exchange == nil {
		c.lost(x, droppedNoExchange, "there is no such exchange")
		return 0
	}
	v, chunks, err := c.load(x)
	switch {
	case err == nil:
	case queuehost.Lost(err) || err == message.ErrFormat:
		l.b.log.Error("one of the "+c.s.noun()+" is lost: it cannot be read", "queue", c.s.name, "vhost", c.s.vhost, "error", err)
		c.bury(x, droppedUnread, "")
		return 0
	default:
		x.failed, x.untried, x.held = true, true, heldFor{cause: heldUnread}
		c.say("one of the "+c.s.noun()+" is held: it cannot be read now", "error", err)
		c.unread = err
		return 0
	}
	var shown int
	c.keys, shown = deadletter.Keys(c.keys[:0], &v)
	whole := true
	if c.to.forwards {
		c.properties = message.AppendDelayed(c.properties[:0], v.Properties)
	} else {
		c.properties, whole = deadletter.Record(c.properties[:0], &v, c.keys[:shown], deadletter.Death{Reason: x.reason, Queue: c.s.name, Time: x.time})
	}
	c.route()
	targets, cycled := c.found, 0
	var out outlet // of a consumer of direct replies, of which the catalog knows nothing
	var outID seglog.GroupID
	posted := false // on another node
	if len(targets) == 0 && c.exchange.Name == "" {
		h := l.b.replyHandle(c.s.vhost, c.firstKey())
		if h == nil {
			h = l.b.mailbox(c.view, c.firstKey())
			posted = h != nil
		}
		if h != nil {
			out, outID = h, h.ID()
		}
	}
	if x.reason != deadletter.Rejected && !c.to.forwards {
		targets, cycled = c.uncycled(targets, whole)
	}
	if len(targets) == 0 && out == nil {
		switch {
		case cycled > 0:
			c.bury(x, droppedCycle, "it has been in all queues that it is for, and nobody has rejected it since")
		case len(x.has) > 0:
			c.arrive(x)
		default:
			c.lost(x, droppedNoRoute, "no queue is bound for it")
		}
		return 0
	}
	m := c.readdress(&v, chunks)
	for _, id := range targets {
		if slices.Contains(x.has, seglog.GroupID(id)) && !planted.Is(planted.SentToAll) {
			continue
		}
		if target := c.view.QueueByID(id); target != nil {
			c.lineUp(x, m, v.Persistent, c.ticket(target), c.screen(id))
		}
	}
	if out != nil {
		t := &letterTicket{s: c.s, out: out, target: outID}
		c.lineUp(x, m, v.Persistent, t, nil)
		if posted {
			t.lined.publishes[0].For = queuehost.NewAddressee(c.s.vhost, c.firstKey())
		}
	}
	if x.left == 0 && !x.failed { // all that it is for have it
		c.arrive(x)
		return 0
	}
	if x.left > 0 {
		x.bytes = int64(m.Size()) + letterCost
	}
	return x.bytes
}

// firstKey is the key that the letter gets.
func (c *carrier) firstKey() string {
	if c.to.rekeyed {
		return c.to.key
	}
	return string(c.keys[0])
}

// readdress makes the message that is published.
func (c *carrier) readdress(v *message.View, chunks [][]byte) message.Message {
	h := message.Heading{
		Exchange: c.name, Key: v.RoutingKey, Properties: c.properties, Hidden: v.Hidden,
		Persistent: v.Persistent, History: true, Rekeyed: v.Rekeyed,
	}
	if c.to.forwards {
		h.Exchange, h.History = v.Exchange, v.History
	}
	if c.to.rekeyed {
		h.Key, h.Hidden, h.Rekeyed = c.rekey, nil, true
	}
	return c.builder.Readdress(&h, *v, chunks)
}

// load reads the message of a letter. The view is good until the next read; chunks are the letter's own.
func (c *carrier) load(x *letter) (v message.View, chunks [][]byte, err error) {
	m, from := x.message, x.load
	x.message, x.load = message.Message{}, nil
	if from != nil {
		if c.reader == nil {
			c.reader = c.s.l.b.NewReader()
		}
		defer from.Drop()
		if m, err = from.Load(c.reader); err != nil {
			return v, nil, err
		}
		if n := from.Chunks(); n > 0 {
			m.Head = bytes.Clone(m.Head)
			for i := range n {
				chunk, err := from.Chunk(c.reader, i)
				if err != nil {
					return v, nil, err
				}
				m.Chunks = append(m.Chunks, bytes.Clone(chunk))
			}
		}
	}
	v, err = message.Parse(m.Head)
	return v, m.Chunks, err
}

// route finds the queues that the letter is for, each once, in the order of their ids.
func (c *carrier) route() {
	if c.to.rekeyed || len(c.keys) == 1 {
		key := c.to.key
		if !c.to.rekeyed {
			if c.known && c.key == string(c.keys[0]) {
				return
			}
			key = string(c.keys[0])
		} else if c.known && c.key == key {
			return
		}
		single := c.look(key, nil)
		c.key, c.known = key, !single
		return
	}
	further := make([]string, 0, len(c.keys)-1)
	for _, key := range c.keys[1:] {
		further = append(further, string(key))
	}
	c.look(string(c.keys[0]), further)
	c.known = false
}

// look has the exchange choose. It reports whether another letter with the same keys may go elsewhere.
func (c *carrier) look(key string, further []string) (single bool) {
	b := c.s.l.b
	about := routing.Message{
		Key: key, Further: further, Properties: c.properties, Draw: rand.Uint64,
		Here: func(t routing.Target) bool { return b.takes(c.view, catalog.QueueID(t.ID())) },
	}
	c.found = c.view.Route(c.exchange, &about, c.found[:0])
	slices.Sort(c.found)
	c.screened = append(c.screened[:0], about.Screened...)
	return about.Single
}

// uncycled returns the targets that the letter may go to, and how many others there are. A history that is not whole is one of
// more queues than anybody leads a message through on purpose.
func (c *carrier) uncycled(targets []catalog.QueueID, whole bool) (may []catalog.QueueID, cycled int) {
	may = targets
	for i := 0; i < len(may); i++ {
		target := c.view.QueueByID(may[i])
		if whole && (target == nil || !deadletter.Cycle(c.properties, target.Name)) {
			continue
		}
		if cycled == 0 {
			may = slices.Clone(may) // found is for the next letter as well
		}
		may = slices.Delete(may, i, i+1)
		i--
		cycled++
	}
	return may, cycled
}

// ticket is the ticket of the letters of this source for a target. Nobody else looks at tickets as long as they are carried.
func (c *carrier) ticket(q *catalog.Queue) *letterTicket {
	id := seglog.GroupID(q.ID)
	t := c.s.tickets[id]
	if t == nil {
		t = &letterTicket{s: c.s, target: id, durable: q.Durable && !q.Exclusive}
		if c.s.tickets == nil {
			c.s.tickets = map[seglog.GroupID]*letterTicket{}
		}
		c.s.tickets[id] = t
	}
	if t.lined == nil {
		t.out = c.s.l.reach(c.view, q)
	}
	return t
}

// lineUp lines a letter up for a target.
func (c *carrier) lineUp(x *letter, m message.Message, persistent bool, t *letterTicket, by *queuehost.Screen) {
	x.targets++
	if t.out == nil { // it has not begun to run, or is about to go
		if t.durable || x.every {
			x.failed, x.held = true, heldFor{heldUnserved, t.target}
		}
		return
	}
	x.left++
	if t.lined == nil {
		t.lined = linedPool.Get().(*lined)
		c.sends = append(c.sends, t)
	}
	t.lined.publishes = append(t.lined.publishes, queuehost.Publish{Message: m, Persistent: persistent, Carried: !planted.Is(planted.CarriedAsNew), Screen: by, Ticket: t, Seq: x.id})
}

// screen is by way of which exchange that lets nothing through twice the letter comes to a queue, if there is one. A message that has
// died is let through: it has been in a queue, and would be nowhere.
func (c *carrier) screen(id catalog.QueueID) *queuehost.Screen {
	if !c.to.forwards {
		return nil
	}
	return c.s.l.b.screenIn(c.screened, id, c.view, c.s.vhost)
}

// arrive notes that nothing is left to do for a letter.
func (c *carrier) arrive(x *letter) {
	x.buried, x.failed = true, false
	c.arrived = appendID(c.arrived, x.id)
}

// bury gives a letter up.
func (c *carrier) bury(x *letter, cause droppedCause, why string) {
	c.arrive(x)
	c.s.drops(cause)
	if why != "" {
		c.say(c.s.noun()+" are dropped: "+why, c.about(x)...)
	}
}

// lost is what becomes of a letter that has nowhere to go. It is held if its queue's declaration, or a policy, asks for that, and as long as
// this node does not know whether there is a way by now.
func (c *carrier) lost(x *letter, cause droppedCause, why string) {
	switch {
	case c.stale:
		x.failed, x.untried, x.held = true, true, heldFor{cause: heldStale}
		c.say(c.s.noun()+" are held: this node is not in touch with the others, and knows nowhere for them to go", c.about(x)...)
		return
	case c.to.strategy != atLeastOnce || cause == droppedUnwanted:
		c.bury(x, cause, why)
		return
	}
	x.failed, x.held = true, heldFor{cause: heldNoRoute}
	if cause == droppedNoExchange {
		x.held.cause = heldNoExchange
	}
	c.say(c.s.noun()+" are held: "+why, c.about(x)...)
}

// about is what a line of the log says of a letter.
func (c *carrier) about(x *letter) []any {
	if c.to.forwards {
		return nil
	}
	return []any{"exchange", c.to.exchange, "reason", x.reason.String()}
}

// say writes a line to the log, if there was none about this source lately.
func (c *carrier) say(what string, args ...any) {
	l := c.s.l
	l.mu.Lock()
	may := l.mayComplain(c.s.id)
	l.mu.Unlock()
	if may {
		l.b.log.Warn(what, append([]any{"queue", c.s.name, "vhost", c.s.vhost}, args...)...)
	}
}

// send sends off the first letters of the batch, as many as are done, and gives the others back.
func (c *carrier) send(done int) {
	s, l := c.s, c.s.l
	l.mu.Lock()
	s.generation, s.to = generationOf(c.view, s.vhost), c.asked
	for _, x := range c.batch[:done] {
		if c.to.strategy == atMostOnce && !x.buried && !x.untried {
			if x.failed {
				s.droppedCounts()[droppedRefused].Add(1)
			}
			c.arrive(x)
		}
		if x.buried {
			s.lately.add(x.id)
		}
		switch {
		case x.left > 0:
			x.state = letterUnderWay
			l.bytes += x.bytes
			s.bytes += x.bytes
		case x.buried:
			s.end(x)
		case s.gone:
			s.end(x)
		default:
			s.hold(x)
		}
	}
	if rest := c.batch[done:]; len(rest) > 0 && !s.gone {
		for _, x := range rest {
			x.state = letterWaiting
		}
		s.waiting = slices.Insert(s.waiting, 0, rest...)
	} else {
		for _, x := range rest {
			s.end(x)
		}
	}
	h := s.h
	l.mu.Unlock()
	if c.unread != nil {
		h.Unreadable(c.unread)
		c.unread = nil
	}
	for i, t := range c.sends {
		t.send()
		c.sends[i] = nil
	}
	c.sends = c.sends[:0]
	h.Bury(c.arrived)
}

// send hands on what is lined up.
func (t *letterTicket) send() {
	list := t.lined
	t.lined = nil
	t.out.Publish(list.publishes)
	clear(list.publishes) // the messages belong to the queue now
	list.publishes = list.publishes[:0]
	linedPool.Put(list)
}
