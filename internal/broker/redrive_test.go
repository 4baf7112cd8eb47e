package broker

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/internal/clock"
	"holdfast/internal/queuehost"
	"holdfast/internal/wire"
)

// redriveRig has the queues work and other, whose dead letters go to dead, and no time.
type redriveRig struct {
	*rig
	c   *client
	clk *clock.Manual
}

func newRedriveRig(t testing.TB, o queuehost.Options) *redriveRig {
	t.Helper()
	r, clk := newSecondRig(t, o)
	x := &redriveRig{r, r.connect(), clk}
	for _, name := range []string{"work", "other"} {
		x.c.declare(DeclareQueue{Name: name, Durable: true, Arguments: wire.NewTable(map[string]any{
			"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead",
		})})
	}
	x.c.declare(DeclareQueue{Name: "dead", Durable: true})
	ok(t, "bind", x.c.Bind(Bind{Source: "amq.topic", Destination: "work", RoutingKey: "#"}))
	return x
}

// kill has messages die in a queue.
func (r *redriveRig) kill(exchange, key, name string, bodies ...string) {
	r.t.Helper()
	before := r.ready("dead")
	for _, body := range bodies {
		r.c.send(exchange, key, body)
	}
	is(r.t, "rejected", r.reject(name), len(bodies))
	eventually(r.t, "all are dead", func() bool { return r.ready("dead") == before+uint64(len(bodies)) })
}

func (r *redriveRig) redrive(o Redrive) string {
	r.t.Helper()
	o.VHost, o.Queue = vhost, "dead"
	said, err := r.Redrive(context.Background(), o, func(Redriven) {})
	if err != nil {
		r.t.Fatal(err)
	}
	return fmt.Sprint(said)
}

// has are the messages of a queue: exchange, key and body, and a mark if they have a history.
func (r *redriveRig) has(name string) (all []string) {
	r.t.Helper()
	list, err := r.AdminGet(vhost, name, 10000, true)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, m := range list {
		text := fmt.Sprintf("%s/%s %s", m.Exchange, m.RoutingKey, m.Body[:min(len(m.Body), 10)])
		if headers, _ := m.Properties["headers"].(map[string]any); headers["x-death"] != nil {
			text += "+"
		}
		all = append(all, text)
	}
	return all
}

// R475 R476: messages go back to where they died, as they were there, with their history to be read; the rest stays in its place, once. When
// they die again a history begins.
func TestRedrive(t *testing.T) {
	r := newRedriveRig(t, queuehost.Options{})
	r.kill("amq.topic", "a.b", "work", "1", "2")
	r.kill("", "other", "other", "3")
	r.c.send("", "dead", "4")
	r.kill("", "work", "work", "5")
	is(t, "ready", int(r.ready("dead")), 5)
	if said := r.redrive(Redrive{DryRun: true}); said != "{4 0 map[no_history:1] map[other:1 work:3]}" {
		t.Errorf("dry: %s", said)
	}
	same(t, "after it", r.has("dead"), []string{"/dead 1+", "/dead 2+", "/dead 3+", "/dead 4", "/dead 5+"})
	if said := r.redrive(Redrive{}); said != "{4 0 map[no_history:1] map[other:1 work:3]}" {
		t.Error(said)
	}
	same(t, "dead", r.has("dead"), []string{"/dead 4"})
	same(t, "work", r.has("work"), []string{"amq.topic/a.b 1+", "amq.topic/a.b 2+", "/work 5+"})
	same(t, "other", r.has("other"), []string{"/other 3+"})
	is(t, "rejected", r.reject("other"), 1)
	eventually(t, "dead again", func() bool { return r.ready("dead") == 2 })
	list, err := r.AdminGet(vhost, "dead", 2, true)
	if err != nil {
		t.Fatal(err)
	}
	deaths := list[1].Properties["headers"].(map[string]any)["x-death"].([]any)
	is(t, "deaths", len(deaths), 1)
	is(t, "count", int(deaths[0].(map[string]any)["count"].(int64)), 1)
}

// R475: only those that died of something, somewhere, long enough ago; not more than so many; the others keep their place.
func TestRedriveSome(t *testing.T) {
	r := newRedriveRig(t, queuehost.Options{})
	r.kill("", "work", "work", "1", "2", "3")
	r.kill("", "other", "other", "4", "5")
	died := time.Now() // the queues' time is the system's
	for _, c := range []struct {
		what string
		o    Redrive
		now  time.Time
		want string
	}{
		{"of another reason", Redrive{Reason: "expired"}, died, "{0 5 map[] map[]}"},
		{"in a queue", Redrive{From: "other"}, died, "{2 3 map[] map[other:2]}"},
		{"not yet", Redrive{OlderThan: time.Hour}, died.Add(time.Minute), "{0 5 map[] map[]}"},
		{"long ago", Redrive{OlderThan: time.Hour, Reason: "rejected"}, died.Add(time.Hour + time.Minute), "{5 0 map[] map[other:2 work:3]}"},
		{"two", Redrive{Limit: 2}, died, "{2 0 map[] map[work:2]}"},
		{"one of a queue", Redrive{Limit: 1, From: "other"}, died, "{1 3 map[] map[other:1]}"},
	} {
		r.Broker.clock = clock.NewManual(c.now)
		c.o.DryRun = true
		if said := r.redrive(c.o); said != c.want {
			t.Errorf("%s: %s, want %s", c.what, said, c.want)
		}
	}
	if said := r.redrive(Redrive{Limit: 1, From: "other"}); said != "{1 3 map[] map[other:1]}" {
		t.Error(said)
	}
	same(t, "dead", r.has("dead"), []string{"/dead 1+", "/dead 2+", "/dead 3+", "/dead 5+"})
}

// R475: to where it died first, or through an exchange.
func TestRedriveElsewhere(t *testing.T) {
	r := newRedriveRig(t, queuehost.Options{})
	r.c.declare(DeclareQueue{Name: "first", Durable: true, Arguments: wire.NewTable(map[string]any{
		"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "work",
	})})
	r.c.send("", "first", "1")
	is(t, "rejected", r.reject("first"), 1)
	eventually(t, "it is there", func() bool { return r.ready("work") == 1 })
	r.c.send("", "work", "2")
	is(t, "rejected", r.reject("work"), 2)
	eventually(t, "both are dead", func() bool { return r.ready("dead") == 2 })
	key, exchange, none := "x", "amq.topic", "amq.direct"
	if said := r.redrive(Redrive{First: true, DryRun: true}); said != "{2 0 map[] map[first:1 work:1]}" {
		t.Errorf("first: %s", said)
	}
	if said := r.redrive(Redrive{Exchange: &none}); said != "{0 0 map[no_route:2] map[]}" {
		t.Errorf("without a route: %s", said)
	}
	dead := "dead"
	if said := r.redrive(Redrive{Key: &dead}); said != "{0 0 map[same_queue:2] map[]}" {
		t.Errorf("to itself: %s", said)
	}
	if said := r.redrive(Redrive{Exchange: &exchange, Key: &key, Limit: 1}); said != "{1 0 map[] map[]}" {
		t.Errorf("through an exchange: %s", said)
	}
	same(t, "work", r.has("work"), []string{"amq.topic/x 1+"})
	if _, err := r.AdminDeleteQueue(vhost, "work", false, false); err != nil {
		t.Fatal(err)
	}
	if said := r.redrive(Redrive{}); said != "{0 0 map[no_queue:1] map[]}" {
		t.Errorf("to a queue that is gone: %s", said)
	}
	same(t, "dead", r.has("dead"), []string{"/dead 2+"})
}

// R476: a message leaves only when the other queue has it: what that refuses stays, in its place, however often.
func TestRedriveToAQueueThatIsFull(t *testing.T) {
	for _, cache := range []int64{0, 1} { // bodies in memory, and on the disk
		r := newRedriveRig(t, queuehost.Options{TailCache: cache})
		var bodies []string
		for i := range 200 { // more than are under way at a time
			bodies = append(bodies, fmt.Sprint(1000+i, strings.Repeat("x", 2000)))
		}
		r.kill("", "work", "work", bodies...)
		if err := r.setPolicy("full", "^work$", `{"max-length":150,"overflow":"reject-publish"}`); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the limit holds", func() bool { s := r.handleOf("work").Def().Settings; return s != nil && s.MaxLength > 0 })
		if said := r.redrive(Redrive{}); said != "{150 0 map[refused:50] map[work:150]}" {
			t.Error(said)
		}
		same(t, "what stays", r.numbers("dead"), numbersFrom(1150, 50))
		same(t, "what has gone", r.numbers("work"), numbersFrom(1000, 150))
		if said := r.redrive(Redrive{}); said != "{0 0 map[refused:50] map[work:0]}" && said != "{0 0 map[refused:50] map[]}" {
			t.Error(said)
		}
		same(t, "what stays", r.numbers("dead"), numbersFrom(1150, 50))
		eventually(t, "nobody holds any", func() bool { return r.handleOf("dead").Stats().Unacked == 0 })
	}
}

func (r *redriveRig) numbers(name string) (all []string) {
	for _, text := range r.has(name) {
		all = append(all, strings.Fields(text)[1][:4])
	}
	return all
}

func numbersFrom(first, n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprint(first+i))
	}
	return all
}

// R477: not more than so many a second; who does not wait for the end has it end, and what is not sent is where it was.
func TestRedriveRateAndEnd(t *testing.T) {
	const count = 50
	r := newRedriveRig(t, queuehost.Options{})
	var bodies []string
	for i := range count {
		bodies = append(bodies, fmt.Sprint(1000+i))
	}
	r.kill("", "work", "work", bodies...)
	ctx, cancel := context.WithCancel(context.Background())
	type end struct {
		said Redriven
		err  error
	}
	ended := make(chan end, 1)
	var told []uint64
	go func() {
		said, err := r.Redrive(ctx, Redrive{VHost: vhost, Queue: "dead", Rate: 2}, func(p Redriven) { told = append(told, p.Sent) })
		ended <- end{said, err}
	}()
	sent := func() int { return int(r.handleOf("work").Stats().Ready) }
	eventually(t, "the first", func() bool { return sent() == 1 })
	passed := 0 // quarters of a second
	for sent() < 5 {
		eventually(t, "it waits", func() bool { return r.clk.Timers() > 0 })
		r.clk.Advance(time.Second / 4)
		passed++
		eventually(t, "it goes on", func() bool { return sent() > (passed-2)/2 })
		if n := sent(); n > passed/2+1 {
			t.Fatalf("%d after %d quarters of a second", n, passed)
		}
	}
	if _, err := r.Redrive(ctx, Redrive{VHost: vhost, Queue: "dead"}, nil); kind(err) != Rejected {
		t.Errorf("at the same time: %v", err)
	}
	cancel()
	e := <-ended
	n := int(e.said.Sent)
	if e.err != nil || n != sent() || !slices.IsSorted(told) || len(told) == 0 {
		t.Errorf("%+v, told of %v, sent %d", e, told, sent())
	}
	same(t, "what stays", r.numbers("dead"), numbersFrom(1000+n, count-n))
	if said := r.redrive(Redrive{}); said != fmt.Sprintf("{%d 0 map[] map[work:%d]}", count-n, count-n) {
		t.Error(said)
	}
}

// R477: when the broker stops, what is under way is waited for, and the rest stays.
func TestRedriveEndsWithTheBroker(t *testing.T) {
	r := newRedriveRig(t, queuehost.Options{})
	r.kill("", "work", "work", "1", "2", "3")
	ended := make(chan error, 1)
	go func() {
		_, err := r.Redrive(context.Background(), Redrive{VHost: vhost, Queue: "dead", Rate: 0.001}, func(Redriven) {})
		ended <- err
	}()
	eventually(t, "one has gone", func() bool { return r.handleOf("work").Stats().Ready == 1 })
	r.redrives.stop(r.clk, patience)
	if err := <-ended; kind(err) != Unavailable || err.Error() != "the node is stopping" {
		t.Errorf("it ended with %v", err)
	}
	same(t, "what stays", r.has("dead"), []string{"/dead 2+", "/dead 3+"})
	if _, err := r.Redrive(context.Background(), Redrive{VHost: vhost, Queue: "dead"}, nil); kind(err) != Unavailable {
		t.Errorf("afterwards: %v", err)
	}
}

func TestRedriveIsRefused(t *testing.T) {
	r := newRedriveRig(t, queuehost.Options{})
	text := "x"
	for what, c := range map[string]struct {
		o    Redrive
		want AdminErrorKind
	}{
		"no vhost":    {Redrive{VHost: "none", Queue: "dead"}, NotFound},
		"no queue":    {Redrive{VHost: vhost, Queue: "none"}, NotFound},
		"no exchange": {Redrive{VHost: vhost, Queue: "dead", Exchange: &text}, NotFound},
		"no reason":   {Redrive{VHost: vhost, Queue: "dead", Reason: "age"}, Invalid},
		"both":        {Redrive{VHost: vhost, Queue: "dead", First: true, Key: &text}, Invalid},
	} {
		if _, err := r.Redrive(context.Background(), c.o, nil); kind(err) != c.want {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := r.AdminPauseQueue(vhost, "dead", true); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Redrive(context.Background(), Redrive{VHost: vhost, Queue: "dead"}, nil); kind(err) != Rejected {
		t.Errorf("of a paused queue: %v", err)
	}
}
