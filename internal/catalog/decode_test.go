package catalog

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"holdfast/internal/invariant"
	"holdfast/internal/routing"
	"holdfast/internal/wire"
)

// sampleCommands has one command of every kind.
func sampleCommands() [][]byte {
	args := wire.NewTable(map[string]any{"a": 1, "b": "x"})
	return [][]byte{
		Bootstrap(Defaults{VHost: "/", User: User{Name: "guest", Hash: "h", Algorithm: "a", Tags: []string{"administrator"}}, Configure: ".*", Write: ".*", Read: ".*"}),
		NewIncarnation(NodeIDOf("node")),
		AddVHost("v", "description", []string{"t1", "t2"}),
		DeclareQueue(QueueDecl{VHost: "/", Name: "q", Durable: true, Args: args, User: "guest"}),
		DeclareQueue(QueueDecl{VHost: "/", Name: "e", Exclusive: true, Conn: MakeConnID(1, 5)}),
		DeclareQueue(QueueDecl{VHost: "/", Name: "e2", Exclusive: true, Conn: MakeConnID(1, 5)}),
		DeclareQueue(QueueDecl{VHost: "v", Name: "t", Conn: MakeConnID(1, 0)}),
		DeclareExchange(ExchangeDecl{VHost: "/", Name: "x", Type: "topic", Durable: true, Args: wire.NewTable(map[string]any{"alternate-exchange": "amq.fanout"})}),
		DeclareExchange(ExchangeDecl{VHost: "/", Name: "h", Type: "headers", AutoDelete: true, Conn: MakeConnID(1, 5)}),
		Bind(Binding{VHost: "/", Source: "x", Destination: "q", Key: "a.*"}, 0),
		Bind(Binding{VHost: "/", Source: "h", Destination: "q", Args: args}, 0),
		Bind(Binding{VHost: "/", Source: "amq.fanout", Destination: "e"}, MakeConnID(1, 5)),
		Bind(Binding{VHost: "/", Source: "x", Kind: KindExchange, Destination: "h", Key: "#"}, 0),
		Unbind(Binding{VHost: "/", Source: "x", Destination: "q", Key: "a.*"}, 0),
		AddUser(User{Name: "ann", Hash: "h"}),
		PutUser(User{Name: "bob", Tags: []string{"monitoring"}}),
		SetPassword("ann", "h2", "a"),
		SetTags("ann", []string{"t"}),
		SetPermissions(Permission{User: "ann", VHost: "/", Configure: "a", Write: "b", Read: "c"}),
		SetPermissions(Permission{User: "bob", VHost: "v", Read: ".*"}),
		ClearPermissions("ann", "/"),
		AddNode(Node{ID: 1, Name: "n1", Addr: "h1:1", Voter: true}),
		AddNode(Node{ID: 2, Name: "n2", Addr: "h2:1"}),
		AddNode(Node{ID: 3, Name: "n3", Addr: "h3:1"}),
		NewIncarnation(1),
		NewIncarnation(2),
		DeclareQueue(QueueDecl{VHost: "/", Name: "r", Durable: true, Args: wire.NewTable(map[string]any{"x-queue-type": "quorum"}), Members: []Member{{1, 1}, {12, 2}, {3, 3}}}),
		DeclareQueue(QueueDecl{VHost: "/", Name: "h2", Durable: true, Home: 2}),
		DeclareQueue(QueueDecl{VHost: "/", Name: "t2", Conn: MakeConnID(2, 1), Home: 2}),
		SetDrained(2, true),
		SetMembers(68, []Member{{1, 1}, {13, 2}}),
		AddMember(68, Member{3, 3}),
		RemoveMember(68, 1),
		NodeGone(2, 3),
		RemoveNode(2),
		SetVoter(3, true),
		DeleteQueue("/", "e", 0, MakeConnID(1, 5)),
		DeleteConnectionQueues(MakeConnID(1, 5)),
		DeleteQueues([]QueueID{firstQueue, 999}),
		DeleteExchange("/", "x", false),
		DeleteUser("bob"),
		DeleteVHost("v"),
	}
}

// levelCommands are those that builds of the first level never write.
func levelCommands() [][]byte {
	return [][]byte{
		AddNode(Node{ID: 1, Name: "n1", Addr: "h1:1", Voter: true}),
		AddNode(Node{ID: 2, Name: "n2", Addr: "h2:1"}),
		SetLevels(1, Levels{1, 2}),
		NewIncarnation(1),
		Bootstrap(Defaults{VHost: "/"}),
		SetLevels(2, Levels{1, 300}),
		RaiseLevel(2),
		SetLevels(1, Levels{2, 3}),
		AddNode(Node{ID: 2, Name: "n2", Addr: "h2:2"}),
		RaiseLevel(3),
	}
}

// policyCommands are those about policies, which belong to level 2.
func policyCommands() [][]byte {
	policy := func(p Policy, definition map[string]any) []byte {
		made, err := MakePolicy(p, definition)
		if err != nil {
			panic(err)
		}
		return SetPolicy(made)
	}
	return [][]byte{
		NewIncarnation(1),
		SetLevels(1, Levels{1, 2}),
		Bootstrap(Defaults{VHost: "/"}),
		AddVHost("v", "", nil),
		RaiseLevel(2),
		policy(Policy{VHost: "/", Name: "limits", Pattern: "^q", ApplyTo: "queues", Priority: 5}, map[string]any{"max-length": int64(10), "overflow": "reject-publish"}),
		policy(Policy{VHost: "/", Name: "rest", Pattern: ".*", ApplyTo: "all", Priority: -300}, map[string]any{"alternate-exchange": "amq.fanout"}),
		policy(Policy{VHost: "/", Name: "limits", Operator: true, Pattern: ".*", ApplyTo: "queues"}, map[string]any{"max-length": int64(1<<63 - 1)}),
		policy(Policy{VHost: "v", Name: "limits", Pattern: "a|b", ApplyTo: "quorum_queues", Priority: 1<<63 - 1}, map[string]any{"delivery-limit": int64(-1)}),
		DeclareQueue(QueueDecl{VHost: "/", Name: "q", Durable: true, Level: 2, Members: []Member{{1, 1}},
			Args: wire.NewTable(map[string]any{"x-max-in-memory-length": 7, "x-queue-type": "quorum"})}),
		PauseQueue("/", "q", true),
		policy(Policy{VHost: "/", Name: "limits", Pattern: "^q", ApplyTo: "queues", Priority: 6}, map[string]any{"max-length": int64(11)}),
		ClearPolicy("/", "limits", true),
		DeleteVHost("v"),
		ClearPolicy("/", "rest", false),
		ClearPolicy("/", "limits", false),
		PauseQueue("/", "q", false),
		DeclareExchange(ExchangeDecl{VHost: "/", Name: "x", Type: string(Delayed), Durable: true, Level: 2, Members: []Member{{1, 1}}, Args: wire.NewTable(map[string]any{"x-delayed-type": "topic"})}),
		DeclareExchange(ExchangeDecl{VHost: "/", Name: "y", Type: string(Delayed), Level: 2, Home: 1, AutoDelete: true, Args: wire.NewTable(map[string]any{"x-delayed-type": "fanout"}), User: "u"}),
		DeleteExchange("/", "y", false),
	}
}

// TestRestoreAtEveryPrefix restores after each command and lets both machines go on to the end: their states must be the
// same all the way.
func TestRestoreAtEveryPrefix(t *testing.T) {
	for _, cmds := range [][][]byte{sampleCommands(), levelCommands(), policyCommands()} {
		testRestoreAtEveryPrefix(t, cmds)
	}
}

func testRestoreAtEveryPrefix(t *testing.T, cmds [][]byte) {
	for cut := range len(cmds) + 1 {
		m := New()
		for i, cmd := range cmds[:cut] {
			if res := m.Apply(uint64(i), int64(i), cmd).(*Result); res.Err != nil {
				t.Fatalf("command %d: %v", i, res.Err)
			}
		}
		restored := New()
		if err := restored.Restore(m.AppendSnapshot([]byte("prefix"))[len("prefix"):]); err != nil {
			t.Fatal(err)
		}
		for i, cmd := range cmds[cut:] {
			a, b := m.Apply(uint64(cut+i), int64(cut+i), cmd).(*Result), restored.Apply(uint64(cut+i), int64(cut+i), cmd).(*Result)
			if describe(a) != describe(b) {
				t.Fatalf("cut %d, command %d: %s, restored %s", cut, cut+i, describe(a), describe(b))
			}
		}
		if !bytes.Equal(m.AppendSnapshot(nil), restored.AppendSnapshot(nil)) {
			t.Fatalf("cut %d: the states differ", cut)
		}
	}
}

// TestDamagedCommands cuts and changes every command: it is refused by an invariant or does something else, but never
// leaves half of it done or runs away.
func TestDamagedCommands(t *testing.T) {
	for i, cmd := range slices.Concat(sampleCommands(), levelCommands(), policyCommands()) {
		for n := range cmd {
			mustRefuse(t, fmt.Sprintf("command %d cut at %d", i, n), cmd[:n])
		}
		mustRefuse(t, "a byte too many", append(bytes.Clone(cmd), 0))
		for n := range cmd {
			for _, b := range []byte{0, 1, 0x7f, 0xff} {
				bad := bytes.Clone(cmd)
				bad[n] = b
				apply(New(), bad)
			}
		}
	}
}

func mustRefuse(t *testing.T, what string, cmd []byte) {
	t.Helper()
	if _, err := apply(New(), cmd); err == nil {
		t.Errorf("%s: applied", what)
	}
}

// apply returns the invariant's violation as an error.
func apply(m *Machine, cmd []byte) (res *Result, err error) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case invariant.Violation:
			err = r
		default:
			panic(r)
		}
	}()
	return m.Apply(1, 1, cmd).(*Result), nil
}

func TestDamagedSnapshots(t *testing.T) {
	for _, cmds := range [][][]byte{sampleCommands()[:34], policyCommands()[:11]} {
		m := New()
		for _, cmd := range cmds {
			m.Apply(1, 1, cmd)
		}
		testDamagedSnapshots(t, m.AppendSnapshot(nil))
	}
}

func testDamagedSnapshots(t *testing.T, whole []byte) {
	for n := range whole {
		r := New()
		if err := r.Restore(whole[:n]); err == nil {
			t.Errorf("restored from %d of %d bytes", n, len(whole))
		}
		if r.View().VHosts().Len() != 0 || r.View().Bootstrapped() {
			t.Fatal("a failed Restore has changed the state")
		}
	}
	if err := New().Restore(append(bytes.Clone(whole), 0)); !errors.Is(err, errCorrupt) {
		t.Errorf("a byte too many: %v", err)
	}
	if err := New().Restore([]byte{99}); err == nil || err.Error() != "catalog: snapshot of version 99, this node reads version 4" {
		t.Errorf("another version: %v", err)
	}
}

// atLevel2 are commands that lead a cluster of three nodes to level 2, and set policies.
func atLevel2() [][]byte {
	var list [][]byte
	for id := range uint64(3) {
		list = append(list, SetLevels(id+1, Levels{1, 2}))
	}
	return slices.Concat(list, policyCommands()[4:9])
}

func FuzzApply(f *testing.F) {
	for _, cmd := range slices.Concat(sampleCommands(), levelCommands(), policyCommands()) {
		f.Add(cmd)
	}
	f.Fuzz(func(t *testing.T, cmd []byte) {
		m := New()
		for _, c := range slices.Concat(sampleCommands()[:12], sampleCommands()[21:34], atLevel2()) {
			m.Apply(1, 1, c)
		}
		before := m.AppendSnapshot(nil)
		if res, err := apply(m, cmd); err != nil || res.Err != nil {
			if !bytes.Equal(before, m.AppendSnapshot(nil)) {
				t.Fatal("a refused command has changed the state")
			}
		}
		r := New()
		if err := r.Restore(m.AppendSnapshot(nil)); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzRestore(f *testing.F) {
	m := New()
	for _, cmd := range slices.Concat(sampleCommands(), policyCommands()[3:]) {
		m.Apply(1, 1, cmd)
		f.Add(m.AppendSnapshot(nil))
	}
	f.Fuzz(func(t *testing.T, snapshot []byte) {
		if r := New(); r.Restore(snapshot) == nil {
			r.AppendSnapshot(nil)
		}
	})
}

// TestReadersWhileApplying is for the race detector: readers route and list while commands are applied, and what one
// view says never changes.
func TestReadersWhileApplying(t *testing.T) {
	m := New()
	m.Apply(1, 1, Bootstrap(Defaults{VHost: "/"}))
	m.Apply(1, 1, DeclareExchange(ExchangeDecl{VHost: "/", Name: "x", Type: "topic", Durable: true}))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				v := m.View()
				x := v.Exchange("/", "x")
				if got, want := len(v.Route(x, &routing.Message{Key: "k.1"}, nil)), v.BindingsFrom("/", "x").Len(); got != want {
					t.Errorf("%d queues for %d bindings", got, want)
				}
				for b := range v.Bindings("/").All() {
					if v.Queue("/", b.Destination) == nil {
						t.Errorf("a binding to a queue that is not there: %s", b.Destination)
					}
				}
			}
		})
	}
	for i := range 500 {
		name := fmt.Sprintf("q%d", i)
		m.Apply(1, 1, DeclareQueue(QueueDecl{VHost: "/", Name: name, Durable: true}))
		m.Apply(1, 1, Bind(Binding{VHost: "/", Source: "x", Destination: name, Key: "k.#"}, 0))
		if i >= 20 {
			m.Apply(1, 1, DeleteQueue("/", fmt.Sprintf("q%d", i-20), 0, 0))
		}
	}
	close(stop)
	wg.Wait()
}
