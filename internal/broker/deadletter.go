package broker

import (
	"maps"
	"slices"
	"sync"
	"time"

	"holdfast/internal/catalog"
	"holdfast/internal/clock"
	"holdfast/internal/deadletter"
	"holdfast/internal/invariant"
	"holdfast/internal/message"
	"holdfast/internal/planted"
	"holdfast/internal/queue"
	"holdfast/internal/queuehost"
	"holdfast/internal/seglog"
)

// Bounds of what is done for dead letters at a time, on the whole node.
const (
	mostCarriers     = 4        // goroutines; there are none while there is nothing to carry
	mostLetterBytes  = 16 << 20 // of messages that targets have not answered for; one more may come on top
	mostSourceBytes  = 4 << 20  // of those that are from one queue: a target that does not answer is not to hold up all
	mostCarried      = 64       // letters of one queue at a time, so that others have their turn
	letterCost       = 256      // what a message costs beside its bytes
	firstRetry       = 500 * time.Millisecond
	lastRetry        = 30 * time.Second // twice as long each time until then
	retoldWithin     = 5 * time.Second  // else a queue is asked anew for its letters
	complaintsApart  = time.Minute      // of one queue
	mostRememberedOf = 1024             // queues, of when there was a complaint
)

// letters brings the dead letters of all queues that this node serves to where they are to go.
//
// A queue hands over its letters in order, and keeps each until it is buried. So nothing here has to last: a letter that a target
// did not take is let go of, but for the few words of struct letter, and told again by its queue when it is to be tried again. Carriers
// do the work, each with one queue at a time, as long as there is any.
type letters struct {
	b        *Broker
	settings func(*catalog.View, *catalog.Queue) (deadLettering, bool)
	reach    func(*catalog.View, *catalog.Queue) outlet // nil: it does not run
	stands   func(seglog.GroupID) bool                  // the queue is there, and served here
	later    func(func())

	mu         sync.Mutex
	sources    map[seglog.GroupID]*letterSource
	line       []*letterSource // have something to carry, each once
	carriers   int
	bytes      int64 // of messages under way
	held       int   // letters
	timer      clock.Timer
	ticking    bool
	stopped    bool
	ended      chan struct{} // closed with the last carrier, when stopped
	counts     letterCounts
	byQueue    map[seglog.GroupID]*queueLetters
	complained map[seglog.GroupID]int64 // clock.Mono
}

// outlet is a queue that letters go to.
type outlet interface{ Publish([]queuehost.Publish) }

// grave is a queue that letters come from.
type grave interface {
	ID() seglog.GroupID
	Def() queuehost.QueueDef
	Bury([]queue.Range)
	TellDead()
	Unreadable(error)
}

// letterSource is a queue that has letters here. It is forgotten when it has none any more. The mutex of letters guards
// it, but for tickets.
type letterSource struct {
	l           *letters
	h           grave
	id          seglog.GroupID
	vhost, name string
	letters     map[uint64]*letter
	waiting     []*letter // to be carried, in this order
	forwards    bool      // it is the store of an exchange: what it hands over was delayed, and has not died
	busy        bool      // in line, or somebody carries
	gone        bool      // deleted, or served by another node: nothing of it counts any more
	held        int
	bytes       int64  // of its messages under way
	newest      uint64 // letter that it has told of
	lately      buriedLately
	generation  uint64                           // of the vhost when something was routed last
	to          deadLettering                    // as it was then
	asked       int64                            // since then the queue is to tell its letters again, clock.Mono; 0: it is not
	tickets     map[seglog.GroupID]*letterTicket // by target; whoever carries has it for itself
}

type letterState uint8

const (
	letterWaiting  letterState = iota // for a carrier
	letterCarried                     // a carrier has it
	letterUnderWay                    // targets have yet to answer
	letterHeld                        // some target has not taken it
)

// letter is a dead letter that is not buried, or whose targets have not all answered.
type letter struct {
	id      uint64
	reason  deadletter.Reason
	time    int64
	message message.Message
	load    *queuehost.Loader
	state   letterState
	tries   uint8            // that were in vain
	due     int64            // when it is to be tried again, clock.Mono
	targets int              // of this try
	left    int              // of them, that have not answered
	failed  bool             // one of them has not taken it, or it could not be sent
	untried bool             // it could not be read, or not be known where it goes
	missed  bool             // one that is not waited for has not taken it
	every   bool             // targets that are not durable count as well
	buried  bool             // nobody waits for the answers
	bytes   int64            // of the message under way
	has     []seglog.GroupID // targets that need it no more, of several
	held    heldFor          // why the last try was in vain
}

var letterPool = sync.Pool{New: func() any { return new(letter) }}

func newLetters(b *Broker) *letters {
	l := &letters{
		b: b, settings: deadLetteringOf, later: b.later,
		sources: map[seglog.GroupID]*letterSource{}, byQueue: map[seglog.GroupID]*queueLetters{}, complained: map[seglog.GroupID]int64{},
	}
	l.reach = func(_ *catalog.View, q *catalog.Queue) outlet {
		if h := b.handle(q); h != nil {
			return h
		}
		return nil
	}
	l.stands = func(id seglog.GroupID) bool {
		h := b.queues.Get(id)
		return h != nil && b.view().QueueByID(catalog.QueueID(id)) != nil && (!h.Quorum() || h.Leader() == b.node)
	}
	return l
}

// DeadLetters implements queuehost.Owner.
func (b *Broker) DeadLetters(h *queuehost.Handle, ds []queuehost.DeadLetter) { b.letters.take(h, ds) }

// take takes letters in. It runs on a shard worker.
func (l *letters) take(h grave, ds []queuehost.DeadLetter) {
	h.Bury(l.takeIn(h, ds))
}

// takeIn returns the letters that are buried already.
func (l *letters) takeIn(h grave, ds []queuehost.DeadLetter) (buried []queue.Range) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stopped {
		dropLetters(ds)
		return nil
	}
	s := l.source(h)
	s.asked = 0
	now := l.b.clock.Mono()
	for i := range ds {
		d := &ds[i]
		s.newest = max(s.newest, d.ID)
		x := s.letters[d.ID]
		switch {
		case s.lately.has(d.ID): // told before the queue had heard of that
			buried = appendID(buried, d.ID)
			fallthrough
		default: // it is on its way
			if d.Load != nil {
				d.Load.Drop()
			}
			continue
		case x == nil:
			x = letterPool.Get().(*letter)
			*x = letter{id: d.ID, reason: reasonOf(d.Reason), time: d.Time, has: x.has[:0]}
			s.letters[d.ID] = x
		case x.state == letterHeld && x.due <= now:
			s.unhold()
		}
		x.state, x.message, x.load = letterWaiting, d.Message, d.Load
		s.waiting = append(s.waiting, x)
	}
	s.forgetOld()
	s.lineUp()
	s.tidy()
	l.start()
	return buried
}

// reasonOf is why a message has died, in the words of its history.
func reasonOf(r queue.Reason) deadletter.Reason {
	switch r {
	case queue.Discarded:
		return deadletter.Rejected
	case queue.Expired:
		return deadletter.Expired
	case queue.Dropped:
		return deadletter.MaxLen
	}
	return deadletter.DeliveryLimit
}

func dropLetters(ds []queuehost.DeadLetter) {
	for i := range ds {
		if ds[i].Load != nil {
			ds[i].Load.Drop()
		}
	}
}

// source returns the source of a queue's letters.
func (l *letters) source(h grave) *letterSource {
	id := h.ID()
	s := l.sources[id]
	if s == nil || s.gone {
		def := h.Def()
		s = &letterSource{l: l, id: id, vhost: def.VHost, name: def.Name, forwards: def.Store, letters: map[uint64]*letter{}}
		l.sources[id] = s
	}
	s.h = h
	return s
}

// forgetOld lets go of held letters that have left their queue without having been buried: no queue has older ones out.
func (s *letterSource) forgetOld() {
	if s.held == 0 || s.newest < queuehost.DeadWindow {
		return
	}
	for id, x := range s.letters {
		if x.state == letterHeld && id <= s.newest-queuehost.DeadWindow {
			s.unhold()
			s.end(x)
		}
	}
}

// lineUp puts the source in line, if it has something to carry, and not too much under way.
func (s *letterSource) lineUp() {
	if len(s.waiting) > 0 && !s.busy && s.bytes < mostSourceBytes {
		s.busy = true
		s.l.line = append(s.l.line, s)
	}
}

// start has as many carriers begin as there is work for.
func (l *letters) start() {
	for l.carriers < min(mostCarriers, len(l.line)) && l.bytes < mostLetterBytes*3/4 && !l.stopped {
		l.carriers++
		l.later(l.carry)
	}
}

// carry is what a carrier does.
func (l *letters) carry() {
	c := carriers.Get().(*carrier)
	for s := l.next(c); s != nil; s = l.next(c) {
		c.carry(s)
		l.mu.Lock()
		s.busy = false
		s.lineUp()
		s.tidy()
		l.mu.Unlock()
	}
	c.rest()
}

// next gives a carrier the next letters, and their source; nil: it is not needed any more.
func (l *letters) next(c *carrier) *letterSource {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.line) == 0 || l.bytes >= mostLetterBytes || l.stopped {
		if l.carriers--; l.carriers == 0 && l.ended != nil {
			close(l.ended)
		}
		return nil
	}
	s := l.line[0]
	l.line[0] = nil
	l.line = l.line[1:]
	n := min(len(s.waiting), mostCarried)
	c.batch = append(c.batch[:0], s.waiting[:n]...)
	for _, x := range c.batch {
		x.state = letterCarried
	}
	s.waiting = slices.Delete(s.waiting, 0, n)
	c.room = min(mostLetterBytes-l.bytes, mostSourceBytes-s.bytes)
	return s
}

// end forgets a letter.
func (s *letterSource) end(x *letter) {
	delete(s.letters, x.id)
	if x.load != nil {
		x.load.Drop()
	}
	*x = letter{has: x.has[:0]}
	letterPool.Put(x)
}

// tidy forgets the source, if it has nothing left.
func (s *letterSource) tidy() {
	if len(s.letters) == 0 && !s.busy && s.l.sources[s.id] == s {
		delete(s.l.sources, s.id)
	}
}

// leave forgets all letters of a source but those that targets have yet to answer for.
func (s *letterSource) leave() {
	s.gone = true
	for _, x := range s.letters {
		switch x.state {
		case letterHeld:
			s.unhold()
			s.end(x)
		case letterWaiting:
			s.end(x)
		}
	}
	clear(s.waiting)
	s.waiting = s.waiting[:0]
	s.tidy()
}

// noun is what the source's letters are, in lines of the log.
func (s *letterSource) noun() string {
	if s.forwards {
		return "delayed messages"
	}
	return "dead letters"
}

// letterTicket hears what became of the letters of one source in one target.
type letterTicket struct {
	s       *letterSource
	target  seglog.GroupID
	durable bool
	out     outlet // for the batch that is carried
	lined   *lined // the same
}

// Settled implements queuehost.Ticket; the numbers are those of the letters.
func (t *letterTicket) Settled(first, last uint64, o Outcome) {
	s, l := t.s, t.s.l
	l.mu.Lock()
	var arrived []queue.Range
	failed, taken := 0, o == Accepted || o == Gone || planted.Is(planted.RefusedArrive)
	for id := first; id <= last; id++ {
		x := s.letters[id]
		if x == nil || x.state != letterUnderWay {
			invariant.Failf("broker: queue %d answers for letter %d of queue %d, which is not on its way", t.target, id, s.id)
		}
		switch done := taken || x.buried || !t.durable && !x.every; {
		case !done:
			x.failed, x.held = true, heldFor{heldRefused, t.target}
			if o == Unknown {
				x.held.cause = heldUnanswered
			}
		case !taken:
			x.missed = true
			s.droppedCounts()[droppedRefused].Add(1)
			fallthrough
		default:
			if x.targets > 1 {
				x.has = append(x.has, t.target)
			}
		}
		if x.left--; x.left > 0 {
			continue
		}
		arrived = s.answered(arrived, x)
		if x.state == letterHeld {
			failed++
		}
	}
	s.lineUp()
	s.tidy()
	l.start()
	h, say := s.h, failed > 0 && l.mayComplain(s.id)
	l.mu.Unlock()
	h.Bury(arrived)
	if say {
		l.b.log.Warn(s.noun()+" are held: a queue that they are for does not take them now", "queue", s.name, "vhost", s.vhost, "target", uint64(t.target), "letters", failed)
	}
}

// answered looks at what became of a letter, when all its targets have answered: it has arrived, or is held.
func (s *letterSource) answered(arrived []queue.Range, x *letter) []queue.Range {
	s.l.bytes -= x.bytes
	s.bytes -= x.bytes
	x.bytes = 0
	switch {
	case x.buried || s.gone:
		s.end(x)
	case x.failed:
		s.hold(x)
	default:
		if !x.missed && !s.forwards {
			s.l.counts.confirmed.Add(1)
		}
		s.lately.add(x.id)
		arrived = appendID(arrived, x.id)
		s.end(x)
	}
	return arrived
}

// buriedLately is which of the last letters of a queue are buried.
type buriedLately struct {
	top  uint64 // it is about the letters up to this one
	bits [2 * queuehost.DeadWindow / 64]uint64
}

func (b *buriedLately) at(id uint64) (word *uint64, bit uint64) {
	return &b.bits[id/64%uint64(len(b.bits))], 1 << (id % 64)
}

func (b *buriedLately) add(id uint64) {
	const size = 2 * queuehost.DeadWindow
	if id > b.top {
		for n := max(b.top, id-min(id, size)) + 1; n <= id; n++ {
			word, bit := b.at(n)
			*word &^= bit
		}
		b.top = id
	}
	if id+size > b.top {
		word, bit := b.at(id)
		*word |= bit
	}
}

func (b *buriedLately) has(id uint64) bool {
	word, bit := b.at(id)
	return id <= b.top && id+2*queuehost.DeadWindow > b.top && *word&bit != 0
}

// appendID appends a number to ranges, to the last of them if it continues that.
func appendID(list []queue.Range, id uint64) []queue.Range {
	if n := len(list); n > 0 && list[n-1].Last+1 == id {
		list[n-1].Last = id
		return list
	}
	return append(list, queue.Range{First: id, Last: id})
}

// hold keeps a letter for another try.
func (s *letterSource) hold(x *letter) {
	x.state = letterHeld
	x.due = s.l.b.clock.Mono() + int64(min(firstRetry<<min(x.tries, 16), lastRetry))
	x.tries = min(x.tries+1, 100)
	s.held++
	s.l.held++
	s.l.tickSoon()
}

func (s *letterSource) unhold() { s.held--; s.l.held-- }

// tickSoon has tick called, as long as letters are held.
func (l *letters) tickSoon() {
	switch {
	case l.ticking || l.held == 0 || l.stopped:
	case l.timer == nil:
		l.ticking = true
		l.timer = l.b.clock.AfterFunc(firstRetry, l.tick)
	default:
		l.ticking = true
		l.timer.Reset(firstRetry)
	}
}

// tick has the queues tell again the letters that are to be tried again: since their time has come, or since the vhost, or where
// the queue's letters go, is not what it was.
func (l *letters) tick() {
	l.mu.Lock()
	l.ticking = false
	now, view := l.b.clock.Mono(), l.b.view()
	var ask []grave
	for _, id := range slices.Sorted(maps.Keys(l.sources)) {
		s := l.sources[id]
		if s.held == 0 || planted.Is(planted.HeldStay) {
			continue
		}
		if !l.stands(id) {
			s.leave()
			continue
		}
		changed := generationOf(view, s.vhost) != s.generation
		if q := view.QueueByID(catalog.QueueID(id)); q != nil {
			to, _ := l.settings(view, q)
			changed = changed || to != s.to
		}
		due := false
		for _, x := range s.letters {
			if x.state == letterHeld {
				if changed {
					x.due = min(x.due, now)
				}
				due = due || x.due <= now
			}
		}
		if due && (s.asked == 0 || now-s.asked >= int64(retoldWithin)) {
			s.asked = now
			ask = append(ask, s.h)
		}
	}
	l.tickSoon()
	l.mu.Unlock()
	for _, h := range ask {
		h.TellDead()
	}
}

func generationOf(v *catalog.View, vhost string) uint64 {
	if vh := v.VHost(vhost); vh != nil {
		return vh.Generation()
	}
	return 0
}

// mayComplain reports whether the log may have a line about a queue's letters, and notes that it has.
func (l *letters) mayComplain(id seglog.GroupID) bool {
	now := l.b.clock.Mono()
	if last, has := l.complained[id]; has && now-last < int64(complaintsApart) {
		return false
	}
	if len(l.complained) >= mostRememberedOf {
		maps.DeleteFunc(l.complained, func(_ seglog.GroupID, last int64) bool { return now-last >= int64(complaintsApart) })
	}
	l.complained[id] = now
	return true
}

// drop forgets a queue that is deleted.
func (l *letters) drop(id seglog.GroupID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.sources[id]; s != nil {
		s.leave()
	}
	delete(l.byQueue, id)
	delete(l.complained, id)
}

// stop ends the carrying, and returns when the last carrier has ended or limit has passed. The queues have what was not buried.
func (l *letters) stop(limit time.Duration) {
	l.mu.Lock()
	l.stopped = true
	if l.timer != nil {
		l.timer.Stop()
	}
	for _, s := range l.sources {
		s.leave()
	}
	var ended chan struct{}
	if l.carriers > 0 {
		l.ended = make(chan struct{})
		ended = l.ended
	}
	l.mu.Unlock()
	if ended == nil {
		return
	}
	expired, done := clock.After(l.b.clock, limit)
	defer done()
	select {
	case <-ended:
	case <-expired:
	}
}
