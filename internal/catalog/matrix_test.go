package catalog

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"holdfast/internal/amqperr"
	"holdfast/internal/wire"
)

// sample is a value of an argument, and what is wrong with it; "": nothing is.
type sample struct {
	v       any
	problem string
}

// others are values of every kind that is no whole number, by what a class says of them.
func others(but string, problem func(v any, kind string) string) (list []sample) {
	for kind, v := range map[string]any{
		"bool": true, "float": float32(1), "double": 1.5, "decimal": wire.Decimal{Scale: 1, Unscaled: 10}, "timestamp": time.Unix(1, 0),
		"longstr": "1", "table": wire.NewTable(map[string]any{"a": 1}), "array": []any{1}, "void": nil, "binary": []byte("x"),
	} {
		if kind != but {
			list = append(list, sample{v, problem(v, kind)})
		}
	}
	return list
}

func numbers(list ...sample) []sample {
	return append(list, others("", func(_ any, kind string) string { return "expected integer, got " + kind })...)
}

func texts(list ...sample) []sample {
	list = append(list, sample{int8(1), "unacceptable type byte"}, sample{int64(1), "unacceptable type long"})
	return append(list, others("longstr", func(_ any, kind string) string { return "unacceptable type " + kind })...)
}

var (
	anything = append(others("", func(any, string) string { return "" }), sample{int32(-5), ""}, sample{"", ""})
	count    = numbers(sample{int8(0), ""}, sample{int32(7), ""}, sample{int64(math.MaxInt64), ""}, sample{int8(-1), "must not be negative: -1"})
	positive = numbers(sample{int8(1), ""}, sample{int64(math.MaxInt64), ""}, sample{int8(-1), "must not be negative: -1"}, sample{int32(0), "must not be zero"})
	period   = numbers(sample{int8(0), ""}, sample{int64(maxPeriod), ""}, sample{int8(-1), "must not be negative: -1"},
		sample{int64(maxPeriod + 1), "must not be more than ten years in milliseconds: 315360000001"})
	somePeriod = numbers(sample{int8(1), ""}, sample{int64(maxPeriod), ""}, sample{int8(-1), "must not be negative: -1"}, sample{int8(0), "must not be zero"},
		sample{int64(maxPeriod + 1), "must not be more than ten years in milliseconds: 315360000001"})
	truth = append(others("bool", func(_ any, kind string) string { return "unacceptable type " + kind }),
		sample{true, ""}, sample{false, ""}, sample{int8(1), "unacceptable type byte"})
	text = texts(sample{"x", ""}, sample{"", ""})
)

func oneOfThese(words ...string) []sample {
	list := texts(sample{"nothing", "'nothing' is none of " + strings.Join(words, ", ")}, sample{"", "'' is none of " + strings.Join(words, ", ")})
	for _, w := range words {
		list = append(list, sample{w, ""})
	}
	return list
}

// known is every argument that RabbitMQ knows, and ours: the types of queue that take it, what the values are worth, and what has to be
// said with it.
var known = map[string]struct {
	types  string
	values []sample
	with   map[string]any
}{
	"x-expires":                 {"cq", somePeriod, nil},
	"x-message-ttl":             {"cq", period, nil},
	"x-dead-letter-exchange":    {"cq", text, nil},
	"x-dead-letter-routing-key": {"cq", text, map[string]any{"x-dead-letter-exchange": "x"}},
	"x-dead-letter-strategy":    {"cq", oneOfThese("at-most-once", "at-least-once"), nil},
	"x-max-length":              {"cq", count, nil},
	"x-max-length-bytes":        {"cq", count, nil},
	"x-max-in-memory-length":    {"q", count, nil},
	"x-max-in-memory-bytes":     {"q", count, nil},
	"x-max-priority": {"c", numbers(sample{int8(0), ""}, sample{int16(255), ""}, sample{int16(256), "must not be more than 255: 256"},
		sample{int8(-1), "must not be negative: -1"}), nil},
	"x-overflow":   {"cq", oneOfThese("drop-head", "reject-publish", "reject-publish-dlx"), nil},
	"x-queue-mode": {"c", anything, nil},
	"x-queue-version": {"c", numbers(sample{int8(1), ""}, sample{int8(2), ""}, sample{int8(3), "unsupported queue version '3'"},
		sample{int8(0), "unsupported queue version '0'"}, sample{int8(-1), "unsupported queue version '-1'"}), nil},
	"x-single-active-consumer": {"cq", truth, nil},
	"x-delivery-limit": {"cq", numbers(sample{int8(-1), ""}, sample{int8(0), ""}, sample{int64(math.MaxInt64), ""},
		sample{int8(-2), "must not be less than -1: -2"}), nil},
	"x-consumer-timeout":              {"cq", count, nil},
	"x-consumer-disconnected-timeout": {"q", count, nil},
	"x-delayed-retry-type":            {"cq", oneOfThese("all", "failed", "returned", "disabled"), nil},
	"x-delayed-retry-min":             {"cq", somePeriod, nil},
	"x-delayed-retry-max":             {"cq", somePeriod, nil},
	"x-queue-type":                    {"cq", nil, nil}, // a test of its own: it is what the others go by
	"x-quorum-initial-group-size":     {"q", positive, nil},
	"x-max-age":                       {"", nil, nil},
	"x-stream-max-segment-size-bytes": {"", nil, nil},
	"x-stream-filter-size-bytes":      {"", nil, nil},
	"x-initial-cluster-size":          {"", nil, nil},
	"x-queue-master-locator":          {"c", anything, nil},
	"x-queue-leader-locator":          {"cq", oneOfThese("client-local", "balanced", "random", "least-leaders", "min-masters"), nil},
	"x-member-placement-tag":          {"q", texts(sample{"x", ""}, sample{"", "must not be empty"}), nil},

	"x-delivery-delay":             {"cq", period, nil},
	"x-message-deduplication":      {"cq", truth, nil},
	"x-deduplication-window":       {"cq", period, nil},
	"x-deduplication-window-bytes": {"cq", count, nil},
	"x-deduplication-key":          {"cq", oneOfThese("header", "message-id", "publisher"), nil},
}

// declaring declares queues in a catalog of one node.
type declaring struct {
	m    *Machine
	n    int
	kind string
}

func newDeclaring(kind string) *declaring {
	d := &declaring{m: New(), kind: kind}
	for _, cmd := range [][]byte{NewIncarnation(1), SetLevels(1, Levels{1, 2}), Bootstrap(Defaults{VHost: "/"}), RaiseLevel(2)} {
		d.m.Apply(1, 1, cmd)
	}
	return d
}

// decl is the declare of a queue with an argument more; with none if its name is "".
func (d *declaring) decl(queue, arg string, v any, with map[string]any) QueueDecl {
	var args wire.Table
	if d.kind == "quorum" {
		args = args.Append(argQueueType, d.kind)
	}
	for name, v := range with {
		args = args.Append(name, v)
	}
	if arg != "" {
		args = args.Append(arg, v)
	}
	return QueueDecl{VHost: "/", Name: queue, Durable: true, Members: []Member{{1, 1}}, Conn: MakeConnID(1, 1), Level: PolicyLevel, Args: args}
}

// first declares a queue that is not there, and says what was wrong.
func (d *declaring) first(arg string, v any, with map[string]any) (queue, wrong string) {
	d.n++
	queue = fmt.Sprint("q", d.n)
	return queue, said(d.m.Apply(1, 1, DeclareQueue(d.decl(queue, arg, v, with))).(*Result).Err)
}

// again declares a queue that is there.
func (d *declaring) again(queue, arg string, v any, with map[string]any) string {
	decl := d.decl(queue, arg, v, with)
	q, err := d.m.View().DeclaredQueue(&decl)
	if err == nil && q == nil {
		return "it is not there"
	}
	return said(err)
}

func said(err *amqperr.Error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// R655 R500: each argument of a queue with each kind of value, on each type of queue: taken, or refused with 406 and the reason; an argument
// that is known and not for this type is 406 whatever its value; and the list of what is known is complete.
func TestEveryArgumentOfAQueue(t *testing.T) {
	for _, a := range arguments {
		if _, is := known[a.name]; !is {
			t.Errorf("%s is not in the table of this test", a.name)
		}
	}
	for _, more := range []map[string]argument{since3, since4} {
		for name := range more {
			if findArgument(name) == nil {
				t.Errorf("%s is in no list", name)
			}
		}
	}
	for _, kind := range []string{"classic", "quorum"} {
		d := newDeclaring(kind)
		for name, a := range known {
			if !strings.Contains(a.types, kind[:1]) {
				for _, v := range []any{int32(1), "x", true, nil, -1.5} {
					q, wrong := d.first(name, v, a.with)
					if want := fmt.Sprintf("PRECONDITION_FAILED - invalid arg '%s' for queue '%s' in vhost '/' of queue type %s", name, q, kind); wrong != want {
						t.Errorf("%s=%v on a %s queue: %q, want %q", name, v, kind, wrong, want)
					}
				}
				continue
			}
			for _, s := range a.values {
				q, wrong := d.first(name, s.v, a.with)
				want := ""
				if s.problem != "" {
					want = fmt.Sprintf("PRECONDITION_FAILED - invalid arg '%s' for queue '%s' in vhost '/': %s", name, q, s.problem)
				}
				if wrong != want {
					t.Errorf("%s=%v (%T) on a %s queue: %q, want %q", name, s.v, s.v, kind, wrong, want)
				}
			}
		}
		for _, v := range []any{int8(1), "x", true, nil, 1.5} {
			for _, name := range []string{"x-unheard-of", "unheard-of", "x-"} {
				if _, wrong := d.first(name, v, nil); wrong != "" {
					t.Errorf("%s=%v on a %s queue: %s", name, v, kind, wrong)
				}
			}
		}
	}
}

// widths are the integers of all widths that are n.
func widths(n int64) (list []any) {
	list = append(list, n)
	for _, v := range []any{int8(n), int16(n), int32(n), uint8(n), uint16(n), uint32(n)} {
		if w, is := wire.ValueOf(v).Int(); is && w == n {
			list = append(list, v)
		}
	}
	return list
}

// R656 R501: a queue that is there, declared again: each argument with each value that it takes, as an integer of any width, with another
// value, without it, and the other way about.
func TestEveryArgumentDeclaredAgain(t *testing.T) {
	for _, kind := range []string{"classic", "quorum"} {
		d := newDeclaring(kind)
		for name, a := range known {
			if !strings.Contains(a.types, kind[:1]) || name == argQueueType {
				continue
			}
			bare, _ := d.first("", nil, a.with)
			for i, s := range a.values {
				if s.problem != "" {
					continue
				}
				q, _ := d.first(name, s.v, a.with)
				same := []any{s.v}
				if n, is := wire.ValueOf(s.v).Int(); is {
					same = widths(n)
				}
				for _, v := range same {
					if wrong := d.again(q, name, v, a.with); wrong != "" {
						t.Errorf("%s=%v as a %T and then a %T: %s", name, v, s.v, v, wrong)
					}
				}
				of := fmt.Sprintf("PRECONDITION_FAILED - inequivalent arg '%s' for queue '%%s' in vhost '/': ", name)
				for k, other := range a.values {
					if k == i || wire.ValueOf(other.v).Equal(wire.ValueOf(s.v)) {
						continue
					}
					x, y := wire.ValueOf(other.v), wire.ValueOf(s.v)
					want := fmt.Sprintf(of+"received '%v' but current is '%v'", q, x.Any(), y.Any())
					if equivalent(x, y) {
						want = ""
					}
					if wrong := d.again(q, name, other.v, a.with); wrong != want {
						t.Errorf("%s=%v, then %v: %q, want %q", name, s.v, other.v, wrong, want)
					}
				}
				if wrong, want := d.again(q, "", nil, a.with), fmt.Sprintf(of+"received none but current is the value %s", q, wire.ValueOf(s.v)); wrong != want {
					t.Errorf("%s=%v, then none: %q, want %q", name, s.v, wrong, want)
				}
				if wrong, want := d.again(bare, name, s.v, a.with), fmt.Sprintf(of+"received the value %s but current is none", bare, wire.ValueOf(s.v)); wrong != want {
					t.Errorf("%s: none, then %v: %q, want %q", name, s.v, wrong, want)
				}
				if wrong := d.again(q, name, s.v, with(a.with, "x-unheard-of", "x")); wrong != "" {
					t.Errorf("%s=%v with one that is unheard of: %s", name, s.v, wrong)
				}
			}
		}
		// What is not for the type is not looked at where the queue is there.
		q, _ := d.first("", nil, nil)
		for name, a := range known {
			if !strings.Contains(a.types, kind[:1]) {
				if wrong := d.again(q, name, "x", nil); wrong != "" {
					t.Errorf("%s on a %s queue that is there: %s", name, kind, wrong)
				}
			}
		}
	}
}

func with(args map[string]any, name string, v any) map[string]any {
	all := map[string]any{name: v}
	for name, v := range args {
		all[name] = v
	}
	return all
}

// R655 R656 R58 R59: the type of a queue, by every kind of value, when it is declared first and again.
func TestEveryTypeOfAQueue(t *testing.T) {
	for _, s := range append(texts(sample{"classic", ""}, sample{"quorum", ""}, sample{"", ""}, sample{"undefined", ""})[:4],
		texts(sample{"Classic", "type"}, sample{"foo", "type"}, sample{"stream", "type"})...) {
		d := newDeclaring("")
		q, wrong := d.first(argQueueType, s.v, nil)
		want := ""
		switch {
		case s.problem == "type":
			want = fmt.Sprintf("PRECONDITION_FAILED - queue '%s' in vhost '/': unsupported queue type '%v'", q, s.v)
		case s.problem != "":
			want = fmt.Sprintf("PRECONDITION_FAILED - invalid arg 'x-queue-type' for queue '%s' in vhost '/': %s", q, s.problem)
		}
		if wrong != want {
			t.Errorf("%v: %q, want %q", s.v, wrong, want)
		}
		if want != "" {
			continue
		}
		for _, v := range []any{"classic", "", "undefined", "quorum"} {
			wrong := d.again(q, argQueueType, v, nil)
			if same := (v == "quorum") == (s.v == "quorum"); same != (wrong == "") {
				t.Errorf("%q, then %q: %q", s.v, v, wrong)
			}
		}
		if wrong := d.again(q, "", nil, nil); (wrong == "") != (s.v != "quorum") {
			t.Errorf("%q, then none: %q", s.v, wrong)
		}
	}
}
