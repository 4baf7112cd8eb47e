package queuehost

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"holdfast/internal/message"
	"holdfast/internal/queue"
	"holdfast/internal/replica"
	"holdfast/internal/seglog"
	"holdfast/internal/vfs"
	"holdfast/internal/wire"
)

// newest is a rig at the newest level of the formats.
func newest(_ *replica.Options, o *Options) { o.Level = func() uint16 { return 2 } }

func set(def QueueDef, s queue.Settings) QueueDef {
	def.Settings = &Settings{Settings: s}
	return def
}

// body makes a real message.
func body(text string, set wire.PropertySet) message.Message {
	var b message.Builder
	b.Begin("", "q", wire.NewProperties(set), uint64(len(text)), true)
	b.Write([]byte(text))
	return b.Message()
}

func putBodies(h *Handle, tk Ticket, persistent bool, ms ...message.Message) {
	ps := make([]Publish, len(ms))
	for i, m := range ms {
		ps[i] = Publish{Message: m, Persistent: persistent, Ticket: tk, Seq: uint64(i + 1)}
	}
	h.Publish(ps)
}

// texts are the bodies of deliveries.
func (s *sink) texts() (out []string) {
	for _, d := range s.got {
		v, _ := message.Parse(d.Message.Head)
		out = append(out, string(v.Body))
	}
	return out
}

// letters is an owner that takes dead letters.
type letters struct {
	owner
	got []string
}

func (l *letters) DeadLetters(_ *Handle, ds []DeadLetter) {
	for _, d := range ds {
		head := d.Message.Head
		v, _ := message.Parse(head)
		l.got = append(l.got, fmt.Sprintf("%d %s %v", d.ID, v.Body, d.Reason))
	}
}

// A queue that is as long as it may be refuses publishes, those that do not fit and no others, and says so at once.
func TestFullQueueRefuses(t *testing.T) {
	full := queue.Settings{MaxLength: queue.Most(2), Overflow: queue.OverflowReject}
	r := newRig(t, newFakeLog(), []QueueDef{set(durable(7), full), set(transient(8), full)}, newest)
	tk := &tickets{}
	publish(r.queue(7), tk, true, "a", "b", "c", "d")
	r.step()
	want(t, "before the sync", tk.got, []outcome{{3, 4, Refused}})
	r.settle()
	want(t, "after it", tk.got, []outcome{{3, 4, Refused}, {1, 2, Accepted}})
	want(t, "ready", r.queue(7).Stats().Ready, uint64(2))
	want(t, "refused", r.queue(7).Nacks().Refused, uint64(2))
	want(t, "given back to the log", r.log.released[7], []seglog.Range{{First: 3, Last: 4}})

	s := &sink{}
	tk = &tickets{}
	r.queue(8).Attach(unlimited(1), s, func(queue.ConsumerID, error) {})
	publish(r.queue(8), tk, false, "a", "b", "c", "d") // one goes to the consumer
	r.step()
	want(t, "of the transient queue", tk.got, []outcome{{1, 3, Accepted}, {4, 4, Refused}})
}

// What the catalog says later is followed at once, also by a queue that nobody uses.
func TestSettingsAreFollowed(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{durable(7)}, newest)
	publish(r.queue(7), nil, true, "a", "b", "c")
	r.settle()
	r.host(7).reg.SetSettings(7, Settings{Settings: queue.Settings{MaxLength: queue.Most(1)}})
	r.settle()
	want(t, "ready", r.queue(7).Stats().Ready, uint64(1))
	n := len(r.log.records)
	r.host(7).reg.SetSettings(7, Settings{Settings: queue.Settings{MaxLength: queue.Most(1)}})
	r.settle()
	want(t, "entries for what is the case already", len(r.log.records), n)

	// The next start is told by the catalog, not by the log.
	later := newRig(t, r.log.crashed(), []QueueDef{set(durable(7), queue.Settings{Overflow: queue.OverflowReject, MaxLength: queue.Most(5)})}, newest)
	later.settle()
	want(t, "settings after a restart", later.host(7).m.Settings(), queue.Settings{Overflow: queue.OverflowReject, MaxLength: queue.Most(5)})
}

// Messages leave when their time is over, without anybody asking, and their space with them.
func TestExpiredMessagesLeave(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{set(durable(7), queue.Settings{TTL: queue.Most(5000)})}, newest)
	h := r.queue(7)
	putBodies(h, nil, true, body("a", wire.PropertySet{Expiration: "1000"}), body("b", wire.PropertySet{}), body("c", wire.PropertySet{Expiration: "60000"}))
	r.settle()
	pass := func(d time.Duration) {
		r.clock.Advance(d)
		r.host(7).reg.Tick()
		r.settle()
	}
	pass(900 * time.Millisecond)
	want(t, "ready after 0.9 s", h.Stats().Ready, uint64(3))
	pass(200 * time.Millisecond)
	want(t, "ready after 1.1 s", h.Stats().Ready, uint64(2))
	pass(3800 * time.Millisecond)
	want(t, "ready after 4.9 s", h.Stats().Ready, uint64(2))
	pass(200 * time.Millisecond)
	want(t, "ready after 5.1 s", h.Stats().Ready, uint64(0))
	want(t, "given back to the log", r.log.released[7], []seglog.Range{{First: 1, Last: 1}, {First: 2, Last: 3}})
	n := len(r.log.records)
	pass(time.Minute)
	want(t, "entries of an empty queue", len(r.log.records), n)
}

// A cluster of the level before has no priorities, no expirations and no blameless returns.
func TestFirstLevelKnowsNoTraits(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{durable(7)})
	s := &sink{}
	putBodies(r.queue(7), nil, true, body("a", wire.PropertySet{Expiration: "0", Priority: new(uint8(9))}))
	r.settle()
	id := r.queue(7).Attach(unlimited(0), s, func(queue.ConsumerID, error) {})
	r.settle()
	r.queue(7).Settle(id, ids(1, 1), Return)
	r.settle()
	want(t, "deliveries", s.texts(), []string{"a", "a"})
	want(t, "count", s.got[1].Count, uint32(1))
	want(t, "counted", s.got[1].Counted, false)
}

func TestPrioritiesOfClassicQueues(t *testing.T) {
	p := func(n uint8) wire.PropertySet { return wire.PropertySet{Priority: new(n)} }
	for _, c := range []struct {
		top  uint8
		want []string
	}{
		{0, []string{"1", "9", "none", "255", "200"}},
		{5, []string{"9", "255", "200", "1", "none"}},
		{255, []string{"255", "200", "9", "1", "none"}},
	} {
		r := newRig(t, newFakeLog(), []QueueDef{set(durable(7), queue.Settings{TopPriority: c.top})}, newest)
		h, s := r.queue(7), &sink{}
		putBodies(h, nil, true, body("1", p(1)), body("9", p(9)), body("none", wire.PropertySet{}), body("255", p(255)), body("200", p(200)))
		r.settle()
		h.Attach(unlimited(0), s, func(queue.ConsumerID, error) {})
		r.settle()
		want(t, fmt.Sprint("with ", c.top), s.texts(), c.want)
	}
}

// basic.nack is no failure and basic.reject is one; both are told.
func TestReturnsAreCounted(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{set(durable(7), queue.Settings{DeliveryLimit: queue.Most(1)})}, newest)
	h, s := r.queue(7), &sink{}
	publish(h, nil, true, "a")
	id := h.Attach(unlimited(0), s, func(queue.ConsumerID, error) {})
	r.settle()
	for i, how := range []queue.Settlement{Return, queue.Requeue, Return, queue.Requeue} {
		n := uint64(i + 1)
		h.Settle(id, ids(n, n), how)
		r.settle()
	}
	var counts []string
	for _, d := range s.got {
		counts = append(counts, fmt.Sprint(d.Count, " of ", d.Acquired, d.Counted))
	}
	want(t, "counts", counts, []string{"0 of 0 true", "0 of 1 true", "1 of 2 true", "1 of 3 true"})
	want(t, "left", h.Stats().Ready+h.Stats().Unacked, uint64(0))
}

// A dead letter tells how often its message came back, and how often that was a failure: basic.reject is one, basic.nack is none. In a
// queue without dead letters nothing is said of it.
func TestRejectionsAreCounted(t *testing.T) {
	for _, def := range []QueueDef{durable(7), set(durable(7), queue.Settings{DeadLetter: queue.DeadLetterHeld})} {
		r := newRig(t, newFakeLog(), []QueueDef{def}, newest)
		h, s := r.queue(7), &sink{}
		publish(h, nil, true, "a", "b")
		id := h.Attach(unlimited(0), s, func(queue.ConsumerID, error) {})
		r.settle()
		h.Settle(id, ids(1, 1), queue.Discard)
		h.Settle(id, ids(2, 2), Decline)
		r.settle()
		fx := &queue.Effects{}
		r.host(7).m.Redead(fx)
		var told []string
		for _, e := range fx.List {
			told = append(told, fmt.Sprint(e.Delivery, ": ", e.DeliveryCount, " of ", e.Acquired))
		}
		var all []queue.Command
		for _, rec := range r.log.records {
			all, _ = queue.DecodeCommands(all, rec.Meta)
		}
		blameless := slices.ContainsFunc(all, func(c queue.Command) bool { return c.Kind == queue.Settle && c.Blameless })
		if def.Settings == nil {
			want(t, "letters", len(told), 0)
			want(t, "blameless", blameless, false)
			continue
		}
		want(t, "letters", told, []string{"1: 1 of 1", "2: 0 of 1"})
		want(t, "blameless", blameless, true)
	}
}

// Dead letters come again until they are buried.
func TestDeadLettersComeUntilTheyAreBuried(t *testing.T) {
	def := set(durable(7), queue.Settings{MaxLength: queue.Most(1), DeadLetter: queue.DeadLetterHeld})
	r := newRig(t, newFakeLog(), []QueueDef{def}, newest)
	l := &letters{}
	r.host(7).reg.SetOwner(l)
	putBodies(r.queue(7), nil, true, body("a", wire.PropertySet{}), body("b", wire.PropertySet{}), body("c", wire.PropertySet{}))
	r.settle()
	want(t, "dead", l.got, []string{"1 a dropped", "2 b dropped"})
	r.host(7).handle.Bury([]queue.Range{{First: 1, Last: 1}})
	r.settle()
	want(t, "given back to the log", r.log.released[7], []seglog.Range{{First: 1, Last: 1}})

	l = &letters{}
	again := newRig(t, r.log.crashed(), []QueueDef{def}, newest, func(_ *replica.Options, o *Options) { o.Owner = l })
	again.settle()
	want(t, "dead after a restart", len(l.got), 1)
	again.host(7).handle.Bury([]queue.Range{{First: 2, Last: 2}})
	again.settle()
	want(t, "ready", again.queue(7).Stats().Ready, uint64(1))
	want(t, "live", again.host(7).m.Live(nil), []queue.Numbers{{First: 3, Last: 3}})
}

// A queue that nobody uses expires: consumers, gets and declares are use, publishes are none.
func TestUnusedQueueExpires(t *testing.T) {
	def := durable(7)
	def.Settings = &Settings{Expires: time.Minute}
	r := newRig(t, newFakeLog(), []QueueDef{def}, newest)
	o := &owner{}
	r.host(7).reg.SetOwner(o)
	h, s := r.queue(7), &sink{}
	pass := func(d time.Duration) {
		r.clock.Advance(d)
		r.host(7).reg.Tick()
		r.settle()
	}
	pass(50 * time.Second)
	h.Count(func(uint64, uint64, error) {}) // a declare
	r.settle()
	publish(h, nil, true, "a")
	pass(50 * time.Second)
	id := h.Attach(unlimited(0), s, func(queue.ConsumerID, error) {})
	r.settle()
	pass(10 * time.Minute)
	pass(10 * time.Minute) // nothing wakes it any more
	want(t, "unused with a consumer", len(o.expired), 0)
	h.Detach(id, nil)
	r.settle()
	pass(50 * time.Second)
	want(t, "unused after 50 s", len(o.expired), 0)
	h.Detach(h.Attach(unlimited(0), s, func(queue.ConsumerID, error) {}), nil) // in one entry
	r.settle()
	pass(50 * time.Second)
	want(t, "unused 50 s after somebody came and went", len(o.expired), 0)
	publish(h, nil, true, "b")
	r.settle()
	pass(11 * time.Second)
	want(t, "unused after 61 s", o.expired, []seglog.GroupID{7})
}

// A queue that ends when something is due writes nothing more.
func TestEndWhenSomethingIsDue(t *testing.T) {
	for _, end := range []string{"dropped", "damaged"} {
		r := newRig(t, newFakeLog(), []QueueDef{set(durable(7), queue.Settings{TTL: queue.Most(1000), DeadLetter: queue.DeadLetterHeld})}, newest)
		reg := r.host(7).reg
		publish(r.queue(7), nil, true, "a")
		r.settle()
		r.clock.Advance(2 * time.Second)
		reg.Tick()
		if end == "dropped" {
			reg.Drop(7, errors.New("deleted"), nil)
		} else {
			reg.Hit(seglog.Hit{Group: 7, Reason: "damaged"})
		}
		n := len(r.log.records)
		r.settle()
		if last := r.log.records[len(r.log.records)-1]; end == "dropped" && last.Kind != seglog.KindDrop || end == "damaged" && len(r.log.records) > n {
			t.Errorf("%s: the last record is %v", end, last.Kind)
		}
	}
}

// A queue goes on by the settings that it has, as long as the catalog here may lag behind: what that says of it may be old, or it may not know it yet.
func TestSettingsWaitForTheCatalog(t *testing.T) {
	most := func(n uint64) queue.Settings {
		return queue.Settings{MaxLength: queue.Most(n), DeadLetter: queue.DeadLetterHeld}
	}
	log := newFakeLog()
	r := newRig(t, log, []QueueDef{set(durable(7), most(2)), set(durable(8), most(2)), durable(9), durable(10)})
	h := r.queue(10) // nothing was ever in it
	h.Detach(h.Attach(unlimited(0), &sink{}, func(queue.ConsumerID, error) {}), nil)
	for id := range seglog.GroupID(3) {
		publish(r.queue(7+id), nil, true, "a", "b")
	}
	r.settle()
	qo := Options{Log: log.crashed(), Clock: r.clock}
	r = &rig{t: t, log: qo.Log.(*fakeLog), clock: r.clock}
	r.node = replica.Open(replica.Options{Log: r.log, Shards: 1, Clock: r.clock})
	qo.Node = r.node
	r.reg = New(qo)
	if err := r.node.Replay(r.reg.Host); err != nil {
		t.Fatal(err)
	}
	create := func(def QueueDef) {
		if _, err := r.reg.Create(def); err != nil {
			t.Fatal(err)
		}
		r.settle()
	}
	settings := func() (list []queue.Settings) {
		for id := range seglog.GroupID(4) {
			list = append(list, r.reg.hosts[7+id].m.Settings())
		}
		return list
	}
	create(set(durable(7), most(1))) // as the log of the catalog has it
	create(set(durable(10), most(7)))
	r.reg.Expect()
	r.node.Prepare()
	r.log.Start()
	publish(r.queue(10), nil, true, "a", "b")
	r.settle()
	want(t, "at the start", settings(), []queue.Settings{most(2), most(2), {}, most(7)})
	r.reg.SetSettings(7, Settings{Settings: most(3)})
	create(set(durable(9), most(5)))
	want(t, "as news come", settings(), []queue.Settings{most(2), most(2), {}, most(7)})
	r.reg.CaughtUp()
	r.settle()
	want(t, "with the whole catalog", settings(), []queue.Settings{most(3), most(2), most(5), most(7)})
	create(set(durable(8), most(4)))
	want(t, "as the last is known", settings(), []queue.Settings{most(3), most(4), most(5), most(7)})
}

// hearing is an owner that hears on the workers which of the queues 7 and 8 are unused.
type hearing [2]chan struct{}

func (o *hearing) Expired(id seglog.GroupID) {
	select {
	case o[id-7] <- struct{}{}:
	default:
	}
}

func (*hearing) Unused(seglog.GroupID) bool { return false }

func (*hearing) DeadLetters(*Handle, []DeadLetter) {}

func (*hearing) Dropped(*Handle, queue.Reason, uint64) {}

func (*hearing) WhyHeld(*Handle) []string { return nil }

// A leader that does not hear from the others does not know who uses its queue: it is not the one to say that nobody does.
func TestExpiryIsTheLeadersToSay(t *testing.T) {
	def, other := durable(7), durable(8)
	def.Settings = &Settings{Expires: time.Hour}
	other.Settings = def.Settings
	x := newTrio(t, 3, func(int) (vfs.FS, string) { return vfs.NewMem(), "data" }, def, other)
	defer x.close(t)
	o := &hearing{make(chan struct{}, 1), make(chan struct{}, 1)}
	for _, v := range x.nodes {
		v.reg.SetOwner(o)
	}
	for _, id := range []seglog.GroupID{7, 8} {
		var h *host
		var used int64 // since then nobody has, as the leader sees it
		usedAfter := func(last int64) bool {
			for leads := true; leads; {
				done := make(chan struct{})
				h.group.Do(func() { used, leads = h.used, h.lead.serving; close(done) })
				if <-done; leads && used > last {
					return true
				}
			}
			return false
		}
		for h = x.leader(id); !usedAfter(0); {
			h = x.leader(id)
		}
		if id == 7 {
			for _, v := range x.nodes {
				v.reg.SetSettings(id, Settings{Expires: 1})
			}
			<-o[0]
			continue
		}
		self := h.reg.self()
		for _, v := range x.nodes {
			if v.id != self {
				x.cut(x.nodes[self-1], v)
			}
		}
		h.reg.SetSettings(id, Settings{Expires: 1})
		usedAfter(used) // it has looked, unless it does not lead any more
		if len(o[1]) > 0 {
			t.Error("a leader that nobody hears says that the queue is unused")
		}
	}
}

// A member that comes to a node later than the queue became known there goes by what holds then.
func TestMemberThatComesLaterFollowsTheCatalog(t *testing.T) {
	x := newTrio(t, 1, func(int) (vfs.FS, string) { return vfs.NewMem(), "data" }, durable(7))
	defer x.close(t)
	reg, self := x.nodes[0].reg, x.nodes[0].id
	other := Member{ID: 21, Node: 21}
	if _, err := reg.CreateQuorum(set(durable(8), queue.Settings{MaxLength: queue.Most(1)}), []Member{other}); err != nil {
		t.Fatal(err)
	}
	now := queue.Settings{MaxLength: queue.Most(2)}
	reg.SetSettings(8, Settings{Settings: now})
	reg.SetMembers(8, []Member{{ID: 31, Node: self}, other})
	want(t, "settings", reg.member(8).wanted(), now)
}

// awaited is a ticket of one barrier.
type awaited chan Outcome

func (t awaited) Settled(_, _ uint64, o Outcome) { t <- o }

// led is what the leader goes by. What it wants is in the next entry, of which the barrier makes one.
func (x *trio) led(id seglog.GroupID) (s queue.Settings) {
	h := x.leader(id)
	settled, looked := make(awaited, 1), make(chan struct{})
	h.reg.Get(id).Barrier(settled, 1)
	<-settled
	h.group.Do(func() { s = h.m.Settings(); close(looked) })
	<-looked
	return s
}

// R565: a leader whose catalog is behind that of another one before it does not set back what the queue goes by.
func TestLeaderThatIsBehindSetsNothingBack(t *testing.T) {
	x := newTrioWith(t, 3, func(o *Options) { o.Level = func() uint16 { return 2 } }, func(int) (vfs.FS, string) { return vfs.NewMem(), "data" }, durable(7))
	defer x.close(t)
	most := func(n uint64, generation uint64) Settings {
		return Settings{Settings: queue.Settings{MaxLength: queue.Most(n)}, Generation: generation}
	}
	for _, v := range x.nodes {
		v.reg.SetSettings(7, most(3, 5))
	}
	for x.led(7).MaxLength != queue.Most(3) {
	}
	first := x.leader(7)
	for _, v := range x.nodes {
		if v.reg != first.reg {
			v.reg.SetSettings(7, most(2, 4))
		}
	}
	x.move(7)
	want(t, "with a leader that is behind", x.led(7).MaxLength, queue.Most(3))
	for _, v := range x.nodes {
		v.reg.SetSettings(7, most(1, 6))
	}
	for x.led(7).MaxLength != queue.Most(1) {
	}
}

// R610: settings that were others for a while, of which a node was not told, are as new as the catalog that says them last.
func TestLeaderThatMissedOtherSettingsSetsThemBack(t *testing.T) {
	x := newTrioWith(t, 3, func(o *Options) { o.Level = func() uint16 { return 2 } }, func(int) (vfs.FS, string) { return vfs.NewMem(), "data" }, durable(7))
	defer x.close(t)
	most := func(n uint64, generation uint64) Settings {
		return Settings{Settings: queue.Settings{MaxLength: queue.Most(n)}, Generation: generation}
	}
	for _, v := range x.nodes {
		v.reg.SetSettings(7, most(3, 4))
	}
	for x.led(7).MaxLength != queue.Most(3) {
	}
	first := x.leader(7)
	first.reg.SetSettings(7, most(1, 5)) // the others hear of what is said next only
	for x.led(7).MaxLength != queue.Most(1) {
	}
	for _, v := range x.nodes {
		if v.reg != first.reg {
			v.reg.SetSettings(7, most(3, 6))
		}
	}
	x.move(7)
	want(t, "behind the first leader", x.led(7).MaxLength, queue.Most(3))
}

// R635: settings that are the ones that hold, by a later catalog, count as later ones: a leader that is told late what was said in between does not
// set them. An entry of their own they are not worth.
func TestLeaderThatHearsLateOfOtherSettingsDoesNotSetThem(t *testing.T) {
	x := newTrioWith(t, 3, func(o *Options) { o.Level = func() uint16 { return 2 } }, func(int) (vfs.FS, string) { return vfs.NewMem(), "data" }, durable(7))
	defer x.close(t)
	most := func(n uint64, generation uint64) Settings {
		return Settings{Settings: queue.Settings{MaxLength: queue.Most(n)}, Generation: generation}
	}
	for _, v := range x.nodes {
		v.reg.SetSettings(7, most(3, 4))
	}
	for x.led(7).MaxLength != queue.Most(3) {
	}
	first := x.leader(7)
	publish(first.reg.Get(7), nil, true, "a")
	x.led(7)
	first.reg.SetSettings(7, most(3, 6)) // of what was said in between it does not hear
	looked := make(chan struct{})
	first.group.Do(func() {
		defer close(looked)
		if first.lead.serving {
			first.Pack(&replica.Entry{Index: first.m.Applied() + 1, Term: first.lead.term})
		}
		if first.pack != nil {
			t.Error("there is an entry, though nothing follows from it")
			first.pack = nil
		}
	})
	<-looked
	x.led(7)
	for _, v := range x.nodes {
		if v.reg != first.reg {
			v.reg.SetSettings(7, most(1, 5))
		}
	}
	x.move(7)
	want(t, "with a leader that heard late of other settings", x.led(7).MaxLength, queue.Most(3))
}
