package main

import (
	"fmt"
	"strings"
	"sync"
	"time"
)

// settleWait is how old a settle must be to be safe on the disk.
const settleWait = 2 * time.Second

// message is what the client knows of one message.
type message struct {
	id         string
	publisher  string
	seq        int
	size       int
	persistent bool
	confirmed  time.Time // zero: not told
	seen       int       // deliveries
	settled    time.Time // ack or reject without requeue sent; zero: never
	over       time.Time // purged or deleted with its queue; zero: not
	doubt      bool      // a purge or delete may have met it or not
	history    []string
}

func (m *message) note(format string, args ...any) {
	m.history = append(m.history, time.Now().Format("05.000 ")+fmt.Sprintf(format, args...))
}

// String is for the text of a fault.
func (m *message) String() string {
	return fmt.Sprintf("message %s (%d bytes, persistent %v): %s", m.id, m.size, m.persistent, strings.Join(m.history, "; "))
}

// journal is everything the client knows of one queue. It may be used by many
// goroutines.
type journal struct {
	queue string

	mu       sync.Mutex
	messages map[string]*message
	faults   []string
	// deleting is set while the queue is being deleted: who meets that has done
	// nothing wrong.
	deleting bool
	counts   counts
}

// counts are totals over all rounds.
type counts struct {
	confirmed, delivered, redelivered, settled, purged, verified int
}

func newJournal(queue string) *journal {
	return &journal{queue: queue, messages: map[string]*message{}}
}

func (j *journal) fault(format string, args ...any) {
	j.faults = append(j.faults, j.queue+": "+fmt.Sprintf(format, args...))
}

// sent notes a publish before it is written.
func (j *journal) sent(publisher string, seq, size int, persistent bool) *message {
	j.mu.Lock()
	defer j.mu.Unlock()
	m := &message{id: fmt.Sprintf("%s/%s/%d", j.queue, publisher, seq), publisher: publisher, seq: seq, size: size, persistent: persistent}
	m.note("sent")
	j.messages[m.id] = m
	return m
}

// confirm notes the broker's word.
func (j *journal) confirm(m *message) {
	j.mu.Lock()
	defer j.mu.Unlock()
	m.confirmed = time.Now()
	m.note("confirmed")
	j.counts.confirmed++
}

// delivered notes a delivery and finds fault with it. last is the highest
// sequence number of first deliveries the consumer saw, by publisher.
func (j *journal) delivered(id string, redelivered bool, last map[string]int) *message {
	j.mu.Lock()
	defer j.mu.Unlock()
	m := j.messages[id]
	if m == nil {
		j.fault("a message that was never sent, or that nothing may remember: %q", id)
		return nil
	}
	j.counts.delivered++
	if redelivered {
		j.counts.redelivered++
	}
	if m.seen > 0 && !redelivered {
		j.fault("delivered again without the redelivered flag: %v", m)
	}
	if last != nil && !m.settled.IsZero() {
		j.fault("delivered again after it was settled: %v", m)
	}
	if since := time.Since(m.over); !m.over.IsZero() && last != nil {
		if since >= settleWait {
			j.fault("delivered %v after it was purged or deleted: %v", since, m)
		}
		m.over, m.doubt = time.Time{}, true // it was on its way
	}
	if !redelivered && last != nil {
		if m.seq <= last[m.publisher] {
			j.fault("delivered after number %d of its publisher: %v", last[m.publisher], m)
		}
		last[m.publisher] = m.seq
	}
	m.seen++
	m.note("delivered, redelivered %v", redelivered)
	return m
}

// settle notes an ack or a reject before it is written.
func (j *journal) settle(m *message, how string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	m.settled = time.Now()
	m.note("%s", how)
	j.counts.settled++
}

// returned notes a requeue.
func (j *journal) returned(m *message, how string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	m.note("%s", how)
}

// before are the messages that were confirmed when a purge or delete is about
// to be sent.
func (j *journal) before() map[*message]bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	all := map[*message]bool{}
	for _, m := range j.messages {
		if !m.confirmed.IsZero() {
			all[m] = true
		}
	}
	return all
}

// ended notes that a purge (or a delete of the queue) was answered. What had
// been confirmed before it was sent is over; a purge leaves alone what was held
// by a consumer, and the client cannot tell that for what it had seen before.
// What was under way meanwhile is in doubt.
func (j *journal) ended(before map[*message]bool, how string, purge bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, m := range j.messages {
		if !before[m] || purge && m.seen > 0 {
			m.doubt = true
			m.note("perhaps %s", how)
			continue
		}
		m.over = time.Now()
		m.note("%s", how)
		j.counts.purged++
	}
}

// unanswered notes that a purge or delete was sent and never answered:
// everything is in doubt.
func (j *journal) unanswered(how string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, m := range j.messages {
		m.doubt = true
		m.note("%s without an answer", how)
	}
}

// check holds what a queue had after a restart against what it must and may
// have. killed is when the broker was killed; drained are the ids in the order
// they came.
func (j *journal) check(drained []string, killed time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	there := map[string]bool{}
	last := map[string]int{}
	for _, id := range drained {
		m := j.messages[id]
		if m == nil {
			continue // told already
		}
		if there[id] {
			j.fault("twice in the queue: %v", m)
		}
		there[id] = true
		if m.seq <= last[m.publisher] {
			j.fault("after the restart it came behind number %d of its publisher: %v", last[m.publisher], m)
		}
		last[m.publisher] = max(last[m.publisher], m.seq)
		switch {
		case !m.persistent:
			j.fault("a transient message survived the kill: %v", m)
		case !m.settled.IsZero() && killed.Sub(m.settled) >= settleWait:
			j.fault("came back %v after it was settled: %v", killed.Sub(m.settled), m)
		case !m.over.IsZero() && killed.Sub(m.over) >= settleWait:
			j.fault("came back %v after it was purged or deleted: %v", killed.Sub(m.over), m)
		}
	}
	for id, m := range j.messages {
		mustBe := m.persistent && !m.confirmed.IsZero() && m.settled.IsZero() && m.over.IsZero() && !m.doubt
		if mustBe && !there[id] {
			j.fault("lost: %v", m)
		}
		if !there[id] {
			delete(j.messages, id) // gone; should it ever come back, that is a fault
			continue
		}
		// What is there counts from here on like any other message of the queue.
		m.settled, m.over, m.doubt = time.Time{}, time.Time{}, false
		if m.confirmed.IsZero() {
			m.confirmed = time.Now()
		}
		m.note("there after the restart")
		j.counts.verified++
	}
}

// takeFaults gives what was found wrong.
func (j *journal) takeFaults() []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.faults
}
