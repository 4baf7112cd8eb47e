package routing

import "holdfast/internal/wire"

// Message is what there is to know of a message to find its targets. What it refers to is borrowed for the call it is given
// to.
type Message struct {
	Key        string
	Further    []string        // further keys: what exchanges that look at the key do for it, they do for these as well
	Properties wire.Properties // nil: none

	// Draw returns a number by chance. Nil: always 0.
	Draw func() uint64
	// Here reports whether a target is a queue of this node that can take messages. Nil: all are.
	Here func(Target) bool

	// Kept are the exchanges of kind History that the message has passed. Whoever follows bindings notes them.
	Kept []Target
	// Screened are the queues among those found, in their order, that are reached only by way of an exchange of kind Once, if the
	// message has a key. Whoever follows bindings notes them.
	Screened []Screened
	// Single is set where something else than keys has been looked at: another message with the same keys may be for
	// other targets.
	Single bool
}

// Screened is a queue, and the exchange by way of which it is reached.
type Screened struct{ Queue, Exchange Target }

func (m *Message) draw(n int) int {
	m.Single = true
	if m.Draw == nil || n < 2 {
		return 0
	}
	return int(m.Draw() % uint64(n))
}
