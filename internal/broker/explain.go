package broker

import (
	"fmt"

	"holdfast/internal/queuehost"
)

// Explanation says how a queue stands and why its messages do not move.
type Explanation struct {
	Queue  QueueInfo `json:"queue"`
	Reason string    `json:"reason"` // in a few words; empty: nothing holds it back
	Lines  []string  `json:"lines"`  // in sentences, the most important first
}

// Explain says why a queue is not delivering, or that it is.
func (b *Broker) Explain(vhost, name string) (e Explanation, _ error) {
	q, h, err := b.adminQueue(vhost, name)
	if err != nil {
		return Explanation{}, err
	}
	e = Explanation{Queue: b.queueInfo(b.view(), q, h)}
	defer func() { e.Lines = append(e.Lines, nackLines(h.Nacks())...) }()
	if err := h.Unavailable(); err != nil {
		if e.Reason = e.Queue.State; e.Reason != "quarantined" {
			e.Lines = []string{err.Error(), "Publishes are refused with a nack until enough nodes are back."}
			return e, nil
		}
		e.Lines = []string{
			err.Error(),
			"Publishes are refused with a nack. Whole messages can be copied out of the stopped node with: holdfast dump --salvage FOLDER",
			"To give up on what is damaged and delete the queue: holdfast ctl discard QUEUE",
		}
		return e, nil
	}
	said, err := await(b, func(done func(queuehost.Explanation, error)) {
		h.Explain(func(x queuehost.Explanation) { done(x, nil) })
	})
	if err != nil {
		return e, &AdminError{Unavailable, "the queue's worker gives no answer: it waits for the disk, or is overloaded"}
	}
	e.Reason = said.BlockedBy
	e.Lines = append(e.Lines, said.Lines...)
	if b.isGoing(q.ID) {
		e.Lines = append(e.Lines, "The queue is being deleted.")
	}
	for _, a := range b.Alarms() {
		e.Lines = append(e.Lines, fmt.Sprintf("The %s alarm is on since %s: %s. Publishers are blocked; consumers are not.",
			a.Kind, a.Since.Format("15:04:05"), a.Reason))
		if e.Reason == "" && said.Ready == 0 {
			e.Reason = string(a.Kind) + " alarm: publishers are blocked"
		}
	}
	if said.Ready == 0 && said.Unacked == 0 && said.Published == 0 {
		e.Lines = append(e.Lines, b.explainBindings(vhost, name))
	}
	return e, nil
}

// nackLines say what a queue has not taken of clients of this node.
func nackLines(n queuehost.Nacks) (lines []string) {
	if n.Refused > 0 {
		lines = append(lines, fmt.Sprintf("%d publishes of clients of this node were refused since it started.", n.Refused))
	}
	if n.Unknown > 0 {
		lines = append(lines, fmt.Sprintf("%d publishes of clients of this node were nacked because there was no answer in time: they may be in the queue.", n.Unknown))
	}
	return lines
}

// explainBindings says how a queue that never got a message can be reached.
func (b *Broker) explainBindings(vhost, name string) string {
	n := b.bindingsTo(vhost, name)
	if n == 0 {
		return fmt.Sprintf("No message has come since the node started. The queue has no bindings: it is reached through the default exchange with the routing key %q only.", name)
	}
	return fmt.Sprintf("No message has come since the node started. The queue has %d bindings; see list_bindings.", n)
}
