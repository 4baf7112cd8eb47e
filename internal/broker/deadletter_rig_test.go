package broker

import (
	"bytes"
	"cmp"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"holdfast/internal/catalog"
	"holdfast/internal/clock"
	"holdfast/internal/message"
	"holdfast/internal/queue"
	"holdfast/internal/queuehost"
	"holdfast/internal/seglog"
	"holdfast/internal/wire"
)

// letterRig is a broker whose carriers run when the test says so, with a queue that dead letters come from and targets that answer as
// the test wants.
type letterRig struct {
	*rig
	c      *client
	clk    *clock.Manual
	to     deadLettering
	begun  []func()
	source *fakeGrave
	fakes  map[string]*fakeOutlet // by queue
	logged *bytes.Buffer
}

func newLetterRig(t testing.TB) *letterRig {
	r := &letterRig{rig: newRig(t), clk: clock.NewManual(time.Unix(1000, 0)), fakes: map[string]*fakeOutlet{}, logged: new(bytes.Buffer)}
	r.c = r.connect()
	r.c.declare(DeclareQueue{Name: "source", Durable: true})
	r.letters.later = func(f func()) { r.begun = append(r.begun, f) }
	r.Broker.clock = r.clk
	r.Broker.log = slog.New(slog.NewTextHandler(r.logged, nil))
	r.letters.settings = func(*catalog.View, *catalog.Queue) (deadLettering, bool) { return r.to, true }
	reach := r.letters.reach
	r.letters.reach = func(v *catalog.View, q *catalog.Queue) outlet {
		if f := r.fakes[q.Name]; f != nil {
			if f.missing {
				return nil
			}
			return f
		}
		return reach(v, q)
	}
	r.source = r.grave("source")
	return r
}

func (r *letterRig) grave(name string) *fakeGrave {
	q := r.view().Queue(vhost, name)
	return &fakeGrave{r: r, def: QueueDef(q), letters: map[uint64]queuehost.DeadLetter{}}
}

// fake declares a durable queue that answers as the test wants.
func (r *letterRig) fake(name string) *fakeOutlet {
	r.c.declare(DeclareQueue{Name: name, Durable: true})
	r.fakes[name] = &fakeOutlet{}
	return r.fakes[name]
}

// run lets carriers do what there is to do.
func (r *letterRig) run() {
	for len(r.begun) > 0 {
		f := r.begun[0]
		r.begun = r.begun[1:]
		f()
	}
}

// fakeGrave is a queue with dead letters.
type fakeGrave struct {
	r       *letterRig
	def     queuehost.QueueDef
	mu      sync.Mutex
	last    uint64
	letters map[uint64]queuehost.DeadLetter // that are not buried
	buried  []uint64
	told    int // how often it was to tell its letters again
	deaf    bool
	unread  []error
}

func (g *fakeGrave) ID() seglog.GroupID      { return g.def.ID }
func (g *fakeGrave) Def() queuehost.QueueDef { return g.def }

func (g *fakeGrave) Unreadable(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.unread = append(g.unread, err)
}

func (g *fakeGrave) Bury(list []queue.Range) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, r := range list {
		for id := r.First; id <= r.Last; id++ {
			if _, has := g.letters[id]; has {
				g.buried = append(g.buried, id)
				delete(g.letters, id)
			}
		}
	}
}

func (g *fakeGrave) TellDead() {
	g.told++
	if !g.deaf {
		g.tell()
	}
}

// tell hands over all letters that are not buried.
func (g *fakeGrave) tell() {
	var ds []queuehost.DeadLetter
	for _, d := range g.letters {
		ds = append(ds, d)
	}
	slices.SortFunc(ds, func(a, b queuehost.DeadLetter) int { return cmp.Compare(a.ID, b.ID) })
	g.r.letters.take(g, ds)
}

// die has messages die in the queue.
func (g *fakeGrave) die(reason queue.Reason, ms ...message.Message) {
	var ds []queuehost.DeadLetter
	for _, m := range ms {
		g.last++
		d := queuehost.DeadLetter{ID: g.last, Reason: reason, Time: 77, Message: m}
		g.letters[d.ID] = d
		ds = append(ds, d)
	}
	g.r.letters.take(g, ds)
}

// left is how many letters are not buried.
func (g *fakeGrave) left() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.letters)
}

// fakeOutlet is a queue that keeps what it is given until the test answers.
type fakeOutlet struct {
	got     []queuehost.Publish // not answered
	bodies  []string            // of all that came
	missing bool                // it does not run
}

func (f *fakeOutlet) Publish(ps []queuehost.Publish) {
	f.got = append(f.got, ps...)
	for _, p := range ps {
		v, err := message.Parse(p.Message.Head)
		if err != nil {
			panic(err)
		}
		f.bodies = append(f.bodies, string(v.Body))
	}
}

// answer answers all that came.
func (f *fakeOutlet) answer(o Outcome) {
	list := f.got
	f.got = nil
	for _, p := range list {
		p.Ticket.Settled(p.Seq, p.Seq, o)
	}
}

func dead(exchange, key, body string, s wire.PropertySet) message.Message {
	var b message.Builder
	b.Begin(exchange, key, wire.NewProperties(s), uint64(len(body)), s.DeliveryMode == 2)
	if body != "" {
		b.Write([]byte(body))
	}
	return b.Message()
}

func same[T comparable](t testing.TB, what string, got, want []T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func is[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// quiet fails if anything is left behind of letters that are all done with.
func (r *letterRig) quiet() {
	r.t.Helper()
	l := r.letters
	if len(l.sources) != 0 || l.bytes != 0 || l.held != 0 || l.carriers != 0 || len(l.line) != 0 {
		r.t.Errorf("left behind: %d sources, %d bytes, %d held, %d carriers, %d in line", len(l.sources), l.bytes, l.held, l.carriers, len(l.line))
	}
}

// An ordinary dead letter costs less than an allocation: what there is are the blocks of memory that messages are cut from, and what a batch takes.
func TestDeadLetterAllocations(t *testing.T) {
	r := newLetterRig(t)
	a := r.fake("a")
	r.to = deadLettering{rekeyed: true, key: "a"}
	carry := letterLoad(r, a)
	carry()
	n := testing.AllocsPerRun(20, carry) / letterBatch
	t.Logf("%v allocations a letter", n)
	if n > 2 { // pools lose what they have where races are looked for
		t.Errorf("%v allocations a letter", n)
	}
}

const letterBatch = 128

// letterLoad returns what has letterBatch letters die and arrive.
func letterLoad(r *letterRig, a *fakeOutlet) func() {
	m := dead("work", "key", strings.Repeat("x", 1000), wire.PropertySet{ContentType: "text/plain", DeliveryMode: 2})
	ds := make([]queuehost.DeadLetter, letterBatch)
	id := uint64(0)
	g := &mute{fakeGrave: r.source}
	r.fakes["a"] = nil
	out := &swift{}
	r.letters.reach = func(*catalog.View, *catalog.Queue) outlet { return out }
	return func() {
		for i := range ds {
			id++
			ds[i] = queuehost.DeadLetter{ID: id, Reason: queue.Discarded, Time: 5, Message: m}
		}
		r.letters.take(g, ds)
		r.run()
		r.begun = r.begun[:0]
		out.answer()
	}
}

// mute is a grave that keeps nothing.
type mute struct{ *fakeGrave }

func (m *mute) Bury([]queue.Range) {}

// swift is a target that accepts all, in runs.
type swift struct {
	ticket      Ticket
	first, last uint64
}

func (s *swift) Publish(ps []queuehost.Publish) {
	if s.ticket != nil && s.ticket != ps[0].Ticket {
		s.answer()
	}
	if s.ticket == nil {
		s.first = ps[0].Seq
	}
	s.ticket, s.last = ps[0].Ticket, ps[len(ps)-1].Seq
}

func (s *swift) answer() {
	if s.ticket != nil {
		s.ticket.Settled(s.first, s.last, Accepted)
	}
	s.ticket = nil
}

func BenchmarkDeadLetter(b *testing.B) {
	r := newLetterRig(b)
	r.to = deadLettering{rekeyed: true, key: "a"}
	carry := letterLoad(r, r.fake("a"))
	b.ReportAllocs()
	for b.Loop() {
		carry()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*letterBatch), "ns/letter")
}
