package queue

import (
	"encoding/binary"
	"slices"

	"holdfast/internal/bytecodec"
)

// A snapshot is a version byte and then sections, each
//
//	tag     u8
//	length  u32, little-endian, of what follows
//	body    uvarints
//
// in ascending order of their tags. A section that is not there is empty; the first
// is always there. A later feature gets a section, or fields at the end of a record under a new
// version; a machine refuses what it does not know.
//
// Version 1 has no nodes of sessions, and no outer ids of consumers: they are 0. Version 3 is written only
// where there is something that version 2 cannot say: sections from sectionSettings on, or snapRanked.
const (
	snapshotVersion  = 3
	snapshotOrdinary = 2
)

const (
	// sectionCore: applied, time, flags (snapAutoDelete, snapHandedOut), chunks given out.
	sectionCore = 1
	// sectionLanes: for each lane the places given out.
	sectionLanes = 2
	// sectionReady: for each run of ready messages, in order: first number, less the last one
	// of the run before; length; history.
	sectionReady = 3
	// sectionSessions: for each session, by id: id, flags (snapSuspect), epoch, last sequence number in
	// it and in the one before, number of uploads; each upload: key, number of ranges, ranges;
	// node, incarnation.
	sectionSessions = 4
	// sectionConsumers: for each consumer, by id: id, session, flags, credit, prefetch,
	// priority, deliveries, number of checkout runs; each run: first id, less the last one
	// before; first number, as the difference to the last one before; length; time, less
	// the one before; history. Then its outer id.
	sectionConsumers = 5
	// sectionTurns: the consumers in line, in order.
	sectionTurns = 6
	// sectionBig: for each big message, in order: number, number of ranges, ranges.
	sectionBig = 7
	// sectionSettings: as in a command.
	sectionSettings = 8
	// sectionRefused: for each session of which publishes were refused, by id: id; of the epoch that is open, and
	// of the one before: number of ranges, each: first, less the last one before; length.
	sectionRefused = 9
	// sectionDead: dead ids given out, then each run, in order: id, less the last one before; first number, as the
	// difference to the last one before; length; time, as the difference to the one before; reason; history.
	sectionDead = 10
	// sectionDeadlines: for each run of messages of one deadline, in order: first number, less the last one before;
	// length; deadline, as the difference to the one before.
	sectionDeadlines = 11
	// sectionActive: the single active consumer.
	sectionActive = 12
	// sectionSizes: as sectionDeadlines, with the size of a message.
	sectionSizes = 13
	// sectionLater: for each run of messages that wait for one time, by lane, time and number: time in milliseconds, as
	// the difference to the one before; first number, as the difference to the last one before; length; history.
	sectionLater = 14
	// sectionTimeouts: for each consumer that has a timeout, by id: id, timeout.
	sectionTimeouts = 15
	// sectionKeys: for each message that has a key and is in the queue, in order: number, less the one before; key, 16 bytes.
	sectionKeys = 16
	// sectionWindow: for each key of the window, the oldest first: time in milliseconds, less the one before, shifted by
	// one, with bit 0 set if its message is transient; key.
	sectionWindow = 17
	// sectionPublishers: for each publisher, the one that has been silent for longest first: time of its last publish in
	// milliseconds, less the one before; key; the number below which all count as accepted; number of ranges, each: first,
	// less the last one before; length.
	sectionPublishers = 18
	// sectionSetAt: the generation of what the settings come from.
	sectionSetAt = 19
	// sectionTransactions: for each transaction under way, by session and as they began: session, key, number of blocks, each: first
	// number, length, history, size of a message (a limit), time to live (a limit), delay, 1 if it has a key and 2 if it has a screen, key, screen as in a
	// command, sequence number (a limit); number of settlements, each: consumer, first
	// id, how many more, twice the settlement and 1 if it is blameless.
	sectionTransactions = 24
	// sectionScreens: for each exchange that lets nothing through twice, by id: id, time of the last message in milliseconds, number of
	// keys; each, the oldest first: time, less the one before, shifted by one, with bit 0 set if its message is transient; for how
	// long after that it is remembered, 0: without an end; key.
	sectionScreens = 25
	// sectionPassing: for each publisher of which something is accepted that does not outlive a restart, in the order of sectionPublishers: key;
	// number of ranges of such sequence numbers, each: first, less the last one before; length.
	sectionPassing = 26
)

const (
	snapAutoDelete = 1 << 0
	snapHandedOut  = 1 << 1

	snapSuspect = 1 << 0

	snapNoAck     = 1 << 0
	snapExclusive = 1 << 1
	snapWake      = 1 << 2
	snapGetter    = 1 << 3
	snapCancelled = 1 << 4
	snapWoken     = 1 << 5
	snapRanked    = 1 << 6 // version 3
	snapAll       = 1<<7 - 1
)

// A history is its flags, shifted by one, with bit 0 set if the counts are not both zero;
// then they follow, the delivery count first.

// maxHeldRun is the longest run of checkouts in a snapshot. A longer one is cut, so that
// what Restore allocates stays within a fixed multiple of the snapshot's size.
const maxHeldRun = 1024

// AppendSnapshot appends the whole state to dst. Equal states give equal bytes.
func (m *Machine) AppendSnapshot(dst []byte) []byte {
	e := encoder{b: dst}
	e.machine(m)
	return e.b
}

// Frozen is the state of a machine as it was once.
type Frozen struct {
	b     []byte // the snapshot without some sections
	apart []apart
}

// apart is a section that is encoded later, and where it belongs.
type apart struct {
	at   int
	tag  byte
	body func(e *encoder)
}

// Freeze returns the state as it is now, for another goroutine to append to something while the machine goes on. It takes as long as
// AppendSnapshot, but for the messages that wait for a time, and the keys that outlive their messages: those cost nothing here, however many they
// are.
func (m *Machine) Freeze() Frozen {
	e := encoder{freezes: true}
	e.machine(m)
	return Frozen{e.b, e.apart}
}

// Append appends what AppendSnapshot would have appended when the state was frozen.
func (f *Frozen) Append(dst []byte) []byte {
	e := encoder{b: dst}
	from := 0
	for _, a := range f.apart {
		e.b = append(e.b, f.b[from:a.at]...)
		e.section(a.tag, func() { a.body(&e) })
		from = a.at
	}
	return append(e.b, f.b[from:]...)
}

// machine writes the whole state.
func (e *encoder) machine(m *Machine) {
	start := len(e.b)
	e.b = append(e.b, snapshotOrdinary)
	e.section(sectionCore, func() {
		e.uint(m.applied)
		e.uint(uint64(m.now))
		e.uint(bit(m.autoDelete, snapAutoDelete) | bit(m.handedOut, snapHandedOut))
		e.uint(m.chunks)
	})
	e.section(sectionLanes, func() {
		for i := range m.lanes {
			e.uint(m.lanes[i].given)
		}
	})
	e.section(sectionReady, func() { e.ready(m) })
	e.section(sectionSessions, func() {
		for _, s := range m.sessions {
			e.session(s)
		}
	})
	e.section(sectionConsumers, func() {
		for _, c := range m.consumers {
			e.consumer(c)
		}
	})
	e.section(sectionTurns, func() {
		for c := m.turns.head; c != nil; c = c.next {
			e.uint(uint64(c.id))
		}
	})
	e.section(sectionBig, func() {
		numbers := make([]Number, 0, len(m.big))
		for n := range m.big {
			numbers = append(numbers, n)
		}
		slices.Sort(numbers)
		for _, n := range numbers {
			e.uint(uint64(n))
			e.ranges(m.big[n])
		}
	})
	ordinary := len(e.b)
	e.extra(m)
	if e.rare || len(e.b) > ordinary {
		e.b[start] = snapshotVersion
	}
}

type encoder struct {
	b       []byte
	rare    bool // there is something of version 3
	freezes bool // what may be large is left out, and
	apart   []apart
}

// large writes a section of version 3 that may be large, and is not empty: or keeps it for later, where the state is frozen.
func (e *encoder) large(tag byte, body func(*encoder)) {
	if e.freezes {
		e.rare, e.apart = true, append(e.apart, apart{len(e.b), tag, body})
		return
	}
	e.section(tag, func() { body(e) })
}

func (e *encoder) uint(x uint64) { e.b = bytecodec.AppendUint(e.b, x) }

func (e *encoder) attr(a attr) {
	flags := uint64(a) >> flagShift << 1
	if a.deliveryCount() == 0 && a.acquired() == 0 {
		e.uint(flags)
		return
	}
	e.uint(flags | 1)
	e.uint(uint64(a.deliveryCount()))
	e.uint(uint64(a.acquired()))
}

// section writes a section with what body appends, unless that is nothing.
func (e *encoder) section(tag byte, body func()) {
	start := len(e.b)
	e.b = append(e.b, tag, 0, 0, 0, 0)
	body()
	n := len(e.b) - start - 5
	if n == 0 {
		e.b = e.b[:start]
		return
	}
	binary.LittleEndian.PutUint32(e.b[start+1:], uint32(n))
}

// ready writes the runs, neighbours joined, however they are spread over blocks.
func (e *encoder) ready(m *Machine) {
	var r run
	var last Number
	some := false
	put := func() {
		e.uint(uint64(r.first - last))
		e.uint(r.len())
		e.attr(r.attr)
		last = r.last
	}
	for i := range m.lanes {
		m.lanes[i].runs.all(func(next run) {
			switch {
			case some && next.follows(r):
				r.last = next.last
				return
			case some:
				put()
			}
			r, some = next, true
		})
	}
	if some {
		put()
	}
}

func (e *encoder) session(s *session) {
	e.uint(uint64(s.id))
	e.uint(bit(s.suspect, snapSuspect))
	e.uint(s.epoch)
	e.uint(s.lastSeq)
	e.uint(s.closed)
	e.uint(uint64(len(s.uploads)))
	for _, u := range s.uploads {
		e.uint(u.key)
		e.ranges(u.chunks)
	}
	e.uint(s.node)
	e.uint(s.incarnation)
}

func (e *encoder) ranges(rs []Numbers) {
	e.uint(uint64(len(rs)))
	for _, r := range rs {
		e.uint(r.First.Ordinal())
		e.uint(r.Len())
	}
}

func (e *encoder) consumer(c *consumer) {
	e.uint(uint64(c.id))
	e.uint(uint64(c.session))
	e.uint(bit(c.noAck, snapNoAck) | bit(c.exclusive, snapExclusive) | bit(c.wake, snapWake) |
		bit(c.getter, snapGetter) | bit(c.cancelled, snapCancelled) | bit(c.woken, snapWoken) |
		bit(c.ranked, snapRanked))
	e.rare = e.rare || c.ranked
	e.uint(uint64(c.credit))
	e.uint(uint64(c.prefetch))
	e.uint(zigzag(c.priority))
	e.uint(c.delivered)
	n := uint64(0)
	c.held.runs(func(heldRun) { n++ })
	e.uint(n)
	var before heldRun
	c.held.runs(func(r heldRun) {
		e.uint(r.id - before.lastID())
		e.uint(zigzag64(int64(r.first.number - before.lastNumber())))
		e.uint(r.n)
		e.uint(zigzag64(r.first.time - before.first.time))
		e.attr(r.first.attr)
		before = r
	})
	e.uint(c.outer)
}

func zigzag64(n int64) uint64   { return uint64(n<<1) ^ uint64(n>>63) }
func unzigzag64(u uint64) int64 { return int64(u>>1) ^ -int64(u&1) }

// heldRun is n checkouts with ids and numbers one after the other, of the same time and history.
type heldRun struct {
	id    uint64
	n     uint64
	first slot
}

func (r *heldRun) lastID() uint64 {
	if r.n == 0 {
		return 0
	}
	return r.id + r.n - 1
}

func (r *heldRun) lastNumber() Number {
	if r.n == 0 {
		return 0
	}
	return r.first.number + Number(r.n) - 1
}

// runs calls f for the checkouts as runs of at most maxHeldRun.
func (c *checkouts) runs(f func(heldRun)) {
	var r heldRun
	c.all(func(id uint64, s *slot) {
		if r.n > 0 && r.n < maxHeldRun && id == r.id+r.n && s.number == r.first.number+Number(r.n) &&
			s.time == r.first.time && s.attr == r.first.attr {
			r.n++
			return
		}
		if r.n > 0 {
			f(r)
		}
		r = heldRun{id, 1, *s}
	})
	if r.n > 0 {
		f(r)
	}
}
