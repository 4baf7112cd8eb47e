package sim

import (
	"hash/fnv"

	"holdfast/internal/node/catgroup"
	"holdfast/internal/replica"
	"holdfast/internal/seglog"
)

// ledger is what a log has to hold of raft groups: what was told to be stable, and was not replaced or covered by a snapshot since.
type ledger map[seglog.GroupID]*account

// account is the ledger of one group.
type account struct {
	snap, last uint64
	entries    map[uint64]posted
}

// posted is an entry as it was written.
type posted struct {
	term uint64
	sum  uint64
}

func sum(b []byte) uint64 {
	h := fnv.New64a()
	h.Write(b)
	return h.Sum64()
}

func (l ledger) of(id seglog.GroupID) *account {
	a := l[id]
	if a == nil {
		a = &account{entries: map[uint64]posted{}}
		l[id] = a
	}
	return a
}

// note notes records that are stable.
func (l ledger) note(recs []seglog.Record) {
	for i := range recs {
		r := &recs[i]
		a := l.of(r.Group)
		switch {
		case r.Kind == seglog.KindDrop:
			delete(l, r.Group)
		case r.Term == 0:
		case r.Kind == seglog.KindEntry:
			a.cutFrom(r.Index)
			a.entries[r.Index], a.last = posted{r.Term, sum(r.Meta)}, r.Index
		case r.Kind == seglog.KindSnapshot:
			a.cutUpTo(r.Index)
		case r.Kind == seglog.KindInstall:
			clear(a.entries)
			a.snap, a.last = r.Index, r.Index
		}
	}
}

// doubt forgets what records that may be stable, or not, replace or cover.
func (l ledger) doubt(batches []*seglog.Batch) {
	for _, b := range batches {
		for i := range b.Records {
			r := &b.Records[i]
			a := l.of(r.Group)
			switch {
			case r.Kind == seglog.KindEntry:
				a.cutFrom(r.Index)
			case r.Kind == seglog.KindSnapshot:
				a.cutUpTo(r.Index)
			case r.Kind == seglog.KindInstall, r.Kind == seglog.KindDrop:
				delete(l, r.Group)
			}
		}
	}
}

func (a *account) cutFrom(index uint64) {
	for ; a.last >= index && a.last > 0; a.last-- {
		delete(a.entries, a.last)
	}
}

func (a *account) cutUpTo(index uint64) {
	for ; a.snap < index; a.snap++ {
		delete(a.entries, a.snap+1)
	}
}

// verify compares the log with what it has to hold.
func (l ledger) verify(w *World, n *node, r replica.Reader) {
	ids := []seglog.GroupID{catgroup.Group}
	for _, q := range w.withStores() {
		ids = append(ids, q.def.ID)
	}
	for _, id := range ids {
		a := l[id]
		if a == nil {
			continue
		}
		for index := a.snap + 1; index <= a.last && w.err == nil; index++ {
			e, there := a.entries[index]
			if !there {
				continue
			}
			rec, _, err := r.ReadEntry(id, index)
			switch {
			case err != nil:
				w.failf("node %d, group %d: entry %d was stable: %v", n.id, id, index, err)
			case rec.Term != e.term || sum(rec.Meta) != e.sum:
				w.failf("node %d, group %d: entry %d is of term %d, and was stable with term %d", n.id, id, index, rec.Term, e.term)
			}
		}
	}
}

// at is a place in the history of a queue.
type at struct {
	id    seglog.GroupID
	index uint64
}

// stateEvery is after how many entries the states of members are compared.
const stateEvery = 2

// applied compares the state of a member with that of others at the same entry.
func (n *node) applied(id seglog.GroupID, index uint64, state func([]byte) []byte) {
	if index%stateEvery != 0 {
		return
	}
	w := n.w
	w.scratch = state(w.scratch[:0])
	s := sum(w.scratch)
	first, known := w.states[at{id, index}]
	switch {
	case !known:
		w.states[at{id, index}] = s
		if w.o.Settings {
			n.inspect(id, index, w.scratch)
		}
	case first != s:
		w.failf("node %d, queue %d: at entry %d its state is another than the one seen first", n.id, id, index)
	default:
		w.check.stats.compared++
	}
}
