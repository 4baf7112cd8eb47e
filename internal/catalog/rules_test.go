package catalog

import (
	"fmt"
	"strings"
	"testing"

	"holdfast/internal/wire"
)

// oldDeclare is a declare as it was written before queues had a place.
func oldDeclare(d QueueDecl) []byte {
	e := begin(cmdDeclareQueue, 64)
	e.string(d.VHost)
	e.string(d.Name)
	e.flags(d.ServerNamed, d.Durable, d.AutoDelete, d.Exclusive)
	e.bytes(d.Args)
	e.uint(uint64(d.Conn))
	e.string(d.User)
	return e.b
}

// A declare in an old log does what it did: what was refused then is refused now, or every later queue would have the id
// of another one.
func TestOldDeclares(t *testing.T) {
	for _, c := range []struct {
		args     map[string]any
		old, now uint16
	}{
		{nil, 0, 0},
		{map[string]any{"x-queue-leader-locator": "balanced"}, 0, 0},
		{map[string]any{"x-queue-leader-locator": "min-masters"}, 406, 0},
		{map[string]any{"x-queue-type": "quorum"}, 406, 0},
		{map[string]any{"x-queue-type": "stream"}, 406, 406},
		{map[string]any{"x-quorum-target-group-size": "any"}, 0, 0},
	} {
		m := New()
		m.Apply(1, 1, Bootstrap(Defaults{VHost: "/"}))
		m.Apply(1, 1, NewIncarnation(1))
		d := QueueDecl{VHost: "/", Name: "old", Durable: true, Args: wire.NewTable(c.args), Members: []Member{{1, 1}}, Conn: MakeConnID(1, 1)}
		if got := codeOf(m.Apply(1, 1, oldDeclare(d)).(*Result).Err); got != c.old {
			t.Errorf("%v by the old rules: %d, want %d", c.args, got, c.old)
		}
		d.Name = "new"
		if got := codeOf(m.Apply(1, 1, DeclareQueue(d)).(*Result).Err); got != c.now {
			t.Errorf("%v: %d, want %d", c.args, got, c.now)
		}
	}
}

// R595: a classic queue may have delayed retry by the fourth rules. What the third refused, in bytes as they were written, is refused
// whenever it is read; and what both say alike is written by the third.
func TestDeclaresOfTheThirdRules(t *testing.T) {
	declare := func(kind string) QueueDecl {
		return QueueDecl{VHost: "/", Name: "q", Durable: true, Members: []Member{{1, 1}}, Conn: MakeConnID(1, 1), Level: PolicyLevel,
			Args: wire.NewTable(map[string]any{"x-queue-type": kind, "x-delayed-retry-type": "all"})}
	}
	for _, c := range []struct {
		kind       string
		rules      byte
		third, now uint16
	}{{"classic", 4, 406, 0}, {"", 4, 406, 0}, {"quorum", 3, 0, 0}, {"stream", 3, 406, 406}, {"what", 3, 406, 406}} {
		cmd := DeclareQueue(declare(c.kind))
		if cmd[2] != c.rules {
			t.Errorf("%q is written by rules %d", c.kind, cmd[2])
		}
		for rules, want := range map[byte]uint16{3: c.third, c.rules: c.now} {
			m := New()
			m.Apply(1, 1, Bootstrap(Defaults{VHost: "/"}))
			m.Apply(1, 1, NewIncarnation(1))
			cmd[2] = rules
			if got := codeOf(m.Apply(1, 1, cmd).(*Result).Err); got != want {
				t.Errorf("%q by rules %d: %d, want %d", c.kind, rules, got, want)
			}
		}
	}
	const written = "011404012f0171023614782d64656c617965642d72657472792d747970655300000003616c6c0c782d71756575652d747970655300000007636c61737369638180808080200000010101" // once: it is what logs have
	if got := fmt.Sprintf("%x", DeclareQueue(declare("classic"))); got != written {
		t.Errorf("written as %s", got)
	}
}

// R615: the times of a delayed retry that no policy could give, or that are cut, are refused by the fifth rules. Declares that say so and
// were accepted before are accepted whenever they are read, and all others are written as they were.
func TestDeclaresOfTheFourthRules(t *testing.T) {
	const least, most, typ = "x-delayed-retry-min", "x-delayed-retry-max", "x-delayed-retry-type"
	for _, c := range []struct {
		args  map[string]any
		rules byte   // on quorum queues; on classic ones they are the fourth at least
		wrong string // "": it is accepted
	}{
		{map[string]any{typ: "all", least: 2000, most: 100}, 5, "'x-delayed-retry-max' for queue 'q' in vhost '/': must not be smaller than x-delayed-retry-min (2000): 100"},
		{map[string]any{least: int64(1), most: int64(maxPeriod) + 1}, 5, "'x-delayed-retry-max' for queue 'q' in vhost '/': must not be more than ten years in milliseconds: 315360000001"},
		{map[string]any{least: int64(maxPeriod) + 1}, 5, "'x-delayed-retry-min' for queue 'q' in vhost '/': must not be more than ten years in milliseconds: 315360000001"},
		{map[string]any{typ: "all", least: 100, most: 100}, 3, ""},
		{map[string]any{typ: "all", least: 1, most: int64(maxPeriod)}, 3, ""},
		{map[string]any{typ: "all"}, 3, ""}, // a policy may say the rest
		{map[string]any{most: 100}, 3, ""},
	} {
		for _, kind := range []string{"quorum", "classic"} {
			c.args["x-queue-type"] = kind
			cmd := DeclareQueue(QueueDecl{VHost: "/", Name: "q", Durable: true, Members: []Member{{1, 1}}, Conn: MakeConnID(1, 1), Level: PolicyLevel, Args: wire.NewTable(c.args)})
			written := c.rules
			if kind == "classic" {
				written = max(written, 4)
			}
			if cmd[2] != written {
				t.Errorf("%v is written by rules %d, want %d", c.args, cmd[2], written)
			}
			for rules := written; rules >= 4 || kind == "quorum" && rules == 3; rules-- {
				m := New()
				m.Apply(1, 1, Bootstrap(Defaults{VHost: "/"}))
				m.Apply(1, 1, NewIncarnation(1))
				cmd[2] = rules
				err := m.Apply(1, 1, cmd).(*Result).Err
				if want := rules == 5; (err != nil) != want || want && !strings.Contains(err.Error(), c.wrong) {
					t.Errorf("%v by rules %d: %v", c.args, rules, err)
				}
			}
		}
	}
}

// An old log with two folders' names is that of one folder whose identity was replaced: it does what it did.
func TestOldStarts(t *testing.T) {
	start := func(name string) []byte {
		e := begin(cmdNewIncarnation, 16)
		e.string(name)
		return e.b
	}
	m := New()
	m.Apply(1, 1, Bootstrap(Defaults{VHost: "/"}))
	m.Apply(1, 1, start("a"))
	m.Apply(1, 1, oldDeclare(QueueDecl{VHost: "/", Name: "t", Conn: MakeConnID(1, 1)}))
	m.Apply(1, 1, oldDeclare(QueueDecl{VHost: "/", Name: "d", Durable: true, Conn: MakeConnID(1, 1)}))
	m.Apply(1, 1, start("b"))
	if m.View().Queue("/", "t") == nil || m.View().Nodes().Len() != 2 {
		t.Fatal("another folder's start ended what it did not end then")
	}
	res := m.Apply(1, 1, NewIncarnation(NodeIDOf("b"))).(*Result)
	if res.Err != nil || m.View().Queue("/", "t") == nil {
		t.Fatal(res.Err)
	}
	if res = m.Apply(1, 1, NewIncarnation(5)).(*Result); res.Err != nil || m.View().Queue("/", "t") != nil {
		t.Fatal(res.Err)
	}
	if q := m.View().Queue("/", "d"); q.Home != 5 || m.View().Counts(5).Homes != 1 || m.View().Nodes().Len() != 1 {
		t.Errorf("at home on %d", q.Home)
	}
}

// What arguments say about the size of a group and the place of its leader.
func TestGroupArguments(t *testing.T) {
	for _, c := range []struct {
		args         map[string]any
		size, target int
		balanced     bool
		typ          QueueType
	}{
		{nil, 3, 0, false, Classic},
		{map[string]any{"x-queue-type": "quorum", "x-quorum-initial-group-size": 5, "x-quorum-target-group-size": int8(7)}, 5, 7, false, Quorum},
		{map[string]any{"x-quorum-initial-group-size": "5", "x-quorum-target-group-size": 0}, 3, 0, false, Classic},
		{map[string]any{"x-queue-leader-locator": "client-local", "x-queue-master-locator": "min-masters"}, 3, 0, false, Classic},
		{map[string]any{"x-queue-leader-locator": "least-leaders"}, 3, 0, true, Classic},
		{map[string]any{"x-queue-master-locator": "random"}, 3, 0, true, Classic},
		{map[string]any{"x-queue-type": 1}, 3, 0, false, ""},
	} {
		args := wire.NewTable(c.args)
		e := new(View).Effective(&Queue{Type: Quorum, Args: args})
		if size := GroupSize(args, 3); size != c.size || e.TargetSize != c.target {
			t.Errorf("%v: sizes %d and %d", c.args, size, e.TargetSize)
		}
		if e.Balanced(false) != c.balanced || TypeOf(args) != c.typ {
			t.Errorf("%v: balanced %v, type %q", c.args, e.Balanced(false), TypeOf(args))
		}
	}
}

// Whoever replaces the identity of a folder that is alone has what was in it, its members of quorum queues too. They keep
// their ids, by which the log knows them.
func TestAFolderGetsAnotherIdentity(t *testing.T) {
	m := New()
	apply := func(cmd []byte) *Result {
		t.Helper()
		r := m.Apply(1, 1, cmd).(*Result)
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		return r
	}
	apply(NewIncarnation(7))
	apply(Bootstrap(Defaults{VHost: "/"}))
	args := wire.NewTable(map[string]any{"x-queue-type": "quorum"})
	q := apply(DeclareQueue(QueueDecl{VHost: "/", Name: "q", Durable: true, Args: args, Members: []Member{{ID: 7, Node: 7}}})).Queue
	apply(NewIncarnation(8))
	if got := m.View().QueueByID(q.ID).Members; len(got) != 1 || got[0] != (Member{ID: 7, Node: 8}) {
		t.Errorf("members: %v", got)
	}
	if c := m.View().Counts(8); c.Members != 1 || c.Leaders != 1 || m.View().Counts(7) != (Counts{}) {
		t.Errorf("counts: %+v and %+v", c, m.View().Counts(7))
	}
}
