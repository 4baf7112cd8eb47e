package broker

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"holdfast/internal/catalog"
	"holdfast/internal/queue"
	"holdfast/internal/queuehost"
	"holdfast/internal/wire"
)

// R480 R481: what dies without a letter is counted by type, reason and queue; what has come back too often is logged, too, once a minute.
func TestDropsAreCounted(t *testing.T) {
	r, clk := newSecondRig(t, queuehost.Options{})
	logged := new(bytes.Buffer)
	r.Broker.log = slog.New(slog.NewTextHandler(logged, nil))
	for _, kind := range []string{"classic", "quorum"} { // nobody has to serve them
		r.make(r.must(catalog.DeclareQueue(catalog.QueueDecl{
			VHost: vhost, Name: kind, Durable: true, Args: wire.NewTable(map[string]any{"x-queue-type": kind}), Members: []catalog.Member{{ID: 1, Node: 1}},
		})).Queue)
	}
	tell := func(name string, reason queue.Reason, n uint64) { r.Dropped(r.handleOf(name), reason, n) }
	tell("classic", queue.Expired, 2)
	tell("classic", queue.Dropped, 3)
	tell("quorum", queue.Discarded, 4)
	if logged.Len() > 0 {
		t.Errorf("logged what was asked for: %s", logged)
	}
	tell("quorum", queue.Exhausted, 5)
	tell("quorum", queue.Exhausted, 6)
	tell("classic", queue.DeadDropped, 7)
	lines := func(want int) {
		t.Helper()
		is(t, "lines in the log", strings.Count(logged.String(), "messages are dropped"), want)
	}
	lines(2)
	if s := logged.String(); !strings.Contains(s, "came back too often") || !strings.Contains(s, "queue=quorum") || !strings.Contains(s, "messages=5") {
		t.Error(s)
	}
	if is := *r.letters.of(r.handleOf("classic").ID()); is != (QueueDeadLetters{Expired: 2, MaxLen: 3, Dropped: 12}) {
		t.Errorf("of the classic queue: %+v", is)
	}
	if is := *r.letters.of(r.handleOf("quorum").ID()); is != (QueueDeadLetters{Rejected: 4, DeliveryLimit: 11, Dropped: 15}) {
		t.Errorf("of the quorum queue: %+v", is)
	}
	var died []string
	for _, d := range r.letters.totals().Died {
		if d.Messages > 0 {
			died = append(died, fmt.Sprint(d))
		}
	}
	same(t, "died", died, []string{"{rabbit_classic_queue expired disabled 2}", "{rabbit_classic_queue maxlen disabled 3}",
		"{rabbit_quorum_queue rejected disabled 4}", "{rabbit_quorum_queue delivery_limit disabled 11}"})
	is(t, "dead ones dropped", int(r.letters.totals().Dropped["too_many"]), 7)
	clk.Advance(time.Minute)
	tell("quorum", queue.Exhausted, 1)
	lines(3)
}

// R480: the real way of it.
func TestDropsOfRealQueuesAreCounted(t *testing.T) {
	r, _ := newSecondRig(t, queuehost.Options{})
	c := r.connect()
	c.declare(DeclareQueue{Name: "q", Durable: true, Arguments: wire.NewTable(map[string]any{"x-max-length": int64(1)})})
	for range 3 {
		c.send("", "q", "a")
	}
	is(t, "rejected", r.reject("q"), 1)
	is(t, "ready", int(r.ready("q")), 0)
	info, err := r.QueueInfo(vhost, "q")
	if err != nil || info.Counters.DeadLetters == nil || *info.Counters.DeadLetters != (QueueDeadLetters{Rejected: 1, MaxLen: 2, Dropped: 3}) {
		t.Errorf("%+v, %v", info.Counters.DeadLetters, err)
	}
}

// R482: rates are those of the last minute.
func TestDeadLetterRates(t *testing.T) {
	r, clk := newSecondRig(t, queuehost.Options{})
	c := r.connect()
	c.declare(DeclareQueue{Name: "q", Durable: true})
	h := r.handleOf("q")
	if is := r.letters.rates(h.ID()); is != nil {
		t.Errorf("of a queue in which nothing has died: %v", is)
	}
	rate := func(want string) {
		t.Helper()
		x := r.letters.rates(h.ID())
		same(t, "rates", []string{fmt.Sprintf("%.2f %.2f %.2f %.2f", x.Rejected, x.Expired, x.MaxLen, x.DeliveryLimit)}, []string{want})
	}
	r.Dropped(h, queue.Expired, 60)
	rate("0.00 1.00 0.00 0.00")
	clk.Advance(30 * time.Second)
	r.Dropped(h, queue.Dropped, 30)
	rate("0.00 1.00 0.50 0.00")
	clk.Advance(35 * time.Second)
	rate("0.00 0.92 0.46 0.00")
	is(t, "to three decimals", r.letters.rates(h.ID()).Expired, 0.923) // 60 in 65 s
	clk.Advance(5 * time.Second)
	rate("0.00 0.00 0.50 0.00")
	clk.Advance(time.Hour)
	rate("0.00 0.00 0.00 0.00")
	r.Dropped(h, queue.Discarded, 6)
	rate("0.10 0.00 0.00 0.00")
}

// R617: who carries letters knows why each of them is held.
func TestWhyDeadLettersAreHeld(t *testing.T) {
	r := newLetterRig(t)
	a, b := r.fake("a"), r.fake("b")
	r.fake("c").missing = true
	ok(t, "declare", r.c.DeclareExchange(DeclareExchange{Name: "all", Type: "fanout"}))
	for _, x := range []struct {
		to     deadLettering
		key    string
		answer Outcome
		want   string
	}{
		{deadLettering{exchange: "nope"}, "", Accepted, `1 dead letter is held: there is no exchange "nope".`},
		{deadLettering{exchange: "all"}, "", Accepted, `1 dead letter is held: no binding of exchange "all" leads its routing key to a queue.`},
		{deadLettering{}, "nobody", Accepted, `1 dead letter is held: no queue has the name that is its routing key.`},
		{deadLettering{}, "c", Accepted, `1 dead letter is held: queue "c" is out of service.`},
		{deadLettering{}, "a", Refused, `1 dead letter is held: queue "a" does not take it.`},
		{deadLettering{}, "b", Unknown, `1 dead letter is held: queue "b" has not answered in time.`},
		{deadLettering{}, "b", Accepted, ""},
	} {
		r.to = x.to
		r.to.strategy = atLeastOnce
		r.source = r.grave("source")
		r.source.die(queue.Discarded, dead("", x.key, "", wire.PropertySet{}))
		same(t, "before it was tried", r.letters.whyHeld(r.source.ID()), nil)
		r.run()
		a.answer(x.answer)
		b.answer(x.answer)
		if got := strings.Join(r.letters.whyHeld(r.source.ID()), " "); got != x.want {
			t.Errorf("%q, want %q", got, x.want)
		}
		r.letters.drop(r.source.ID())
	}
	r.to = deadLettering{exchange: "nope", strategy: atLeastOnce}
	r.source = r.grave("source")
	r.source.die(queue.Discarded, dead("", "", "", wire.PropertySet{}), dead("", "", "", wire.PropertySet{}))
	r.run()
	same(t, "several", r.letters.whyHeld(r.source.ID()), []string{`2 dead letters are held: there is no exchange "nope".`})
}

// R617: the real way of it.
func TestHeldDeadLettersAreExplained(t *testing.T) {
	r, _ := newSecondRig(t, queuehost.Options{})
	c := r.connect()
	c.declare(DeclareQueue{Name: "q", Durable: true, Arguments: wire.NewTable(map[string]any{"x-dead-letter-exchange": "nope", "x-dead-letter-strategy": "at-least-once"})})
	c.send("", "q", "a")
	is(t, "rejected", r.reject("q"), 1)
	eventually(t, "the reason", func() bool {
		e, err := r.Explain(t.Context(), vhost, "q")
		return err == nil && slices.Contains(e.Lines, `1 dead letter is held: there is no exchange "nope".`)
	})
}
