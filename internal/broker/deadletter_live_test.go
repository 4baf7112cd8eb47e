package broker

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"holdfast/internal/catalog"
	"holdfast/internal/clock"
	"holdfast/internal/queue"
	"holdfast/internal/queuehost"
	"holdfast/internal/seglog"
	"holdfast/internal/wire"
)

// newSecondRig is a rig at level 2, where queues have dead letters. The broker's time stands still.
func newSecondRig(t testing.TB, o queuehost.Options) (*rig, *clock.Manual) {
	t.Helper()
	o.Level = func() uint16 { return 2 }
	r := newRigWith(t, o)
	r.must(catalog.SetLevels(1, catalog.Levels{Least: 1, Most: 2}))
	r.must(catalog.RaiseLevel(2))
	clk := clock.NewManual(time.Unix(1000, 0))
	r.Broker.clock = clk
	r.catalog.Policies = r.PoliciesChanged
	return r, clk
}

func (r *rig) handleOf(name string) *queuehost.Handle {
	return r.queues.Get(seglog.GroupID(r.view().Queue(vhost, name).ID))
}

// reject has all messages of a queue rejected.
func (r *rig) reject(name string) (n int) {
	h := r.handleOf(name)
	getter := h.Getter(queuehost.ConsumerSpec{}, noConsumer{})
	for {
		got := make(chan bool, 1)
		h.Get(getter, false, func(d Delivery, _ uint64, found bool, _ error) {
			if found {
				if d.Load != nil {
					d.Load.Drop()
				}
				h.Settle(getter, []Range{{First: d.ID, Last: d.ID}}, queue.Discard)
			}
			got <- found
		})
		if !<-got {
			h.Detach(getter, nil)
			return n
		}
		n++
	}
}

// ready is how many messages a queue has that are ready.
func (r *rig) ready(name string) uint64 {
	n := make(chan uint64, 1)
	r.handleOf(name).Count(func(ready, _ uint64, _ error) { n <- ready })
	return <-n
}

// Real queues: what is rejected, or dropped for a limit, arrives in order, with its history, whether its body is in memory or not. R380 R381 R386
func TestDeadLettersArrive(t *testing.T) {
	for _, cache := range []int64{0, 1} {
		r, _ := newSecondRig(t, queuehost.Options{TailCache: cache})
		c := r.connect()
		c.declare(DeclareQueue{Name: "work", Durable: true, Arguments: wire.NewTable(map[string]any{
			"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "short",
		})})
		c.declare(DeclareQueue{Name: "short", Durable: true, Arguments: wire.NewTable(map[string]any{
			"x-max-length": int64(10), "x-dead-letter-exchange": "amq.direct",
		})})
		c.declare(DeclareQueue{Name: "dead", Durable: true})
		ok(t, "bind", c.Bind(Bind{Source: "amq.direct", Destination: "dead", RoutingKey: "short"}))
		const count = 700 // more than are out at a time
		for i := range count {
			c.send("", "work", fmt.Sprint(i, strings.Repeat("x", 2000)))
		}
		is(t, "rejected", r.reject("work"), count)
		eventually(t, "all but ten are in the last queue", func() bool { return r.ready("dead") == count-10 && r.ready("short") == 10 })
		list, err := r.AdminGet(vhost, "dead", count, false)
		if err != nil {
			t.Fatal(err)
		}
		for i, m := range list {
			if body, _, _ := strings.Cut(string(m.Body), "x"); body != fmt.Sprint(i) {
				t.Fatalf("message %d is %s", i, body)
			}
			deaths := m.Properties["headers"].(map[string]any)["x-death"].([]any)
			for j, want := range []string{"short maxlen  [short]", "work rejected  [work]"} {
				e := deaths[j].(map[string]any)
				if got := fmt.Sprintf("%v %v %v %v", e["queue"], e["reason"], e["exchange"], e["routing-keys"]); got != want || e["count"] != int64(1) {
					t.Fatalf("message %d: entry %d is %s, %v times", i, j, got, e["count"])
				}
			}
		}
		for _, q := range []string{"work", "short"} {
			counts := r.letters.of(r.handleOf(q).ID())
			if counts == nil || counts.Rejected+counts.MaxLen < count-10 || counts.Dropped != 0 {
				t.Errorf("%s: %+v", q, counts)
			}
		}
	}
}

// A target that is full gets the letters when it has room, each once, and they stay in their queue until then. R387
func TestDeadLettersWaitForRoom(t *testing.T) {
	r, clk := newSecondRig(t, queuehost.Options{})
	c := r.connect()
	c.declare(DeclareQueue{Name: "work", Durable: true, Arguments: wire.NewTable(map[string]any{
		"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "full",
	})})
	c.declare(DeclareQueue{Name: "full", Durable: true, Arguments: wire.NewTable(map[string]any{
		"x-max-length": int64(5), "x-overflow": "reject-publish",
	})})
	const count = 20
	for i := range count {
		c.send("", "work", fmt.Sprint(i))
	}
	is(t, "rejected", r.reject("work"), count)
	eventually(t, "most are held", func() bool { return r.letters.totals().Held == count-5 })
	came := map[string]int{}
	for len(came) < count {
		clk.Advance(firstRetry)
		list, err := r.AdminGet(vhost, "full", 100, false)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range list {
			came[string(m.Body)]++
		}
		time.Sleep(time.Millisecond)
	}
	for body, n := range came {
		is(t, body, n, 1)
	}
	eventually(t, "none is held", func() bool { d := r.letters.totals(); return d.Held == 0 && d.UnderWay == 0 && d.Confirmed == count })
}

// Who declares a queue with a dead-letter exchange has to have the right to read from the queue and to write to the exchange. R391
func TestDeadLettersNeedPermissions(t *testing.T) {
	r, _ := newSecondRig(t, queuehost.Options{})
	args := wire.NewTable(map[string]any{"x-dead-letter-exchange": "x-dlx"})
	for i, c := range []struct {
		read, write string
		code        uint16
	}{{"^q", "^x", 0}, {"^q", "^y", 403}, {"^y", "^x", 403}} {
		user, name := fmt.Sprint("user", i), fmt.Sprint("q", i)
		r.must(catalog.PutUser(catalog.User{Name: user}))
		r.must(catalog.SetPermissions(catalog.Permission{User: user, VHost: vhost, Configure: ".*", Read: c.read, Write: c.write}))
		client := r.connectAs(user)
		_, err := client.DeclareQueue(DeclareQueue{Name: name, Durable: true, Arguments: args})
		refused(t, fmt.Sprintf("%+v", c), err, c.code)
		r.connect().declare(DeclareQueue{Name: name, Durable: true, Arguments: args})
		_, err = client.DeclareQueue(DeclareQueue{Name: name, Durable: true, Arguments: args})
		refused(t, "one that is there", err, 0)
	}
}

// Where dead letters go may change while they are held. R388
func TestDeadLettersFollowPolicies(t *testing.T) {
	r, clk := newSecondRig(t, queuehost.Options{})
	c := r.connect()
	c.declare(DeclareQueue{Name: "work", Durable: true, Arguments: wire.NewTable(map[string]any{"x-queue-type": "classic"})})
	c.declare(DeclareQueue{Name: "dead", Durable: true})
	policy := func(definition map[string]any) {
		t.Helper()
		if err := r.SetPolicy(AdminPolicy{VHost: vhost, Name: "p", Pattern: "^work$", ApplyTo: "queues", Definition: definition}); err != nil {
			t.Fatal(err)
		}
	}
	r.letters.settings = deadLetteringOf
	policy(map[string]any{"dead-letter-exchange": "nowhere", "dead-letter-strategy": "at-least-once"})
	eventually(t, "the queue holds what is rejected", func() bool {
		c.send("", "work", "body")
		r.reject("work")
		return r.letters.totals().Held > 0
	})
	policy(map[string]any{"dead-letter-exchange": "", "dead-letter-routing-key": "dead", "dead-letter-strategy": "at-least-once"})
	eventually(t, "it has arrived", func() bool {
		clk.Advance(firstRetry)
		return r.ready("dead") > 0 && r.letters.totals().Held == 0
	})
}
