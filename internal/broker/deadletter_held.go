package broker

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"holdfast/internal/catalog"
	"holdfast/internal/queuehost"
	"holdfast/internal/seglog"
)

// heldCause is why a dead letter is held.
type heldCause uint8

const (
	heldNoExchange heldCause = iota
	heldNoRoute
	heldUnread
	heldStale      // this node does not know whether there is a way by now
	heldUnserved   // a target does not run
	heldRefused    // a target has not taken it
	heldUnanswered // a target has not said so in time
)

// heldFor is why a dead letter is held, and by which target, if it is one's fault.
type heldFor struct {
	cause  heldCause
	target seglog.GroupID
}

// WhyHeld implements queuehost.Owner.
func (b *Broker) WhyHeld(h *queuehost.Handle) []string { return b.letters.whyHeld(h.ID()) }

// whyHeld says why letters of a queue are held, one sentence for each reason.
func (l *letters) whyHeld(id seglog.GroupID) (lines []string) {
	held, exchange := map[heldFor]int{}, ""
	l.mu.Lock()
	if s := l.sources[id]; s != nil {
		exchange = s.to.exchange
		for _, x := range s.letters {
			if x.state == letterHeld {
				held[x.held]++
			}
		}
	}
	l.mu.Unlock()
	v := l.b.view()
	for _, why := range slices.SortedFunc(maps.Keys(held), func(a, b heldFor) int {
		return cmp.Or(cmp.Compare(a.cause, b.cause), cmp.Compare(a.target, b.target))
	}) {
		many := "1 dead letter is held"
		if n := held[why]; n > 1 {
			many = fmt.Sprintf("%d dead letters are held", n)
		}
		lines = append(lines, many+": "+why.text(v, exchange)+".")
	}
	return lines
}

// text is what a reason is in words.
func (w heldFor) text(v *catalog.View, exchange string) string {
	target := "a queue that is gone by now"
	if q := v.QueueByID(catalog.QueueID(w.target)); q != nil {
		target = fmt.Sprintf("queue %q", q.Name)
	}
	switch w.cause {
	case heldNoExchange:
		return fmt.Sprintf("there is no exchange %q", exchange)
	case heldNoRoute:
		if exchange == "" {
			return "no queue has the name that is its routing key"
		}
		return fmt.Sprintf("no binding of exchange %q leads its routing key to a queue", exchange)
	case heldUnread:
		return "it cannot be read from the disk now"
	case heldStale:
		return "this node is not in touch with the others, and knows nowhere for it to go"
	case heldUnserved:
		return target + " is out of service"
	case heldRefused:
		return target + " does not take it"
	}
	return target + " has not answered in time"
}
