package routing

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"testing"

	"holdfast/internal/routing/ordmap"
	"holdfast/internal/wire"

	"pgregory.net/rapid"
)

func weighed(name string, target int, weight int) Binding {
	return Binding{Key: strconv.Itoa(weight), Target: Target(target), Name: name}
}

// one is the target of a key, -1 if there is none.
func one(t interface{ Fatalf(string, ...any) }, x *Index, m *Message) int {
	switch got := x.Match(nil, m); len(got) {
	case 0:
		return -1
	case 1:
		return int(got[0])
	default:
		t.Fatalf("targets %v of a message with key %q", got, m.Key)
		return 0
	}
}

func assign(t interface{ Fatalf(string, ...any) }, x *Index, keys int) []int {
	got := make([]int, keys)
	for i := range got {
		got[i] = one(t, x, &Message{Key: fmt.Sprint("key ", i)})
	}
	return got
}

// Targets get keys by their weights, within two of a hundred where chance alone allows as much. R361.
func TestConsistentHashEven(t *testing.T) {
	const keys = 100_000
	for name, weights := range map[string][]int{
		"four":   {1, 1, 1, 1},
		"two":    {1, 2, 3, 4, 5},
		"far":    {1, 10_000, 5000},
		"twenty": slices.Repeat([]int{3, 7}, 10),
	} {
		x, e, sum := New(ConsistentHash, nil), new(ordmap.Edit), 0
		for i, w := range weights {
			x = x.Bind(e, weighed(fmt.Sprintf("queue-%d", i), i, w))
			sum += w
		}
		counts := make([]int, len(weights))
		for _, target := range assign(t, &x, keys) {
			counts[target]++
		}
		for i, w := range weights {
			want := keys * float64(w) / float64(sum)
			if off := math.Abs(float64(counts[i]) - want); off > max(0.02*want, 4*math.Sqrt(want)) {
				t.Errorf("%s: %d keys of weight %d, want %.0f", name, counts[i], w, want)
			}
		}
	}
}

// With as many as a thousand targets each has its part, and a newcomer takes little more from the others than is its due.
func TestConsistentHashMany(t *testing.T) {
	const keys, n = 50_000, 1000
	x, e := New(ConsistentHash, nil), new(ordmap.Edit)
	for i := range n {
		x = x.Bind(e, weighed(fmt.Sprintf("queue-%d", i), i, 1))
	}
	before := assign(t, &x, keys)
	counts := make([]float64, n)
	spread := 0.0
	for _, target := range before {
		counts[target]++
	}
	for _, c := range counts {
		spread += (c - keys/n) * (c - keys/n) / (keys / n)
	}
	if spread/n > 1.2 { // 1 is what chance gives
		t.Errorf("the variance is %.2f of what it should be", spread/n)
	}
	x = x.Bind(nil, weighed("new", n, 1))
	if moved := movedKeys(before, assign(t, &x, keys)); moved > 3*keys/n {
		t.Errorf("%d keys of %d have moved for one target in %d", moved, keys, n)
	}
}

func movedKeys(before, after []int) (moved int) {
	for i := range before {
		if before[i] != after[i] {
			moved++
		}
	}
	return moved
}

// The targets of keys follow from the bindings that there are, whatever there was before, in whatever order they came. A
// binding that comes or goes leaves most keys where they are: of those that move, most are its own. R361.
func TestConsistentHashStable(t *testing.T) {
	const keys = 1000
	rapid.Check(t, func(t *rapid.T) {
		weight := rapid.OneOf(rapid.IntRange(1, 5), rapid.IntRange(1, maxWeight))
		weights := map[int]int{}
		x, e := New(ConsistentHash, nil), new(ordmap.Edit)
		name := func(i int) string { return fmt.Sprint("q", i) }
		for range rapid.IntRange(1, 150).Draw(t, "edits") {
			i := rapid.IntRange(0, rapid.SampledFrom([]int{5, 20, 200}).Draw(t, "space")).Draw(t, "target")
			if w, there := weights[i]; there {
				x = x.Unbind(e, weighed(name(i), i, w))
				delete(weights, i)
			} else {
				weights[i] = weight.Draw(t, "weight")
				x = x.Bind(e, weighed(name(i), i, weights[i]))
			}
		}
		anew, sum := New(ConsistentHash, nil), 0
		for _, i := range slices.Backward(slices.Sorted(maps.Keys(weights))) {
			anew = anew.Bind(nil, weighed(name(i), i, weights[i]))
			sum += weights[i]
		}
		before := assign(t, &x, keys)
		if !slices.Equal(before, assign(t, &anew, keys)) {
			t.Fatal("the order of the bindings counts")
		}
		w := weight.Draw(t, "weight of a new one")
		more := x.Bind(nil, weighed("new", 1000, w))
		after := assign(t, &more, keys)
		if len(weights) == 0 {
			return
		}
		due := keys * float64(w) / float64(sum+w)
		moved := float64(movedKeys(before, after))
		if moved > 2*due+6*math.Sqrt(due+1) {
			t.Fatalf("%.0f keys of %d have moved, %.0f are due", moved, keys, due)
		}
		if less := more.Unbind(nil, weighed("new", 1000, w)); !slices.Equal(before, assign(t, &less, keys)) {
			t.Fatal("a binding that came and went has left a trace")
		}
	})
}

// A group of targets that gets too large is split, one that is small again is one list. Nothing is left when all are gone.
func TestConsistentHashGroups(t *testing.T) {
	const n = 10_000
	x, e := New(ConsistentHash, nil), new(ordmap.Edit)
	for i := range n {
		x = x.Bind(e, weighed(fmt.Sprint(i), i, 1+i%3))
	}
	checkShares(t, x.hashed.shares, 0)
	for i := range n - 100 {
		x = x.Unbind(e, weighed(fmt.Sprint(i), i, 1+i%3))
	}
	checkShares(t, x.hashed.shares, 0)
	if got := x.hashed.shares; got.leaves != 100 || len(got.parts) > mostAlone {
		t.Errorf("%d targets in %d groups", got.leaves, len(got.parts))
	}
	for i := n - 100; i < n; i++ {
		x = x.Unbind(e, weighed(fmt.Sprint(i), i, 1+i%3))
	}
	if x.hashed.shares != nil || x.hashed.weights.Len() != 0 {
		t.Error("something is left")
	}
	// Names with the same hash: no split parts them.
	var s *shares
	for i := range 3 * mostAlone {
		s = s.set(7, Target(i), 1)
	}
	checkShares(t, s, 0)
	if got := s.pick(1); got >= 3*mostAlone {
		t.Errorf("%d", got)
	}
	for i := range 3 * mostAlone {
		s = s.set(7, Target(i), 0)
	}
	if s != nil {
		t.Error("something is left")
	}
}

func checkShares(t *testing.T, s *shares, depth int) {
	leaves, weight := 0, 0.0
	for i, p := range s.parts {
		if i > 0 && compareParts(s.parts[i-1], p) >= 0 {
			t.Fatal("parts out of order")
		}
		weight += p.weight
		if s.groups != (p.below != nil) {
			t.Fatal("targets among groups")
		}
		if p.below == nil {
			leaves++
			continue
		}
		if p.weight != p.below.weight {
			t.Fatal("a group does not weigh what is in it")
		}
		checkShares(t, p.below, depth+1)
		leaves += p.below.leaves
	}
	if leaves != s.leaves || weight != s.weight || leaves == 0 {
		t.Fatalf("%d targets of weight %v, said to be %d of %v", leaves, weight, s.leaves, s.weight)
	}
	if grouped := depth == 0 || depth < deepest && leaves > mostAlone; grouped != s.groups {
		t.Fatalf("%d targets at depth %d, in groups: %v", leaves, depth, s.groups)
	}
}

// What a key leads to is agreed on among nodes of different versions, and should be the same in the next cluster.
func TestHashesStay(t *testing.T) {
	x, y, e := New(ConsistentHash, nil), New(ModulusHash, nil), new(ordmap.Edit)
	for i := range 7 {
		b := weighed(fmt.Sprint("queue ", i), i, 1+i*i)
		x, y = x.Bind(e, b), y.Bind(e, b)
	}
	var got string
	for _, key := range []string{"", "a", "1", "2", "3", "orders.eu", "orders.us", "a longer key of 32 bytes, exactly", "\x00"} {
		m := &Message{Key: key}
		got += fmt.Sprint(one(t, &x, m), one(t, &y, m), " ")
	}
	if want := "4 3 4 2 5 2 5 3 6 2 4 3 3 6 6 3 5 6 "; got != want {
		t.Errorf("got  %q, want %q", got, want)
	}
	if h := hashOf("holdfast"); h != 0xcb997d1eaabec99c {
		t.Errorf("%#x", h)
	}
}

func TestWait(t *testing.T) {
	for i := range 2000 {
		x := between(mix(uint64(i)))
		if i < 50 {
			x = math.Ldexp(x, -i)
		}
		if got, want := wait(x), -math.Log1p(-x); math.Abs(got-want) > 1e-15*want || got < x {
			t.Errorf("wait(%v) = %v, want %v", x, got, want)
		}
	}
	if lo, hi := between(0), between(math.MaxUint64); lo <= 0 || hi >= 1 || math.IsInf(wait(hi), 0) {
		t.Errorf("between %v and %v", lo, hi)
	}
}

// Of several bindings of one target the heaviest counts; the others count again when it goes. R361.
func TestConsistentHashHeaviest(t *testing.T) {
	x := New(ConsistentHash, nil).Bind(nil, weighed("a", 1, 1)).Bind(nil, weighed("b", 2, 1))
	before := assign(t, &x, 200)
	heavy := x.Bind(nil, weighed("a", 1, 50)).Bind(nil, weighed("a", 1, 2))
	only := New(ConsistentHash, nil).Bind(nil, weighed("b", 2, 1)).Bind(nil, weighed("a", 1, 50))
	if !slices.Equal(assign(t, &heavy, 200), assign(t, &only, 200)) {
		t.Error("the heaviest does not count")
	}
	light := heavy.Unbind(nil, weighed("a", 1, 50)).Unbind(nil, weighed("a", 1, 2))
	if !slices.Equal(before, assign(t, &light, 200)) {
		t.Error("it is not as before")
	}
}

// What is hashed: the key, a header of any type, or a property; all messages without it go one way. R361.
func TestConsistentHashBy(t *testing.T) {
	header := func(v any) *Message {
		var p wire.Properties
		return &Message{Key: "k", Properties: p.WithHeaders(wire.NewTable(map[string]any{"h": v}))}
	}
	text := func(p wire.Property, s string) *Message {
		b := binary.BigEndian.AppendUint16(nil, 1<<p)
		return &Message{Properties: append(append(b, byte(len(s))), s...)}
	}
	for _, c := range []struct {
		args map[string]any
		same [][2]*Message
		vary func(i int) *Message
	}{
		{nil, [][2]*Message{{{Key: "a"}, {Key: "a", Further: []string{"b"}, Properties: header(1).Properties}}}, func(i int) *Message { return &Message{Key: fmt.Sprint(i)} }},
		{map[string]any{"hash-header": "h"}, [][2]*Message{
			{header("a"), header([]byte("a"))}, {header(int8(7)), header(int64(7))},
			{{Key: "a"}, {Key: "b"}}, {text(wire.MessageID, "x"), {Key: "b"}},
		}, func(i int) *Message { return header(i) }},
		{map[string]any{"hash-header": ""}, [][2]*Message{{{Key: "a"}, {Key: "b"}}}, nil},
		{map[string]any{"hash-property": "message_id"}, [][2]*Message{{{Key: "a"}, {Key: "b"}}},
			func(i int) *Message { return text(wire.MessageID, fmt.Sprint(i)) }},
		{map[string]any{"hash-property": "correlation_id"}, [][2]*Message{{{Key: "a"}, {Key: "b"}}},
			func(i int) *Message { return text(wire.CorrelationID, fmt.Sprint(i)) }},
		{map[string]any{"hash-property": "timestamp"}, [][2]*Message{{{Key: "a"}, {Key: "b"}}},
			func(i int) *Message {
				return &Message{Properties: wire.Properties{0, 1 << wire.Timestamp, 0, 0, 0, 0, 0, 0, 0, byte(i)}}
			}},
	} {
		args := wire.NewTable(c.args)
		x := New(ConsistentHash, args)
		for i := range 50 {
			x = x.Bind(nil, weighed(fmt.Sprint(i), i, 1))
		}
		for _, pair := range c.same {
			if a, b := one(t, &x, pair[0]), one(t, &x, pair[1]); a != b {
				t.Errorf("%v: %v goes to %d, %v to %d", c.args, pair[0], a, pair[1], b)
			}
		}
		if c.vary == nil {
			continue
		}
		to := map[int]bool{}
		for i := range 200 {
			m := c.vary(i)
			to[one(t, &x, m)] = true
			if m.Single != (c.args != nil) {
				t.Fatalf("%v: single %v", c.args, m.Single)
			}
		}
		if len(to) < 40 {
			t.Errorf("%v: %d targets for 200 messages", c.args, len(to))
		}
	}
}

// A modulus hash sends keys to bindings in order of their targets' names. One that is bound twice counts twice. R362.
func TestModulusHash(t *testing.T) {
	bind := func(x Index, i int, key string) Index {
		return x.Bind(nil, Binding{Key: key, Target: Target(9 - i), Name: fmt.Sprint("q", i)})
	}
	x := New(ModulusHash, nil)
	for _, i := range []int{4, 2, 0, 1, 3} {
		x = bind(x, i, "any")
	}
	x = bind(x, 2, "a second")
	order := []int{9, 8, 7, 7, 6, 5}
	counts := map[int]int{}
	for i := range 6000 {
		m := &Message{Key: fmt.Sprint("key ", i)}
		got := one(t, &x, m)
		if want := order[hashOf(m.Key)%6]; got != want || m.Single {
			t.Fatalf("%s to %d, want %d", m.Key, got, want)
		}
		counts[got]++
		m.Further = []string{"another"}
		if one(t, &x, m) != got {
			counts[-1]++
		}
	}
	for target, n := range counts {
		want := map[int]int{7: 2000, -1: 5000}[target]
		if want == 0 {
			want = 1000
		}
		if n < want*9/10 || n > want*11/10 {
			t.Errorf("%d to %d, want %d", n, target, want)
		}
	}
	for i := range 5 {
		x = x.Unbind(nil, Binding{Key: "any", Target: Target(9 - i), Name: fmt.Sprint("q", i)})
	}
	if one(t, &x, &Message{Key: "k"}) != 7 {
		t.Fatal("the second binding has gone with the first")
	}
	x = x.Unbind(nil, Binding{Key: "a second", Target: 7, Name: "q2"})
	if x.named.Len() != 0 || one(t, &x, &Message{Key: "k"}) != -1 {
		t.Fatal("something is left")
	}
}

// Random exchanges take one target by what is drawn, the local one among those that are here. R363, R364.
func TestRandom(t *testing.T) {
	for _, kind := range []Kind{Random, LocalRandom} {
		x := New(kind, nil)
		drawn := uint64(0)
		m := &Message{Draw: func() uint64 { drawn++; return drawn }}
		if one(t, &x, m) != -1 {
			t.Fatal("a target out of nothing")
		}
		for i := range 40 {
			x = x.Bind(nil, Binding{Target: Target(i), Name: fmt.Sprint(i)})
		}
		counts := map[int]int{}
		for range 400 {
			counts[one(t, &x, m)]++
		}
		for i := range 40 {
			if counts[i] != 10 {
				t.Errorf("%v: %d times %d", kind, counts[i], i)
			}
		}
		if !m.Single {
			t.Error("it could be remembered")
		}
	}
	x := New(LocalRandom, nil)
	for i := range 200 {
		x = x.Bind(nil, Binding{Target: Target(i), Name: fmt.Sprint(i)})
	}
	for name, c := range map[string]struct {
		here func(Target) bool
		want int
	}{
		"many": {func(t Target) bool { return t%2 == 1 }, 100},
		"few":  {func(t Target) bool { return t == 30 || t == 70 }, 2},
		"none": {func(Target) bool { return false }, 1},
	} {
		seed := uint64(0)
		counts := map[int]int{}
		for range 4_000 {
			got := one(t, &x, &Message{Draw: func() uint64 { seed++; return mix(seed) }, Here: c.here})
			if got >= 0 && !c.here(Target(got)) {
				t.Fatalf("%s: %d is not here", name, got)
			}
			counts[got]++
		}
		least := 4_000
		for _, n := range counts {
			least = min(least, n)
		}
		if len(counts) != c.want || least < 4_000/c.want/2 {
			t.Errorf("%s: %d targets, one only %d times", name, len(counts), least)
		}
	}
}

// R361, R364, R365
func TestExchangeChecks(t *testing.T) {
	for _, c := range []struct {
		kind Kind
		key  string
		want string
	}{
		{ConsistentHash, "1", ""},
		{ConsistentHash, "+10000", ""},
		{ConsistentHash, "10001", "The binding key must not exceed 10000"},
		{ConsistentHash, "99999999999999999999", "The binding key must not exceed 10000"},
		{ConsistentHash, "0", "The binding key must be greater than 0"},
		{ConsistentHash, "-99999999999999999999", "The binding key must be greater than 0"},
		{ConsistentHash, "", "The binding key must be an integer: ''"},
		{ConsistentHash, "1.0", "The binding key must be an integer: '1.0'"},
		{ModulusHash, "any.#.#.#", ""},
		{LocalRandom, "", ""},
		{LocalRandom, "k", "Non empty binding 'k' key not permitted"},
	} {
		if got := CheckKey(c.kind, c.key); got != c.want {
			t.Errorf("%v %q: %q", c.kind, c.key, got)
		}
	}
	for _, c := range []struct {
		kind Kind
		args map[string]any
		want string
	}{
		{ConsistentHash, nil, ""},
		{ConsistentHash, map[string]any{"hash-header": "h"}, ""},
		{ConsistentHash, map[string]any{"hash-property": "message_id"}, ""},
		{ConsistentHash, map[string]any{"hash-property": "timestamp"}, ""},
		{ConsistentHash, map[string]any{"hash-property": "app_id"}, "Unsupported property: app_id"},
		{ConsistentHash, map[string]any{"hash-property": "app_id", "hash-header": ""}, "hash-header and hash-property are mutually exclusive"},
		{ConsistentHash, map[string]any{"hash-header": 1}, "hash-header and hash-property must be strings, not long"},
		{ModulusHash, map[string]any{"hash-header": 1}, ""},
		{History, map[string]any{"x-recent-history-length": int8(5)}, ""},
		{History, map[string]any{"x-recent-history-length": 0}, "Invalid argument '0' of type 'long', 'x-recent-history-length' must be a positive integer"},
		{History, map[string]any{"x-recent-history-length": "5"}, "Invalid argument '5' of type 'longstr', 'x-recent-history-length' must be a positive integer"},
		{Once, nil, "Missing or invalid argument, 'x-cache-size' must be an integer from 1 to 1000000"},
		{Once, map[string]any{"x-cache-size": 1}, ""},
		{Once, map[string]any{"x-cache-size": "1000000", "x-cache-ttl": "1", "x-cache-persistence": "disk"}, ""},
		{Once, map[string]any{"x-cache-size": int8(7), "x-cache-ttl": int64(315_360_000_000), "x-cache-persistence": "memory"}, ""},
		{Once, map[string]any{"x-cache-size": 0}, "Missing or invalid argument, 'x-cache-size' must be an integer from 1 to 1000000"},
		{Once, map[string]any{"x-cache-size": 1_000_001}, "Missing or invalid argument, 'x-cache-size' must be an integer from 1 to 1000000"},
		{Once, map[string]any{"x-cache-size": "10k"}, "Missing or invalid argument, 'x-cache-size' must be an integer from 1 to 1000000"},
		{Once, map[string]any{"x-cache-size": 1, "x-cache-ttl": 0}, "Invalid argument, 'x-cache-ttl' must be an integer greater than 0, of milliseconds of at most ten years"},
		{Once, map[string]any{"x-cache-size": 1, "x-cache-ttl": int64(315_360_000_001)}, "Invalid argument, 'x-cache-ttl' must be an integer greater than 0, of milliseconds of at most ten years"},
		{Once, map[string]any{"x-cache-size": 1, "x-cache-ttl": nil}, "Invalid argument, 'x-cache-ttl' must be an integer greater than 0, of milliseconds of at most ten years"},
		{Once, map[string]any{"x-cache-size": 1, "x-cache-persistence": "tape"}, "Invalid argument, 'x-cache-persistence' must be either 'disk' or 'memory'"},
	} {
		if got := CheckExchange(c.kind, wire.NewTable(c.args)); got != c.want {
			t.Errorf("%v %v: %q", c.kind, c.args, got)
		}
	}
	if keys, ms := Cached(wire.NewTable(map[string]any{"x-cache-size": "17", "x-cache-ttl": 5})); keys != 17 || ms != 5 {
		t.Errorf("%d keys, %d ms", keys, ms)
	}
	if n := HistoryLength(nil); n != 20 {
		t.Errorf("%d", n)
	}
	if n := HistoryLength(wire.NewTable(map[string]any{"x-recent-history-length": int64(1) << 40})); n != math.MaxInt32 {
		t.Errorf("%d", n)
	}
}
