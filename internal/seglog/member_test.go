package seglog

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// member is what makes a host one of a replicated group: its entries may be replaced above what was agreed on (commit), and
// then their items' ids come again with other bytes. The log must hold, after a crash, what some prefix of the records left.
type member struct {
	term, vote uint64
	commit     uint64
	snap       memberEntry
	hard       string
	log        map[uint64]memberEntry // above the snapshot, up to host.index
	appended   int                    // records since the last start
	acked      int
	states     []memberState // after so many of them
	keep       uint64        // the wish
	floor      uint64        // ReadEntry must go down to here
	below      map[uint64]memberEntry
}

type memberEntry struct {
	index, term uint64
	meta        string
}

// memberState is what Replay is to hand back, and what was agreed on by then.
type memberState struct {
	text   string
	commit uint64
}

// isMember says which groups of a world are replicated.
func isMember(g GroupID) bool { return g%2 == 0 }

// Values of members' items say their size and the term that wrote them: that makes the bytes.
const saltShift = 24

func itemValue(size int, term uint64) int { return size | int(term)<<saltShift }

// itemOf makes an item's bytes from its value; those of a host that is no member have no term in it.
func itemOf(g GroupID, id uint64, value int) []byte {
	size := value & (1<<saltShift - 1)
	if term := value >> saltShift; term > 0 {
		s := []byte(fmt.Sprintf("%d/%d.%d.", g, id, term))
		return bytes.Repeat(s, size/len(s)+1)[:size]
	}
	return item(g, id, size)
}

// apply carries out an entry's commands on a state.
func (e memberEntry) apply(next uint64, live map[uint64]int) uint64 {
	f := strings.Fields(e.meta)
	for _, s := range f[1:] {
		id, v, _ := strings.Cut(s, ":")
		n, _ := strconv.ParseUint(id, 10, 64)
		if f[0] == "put" {
			live[n], _ = strconv.Atoi(v)
			next = max(next, n+1)
		} else {
			delete(live, n)
		}
	}
	return next
}

// at is the state as of an entry.
func (m *member) at(index uint64) (next uint64, live map[uint64]int) {
	next, live = parseState(m.snap.meta)
	for i := m.snap.index + 1; i <= index; i++ {
		next = m.log[i].apply(next, live)
	}
	return next, live
}

// expect is what must live in the log: what lives as of the commit, and all that was put above it.
func (m *member) expect(last uint64) map[uint64]int {
	_, live := m.at(m.commit)
	for i := m.commit + 1; i <= last; i++ {
		if e := m.log[i]; strings.HasPrefix(e.meta, "put") {
			e.apply(0, live)
		}
	}
	return live
}

// text is what Replay is to hand back.
func (m *member) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "snapshot %d@%d %s hard %s", m.snap.index, m.snap.term, m.snap.meta, m.hard)
	for _, i := range slices.Sorted(maps.Keys(m.log)) {
		fmt.Fprintf(&b, ", %d@%d %s", i, m.log[i].term, m.log[i].meta)
	}
	return b.String()
}

// head is what the member has come to, however much of it is in the snapshot.
func (m *member) head() string {
	last := memberEntry{index: m.snap.index, term: m.snap.term}
	for i := range m.log {
		if i > last.index {
			last = m.log[i]
		}
	}
	return fmt.Sprintf("%d@%d %s hard %s", last.index, last.term, canonical(m.at(last.index)), m.hard)
}

// memberText collects the same from Replay.
type memberText struct {
	*member
	bad string
}

func (t *memberText) add(x Replayed) {
	e := memberEntry{x.Index, x.Term, string(x.Meta)}
	switch x.Kind {
	case KindSnapshot:
		t.snap = e
		if len(t.log) > 0 || t.hard != "" {
			t.bad = "the snapshot does not come first"
		}
	case KindHardState:
		t.hard = e.meta
		if len(t.log) > 0 {
			t.bad = "the hard state comes after entries"
		}
	case KindEntry:
		if want := t.snap.index + uint64(len(t.log)) + 1; x.Index != want {
			t.bad = fmt.Sprintf("entry %d where %d was to come", x.Index, want)
		}
		t.log[x.Index] = e
	default:
		t.bad = "a record of " + x.Kind.String()
	}
}

func newMemberText() *memberText {
	return &memberText{member: &member{log: map[uint64]memberEntry{}, snap: memberEntry{meta: "1"}}}
}

func (w *world) newMember(h *host) {
	h.m = newMemberText().member
	h.m.term, h.m.below = 1, map[uint64]memberEntry{}
	h.m.states = []memberState{{h.m.text(), 0}}
	snap := memberEntry{1, 1, "1"}
	w.record(h, Record{Kind: KindHardState, Term: 1, Meta: []byte("t1v0")}, func() { h.m.hard = "t1v0" })
	w.record(h, Record{Kind: KindInstall, Term: 1, Index: 1, Meta: []byte(snap.meta)}, func() { h.m.snap, h.m.commit, h.index = snap, 1, 1 })
	w.recordDone(h)
}

// record appends one record of a member and notes what the log then holds. Some go in one batch with others.
func (w *world) record(h *host, r Record, effect func()) {
	m := h.m
	r.Group, r.Time = h.id, 1
	effect()
	m.appended++
	m.states = append(m.states, memberState{m.text(), m.commit})
	w.note("member %d: %v %d@%d %.60q", h.id, r.Kind, r.Index, r.Term, r.Meta)
	w.pending = append(w.pending, r)
	if w.rng.IntN(3) > 0 {
		w.flushRecords(h)
	}
}

func (w *world) flushRecords(h *host) {
	m, n := h.m, len(w.pending)
	if n == 0 {
		return
	}
	then := w.then
	w.append(w.rng.IntN(3) > 0, func() {
		if m.acked += n; then != nil {
			then()
		}
	}, w.pending...)
	w.pending, w.then = nil, nil
}

// recordDone ends what a member does in one step.
func (w *world) recordDone(h *host) {
	w.flushRecords(h)
	h.live = h.m.expect(h.index)
	h.acked = 0
	if h.m.acked > 0 {
		h.acked = 1
	}
}

// memberEntryRecord appends an entry at host.index+1: it puts items, or deletes some.
func (w *world) memberEntry(h *host) {
	m := h.m
	next, live := m.at(h.index)
	h.index++
	rec := Record{Kind: KindEntry, Term: m.term, Index: h.index}
	meta := "put"
	if ids := slices.Sorted(maps.Keys(live)); len(ids) > 0 && w.rng.IntN(3) == 0 {
		meta = "del"
		for _, id := range ids {
			if w.rng.IntN(2) == 0 {
				meta += fmt.Sprintf(" %d", id)
			}
		}
	} else if w.rng.IntN(8) > 0 {
		for range 1 + w.rng.IntN(2) {
			if w.rng.IntN(4) == 0 {
				next += w.rng.Uint64N(5)
			}
			b := Block{First: next}
			for range 1 + w.rng.IntN(5) {
				size := 16 + w.rng.IntN(1200)
				if w.rng.IntN(60) == 0 {
					size = 20 << 10
				}
				v := itemValue(size, m.term)
				b.Items = append(b.Items, itemOf(h.id, next, v))
				meta += fmt.Sprintf(" %d:%d", next, v)
				next++
			}
			rec.Blocks = append(rec.Blocks, b)
		}
	}
	rec.Meta = []byte(meta)
	e := memberEntry{rec.Index, rec.Term, meta}
	w.record(h, rec, func() { m.log[e.index] = e })
}

// newTerm begins a new term, durably.
func (w *world) newTerm(h *host) {
	m := h.m
	m.term++
	hard := fmt.Sprintf("t%dv%d", m.term, w.rng.IntN(5))
	w.record(h, Record{Kind: KindHardState, Term: m.term, Index: w.rng.Uint64N(9), Meta: []byte(hard)}, func() { m.hard = hard })
}

// memberStep does one random thing that a member of a replicated group may do.
func (w *world) memberStep(h *host) {
	m := h.m
	settled := m.acked == m.appended
	switch n := w.rng.IntN(100); {
	case n < 45:
		w.memberEntry(h)
	case n < 57 && h.index > m.commit: // another leader has something else there
		w.newTerm(h)
		from := m.commit + 1 + w.rng.Uint64N(h.index-m.commit)
		w.note("member %d: replaces from %d", h.id, from)
		for i := from; i <= h.index; i++ {
			delete(m.log, i)
		}
		h.index = from - 1
		for range 1 + w.rng.IntN(3) {
			w.memberEntry(h)
		}
	case n < 62:
		w.newTerm(h)
	case n < 80 && settled && h.index > m.commit:
		w.memberCommit(h)
	case n < 85:
		w.memberSnapshot(h)
	case n < 88 && settled:
		w.install(h)
	case n < 93 && settled:
		w.keepTail(h, w.rng.Uint64N(h.index+1))
	case n < 98 && settled:
		w.readBack(h)
	}
	w.recordDone(h)
}

// memberCommit agrees on some of what is stable, and settles what it deletes.
func (w *world) memberCommit(h *host) {
	m := h.m
	last := m.commit + 1 + w.rng.Uint64N(h.index-m.commit)
	for i := m.commit + 1; i <= last; i++ {
		if f := strings.Fields(m.log[i].meta); f[0] == "del" {
			for _, s := range f[1:] {
				id, _ := strconv.ParseUint(s, 10, 64)
				w.l.Release(h.id, i, []Range{{id, id}})
			}
		}
	}
	m.commit = last
	m.states[len(m.states)-1].commit = last
	w.note("member %d: commits %d", h.id, last)
}

func (w *world) memberSnapshot(h *host) {
	m := h.m
	next, live := m.at(m.commit)
	e := memberEntry{m.commit, m.snap.term, canonical(next, live)}
	if m.commit > m.snap.index {
		e.term = m.log[m.commit].term
	}
	w.record(h, Record{Kind: KindSnapshot, Term: e.term, Index: e.index, Meta: []byte(e.meta)}, func() { m.setSnapshot(e) })
}

func (m *member) setSnapshot(e memberEntry) {
	for i := m.snap.index + 1; i <= e.index; i++ {
		if old, known := m.log[i]; known {
			m.below[i] = old
		}
		delete(m.log, i)
	}
	m.snap = e
}

// install replaces all the member has by a state from elsewhere, which may be above or amid its entries.
func (w *world) install(h *host) {
	m := h.m
	w.newTerm(h)
	next, _ := m.at(h.index)
	_, live := m.at(m.commit)
	index := m.commit + 1 + w.rng.Uint64N(8) // above the member's entries, or amid them
	var gone []Range
	for _, id := range slices.Sorted(maps.Keys(live)) {
		if w.rng.IntN(3) == 0 {
			gone = append(gone, Range{id, id})
			delete(live, id)
		}
	}
	for i := m.commit + 1; i <= min(index, h.index); i++ { // what is above dies by itself
		if put := map[uint64]int{}; strings.HasPrefix(m.log[i].meta, "put") {
			m.log[i].apply(0, put)
			for id := range put {
				gone = append(gone, Range{id, id})
			}
		}
	}
	items := Record{Kind: KindItems, Term: m.term}
	next += w.rng.Uint64N(3)
	b := Block{First: next}
	for range 1 + w.rng.IntN(4) {
		v := itemValue(16+w.rng.IntN(900), m.term)
		b.Items = append(b.Items, itemOf(h.id, next, v))
		live[next] = v
		next++
	}
	items.Blocks = []Block{b}
	w.record(h, items, func() {})
	e := memberEntry{index, m.term, canonical(next, live)}
	m.commit, h.index = index, index
	w.flushRecords(h)
	w.then = func() { w.l.Release(h.id, index, gone) } // not before: the index may be stable in what is replaced
	w.record(h, Record{Kind: KindInstall, Term: e.term, Index: e.index, Meta: []byte(e.meta)}, func() {
		clear(m.log)
		m.snap = e
	})
	m.floor = index + 1
}

// keepTail says what is to stay readable; from then on it must.
func (w *world) keepTail(h *host, index uint64) {
	m := h.m
	w.l.KeepTail(h.id, index)
	w.note("member %d: keeps above %d", h.id, index)
	m.keep = index
	first, _ := w.l.TailBounds(h.id)
	m.floor = max(first, index+1)
}

// readBack reads all entries that can be read.
func (w *world) readBack(h *host) {
	m := h.m
	first, last := w.l.TailBounds(h.id)
	if last != h.index || first > m.snap.index+1 || m.keep > 0 && first > max(m.floor, m.keep+1) {
		w.failf("member %d reads %d to %d; it is at %d above %d and keeps above %d, since %d", h.id, first, last, h.index, m.snap.index, m.keep, m.floor)
	}
	r := w.l.NewReader()
	for i := first; i <= last; i++ {
		want, known := m.log[i]
		if !known {
			want = m.below[i]
		}
		got, err := r.ReadEntry(h.id, i)
		if w.fs.Crashed() {
			return
		}
		if err != nil || got.Kind != KindEntry || got.Index != i || got.Term != want.term || string(got.Meta) != want.meta {
			w.failf("member %d entry %d: %v %d@%d %q, %v; want %q", h.id, i, got.Kind, got.Index, got.Term, got.Meta, err, want.meta)
		}
		k := 0
		for _, ids := range got.IDs {
			for id := ids.First; id <= ids.Last; id++ {
				put := map[uint64]int{}
				want.apply(0, put)
				if k >= len(got.Items) || !bytes.Equal(got.Items[k], itemOf(h.id, id, put[id])) {
					w.failf("member %d entry %d: item %d differs", h.id, i, id)
				}
				k++
			}
		}
		if k != len(got.Items) || k > 0 != (strings.HasPrefix(want.meta, "put ")) {
			w.failf("member %d entry %d: %d items, %d ids", h.id, i, len(got.Items), k)
		}
	}
	if _, err := r.ReadEntry(h.id, first-1); err != ErrCompacted {
		w.failf("member %d below its first entry %d: %v", h.id, first, err)
	}
	if _, err := r.ReadEntry(h.id, last+1); err != ErrUnavailable {
		w.failf("member %d above its last entry %d: %v", h.id, last, err)
	}
}

// compareMember takes over what a member has after a start, if some prefix of its records left that.
func (w *world) compareMember(h *host, found *memberText) (live map[uint64]int) {
	m, text := h.m, found.text()
	if found.bad != "" {
		w.failf("member %d: %s", h.id, found.bad)
	}
	at := len(m.states) - 1
	for at > m.acked && m.states[at].text != text {
		at--
	}
	if m.states[at].text != text {
		w.failf("member %d has\n   %s\nof %d records, %d stable; it was\n   %s", h.id, text, m.appended, m.acked, m.states[m.acked].text)
	}
	n := found.member
	n.commit = m.states[at].commit
	n.term, n.below = m.term+1, m.below
	n.states = []memberState{{text, n.commit}}
	index := n.snap.index + uint64(len(n.log))
	n.floor = n.snap.index + 1
	live = n.expect(index)
	w.groups[h.id] = &host{id: h.id, index: index, base: index, live: live, m: n}
	w.keepTail(w.groups[h.id], w.rng.Uint64N(index+1))
	return live
}
