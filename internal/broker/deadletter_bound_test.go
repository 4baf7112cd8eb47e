package broker

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"holdfast/internal/catalog"
	"holdfast/internal/message"
	"holdfast/internal/queue"
	"holdfast/internal/queuehost"
	"holdfast/internal/seglog"
	"holdfast/internal/vfs"
	"holdfast/internal/wire"
)

// What is not answered is bounded in memory, for one queue and for all; what a target did not take is let go of. R390
func TestDeadLettersAreBounded(t *testing.T) {
	r := newLetterRig(t)
	const size = 400_000 // in chunks, which letters share
	a := r.fake("a")
	r.to = deadLettering{rekeyed: true, key: "a"}
	m := dead("", "", strings.Repeat("x", size), wire.PropertySet{})
	sources := []*fakeGrave{r.source}
	for i := range 9 {
		name := fmt.Sprint("source", i)
		r.c.declare(DeclareQueue{Name: name, Durable: true})
		sources = append(sources, r.grave(name))
	}
	total := 0
	for _, s := range sources {
		var ms []message.Message
		for range 100 {
			ms = append(ms, m)
		}
		total += len(ms)
		s.die(queue.Discarded, ms...)
		if r.run(); r.letters.bytes > mostLetterBytes+2*size || r.letters.sources[s.ID()].bytes > mostSourceBytes+2*size {
			t.Fatalf("%d bytes under way, %d of one queue", r.letters.bytes, r.letters.sources[s.ID()].bytes)
		}
	}
	is(t, "carriers", r.letters.carriers, 0)
	if n := len(a.got); n < mostLetterBytes/size*3/4 || n > mostLetterBytes/size+10 {
		t.Errorf("%d letters under way", n)
	}
	last := map[Ticket]uint64{}
	for came := 0; came < total; r.run() {
		if len(a.got) == 0 {
			t.Fatalf("%d of %d letters came", came, total)
		}
		p := a.got[0]
		a.got = a.got[1:]
		came++
		if last[p.Ticket]++; p.Seq != last[p.Ticket] {
			t.Fatalf("letter %d came in the place of %d", p.Seq, last[p.Ticket])
		}
		p.Ticket.Settled(p.Seq, p.Seq, Accepted)
	}
	for _, s := range sources {
		is(t, "not buried", s.left(), 0)
	}
	r.quiet()
}

// Held letters that are too old to be in their queue are forgotten, and so are all of a queue that is gone, or served elsewhere.
func TestDeadLettersAreForgotten(t *testing.T) {
	r := newLetterRig(t)
	a := r.fake("a")
	r.to = deadLettering{rekeyed: true, key: "a"}
	one := func() { r.source.die(queue.Discarded, dead("", "", "", wire.PropertySet{})) }
	one()
	one()
	r.run()
	a.answer(Refused)
	is(t, "held", r.letters.held, 2)
	r.source.deaf = true // it has dropped the first
	r.source.last = queuehost.DeadWindow
	one()
	is(t, "held", r.letters.held, 1)
	r.run()
	a.answer(Refused)
	is(t, "held", r.letters.held, 2)

	stands := r.letters.stands
	r.letters.stands = func(seglog.GroupID) bool { return false }
	r.clk.Advance(time.Second)
	r.quiet()
	r.letters.stands = stands
	r.source.deaf = false

	one()
	r.run()
	one()
	if _, err := r.c.DeleteQueue(DeleteQueue{Name: "source"}); err != nil {
		t.Fatal(err)
	}
	r.run()
	one()
	r.run()
	is(t, "came", len(a.got), 1)
	a.answer(Refused)
	r.quiet()
	is(t, "timers", r.clk.Timers(), 0)
}

// What a stopped broker has not buried is left to its queues.
func TestDeadLettersStop(t *testing.T) {
	r := newLetterRig(t)
	a := r.fake("a")
	r.to = deadLettering{rekeyed: true, key: "a"}
	one := func() { r.source.die(queue.Discarded, dead("", "", "", wire.PropertySet{})) }
	one()
	r.run()
	a.answer(Refused)
	one()
	r.run()
	r.letters.stop(time.Second)
	one()
	r.run()
	is(t, "came", len(a.got), 1)
	a.answer(Accepted)
	r.quiet()
	is(t, "timers", r.clk.Timers(), 0)
	is(t, "left to the queue", r.source.left(), 3)
}

// Bodies that are not in memory are read, pieces of large ones too, and real queues take them.
func TestDeadLettersFromTheDisk(t *testing.T) {
	r := newRigWith(t, queuehost.Options{TailCache: 1})
	c := r.connect()
	for _, q := range []string{"source", "target"} {
		c.declare(DeclareQueue{Name: q, Durable: true})
	}
	r.letters.settings = func(*catalog.View, *catalog.Queue) (deadLettering, bool) {
		return deadLettering{rekeyed: true, key: "target"}, true
	}
	bodies := []string{"small", "", strings.Repeat("large", message.ChunkSize)}
	for _, b := range bodies {
		c.send("", "source", b)
	}
	h := r.queues.Get(seglog.GroupID(r.view().Queue(vhost, "source").ID))
	g := &fakeGrave{def: h.Def(), letters: map[uint64]queuehost.DeadLetter{}}
	ds := onDisk(t, h, len(bodies))
	for _, d := range ds {
		g.letters[d.ID] = d
	}
	r.letters.take(g, ds)
	eventually(t, "all are buried", func() bool { return g.left() == 0 })
	list, err := r.AdminGet(vhost, "target", 10, false)
	if err != nil {
		t.Fatal(err)
	}
	var came []string
	for _, m := range list {
		came = append(came, string(m.Body))
	}
	same(t, "bodies", came, bodies)
}

// What cannot be read, and is not lost, is not buried: its queue is told, as another member may have it.
func TestDeadLettersThatCannotBeRead(t *testing.T) {
	r := newRigWith(t, queuehost.Options{TailCache: 1})
	c := r.connect()
	c.declare(DeclareQueue{Name: "source", Durable: true})
	r.letters.settings = func(*catalog.View, *catalog.Queue) (deadLettering, bool) {
		return deadLettering{rekeyed: true, key: "source"}, true
	}
	c.send("", "source", "body")
	h := r.queues.Get(seglog.GroupID(r.view().Queue(vhost, "source").ID))
	g := &fakeGrave{def: h.Def(), letters: map[uint64]queuehost.DeadLetter{}, deaf: true}
	ds := onDisk(t, h, 1)
	r.disk.Inject(vfs.Fault{Op: vfs.OpRead, Forever: true, Err: syscall.EIO})
	g.letters[1] = ds[0]
	r.letters.take(g, ds)
	eventually(t, "its queue is told", func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return len(g.unread) > 0
	})
	is(t, "not buried", g.left(), 1)
}

// onDisk returns the first n messages of a queue as letters of which nothing is in memory.
func onDisk(t *testing.T, h *queuehost.Handle, n int) (ds []queuehost.DeadLetter) {
	t.Helper()
	getter := h.Getter(queuehost.ConsumerSpec{}, noConsumer{})
	get := func() Delivery {
		got := make(chan Delivery, 1)
		h.Get(getter, false, func(d Delivery, _ uint64, ok bool, err error) { got <- d })
		return <-got
	}
	for i := range n {
		var d Delivery
		eventually(t, "its body leaves memory", func() bool {
			if d = get(); d.Load == nil {
				h.Settle(getter, []Range{{First: d.ID, Last: d.ID}}, Requeue)
			}
			return d.Load != nil
		})
		ds = append(ds, queuehost.DeadLetter{ID: uint64(i + 1), Reason: queue.Discarded, Load: d.Load})
	}
	return ds
}

// Whatever targets answer and however often letters are told again, each letter arrives at each of its targets, once if nobody
// was in doubt, and is then buried.
func TestDeadLettersAgainstChance(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		r := newLetterRig(t)
		ok(t, "declare", r.c.DeclareExchange(DeclareExchange{Name: "x", Type: "fanout"}))
		targets := []*fakeOutlet{r.fake("a"), r.fake("b"), r.fake("c")}
		for _, q := range []string{"a", "b", "c"} {
			ok(t, "bind", r.c.Bind(Bind{Source: "x", Destination: q}))
		}
		r.to = deadLettering{exchange: "x"}
		doubt := seed%2 == 0
		has := []map[string]int{{}, {}, {}}
		answer := func(i int, o Outcome) {
			f := targets[i]
			if len(f.got) == 0 {
				return
			}
			at := rng.IntN(len(f.got))
			p := f.got[at]
			f.got = slices.Delete(f.got, at, at+1)
			if v, _ := message.Parse(p.Message.Head); o == Accepted || o == Unknown && rng.IntN(2) == 0 {
				has[i][string(v.Body)]++
			}
			p.Ticket.Settled(p.Seq, p.Seq, o)
		}
		n := 0
		for range 300 {
			switch i := rng.IntN(3); rng.IntN(10) {
			case 0, 1:
				for range rng.IntN(4) {
					r.source.die(queue.Discarded, dead("", "", fmt.Sprint(n), wire.PropertySet{}))
					n++
				}
			case 2:
				r.source.tell()
			case 3:
				r.clk.Advance(time.Duration(rng.IntN(3000)) * time.Millisecond)
			case 4:
				targets[i].missing = !targets[i].missing
			case 5:
				answer(i, Refused)
			case 6:
				if doubt {
					answer(i, Unknown)
				}
			case 7, 8:
				answer(i, Accepted)
			default:
				r.run()
			}
		}
		for _, f := range targets {
			f.missing = false
		}
		for range 200 {
			r.run()
			for i := range targets {
				for len(targets[i].got) > 0 {
					answer(i, Accepted)
				}
			}
			r.clk.Advance(time.Second)
		}
		is(t, "not buried", r.source.left(), 0)
		r.quiet()
		for i := range has {
			for letter := range n {
				if times := has[i][fmt.Sprint(letter)]; times == 0 || times > 1 && !doubt {
					t.Errorf("seed %d: letter %d came %d times to target %d", seed, letter, times, i)
				}
			}
		}
		if t.Failed() {
			return
		}
	}
}

func TestBuriedLately(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	var b buriedLately
	all := map[uint64]bool{}
	top := uint64(0)
	for range 20000 {
		id := top + 1 - min(top, uint64(rng.IntN(300)))
		if rng.IntN(50) == 0 {
			id = top + uint64(rng.IntN(1500))
		}
		top = max(top, id)
		b.add(id)
		all[id] = true
		ask := top - min(top, uint64(rng.IntN(600)))
		if got, want := b.has(ask), all[ask] && ask+2*queuehost.DeadWindow > top; got != want {
			t.Fatalf("%d of %d: %v", ask, top, got)
		}
	}
}
