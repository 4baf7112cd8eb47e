package queue

import (
	"math/bits"
	"slices"

	"holdfast/internal/invariant"
)

// Machine is one queue. It has one owner, who calls its methods one after the
// other. New makes one.
type Machine struct {
	applied uint64 // index of the last entry
	now     int64  // its time; never goes back

	autoDelete bool
	handedOut  bool // a persistent message was handed out since the last recover

	// The messages. A message is ready (in its lane's runs) or held (in the
	// checkouts of exactly one consumer); ready and unacked count them.
	lanes    []lane // by number; as many as were used
	nonEmpty uint64 // bit i: lanes[i] has a ready message
	ready    uint64
	unacked  uint64
	chunks   uint64 // chunk numbers given out

	// big has the chunks of each big message; its attr has flagBig.
	big map[Number][]Numbers

	sessions  []*session  // by id
	consumers []*consumer // by id; getters and cancelled ones too
	active    int         // consumers that are neither getter nor cancelled
	exclusive ConsumerID  // of the active consumer that is alone; 0 = none

	// turns is the order in which consumers that can get a message get one.
	turns turns

	extra *extra // nil: there is nothing in it

	setAt uint64 // Epoch of the Set that holds; 0: none said any
}

// lane is the messages of one priority.
type lane struct {
	given uint64 // places given out
	ready uint64
	runs  runs
}

// New returns the machine of a new, empty queue.
func New() *Machine { return &Machine{} }

// Apply carries out an entry. What has to be done about it is appended to fx.
// Of the entry nothing is kept but Screens, which nobody changes.
func (m *Machine) Apply(e *Entry, fx *Effects) {
	if e.Index <= m.applied {
		invariant.Failf("queue: entry %d applied after %d", e.Index, m.applied)
	}
	m.applied = e.Index
	m.now = max(m.now, e.Time)
	fx.command = 0
	restart := len(e.Commands) > 0 && e.Commands[0].Kind == Recover // then there is nobody to whom what is due could be given
	if m.extra != nil && !restart {
		m.passTime(fx)
		if len(e.Commands) == 0 {
			m.afterwards(fx)
			fx.flush()
		}
	}
	for i := range e.Commands {
		fx.command = uint32(i)
		m.command(&e.Commands[i], fx)
		if restart && i == 0 && m.extra != nil {
			m.passTime(fx)
		}
		if m.extra != nil {
			m.afterwards(fx)
		}
		fx.flush()
	}
}

func (m *Machine) command(c *Command, fx *Effects) {
	switch c.Kind {
	case Enqueue:
		m.enqueue(c, fx)
	case Settle:
		m.settle(c, fx)
	case Credit:
		m.credit(c, fx)
	case Get:
		m.get(c, fx)
	case Chunk:
		m.chunk(c, fx)
	case Attach:
		m.attach(c, fx)
	case Cancel:
		m.cancel(c, fx)
	case Detach:
		m.detach(c, fx)
	case Purge:
		m.purge(fx)
	case DropHead:
		m.drop(c, Dropped, fx)
	case Expire:
		m.drop(c, Expired, fx)
	case SessionOpen:
		m.sessionOpen(c, fx)
	case SessionSuspect:
		m.sessionSuspect(c)
	case SessionDead:
		m.endSession(c.Session, c.Blameless, fx)
	case CreditTo:
		m.creditTo(c, fx)
	case EpochOpen:
		m.epochOpen(c, fx)
	case Recover:
		m.recover(c, fx)
	case Configure:
		m.autoDelete = c.AutoDelete
	case Set:
		m.set(c, fx)
	case Bury:
		m.bury(c, fx)
	case TimeOut:
		m.timeOut(c, fx)
	case Weigh:
		m.weigh(c)
	case Commit:
		m.commit(c, fx)
	case Abort:
		m.abort(c, fx)
	case Due: // the time has come, which is enough
	default:
		invariant.Failf("queue: command of kind %d", c.Kind)
	}
}

// Applied returns the index of the last entry applied.
func (m *Machine) Applied() uint64 { return m.applied }

// Next returns the number that the next message put into lane gets; with
// ChunkLane, the next chunk.
func (m *Machine) Next(lane uint8) Number {
	switch {
	case lane == ChunkLane:
		return MakeNumber(lane, m.chunks+1)
	case int(lane) < len(m.lanes):
		return MakeNumber(lane, m.lanes[lane].given+1)
	default:
		return MakeNumber(lane, 1)
	}
}

// Ready returns how many messages are ready.
func (m *Machine) Ready() uint64 { return m.ready }

// isReady reports whether a message is ready.
func (m *Machine) isReady(n Number) bool {
	lane := int(n.Lane())
	return lane < len(m.lanes) && m.lanes[lane].runs.has(n)
}

// ReadyOf returns how many messages of a lane are ready.
func (m *Machine) ReadyOf(lane uint8) uint64 {
	if int(lane) >= len(m.lanes) {
		return 0
	}
	return m.lanes[lane].ready
}

// Unacked returns how many messages are held by consumers and getters.
func (m *Machine) Unacked() uint64 { return m.unacked }

// Consumers returns how many consumers there are, cancelled ones and getters not counted.
func (m *Machine) Consumers() int { return m.active }

// HandedOut reports whether a persistent message was handed out since the
// last Recover. The entry that makes it true must be on disk before its
// deliveries are carried out.
func (m *Machine) HandedOut() bool { return m.handedOut }

// Live appends to dst the numbers of all messages and chunks in the queue, in
// ascending order, as ranges, and returns it.
func (m *Machine) Live(dst []Numbers) []Numbers {
	at := len(dst)
	for i := range m.lanes {
		m.lanes[i].runs.all(func(r run) { dst = append(dst, Numbers{r.first, r.last}) })
	}
	for _, c := range m.consumers {
		c.held.all(func(_ uint64, s *slot) { dst = append(dst, Numbers{s.number, s.number}) })
	}
	for _, chunks := range m.big {
		dst = append(dst, chunks...)
	}
	if m.extra != nil {
		m.extra.all(func(r run) { dst = append(dst, Numbers{r.first, r.last}) })
	}
	for _, s := range m.sessions {
		for _, u := range s.uploads {
			dst = append(dst, u.chunks...)
		}
	}
	m.parts(func(r run) { dst = append(dst, Numbers{r.first, r.last}) })
	return append(dst[:at], joined(dst[at:])...)
}

// Kept appends to dst what of Live a Recover keeps, persistent messages and their
// chunks, and returns it. What comes back by it may then be too much for a limit, or too
// late: the Recover releases it like any command.
func (m *Machine) Kept(dst []Numbers) []Numbers {
	at := len(dst)
	add := func(first, last Number, a attr) {
		if a.is(flagTransient) {
			return
		}
		dst = append(dst, Numbers{first, last})
		if a.is(flagBig) {
			for n := first; n <= last; n++ {
				dst = append(dst, m.big[n]...)
			}
		}
	}
	for i := range m.lanes {
		m.lanes[i].runs.all(func(r run) { add(r.first, r.last, r.attr) })
	}
	for _, c := range m.consumers {
		c.held.all(func(_ uint64, s *slot) { add(s.number, s.number, s.attr) })
	}
	if m.extra != nil {
		m.extra.all(func(r run) { add(r.first, r.last, r.attr) })
	}
	return append(dst[:at], joined(dst[at:])...)
}

// joined sorts disjoint ranges and joins neighbours, in place.
func joined(rs []Numbers) []Numbers {
	slices.SortFunc(rs, func(a, b Numbers) int {
		if a.First < b.First {
			return -1
		}
		return 1
	})
	n := 0
	for _, r := range rs {
		if n > 0 && rs[n-1].Last+1 == r.First {
			rs[n-1].Last = r.Last
			continue
		}
		rs[n] = r
		n++
	}
	return rs[:n]
}

// lane returns the lane, made if it was never used.
func (m *Machine) lane(n uint8) *lane {
	if n > MaxLane {
		invariant.Failf("queue: message in lane %d", n)
	}
	for int(n) >= len(m.lanes) {
		m.lanes = append(m.lanes, lane{})
	}
	return &m.lanes[n]
}

// gain counts n messages that have become ready in a lane.
func (m *Machine) gain(lane uint8, n uint64) {
	m.lanes[lane].ready += n
	m.ready += n
	m.nonEmpty |= 1 << lane
}

// lose counts n messages of a lane that are no longer ready.
func (m *Machine) lose(lane uint8, n uint64) {
	l := &m.lanes[lane]
	l.ready -= n
	m.ready -= n
	if l.ready == 0 {
		m.nonEmpty &^= 1 << lane
	}
}

// top returns the lane that is served now; there must be a ready message.
func (m *Machine) top() uint8 { return topOf(m.nonEmpty) }

// topOf returns the one of some lanes, by their bits, that is served first.
func topOf(lanes uint64) uint8 {
	if high := lanes & (1<<LowLane - 1); high != 0 {
		return uint8(bits.Len64(high) - 1)
	}
	return uint8(bits.Len64(lanes) - 1)
}
