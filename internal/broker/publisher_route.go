package broker

import (
	"holdfast/internal/queuehost"
	"holdfast/internal/wire"
)

// Route is where one publish goes. It is valid until the next call of
// Publisher.Route or Publisher.Flush.
type Route struct {
	slots      []*slot
	properties wire.Properties
	rare       *rare // nil: nothing
	stripped   bool
	replied    bool
	plain      bool // the properties name neither a priority nor an expiration
}

// rare is what few routes have; it does not change.
type rare struct {
	kept   *keepers // nil: none
	hidden []byte
	// screens are by way of which exchanges that let nothing through twice the queues are reached: one for each slot, nil where there is none; or nothing
	// at all.
	screens []*queuehost.Screen
}

// screened are the screens of a message that took the route.
func (r *rare) screened() []*queuehost.Screen {
	if r == nil {
		return nil
	}
	return r.screens
}

// keepers are the exchanges that keep a message which took the route; nil: none.
func (r *rare) keepers() *keepers {
	if r == nil {
		return nil
	}
	return r.kept
}

// Queues is the number of queues that will get the message: the number of
// times its Ticket hears an outcome.
func (r *Route) Queues() int { return len(r.slots) }

// LeadsTo reports whether the message goes to the queue that s is a subscription to.
func (r *Route) LeadsTo(s *Subscription) bool {
	for _, slot := range r.slots {
		if slot.handle == s.handle {
			return true
		}
	}
	return false
}

// Unroutable reports whether the message leads nowhere. A reply to a direct reply-to consumer that has left is dropped like one
// that it would not have read.
func (r *Route) Unroutable() bool { return len(r.slots) == 0 && !r.replied }

// Properties are what to store with the message: the publish's own, or a copy
// without the BCC header.
func (r *Route) Properties() wire.Properties { return r.properties }

// Stripped reports whether Properties lack the BCC header: the same route cannot
// be found with them again.
func (r *Route) Stripped() bool { return r.stripped }

// Hidden are the keys of the BCC header, as message.Heading wants them: where the message died, they count again. They are
// nil where a node could not read a message that has them.
func (r *Route) Hidden() []byte {
	if r.rare == nil {
		return nil
	}
	return r.rare.hidden
}

// plain reports whether properties name nothing that makes the queue look at them.
func plain(p wire.Properties) bool {
	return p.Flags()&(1<<wire.Priority|1<<wire.Expiration) == 0
}

// MayVanish reports whether the message can turn out to lead nowhere after all: its queues may be deleted before they have it, and then
// all its outcomes are Gone. A reply counts as routed whatever becomes of it.
func (r *Route) MayVanish() bool {
	for _, s := range r.slots {
		if s.handle.ID() >= firstReplyQueue || s.reply != "" {
			return false
		}
	}
	return len(r.slots) > 0
}
