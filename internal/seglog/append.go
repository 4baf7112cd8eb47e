package seglog

import (
	"slices"
	"sync"

	"holdfast/internal/invariant"
)

// inbox is where appends wait for the committer.
type inbox struct {
	mu      sync.Mutex
	batches []*Batch
	bytes   int64
	sync    bool // one of them wants to be synced now
	wake    chan struct{}

	queued      int64 // bytes appended and not yet stable
	queuedCount int64
}

// pending is the committer's side of a batch.
type pending struct {
	bytes int64
	items int
	left  int      // records not yet stable
	deps  int      // earlier batches that share a group and are not yet reported
	after []*Batch // those waiting for this one
	done  bool     // all records stable, waiting for deps
}

// lazyBytes is how much may wait for a sync that nobody asked for.
const lazyBytes = 256 << 10

// Append queues a batch. It never blocks. The log keeps references to Meta and Items until Stable. After a failure nothing
// is kept and nothing is called.
func (l *Log) Append(b *Batch) {
	invariant.Pass("seglog", "batch queued")
	l.early(b)
	b.p = pending{left: len(b.Records)}
	for i := range b.Records {
		size, items := recordSize(&b.Records[i])
		b.p.bytes += int64(align8(size))
		b.p.items += items
	}
	if l.failed.Load() {
		return
	}
	in := &l.in
	in.mu.Lock()
	in.batches = append(in.batches, b)
	in.bytes += b.p.bytes
	in.queued += b.p.bytes
	in.queuedCount++
	first := len(in.batches) == 1
	urgent := !in.sync && (b.Sync || in.bytes >= lazyBytes)
	in.sync = in.sync || urgent
	in.mu.Unlock()
	if first || urgent {
		kick(in.wake)
	}
}

// take swaps the waiting batches with an empty slice.
func (in *inbox) take(empty []*Batch) []*Batch {
	in.mu.Lock()
	defer in.mu.Unlock()
	out := in.batches
	in.batches, in.bytes, in.sync = empty[:0], 0, false
	return out
}

func (in *inbox) waiting() bool {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.queuedCount > 0
}

// state says what waits.
func (in *inbox) state() (any, urgent bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	return len(in.batches) > 0, in.sync
}

// fairQueue shares out frames among groups when more waits than one frame holds: deficit round robin, so that a group with
// megabytes waiting does not delay one with a hundred bytes. Order within a group is kept. It belongs to the committer.
type fairQueue struct {
	groups map[GroupID]*groupQueue
	ring   []*groupQueue // those with records, next first
	bytes  int64
	idle   []*groupQueue // for reuse
}

type groupQueue struct {
	id      GroupID
	recs    []recordRef
	next    int
	deficit int
	newest  *Batch // the last batch with a record of this group that is not yet reported
}

// recordRef is one record of a batch.
type recordRef struct {
	b *Batch
	i int
}

func (r recordRef) record() *Record { return &r.b.Records[r.i] }

// quantum is what a group may add to a frame per turn; never more than an eighth of a frame.
const quantum = 32 << 10

// put queues the records of a batch.
func (q *fairQueue) put(b *Batch) {
	if q.groups == nil {
		q.groups = map[GroupID]*groupQueue{}
	}
	for i := range b.Records {
		id := b.Records[i].Group
		g := q.groups[id]
		if g == nil {
			if n := len(q.idle); n > 0 {
				g, q.idle = q.idle[n-1], q.idle[:n-1]
			} else {
				g = &groupQueue{}
			}
			g.id = id
			q.groups[id] = g
		}
		if g.next == len(g.recs) {
			g.recs, g.next, g.deficit = g.recs[:0], 0, 0
			q.ring = append(q.ring, g)
		}
		g.recs = append(g.recs, recordRef{b, i})
		if g.newest != nil && g.newest != b {
			g.newest.p.after = append(g.newest.p.after, b)
			b.p.deps++
		}
		g.newest = b
	}
	q.bytes += b.p.bytes
}

// empty tells whether nothing waits to be written.
func (q *fairQueue) empty() bool { return len(q.ring) == 0 }

// take moves records worth up to limit bytes to dst; at least one.
func (q *fairQueue) take(dst []recordRef, limit int) []recordRef {
	total, share := 0, min(quantum, limit/8)
	for len(q.ring) > 0 {
		g := q.ring[0]
		g.deficit += share
		for g.next < len(g.recs) {
			size, _ := recordSize(g.recs[g.next].record())
			size = align8(size)
			if len(dst) > 0 && total+size > limit {
				g.deficit -= share // its turn comes first in the next frame
				return dst
			}
			if size > g.deficit && len(q.ring) > 1 {
				break
			}
			g.deficit = max(g.deficit-size, 0)
			total += size
			dst = q.takeHead(dst, g)
		}
		q.ring = q.ring[1:]
		if g.next < len(g.recs) {
			q.ring = append(q.ring, g)
		}
	}
	q.ring = nil
	return dst
}

// takeFitting moves records that fit to dst: of each group those at its head without items, up to limit bytes, or, if no group has
// any, the first record that fits.
func (q *fairQueue) takeFitting(dst []recordRef, limit int, fits func(*Record) bool) []recordRef {
	total := 0
	for _, g := range q.ring {
		for g.next < len(g.recs) {
			r := g.recs[g.next].record()
			size, items := recordSize(r)
			if items > 0 || len(dst) > 0 && total+align8(size) > limit || !fits(r) {
				break
			}
			total += align8(size)
			dst = q.takeHead(dst, g)
		}
	}
	for _, g := range q.ring {
		if len(dst) == 0 && fits(g.recs[g.next].record()) {
			dst = q.takeHead(dst, g)
		}
	}
	q.ring = slices.DeleteFunc(q.ring, func(g *groupQueue) bool { return g.next == len(g.recs) })
	return dst
}

func (q *fairQueue) takeHead(dst []recordRef, g *groupQueue) []recordRef {
	size, _ := recordSize(g.recs[g.next].record())
	q.bytes -= int64(align8(size))
	dst = append(dst, g.recs[g.next])
	g.recs[g.next] = recordRef{}
	g.next++
	return dst
}

// putBack undoes a take, of which nothing has been reported and after which nothing was put.
func (q *fairQueue) putBack(recs []recordRef) {
	for _, ref := range slices.Backward(recs) {
		g := q.groups[ref.record().Group]
		if g.next == len(g.recs) {
			q.ring = append(q.ring, g)
		}
		g.next--
		g.recs[g.next] = ref
		size, _ := recordSize(ref.record())
		q.bytes += int64(align8(size))
	}
}

// reported forgets a batch that has been reported, and the groups nothing waits for any more.
func (q *fairQueue) reported(b *Batch) {
	for i := range b.Records {
		g := q.groups[b.Records[i].Group]
		if g == nil {
			continue
		}
		if g.newest == b {
			g.newest = nil
		}
		if g.newest == nil && g.next == len(g.recs) {
			delete(q.groups, g.id)
			g.recs, g.next = g.recs[:0], 0
			q.idle = append(q.idle, g)
		}
	}
}
