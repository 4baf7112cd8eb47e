package broker

import (
	"iter"
	"maps"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"holdfast/internal/catalog"
	"holdfast/internal/deadletter"
	"holdfast/internal/queue"
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
	droppedTooMany  // its queue had as many as may be, and was to take more
	droppedCauses   = iota
)

var droppedNames = [droppedCauses]string{"no_exchange", "no_route", "cycle", "refused", "unreadable", "disabled", "too_many"}

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

	forwarded        atomic.Uint64 // messages that exchanges had delayed
	forwardedDropped [droppedCauses]atomic.Uint64
}

// droppedCounts are the counts of what is dropped of the source's kind.
func (s *letterSource) droppedCounts() *[droppedCauses]atomic.Uint64 {
	if s.forwards {
		return &s.l.counts.forwardedDropped
	}
	return &s.l.counts.dropped
}

func (l *letters) forwardedDropped() map[string]uint64 {
	m := map[string]uint64{}
	for cause := range droppedCause(droppedCauses) {
		if cause != droppedCycle && cause != droppedUnwanted {
			m[droppedNames[cause]] = l.counts.forwardedDropped[cause].Load()
		}
	}
	return m
}

// QueueDeadLetters count the messages that have died in one queue since this node started.
type QueueDeadLetters struct {
	Rejected      uint64 `json:"rejected"`
	Expired       uint64 `json:"expired"`
	MaxLen        uint64 `json:"maxlen"`
	DeliveryLimit uint64 `json:"delivery_limit"`
	Dropped       uint64 `json:"dropped"` // of these: not arrived anywhere
}

func (q *QueueDeadLetters) add(r deadletter.Reason, n uint64) {
	switch r {
	case deadletter.Rejected:
		q.Rejected += n
	case deadletter.Expired:
		q.Expired += n
	case deadletter.MaxLen:
		q.MaxLen += n
	default:
		q.DeliveryLimit += n
	}
}

// How much of the time that has passed counts for a rate, in pieces, the present one besides.
const (
	ratePieces = 6
	ratePiece  = int64(10 * time.Second)
)

// queueLetters counts the letters of one queue, and those of the last minute by the piece of it.
type queueLetters struct {
	QueueDeadLetters
	pieces [ratePieces + 1][deadletter.Reasons]uint64
	newest int64 // number of the piece that is now
}

// turn begins the pieces that have begun.
func (q *queueLetters) turn(now int64) {
	at := now / ratePiece
	for n := max(q.newest, at-ratePieces-1); n < at; n++ {
		q.pieces[(n+1)%int64(len(q.pieces))] = [deadletter.Reasons]uint64{}
	}
	q.newest = at
}

// DeadLetterRates is how many messages have died a second in the last minute, to three decimals.
type DeadLetterRates struct {
	Rejected      float64 `json:"rejected"`
	Expired       float64 `json:"expired"`
	MaxLen        float64 `json:"maxlen"`
	DeliveryLimit float64 `json:"delivery_limit"`
}

// rates returns the rates of a queue, nil if no message has died in it here.
func (l *letters) rates(id seglog.GroupID) *DeadLetterRates {
	l.mu.Lock()
	defer l.mu.Unlock()
	q := l.byQueue[id]
	if q == nil {
		return nil
	}
	now := l.b.clock.Mono()
	q.turn(now)
	over := float64(ratePieces*ratePiece+now%ratePiece) / float64(time.Second)
	var sum [deadletter.Reasons]float64
	for _, piece := range q.pieces {
		for r, n := range piece {
			sum[r] += float64(n) / over
		}
	}
	for r := range sum {
		sum[r] = math.Round(sum[r]*1000) / 1000
	}
	return &DeadLetterRates{sum[deadletter.Rejected], sum[deadletter.Expired], sum[deadletter.MaxLen], sum[deadletter.DeliveryLimit]}
}

// add counts messages that have died. The mutex is held.
func (l *letters) add(id seglog.GroupID, r deadletter.Reason, n uint64) *queueLetters {
	q := l.countsOf(id)
	q.QueueDeadLetters.add(r, n)
	q.turn(l.b.clock.Mono())
	q.pieces[q.newest%int64(len(q.pieces))][r] += n
	return q
}

// Dropped implements queuehost.Owner: messages that are gone without a letter are counted, and logged where nobody has asked for that.
func (b *Broker) Dropped(h *queuehost.Handle, reason queue.Reason, n uint64) {
	l, id := b.letters, h.ID()
	if reason == queue.DeadDropped {
		l.counts.dropped[droppedTooMany].Add(n)
	} else {
		kind := 0
		if q := b.view().QueueByID(catalog.QueueID(id)); q != nil && q.Type == catalog.Quorum {
			kind = 1
		}
		l.counts.died[kind][countedDisabled][reasonOf(reason)].Add(n)
	}
	l.mu.Lock()
	var all uint64
	if reason == queue.DeadDropped {
		q := l.countsOf(id)
		q.Dropped += n
		all = q.Dropped
	} else {
		q := l.add(id, reasonOf(reason), n)
		q.Dropped += n
		all = q.DeliveryLimit
	}
	say := (reason == queue.DeadDropped || reason == queue.Exhausted) && l.mayComplain(id)
	l.mu.Unlock()
	if !say {
		return
	}
	why := "they came back too often, and their queue has no dead-letter exchange"
	if reason == queue.DeadDropped {
		why = "their queue holds as many dead letters as it may"
	}
	b.log.Warn("messages are dropped: "+why, "queue", h.Def().Name, "vhost", h.Def().VHost, "messages", n, "since_start", all)
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
	l.add(id, r, 1)
}

// drops counts a letter that is given up.
func (s *letterSource) drops(cause droppedCause) {
	s.droppedCounts()[cause].Add(1)
	if s.forwards {
		return
	}
	l, id := s.l, s.id
	l.mu.Lock()
	defer l.mu.Unlock()
	l.countsOf(id).Dropped++
}

func (l *letters) countsOf(id seglog.GroupID) *queueLetters {
	q := l.byQueue[id]
	if q == nil {
		q = new(queueLetters)
		l.byQueue[id] = q
	}
	return q
}

// of returns the counts of a queue, nil if no letter of it was carried here.
func (l *letters) of(id seglog.GroupID) *QueueDeadLetters {
	l.mu.Lock()
	defer l.mu.Unlock()
	if q := l.byQueue[id]; q != nil {
		counts := q.QueueDeadLetters
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
