package queue

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// generator makes random commands that a host could pack: they name sessions and
// consumers that were, are or will be there.
type generator struct {
	*rand.Rand
	consumers ConsumerID
	sessions  SessionID
	index     uint64
	time      int64
	seq       uint64

	incarnation uint64 // about the one that nodes are in now
	getters     map[ConsumerID]bool
	uploads     map[[2]uint64]uint32 // chunks put in for (session, upload)
	many        int                  // blocks of many messages
	rich        bool                 // settings, and what goes with them, too
	under       map[[2]uint64]uint64 // parts put in for (session, transaction)
}

func newGenerator(seed uint64) *generator {
	return &generator{Rand: rand.New(rand.NewPCG(seed, 1)), time: 1000, getters: map[ConsumerID]bool{}, uploads: map[[2]uint64]uint32{}, under: map[[2]uint64]uint64{}}
}

func (g *generator) entry() *Entry {
	g.index += 1 + g.Uint64N(3)
	g.time += g.Int64N(100) - 10
	if g.rich && g.IntN(4) == 0 {
		g.time += g.Int64N(3e6)
	}
	e := &Entry{Index: g.index, Time: g.time}
	for range 1 + g.IntN(5) {
		e.Commands = append(e.Commands, g.command())
	}
	return e
}

func (g *generator) consumer() ConsumerID {
	if g.consumers == 0 || g.IntN(20) == 0 {
		return g.consumers + 1
	}
	return g.consumers - min(g.consumers-1, ConsumerID(g.IntN(6)))
}

func (g *generator) session() SessionID {
	if g.sessions == 0 || g.IntN(20) == 0 {
		return g.sessions + 1
	}
	return g.sessions - min(g.sessions-1, SessionID(g.IntN(3)))
}

func (g *generator) lane() uint8 {
	if g.IntN(3) > 0 {
		return 0
	}
	if g.rich {
		return []uint8{0, 1, 5, LowLane - 1, LowLane, MaxLane}[g.IntN(6)]
	}
	return []uint8{0, 1, 5, LowLane - 1}[g.IntN(4)]
}

func (g *generator) flip() bool { return g.IntN(2) == 0 }
func (g *generator) rare() bool { return g.IntN(6) == 0 }

func (g *generator) command() Command {
	switch p := g.IntN(100); {
	case g.rich && g.IntN(14) == 0:
		return g.rareCommand()
	case g.rich && g.IntN(8) == 0:
		return g.transactionCommand()
	case p < 25:
		c := Command{Kind: Enqueue, Lane: g.lane(), Count: 1 + g.Uint32N(4), Persistent: g.IntN(4) > 0, Session: g.session()}
		g.seq += uint64(c.Count)
		c.Seq = g.seq
		if g.rich {
			g.rareEnqueue(&c)
		}
		return c
	case p < 30:
		s, u := g.session(), g.Uint64N(2)
		n := g.uploads[[2]uint64{uint64(s), u}]
		if n == 0 || g.rare() {
			n += 1 + g.Uint32N(3)
			g.uploads[[2]uint64{uint64(s), u}] = n
			return Command{Kind: Chunk, Session: s, Upload: u, Count: n}
		}
		delete(g.uploads, [2]uint64{uint64(s), u})
		if g.rare() {
			n++
		}
		return Command{Kind: Enqueue, Lane: g.lane(), Count: 1, Chunks: n, Session: s, Upload: u, Persistent: g.flip()}
	case p < 40:
		c := Command{Kind: Attach, Session: g.session(), Consumer: g.consumers + 1,
			Prefetch: g.Uint32N(5), Credit: Unlimited, NoAck: g.rare(), Exclusive: g.rare(), Getter: g.rare()}
		if g.flip() {
			c.Credit = g.Uint32N(4)
			c.Wake = g.flip()
		}
		if g.rare() {
			c.Consumer = g.consumer()
		}
		if g.flip() {
			c.Outer = g.Uint64N(100)
		}
		if g.rich && g.flip() {
			c.Terms, c.Priority = &Terms{Ranked: g.flip()}, int32(g.IntN(4))-1
			if g.flip() {
				c.Terms.Timeout = 1 + g.Uint64N(1<<40)
			}
		}
		if getter, used := g.getters[c.Consumer]; used {
			c.Getter = getter
		}
		g.getters[c.Consumer] = c.Getter
		g.consumers = max(g.consumers, c.Consumer)
		return c
	case p < 43:
		return Command{Kind: Cancel, Consumer: g.consumer()}
	case p < 46:
		return Command{Kind: Detach, Consumer: g.consumer(), Blameless: g.flip()}
	case p < 49:
		c := Command{Kind: CreditTo, Consumer: g.consumer(), Last: g.Uint64N(30), Drain: g.IntN(3) == 0}
		if g.rare() {
			c.Credit = Unlimited
		}
		return c
	case p < 53:
		return Command{Kind: Credit, Consumer: g.consumer(), Credit: g.Uint32N(4), Drain: g.IntN(3) == 0}
	case p < 61:
		return Command{Kind: Get, Consumer: g.consumer(), NoAck: g.flip()}
	case p < 88:
		c := Command{Kind: Settle, Session: g.session(), Consumer: g.consumer(), First: 1 + g.Uint64N(20), How: Settlement(g.IntN(3)), Blameless: g.flip()}
		c.Last = c.First
		if g.flip() {
			c.Last += g.Uint64N(6)
		}
		if g.rare() {
			c.First, c.Last = 0, ^uint64(0)
		}
		return c
	case p < 89:
		return Command{Kind: Purge}
	case p < 92:
		lane := g.lane()
		first := 1 + g.Uint64N(60)
		return Command{Kind: DropHead + Kind(g.IntN(2)), First: uint64(MakeNumber(lane, first)), Last: uint64(MakeNumber(lane, first+g.Uint64N(5)))}
	case p < 95:
		c := Command{Kind: SessionOpen, Session: g.session()}
		if g.IntN(3) > 0 {
			if g.rare() {
				g.incarnation++
			}
			c.Node, c.Incarnation = 1+g.Uint64N(3), g.incarnation+g.Uint64N(3)
		}
		g.sessions = max(g.sessions, c.Session)
		return c
	case p < 96:
		return Command{Kind: SessionSuspect, Session: g.session()}
	case p < 97:
		return Command{Kind: SessionDead, Session: g.session(), Blameless: g.flip()}
	case p < 98:
		return Command{Kind: EpochOpen, Session: g.session(), Epoch: g.Uint64N(5)}
	case p < 99:
		return Command{Kind: Configure, AutoDelete: g.flip()}
	default:
		if g.flip() {
			return Command{Kind: Purge}
		}
		return Command{Kind: Recover, Clean: g.flip()}
	}
}

// unfold writes effects as the model does, message by message.
func unfold(t *testing.T, fx *Effects, getters map[ConsumerID]bool) (events, released []string) {
	add := func(format string, args ...any) { events = append(events, fmt.Sprintf(format, args...)) }
	gone := map[Number]bool{}
	for _, e := range fx.List {
		switch e.Kind {
		case Deliver:
			for n := e.First; n <= e.Last; n++ {
				if gone[n] {
					t.Errorf("message %v is delivered after it was released", n)
				}
				var chunks []Number
				for _, r := range e.Chunks {
					for k := r.First; k <= r.Last; k++ {
						chunks = append(chunks, k)
					}
				}
				add("deliver %d to %d as %d redelivered=%v count=%d acquired=%d noack=%v transient=%v chunks=%v",
					n, e.Consumer, e.Delivery+uint64(n-e.First), e.Redelivered, e.DeliveryCount, e.Acquired, e.NoAck, e.Transient, chunks)
			}
			if getters[e.Consumer] {
				add("left %d", e.Left)
			}
		case Released:
			for n := e.First; n <= e.Last; n++ {
				gone[n] = true
				released = append(released, fmt.Sprintf("%d %v", n, e.Reason))
			}
		case Attached, Cancelled, Detached, Wake, Empty, Active:
			add("%v %d", e.Kind, e.Consumer)
		case Refused:
			add("refused %d %v", e.Consumer, e.Reason)
		case Drained:
			add("drained %d of %d", e.Consumer, e.Count)
		case Purged:
			add("purged %d", e.Count)
		case Unused:
			add("unused")
		case EpochOpened:
			if e.Reason != 0 {
				add("epoch of %d refused: %v", e.Session, e.Reason)
			} else {
				add("epoch of %d opened after %d", e.Session, e.Count)
			}
		case TimedOut:
			add("timed out %d: %d", e.Consumer, e.Count)
		case Overflowed:
			add("overflowed %d of %d: %v %v", e.Count, e.Session, e.Numbers(), e.Reason)
		case Dead:
			for n := e.First; n <= e.Last; n++ {
				add("%s", letter(&e, n))
			}
		case Uncommitted:
			add("uncommitted of %d: %v", e.Session, e.Reason)
		case Recovered:
			add("recovered, %d dropped", e.Count)
		}
	}
	return events, released
}

// compare applies an entry to both and compares all that can be seen.
func compare(t *testing.T, m *Machine, mod *model, e *Entry) {
	t.Helper()
	fx := &Effects{}
	m.Apply(e, fx)
	wantEvents, wantReleased := mod.apply(e)
	events, released := unfold(t, fx, mod.getters)
	slices.Sort(released)
	slices.Sort(wantReleased)
	if !slices.Equal(events, wantEvents) {
		t.Errorf("events\n%q\nwant\n%q", events, wantEvents)
	}
	if !slices.Equal(released, wantReleased) {
		t.Errorf("released\n%q\nwant\n%q", released, wantReleased)
	}
	if err := m.Check(); err != nil {
		t.Error(err)
	}
	if t.Failed() {
		return
	}
	mod.remember(fx)
	compareResume(t, m, mod)
	compareRare(t, m, mod, fx)
	held := len(mod.messages) - len(mod.counted()) - int(mod.dead())
	x := m.Explain()
	if int(m.Ready()) != len(mod.ready()) || int(m.Unacked()) != held || x.Ready != m.Ready() || x.Unacked != m.Unacked() {
		t.Errorf("%d ready and %d unacked, want %d and %d", m.Ready(), m.Unacked(), len(mod.ready()), held)
	}
	oldest := int64(0)
	for _, o := range mod.messages {
		if o.holder != nil && (oldest == 0 || o.since < oldest) {
			oldest = o.since
		}
	}
	if x.OldestUnacked != oldest {
		t.Errorf("oldest unacked of %d, want %d", x.OldestUnacked, oldest)
	}
	if m.HandedOut() != mod.handedOut {
		t.Errorf("handed out: %v, want %v", m.HandedOut(), mod.handedOut)
	}
	if len(x.Consumers) != len(mod.consumers) {
		t.Errorf("%d consumers, want %d", len(x.Consumers), len(mod.consumers))
	}
}

func describe(e *Entry) string {
	s := fmt.Sprintf("entry %d", e.Index)
	for _, c := range e.Commands {
		s += fmt.Sprintf("\n  %v %+v", c.Kind, c)
	}
	return s
}

// The machine does what the model does, whatever happens, and also after it was
// restored from a snapshot in between. // R4 R5 R6 R7 R24 R26 R28
func TestModel(t *testing.T) {
	seeds := uint64(300)
	if testing.Short() {
		seeds = 30
	}
	delivered := map[string]int{}
	for seed := range seeds {
		g := newGenerator(seed)
		g.rich = seed%4 != 0
		m, mod := New(), newModel()
		for range 150 {
			e := g.entry()
			compare(t, m, mod, e)
			delivered["committed"] += mod.committed
			mod.committed = 0
			for _, ev := range append(mod.events, mod.released...) {
				var word string
				if fmt.Sscan(ev, &word); strings.HasSuffix(ev, " duplicate") {
					word = "duplicate"
				}
				delivered[word]++
			}
			if t.Failed() {
				t.Fatalf("seed %d, %s", seed, describe(e))
			}
			if g.IntN(10) == 0 {
				keptSurvives(t, restored(t, m))
				m = restored(t, m)
			}
		}
	}
	// The commands must have had something to do.
	for _, word := range []string{"deliver", "attached", "refused", "cancelled", "detached", "wake", "empty", "drained", "purged", "unused", "epoch", "recovered,",
		"overflowed", "dead", "active", "timed", "duplicate", "uncommitted", "committed"} {
		if delivered[word] < int(seeds)/20 {
			t.Errorf("%d events %q in %d runs: the commands reach too little", delivered[word], word, seeds)
		}
	}
}

// FuzzModel lets the fuzzer choose the commands.
func FuzzModel(f *testing.F) {
	r := rand.New(rand.NewPCG(1, 2))
	for n := range 8 {
		b := make([]byte, 100*n)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		g := newGenerator(0)
		g.Rand = rand.New(newByteSource(b))
		g.rich = len(b)%3 > 0
		m, mod := New(), newModel()
		for range min(2+len(b)/8, 100) {
			e := g.entry()
			compare(t, m, mod, e)
			if t.Failed() {
				t.Fatal(describe(e))
			}
			if g.IntN(10) == 0 {
				m = restored(t, m)
			}
		}
	})
}

// keptSurvives checks that what Kept says is what a Recover leaves, but for what leaves by it for another reason than the
// restart; the machine is used up.
func keptSurvives(t *testing.T, m *Machine) {
	t.Helper()
	kept := map[Number]bool{}
	for _, r := range m.Kept(nil) {
		for n := r.First; n <= r.Last; n++ {
			kept[n] = true
		}
	}
	fx := &Effects{}
	m.Apply(&Entry{Index: m.Applied() + 1, Commands: []Command{{Kind: Recover}}}, fx)
	for _, r := range m.Live(nil) {
		for n := r.First; n <= r.Last; n++ {
			if !kept[n] {
				t.Fatalf("%v is live after the recovery, and is not kept", n)
			}
			delete(kept, n)
		}
	}
	for _, e := range fx.List {
		for n := e.First; e.Kind == Released && n <= e.Last; n++ {
			if kept[n] && (e.Reason == Lost || e.Reason == Aborted) {
				t.Fatalf("%v is kept, and released: %v", n, e.Reason)
			}
			delete(kept, n)
		}
	}
	if len(kept) > 0 {
		t.Fatalf("%v are kept, and are not there after the recovery", sorted(kept))
	}
}

// restored returns a machine restored from the snapshot of m.
func restored(t *testing.T, m *Machine) *Machine {
	t.Helper()
	b := m.AppendSnapshot([]byte("before"))[6:]
	r := New()
	if err := r.Restore(b); err != nil {
		t.Fatalf("restore: %v; %v", err, r.Check())
	}
	if again := r.AppendSnapshot(nil); !bytes.Equal(again, b) {
		t.Fatalf("a restored machine has another snapshot:\n%x\n%x", again, b)
	}
	return r
}

// A snapshot at any point, and the entries after it, give what all entries give.
func TestSnapshotAnywhere(t *testing.T) {
	for seed := range uint64(20) {
		g := newGenerator(1000 + seed)
		g.rich = seed%4 > 0
		var entries []*Entry
		for range 80 {
			entries = append(entries, g.entry())
		}
		run := func(m *Machine, from int) (effects [][]Effect, end []byte) {
			for _, e := range entries[from:] {
				fx := &Effects{}
				m.Apply(e, fx)
				effects = append(effects, fx.List)
			}
			return effects, m.AppendSnapshot(nil)
		}
		want, end := run(New(), 0)
		straight := New()
		for i := range entries {
			got, gotEnd := run(restored(t, straight), i)
			if !reflect.DeepEqual(got, want[i:]) || !bytes.Equal(gotEnd, end) {
				t.Fatalf("seed %d: it runs otherwise from the snapshot before %s", 1000+seed, describe(entries[i]))
			}
			frozen, before := straight.Freeze(), straight.AppendSnapshot(nil)
			straight.Apply(entries[i], &Effects{})
			straight.AppendSnapshot(nil)
			if got := frozen.Append([]byte("before"))[6:]; !bytes.Equal(got, before) { // R560
				t.Fatalf("seed %d: what was frozen before %s is\n%x, want\n%x", 1000+seed, describe(entries[i]), got, before)
			}
		}
	}
}

// Entries decoded from their log form give the same queue.
func TestReplayFromBytes(t *testing.T) {
	g := newGenerator(7)
	g.rich = true
	a, b := New(), New()
	for range 500 {
		e := g.entry()
		cs, err := DecodeCommands(nil, AppendCommands(nil, e.Commands))
		if err != nil {
			t.Fatal(err)
		}
		a.Apply(e, &Effects{})
		b.Apply(&Entry{Index: e.Index, Time: e.Time, Commands: cs}, &Effects{})
	}
	if !bytes.Equal(a.AppendSnapshot(nil), b.AppendSnapshot(nil)) {
		t.Fatal("another state")
	}
}

// A million acks in random order: the depth is right after each, and nothing is left. // R24 R25
func TestRandomAcks(t *testing.T) {
	const n = 1_000_000
	r := newRig(attach(1, false))
	empty := len(r.m.AppendSnapshot(nil))
	r.apply(Command{Kind: Enqueue, Count: n, Persistent: true})
	for left, i := range rand.New(rand.NewPCG(1, 1)).Perm(n) {
		fx := r.apply(Command{Kind: Settle, Session: 1, Consumer: 1, First: uint64(i + 1), Last: uint64(i + 1)})
		if len(fx) != 1 || fx[0].Numbers() != (Numbers{Number(i + 1), Number(i + 1)}) || r.m.Unacked() != uint64(n-left-1) {
			t.Fatalf("ack of %d: %v, %d unacked", i+1, fx, r.m.Unacked())
		}
	}
	if len(r.m.Live(nil)) != 0 || len(r.m.AppendSnapshot(nil)) > empty+16 {
		t.Fatal("something is left")
	}
}

// What comes and goes leaves nothing in the state, however often. // R26
func TestChurnLeavesNothing(t *testing.T) {
	r := newRig()
	r.apply(Command{Kind: Enqueue, Count: 1, Persistent: true})
	size := len(r.m.AppendSnapshot(nil))
	for i := range 100_000 {
		c := ConsumerID(i + 1)
		r.apply(attach(c, false), Command{Kind: Settle, Session: 1, Consumer: c, How: Requeue, First: 1, Last: 1})
		r.apply(Command{Kind: [...]Kind{Cancel, Detach}[i%2], Consumer: c},
			Command{Kind: Settle, Session: 1, Consumer: c, How: Requeue, First: 2, Last: 2})
	}
	if n := len(r.m.AppendSnapshot(nil)); n > size+20 {
		t.Errorf("the snapshot grew from %d to %d bytes", size, n)
	}
	fx := r.apply(attach(1<<40, false))
	if d := fx[1]; d.Kind != Deliver || d.First != 1 || d.Acquired != 200_000 || d.DeliveryCount != 200_000 {
		t.Errorf("the message came back as %+v", d)
	}
	if len(r.m.Explain().Consumers) != 1 {
		t.Error("consumers are left")
	}
}

// Long runs of checkouts are cut in a snapshot, and whole again after it.
func TestSnapshotOfManyHeld(t *testing.T) {
	r := filled(10*maxHeldRun, true)
	r.apply(attach(1, false))
	r.apply(Command{Kind: Settle, Session: 1, Consumer: 1, First: 3 * maxHeldRun, Last: 3*maxHeldRun + 5})
	m := restored(t, r.m)
	if m.Unacked() != 10*maxHeldRun-6 {
		t.Fatalf("%d held", m.Unacked())
	}
	if n := len(r.m.AppendSnapshot(nil)); n > 300 {
		t.Errorf("the snapshot takes %d bytes", n)
	}
}

// A damaged snapshot is refused, or is another state that a machine can have.
func TestRestoreDamaged(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 5))
	refused, accepted := 0, 0
	for seed := range uint64(20) {
		g, m := newGenerator(seed), New()
		g.rich = seed%2 > 0
		for range 20 + 10*seed {
			m.Apply(g.entry(), &Effects{})
		}
		whole := m.AppendSnapshot(nil)
		for n := range len(whole) {
			if n > 0 && New().Restore(whole[:n]) == nil && n < 10 {
				t.Fatalf("seed %d: %d bytes of a snapshot are accepted", seed, n)
			}
		}
		for range 1000 {
			b := bytes.Clone(whole)
			for range 1 + r.IntN(3) {
				b[r.IntN(len(b))] ^= byte(1 << r.IntN(8))
			}
			m := New()
			if m.Restore(b) != nil {
				refused++
				continue
			}
			accepted++
			restored(t, m)
			g := newGenerator(seed)
			g.index, g.rich = m.Applied(), true
			if m.Ready() > 1<<16 {
				continue // a consumer might be given all of it
			}
			for range 10 {
				m.Apply(g.entry(), &Effects{})
				if err := m.Check(); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
		}
	}
	if refused < 1000 || accepted < 1000 {
		t.Errorf("%d refused, %d accepted: the test reaches too little", refused, accepted)
	}
}

// A node has one session: a snapshot with two of one is damaged.
func TestRestoreTwoSessionsOfANode(t *testing.T) {
	for _, nodes := range [][2]uint64{{1, 2}, {0, 0}, {7, 7}} {
		m := New()
		for i, node := range nodes {
			s := &session{id: SessionID(i + 1), node: node}
			if node != 0 {
				s.incarnation = 1
			}
			m.sessions = append(m.sessions, s)
		}
		if err := New().Restore(m.AppendSnapshot(nil)); (err != nil) != (nodes[0] == 7) {
			t.Errorf("sessions of the nodes %v: %v", nodes, err)
		}
	}
}

func FuzzRestore(f *testing.F) {
	for seed := range uint64(8) {
		g, m := newGenerator(seed), New()
		g.rich = seed%2 > 0
		for range 20 * seed {
			m.Apply(g.entry(), &Effects{})
		}
		f.Add(m.AppendSnapshot(nil))
	}
	text, err := os.ReadFile("testdata/snapshot-v1")
	if err != nil {
		f.Fatal(err)
	}
	_, dump, _ := strings.Cut(string(text), "----\n")
	dump, _, _ = strings.Cut(dump, "\n\n")
	f.Add(undump(f, dump))
	f.Fuzz(func(t *testing.T, b []byte) {
		m := New()
		if m.Restore(b) != nil {
			return
		}
		// What was accepted is a machine: it works on, and its snapshot is accepted again.
		restored(t, m)
		g := newGenerator(uint64(len(b)))
		g.index, g.rich = m.Applied(), true
		if m.Ready() > 1<<16 {
			return // a consumer might be given all of it
		}
		for range 20 {
			m.Apply(g.entry(), &Effects{})
		}
		if err := m.Check(); err != nil {
			t.Fatal(err)
		}
	})
}
