package queue

import (
	"slices"
	"sort"

	"holdfast/internal/planted"
)

// consumer is a consumer or getter and what it holds.
type consumer struct {
	id      ConsumerID
	session SessionID
	outer   uint64 // what its session calls it
	timeout uint64 // as its Attach said

	credit   uint32
	prefetch uint32
	priority int32
	level    int32 // in line: its priority, if that counts, else 0

	noAck     bool // for a getter: as its last Get said
	exclusive bool
	wake      bool
	getter    bool
	cancelled bool
	ranked    bool // its priority counts
	suspended bool // its session is suspect
	inactive  bool // another one is the single active consumer, or is to be
	woken     bool // a Wake was emitted since it was given credit

	delivered uint64 // delivery ids given out
	held      checkouts

	// Its place in Machine.turns.
	queued     bool
	prev, next *consumer
}

// standing says whether the consumer can get a message.
func (c *consumer) standing() Standing {
	switch {
	case c.getter:
		return Getting
	case c.cancelled:
		return Ended
	case c.suspended:
		return Suspended
	case c.inactive:
		return Inactive
	case !c.noAck && c.prefetch > 0 && c.held.count >= uint64(c.prefetch):
		return AtPrefetch
	case c.credit == 0:
		return NoCredit
	}
	return Waiting
}

// room returns how many messages a waiting consumer can get.
func (c *consumer) room() uint64 {
	n := ^uint64(0)
	if c.credit != Unlimited {
		n = uint64(c.credit)
	}
	if !c.noAck && c.prefetch > 0 {
		n = min(n, uint64(c.prefetch)-c.held.count)
	}
	return n
}

// find returns the place of the consumer in m.consumers, or where it would be.
func (m *Machine) find(id ConsumerID) (int, bool) {
	n := len(m.consumers)
	if n > 0 && m.consumers[n-1].id == id { // the only one, mostly
		return n - 1, true
	}
	i := sort.Search(n, func(i int) bool { return m.consumers[i].id >= id })
	return i, i < n && m.consumers[i].id == id
}

// consumer returns the consumer, or nil.
func (m *Machine) consumer(id ConsumerID) *consumer {
	if i, ok := m.find(id); ok {
		return m.consumers[i]
	}
	return nil
}

func (m *Machine) attach(c *Command, fx *Effects) {
	refuse := func(r Reason) {
		e := fx.add(Refused)
		e.Consumer, e.Reason = c.Consumer, r
	}
	s := m.session(c.Session)
	at, taken := m.find(c.Consumer)
	switch {
	case s == nil:
		refuse(NoSession)
		return
	case taken:
		refuse(InUse)
		return
	case c.Getter:
	case m.exclusive != 0:
		refuse(ExclusiveUse)
		return
	case c.Exclusive && m.active > 0:
		refuse(NotAlone)
		return
	}
	con := &consumer{
		id: c.Consumer, session: c.Session, outer: c.Outer,
		credit: c.Credit, prefetch: c.Prefetch, priority: c.Priority,
		noAck: c.NoAck, exclusive: c.Exclusive, wake: c.Wake, getter: c.Getter, suspended: s.suspect,
	}
	con.inactive = m.extra != nil && m.extra.set.SingleActive && !con.getter
	m.doubt()
	if t := c.terms(); t != &noTerms {
		con.timeout = t.Timeout
		if t.Ranked {
			con.ranked, con.level = true, c.Priority
		}
	}
	if con.getter {
		con.credit, con.exclusive, con.wake = 0, false, false
	} else {
		m.active++
		if con.exclusive {
			m.exclusive = con.id
		}
	}
	m.consumers = slices.Insert(m.consumers, at, con)
	fx.about(Attached, con.id)
	m.arrange(con)
	m.serve(fx)
}

// cancel ends new deliveries. The consumer stays as long as it holds something,
// so that it can be settled.
func (m *Machine) cancel(c *Command, fx *Effects) {
	fx.about(Cancelled, c.Consumer)
	con := m.consumer(c.Consumer)
	if con == nil {
		return
	}
	gone := m.retire(con)
	con.cancelled = true
	m.arrange(con)
	m.forgetEnded(con)
	if gone {
		m.noneLeft(fx)
	}
}

func (m *Machine) detach(c *Command, fx *Effects) {
	fx.about(Detached, c.Consumer)
	i, ok := m.find(c.Consumer)
	if !ok {
		return
	}
	con := m.consumers[i]
	m.consumers = slices.Delete(m.consumers, i, i+1)
	gone := m.leave(con, c.Blameless, left, fx)
	if gone {
		m.noneLeft(fx)
	}
	m.serve(fx)
}

// leave takes everything from a consumer that is no longer in m.consumers: its
// turn and what it holds. It reports whether it was an active one.
func (m *Machine) leave(con *consumer, blameless bool, why comeback, fx *Effects) bool {
	was := m.retire(con)
	m.turns.remove(con)
	if !planted.Is(planted.DeadKeeps) || !blameless {
		m.giveBack(con, 0, ^uint64(0), blameless, why, fx)
	}
	return was
}

// timeOut takes back what a consumer has held for too long, and cancels it.
func (m *Machine) timeOut(c *Command, fx *Effects) {
	con := m.consumer(c.Consumer)
	if con == nil {
		return
	}
	id, n := con.held.until(int64(min(c.Last, endOfTime)))
	if n == 0 {
		return
	}
	e := fx.add(TimedOut)
	e.Consumer, e.Count = con.id, n
	m.giveBack(con, 0, id, c.Blameless, left, fx)
	gone := m.retire(con)
	con.cancelled = con.cancelled || !con.getter
	m.arrange(con)
	m.forgetEnded(con)
	if gone {
		m.noneLeft(fx)
	}
	m.serve(fx)
}

// HeldSince calls f for every consumer and getter that holds something, in order of their ids, with the time at which it
// was given the oldest of that.
func (m *Machine) HeldSince(f func(c ConsumerID, oldest int64)) {
	for _, c := range m.consumers {
		if c.held.count > 0 {
			f(c.id, c.held.oldest())
		}
	}
}

// retire stops counting the consumer as one, and reports whether it was one.
func (m *Machine) retire(con *consumer) bool {
	if con.getter || con.cancelled {
		return false
	}
	m.doubt()
	m.active--
	if m.exclusive == con.id {
		m.exclusive = 0
	}
	return true
}

// noneLeft reports that the last consumer has left, if it has.
func (m *Machine) noneLeft(fx *Effects) {
	if m.active == 0 && m.autoDelete {
		fx.add(Unused)
	}
}

// forgetEnded removes a cancelled consumer that holds nothing.
func (m *Machine) forgetEnded(con *consumer) {
	if !con.cancelled || con.held.count > 0 {
		return
	}
	i, _ := m.find(con.id)
	m.consumers = slices.Delete(m.consumers, i, i+1)
}

func (m *Machine) credit(c *Command, fx *Effects) {
	con := m.consumer(c.Consumer)
	if con != nil && !con.getter {
		con.credit += min(c.Credit, Unlimited-con.credit) // stops at Unlimited
		con.woken = false
		m.arrange(con)
		m.serve(fx)
	}
	if c.Drain {
		m.drain(c, con, fx)
	}
}

// creditTo sets the credit by the last delivery id it is good for.
func (m *Machine) creditTo(c *Command, fx *Effects) {
	con := m.consumer(c.Consumer)
	if con != nil && !con.getter {
		switch {
		case c.Credit == Unlimited:
			con.credit = Unlimited
		case c.Last <= con.delivered:
			con.credit = 0
		default:
			con.credit = uint32(min(c.Last-con.delivered, uint64(Unlimited)-1))
		}
		con.woken = false
		m.arrange(con)
		m.serve(fx)
	}
	if c.Drain {
		m.drain(c, con, fx)
	}
}

// drain takes back the credit of a consumer, which may be nil, and says how much it was.
func (m *Machine) drain(c *Command, con *consumer, fx *Effects) {
	e := fx.add(Drained)
	e.Consumer = c.Consumer
	if con == nil || con.getter {
		return
	}
	if con.credit != Unlimited {
		e.Count = uint64(con.credit)
	}
	con.credit = 0
	m.arrange(con)
}
