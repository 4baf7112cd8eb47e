package main

import (
	"context"
	"fmt"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"
)

// outcome is what a publisher was told of a publish.
type outcome uint8

const (
	waiting outcome = iota // nothing yet
	acked
	nacked
	lost // its connection ended first
)

func (o outcome) String() string {
	return [...]string{"not answered", "confirmed", "nacked", "lost with its connection"}[o]
}

// publish is one publish of a client: a message that is published again is another one.
type publish struct {
	id       string
	channel  string   // the publisher's channel, as a name of its own for each connection
	seq      int      // within the channel
	queues   []string // where it is routed to
	repeats  string   // the publish that it repeats, "" if none
	node     string   // through which it went
	at, told time.Duration
	outcome  outcome
	delay    time.Duration // it is not to come before that is over
	events   []event       // guarded by the journal
}

// first is the publish that is repeated, or the publish itself.
func (p *publish) first() string {
	if p.repeats != "" {
		return p.repeats
	}
	return p.id
}

// left says whether a client has acknowledged the message, so that it may no longer be in a queue.
func (p *publish) left(queue string) bool {
	return slices.ContainsFunc(p.events, func(e event) bool { return e.queue == queue && e.what == "acknowledged" })
}

// rule is what is true of a queue beside, or instead of, what is true of all.
type rule struct {
	carried bool // messages are carried there by the broker: a second time looks like the first, and order is not kept
	once    bool // of a publish and its repeats one comes
	alone   bool // of a publish and its repeats one is in the queue at a time
}

// event is something that a consumer had to do with a message.
type event struct {
	at          time.Duration
	queue, who  string
	what        string
	redelivered bool
	delivery    bool
}

// journal is all that clients know. Its methods may be called by any goroutine.
type journal struct {
	mu        sync.Mutex
	began     time.Time
	publishes map[string]*publish
	faults    []string
	counts    map[string]int
	counted   map[string]int64  // by publish and queue: the highest x-delivery-count
	rules     map[string]rule   // by queue
	came      map[string]string // by queue without duplicates and first publish: the publish that came, the last of them
	nemesis   []string
	still     map[string]time.Duration // nodes that stand still, since when
	stood     []standstill
	beat      time.Duration // when the journal was last seen at work

	// A mistake in the books, to see that it is noticed: the deliveries of one confirmed publish are not entered (lost), or one delivery
	// twice (twice).
	plant   string
	hidden  string // the publish that it is about
	planted bool
}

// standstill is a time in which a process did nothing.
type standstill struct {
	node     string // "": all of them, and this one: the machine had no time for them
	from, to time.Duration
}

const (
	clockGrain = 5 * time.Millisecond // brokers count milliseconds, and round
	pulse      = 100 * time.Millisecond
	asleep     = 5 * pulse // without a beat
)

// watch notes when the machine stands still, until it is told to stop.
func (j *journal) watch(stop context.Context) {
	for tick := time.NewTicker(pulse); stop.Err() == nil; <-tick.C {
		j.mu.Lock()
		j.beats()
		j.mu.Unlock()
	}
}

// beats notes that the journal is at work. mu is held.
func (j *journal) beats() {
	now := j.now()
	if now-j.beat > asleep {
		j.stood = append(j.stood, standstill{"", j.beat, now})
		j.counts["machine stood still, ms"] += int((now - j.beat).Milliseconds())
	}
	j.beat = now
}

// stands notes that a node stands still, or goes on.
func (j *journal) stands(node string, still bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if still {
		j.still[node] = j.now()
	} else if from, was := j.still[node]; was {
		j.stood = append(j.stood, standstill{node, from, j.now()})
		delete(j.still, node)
	}
}

// idle is how long a node, or the machine, stood still between two moments, of which the second is now. mu is held.
func (j *journal) idle(node string, from, to time.Duration) (sum time.Duration) {
	j.beats()
	list := j.stood
	if since, is := j.still[node]; is {
		list = append(list[:len(list):len(list)], standstill{node, since, to})
	}
	for _, s := range list {
		if s.node == node || s.node == "" {
			sum += max(0, min(to, s.to)-max(from, s.from))
		}
	}
	return sum
}

func newJournal() *journal {
	return &journal{began: time.Now(), publishes: map[string]*publish{}, counts: map[string]int{}, counted: map[string]int64{}, rules: map[string]rule{}, came: map[string]string{}, still: map[string]time.Duration{}}
}

func (j *journal) now() time.Duration { return time.Since(j.began).Round(time.Millisecond) }

// fault notes something that must not be.
func (j *journal) fault(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.faultLocked(format, args...)
}

func (j *journal) faultLocked(format string, args ...any) {
	text := fmt.Sprintf("%v: ", j.now()) + fmt.Sprintf(format, args...)
	j.counts["faults"]++
	if len(j.faults) < 50 {
		j.faults = append(j.faults, text)
		fmt.Println("FAULT", text)
	}
}

// rule says what is true of a queue. Others are used already.
func (j *journal) rule(queue string, of rule) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.rules[queue] = of
}

// act notes what is done to the cluster.
func (j *journal) act(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	text := fmt.Sprintf("%v: ", j.now()) + fmt.Sprintf(format, args...)
	j.nemesis = append(j.nemesis, text)
	if verbose {
		fmt.Println(text)
	}
}

func (j *journal) count(what string) {
	j.mu.Lock()
	j.counts[what]++
	j.mu.Unlock()
}

// sent notes a publish that is about to be sent.
func (j *journal) sent(p *publish) {
	j.mu.Lock()
	defer j.mu.Unlock()
	p.at = j.now()
	j.publishes[p.id] = p
	if j.plant != "" && j.hidden == "" {
		j.hidden = p.id
	}
	j.counts["published"]++
	if p.repeats != "" {
		j.counts["published again"]++
	}
}

// answer notes what became of a publish.
func (j *journal) answer(p *publish, o outcome) {
	j.mu.Lock()
	defer j.mu.Unlock()
	p.outcome, p.told = o, j.now()
	j.counts[o.String()]++
	if p.id == j.hidden && !j.planted {
		if j.planted = o == acked; !j.planted {
			j.hidden = "" // the next one
		}
	}
	if o == lost {
		return
	}
	took := p.told - p.at - j.idle(p.node, p.at, p.told)
	j.counts["longest answer, ms"] = max(j.counts["longest answer, ms"], int(took.Milliseconds()))
	if took > publishBound {
		j.faultLocked("a publish was answered after %v, in which its node was at work\n%s", took, j.story(p))
	}
}

// reader is one consumer or getter on one connection.
type reader struct {
	name, queue string
	last        map[string]*publish // by channel, the last one that came to it for the first time
	began       time.Duration       // when it asked for what comes now: a consumer once, a getter each time
}

// newReader returns a reader that begins now.
func (j *journal) newReader(name, queue string) *reader {
	return &reader{name: name, queue: queue, last: map[string]*publish{}, began: j.now()}
}

// delivered notes a delivery and finds fault with it. count is the x-delivery-count, -1 without one.
func (j *journal) delivered(r *reader, id string, body []byte, redelivered bool, count int64) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.counts["delivered"]++
	if j.hidden != "" && id == j.hidden {
		switch j.plant {
		case "lost":
			return
		case "twice":
			if p := j.publishes[id]; p != nil {
				p.events = append(p.events, event{j.now(), r.queue, r.name, "delivered", false, true})
			}
		}
	}
	p := j.publishes[id]
	if p == nil {
		j.faultLocked("%s got %q, which nobody has published", r.name, id)
		return
	}
	if !strings.Contains(strings.Join(p.queues, " ")+" ", r.queue+" ") {
		j.faultLocked("%s got %q, which was not for queue %s", r.name, id, r.queue)
	}
	if string(body) != content(id) {
		j.faultLocked("%s got %q with another body, of %d bytes", r.name, id, len(body))
	}
	first, since := true, true // no delivery before this one; none that was there before the reader, or without the flag
	for _, e := range p.events {
		if e.queue == r.queue && e.delivery {
			first = false
			since = since && e.redelivered && e.at >= r.began
		}
	}
	rule := j.rules[r.queue]
	p.events = append(p.events, event{j.now(), r.queue, r.name, "delivered", redelivered, true})
	if age := j.now() - p.at; age+clockGrain < p.delay {
		j.faultLocked("%s got %s after %v, which was to come after %v\n%s", r.name, id, age, p.delay, j.story(p))
	}
	if rule.once {
		key := p.first() + " " + r.queue
		if other := j.came[key]; other != "" && other != id {
			j.faultLocked("%s got %s, which says the same as %s, which has come\n%s%s", r.name, id, other, j.story(j.publishes[other]), j.story(p))
		}
		j.came[key] = id
	}
	if rule.alone {
		key := p.first() + " " + r.queue
		if other := j.came[key]; other != "" && other != id && !j.publishes[other].left(r.queue) {
			j.faultLocked("%s got %s, which says the same as %s, which is still there\n%s%s", r.name, id, other, j.story(j.publishes[other]), j.story(p))
		}
		j.came[key] = id
	}
	switch {
	case redelivered:
		j.counts["redelivered"]++
	case rule.carried:
		if !first {
			j.counts["carried again"]++
		}
	default:
		// The queue hands out a message once without the flag. This may come to its client after the second time, with the flag, to
		// another one, when it was on its way to a node that was taken for dead; but not if the client asked for it only after that.
		switch {
		case !since:
			j.faultLocked("%s got %s a second time, without the flag\n%s", r.name, id, j.story(p))
		case !first:
			j.counts["first deliveries behind the second"]++
		}
		if last := r.last[p.channel]; last != nil && last.seq > p.seq {
			j.faultLocked("%s got %s behind %s of the same channel\n%s%s", r.name, id, last.id, j.story(last), j.story(p))
		}
		r.last[p.channel] = p
	}
	if count >= 0 && !rule.carried {
		key := id + " " + r.queue
		if count < j.counted[key] {
			j.faultLocked("%s got %s with a delivery count of %d, after %d\n%s", r.name, id, count, j.counted[key], j.story(p))
		}
		j.counted[key] = count
	}
}

// settled notes what a consumer did with a message.
func (j *journal) settled(r *reader, id, what string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.counts[what]++
	if p := j.publishes[id]; p != nil {
		p.events = append(p.events, event{at: j.now(), queue: r.queue, who: r.name, what: what})
	}
}

// story is all that is known of a publish. mu is held.
func (j *journal) story(p *publish) string {
	var b strings.Builder
	fmt.Fprintf(&b, "  %s to %v: published %v through %s, %v at %v", p.id, p.queues, p.at, p.node, p.outcome, p.told)
	if p.repeats != "" {
		fmt.Fprintf(&b, ", again for %s", p.repeats)
	}
	for _, e := range p.events {
		flag := ""
		if e.redelivered {
			flag = " (redelivered)"
		}
		fmt.Fprintf(&b, "\n    %v %s %s by %s%s", e.at, e.queue, e.what, e.who, flag)
	}
	return b.String() + "\n"
}

// missing are the confirmed publishes that never came out of a queue they were routed to.
func (j *journal) missing() (list []string, queues map[string]int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	queues = map[string]int{}
	for _, p := range j.publishes {
		if p.outcome != acked {
			continue
		}
		for _, q := range p.queues {
			there := false
			for _, e := range p.events {
				there = there || e.queue == q && e.delivery
			}
			there = there || j.rules[q].once && j.came[p.first()+" "+q] != ""
			if !there {
				queues[q]++
				list = append(list, q+" lacks\n"+j.story(p))
			}
		}
	}
	sort.Strings(list)
	return list, queues
}

// repeated counts messages that came more than once because the client had published them again.
func (j *journal) repeated() (n int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, p := range j.publishes {
		if p.repeats == "" || len(p.events) == 0 {
			continue
		}
		if first := j.publishes[p.repeats]; first != nil && len(first.events) > 0 {
			n++
		}
	}
	return n
}

// line is the figures of the moment.
func (j *journal) line() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	var names []string
	for name := range j.counts {
		names = append(names, name)
	}
	sort.Strings(names)
	var parts []string
	for _, name := range names {
		parts = append(parts, fmt.Sprintf("%s %d", name, j.counts[name]))
	}
	return strings.Join(parts, ", ")
}

// big begins the name of a publisher of big messages.
const big = "p.big"

// content is the body that goes with an id.
func content(id string) string {
	if strings.HasPrefix(id, big) {
		return id + strings.Repeat(".", bigSize-len(id))
	}
	return id + strings.Repeat(".", 20+len(id)*37%700)
}
