package broker

import (
	"iter"
	"maps"
	"slices"
	"sync/atomic"

	"holdfast/internal/catalog"
	"holdfast/internal/deadletter"
	"holdfast/internal/queuehost"
	"holdfast/internal/seglog"
)

// droppedCause is why a dead letter has not arrived.
type droppedCause uint8

const (
	droppedNoExchange droppedCause = iota
	droppedNoRoute
	droppedCycle
	droppedRefused  // by a target, once for each
	droppedUnread   // its body is lost
	droppedUnwanted // its queue has no dead-letter exchange any more
	droppedCauses   = iota
)

var droppedNames = [droppedCauses]string{"no_exchange", "no_route", "cycle", "refused", "unreadable", "disabled"}

// How much was done for letters to arrive, as RabbitMQ counts it.
const (
	countedDisabled    = iota // nothing: there is no exchange for them
	countedAtMostOnce         //
	countedAtLeastOnce        //
	countedStrategies
)

var countedNames = [countedStrategies]string{"disabled", "at_most_once", "at_least_once"}

// letterCounts count since the start.
type letterCounts struct {
	died      [2][countedStrategies][deadletter.Reasons]atomic.Uint64 // first of classic queues, then of quorum queues
	confirmed atomic.Uint64
	dropped   [droppedCauses]atomic.Uint64
}

// QueueDeadLetters count the dead letters of one queue since this node started.
type QueueDeadLetters struct {
	Rejected      uint64 `json:"rejected"`
	Expired       uint64 `json:"expired"`
	MaxLen        uint64 `json:"maxlen"`
	DeliveryLimit uint64 `json:"delivery_limit"`
	Dropped       uint64 `json:"dropped"` // of these: not arrived anywhere
}

func (q *QueueDeadLetters) add(r deadletter.Reason) {
	switch r {
	case deadletter.Rejected:
		q.Rejected++
	case deadletter.Expired:
		q.Expired++
	case deadletter.MaxLen:
		q.MaxLen++
	default:
		q.DeliveryLimit++
	}
}

// count counts a letter that is carried for the first time. there: its exchange is.
func (l *letters) count(id seglog.GroupID, of catalog.QueueType, r deadletter.Reason, s strategy, there bool) {
	kind, how := 0, countedAtLeastOnce
	if of == catalog.Quorum {
		kind = 1
	}
	switch {
	case !there:
		how = countedDisabled
	case s == atMostOnce:
		how = countedAtMostOnce
	}
	l.counts.died[kind][how][r].Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.countsOf(id).add(r)
}

// drops counts a letter that is given up.
func (l *letters) drops(id seglog.GroupID, cause droppedCause) {
	l.counts.dropped[cause].Add(1)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.countsOf(id).Dropped++
}

func (l *letters) countsOf(id seglog.GroupID) *QueueDeadLetters {
	q := l.byQueue[id]
	if q == nil {
		q = new(QueueDeadLetters)
		l.byQueue[id] = q
	}
	return q
}

// of returns the counts of a queue, nil if no letter of it was carried here.
func (l *letters) of(id seglog.GroupID) *QueueDeadLetters {
	l.mu.Lock()
	defer l.mu.Unlock()
	if q := l.byQueue[id]; q != nil {
		counts := *q
		return &counts
	}
	return nil
}

// DeadLettered yields the queues of which this node has carried dead letters, in the order of their ids, with their counts.
func (b *Broker) DeadLettered() iter.Seq2[*queuehost.Handle, QueueDeadLetters] {
	return func(yield func(*queuehost.Handle, QueueDeadLetters) bool) {
		l := b.letters
		l.mu.Lock()
		ids := slices.Sorted(maps.Keys(l.byQueue))
		l.mu.Unlock()
		for _, id := range ids {
			h, counts := b.queues.Get(id), l.of(id)
			if h != nil && counts != nil && !yield(h, *counts) {
				return
			}
		}
	}
}

// DeadLetterCount is how many messages have died in queues of one type, for one reason, and how much was done for them.
type DeadLetterCount struct {
	QueueType, Reason, Strategy string
	Messages                    uint64
}

// DeadLetterTotals count the dead letters of queues that this node has served, since it started.
type DeadLetterTotals struct {
	Died      []DeadLetterCount // all there can be, always in the same order
	Confirmed uint64            // known to have arrived
	Dropped   map[string]uint64 // not arrived, by cause
	Held      uint64            // now: to be carried again
	UnderWay  uint64            // now: bytes of messages for which targets have not answered
}

func (l *letters) totals() DeadLetterTotals {
	t := DeadLetterTotals{Confirmed: l.counts.confirmed.Load(), Dropped: map[string]uint64{}}
	for cause, name := range droppedNames {
		t.Dropped[name] = l.counts.dropped[cause].Load()
	}
	for kind, name := range [...]string{"rabbit_classic_queue", "rabbit_quorum_queue"} {
		for how, strategy := range countedNames {
			for r := range deadletter.Reason(deadletter.Reasons) {
				t.Died = append(t.Died, DeadLetterCount{name, r.String(), strategy, l.counts.died[kind][how][r].Load()})
			}
		}
	}
	l.mu.Lock()
	t.Held, t.UnderWay = uint64(l.held), uint64(l.bytes)
	l.mu.Unlock()
	return t
}
