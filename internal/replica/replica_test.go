package replica

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"holdfast/internal/clock"
	"holdfast/internal/seglog"
)

var testTime = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// fakeLog keeps batches until sync is called, or makes them stable at once.
type fakeLog struct {
	mu      sync.Mutex
	auto    bool
	clean   bool
	batches []*seglog.Batch
	records []seglog.Replayed
	items   []string
	sizes   []int // records of each batch
	syncs   int
	stable  int
	live    map[seglog.GroupID]int
	missing map[seglog.GroupID]uint64 // items it has lost
}

func (l *fakeLog) Append(b *seglog.Batch) {
	l.mu.Lock()
	l.sizes = append(l.sizes, len(b.Records))
	if b.Sync {
		l.syncs++
	}
	for _, r := range b.Records {
		l.records = append(l.records, seglog.Replayed{Group: r.Group, Kind: r.Kind, Term: r.Term, Index: r.Index, Time: r.Time, Meta: bytes.Clone(r.Meta)})
		for _, bl := range r.Blocks {
			for i, it := range bl.Items {
				l.items = append(l.items, fmt.Sprintf("%d/%d=%s", r.Group, bl.First+uint64(i), it))
			}
		}
	}
	auto := l.auto
	if !auto {
		l.batches = append(l.batches, b)
	}
	l.mu.Unlock()
	if auto {
		go b.Stable(b)
	}
}

func (l *fakeLog) sync(order ...int) {
	bs := l.batches
	l.batches = nil
	l.stable = len(l.records)
	for i := range bs {
		if len(order) > 0 {
			i = order[i]
		}
		bs[i].Stable(bs[i])
	}
}

func (l *fakeLog) Replay(fn func(seglog.Replayed) error) error {
	rs := slices.Clone(l.records)
	slices.SortStableFunc(rs, func(a, b seglog.Replayed) int { return int(a.Group) - int(b.Group) })
	for i, r := range rs {
		covered := slices.ContainsFunc(rs[i+1:], func(s seglog.Replayed) bool {
			return s.Group == r.Group && s.Kind == seglog.KindSnapshot
		})
		if !covered {
			if err := fn(r); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *fakeLog) Clean() bool { return l.clean }
func (l *fakeLog) Start()      {}
func (l *fakeLog) SetLive(g seglog.GroupID, _ []seglog.Range) (missing uint64) {
	if l.live == nil {
		l.live = map[seglog.GroupID]int{}
	}
	l.live[g]++
	return l.missing[g]
}

// adder is a host whose commands are numbers and whose state is their list. A
// number is also an item of the log.
type adder struct {
	g       *Group
	pending []uint64
	perPack int
	packed  []uint64
	state   []uint64
	next    uint64
	trace   []string
	wake    bool // at Recover
	failed  error
	dropAt  uint64 // drop the group when this number is applied
	then    func() // runs in Apply
}

func (a *adder) Pack(e *Entry) bool {
	n := min(len(a.pending), max(a.perPack, 1))
	if n == 0 {
		return false
	}
	a.packed = slices.Clone(a.pending[:n])
	a.pending = a.pending[n:]
	for _, v := range a.packed {
		if e.Logged {
			e.Meta = binary.AppendUvarint(e.Meta, v)
			a.next++
			if v%2 == 0 {
				a.next += 10 // a gap
			}
			e.Item(a.next, fmt.Append(nil, v))
		}
	}
	e.Sync = a.packed[0] >= 100
	e.Pack()
	return len(a.pending) > 0
}

func (a *adder) Apply(e *Entry) {
	a.state = append(a.state, a.packed...)
	a.trace = append(a.trace, fmt.Sprintf("apply %d %v", e.Index, a.packed))
	if a.dropAt != 0 && slices.Contains(a.packed, a.dropAt) {
		a.g.Drop()
	}
	if a.then != nil {
		a.then()
	}
}
func (a *adder) Stable(i uint64)  { a.trace = append(a.trace, fmt.Sprintf("stable %d", i)) }
func (a *adder) Overdue(i uint64) { a.trace = append(a.trace, fmt.Sprintf("overdue %d", i)) }
func (a *adder) Failed(err error) { a.failed = err }
func (a *adder) Replay(r seglog.Replayed) error {
	for b := r.Meta; len(b) > 0; {
		v, n := binary.Uvarint(b)
		if v == 666 {
			return errors.New("nonsense")
		}
		a.state = append(a.state, v)
		b = b[n:]
	}
	return nil
}
func (a *adder) Restore(b []byte) error {
	a.state = nil
	return a.Replay(seglog.Replayed{Meta: b[1:]})
}
func (a *adder) AppendSnapshot(dst []byte) []byte {
	dst = append(dst, 0)
	for _, v := range a.state {
		dst = binary.AppendUvarint(dst, v)
	}
	return dst
}
func (a *adder) Live(dst []seglog.Range) ([]seglog.Range, bool) { return dst, true }
func (a *adder) Recover(bool) bool                              { return a.wake }

func (a *adder) add(vs ...uint64) {
	a.pending = append(a.pending, vs...)
	a.g.Wake()
}

func open(t *testing.T, l *fakeLog, o Options) *Node {
	t.Helper()
	o.Log, o.Shards, o.Logger = l, 1, slog.New(slog.DiscardHandler)
	if o.Clock == nil {
		o.Clock = clock.NewManual(testTime)
	}
	return Open(o)
}

func newAdder(n *Node, id seglog.GroupID, logged bool) *adder {
	a := &adder{}
	a.g = n.NewGroup(id, a, logged)
	return a
}

func steps(n *Node) {
	for n.Shard(0).Step() || n.Shard(1).Step() {
	}
}

func want[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("%s: got %v, want %v", what, got, want)
	}
}

func TestARoundIsOneBatch(t *testing.T) {
	l := &fakeLog{}
	n := open(t, l, Options{})
	a, b, c := newAdder(n, 2, true), newAdder(n, 3, true), newAdder(n, 4, false)
	n.Prepare()
	for _, x := range []*adder{a, b, c} {
		x.perPack = 10
		x.add(1, 2, 3)
	}
	steps(n)
	want(t, "batches", l.sizes, []int{2})
	want(t, "items", strings.Join(l.items, " "), "2/1=1 2/12=2 2/13=3 3/1=1 3/12=2 3/13=3")
	want(t, "solo applied before it is stable", a.trace, []string{"apply 1 [1 2 3]"})
	want(t, "direct", c.trace, []string{"apply 1 [1 2 3]"})
	l.sync()
	steps(n)
	want(t, "solo", a.trace, []string{"apply 1 [1 2 3]", "stable 1"})
	want(t, "direct", c.trace, []string{"apply 1 [1 2 3]"})
}

func TestSyncIsAskedForIfSomebodyWaits(t *testing.T) {
	l := &fakeLog{}
	n := open(t, l, Options{})
	a, b := newAdder(n, 2, true), newAdder(n, 3, true)
	n.Prepare()
	a.add(1)
	b.add(2)
	steps(n)
	want(t, "syncs", l.syncs, 0)
	a.add(3)
	b.add(100)
	steps(n)
	want(t, "syncs", l.syncs, 1)
}

// Rounds that have no group in common may become stable in any order; the memory of both is used again.
func TestRoundsOvertake(t *testing.T) {
	l := &fakeLog{}
	n := open(t, l, Options{})
	a, b := newAdder(n, 2, true), newAdder(n, 3, true)
	n.Prepare()
	for i := range uint64(20) {
		a.add(2*i + 1)
		steps(n)
		b.add(2*i + 2)
		steps(n)
		l.sync(1, 0)
		steps(n)
	}
	want(t, "a", a.trace[len(a.trace)-1], "stable 20")
	want(t, "b", b.trace[len(b.trace)-1], "stable 20")
	for i, r := range l.records {
		if v, _ := binary.Uvarint(r.Meta); v != uint64(i+1) {
			t.Fatalf("record %d carries %d", i, v)
		}
	}
}

func TestALongListOfCommandsTakesSeveralRounds(t *testing.T) {
	l := &fakeLog{}
	n := open(t, l, Options{})
	a, b := newAdder(n, 2, true), newAdder(n, 3, true)
	n.Prepare()
	a.add(1, 2, 3)
	b.add(4)
	steps(n)
	want(t, "batches", l.sizes, []int{2, 1, 1})
	want(t, "state", a.state, []uint64{1, 2, 3})
}

func TestReplayGivesTheSameState(t *testing.T) {
	l := &fakeLog{}
	n := open(t, l, Options{SnapshotEntries: 7})
	a := newAdder(n, 2, true)
	n.Prepare()
	for i := range uint64(30) {
		a.add(i)
		steps(n)
		l.sync()
	}
	steps(n)
	n2 := open(t, l, Options{})
	b := &adder{wake: true}
	if err := n2.Replay(func(id seglog.GroupID, _ bool) Host { return b }); err != nil {
		t.Fatal(err)
	}
	b.g = n2.Group(2)
	want(t, "state", b.state, a.state)
	want(t, "index", b.g.Index(), a.g.Index())
	b.pending = []uint64{77}
	n2.Prepare()
	steps(n2)
	want(t, "told what lives", l.live[2], 1)
	want(t, "first entry of the new incarnation", b.trace, []string{"apply 31 [77]"})
	last := l.records[len(l.records)-1]
	if last.Time <= l.records[len(l.records)-2].Time {
		t.Fatal("time went back")
	}
}

func TestReplayLeavesABadGroupAlone(t *testing.T) {
	l := &fakeLog{records: []seglog.Replayed{
		{Group: 2, Kind: seglog.KindEntry, Index: 1, Meta: binary.AppendUvarint(nil, 666)},
		{Group: 2, Kind: seglog.KindEntry, Index: 2, Meta: []byte{5}},
		{Group: 3, Kind: seglog.KindEntry, Index: 1, Meta: []byte{5}},
		{Group: 3, Kind: seglog.KindEntry, Index: 3, Meta: []byte{5}},
		{Group: 4, Kind: seglog.KindEntry, Index: 1, Meta: []byte{5}},
		{Group: 5, Kind: seglog.KindEntry, Index: 1, Meta: []byte{5}},
		{Group: 9, Kind: seglog.KindEntry, Index: 1, Meta: []byte{5}},
	}, missing: map[seglog.GroupID]uint64{5: 2}}
	n := open(t, l, Options{})
	hosts := map[seglog.GroupID]*adder{}
	err := n.Replay(func(id seglog.GroupID, _ bool) Host {
		if id == 9 {
			return nil
		}
		hosts[id] = &adder{}
		return hosts[id]
	})
	if err != nil {
		t.Fatal(err)
	}
	n.Prepare()
	for id, h := range hosts {
		if h.failed == nil != (id == 4) {
			t.Fatalf("group %d: %v", id, h.failed)
		}
	}
	want(t, "told what lives", l.live, map[seglog.GroupID]int{4: 1, 5: 1})
	n.NeedSnapshots([]seglog.GroupID{2, 3, 5, 9})
	steps(n)
	want(t, "batches", len(l.sizes), 0)
}

func TestDropEndsTheLog(t *testing.T) {
	for _, logged := range []bool{true, false} {
		l := &fakeLog{}
		n := open(t, l, Options{})
		a := newAdder(n, 2, logged)
		n.Prepare()
		a.dropAt = 5
		a.add(5)
		steps(n)
		l.sync()
		steps(n)
		if n.Group(2) != nil {
			t.Fatal("the group is still there")
		}
		if logged {
			last := l.records[len(l.records)-1]
			want(t, "last record", []any{last.Kind, last.Index}, []any{seglog.KindDrop, uint64(1)})
		} else {
			want(t, "records", len(l.records), 0)
		}
	}
}

func TestOverdue(t *testing.T) {
	l := &fakeLog{}
	c := clock.NewManual(testTime)
	n := open(t, l, Options{Overdue: time.Second, Clock: c})
	a := newAdder(n, 2, true)
	n.Prepare()
	a.add(1)
	steps(n)
	c.Advance(2 * time.Second)
	a.add(2)
	steps(n)
	n.Shard(0).checkOverdue()
	steps(n)
	want(t, "trace", a.trace, []string{"apply 1 [1]", "apply 2 [2]", "overdue 1"})
}

// lister is a simple machine: a list of words.
type lister struct{ words []string }

func (m *lister) Apply(index uint64, _ int64, cmd []byte) any {
	m.words = append(m.words, string(cmd))
	return fmt.Sprint(len(m.words), "@", index)
}
func (m *lister) AppendSnapshot(dst []byte) []byte { return append(dst, strings.Join(m.words, " ")...) }
func (m *lister) Restore(b []byte) error           { m.words = strings.Fields(string(b)); return nil }

func TestSimpleGroup(t *testing.T) {
	l := &fakeLog{}
	n := open(t, l, Options{})
	m := &lister{}
	g := n.NewSimpleGroup(1, m)
	n.Prepare()
	var got []string
	note := func(r any, err error) { got = append(got, fmt.Sprint(r, " ", err)) }
	g.Propose([]byte("a"), true, note)
	g.Propose([]byte("b"), false, note)
	g.Propose([]byte("c"), true, note)
	steps(n)
	want(t, "before the sync", got, []string{"2@1 <nil>"})
	want(t, "syncs", l.syncs, 1)
	want(t, "records", len(l.records), 1)
	l.sync()
	steps(n)
	want(t, "after it", got, []string{"2@1 <nil>", "1@1 <nil>", "3@1 <nil>"})

	n.NeedSnapshots([]seglog.GroupID{1})
	steps(n)
	g.Propose([]byte("d"), true, note)
	steps(n)
	n2 := open(t, l, Options{})
	m2 := &lister{}
	n2.NewSimpleGroup(1, m2)
	if err := n2.Replay(func(seglog.GroupID, bool) Host { return nil }); err != nil {
		t.Fatal(err)
	}
	want(t, "replayed", m2.words, []string{"a", "b", "c", "d"})
	l.records[len(l.records)-1].Meta = []byte{9}
	n3 := open(t, l, Options{})
	n3.NewSimpleGroup(1, &lister{})
	if n3.Replay(func(seglog.GroupID, bool) Host { return nil }) == nil {
		t.Fatal("an entry of an unknown version was taken")
	}
}

// Who waits for the disk anyhow lets the entry before get there, and shares the next sync; who does not goes on at once, and
// takes along what came before it.
func TestSimpleGroupSharesSyncs(t *testing.T) {
	l := &fakeLog{}
	n := open(t, l, Options{})
	m := &lister{}
	g := n.NewSimpleGroup(1, m)
	n.Prepare()
	var got []string
	note := func(r any, err error) { got = append(got, fmt.Sprint(r, " ", err)) }
	for _, word := range []string{"a", "b", "c"} {
		g.Propose([]byte(word), true, note)
		steps(n)
	}
	want(t, "while the first is on its way", m.words, []string{"a"})
	l.sync()
	steps(n)
	want(t, "when it is on disk", m.words, []string{"a", "b", "c"})
	want(t, "entries", len(l.records), 2)
	g.Propose([]byte("d"), true, note)
	steps(n)
	g.Propose([]byte("e"), false, note)
	steps(n)
	want(t, "with one in haste", m.words, []string{"a", "b", "c", "d", "e"})
	want(t, "answered", got, []string{"1@1 <nil>", "5@3 <nil>"})
	l.sync()
	steps(n)
	want(t, "all", len(got), 5)
}

// With workers: many proposers, a clean stop, and what a start finds after it.
func TestWorkersAndCleanStop(t *testing.T) {
	l := &fakeLog{auto: true}
	n := Open(Options{Log: l, Shards: 3, CloseWait: time.Minute})
	var gs []*SimpleGroup
	ms := map[seglog.GroupID]*lister{}
	for id := seglog.GroupID(1); id <= 3; id++ {
		ms[id] = &lister{}
		gs = append(gs, n.NewSimpleGroup(id, ms[id]))
	}
	n.Start()
	var wg sync.WaitGroup
	for p := range 8 {
		wg.Add(200)
		go func() {
			for i := range 200 {
				gs[(p+i)%3].Propose([]byte("w"), i%2 == 0, func(_ any, err error) {
					if err != nil {
						t.Error(err)
					}
					wg.Done()
				})
			}
		}()
	}
	wg.Wait()
	if err := n.Close(true); err != nil {
		t.Fatal(err)
	}
	var late error
	gs[0].Propose([]byte("late"), true, func(_ any, err error) { late = err })
	want(t, "after the stop", late, ErrClosed)
	total := 0
	for id, m := range ms {
		total += len(m.words)
		last := slices.IndexFunc(l.records, func(r seglog.Replayed) bool {
			return r.Group == id && r.Kind == seglog.KindSnapshot && len(r.Meta) > 1 && len(strings.Fields(string(r.Meta[1:]))) == len(m.words)
		})
		if last < 0 {
			t.Fatalf("group %d has no final snapshot", id)
		}
	}
	want(t, "words", total, 1600)
	if st := n.Stats(); st.Entries == 0 || st.InLog != 0 || st.StableTime.Count() == 0 {
		t.Fatalf("stats %+v", st)
	}
}

// A disk that does not answer must not hang the stop.
func TestCloseIsBounded(t *testing.T) {
	l := &fakeLog{}
	n := Open(Options{Log: l, Shards: 1, CloseWait: time.Millisecond})
	g := n.NewSimpleGroup(1, &lister{})
	n.Start()
	g.Propose([]byte("a"), false, nil)
	if n.Close(true) == nil {
		t.Fatal("Close says all is on disk")
	}
}

// A sleeping shard's work is done by whoever asks for it here; a shard that works is
// not entered twice, and what comes meanwhile is left to its worker.
func TestGoHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &fakeLog{}
		n := open(t, l, Options{CloseWait: time.Minute})
		a, b := newAdder(n, 1, false), newAdder(n, 2, false)
		n.Start()
		synctest.Wait()

		a.pending = append(a.pending, 1)
		a.g.Mark()
		synctest.Wait()
		want(t, "marked", a.trace, nil)
		a.g.Go(true)
		want(t, "here", a.trace, []string{"apply 1 [1]"})
		a.g.Go(true)
		a.g.Go(false)
		want(t, "nothing to do", a.trace, []string{"apply 1 [1]"})

		a.pending = append(a.pending, 2)
		a.g.Mark()
		a.g.Go(false)
		synctest.Wait()
		want(t, "by the worker", a.trace, []string{"apply 1 [1]", "apply 2 [2]"})

		inside := -1
		a.then = func() {
			a.then = nil
			b.pending = append(b.pending, 4)
			b.g.Mark()
			b.g.Go(true)
			inside = len(b.trace)
		}
		a.pending = append(a.pending, 3)
		a.g.Mark()
		a.g.Go(true)
		want(t, "of another, inside", inside, 0)
		synctest.Wait()
		want(t, "of another, after", b.trace, []string{"apply 1 [4]"})
		if err := n.Close(true); err != nil {
			t.Fatal(err)
		}
	})
}

// A stop while another goroutine works in place of the worker wakes the worker in the end.
func TestStopWhileOthersWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := open(t, &fakeLog{}, Options{CloseWait: time.Minute})
		a := newAdder(n, 1, false)
		n.Start()
		synctest.Wait()
		closed := make(chan error, 1)
		a.then = func() {
			a.then = nil
			go func() { closed <- n.Close(true) }()
			synctest.Wait()
			want(t, "closed meanwhile", len(closed), 0)
		}
		a.pending = append(a.pending, 1)
		a.g.Mark()
		a.g.Go(true)
		synctest.Wait()
		want(t, "closed", len(closed), 1)
		if err := <-closed; err != nil {
			t.Fatal(err)
		}
	})
}

// The log's committer tells a sleeping shard's groups itself what is on disk; a stop meanwhile is not missed.
func TestStableHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &fakeLog{}
		n := open(t, l, Options{CloseWait: time.Minute})
		a := newAdder(n, 1, true)
		n.Start()
		synctest.Wait()
		a.pending = append(a.pending, 100)
		a.g.Mark()
		a.g.Go(true)
		want(t, "applied", a.trace, []string{"apply 1 [100]"})
		l.sync()
		want(t, "on disk", a.trace, []string{"apply 1 [100]", "stable 1"})

		a.pending = append(a.pending, 101)
		a.g.Mark()
		a.g.Go(true)
		closed := false
		go func() {
			if err := n.Close(true); err != nil {
				t.Error(err)
			}
			closed = true
		}()
		synctest.Wait()
		want(t, "closed before the disk has all", closed, false)
		for range 2 { // the entry, and the last snapshot
			l.sync()
			synctest.Wait()
		}
		want(t, "closed", closed, true)
	})
}
