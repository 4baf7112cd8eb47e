package routing

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"holdfast/internal/routing/ordmap"
	"holdfast/internal/wire"

	"pgregory.net/rapid"
)

// The cases of rapid are the same in every run; -rapid.seed=N makes others.
func init() { flag.Set("rapid.seed", "1") }

// naive is the definition of matching: every binding by itself, word lists and header lists taken literally.
func naive(kind Kind, bindings []Binding, keys []string, headers wire.Table) []Target {
	var found []Target
	for _, b := range bindings {
		ok := false
		switch kind {
		case Direct:
			ok = slices.Contains(keys, b.Key)
		case Fanout, History, Once:
			ok = true
		case Topic:
			ok = slices.ContainsFunc(keys, func(key string) bool { return naiveTopic(split(b.Key), split(key)) })
		case Headers:
			ok = naiveHeaders(b.Args, headers)
		}
		if ok {
			found = append(found, b.Target)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

func split(key string) []string {
	if key == "" {
		return nil
	}
	return strings.Split(key, ".")
}

func naiveTopic(pattern, key []string) bool {
	switch {
	case len(pattern) == 0:
		return len(key) == 0
	case pattern[0] == "#":
		return naiveTopic(pattern[1:], key) || len(key) > 0 && naiveTopic(pattern, key[1:])
	case len(key) == 0:
		return false
	}
	return (pattern[0] == "*" || pattern[0] == key[0]) && naiveTopic(pattern[1:], key[1:])
}

func naiveHeaders(args, headers wire.Table) bool {
	mode := "all"
	if v, ok := args.Get("x-match"); ok {
		mode, _ = v.Str()
	}
	got := map[string]wire.Value{}
	for k, v := range headers.All() {
		got[k] = v
	}
	for k, v := range args.All() {
		if k == "x-match" || strings.HasPrefix(k, "x-") && !strings.HasSuffix(mode, "-with-x") {
			continue
		}
		h, holds := got[k]
		if v.Kind != wire.KindVoid {
			a, aBytes := v.Bytes()
			b, bBytes := h.Bytes()
			holds = holds && (v.Equal(h) || aBytes && bBytes && string(a) == string(b))
		}
		if strings.HasPrefix(mode, "any") && holds {
			return true
		}
		if strings.HasPrefix(mode, "all") && !holds {
			return false
		}
	}
	return strings.HasPrefix(mode, "all")
}

func genKey(words ...string) *rapid.Generator[string] {
	word := rapid.SampledFrom(words)
	return rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(word, 0, 5).Draw(t, "words"), ".")
	})
}

var headerValues = []any{"a", "", []byte("a"), int8(1), int64(1), int64(2), int16(-1), float32(0.5), 0.5, true, false, nil, wire.NewTable(map[string]any{"n": 1})}

func genTable(names []string, match bool) *rapid.Generator[wire.Table] {
	return rapid.Custom(func(t *rapid.T) wire.Table {
		var args wire.Table
		if match {
			if m := rapid.SampledFrom([]string{"", "all", "any", "all-with-x", "any-with-x"}).Draw(t, "x-match"); m != "" {
				args = args.Append("x-match", m)
			}
		}
		for range rapid.IntRange(0, 3).Draw(t, "fields") {
			args = args.Append(rapid.SampledFrom(names).Draw(t, "name"), rapid.SampledFrom(headerValues).Draw(t, "value"))
		}
		return args
	})
}

// TestAgainstDefinition binds and unbinds at random and compares every match with the definition; older indexes must keep
// answering as they did. R57, T40.
func TestAgainstDefinition(t *testing.T) {
	for kind, name := range map[Kind]string{Direct: "direct", Fanout: "fanout", Topic: "topic", Headers: "headers", History: "history", Once: "once"} {
		t.Run(name, func(t *testing.T) { rapid.Check(t, func(t *rapid.T) { checkKind(t, kind) }) })
	}
	for name, mask := range map[string]uint32{"all words of one hash": 0, "hashes part late": 3 << 28, "two hashes at a fork": 1 << wayBits} {
		t.Run("topic, "+name, func(t *testing.T) {
			defer func(mask uint32) { wordMask = mask }(wordMask)
			wordMask = mask
			rapid.Check(t, func(t *rapid.T) { checkKind(t, Topic) })
		})
	}
}

// TestManyWords has far more words than a fork has places, and patterns that lie deep below each other. T40.
func TestManyWords(t *testing.T) {
	draw := rand.New(rand.NewPCG(3, 4))
	x, e := New(Topic, nil), new(ordmap.Edit)
	var bindings []Binding
	keys := []string{"", "w1", "w1.w2"}
	for i := range 1500 {
		key := make([]string, 1+draw.IntN(4))
		for i := range key {
			key[i] = fmt.Sprintf("w%d", draw.IntN(1+draw.IntN(300)))
		}
		if i%8 == 0 {
			keys = append(keys, strings.Join(key, "."))
		}
		for i := range key {
			switch draw.IntN(12) {
			case 0, 1:
				key[i] = "*"
			case 2:
				key[i] = "#"
			}
		}
		b := Binding{Key: strings.Join(key, "."), Target: Target(i)}
		bindings, x = append(bindings, b), x.Bind(e, b)
	}
	check := func(x Index, bindings []Binding) {
		t.Helper()
		for _, key := range keys {
			got := x.Match(nil, &Message{Key: key})
			slices.Sort(got)
			if want := naive(Topic, bindings, []string{key}, nil); !slices.Equal(got, want) {
				t.Fatalf("%d bindings, key %q: got %v, want %v", len(bindings), key, got, want)
			}
		}
	}
	check(x, bindings)
	draw.Shuffle(len(bindings), func(i, j int) { bindings[i], bindings[j] = bindings[j], bindings[i] })
	const left = 400
	y, e := x, new(ordmap.Edit)
	for _, b := range bindings[left:] {
		y = y.Unbind(e, b)
	}
	check(y, bindings[:left])
	check(x, bindings)
}

func checkKind(t *rapid.T, kind Kind) {
	patterns, keys := genKey("", "a", "b", "*", "#"), genKey("", "a", "b", "c", "*", "#")
	args, headers := genTable([]string{"p", "q", "x-r"}, true), genTable([]string{"p", "q", "x-r"}, false)
	type version struct {
		x        Index
		bindings []Binding
	}
	x := New(kind, nil)
	var bindings []Binding
	var kept []version
	for range rapid.IntRange(1, 6).Draw(t, "rounds") {
		var e *ordmap.Edit
		if rapid.Bool().Draw(t, "shared edit") {
			e = new(ordmap.Edit)
		}
		bindings = slices.Clone(bindings)
		for range rapid.IntRange(0, 25).Draw(t, "edits") {
			if len(bindings) > 0 && rapid.IntRange(0, 2).Draw(t, "unbind") == 0 {
				i := rapid.IntRange(0, len(bindings)-1).Draw(t, "which")
				b := bindings[i]
				bindings = slices.Delete(bindings, i, i+1)
				x = x.Unbind(e, b)
				continue
			}
			b := Binding{patterns.Draw(t, "pattern"), args.Draw(t, "args"), Target(rapid.IntRange(1, 8).Draw(t, "target")), ""}
			bindings = append(bindings, b)
			x = x.Bind(e, b)
		}
		kept = append(kept, version{x, bindings})
	}
	for range 20 {
		m := Message{Key: keys.Draw(t, "key"), Further: rapid.SliceOfN(keys, 0, 2).Draw(t, "further")}
		h := headers.Draw(t, "headers")
		m.Properties = m.Properties.WithHeaders(h)
		for _, v := range kept {
			got := v.x.Match([]Target{99}, &m)
			if got[0] != 99 {
				t.Fatal("Match changed what it appends to")
			}
			got = got[1:]
			slices.Sort(got)
			want := naive(kind, v.bindings, append([]string{m.Key}, m.Further...), h)
			if !slices.Equal(got, want) || m.Single != (kind == Headers) {
				t.Fatalf("keys %q %q headers %v: got %v, want %v, bindings %v", m.Key, m.Further, h.Map(), got, want, v.bindings)
			}
		}
	}
	e := new(ordmap.Edit)
	for _, b := range bindings {
		x = x.Unbind(e, b)
	}
	if x.direct.Len() != 0 || x.fanout.Len() != 0 || x.topic != nil || x.headers.rules.Len() != 0 || x.headers.byCond.Len() != 0 || x.headers.always.Len() != 0 {
		t.Fatal("something is left after all bindings are gone")
	}
}

// T40
func TestTopicWords(t *testing.T) {
	for _, c := range []struct {
		pattern string
		yes, no string // keys, with blanks between them; "''" is the empty key
	}{
		{"", "''", "a . #"},
		{"#", "'' a . a..b #", ""},
		{"*", "a *", "'' . a.b"},
		{"*.*", "a.b . a.", "'' a ..."},
		{".", ".", "'' .. a"},
		{"a..b", "a..b", "a.b a...b"},
		{"a.*.b", "a..b a.x.b", "a.b a...b"},
		{"a.#.b", "a.b a..b a.x.b a...b", "a b ab"},
		{"#.#", "'' a a.b .", ""},
		{"#.*", "a a.b .", "''"},
		{"*.#.*", "a.b . a.x.b", "'' a"},
		{"a.#", "a a. a.b", "'' aa b.a"},
		{"#.a", "a .a b.a a.a", "'' a. ab"},
		{"#.a.#", "a b.a a.b .a.", "'' b ab"},
	} {
		x := New(Topic, nil).Bind(nil, Binding{Key: c.pattern, Target: 1})
		for i, list := range []string{c.yes, c.no} {
			for _, key := range strings.Fields(list) {
				key = strings.Trim(key, "'")
				if got := len(x.Match(nil, &Message{Key: key})) == 1; got != (i == 0) {
					t.Errorf("pattern %q, key %q: %v", c.pattern, key, got)
				}
			}
		}
	}
}

// T40
func TestChecks(t *testing.T) {
	if p := CheckKey(Topic, "a.#.b.#.c.#"); p != "it has 3 '#' wildcards, at most 2 are allowed" {
		t.Errorf("%q", p)
	}
	for kind, key := range map[Kind]string{Topic: "a.#.b.#.c#", Direct: "#.#.#", Fanout: "#.#.#"} {
		if p := CheckKey(kind, key); p != "" {
			t.Errorf("%v %q: %q", kind, key, p)
		}
	}
	bad := wire.NewTable(map[string]any{"x-match": "some"})
	if arg, p := CheckArgs(Headers, bad); arg != "x-match" || p != "invalid value 'some', expected all, any, all-with-x, or any-with-x" {
		t.Errorf("%q %q", arg, p)
	}
	if _, p := CheckArgs(Headers, wire.NewTable(map[string]any{"x-match": true})); p != "invalid field type bool, expected longstr" {
		t.Errorf("%q", p)
	}
	if _, p := CheckArgs(Topic, bad); p != "" {
		t.Errorf("%q", p)
	}
}

// A pattern of two "#" against the longest key must not take time that grows with a power of its length: the walk holds
// each node once per word, so a match of 128 words allocates nothing and yields each target once.
func TestTopicManyHashes(t *testing.T) {
	x := New(Topic, nil)
	e := new(ordmap.Edit)
	const patterns = 200
	for i := range patterns {
		x = x.Bind(e, Binding{Key: strings.Repeat("*.", i) + "#.a.#", Target: Target(i)})
	}
	key := strings.TrimSuffix(strings.Repeat("a.", 127), ".")
	got := x.Match(nil, &Message{Key: key})
	if len(got) != 127 { // with n stars before it, n+1 words are needed
		t.Fatalf("%d targets", len(got))
	}
}

func TestCanonical(t *testing.T) {
	a := wire.Table(nil).Append("b", 1).Append("a", "x")
	b := wire.Table(nil).Append("a", "x").Append("b", 1)
	if Canonical(a) != Canonical(b) || Canonical(b) != string(b) {
		t.Fatal("order of fields counts")
	}
	if Canonical(a) == Canonical(wire.Table(nil).Append("a", "x").Append("b", int8(1))) {
		t.Fatal("the type does not count")
	}
}

func ExampleIndex() {
	x := New(Topic, nil).Bind(nil, Binding{Key: "orders.*.eu", Target: ToQueue(7)}).Bind(nil, Binding{Key: "orders.#", Target: ToQueue(9)})
	for _, t := range x.Match(nil, &Message{Key: "orders.paid.eu"}) {
		fmt.Println(t.ID())
	}
	// Output:
	// 7
	// 9
}
