package queue

import (
	"fmt"
	"strings"
)

// Standing says whether a consumer can get a message now, and if not, why.
type Standing uint8

const (
	// Waiting: it gets the next message that is its turn.
	Waiting Standing = iota
	// AtPrefetch: it holds as many messages as its prefetch allows.
	AtPrefetch
	// NoCredit: its credit is used up. With wake: it was woken and has not answered.
	NoCredit
	// Suspended: its session is suspect.
	Suspended
	// Ended: it is cancelled and only holds messages.
	Ended
	// Inactive: another one is the single active consumer.
	Inactive
	// Yielding: it is the single active consumer, and gives way to one of a higher priority as soon as
	// what it holds is settled.
	Yielding
	// Getting: it is a getter, which gets a message only when it asks.
	Getting
)

var standings = [...]struct{ name, sentence string }{
	Waiting:    {"waiting", "can get a message"},
	AtPrefetch: {"at-prefetch", "at the prefetch limit"},
	NoCredit:   {"no-credit", "without credit"},
	Suspended:  {"suspended", "on a node that is suspect"},
	Ended:      {"ended", "cancelled"},
	Inactive:   {"inactive", "not the active one"},
	Yielding:   {"yielding", "about to give way to another"},
	Getting:    {"getting", "getting"},
}

// String returns the standing's name.
func (s Standing) String() string {
	if s <= Getting {
		return standings[s].name
	}
	return "standing?"
}

// Explanation says why a queue delivers nothing.
type Explanation struct {
	Ready, Unacked uint64
	Delayed, Dead  uint64 // messages that wait for a time, and dead ones
	// Of the first message that waits: when it is ready, in nanoseconds since 1970, and whether it is back from a consumer.
	NextAt        int64
	NextReturned  bool
	OldestUnacked int64 // as Machine.OldestUnacked
	Paused        bool
	// Consumers has every consumer and getter, by id; Standings counts the consumers
	// (getters left out) by their standing.
	Consumers []ConsumerState
	Standings [Getting]int
}

// Reason says in words why no message is delivered now.
func (x *Explanation) Reason() string {
	switch {
	case x.Ready == 0:
		return "no message is ready"
	case x.Paused:
		return "the queue is paused"
	}
	var parts []string
	for s, n := range x.Standings {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, standings[s].sentence))
		}
	}
	if len(parts) == 0 {
		return "there is no consumer"
	}
	return "of the consumers, " + strings.Join(parts, ", ")
}

// ConsumerState describes one consumer or getter.
type ConsumerState struct {
	ID            ConsumerID
	Session       SessionID
	Standing      Standing
	NoAck         bool
	Exclusive     bool
	Prefetch      uint32
	Credit        uint32
	Unacked       uint64
	OldestUnacked int64 // as Machine.OldestUnacked
	Delivered     uint64
}

// OldestUnacked returns the time of the entry that assigned the oldest message
// now held; 0 if none is held.
func (m *Machine) OldestUnacked() int64 {
	oldest := int64(0)
	for _, c := range m.consumers {
		if t := c.held.oldest(); c.held.count > 0 && (oldest == 0 || t < oldest) {
			oldest = t
		}
	}
	return oldest
}

// Explain says what the queue's consumers wait for.
func (m *Machine) Explain() Explanation {
	x := Explanation{Ready: m.ready, Unacked: m.unacked, Delayed: m.Delayed(), Dead: m.DeadCount(), OldestUnacked: m.OldestUnacked(), Paused: m.Settings().Paused}
	if x.Delayed > 0 {
		at, a := m.extra.waiting.first()
		x.NextAt, x.NextReturned = at*millisecond, a.acquired() > 0
	}
	for _, c := range m.consumers {
		s := ConsumerState{
			ID: c.id, Session: c.session, Standing: c.standing(),
			NoAck: c.noAck, Exclusive: c.exclusive, Prefetch: c.prefetch, Credit: c.credit,
			Unacked: c.held.count, OldestUnacked: c.held.oldest(), Delivered: c.delivered,
		}
		if s.Standing == Inactive && c.id == m.Active() {
			s.Standing = Yielding
		}
		x.Consumers = append(x.Consumers, s)
		if s.Standing < Getting {
			x.Standings[s.Standing]++
		}
	}
	return x
}
