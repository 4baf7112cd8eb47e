package catalog

import (
	"fmt"
	"maps"
	"math"
	"reflect"
	"sync"
	"testing"

	"holdfast/internal/wire"
)

// views with the policies of one vhost, as they would be set.
func viewWith(t testing.TB, level2 ...[]byte) *View {
	t.Helper()
	m := New()
	for _, cmd := range append([][]byte{NewIncarnation(1), SetLevels(1, Levels{1, 2}), Bootstrap(Defaults{VHost: "/"}), RaiseLevel(2)}, level2...) {
		if r := m.Apply(1, 1, cmd).(*Result); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	return m.View()
}

func policyOf(t testing.TB, operator bool, definition map[string]any) []byte {
	t.Helper()
	given := map[string]any{}
	for key, v := range definition {
		if n, is := v.(int); is {
			v = int64(n)
		}
		given[key] = v
	}
	p, err := MakePolicy(Policy{VHost: "/", Name: "p", Pattern: ".*", ApplyTo: "all", Operator: operator}, given)
	if err != nil {
		t.Fatal(err)
	}
	return SetPolicy(p)
}

// R333, R334: what holds where arguments, a policy and an operator policy each say something.
func TestEffectiveSettings(t *testing.T) {
	type m = map[string]any
	limit := func(n uint64) Limit { return LimitOf(n) }
	for _, c := range []struct {
		args, policy, operator m
		classic, quorum        Settings
		same                   bool // of both types, but for the delivery limit
	}{
		{same: true},
		{args: m{"x-expires": 5, "x-message-ttl": int8(6), "x-max-length": 7, "x-max-length-bytes": 8},
			classic: Settings{Expires: limit(5), MessageTTL: limit(6), MaxLength: limit(7), MaxBytes: limit(8)}, same: true},
		{policy: m{"expires": 5, "message-ttl": 6, "max-length": 7, "max-length-bytes": 8},
			classic: Settings{Expires: limit(5), MessageTTL: limit(6), MaxLength: limit(7), MaxBytes: limit(8)}, same: true},
		{args: m{"x-expires": 5, "x-message-ttl": 6, "x-max-length": 7, "x-max-length-bytes": 8}, policy: m{"expires": 4, "message-ttl": 7, "max-length": 6}, operator: m{"max-length-bytes": 1, "message-ttl": 0},
			classic: Settings{Expires: limit(4), MessageTTL: limit(0), MaxLength: limit(6), MaxBytes: limit(1)}, same: true},
		{policy: m{"max-length": 5, "max-length-bytes": 3}, operator: m{"max-length": 4, "max-length-bytes": 8},
			classic: Settings{MaxLength: limit(4), MaxBytes: limit(3)}, same: true},
		{policy: m{"message-ttl": math.MaxInt, "max-length": math.MaxInt},
			classic: Settings{MessageTTL: limit(longestTTL), MaxLength: limit(math.MaxInt)}, same: true},
		{args: m{"x-overflow": "reject-publish"}, policy: m{"overflow": "reject-publish-dlx"},
			classic: Settings{Overflow: RejectPublish}, quorum: Settings{Overflow: RejectPublishDLX}},
		{policy: m{"overflow": "reject-publish"}, operator: m{"overflow": "drop-head"}, same: true},
		{args: m{"x-dead-letter-exchange": "a", "x-dead-letter-routing-key": "b"}, policy: m{"dead-letter-exchange": "c", "dead-letter-routing-key": "d"},
			classic: Settings{DeadLetter: DeadLetter{On: true, Exchange: "a", Rekeyed: true, Key: "b"}}, same: true},
		{args: m{"x-dead-letter-exchange": ""}, policy: m{"dead-letter-routing-key": "d"},
			classic: Settings{DeadLetter: DeadLetter{On: true, Rekeyed: true, Key: "d"}}, same: true},
		{policy: m{"dead-letter-routing-key": "d"}, same: true},
		{args: m{"x-dead-letter-strategy": "at-most-once", "x-dead-letter-exchange": "a"}, policy: m{"dead-letter-strategy": "at-least-once"},
			classic: Settings{DeadLetter: DeadLetter{On: true, Exchange: "a", Strategy: "at-most-once"}}, same: true},
		{policy: m{"dead-letter-strategy": "at-least-once", "dead-letter-exchange": "a"},
			classic: Settings{DeadLetter: DeadLetter{On: true, Exchange: "a", Strategy: "at-least-once"}}, same: true},
		{policy: m{"max-in-memory-length": 1, "max-length": 5}, quorum: Settings{MaxLength: limit(5)}}, // not for a classic queue
		{args: m{"x-delivery-delay": 5}, policy: m{"delivery-delay": 4}, classic: Settings{Delay: limit(5)}, same: true},
		{policy: m{"delivery-delay": 0}, classic: Settings{Delay: limit(0)}, same: true},
		{args: m{"x-message-deduplication": true}, classic: Settings{Deduplicate: Deduplicate{"header", 0, 16 << 20}}, same: true},
		{args: m{"x-message-deduplication": true, "x-deduplication-window": 5, "x-deduplication-window-bytes": 6, "x-deduplication-key": "publisher"},
			policy:  m{"deduplication-window": 7, "deduplication-window-bytes": 8, "deduplication-key": "message-id"},
			classic: Settings{Deduplicate: Deduplicate{"publisher", 5, 6}}, same: true},
		{policy: m{"x-message-deduplication": true, "deduplication-window": 7, "deduplication-window-bytes": 0, "deduplication-key": "message-id"},
			classic: Settings{Deduplicate: Deduplicate{"message-id", 7, 0}}, same: true},
		{args: m{"x-message-deduplication": false, "x-deduplication-window": 5}, policy: m{"x-message-deduplication": true}, same: true},
		{args: m{"x-deduplication-window": 5}, policy: m{"x-message-deduplication": false}, same: true},
		{args: m{"x-single-active-consumer": true, "x-max-priority": 9}, classic: Settings{SingleActive: true, MaxPriority: 9}, same: true},
		{args: m{"x-consumer-timeout": 7, "x-consumer-disconnected-timeout": 8}, policy: m{"consumer-timeout": 6, "consumer-disconnected-timeout": 9},
			classic: Settings{ConsumerTimeout: limit(6), DisconnectedTimeout: limit(8)}, same: true},
		{args: m{"x-delayed-retry-type": "failed", "x-delayed-retry-min": 5, "x-delayed-retry-max": 9}, policy: m{"delayed-retry-type": "all", "delayed-retry-min": 6},
			classic: Settings{Retry: Retry{"all", 5, 9}}, same: true},
		{args: m{"x-delayed-retry-type": "failed"}, classic: Settings{IdleRetry: "failed"}, same: true}, // R658
		{args: m{"x-delayed-retry-type": "all", "x-delayed-retry-max": 5}, classic: Settings{IdleRetry: "all"}, same: true},
		{args: m{"x-delayed-retry-type": "disabled"}, same: true},
		{args: m{"x-delayed-retry-type": "failed"}, policy: m{"delayed-retry-min": 6}, classic: Settings{Retry: Retry{"failed", 6, 6}}, same: true},
		{policy: m{"delayed-retry-type": "returned", "delayed-retry-min": 6}, classic: Settings{Retry: Retry{"returned", 6, 6}}, same: true},
		{policy: m{"delayed-retry-type": "returned", "delayed-retry-min": 6, "delayed-retry-max": 60}, operator: m{"delayed-retry-min": 10, "delayed-retry-max": 20},
			classic: Settings{Retry: Retry{"returned", 10, 20}}, same: true},
		{policy: m{"delayed-retry-type": "returned", "delayed-retry-min": 6}, operator: m{"delayed-retry-type": "disabled"}, same: true},
		{args: m{"x-queue-leader-locator": "client-local"}, policy: m{"queue-leader-locator": "balanced"}, classic: Settings{LeaderLocator: "balanced"}, same: true},
		{args: m{"x-queue-master-locator": "min-masters"}, classic: Settings{LeaderLocator: "min-masters"}, same: true},
		{args: m{"x-quorum-target-group-size": 3}, policy: m{"target-group-size": 5}, operator: m{"target-group-size": 4},
			classic: Settings{TargetSize: 3}, quorum: Settings{TargetSize: 5}},
		{args: m{"x-quorum-target-group-size": 7}, policy: m{"target-group-size": 5}, classic: Settings{TargetSize: 7}, same: true},
		{args: m{"x-member-placement-tag": "a"}, policy: m{"member-placement-tag": "b"}, operator: m{"member-placement-tag": "c"}, classic: Settings{PlacementTag: "c"}, same: true},
		{policy: m{"max-age": "1D", "max-length": 5}, operator: m{"max-length": 6}, classic: Settings{MaxLength: limit(6)}, same: true}, // the policy is for streams
		{args: m{"x-max-length": "what", "x-overflow": 7, "x-dead-letter-exchange": true, "x-max-priority": 256, "x-delayed-retry-type": "x"}, same: true},
	} {
		var level2 [][]byte
		if c.policy != nil {
			level2 = append(level2, policyOf(t, false, c.policy))
		}
		if c.operator != nil {
			level2 = append(level2, policyOf(t, true, c.operator))
		}
		v := viewWith(t, level2...)
		if c.same {
			c.quorum = c.classic
		}
		c.quorum.DeliveryLimit = LimitOf(DefaultDeliveryLimit)
		for typ, want := range map[QueueType]Settings{Classic: c.classic, Quorum: c.quorum} {
			q := &Queue{VHost: "/", Name: "q", Type: typ, Args: wire.NewTable(c.args), memo: new(memo)}
			for range 2 { // the second time it is remembered
				if got := v.Effective(q).Settings; got != want {
					t.Errorf("%s with %v, policy %v, operator policy %v:\n%+v, want\n%+v", typ, c.args, c.policy, c.operator, got, want)
				}
			}
		}
	}
}

// What is asked about before it is declared may be of no type at all.
func TestEffectiveSettingsOfNoType(t *testing.T) {
	for _, level2 := range [][][]byte{nil, {policyOf(t, false, map[string]any{"max-length": 5})}} {
		for _, typ := range []QueueType{"", "other"} {
			for _, args := range []map[string]any{nil, {"x-expires": 5}} {
				e := viewWith(t, level2...).Effective(&Queue{VHost: "/", Name: "q", Type: typ, Args: wire.NewTable(args)})
				if e.DeliveryLimit != 0 || (e.Policy != nil) != (level2 != nil) {
					t.Errorf("%q with %v: %+v", typ, args, e)
				}
			}
		}
	}
}

// R333: a negative delivery limit is none, and less strict than any.
func TestEffectiveDeliveryLimit(t *testing.T) {
	none := math.MinInt
	for _, c := range []struct{ arg, policy, operator, want int }{
		{none, none, none, DefaultDeliveryLimit}, // of a quorum queue; a classic one has none
		{3, none, none, 3}, {none, 3, none, 3}, {none, none, 3, 3}, {0, none, none, 0},
		{-1, none, none, none}, {none, -7, none, none}, {-1, -2, none, none}, {none, -1, -5, none},
		{-1, 3, none, 3}, {3, -1, none, 3}, {none, 3, -1, 3}, {none, -1, 3, 3}, {5, 4, none, 4}, {4, 5, none, 4}, {9, 8, 7, 7}, {-1, -1, 7, 7},
	} {
		var level2 [][]byte
		if c.policy != none {
			level2 = append(level2, policyOf(t, false, map[string]any{"delivery-limit": c.policy}))
		}
		if c.operator != none {
			level2 = append(level2, policyOf(t, true, map[string]any{"delivery-limit": c.operator}))
		}
		for _, typ := range []QueueType{Quorum, Classic} {
			q := &Queue{VHost: "/", Name: "q", Type: typ}
			if c.arg != none {
				q.Args = wire.NewTable(map[string]any{"x-delivery-limit": c.arg})
			}
			want := Limit(0)
			if said := c.arg != none || c.policy != none || c.operator != none; c.want != none && (said || typ == Quorum) {
				want = LimitOf(uint64(c.want))
			}
			if got := viewWith(t, level2...).Effective(q).DeliveryLimit; got != want {
				t.Errorf("%s, %+v: %d", typ, c, got)
			}
		}
	}
}

// R335: what the policies say together.
func TestEffectiveDefinition(t *testing.T) {
	type m = map[string]any
	for _, c := range []struct{ policy, operator, want m }{
		{nil, nil, nil},
		{m{"max-length": 5, "dead-letter-exchange": "x"}, nil, m{"max-length": int64(5), "dead-letter-exchange": "x"}},
		{nil, m{"max-length": 5}, m{"max-length": int64(5)}},
		{m{"max-length": 5, "overflow": "drop-head", "delivery-limit": -1, "target-group-size": 3}, m{"max-length": 6, "overflow": "reject-publish", "delivery-limit": 4, "expires": 9, "target-group-size": 5},
			m{"max-length": int64(5), "overflow": "reject-publish", "delivery-limit": int64(4), "expires": int64(9), "target-group-size": int64(5)}},
	} {
		var level2 [][]byte
		if c.policy != nil {
			level2 = append(level2, policyOf(t, false, c.policy))
		}
		if c.operator != nil {
			level2 = append(level2, policyOf(t, true, c.operator))
		}
		got := viewWith(t, level2...).Effective(&Queue{VHost: "/", Name: "q", Type: Quorum}).Definition()
		if !maps.Equal(got, c.want) {
			t.Errorf("%v and %v: %v, want %v", c.policy, c.operator, got, c.want)
		}
	}
}

// R336: whoever has to act on a change is told which queues have other settings by it, and no more.
func TestPolicyChangesSayWhichQueues(t *testing.T) {
	m := New()
	var told []string
	m.Policies = func(c *PolicyChange) {
		told = nil
		for q := range c.Queues(m.View()) {
			told = append(told, q.Name)
		}
	}
	set := func(name, pattern string, priority int64, operator bool, definition map[string]any) []byte {
		p, err := MakePolicy(Policy{VHost: "/", Name: name, Pattern: pattern, ApplyTo: "all", Priority: priority, Operator: operator}, definition)
		if err != nil {
			t.Fatal(err)
		}
		return SetPolicy(p)
	}
	type d = map[string]any
	for _, step := range []struct {
		cmd  []byte
		want []string
	}{
		{NewIncarnation(1), nil}, {SetLevels(1, Levels{1, 2}), nil}, {Bootstrap(Defaults{VHost: "/"}), nil}, {RaiseLevel(2), nil},
		{DeclareQueue(QueueDecl{VHost: "/", Name: "a", Durable: true}), nil},
		{DeclareQueue(QueueDecl{VHost: "/", Name: "b", Durable: true}), nil},
		{set("p", "a", 0, false, d{"max-length": int64(1)}), []string{"a"}},
		{set("p", "a", 0, false, d{"max-length": int64(1)}), nil},                       // as it was
		{set("p2", "a", 1, false, d{"max-length": int64(1)}), nil},                      // another policy that says the same
		{set("p", ".", 0, false, d{"max-length": int64(2)}), []string{"b"}},             // a has p2
		{set("p", ".", 0, false, d{"max-length": int64(2), "queue-mode": "lazy"}), nil}, // means nothing
		{set("o", ".", 0, true, d{"max-length": int64(1)}), []string{"b"}},
		{ClearPolicy("/", "p", false), nil}, // the operator's bounds alone
		{ClearPolicy("/", "p2", false), nil},
		{ClearPolicy("/", "o", true), []string{"a", "b"}},
		{PauseQueue("/", "b", true), []string{"b"}},
		{PauseQueue("/", "b", true), nil}, // as it was
		{PauseQueue("/", "b", false), []string{"b"}},
		{set("x", ".", 0, false, d{"alternate-exchange": "amq.fanout"}), nil},
	} {
		told = nil
		if r := m.Apply(1, 1, step.cmd).(*Result); r.Err != nil {
			t.Fatal(r.Err)
		}
		if !reflect.DeepEqual(told, step.want) {
			t.Errorf("%x: %v, want %v", step.cmd, told, step.want)
		}
	}
}

// For the race detector: many ask what holds, by the newest view and by old ones, while policies change.
func TestReadersWhilePoliciesChange(t *testing.T) {
	m := New()
	for _, cmd := range [][]byte{NewIncarnation(1), SetLevels(1, Levels{1, 2}), Bootstrap(Defaults{VHost: "/"}), RaiseLevel(2)} {
		m.Apply(1, 1, cmd)
	}
	for i := range 20 {
		m.Apply(1, 1, DeclareQueue(QueueDecl{VHost: "/", Name: fmt.Sprint("q", i), Durable: true}))
	}
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			old := m.View()
			for {
				select {
				case <-stop:
					return
				default:
				}
				for _, v := range []*View{old, m.View()} {
					want := Limit(0)
					if list := v.Policies("/"); len(list) > 0 {
						got, _ := list[0].Definition.Get("max-length")
						n, _ := got.Int()
						want = LimitOf(uint64(n))
					}
					for q := range v.Queues("/").All() {
						if got := v.Effective(q).MaxLength; got != want {
							t.Errorf("limit %d, want %d", got, want)
							return
						}
					}
				}
			}
		})
	}
	for i := range 200 {
		m.Apply(1, 1, policyOf(t, false, map[string]any{"max-length": i}))
	}
	close(stop)
	wg.Wait()
}
