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
	// Single is set where something else than keys has been looked at: another message with the same keys may be for
	// other targets.
	Single bool
}

func (m *Message) draw(n int) int {
	m.Single = true
	if m.Draw == nil || n < 2 {
		return 0
	}
	return int(m.Draw() % uint64(n))
}
