package perf

import (
	"fmt"
	"sync"
)

// numberSet is a set of message numbers.
type numberSet []uint64

// set adds i and says whether it was there.
func (b *numberSet) set(i uint64) (was bool) {
	k := i / 64
	for uint64(len(*b)) <= k {
		*b = append(*b, make([]uint64, max(64, len(*b)))...)
	}
	was = (*b)[k]&(1<<(i%64)) != 0
	(*b)[k] |= 1 << (i % 64)
	return was
}

func (b numberSet) has(i uint64) bool { return i/64 < uint64(len(b)) && b[i/64]&(1<<(i%64)) != 0 }

// account is what is known of one producer's messages.
type account struct {
	published uint64 // numbers given out
	confirmed numberSet
	again     numberSet // published more than once
	seen      numberSet // delivered
	plain     numberSet // delivered without the mark of a redelivery
}

// ledger compares what producers were promised with what consumers got. Any
// goroutine may use it.
//
// What must hold: a confirmed message is delivered; one that is delivered
// twice is marked as redelivered but for the first time, unless it was
// published twice; and messages of one producer come to one consumer in the
// order of their numbers, where neither applies.
type ledger struct {
	mu        sync.Mutex
	accounts  []account
	confirmed uint64
	delivered uint64
	marked    uint64 // delivered with the mark of a redelivery
	repeated  uint64 // delivered, but not for the first time
	missing   uint64 // confirmed and not delivered
	duplicate uint64 // faults
	disorder  uint64
	foreign   uint64
	examples  []string

	lastConfirm, lastDelivery   int64
	confirmGap, deliveryGap     int64
	firstDelivery, lastReceived int64
}

func newLedger(producers int) *ledger { return &ledger{accounts: make([]account, producers)} }

func (l *ledger) example(format string, args ...any) {
	if len(l.examples) < 5 {
		l.examples = append(l.examples, fmt.Sprintf(format, args...))
	}
}

// publish gives a producer the number of its next message.
func (l *ledger) publish(producer int) uint64 {
	a := &l.accounts[producer]
	a.published++
	return a.published - 1
}

// confirm notes that a message was confirmed.
func (l *ledger) confirm(producer int, number uint64, at int64) {
	a := &l.accounts[producer]
	if a.confirmed.set(number) {
		return
	}
	l.confirmed++
	if !a.seen.has(number) {
		l.missing++
	}
	if l.lastConfirm != 0 {
		l.confirmGap = max(l.confirmGap, at-l.lastConfirm)
	}
	l.lastConfirm = at
}

// order is how far one consumer's connection has come with each producer.
type order []uint64

// deliver notes what one connection has received.
func (l *ledger) deliver(got []delivery, o order) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, d := range got {
		l.one(d, o)
	}
}

func (l *ledger) one(d delivery, o order) {
	l.delivered++
	if l.lastDelivery != 0 {
		l.deliveryGap = max(l.deliveryGap, d.at-l.lastDelivery)
	} else {
		l.firstDelivery = d.at
	}
	l.lastDelivery = d.at
	producer, number := splitID(d.id)
	if producer >= len(l.accounts) || number >= l.accounts[producer].published {
		l.foreign++
		l.example("a message that nobody published: producer %d, number %d", producer, number)
		return
	}
	a := &l.accounts[producer]
	if a.seen.set(number) {
		l.repeated++
	} else if a.confirmed.has(number) {
		l.missing--
	}
	if d.redelivered {
		l.marked++
		return
	}
	if a.again.has(number) {
		return
	}
	if a.plain.set(number) {
		l.duplicate++
		l.example("delivered twice, and not marked as redelivered: producer %d, number %d", producer, number)
		return
	}
	if number < o[producer] {
		l.disorder++
		l.example("number %d of producer %d came after number %d", number, producer, o[producer]-1)
		return
	}
	o[producer] = number + 1
}

// mark gives the longest times without a confirm and without a delivery, and forgets them; the ones that last now
// count from their beginning when they end.
func (l *ledger) mark() (confirm, delivery int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	confirm, delivery = l.confirmGap, l.deliveryGap
	l.confirmGap, l.deliveryGap = 0, 0
	return confirm, delivery
}

// conclude counts the times without a confirm and without a delivery that have not ended yet.
func (l *ledger) conclude(at int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lastConfirm != 0 {
		l.confirmGap = max(l.confirmGap, at-l.lastConfirm)
	}
	if l.lastDelivery != 0 {
		l.deliveryGap = max(l.deliveryGap, at-l.lastDelivery)
	}
}

// fault is the verdict when a promise was broken.
const fault = "fault"

// verdict puts the comparison into the report.
func (l *ledger) verdict(r *Report) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var published, again uint64
	for i := range l.accounts {
		a := &l.accounts[i]
		published += a.published
		for n := range a.published {
			if a.again.has(n) {
				again++
			}
			if a.confirmed.has(n) && !a.seen.has(n) {
				l.example("confirmed and never delivered: producer %d, number %d", i, n)
			}
		}
	}
	r.figure("published", float64(published), "messages")
	r.figure("published_again", float64(again), "messages published once more, after a nack or a lost connection")
	r.figure("confirmed", float64(l.confirmed), "messages")
	r.figure("delivered", float64(l.delivered), "deliveries")
	r.figure("redelivered", float64(l.marked), "deliveries with the mark of a redelivery")
	r.figure("repeated", float64(l.repeated), "deliveries of a message that had come before")
	r.figure("confirmed_lost", float64(l.missing), "confirmed messages that were never delivered")
	r.figure("duplicates_unmarked", float64(l.duplicate), "second deliveries without mark or cause")
	r.figure("out_of_order", float64(l.disorder), "deliveries out of order")
	r.figure("foreign", float64(l.foreign), "deliveries that nobody published")
	r.Verdict = "ok"
	if l.missing+l.duplicate+l.disorder+l.foreign > 0 {
		r.Verdict = fault
	}
	for _, x := range l.examples {
		r.failed(fmt.Errorf("%s", x))
	}
}

// state is how far the run is.
func (l *ledger) state() (confirmed, missing, delivered uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.confirmed, l.missing, l.delivered
}
