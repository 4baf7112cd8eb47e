package sim

import "holdfast/internal/queue"

// twice is for how long a queue that looks for messages that come twice remembers them, ms: longer than any seed takes.
const twice = 3600_000

// sameKey are the messages with which another one of the queue is told to be the same.
func (k *checker) sameKey(r *record) []*record {
	if r.key == 0 {
		return nil
	}
	return r.by.q.keyed[r.key]
}

// once checks that a message that is handed out, or dies, has not come in before as another one with the same key.
func (k *checker) once(r *record) {
	if r.turnedAway() {
		return
	}
	for _, o := range k.sameKey(r) {
		forgotten := r.by.q.home != 0 && r.by.q.crashes > o.crashes
		if o != r && (o.delivered > 0 || o.death != nil) && !o.turnedAway() && !forgotten {
			k.w.failf("message %d is in queue %d, and message %d with the same key was", r.id, r.by.q.def.ID, o.id)
		}
	}
}

// turnedAway reports whether all that is known of a message is that a letter tells of it, since it was refused perhaps: then its key was not taken.
func (r *record) turnedAway() bool {
	return r.delivered == 0 && r.death != nil && r.death.reason == queue.Dropped
}

// isRepeated reports whether a message may have been dropped since another one with its key had come in.
func (k *checker) isRepeated(r *record) bool {
	for _, o := range k.sameKey(r) {
		if o != r && (o.isSeen() || !o.told || o.outcome != r.outcome || o.purgeable || o.leftUntold() || r.by.q.crashes > o.crashes) {
			return true
		}
	}
	return false
}
