package seglog

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// world is a rig with hosts on top: naive machines, one per group, whose whole state is the set of live ids. They append
// entries that put and delete items, release what they deleted, answer requests for snapshots, and after a crash are
// rebuilt by Replay and compared with what they had been told.
type world struct {
	*rig
	rng    *rand.Rand
	groups map[GroupID]*host
	lastID GroupID
	pins   []pin
	// pending are records of a member on their way into one batch.
	pending []Record
	then    func() // when they are stable
	// wasClean is what the log said of the stop before the last start.
	wasClean bool
	log      []string // what happened, for a failure
}

// host is one group: its state now, and every state it went through since it was recovered.
type host struct {
	id      GroupID
	index   uint64 // appended
	acked   uint64 // stable
	base    uint64 // recovered
	next    uint64 // next item id
	live    map[uint64]int
	states  map[uint64]string // by index, canonical
	dropped bool              // a drop was appended
	dropAck bool
	m       *member // of a replicated group; states, acked and next say nothing then
}

type pin struct {
	ref  Ref
	want []byte
}

func newWorld(t testing.TB, seed uint64) *world {
	groupsPerLock = 1
	w := &world{rig: newRig(t), rng: rand.New(rand.NewPCG(seed, 99)), groups: map[GroupID]*host{}}
	w.o.Events.NeedSnapshot = func(gs []GroupID) {
		for _, g := range gs {
			switch h := w.groups[g]; {
			case h == nil || h.dropped:
			case h.m != nil && len(w.pending) == 0:
				w.memberSnapshot(h)
				w.recordDone(h)
			case h.m == nil:
				w.snapshot(h)
			}
		}
	}
	return w
}

func (w *world) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf(format, args...))
	if len(w.log) > 60 {
		w.log = w.log[1:]
	}
}

func (w *world) failf(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("%s\nafter:\n  %s", fmt.Sprintf(format, args...), strings.Join(w.log, "\n  "))
}

func canonical(next uint64, live map[uint64]int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d", next)
	for _, id := range slices.Sorted(maps.Keys(live)) {
		fmt.Fprintf(&b, " %d:%d", id, live[id])
	}
	return b.String()
}

// stateAfter is a group's state after an entry; "" is that before the first.
func stateAfter(state string, meta []byte) string {
	next, live := parseState(cmp.Or(state, "1"))
	f := strings.Fields(string(meta))
	for _, s := range f[1:] {
		id, size, _ := strings.Cut(s, ":")
		n, _ := strconv.ParseUint(id, 10, 64)
		if f[0] == "put" {
			live[n], _ = strconv.Atoi(size)
			next = max(next, n+1)
		} else {
			delete(live, n)
		}
	}
	return canonical(next, live)
}

func parseState(s string) (next uint64, live map[uint64]int) {
	live = map[uint64]int{}
	for i, f := range strings.Fields(s) {
		if i == 0 {
			next, _ = strconv.ParseUint(f, 10, 64)
			continue
		}
		id, size, _ := strings.Cut(f, ":")
		n, _ := strconv.ParseUint(id, 10, 64)
		live[n], _ = strconv.Atoi(size)
	}
	return next, live
}

func (w *world) append(sync bool, ack func(), recs ...Record) {
	w.l.Append(&Batch{Records: recs, Sync: sync, Stable: func(*Batch) { ack() }})
}

// put appends an entry with new items, possibly in two lanes, and perhaps deletes some in the same breath.
func (w *world) put(h *host) {
	h.index++
	rec := Record{Group: h.id, Kind: KindEntry, Index: h.index, Time: 1}
	meta := "put"
	for range 1 + w.rng.IntN(2) {
		if w.rng.IntN(4) == 0 {
			h.next += w.rng.Uint64N(5) // ids need not be dense
		}
		b := Block{First: h.next}
		for range 1 + w.rng.IntN(6) {
			size := 8 + w.rng.IntN(1200)
			switch w.rng.IntN(60) {
			case 0:
				size = 20 << 10 // more than a frame
			case 1:
				if w.rng.IntN(4) == 0 {
					size = 80 << 10 // more than a segment
				}
			}
			it := item(h.id, h.next, size)
			b.Items = append(b.Items, it)
			h.live[h.next] = len(it)
			meta += fmt.Sprintf(" %d:%d", h.next, len(it))
			h.next++
		}
		rec.Blocks = append(rec.Blocks, b)
	}
	rec.Meta = []byte(meta)
	h.states[h.index] = canonical(h.next, h.live)
	index := h.index
	w.note("put %d/%d %s", h.id, index, meta)
	w.append(w.rng.IntN(3) > 0, func() { h.acked = max(h.acked, index) }, rec)
}

// del appends an entry that deletes items and releases them.
func (w *world) del(h *host, ids []uint64) {
	if len(ids) == 0 {
		return
	}
	h.index++
	meta := "del"
	var ranges []Range
	for _, id := range ids {
		delete(h.live, id)
		meta += fmt.Sprintf(" %d", id)
		if n := len(ranges); n > 0 && ranges[n-1].Last+1 == id {
			ranges[n-1].Last = id
		} else {
			ranges = append(ranges, Range{id, id})
		}
	}
	h.states[h.index] = canonical(h.next, h.live)
	index := h.index
	w.note("del %d/%d %s", h.id, index, meta)
	w.append(w.rng.IntN(3) > 0, func() { h.acked = max(h.acked, index) },
		Record{Group: h.id, Kind: KindEntry, Index: index, Meta: []byte(meta)})
	w.l.Release(h.id, index, ranges)
}

func (w *world) snapshot(h *host) {
	rec := Record{Group: h.id, Kind: KindSnapshot, Index: h.index, Meta: []byte(canonical(h.next, h.live))}
	w.note("snapshot %d/%d", h.id, h.index)
	if h.index > 0 && w.rng.IntN(2) == 0 {
		rec = late(rec)
	}
	w.append(false, func() {}, rec)
}

// late makes a snapshot one that is written later.
func late(rec Record) Record {
	meta := rec.Meta
	rec.Meta, rec.Later = nil, func(dst []byte) []byte { return append(dst, meta...) }
	return rec
}

func (w *world) newHost() *host {
	w.lastID++
	h := &host{id: w.lastID, next: 1, live: map[uint64]int{}, states: map[uint64]string{0: "1"}}
	w.groups[h.id] = h
	return h
}

// begin makes a host and lets it write something.
func (w *world) begin() {
	if h := w.newHost(); isMember(h.id) {
		w.newMember(h)
	} else {
		w.put(h)
	}
}

// step does one random thing.
func (w *world) step() {
	hosts := slices.Sorted(maps.Keys(w.groups))
	hosts = slices.DeleteFunc(hosts, func(g GroupID) bool { return w.groups[g].dropped })
	if len(hosts) < 3 {
		w.begin()
		return
	}
	h := w.groups[hosts[w.rng.IntN(len(hosts))]]
	ids := slices.Sorted(maps.Keys(h.live))
	switch n := w.rng.IntN(100); {
	case n < 68 && h.m != nil:
		w.memberStep(h)
	case n < 35:
		w.put(h)
	case n < 55 && len(ids) > 0: // oldest first
		w.del(h, ids[:1+w.rng.IntN(len(ids))])
	case n < 65 && len(ids) > 0: // here and there
		w.del(h, slices.DeleteFunc(ids, func(uint64) bool { return w.rng.IntN(3) > 0 }))
	case n < 68:
		w.snapshot(h)
	case n < 69 && len(hosts) > 3:
		h.dropped = true
		w.note("drop %d", h.id)
		w.append(true, func() { h.dropAck = true }, Record{Group: h.id, Kind: KindDrop, Index: h.index})
	case n < 72 && len(ids) > 0:
		id := ids[w.rng.IntN(len(ids))]
		if h.m != nil && h.m.acked != h.m.appended {
			return // what lies under an id may not be what will
		}
		if ref, ok := w.l.Pin(h.id, id); ok {
			w.pins = append(w.pins, pin{ref, itemOf(h.id, id, h.live[id])})
		}
	case n < 76 && len(w.pins) > 0:
		w.checkPin()
	case n < 88:
		if !w.commit() {
			return
		}
		w.checkIndex()
	case n < 94:
		w.l.keepStep()
		w.l.prepareStep()
	default:
		w.clk.Advance(500e6)
		w.keep()
		w.calm()
	}
}

// checkIndex compares, when all is stable, what the log holds for live with what the hosts do.
func (w *world) checkIndex() {
	want := int64(0)
	for _, h := range w.groups {
		if !h.dropped {
			want += int64(len(h.live))
		}
	}
	if got := w.l.Stats().LiveItems; got != want && !w.l.in.waiting() {
		w.failf("%d items live, the hosts have %d", got, want)
	}
	perSegment := int64(0)
	for _, s := range w.l.segs {
		items, snaps, tails, kept := uint64(0), 0, 0, 0
		for _, r := range s.runs {
			items += r.live.n
		}
		for _, g := range w.l.list {
			if g.snap.seg == s {
				snaps++
			}
			if r := g.repl; r != nil {
				if r.hard.seg == s {
					snaps++
				}
				for _, p := range r.kept {
					if p.seg == s {
						tails++
						kept++
					}
				}
				carried := 0
				for _, e := range r.tail {
					carried += int(e.ranges)
				}
				if len(r.tail) != len(g.tail) || carried != len(r.carried) {
					w.failf("group %d: %d entries, %d of them known, %d of %d ranges", g.id, len(g.tail), len(r.tail), carried, len(r.carried))
				}
			}
			for _, p := range g.tail {
				if p.seg == s {
					tails++
				}
			}
		}
		if items != s.items || snaps != s.snaps || tails != s.tails || kept != s.kept {
			w.failf("%s counts %d items, %d snapshots, %d entries, %d kept; it has %d, %d, %d, %d", segmentName(s.id),
				s.items, s.snaps, s.tails, s.kept, items, snaps, tails, kept)
		}
		perSegment += int64(items)
	}
	if perSegment != want && !w.l.in.waiting() {
		w.failf("segments hold %d live items, the hosts have %d", perSegment, want)
	}
}

// checkPin reads a pinned item, whatever has become of it.
func (w *world) checkPin() {
	p := w.pins[0]
	w.pins = w.pins[1:]
	got, err := w.l.NewReader().Read(p.ref)
	if w.fs.Crashed() {
		return
	}
	if err != nil || !bytes.Equal(got, p.want) {
		w.failf("pinned item: %.20q, %v; want %.20q", got, err, p.want)
	}
	p.ref.Unpin()
}

// recover opens the disk as it is now and compares with what the hosts were told.
func (w *world) recover(clean bool) {
	w.t.Helper()
	w.pins, w.pending, w.then = nil, nil, nil
	w.note("recover")
	if err := w.open(); err != nil {
		w.failf("open: %v", err)
	}
	if hits := w.l.Quarantined(); len(hits) > 0 {
		w.failf("quarantined without corruption: %v", hits)
	}
	found := map[GroupID]uint64{}
	state := map[GroupID]string{}
	members := map[GroupID]*memberText{}
	err := w.l.Replay(func(x Replayed) error {
		if isMember(x.Group) {
			if members[x.Group] == nil {
				members[x.Group] = newMemberText()
			}
			members[x.Group].add(x)
			return nil
		}
		if x.Kind == KindSnapshot {
			found[x.Group], state[x.Group] = x.Index, string(x.Meta)
			return nil
		}
		if x.Index != found[x.Group]+1 {
			w.failf("group %d: entry %d after %d", x.Group, x.Index, found[x.Group])
		}
		found[x.Group] = x.Index
		state[x.Group] = stateAfter(state[x.Group], x.Meta)
		return nil
	})
	if err != nil {
		w.failf("replay: %v", err)
	}
	if clean && !w.l.Clean() {
		w.failf("not clean after a clean stop")
	}
	for id, index := range found { // clean again means that nothing became durable since the start before
		if w.l.Clean() && !clean && (!w.wasClean || w.groups[id] == nil || index != w.groups[id].base) {
			w.failf("clean, but group %d went on to %d", id, index)
		}
	}
	w.wasClean = w.l.Clean()
	w.compare(found, state, members)
	w.l.begin()
	w.interleave()
}

// interleave lets hosts go on in the middle of checkpoints and rewriting.
func (w *world) interleave() {
	inside := false
	w.l.kee.between = func() {
		if inside || w.rng.IntN(3) > 0 {
			return
		}
		inside = true
		for range w.rng.IntN(4) {
			if h := w.groups[w.lastID-GroupID(w.rng.IntN(4))]; h != nil && !h.dropped {
				ids := slices.Sorted(maps.Keys(h.live))
				if h.m != nil {
					w.memberStep(h)
				} else if w.rng.IntN(2) == 0 {
					w.put(h)
				} else {
					w.del(h, slices.DeleteFunc(ids, func(uint64) bool { return w.rng.IntN(2) > 0 }))
				}
			}
			if w.rng.IntN(2) == 0 {
				w.commit()
			}
		}
		inside = false
	}
}

func (w *world) compare(found map[GroupID]uint64, state map[GroupID]string, members map[GroupID]*memberText) {
	w.t.Helper()
	total := int64(0)
	for id := range members {
		found[id] = 0
	}
	for id := range found {
		if w.groups[id] == nil {
			w.failf("group %d came from nowhere", id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(w.groups)) {
		h := w.groups[id]
		index, known := found[id]
		if h.dropAck {
			if known {
				w.failf("dropped group %d is back", id)
			}
			delete(w.groups, id)
			continue
		}
		if !known {
			if (h.acked > 0 || h.m != nil && h.m.acked > 0) && !h.dropped {
				w.failf("group %d is gone, %d was acknowledged", id, h.acked)
			}
			delete(w.groups, id)
			continue
		}
		var next uint64
		var live map[uint64]int
		if h.m != nil {
			live = w.compareMember(h, members[id])
		} else {
			if index < h.acked || index > h.index {
				w.failf("group %d: recovered to %d, acknowledged %d, appended %d", id, index, h.acked, h.index)
			}
			if state[id] != h.states[index] {
				w.failf("group %d at %d: state %q, want %q", id, index, state[id], h.states[index])
			}
			next, live = parseState(state[id])
		}
		var ranges []Range
		for _, n := range slices.Sorted(maps.Keys(live)) {
			ranges = append(ranges, Range{n, n})
		}
		if missing := w.l.SetLive(id, ranges); missing > 0 {
			w.failf("group %d: %d items are not in the log", id, missing)
		}
		for n, size := range live {
			got, err := w.read(id, n)
			if err != nil || !bytes.Equal(got, itemOf(id, n, size)) {
				w.failf("group %d item %d after recovery: %.20q, %v", id, n, got, err)
			}
		}
		total += int64(len(live))
		if h.m != nil {
			w.readBack(w.groups[id])
			continue
		}
		w.groups[id] = &host{id: id, index: index, acked: index, base: index, next: next, live: live, states: map[uint64]string{index: state[id]}}
	}
	if got := w.l.Stats().LiveItems; got != total {
		w.failf("%d items live, want %d", got, total)
	}
}

// crash cuts the power, and the disk keeps what it likes of what was not synced. Now and then it happens again during the
// start that follows.
func (w *world) crash() {
	w.fs = w.fs.CrashClone(w.rng)
	w.note("power cut")
	for w.rng.IntN(3) == 0 {
		w.fs.CrashAt(1 + w.rng.IntN(6))
		if w.open() == nil {
			w.l.begin()
			w.keep()
		}
		if !w.fs.Crashed() {
			w.fs = w.fs.KillClone()
			break
		}
		w.fs = w.fs.CrashClone(w.rng)
		w.note("power cut while starting")
	}
	w.recover(false)
}

// TestCrashAtEveryCall runs one history and cuts the power at every call to the disk in it. R35
func TestCrashAtEveryCall(t *testing.T) {
	const steps = 300
	w := newWorld(t, 1)
	w.start()
	for range steps {
		w.step()
	}
	calls := w.fs.Calls()
	if s := w.l.Stats(); s.RewrittenSegments == 0 || s.RecycledSegments == 0 || s.Checkpoints == 0 {
		t.Fatalf("the history is too tame: %+v", s)
	}
	for n := 1; n <= calls; n++ {
		w := newWorld(t, 1)
		w.fs.CrashAt(n)
		if w.open() == nil {
			w.l.begin()
			for i := 0; i < steps && !w.fs.Crashed(); i++ {
				w.step()
			}
		}
		if !w.fs.Crashed() {
			t.Fatalf("call %d of %d was not reached", n, calls)
		}
		w.rng = rand.New(rand.NewPCG(uint64(n), 5))
		w.crash()
		for range 10 { // and it goes on
			w.step()
		}
		w.crash()
	}
}

// TestManyCrashes runs random histories with a power cut, an orderly stop or a kill every now and then.
func TestManyCrashes(t *testing.T) {
	for seed := range uint64(25) {
		w := newWorld(t, seed)
		w.fs.SetGarbage(0.2)
		w.start()
		w.interleave()
		for range 8 {
			for range 20 + w.rng.IntN(120) {
				w.step()
			}
			switch w.rng.IntN(4) {
			case 0: // killed: what was written stays, but is not synced yet
				w.fs = w.fs.KillClone()
				w.note("killed")
				w.recover(false)
				if w.rng.IntN(2) == 0 {
					w.crash()
				}
			case 1:
				w.l.kee.between = nil
				if err := w.l.Close(true); err != nil {
					if err == ErrClosed {
						w.crash()
						continue
					}
					w.failf("close: %v", err)
				}
				w.recover(true)
			case 2: // in the middle of a call
				w.fs.CrashAt(w.fs.Calls() + 1 + w.rng.IntN(30))
				for !w.fs.Crashed() {
					w.step()
				}
				if w.rng.IntN(2) == 0 { // it was only killed there, and the power goes after the next start
					w.fs = w.fs.KillClone()
					w.note("killed in a call")
					w.recover(false)
				}
				w.crash()
			default:
				w.crash()
			}
		}
	}
}
