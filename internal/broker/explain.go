package broker

import (
	"context"
	"fmt"
	"strings"
	"time"

	"holdfast/internal/catalog"
	"holdfast/internal/queuehost"
)

// Explanation says how a queue stands and why its messages do not move.
type Explanation struct {
	Queue  QueueInfo `json:"queue"`
	Reason string    `json:"reason"` // in a few words; empty: nothing holds it back
	Lines  []string  `json:"lines"`  // in sentences, the most important first
}

// explainWait is how long another node may take to say how a queue stands that it serves or leads.
const explainWait = queuehost.LeaderlessFor

// Explain says why a queue is not delivering, or that it is. It answers before ctx is over, and at once where nobody can serve
// the queue.
func (b *Broker) Explain(ctx context.Context, vhost, name string) (e Explanation, _ error) {
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
	if h.Quorum() && e.Queue.State != "running" {
		e.Reason, e.Lines = b.leaderless(q, h)
		return e, nil
	}
	if e.Queue.State == "down" { // it may answer again before the link to it breaks
		e.Reason = e.Queue.State
		e.Lines = []string{fmt.Sprintf("Node %s, which serves the queue, is not heard. What the queue holds is there when it is back.", e.Queue.Leader)}
		return e, nil
	}
	limit := b.settings.DeclareTimeout
	if !b.servedHere(h) {
		limit = explainWait
	}
	said, err := awaitFor(ctx, b, limit, func(done func(queuehost.Explanation, error)) {
		h.Explain(func(x queuehost.Explanation) { done(x, nil) })
	})
	if err != nil {
		return b.unexplained(e, q, h, err)
	}
	e.Reason = said.BlockedBy
	e.Lines = append(e.Lines, said.Lines...)
	if b.isGoing(q.ID) {
		e.Lines = append(e.Lines, "The queue is being deleted.")
	}
	if typ := b.view().Effective(q).IdleRetry; typ != "" {
		e.Lines = append(e.Lines, fmt.Sprintf("A delayed retry of %s messages is asked for, but not for how long (delayed-retry-min): what comes back does not wait.", typ))
	}
	for _, a := range b.Alarms() {
		e.Lines = append(e.Lines, fmt.Sprintf("The %s alarm is on since %s: %s. Publishers are blocked; consumers are not.",
			a.Kind, a.Since.Format("15:04:05"), a.Reason))
		if e.Reason == "" && said.Ready == 0 {
			e.Reason = string(a.Kind) + " alarm: publishers are blocked"
		}
	}
	if a := of(b.AlarmsElsewhere(), h.Home()); a != nil {
		e.Lines = append(e.Lines, fmt.Sprintf("Node %s, which serves the queue, is %s since %s. Publishers are blocked; consumers are not.",
			a.Name, a.short(), a.Since.Format("15:04:05")))
		if e.Reason == "" && said.Ready == 0 {
			e.Reason = a.reason() + ": publishers are blocked"
		}
	}
	if said.Ready == 0 && said.Unacked == 0 && said.Published == 0 {
		e.Lines = append(e.Lines, b.explainBindings(vhost, name))
	}
	return e, nil
}

// unexplained is the explanation of a queue that has not said how it stands.
func (b *Broker) unexplained(e Explanation, q *catalog.Queue, h *queuehost.Handle, err error) (Explanation, error) {
	v := b.view()
	node := h.Home()
	switch {
	case err == errFailed:
		return e, &AdminError{Unavailable, err.Error()}
	case b.servedHere(h):
		return e, &AdminError{Unavailable, "the queue's worker gives no answer: it waits for the disk, or is overloaded"}
	case h.Quorum() && (node == 0 || !b.canBeLed(q)):
		e.Queue = b.queueInfo(v, q, h)
		e.Reason, e.Lines = b.leaderless(q, h)
		return e, nil
	}
	return e, &AdminError{Unavailable, fmt.Sprintf("node %s, which serves the queue, gives no answer: it is overloaded, waits for its disk, or the link to it is slow", b.nodeName(v, node))}
}

// leaderless says why nobody leads a quorum queue, as far as this node knows.
func (b *Broker) leaderless(q *catalog.Queue, h *queuehost.Handle) (reason string, lines []string) {
	say := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	v := b.view()
	var up, down []string
	for _, m := range q.Members {
		if name := b.nodeName(v, m.Node); b.isUp(m.Node) {
			up = append(up, name)
		} else {
			down = append(down, name)
		}
	}
	leader, since := h.Leader(), h.Leaderless().Round(time.Second)
	reason = "no leader"
	switch {
	case !b.canBeLed(q):
		reason = "no majority"
		say("Nobody can lead the queue: %d of its %d members are on nodes that are up, and that is no majority.", len(up), len(q.Members))
	case leader != 0 && !b.isUp(leader):
		say("Nobody leads the queue: node %s, which did, is down, and no other has been elected yet.", b.nodeName(v, leader))
	case since > 0:
		say("Nobody leads the queue, or whoever does gives this node no answer, for %v, although a majority of its members is on nodes that are up.", since)
	default:
		say("Nobody is known to lead the queue, although a majority of its members is on nodes that are up.")
	}
	switch {
	case len(up) == 0:
		say("Its members are on nodes that are down: %s.", strings.Join(down, ", "))
	case len(down) == 0:
		say("Its members are on nodes that are up: %s.", strings.Join(up, ", "))
	default:
		say("Members on nodes that are up: %s. On nodes that are down: %s.", strings.Join(up, ", "), strings.Join(down, ", "))
	}
	switch {
	case b.canBeLed(q):
		say("How each member stands: holdfast ctl quorum_status QUEUE")
	case len(up) == 0:
		say("It goes on by itself when a majority is back. If that never comes: holdfast ctl force_delete QUEUE")
	default:
		say("It goes on by itself when a majority is back. If that never comes: holdfast ctl force_shrink_member_to_current_member QUEUE, on a node whose member is left.")
	}
	say("Publishes are nacked when they have waited for %v, and consumers wait.", b.settings.PublishTimeout)
	return reason, lines
}

// nackLines say what a queue has not taken of clients of this node.
func nackLines(n queuehost.Nacks) (lines []string) {
	if n.Refused > 0 {
		lines = append(lines, fmt.Sprintf("%s refused since it started.", publishes(n.Refused)))
	}
	if n.Unknown > 0 {
		lines = append(lines, fmt.Sprintf("%s nacked because there was no answer in time: what was nacked may be in the queue.", publishes(n.Unknown)))
	}
	return lines
}

// publishes says how many were what follows.
func publishes(n uint64) string {
	if n == 1 {
		return "1 publish of clients of this node was"
	}
	return fmt.Sprintf("%d publishes of clients of this node were", n)
}

// explainBindings says how a queue that never got a message can be reached.
func (b *Broker) explainBindings(vhost, name string) string {
	n := b.bindingsTo(vhost, name)
	if n == 0 {
		return fmt.Sprintf("No message has come since the node started. The queue has no bindings: it is reached through the default exchange with the routing key %q only.", name)
	}
	if n == 1 {
		return "No message has come since the node started. The queue has 1 binding; see list_bindings."
	}
	return fmt.Sprintf("No message has come since the node started. The queue has %d bindings; see list_bindings.", n)
}
