package broker

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"holdfast/internal/catalog"
	"holdfast/internal/clock"
	"holdfast/internal/deadletter"
	"holdfast/internal/message"
	"holdfast/internal/queue"
	"holdfast/internal/queuehost"
	"holdfast/internal/routing"
	"holdfast/internal/wire"
)

// Redrive says which messages of a queue of dead letters are to be sent back, and where to.
type Redrive struct {
	VHost, Queue string

	First         bool    // to where they died first, not last
	Exchange, Key *string // through this exchange, with this key, instead; nil: the default exchange, the key that they have

	Reason    string        // only those that died of this, "": any
	From      string        // only those that died in this queue, "": any
	OlderThan time.Duration // only those that died there so long ago, or longer

	Limit  uint64  // so many at most; 0: no limit
	Rate   float64 // so many a second at most; 0: no limit
	DryRun bool    // none is sent
}

// Redriven is how far a redrive is.
type Redriven struct {
	Sent   uint64            `json:"sent"`   // or would be
	Passed uint64            `json:"passed"` // were not wanted
	Left   map[string]uint64 `json:"left"`   // wanted, and could not be sent, by the reason
	To     map[string]uint64 `json:"to"`     // those that were sent, by the queue that they are back in, where one was named by their history
}

// Bounds of a redrive.
const (
	redriveWindow = 64      // messages under way at a time
	redriveBytes  = 8 << 20 // of theirs; one more may come on top
	redriveTick   = time.Second
	redriveNames  = 1000 // of queues that are told apart in Redriven.To
)

// Redrive sends messages of a queue back to where they died. It looks at as many as are ready when it begins, each once; what is not sent stays, in
// its place. A message leaves only when all queues that it is for have it, so one may be in both for a moment, or after a
// crash. It ends with ctx, and when the broker stops; then it has still heard of what was under way, or waited for it in vain. progress is called
// now and then, from this goroutine. Of one queue there is one at a time on a node.
func (b *Broker) Redrive(ctx context.Context, o Redrive, progress func(Redriven)) (Redriven, error) {
	r := &redrive{b: b, o: o, said: Redriven{Left: map[string]uint64{}, To: map[string]uint64{}}, wake: make(chan struct{}, 1), halt: make(chan struct{})}
	if err := r.begin(); err != nil {
		return r.said, err
	}
	defer r.end()
	err := r.run(ctx, progress)
	return r.said, err
}

// redrive is one under way. All but events belongs to the goroutine that runs it.
type redrive struct {
	b      *Broker
	o      Redrive
	q      *catalog.Queue
	h      *queuehost.Handle
	getter queue.ConsumerID
	reader *Reader
	maker  message.Builder
	began  int64 // clock.Mono
	said   Redriven

	budget   uint64 // messages that are yet to be asked for
	asked    int    // for, and not here
	underWay int
	bytes    int64 // under way
	tokens   uint64
	empty    bool
	ending   bool
	failed   error
	stays    []queue.Range // ids of deliveries that go back

	mu     sync.Mutex
	events []redriveEvent
	over   bool
	wake   chan struct{}
	halt   chan struct{} // closed when the broker stops
}

// redriveEvent is an answer of a queue.
type redriveEvent struct {
	d     Delivery
	found bool
	err   error
	sent  *redriveTicket // else it is the answer to a get
}

// begin checks what is asked for, and takes hold of the queue.
func (r *redrive) begin() error {
	b, o := r.b, &r.o
	q, h, err := b.servingQueue(o.VHost, o.Queue)
	switch {
	case err != nil:
		return err
	case o.Reason != "" && !deadletter.IsReason(o.Reason):
		return &AdminError{Invalid, fmt.Sprintf("messages do not die of '%s'", o.Reason)}
	case o.First && (o.Exchange != nil || o.Key != nil):
		return &AdminError{Invalid, "messages go either to where they died first or through an exchange"}
	case o.Rate < 0:
		return &AdminError{Invalid, "a rate is not below 0"}
	case q.Paused:
		return &AdminError{Rejected, fmt.Sprintf("queue '%s' in vhost '%s' is paused", q.Name, q.VHost)}
	case o.Exchange != nil && b.view().Exchange(o.VHost, *o.Exchange) == nil:
		return &AdminError{NotFound, fmt.Sprintf("no exchange '%s' in vhost '%s'", *o.Exchange, o.VHost)}
	}
	if err := b.Health(); err != nil && !o.DryRun {
		return err
	}
	if r.budget, err = await(b, func(done func(uint64, error)) {
		h.Count(func(ready, _ uint64, err error) { done(ready, err) })
	}); err != nil {
		return adminError(err)
	}
	b.redrives.mu.Lock()
	defer b.redrives.mu.Unlock()
	if b.redrives.stopped {
		return adminError(errStops)
	}
	if b.redrives.of[q.ID] != nil {
		return &AdminError{Rejected, fmt.Sprintf("messages of queue '%s' in vhost '%s' are being sent back already", q.Name, q.VHost)}
	}
	if b.redrives.of == nil {
		b.redrives.of = map[catalog.QueueID]*redrive{}
	}
	b.redrives.of[q.ID] = r
	r.q, r.h, r.began, r.reader = q, h, b.clock.Mono(), b.newReader()
	const long = int64(10 * 365 * 24 * time.Hour / time.Millisecond) // what is passed over is held until the end
	r.getter = h.Getter(queuehost.ConsumerSpec{Arguments: wire.NewTable(map[string]any{"x-consumer-timeout": long})}, noConsumer{})
	b.log.Info("redrive begins", "queue", q.Name, "vhost", q.VHost, "ready", r.budget, "dry_run", o.DryRun)
	return nil
}

// end gives back what stays, to its place, and lets go of the queue.
func (r *redrive) end() {
	b := r.b
	r.mu.Lock()
	r.over = true
	for i := range r.events {
		r.events[i].drop()
	}
	r.events = nil
	r.mu.Unlock()
	r.h.Settle(r.getter, r.stays, queuehost.Return)
	_, _ = await(b, func(done func(any, error)) { r.h.Detach(r.getter, func() { done(nil, nil) }) })
	left := uint64(0)
	for _, n := range r.said.Left {
		left += n
	}
	defer b.redrives.ends(r)
	b.log.Info("redrive ends", "queue", r.q.Name, "vhost", r.q.VHost, "sent", r.said.Sent, "passed_over", r.said.Passed, "left", left, "error", r.failed)
}

// run does it.
func (r *redrive) run(ctx context.Context, progress func(Redriven)) error {
	gone, failed, halt := ctx.Done(), r.b.failed, r.halt
	told := r.began
	var patience int64 // until then it waits for what is under way when it ends early
	for {
		now := r.b.clock.Mono()
		if r.ending && patience == 0 {
			patience = now + int64(r.b.settings.PublishTimeout)
		}
		wait := min(redriveTick, r.ask(now))
		if r.asked == 0 && r.underWay == 0 && r.finished() || r.ending && now >= patience {
			return r.failed
		}
		expired, done := clock.After(r.b.clock, wait)
		select {
		case <-r.wake:
		case <-expired:
		case <-gone:
			r.stop(nil)
			gone = nil
		case <-failed:
			r.stop(errFailed)
			failed = nil
		case <-halt:
			r.stop(errStops)
			halt = nil
		}
		done()
		r.mu.Lock()
		events := r.events
		r.events = nil
		r.mu.Unlock()
		for i := range events {
			r.hear(&events[i])
		}
		if now := r.b.clock.Mono(); now-told >= int64(redriveTick) {
			told = now
			progress(r.said)
		}
	}
}

// stop has it come to its end.
func (r *redrive) stop(why error) {
	r.ending = true
	if r.failed == nil && why != nil {
		r.failed = adminError(why)
	}
}

// finished reports whether no further message is asked for, when none is under way.
func (r *redrive) finished() bool {
	return r.ending || r.empty || r.budget == 0 || r.o.Limit > 0 && r.said.Sent >= r.o.Limit
}

// ask asks for as many messages as there is room and time for, and says when there is time for the next.
func (r *redrive) ask(now int64) (wait time.Duration) {
	wait = redriveTick
	switch closing, alarm := r.b.holdsBack(); {
	case closing:
		r.stop(errStops)
		return wait
	case r.ending || r.empty || r.bytes >= redriveBytes || alarm && !r.o.DryRun:
		return wait
	}
	n := uint64(max(redriveWindow-r.asked-r.underWay, 0))
	n = min(n, r.budget)
	if r.o.Limit > 0 {
		n = min(n, r.o.Limit-min(r.o.Limit, r.said.Sent+uint64(r.asked+r.underWay)))
	}
	if r.o.Rate > 0 && !r.o.DryRun {
		due := uint64(float64(now-r.began)/float64(time.Second)*r.o.Rate) + 1
		n = min(n, due-min(due, r.tokens))
		wait = max(time.Duration(float64(r.tokens+n)/r.o.Rate*float64(time.Second))-time.Duration(now-r.began), time.Millisecond)
	}
	for range n {
		r.asked++
		r.budget--
		r.tokens++
		r.h.Get(r.getter, false, func(d Delivery, _ uint64, found bool, err error) { r.put(redriveEvent{d: d, found: found, err: err}) })
	}
	return wait
}

// put takes in an answer, on any goroutine.
func (r *redrive) put(e redriveEvent) {
	r.mu.Lock()
	if r.over {
		r.mu.Unlock()
		e.drop()
		return
	}
	r.events = append(r.events, e)
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// drop forgets an answer. A message in it goes back with the getter.
func (e *redriveEvent) drop() {
	if e.d.Load != nil {
		e.d.Load.Drop()
	}
}

// hear sees to an answer.
func (r *redrive) hear(e *redriveEvent) {
	switch {
	case e.sent != nil:
		r.underWay--
		r.bytes -= e.sent.size
		if e.sent.why == "" {
			r.h.Settle(r.getter, []queue.Range{{First: e.sent.id, Last: e.sent.id}}, queue.Ack)
			r.counts(e.sent.to)
			return
		}
		r.leave(e.sent.id, e.sent.why)
	case e.err != nil:
		r.asked--
		r.stop(e.err)
	case !e.found:
		r.asked--
		r.empty = true
	default:
		r.asked--
		r.message(&e.d)
	}
}

// counts counts a message as sent.
func (r *redrive) counts(to string) {
	r.said.Sent++
	if _, known := r.said.To[to]; to != "" && (known || len(r.said.To) < redriveNames) {
		r.said.To[to]++
	}
}

// leave leaves a message where it is, since it cannot be sent.
func (r *redrive) leave(id uint64, why string) {
	r.said.Left[why]++
	r.tokens--
	r.stay(id)
}

func (r *redrive) stay(id uint64) { r.stays = appendID(r.stays, id) }

// Why a message is left: RabbitMQ has no words for it.
const (
	leftNoHistory   = "no_history"  // it does not say where it died
	leftNoQueue     = "no_queue"    // that is gone
	leftNoExchange  = "no_exchange" // the exchange is
	leftNoRoute     = "no_route"    // no queue is bound for it
	leftSameQueue   = "same_queue"  // it would come back to where it is
	leftUnavailable = "unavailable" // a queue cannot take it now, or its node has an alarm
	leftRefused     = "refused"     // a queue did not take it
	leftUnknown     = "unknown"     // there was no answer in time: it may be there as well
	leftUnreadable  = "unreadable"
)

// message sees to a message of the queue.
func (r *redrive) message(d *Delivery) {
	v, chunks, err := r.load(d)
	if err != nil {
		r.leave(d.ID, leftUnreadable)
		return
	}
	from, has := deadletter.LastOrigin(&v)
	if r.o.First {
		from, has = deadletter.FirstOrigin(&v)
	}
	if !r.wants(&from, has) {
		r.said.Passed++
		r.tokens--
		r.stay(d.ID)
		return
	}
	to, heading, handles, keep, why := r.direct(&v, &from, has)
	switch {
	case why != "":
		r.leave(d.ID, why)
		return
	case r.o.DryRun:
		r.counts(to)
		r.stay(d.ID)
		return
	}
	m := r.maker.Readdress(&heading, v, chunks)
	if keep != nil {
		keep(m)
	}
	t := &redriveTicket{r: r, id: d.ID, to: to, left: len(handles), size: int64(m.Size()) + letterCost}
	r.underWay++
	r.bytes += t.size
	for _, h := range handles {
		h.Publish([]queuehost.Publish{{Message: m, Persistent: v.Persistent, Carried: true, Ticket: t}})
	}
}

// load reads a message. The view is good until the next one; chunks are its own.
func (r *redrive) load(d *Delivery) (v message.View, chunks [][]byte, err error) {
	m := d.Message
	if from := d.Load; from != nil {
		defer from.Drop()
		if m, err = from.Load(r.reader); err != nil {
			return v, nil, err
		}
		if n := from.Chunks(); n > 0 {
			m.Head = bytes.Clone(m.Head)
			for i := range n {
				chunk, err := from.Chunk(r.reader, i)
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

// wants reports whether a message is one that is to be sent.
func (r *redrive) wants(from *deadletter.Origin, has bool) bool {
	o := &r.o
	if o.Reason == "" && o.From == "" && o.OlderThan == 0 {
		return true
	}
	return has && (o.Reason == "" || o.Reason == from.Reason) && (o.From == "" || o.From == from.Queue) &&
		(o.OlderThan == 0 || r.b.clock.Now().Unix()-from.Time >= int64(o.OlderThan/time.Second))
}

// direct says where a message goes: to which queues, and under which heading. to is the queue that its history names. keep, if not nil, is to
// be called with the message. What its history says is carried along and counts no more: see docs/dead-lettering.md.
func (r *redrive) direct(v *message.View, from *deadletter.Origin, has bool) (to string, h message.Heading, handles []*queuehost.Handle, keep func(message.Message), why string) {
	b := r.b
	view := b.view()
	h = message.Heading{
		Exchange: v.Exchange, Key: v.RoutingKey, Properties: v.Properties, Hidden: v.Hidden, Persistent: v.Persistent, Rekeyed: v.Rekeyed,
	}
	var ids []catalog.QueueID
	if r.o.Exchange == nil && r.o.Key == nil {
		if !has {
			return "", h, nil, nil, leftNoHistory
		}
		q := view.Queue(r.o.VHost, from.Queue)
		if q == nil {
			return "", h, nil, nil, leftNoQueue
		}
		h.Exchange, to, ids = []byte(from.Exchange), q.Name, []catalog.QueueID{q.ID}
		if len(from.Keys) > 0 {
			h.Key, h.Rekeyed = []byte(from.Keys[0]), len(from.Keys) == 1
		}
	} else {
		name := ""
		if r.o.Exchange != nil {
			name = *r.o.Exchange
		}
		x := view.Exchange(r.o.VHost, name)
		if x == nil {
			return "", h, nil, nil, leftNoExchange
		}
		h.Exchange = []byte(name)
		if r.o.Key != nil {
			h.Key, h.Hidden, h.Rekeyed = []byte(*r.o.Key), nil, true
		}
		keys, _ := deadletter.Keys(nil, &message.View{RoutingKey: h.Key, Properties: v.Properties, Rekeyed: h.Rekeyed, Hidden: h.Hidden})
		about := routing.Message{
			Key: string(keys[0]), Properties: v.Properties, Draw: rand.Uint64,
			Here: func(t routing.Target) bool { return b.takes(view, catalog.QueueID(t.ID())) },
		}
		for _, key := range keys[1:] {
			about.Further = append(about.Further, string(key))
		}
		ids = view.Route(x, &about, nil)
		if len(about.Kept) > 0 {
			kept := newKeepers(about.Kept)
			keep = func(m message.Message) { b.histories.keep(b, r.o.VHost, kept, generationOf(view, r.o.VHost), m) }
		}
	}
	alarms := b.AlarmsElsewhere()
	for _, id := range ids {
		target := b.handleByID(view, id)
		switch {
		case id == r.q.ID:
			return "", h, nil, nil, leftSameQueue
		case target == nil || target.Unavailable() != nil || b.alarmFor(alarms, target) != nil:
			return "", h, nil, nil, leftUnavailable
		}
		handles = append(handles, target)
	}
	if len(handles) == 0 {
		return "", h, nil, nil, leftNoRoute
	}
	return to, h, handles, keep, ""
}

// redriveTicket hears what becomes of one message in all queues that it is for.
type redriveTicket struct {
	r    *redrive
	id   uint64 // of the delivery
	to   string
	size int64

	mu   sync.Mutex
	left int
	why  string // it has not arrived everywhere
}

// Settled implements queuehost.Ticket.
func (t *redriveTicket) Settled(_, _ uint64, o Outcome) {
	t.mu.Lock()
	switch o {
	case Accepted:
	case Gone:
		t.why = cmp.Or(t.why, leftNoQueue)
	case Unknown:
		t.why = leftUnknown
	default:
		t.why = cmp.Or(t.why, leftRefused)
	}
	t.left--
	last := t.left == 0
	t.mu.Unlock()
	if last {
		t.r.put(redriveEvent{sent: t})
	}
}

// redrives are those under way, by the queue.
type redrives struct {
	mu      sync.Mutex
	of      map[catalog.QueueID]*redrive
	stopped bool
	ended   chan struct{} // closed with the last one, when stopped
}

// errStops says why a redrive ends when the broker does.
var errStops = errors.New("the node is stopping")

// ends forgets one.
func (x *redrives) ends(r *redrive) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.of, r.q.ID)
	if len(x.of) == 0 && x.ended != nil {
		close(x.ended)
		x.ended = nil
	}
}

// stop has all end, and returns when they have or limit has passed.
func (x *redrives) stop(clk clock.Clock, limit time.Duration) {
	x.mu.Lock()
	x.stopped = true
	for _, r := range x.of {
		close(r.halt)
	}
	var ended chan struct{}
	if len(x.of) > 0 {
		ended = make(chan struct{})
		x.ended = ended
	}
	x.mu.Unlock()
	if ended == nil {
		return
	}
	expired, done := clock.After(clk, limit)
	defer done()
	select {
	case <-ended:
	case <-expired:
	}
}

// holdsBack reports whether the broker is about to stop, and whether an alarm is on.
func (b *Broker) holdsBack() (closing, alarm bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.closing != nil, len(b.alarms) > 0
}
