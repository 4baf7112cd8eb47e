package broker

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"holdfast/internal/catalog"
	"holdfast/internal/seglog"
)

// newRig2 is a rig whose catalog is at level 2.
func newRig2(t testing.TB) *rig {
	r := newRig(t)
	r.must(catalog.SetLevels(1, catalog.Levels{Least: 1, Most: 2}))
	r.must(catalog.RaiseLevel(2))
	return r
}

// setPolicy sets a policy for everything, unless how says otherwise.
func (r *rig) setPolicy(name, pattern, definition string, how ...func(*AdminPolicy)) error {
	r.t.Helper()
	p := AdminPolicy{VHost: vhost, Name: name, Pattern: pattern}
	d := json.NewDecoder(strings.NewReader(definition))
	d.UseNumber()
	if err := d.Decode(&p.Definition); err != nil {
		r.t.Fatal(err)
	}
	for _, h := range how {
		h(&p)
	}
	return r.SetPolicy(p)
}

func operators(p *AdminPolicy) { p.Operator = true }

// R330: before every node knows policies none is set, and the commands that would say so are not even proposed.
func TestPoliciesNeedTheirLevel(t *testing.T) {
	r := newRig(t)
	before := r.view()
	if err := r.setPolicy("p", ".*", `{"expires":1}`); kind(err) != Unavailable {
		t.Errorf("set: %v", err)
	}
	if err := r.ClearPolicy(vhost, "p", false); kind(err) != Unavailable {
		t.Errorf("clear: %v", err)
	}
	if r.view() != before {
		t.Error("something was proposed")
	}
}

// R330, R331: policies and operator policies are set, replaced, listed and cleared.
func TestPolicies(t *testing.T) {
	r := newRig2(t)
	steps := []struct {
		what string
		do   func() error
		want AdminErrorKind
	}{
		{"set", func() error {
			return r.setPolicy("p", "^a", `{"max-length":5}`, func(p *AdminPolicy) { p.Priority = 3 })
		}, 0},
		{"replace", func() error {
			return r.setPolicy("p", "^b", `{"max-length":6}`, func(p *AdminPolicy) { p.Priority, p.ApplyTo = 3, "queues" })
		}, 0},
		{"another", func() error {
			return r.setPolicy("low", ".*", `{"message-ttl":0}`, func(p *AdminPolicy) { p.Priority = -1 })
		}, 0},
		{"an operator's of the same name", func() error { return r.setPolicy("p", ".*", `{"expires":1}`, operators) }, 0},
		{"no dictionary", func() error { return r.setPolicy("x", ".*", `[1]`) }, Invalid},
		{"a pattern that is none", func() error { return r.setPolicy("x", "(", `{"expires":1}`) }, Invalid},
		{"not for operators", func() error { return r.setPolicy("x", ".*", `{"alternate-exchange":"x"}`, operators) }, Invalid},
		{"no name", func() error { return r.setPolicy("", ".*", `{"expires":1}`) }, Invalid},
		{"a name that is none", func() error { return r.setPolicy("\xff", ".*", `{"expires":1}`) }, Invalid},
		{"nowhere", func() error {
			return r.setPolicy("x", ".*", `{"expires":1}`, func(p *AdminPolicy) { p.VHost = "none" })
		}, NotFound},
		{"clear nothing", func() error { return r.ClearPolicy(vhost, "low", true) }, NotFound},
		{"clear nowhere", func() error { return r.ClearPolicy("none", "low", false) }, NotFound},
	}
	for _, s := range steps {
		if err := s.do(); kind(err) != s.want {
			t.Errorf("%s: %v, want kind %d", s.what, err, s.want)
		}
	}
	list := func(operator bool) string {
		policies, err := r.ListPolicies(vhost, operator)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(policies)
	}
	if got, want := list(false), "[{/ low .* all map[message-ttl:0] -1} {/ p ^b queues map[max-length:6] 3}]"; got != want {
		t.Errorf("policies: %s", got)
	}
	if got, want := list(true), "[{/ p .* all map[expires:1] 0}]"; got != want {
		t.Errorf("operator policies: %s", got)
	}
	if _, err := r.ListPolicies("none", false); kind(err) != NotFound {
		t.Errorf("nowhere: %v", err)
	}
	if err := r.ClearPolicy(vhost, "p", false); err != nil || list(false) != "[{/ low .* all map[message-ttl:0] -1}]" || list(true) == "[]" {
		t.Errorf("cleared: %v; left are %s and %s", err, list(false), list(true))
	}
	before := r.view()
	if err := r.setPolicy("low", ".*", `{"message-ttl":0}`, func(p *AdminPolicy) { p.Priority = -1 }); err != nil || r.view() != before {
		t.Errorf("setting it to what it is: %v, proposed: %v", err, r.view() != before)
	}
}

// R335: listings show which policies hold, and what they say together.
func TestListingsShowPolicies(t *testing.T) {
	r := newRig2(t)
	c := r.connect()
	c.declare(DeclareQueue{Name: "q1"})
	own := c.declare(DeclareQueue{Exclusive: true})
	for _, err := range []error{
		r.setPolicy("p", "^q", `{"max-length":5,"dead-letter-exchange":"x"}`),
		r.setPolicy("o", ".*", `{"max-length":3}`, operators, func(p *AdminPolicy) { p.ApplyTo = "queues" }),
		r.setPolicy("amq", "^amq", `{"alternate-exchange":"x"}`, func(p *AdminPolicy) { p.ApplyTo = "exchanges" }),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	list, _, err := r.ListQueues(vhost, QueuePage{})
	if err != nil || len(list) != 2 {
		t.Fatal(list, err)
	}
	for _, q := range list {
		policy, definition := "p", map[string]any{"max-length": int64(3), "dead-letter-exchange": "x"}
		if q.Name == own { // those of one connection are no exception
			policy, definition = "", map[string]any{"max-length": int64(3)}
		}
		if q.Policy != policy || q.OperatorPolicy != "o" || !maps.Equal(q.EffectiveDefinition, definition) {
			t.Errorf("%s: %q, %q, %v", q.Name, q.Policy, q.OperatorPolicy, q.EffectiveDefinition)
		}
	}
	exchanges, err := r.ListExchanges(vhost)
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range exchanges {
		want := ""
		if strings.HasPrefix(x.Name, "amq") {
			want = "amq"
		}
		if x.Policy != want {
			t.Errorf("exchange %q: %q", x.Name, x.Policy)
		}
	}
}

// R337: an alternate exchange that a policy names gets what there is no queue for from the next publish on, and no more when
// the policy is gone. A policy that names none leaves the routes that publishers remember alone.
func TestAlternateExchangeByPolicy(t *testing.T) {
	r := newRig2(t)
	c := r.connect()
	c.declare(DeclareQueue{Name: "rest"})
	c.declare(DeclareQueue{Name: "k"})
	ok(t, "exchange", c.DeclareExchange(DeclareExchange{Name: "x", Type: "direct"}))
	ok(t, "exchange", c.DeclareExchange(DeclareExchange{Name: "ae", Type: "fanout"}))
	ok(t, "bind", c.Bind(Bind{Source: "ae", Destination: "rest"}))
	ok(t, "bind", c.Bind(Bind{Source: "x", Destination: "k", RoutingKey: "k"}))
	p := c.Publisher()
	routed := func(key string, want int) {
		t.Helper()
		if n, err := publish(p, "x", key, nil, "", nil, 0); err != nil || n != want {
			t.Errorf("%s goes to %d queues: %v, want %d", key, n, err, want)
		}
		p.Flush()
	}
	routed("nobody's", 0)
	routed("k", 1)
	if err := r.setPolicy("p", "^x$", `{"alternate-exchange":"ae"}`); err != nil {
		t.Fatal(err)
	}
	routed("nobody's", 1)
	routed("k", 1)
	remembered := p.last
	if err := r.setPolicy("limit", "rest", `{"max-length":5}`); err != nil {
		t.Fatal(err)
	}
	if err := r.ClearPolicy(vhost, "p", false); err != nil {
		t.Fatal(err)
	}
	routed("nobody's", 0)
	if p.last == remembered {
		t.Error("the routes were not forgotten")
	}
	remembered = p.last
	if err := r.setPolicy("limit", "rest", `{"max-length":6}`); err != nil {
		t.Fatal(err)
	}
	routed("nobody's", 0)
	if p.last != remembered {
		t.Error("the routes were forgotten because of a policy that has nothing to do with them")
	}
}

// told collects what settingsChanged is told.
type told struct {
	slog.Handler
	mu     sync.Mutex
	queues []string
}

func (l *told) Enabled(context.Context, slog.Level) bool { return true }

func (l *told) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "settings of a queue" {
		l.mu.Lock()
		defer l.mu.Unlock()
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == "queue" {
				l.queues = append(l.queues, a.Value.String())
			}
			return true
		})
	}
	return nil
}

func (l *told) has(want ...string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	got := slices.Clone(l.queues)
	slices.Sort(got)
	return slices.Equal(got, want)
}

// R336: each queue here to which other settings apply is told, and no other.
func TestQueuesAreToldOfOtherSettings(t *testing.T) {
	r := newRig2(t)
	c := r.connect()
	for _, name := range []string{"a", "b", "c"} {
		c.declare(DeclareQueue{Name: name})
	}
	log := &told{Handler: slog.DiscardHandler}
	r.log = slog.New(log)
	r.catalog.Policies = r.PoliciesChanged
	if err := r.setPolicy("p", "a|b", `{"max-length":5}`); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a and b are told", func() bool { return log.has("a", "b") })
	if err := r.setPolicy("p", "a|c", `{"max-length":5}`); err != nil {
		t.Fatal(err)
	}
	eventually(t, "b and c are told, a is not once more", func() bool { return log.has("a", "b", "b", "c") })
}

// R336: whoever changes the settings of queues, queues that are just being made among them, they end with those of the catalog.
func TestQueuesEndWithTheLatestSettings(t *testing.T) {
	r := newRig2(t)
	var policies sync.WaitGroup
	r.catalog.Policies = func(c *catalog.PolicyChange) {
		policies.Add(1)
		go func() {
			defer policies.Done()
			for q := range c.Queues(r.view()) {
				r.settingsChanged(q)
			}
		}()
	}
	var clients sync.WaitGroup
	for w := range 3 {
		c := r.connect()
		clients.Add(1)
		go func() {
			defer clients.Done()
			for i := range 50 {
				if _, err := c.DeclareQueue(DeclareQueue{Name: fmt.Sprint(w, " ", i)}); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	for i := range 50 {
		if err := r.setPolicy("p", ".*", fmt.Sprintf(`{"max-length":%d}`, i+1)); err != nil {
			t.Error(err)
		}
	}
	clients.Wait()
	policies.Wait()
	for q := range r.view().Queues(vhost).All() {
		def := r.queues.Get(seglog.GroupID(q.ID)).Def()
		if want := r.hostSettings(q); def.Settings == nil || *def.Settings != want {
			t.Errorf("queue %s: %+v, want %+v", q.Name, def.Settings, want)
		}
	}
}
