package sim

import (
	"fmt"

	"holdfast/internal/message"
	"holdfast/internal/queue"
	"holdfast/internal/queuehost"
	"holdfast/internal/wire"
)

// twice is for how long a queue that looks for messages that come twice remembers them, ms: longer than any seed takes.
const twice = 3600_000

// keySource is what a queue tells messages apart by, and for how long.
type keySource uint8

const (
	windowKeys    keySource = iota // a header, for a time
	liveKeys                       // a header, as long as the message is in the queue
	publisherKeys                  // the numbers that their publisher gives them
	screenKeys                     // a header, by way of exchanges that let nothing through twice: it keeps none of its own
)

// screens are those exchanges: of one it remembers a key as long as there is room, which no seed uses up, of the other for a time.
var screens = [...]*queuehost.Screen{{Exchange: 1 << 30, Keys: 1 << 20}, {Exchange: 1<<30 + 1, Keys: 1 << 20, Window: queue.Most(twice)}}

// pass has a message come by way of one of the exchanges, with a new key or one of the last ones again. What came by way of the other one counts for
// nothing, be the key the same.
func (w *World) pass(r *record, headers map[string]any) {
	x := w.rng.IntN(len(screens))
	last := &r.by.q.passed[x]
	n := *last + 1 - min(*last, uint64(w.rng.IntN(6)))
	*last = max(*last, n)
	r.screen, r.key = screens[x], uint64(x+1)<<40|n
	headers[message.DeduplicationHeader] = int64(n)
}

// otherKeys has a queue tell messages apart by something else than a header within a time, perhaps.
func (w *World) otherKeys(args map[string]any) {
	switch w.rng.IntN(3) {
	case 0:
		delete(args, "x-deduplication-window")
	case 1:
		args["x-deduplication-key"] = "publisher"
		if w.rng.IntN(2) == 0 {
			delete(args, "x-deduplication-window")
		}
	}
}

// keysOf says what the arguments of a queue ask for.
func keysOf(args wire.Table) keySource {
	if by, has := args.Get("x-deduplication-key"); has {
		if name, _ := by.Str(); name == "publisher" {
			return publisherKeys
		}
	}
	if _, has := args.Get("x-deduplication-window"); !has {
		return liveKeys
	}
	return windowKeys
}

// number gives a message the next number of its publisher, or one that it has given already.
func (w *World) number(r *record, headers map[string]any) {
	c := r.by
	if c.publisher == 0 {
		w.publishers++
		c.publisher = w.publishers
	}
	n := c.numbered + 1
	if back := uint64(w.rng.IntN(8)); back > 0 && back < 5 && n > back {
		n -= back
	} else {
		c.numbered = n
	}
	r.key = c.publisher<<32 | n
	headers[message.PublisherHeader], headers[message.SequenceHeader] = fmt.Sprint("publisher ", c.publisher), int64(n)
}

// isLive reports whether a message is told apart from others that are in its queue, and may be refused for them.
func (r *record) isLive() bool { return r.key != 0 && r.by.q.keys == liveKeys }

// isTaken reports whether another message with the key of one that was refused may have been in the queue.
func (k *checker) isTaken(r *record) bool {
	if r.tx != nil { // it was refused with the others, perhaps
		keys := map[uint64]bool{}
		for _, o := range r.tx.published {
			if k.isTakenAlone(o) || o.isLive() && keys[o.key] {
				return true
			}
			keys[o.key] = true
		}
	}
	return k.isTakenAlone(r)
}

func (k *checker) isTakenAlone(r *record) bool {
	if !r.isLive() {
		return false
	}
	for _, o := range k.sameKey(r) {
		gone := o.done && !o.doubt && r.born-o.doneAt > int64(patience) || o.told && o.outcome == queuehost.Refused || o.death != nil && r.born-o.death.at > int64(patience)
		if o != r && !gone {
			return true
		}
	}
	return false
}

// alike checks that no other message with the key of one that is delivered is in the queue, too, which keeps a key as long as a message is there. An
// unacknowledged delivery may come long after the message has left.
func (k *checker) alike(s *consumer, r *record) {
	q := r.by.q
	if !r.isLive() || s.noAck || r.told && r.outcome != queuehost.Accepted {
		return
	}
	for _, o := range k.sameKey(r) {
		mortal := q.may.ttl > 0 || o.expires > 0
		forgotten := q.home != 0 && q.crashes > o.crashes
		if o != r && o.delivered > 0 && !o.done && o.death == nil && !o.purgeable && !mortal && !forgotten && !o.leftUntold() {
			k.w.failf("%s got message %d, and message %d with the same key is in queue %d", s.name, r.id, o.id, q.def.ID)
		}
	}
}

// sameKey are the messages with which another one of the queue is told to be the same.
func (k *checker) sameKey(r *record) []*record {
	if r.key == 0 {
		return nil
	}
	return r.by.q.keyed[r.key]
}

// once checks that a message that is handed out, or dies, has not come in before as another one with the same key.
func (k *checker) once(r *record) {
	if r.turnedAway() || r.isLive() {
		return
	}
	for _, o := range k.sameKey(r) {
		forgotten := r.by.q.home != 0 && r.by.q.crashes > o.crashes
		if o != r && (o.delivered > 0 || o.death != nil) && !o.turnedAway() && !forgotten && !o.passes(r) && !r.passes(o) {
			k.w.failf("message %d is in queue %d, and message %d with the same key was", r.id, r.by.q.def.ID, o.id)
		}
	}
}

// passes reports whether a message does not outlive a restart that another one with its key is to survive: then that one is no duplicate of it. R622
func (r *record) passes(o *record) bool { return r.by.q.home != 0 && !r.persistent && o.persistent }

// turnedAway reports whether all that is known of a message is that a letter tells of it, since it was refused perhaps: then its key was not taken.
func (r *record) turnedAway() bool {
	return r.delivered == 0 && r.death != nil && r.death.reason == queue.Dropped
}

// isRepeated reports whether a message may have been dropped since another one with its key had come in.
func (k *checker) isRepeated(r *record) bool {
	if r.isLive() { // then it would have been refused
		return false
	}
	for _, o := range k.sameKey(r) {
		if o != r && !(o.told && o.outcome == queuehost.Refused) && !o.passes(r) && (o.isSeen() || !o.told || o.outcome != r.outcome || o.purgeable || o.leftUntold() || r.by.q.crashes > o.crashes) {
			return true
		}
	}
	return false
}

// isThere reports whether one of the messages that came by way of the same exchange with the key of an accepted one was in the queue, as far as anybody can
// tell: that it may have been is not enough for a publisher that was told so of another one.
func (k *checker) isThere(r *record) bool {
	q := r.by.q
	for _, o := range k.sameKey(r) {
		if o.isSeen() || o.seen || o.purgeable || o.leftUntold() || q.home != 0 && !o.persistent && !r.persistent && q.crashes > o.crashes {
			return true
		}
	}
	return false
}
