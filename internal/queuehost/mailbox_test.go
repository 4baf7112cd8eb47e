package queuehost

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"holdfast/internal/bytecodec"
	"holdfast/internal/message"
	"holdfast/internal/queue"
	"holdfast/internal/replica"
	"holdfast/internal/seglog"
)

// replyRig is a node with the consumers a, b and c of direct replies, of the virtual host /, and another one that has replies for them.
type replyRig struct {
	*rig
	handles map[string]*Handle
	sinks   map[string]*sink
	box     *Handle
	sent    uint64 // with a ticket
	told    *tickets
}

func newReplyRig(t testing.TB, opts ...rigOptions) *replyRig {
	r := &replyRig{handles: map[string]*Handle{}, sinks: map[string]*sink{}, told: &tickets{}}
	r.rig = newFarRig(t, newFakeLog(), nil, append(opts, newest, func(_ *replica.Options, o *Options) {
		o.Reply = func(vhost, name []byte) *Handle {
			if string(vhost) != "/" {
				return nil
			}
			return r.handles[string(name)]
		}
	})...)
	for i, name := range []string{"a", "b", "c"} {
		h, err := r.home.Create(QueueDef{ID: lastMailbox + seglog.GroupID(i) + 1, VHost: "/", Name: name, Exclusive: true})
		if err != nil {
			t.Fatal(err)
		}
		s := &sink{}
		h.Attach(ConsumerSpec{NoAck: true, Credit: Unlimited}, s, func(queue.ConsumerID, error) {})
		r.handles[name], r.sinks[name] = h, s
	}
	r.box = r.reg.Mailbox(homeNode)
	r.step()
	return r
}

// reply makes a reply, with a ticket.
func (r *replyRig) reply(vhost, name string, m message.Message, credit *Credit) Publish {
	r.sent++
	return Publish{Message: m, For: NewAddressee(vhost, name), Ticket: r.told, Seq: r.sent, Credit: credit}
}

// settled checks that all replies are accepted, each once, and that nothing is under way any more.
func (r *replyRig) settled(t *testing.T, what string) {
	t.Helper()
	n := make([]int, r.sent+1)
	for _, x := range r.told.got {
		want(t, what+": outcome", x.o, Accepted)
		for seq := x.first; seq <= x.last; seq++ {
			n[seq]++
		}
	}
	for seq, times := range n[1:] {
		if times != 1 {
			t.Errorf("%s: reply %d is answered %d times", what, seq+1, times)
		}
	}
	h := r.reg.home(homeNode)
	want(t, what+": in flight here, there, between", []int64{r.reg.pool.used.Load(), r.home.pool.used.Load(), h.sent - h.returned}, []int64{0, 0, 0})
	want(t, what+": nacks", r.box.Nacks(), Nacks{})
}

func (r *replyRig) got(name string) (bodies []string) {
	for _, d := range r.sinks[name].got {
		bodies = append(bodies, whole(d.Message))
	}
	return bodies
}

func bigReply(from byte) message.Message {
	m := text("big")
	for i := range byte(3) {
		m.Chunks = append(m.Chunks, bytes.Repeat([]byte{from + i}, 1000))
	}
	return m
}

// R569 R570: what is for the consumers of another node gets there, in order and whole, and what is for those that are not there, or not there
// any more, or in another virtual host, is dropped. All of it is accepted, and the window between the nodes is what it was.
func TestRepliesReachAnotherNode(t *testing.T) {
	for _, credit := range []int64{200, 1 << 20} {
		r := newReplyRig(t, func(_ *replica.Options, o *Options) { o.PeerCredit = credit })
		c := r.reg.NewCredit()
		gone := r.handles["c"]
		r.home.Drop(gone.ID(), nil, nil) // and still found: it goes just now
		var a, b []string
		for i := range 50 {
			n := fmt.Sprint(i)
			big := bigReply(byte('a' + i%20))
			r.box.Publish([]Publish{
				r.reply("/", "a", text(n), c), r.reply("/", "a", text(n+"+"), c), r.reply("/", "nobody", big, c), r.reply("/", "b", text(n), c),
				r.reply("/other", "a", text("no"), c), r.reply("", "", text(""), c), r.reply("/", "a", big, c), r.reply("/", "c", big, c), r.reply("/", "c", text(n), c),
			})
			a, b = append(a, n, n+"+", whole(big)), append(b, n)
			if i%10 == 0 {
				r.step()
			}
		}
		r.step()
		r.settled(t, fmt.Sprint("with a window of ", credit))
		want(t, "a got", r.got("a"), a)
		want(t, "b got", r.got("b"), b)
		want(t, "c got", len(r.got("c")), 0)
	}
}

// A mailbox is one for each node, which can be found by its id and is no queue of a listing.
func TestMailbox(t *testing.T) {
	r := newReplyRig(t)
	want(t, "the same", r.reg.Mailbox(homeNode) == r.box && r.reg.Get(r.box.ID()) == r.box, true)
	want(t, "home", r.box.Home(), uint64(homeNode))
	other := r.reg.Mailbox(9)
	want(t, "another node's", []bool{isMailbox(other.ID()), other != r.box, other.ID() != r.box.ID()}, []bool{true, true, true})
	want(t, "a node's own", r.reg.Mailbox(entryNode) == nil, true)
	for h := range r.reg.Far() {
		t.Errorf("%d is listed", h.ID())
	}
	if alone := newRig(t, newFakeLog(), nil).reg.Mailbox(homeNode); alone != nil {
		t.Error("a node without links has a mailbox")
	}
	// Another node may mean others by the same ids.
	r.home.Mailbox(entryNode).Publish([]Publish{{Message: text("x"), For: NewAddressee("/", "x")}})
	r.box.Publish([]Publish{r.reply("/", "a", text("y"), nil)})
	r.step()
	r.settled(t, "both ways")
	want(t, "a got", r.got("a"), []string{"y"})
}

// R570: when the link breaks, replies that are under way, or wait, count as taken, each once; afterwards they arrive again.
func TestRepliesOfABrokenLink(t *testing.T) {
	r := newReplyRig(t, func(_ *replica.Options, o *Options) { o.PeerCredit = 3000 })
	c := r.reg.NewCredit()
	for i := range 20 {
		r.box.Publish([]Publish{r.reply("/", "a", text(fmt.Sprint(i)), c), r.reply("/", "a", bigReply('x'), c)})
	}
	for r.entry.Shard(0).Step() {
	}
	want(t, "answered", len(r.told.got), 0)
	r.net.cut(entryNode, homeNode)
	r.step()
	r.settled(t, "cut")
	r.box.Publish([]Publish{r.reply("/", "a", text("meanwhile"), c)})
	r.step()
	r.settled(t, "without a link")
	want(t, "a got", len(r.got("a")), 0)
	r.net.connect(entryNode, homeNode)
	r.box.Publish([]Publish{r.reply("/", "a", text("again"), c)})
	r.step()
	r.settled(t, "connected")
	want(t, "a got", r.got("a"), []string{"again"})
}

// Replies of a transaction go one by one, and it has one outcome.
func TestRepliesOfATransaction(t *testing.T) {
	r := newReplyRig(t)
	c := r.reg.NewCredit()
	r.sent = 1
	r.box.PutTransaction(&Transaction{Publishes: []Publish{
		{Message: text("1"), For: NewAddressee("/", "a"), Credit: c}, {Message: text("2"), For: NewAddressee("/", "nobody"), Credit: c}, {Message: text("3"), For: NewAddressee("/", "a"), Credit: c},
	}, Ticket: r.told, Seq: 1, Credit: c})
	r.box.Go(false)
	r.step()
	r.settled(t, "committed")
	want(t, "a got", r.got("a"), []string{"1", "3"})
}

// One consumer that does not read keeps its replies; others' get there, and the window comes back.
func TestRepliesToOneThatDoesNotRead(t *testing.T) {
	r := newReplyRig(t, func(_ *replica.Options, o *Options) { o.PeerCredit = 3000 })
	slow, err := r.home.Create(QueueDef{ID: lastMailbox + 9, VHost: "/", Name: "slow", Exclusive: true})
	if err != nil {
		t.Fatal(err)
	}
	r.handles["slow"] = slow
	slow.Attach(ConsumerSpec{NoAck: true, Credit: 1}, &sink{}, func(queue.ConsumerID, error) {})
	c := r.reg.NewCredit()
	for range 50 {
		r.box.Publish([]Publish{r.reply("/", "slow", bigReply('s'), c), r.reply("/", "b", text("b"), c)})
	}
	r.step()
	r.settled(t, "slow")
	want(t, "b got", r.got("b"), slices.Repeat([]string{"b"}, 50))
	want(t, "waiting", slow.Stats().Ready, uint64(49))
}

// What comes to a mailbox and makes no sense ends the sessions; nothing of it is left.
func TestRepliesThatMakeNoSense(t *testing.T) {
	for name, p := range map[string]Publish{
		"no addressee":        {Message: text("")},
		"half an addressee":   {Message: message.Message{Head: bytecodec.AppendBytes(nil, "/")}},
		"more than there is":  {Message: message.Message{Head: []byte{1, '/', 200, 'a'}}},
		"beyond all bounds":   {Message: message.Message{Head: bytes.Repeat([]byte{255}, 12)}},
		"of a transaction":    {Message: text("x"), For: NewAddressee("/", "a"), part: 1},
		"end of one":          {Message: text("x"), For: NewAddressee("/", "a"), part: 1 | txCloses},
		"settlements for one": {Message: text("x"), For: NewAddressee("/", "a"), part: 1 | txBare},
	} {
		r := newReplyRig(t)
		before := r.reg.home(homeNode).standing().epoch
		p.Ticket, p.Seq, p.Credit = r.told, 2, r.reg.NewCredit()
		r.sent = 2
		good := Publish{Message: text("good"), For: NewAddressee("/", "a"), Ticket: r.told, Seq: 1, Credit: p.Credit}
		r.box.Publish([]Publish{good, p})
		r.step()
		r.settled(t, name)
		want(t, name+": another life", r.reg.home(homeNode).standing().epoch > before, true)
		want(t, name+": a got", len(r.got("a")), 0)
	}
}

// FuzzReplies publishes any bytes to a mailbox, and asks it any question.
func FuzzReplies(f *testing.F) {
	f.Add([]byte{}, byte(farPublish))
	f.Add(append(NewAddressee("/", "a").head, text("body").Head...), byte(farPublish))
	f.Add(append(NewAddressee("/", "nobody").head, text("body").Head...), byte(farBehind))
	for kind := range farAnswer + 2 {
		f.Add([]byte{0, 1, 1, 1, 1, 1, 1, 1}, byte(kind))
	}
	f.Fuzz(func(t *testing.T, data []byte, kind byte) {
		r := newReplyRig(t)
		r.box.Publish([]Publish{
			r.reply("/", "a", text("1"), r.reg.NewCredit()),
			{Message: message.Message{Head: data}, Ticket: r.told, Seq: 2, Credit: r.reg.NewCredit()},
		})
		r.sent = 2
		r.step()
		r.settled(t, "any head")
		head := r.reg.home(homeNode).head(farKind(kind), r.reg.home(homeNode).standing().epoch, r.box.ID())
		r.home.Receive(entryNode, append(head.append(nil), data...))
		r.step()
		r.net.cut(entryNode, homeNode)
		r.step()
		want(t, "in flight", []int64{r.reg.pool.used.Load(), r.home.pool.used.Load()}, []int64{0, 0})
	})
}
