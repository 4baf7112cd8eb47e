package queue

import (
	"cmp"
	"fmt"
	"slices"
)

// model is a queue as one would write it first: a slice of messages, and everything found by
// looking at all of them. It is the specification that the machine is compared with.
type model struct {
	now        int64
	messages   []*modelMessage // in the order they came in
	consumers  []*modelConsumer
	line       []*modelConsumer
	sessions   map[SessionID]*modelSession
	given      map[uint8]uint64
	getters    map[ConsumerID]bool // all there ever were
	autoDelete bool
	handedOut  bool
	set        Settings
	setAt      uint64
	deadGiven  uint64
	keys       modelKeys
	committed  int            // transactions
	active     *modelConsumer // the single active consumer
	yields     bool

	events   []string           // what happened in the entry, in order
	released []string           // and what was released
	sent     map[sentKey]Effect // what the machine has sent, by delivery

	restart bool // the command is the first one of an entry, and a Recover
}

type modelMessage struct {
	number      Number
	transient   bool
	redelivered bool
	count, acq  int
	chunks      []Number
	coming      bool // not in yet

	dead     uint64 // its dead id; 0: it is alive
	told     bool
	reason   Reason
	died     int64 // seconds
	mortal   bool
	until    int64 // it waits until this time; 0: it does not
	size     uint64
	weighed  bool
	deadline int64
	key      Key  // if duplicates of it are found by it
	fresh    bool // it came in the command that is carried out

	holder *modelConsumer // nil: ready
	id     uint64
	since  int64
}

type modelConsumer struct {
	id               ConsumerID
	session          SessionID
	prefetch, credit uint64 // credit: Unlimited as in the machine
	noAck, exclusive bool
	wake, getter     bool
	cancelled, woken bool
	delivered        uint64
	outer            uint64
	level            int32
	timeout          uint64
	inactive         bool
}

type modelSession struct {
	node, incarnation      uint64
	suspect                bool
	epoch, closed, lastSeq uint64
	uploads                map[uint64][]Number
	under                  map[uint32]*modelTransaction
	refused, closedRefused []uint64 // numbers
}

func newModel() *model {
	return &model{sessions: map[SessionID]*modelSession{}, given: map[uint8]uint64{}, getters: map[ConsumerID]bool{}, sent: map[sentKey]Effect{}}
}

func (m *model) event(format string, args ...any) {
	m.events = append(m.events, fmt.Sprintf(format, args...))
}

func (m *model) apply(e *Entry) (events, released []string) {
	m.now = max(m.now, e.Time)
	m.events, m.released = nil, nil
	restart := len(e.Commands) > 0 && e.Commands[0].Kind == Recover
	if !restart {
		m.passTime()
	}
	for i := range e.Commands {
		m.restart = restart && i == 0
		m.command(&e.Commands[i])
	}
	return m.events, m.released
}

func (m *model) passTime() {
	m.keepWindow()
	m.ripen()
	m.serve()
	m.expire()
}

func (m *model) command(c *Command) {
	con := m.consumer(c.Consumer)
	s := m.sessions[c.Session]
	switch c.Kind {
	case Configure:
		m.autoDelete = c.AutoDelete
	case Enqueue:
		if c.tx() > 0 {
			m.enqueuePart(c, s)
			break
		}
		m.enqueue(c, s, m.numbers(c))
	case Commit:
		m.commit(c, s)
	case Abort:
		if s != nil && s.under[c.tx()] != nil {
			m.forsakeParts(s.under[c.tx()], Aborted)
			delete(s.under, c.tx())
		}
	case Chunk:
		for range c.Count {
			n := m.number(ChunkLane)
			if s == nil {
				m.gone(n, Aborted)
				continue
			}
			s.uploads[c.Upload] = append(s.uploads[c.Upload], n)
		}
	case Attach:
		m.attach(c, con, s)
	case Cancel:
		m.event("cancelled %d", c.Consumer)
		if con != nil {
			was := con.cancelled
			con.cancelled = true
			m.unused(!con.getter && !was)
		}
	case Detach:
		m.event("detached %d", c.Consumer)
		if con != nil {
			was := !con.getter && !con.cancelled
			m.end(con, c.Blameless, left)
			m.unused(was)
		}
	case Credit, CreditTo:
		m.credit(c, con)
	case Get:
		if con == nil || !con.getter || con.cancelled || m.first() == nil || m.set.Paused || m.set.Forward {
			m.event("empty %d", c.Consumer)
			break
		}
		con.noAck = c.NoAck
		m.assign(con)
		m.expire()
		m.event("left %d", len(m.ready()))
	case Settle:
		m.settle(c, s, con)
	case Purge:
		ready := append(m.ready(), m.waiting()...)
		m.event("purged %d", len(ready))
		for _, x := range ready {
			m.release(x, PurgedAway)
		}
	case DropHead, Expire:
		reason := Dropped
		if c.Kind == Expire {
			reason = Expired
		}
		if Number(c.First).Lane() != Number(c.Last).Lane() {
			break
		}
		for _, x := range m.ready() {
			if x.number >= Number(c.First) && x.number <= Number(c.Last) {
				m.die(x, reason)
			}
		}
	case SessionOpen:
		m.sessionOpen(c)
	case SessionSuspect:
		if s != nil {
			s.suspect = true
		}
	case SessionDead:
		m.sessionDead(c.Session, c.Blameless)
	case EpochOpen:
		if s == nil {
			m.event("epoch of %d refused: no-session", c.Session)
			break
		}
		if c.Epoch > s.epoch {
			s.epoch, s.closed, s.lastSeq = c.Epoch, s.lastSeq, 0
			s.refused, s.closedRefused = nil, s.refused
			m.abort(s)
		}
		m.event("epoch of %d opened after %d", c.Session, s.closed)
	case Recover:
		m.recover(c)
	case Set:
		if c.Epoch >= m.setAt || c.Epoch == 0 {
			m.setAt = max(m.setAt, c.Epoch)
			m.configure(c.terms().Set)
		}
	case TimeOut:
		m.timeOut(c, con)
	case Weigh:
		for _, x := range m.messages {
			if m.sized() && !x.weighed && x.number >= Number(c.First) && x.number <= Number(c.Last) && Number(c.First).Lane() == Number(c.Last).Lane() {
				x.weighed, x.size = true, c.Bytes
			}
		}
	case Bury:
		for _, x := range slices.Clone(m.messages) {
			if x.dead >= c.First && x.dead <= c.Last && x.told && x.dead > 0 {
				m.release(x, x.reason)
			}
		}
	}
	m.serve()
	m.choose()
	m.serve()
	m.forward()
	m.expire()
	m.keepLimit()
	m.expire()
	m.keepDead()
}

func (m *model) settle(c *Command, s *modelSession, con *modelConsumer) {
	if c.tx() > 0 {
		if s != nil {
			t := s.transaction(c.tx())
			part := *c
			part.Terms = nil
			t.settles = append(t.settles, part)
		}
		return
	}
	if con == nil || con.session != c.Session {
		return
	}
	for _, x := range m.heldBy(con) {
		if x.id < c.First || x.id > c.Last {
			continue
		}
		switch c.How {
		case Ack:
			m.release(x, Acked)
		case Discard:
			if m.set.DeadLetter != NoDeadLetter {
				x.back(c.Blameless)
			}
			m.die(x, Discarded)
		case Requeue:
			m.back(x, c.Blameless, requeued)
		}
	}
}

func (m *model) sessionOpen(c *Command) {
	owner, incarnation := c.Node, c.Incarnation
	if owner == 0 {
		incarnation = 0
	}
	for _, id := range sorted(m.sessions) {
		s := m.sessions[id]
		if owner == 0 || s.node != owner {
			continue
		}
		if s.incarnation > incarnation {
			return // late
		}
		if s.incarnation < incarnation {
			m.sessionDead(id, true)
			m.serve()
		} else if id != c.Session {
			return // it has one already
		}
	}
	s := m.sessions[c.Session]
	switch {
	case s == nil:
		m.sessions[c.Session] = &modelSession{
			node: owner, incarnation: incarnation, uploads: map[uint64][]Number{}, under: map[uint32]*modelTransaction{},
		}
	case owner == 0 || owner == s.node:
		s.suspect = false
	}
}

func (m *model) sessionDead(id SessionID, blameless bool) {
	s := m.sessions[id]
	if s == nil {
		return
	}
	m.abort(s)
	delete(m.sessions, id)
	was := false
	for _, con := range slices.Clone(m.consumers) {
		if con.session == id {
			was = was || !con.getter && !con.cancelled
			m.end(con, blameless, left)
		}
	}
	m.unused(was)
}

func (m *model) attach(c *Command, con *modelConsumer, s *modelSession) {
	reason := Reason(0)
	others := 0
	for _, o := range m.consumers {
		if o.getter || o.cancelled {
			continue
		}
		others++
		if o.exclusive {
			reason = ExclusiveUse
		}
	}
	switch {
	case s == nil:
		reason = NoSession
	case con != nil:
		reason = InUse
	case c.Getter:
		reason = 0
	case reason == ExclusiveUse:
	case c.Exclusive && others > 0:
		reason = NotAlone
	}
	if reason != 0 {
		m.event("refused %d %v", c.Consumer, reason)
		return
	}
	con = &modelConsumer{
		id: c.Consumer, session: c.Session, prefetch: uint64(c.Prefetch), credit: uint64(c.Credit),
		noAck: c.NoAck, exclusive: c.Exclusive, wake: c.Wake, getter: c.Getter, outer: c.Outer,
	}
	if c.terms().Ranked {
		con.level = c.Priority
	}
	con.timeout = c.terms().Timeout
	con.inactive = m.set.SingleActive && !con.getter
	m.consumers = append(m.consumers, con)
	if con.getter {
		m.getters[con.id] = true
	}
	m.event("attached %d", con.id)
}

func (m *model) credit(c *Command, con *modelConsumer) {
	if con != nil && !con.getter {
		switch {
		case c.Kind == Credit:
			con.credit = min(con.credit+uint64(c.Credit), uint64(Unlimited))
		case c.Credit == Unlimited:
			con.credit = uint64(Unlimited)
		default:
			con.credit = min(max(c.Last, con.delivered)-con.delivered, uint64(Unlimited)-1)
		}
		con.woken = false
		m.serve()
	}
	if !c.Drain {
		return
	}
	left := uint64(0)
	if con != nil && !con.getter {
		if con.credit != uint64(Unlimited) {
			left = con.credit
		}
		con.credit = 0
	}
	m.event("drained %d of %d", c.Consumer, left)
}

func (m *model) recover(c *Command) {
	for _, id := range sorted(m.sessions) {
		m.abort(m.sessions[id])
	}
	m.sessions = map[SessionID]*modelSession{}
	for _, con := range slices.Clone(m.consumers) {
		m.end(con, true, restarted)
	}
	m.keys.window = slices.DeleteFunc(slices.Clone(m.keys.window), func(s seen) bool { return s.transient })
	for _, p := range m.keys.publishers {
		p.recover()
	}
	m.keys.publishers = slices.DeleteFunc(slices.Clone(m.keys.publishers), func(p *modelPublisher) bool { return p.below == 0 && len(p.accepted) == 0 })
	dropped := 0
	for _, x := range slices.Clone(m.messages) {
		if x.transient {
			m.release(x, Lost)
			dropped++
		}
		x.told = false
	}
	m.ripen()
	for _, x := range m.messages {
		if m.handedOut && !c.Clean {
			x.redelivered = x.redelivered || x.dead == 0 && x.until == 0
		}
	}
	m.handedOut = false
	m.event("recovered, %d dropped", dropped)
	if m.restart {
		m.passTime()
	}
}

// serve gives messages out until there are none or nobody can take one.
func (m *model) serve() {
	m.tidy()
	for m.first() != nil && len(m.line) > 0 && !m.set.Paused && !m.set.Forward {
		if x := m.first(); m.due(x) && !x.fresh {
			m.die(x, Expired)
			continue
		}
		con := slices.MaxFunc(m.line, func(a, b *modelConsumer) int { return cmp.Compare(a.level, b.level) })
		m.line = slices.DeleteFunc(m.line, func(o *modelConsumer) bool { return o == con })
		if con.credit == 0 {
			con.woken = true
			m.event("wake %d", con.id)
		} else {
			m.assign(con)
		}
		m.tidy()
	}
}

// tidy removes cancelled consumers that hold nothing, and puts those who can get something, and
// no others, in line.
func (m *model) tidy() {
	m.consumers = slices.DeleteFunc(m.consumers, func(con *modelConsumer) bool {
		return con.cancelled && m.count(con) == 0
	})
	slices.SortFunc(m.consumers, func(a, b *modelConsumer) int { return cmp.Compare(a.id, b.id) })
	for _, con := range m.consumers {
		able := !con.getter && !con.cancelled && !con.inactive && !m.sessions[con.session].suspect &&
			(con.noAck || con.prefetch == 0 || uint64(m.count(con)) < con.prefetch) &&
			(con.credit > 0 || con.wake && !con.woken)
		i := slices.Index(m.line, con)
		if able && i < 0 {
			m.line = append(m.line, con)
		} else if !able && i >= 0 {
			m.line = slices.Delete(m.line, i, i+1)
		}
	}
	m.line = slices.DeleteFunc(m.line, func(con *modelConsumer) bool { return !slices.Contains(m.consumers, con) })
}

func (m *model) assign(con *modelConsumer) {
	x := m.first()
	con.delivered++
	if con.credit != uint64(Unlimited) && !con.getter {
		con.credit--
	}
	m.handedOut = m.handedOut || !x.transient
	m.event("deliver %d to %d as %d redelivered=%v count=%d acquired=%d noack=%v transient=%v chunks=%v",
		x.number, con.id, con.delivered, x.redelivered, x.count, x.acq, con.noAck, x.transient, x.chunks)
	if con.noAck {
		m.release(x, AutoAcked)
		return
	}
	x.holder, x.id, x.since = con, con.delivered, m.now
}

func (x *modelMessage) back(blameless bool) {
	x.holder = nil
	x.redelivered = true
	x.acq++
	if !blameless {
		x.count++
	}
}

// end removes a consumer and returns what it holds.
func (m *model) end(con *modelConsumer, blameless bool, why comeback) {
	for _, x := range m.heldBy(con) {
		m.back(x, blameless, why)
	}
	m.consumers = slices.DeleteFunc(m.consumers, func(o *modelConsumer) bool { return o == con })
	m.line = slices.DeleteFunc(m.line, func(o *modelConsumer) bool { return o == con })
}

func (m *model) unused(was bool) {
	if was && m.autoDelete && !slices.ContainsFunc(m.consumers, func(o *modelConsumer) bool { return !o.getter && !o.cancelled }) {
		m.event("unused")
	}
}

func (m *model) abort(s *modelSession) {
	for _, chunks := range s.uploads {
		for _, n := range chunks {
			m.gone(n, Aborted)
		}
	}
	s.uploads = map[uint64][]Number{}
	for _, t := range s.under {
		m.forsakeParts(t, Aborted)
	}
	clear(s.under)
}

func (m *model) release(x *modelMessage, reason Reason) {
	m.messages = slices.DeleteFunc(m.messages, func(o *modelMessage) bool { return o == x })
	m.gone(x.number, reason)
	for _, n := range x.chunks {
		m.gone(n, reason)
	}
}

func (m *model) gone(n Number, reason Reason) {
	m.released = append(m.released, fmt.Sprintf("%d %v", n, reason))
}

func (m *model) number(lane uint8) Number {
	m.given[lane]++
	return MakeNumber(lane, m.given[lane])
}

func (m *model) consumer(id ConsumerID) *modelConsumer {
	for _, con := range m.consumers {
		if con.id == id {
			return con
		}
	}
	return nil
}

func (x *modelMessage) isReady() bool {
	return x.holder == nil && !x.coming && x.dead == 0 && x.until == 0
}

// ready returns the ready messages, first the one to be delivered first.
func (m *model) ready() []*modelMessage {
	var xs []*modelMessage
	for _, x := range m.messages {
		if x.isReady() {
			xs = append(xs, x)
		}
	}
	slices.SortFunc(xs, func(a, b *modelMessage) int {
		return cmp.Or(cmp.Compare(rank(b.number), rank(a.number)), cmp.Compare(a.number, b.number))
	})
	return xs
}

func (m *model) first() *modelMessage {
	var first *modelMessage
	for _, x := range m.messages {
		if x.isReady() && (first == nil || rank(x.number) > rank(first.number) || rank(x.number) == rank(first.number) && x.number < first.number) {
			first = x
		}
	}
	return first
}

func (m *model) heldBy(con *modelConsumer) []*modelMessage {
	var xs []*modelMessage
	for _, x := range m.messages {
		if x.holder == con {
			xs = append(xs, x)
		}
	}
	slices.SortFunc(xs, func(a, b *modelMessage) int { return cmp.Compare(a.id, b.id) })
	return xs
}

// count returns how many messages con holds.
func (m *model) count(con *modelConsumer) int {
	n := 0
	for _, x := range m.messages {
		if x.holder == con {
			n++
		}
	}
	return n
}

func sorted[K cmp.Ordered, V any](in map[K]V) []K {
	var keys []K
	for k := range in {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// rank is where the lane of a message stands: the higher, the sooner it is served.
func rank(n Number) int {
	if lane := int(n.Lane()); lane >= LowLane {
		return lane - ChunkLane
	}
	return int(n.Lane())
}
