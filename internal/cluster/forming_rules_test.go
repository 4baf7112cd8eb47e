package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// talk lets some nodes talk to each other, without loss, until nothing is left to say at this time.
func (w *world) talk() {
	for _, n := range w.nodes {
		if n.f != nil {
			w.carryOut(n, n.f.Tick(w.now), nil, 0)
		}
	}
	for len(w.wires) > 0 {
		for _, fl := range w.wires {
			fl.due = w.now
		}
		w.deliver(0, 0)
	}
}

func (w *world) pass(steps int) {
	for range steps {
		w.now += int64(askEvery)
		w.talk()
	}
}

func mustSay(t *testing.T, n *simNode, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(n.f.Problem(), word) {
			t.Errorf("node %d says %q, want %q in it", n.index, n.f.Problem(), word)
		}
	}
}

// A minority waits, and says for whom.
func TestFormingMinority(t *testing.T) {
	w := newWorld(1, 3)
	w.start(w.nodes[0])
	w.pass(100)
	if w.nodes[0].f.Done() {
		t.Fatal("one of three has founded a cluster")
	}
	mustSay(t, w.nodes[0], "1 of 3", "n1:1", "n2:1", "lost")
}

// A majority waits for the rest, then goes on without it, and the rest joins.
func TestFormingPatience(t *testing.T) {
	w := newWorld(1, 3)
	w.start(w.nodes[0])
	w.start(w.nodes[1])
	w.pass(8)
	if w.nodes[0].f.Done() {
		t.Fatal("the third node was not waited for")
	}
	mustSay(t, w.nodes[0], "n2:1")
	w.pass(30)
	f := w.nodes[0].disk.Founding
	if f == nil || len(f.Founders) != 2 || !f.Founders[0].Voter || f.Founders[1].Voter {
		t.Fatalf("founded %+v", f)
	}
	w.start(w.nodes[2])
	w.pass(10)
	if third := w.nodes[2].disk.Founding; !reflect.DeepEqual(third, f) || third.Has(w.nodes[2].id) {
		t.Errorf("the third node has %+v", third)
	}
}

// Nodes with different lists found nothing together, and say so with both.
func TestFormingDifferentLists(t *testing.T) {
	w := newWorld(1, 2)
	w.nodes[1].list = append([]string{"other:1"}, w.nodes[1].list...)
	w.start(w.nodes[0])
	w.start(w.nodes[1])
	w.pass(100)
	for _, n := range w.nodes {
		if n.f.Done() {
			t.Fatal("a cluster was founded")
		}
		mustSay(t, n, "n0:1,n1:1", "n0:1,n1:1,other:1")
	}
}

// The order and the spelling of a list do not matter, nor whether a node is in its own.
func TestFormingSameList(t *testing.T) {
	w := newWorld(1, 3)
	w.nodes[0].list = []string{"N2:1 ", "n1:1"}
	w.nodes[1].list = []string{"n2:1", "n0:1", "n1:1", "n0:1"}
	for _, n := range w.nodes {
		w.start(n)
	}
	w.pass(20)
	for _, n := range w.nodes {
		if n.disk.Founding == nil {
			t.Errorf("%d is in no cluster: %s", n.index, n.f.Problem())
		}
	}
}

// A node that is known to the others by another address than it thinks learns that by calling itself.
func TestFormingOtherAddress(t *testing.T) {
	f := New(Options{Self: Node{7, "n", "0.0.0.0:1"}, List: []string{"host:1"}, NewID: func() ID { return ID{1} }, Rand: func(int) int { return 0 }})
	out := f.Tick(0)
	if len(out.Calls) != 1 || out.Calls[0].To != "host:1" {
		t.Fatalf("%+v", out)
	}
	if out = f.Answered(1, out.Calls[0].Tag, nil, ErrSelf); !f.Done() || !out.Save {
		t.Errorf("alone with itself it does not found a cluster: %s", f.Problem())
	}
}

// Nodes that find their list by a name of which one after another learns found as soon as all have the same and all are there,
// and have patience else; who has consented keeps to its list.
func TestFormingFoundList(t *testing.T) {
	w := newWorld(1, 3)
	all := w.nodes[0].list
	found := func(n *simNode, list []string) {
		n.f = New(Options{
			Self: Node{n.id, fmt.Sprint("name", n.index), addrOf(n.index)}, List: list, Found: true, State: n.disk,
			NewID: func() ID { w.lastID++; return ID{w.lastID} }, Rand: w.rand.IntN,
		})
	}
	relist := func(n *simNode, list []string) { w.carryOut(n, n.f.Relist(w.now, list), nil, 0) }
	found(w.nodes[0], all[:1]) // each knows itself first, or nobody
	found(w.nodes[1], nil)
	w.nodes[0].f.Relist(w.now, all[:2])
	w.pass(4)
	if w.nodes[0].f.Done() || w.nodes[1].f.Done() {
		t.Fatal("they founded a cluster with different lists, or alone and in haste")
	}
	w.pass(2 * int(patienceFound/askEvery))
	if !w.nodes[1].f.Done() {
		t.Errorf("a node that stays the only one founds no cluster: %s", w.nodes[1].f.Problem())
	}

	w = newWorld(2, 3)
	found(w.nodes[0], all[:2])
	found(w.nodes[1], all[1:])
	w.pass(4)
	for _, n := range w.nodes[:2] {
		if n.f.Done() {
			t.Fatal("a cluster was founded with different lists")
		}
		relist(n, all)
	}
	w.pass(2 * int(patience/askEvery))
	if w.nodes[0].f.Done() || w.nodes[1].f.Done() {
		t.Fatal("they have no more patience than nodes with a list for good")
	}
	found(w.nodes[2], all)
	w.pass(20)
	for _, n := range w.nodes {
		if n.disk.Founding == nil || len(n.disk.Founding.Founders) != 3 {
			t.Errorf("node %d: %+v, %s", n.index, n.disk.Founding, n.f.Problem())
		}
	}

	w = newWorld(3, 3)
	n := w.nodes[0]
	n.disk.Granted, n.disk.List = &Grant{Ballot{1, 5}, newFounding(ID{9}, all, []Node{{ID: 5, Name: "x", Addr: "x:1"}})}, Clean(all)
	found(n, all[:1])
	relist(n, all[:2])
	if !slices.Equal(n.f.list, Clean(all)) {
		t.Errorf("a node that has consented has the list %v", n.f.list)
	}
}

// Two nodes of one name are not put into one cluster.
func TestFormingSameName(t *testing.T) {
	w := newWorld(1, 2)
	for _, n := range w.nodes {
		w.start(n)
		n.f.o.Self.Name = "twin"
	}
	w.pass(100)
	for _, n := range w.nodes {
		if n.f.Done() {
			t.Fatal("a cluster was founded")
		}
		mustSay(t, n, "twin")
	}
}

// A node joins a cluster that was founded by a node alone; between two clusters it does not choose.
func TestFormingJoins(t *testing.T) {
	w := newWorld(1, 3)
	w.nodes[1].disk = Alone(Node{w.nodes[1].id, "name1", addrOf(1)}, ID{200})
	w.start(w.nodes[0])
	w.start(w.nodes[1])
	w.pass(5)
	if w.nodes[0].disk.Cluster() != (ID{200}) || w.nodes[0].disk.Founding.Has(w.nodes[0].id) {
		t.Errorf("in %v", w.nodes[0].disk.Founding)
	}
	w = newWorld(1, 3)
	for i := range 2 {
		w.nodes[i].disk = Alone(Node{w.nodes[i].id, "x", addrOf(i)}, ID{byte(200 + i)})
		w.start(w.nodes[i])
	}
	w.start(w.nodes[2])
	w.pass(5)
	if w.nodes[2].f.Done() {
		t.Error("it has joined one of two clusters")
	}
	mustSay(t, w.nodes[2], "different clusters", ID{200}.String(), ID{201}.String())
}

// A node that has consented to a founding does not forget it for another list or another cluster.
func TestFormingGrantHolds(t *testing.T) {
	w := newWorld(1, 2)
	founding := newFounding(ID{9}, []string{"n0:1", "n1:1", "n2:1"}, []Node{{99, "gone", "n2:1"}, {w.nodes[0].id, "name0", "n0:1"}})
	grant := State{List: founding.List, Promised: Ballot{1, 99}, Granted: &Grant{Ballot{1, 99}, founding}}
	w.nodes[0].disk = grant
	w.start(w.nodes[0])
	w.start(w.nodes[1])
	w.pass(100)
	if w.nodes[0].f.Done() || w.nodes[1].f.Done() {
		t.Error("a cluster was founded with another list")
	}
	mustSay(t, w.nodes[0], "n0:1,n1:1,n2:1", "former list")

	w = newWorld(1, 3)
	w.nodes[0].disk = grant
	w.nodes[1].disk = Alone(Node{w.nodes[1].id, "name1", addrOf(1)}, ID{200})
	w.start(w.nodes[0])
	w.start(w.nodes[1])
	w.pass(20)
	if w.nodes[0].f.Done() {
		t.Error("it has joined another cluster")
	}
	mustSay(t, w.nodes[0], "must be reset")

	w = newWorld(1, 3) // its consent counts, though who asked for it is gone
	w.nodes[0].disk = grant
	w.nodes[0].id, w.nodes[1].id = founding.Founders[0].ID, 1
	w.start(w.nodes[0])
	w.start(w.nodes[1])
	w.pass(40)
	for _, n := range w.nodes[:2] {
		if n.disk.Cluster() != (ID{9}) {
			t.Errorf("%d is in %v: %s", n.index, n.disk.Cluster(), n.f.Problem())
		}
	}
	if !w.admitted[1] || w.admitted[w.nodes[0].id] {
		t.Errorf("admitted were %v", w.admitted)
	}
}

func sampleMessages() (requests []*request, answers []*answer) {
	f := newFounding(ID{1, 2, 3}, []string{"a:1", "b:1"}, []Node{{2, "two", "b:1"}, {1, "one", "a:1"}, {3, "", ""}})
	for k := ask; k <= join; k++ {
		requests = append(requests, &request{kind: k, from: Node{1, "n", "a:1"}, list: []string{"a:1"}, ballot: Ballot{3, 1 << 63}, founding: f})
	}
	requests = append(requests, &request{kind: ask, from: Node{ID: 1}})
	return requests, []*answer{
		{verdict: fine, from: Node{1, "n", "a:1"}},
		{verdict: refused, from: Node{1, "n", "a:1"}, list: []string{"a:1", "b:1"}, promised: Ballot{1, 2}, granted: &Grant{Ballot{1, 1}, f}, text: "no"},
		{verdict: fine, from: Node{1, "n", "a:1"}, founding: f},
	}
}

// What is said arrives as it was said; half of it does not arrive at all.
func TestFormingMessages(t *testing.T) {
	requests, answers := sampleMessages()
	for _, r := range requests {
		b := r.encode()
		if got, err := decodeRequest(b); err != nil || !reflect.DeepEqual(got, r) {
			t.Errorf("%+v came as %+v, %v", r, got, err)
		}
		for n := range b {
			if _, err := decodeRequest(b[:n]); err == nil {
				t.Errorf("read from %d of %d bytes", n, len(b))
			}
		}
	}
	for _, a := range answers {
		b := a.encode()
		if got, err := decodeAnswer(b); err != nil || !reflect.DeepEqual(got, a) {
			t.Errorf("%+v came as %+v, %v", a, got, err)
		}
		for n := range b {
			if _, err := decodeAnswer(b[:n]); err == nil {
				t.Errorf("read from %d of %d bytes", n, len(b))
			}
		}
	}
	w := newWorld(1, 1)
	w.start(w.nodes[0])
	if a, err := decodeAnswer(w.nodes[0].f.Serve(0, []byte("nonsense")).Answer); err != nil || a.verdict != refused {
		t.Errorf("to nonsense %+v, %v", a, err)
	}
}

func FuzzForming(f *testing.F) {
	requests, answers := sampleMessages()
	for _, r := range requests {
		f.Add(r.encode())
	}
	for _, a := range answers {
		f.Add(a.encode())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := decodeRequest(b); err == nil {
			if again, err := decodeRequest(r.encode()); err != nil || !reflect.DeepEqual(r, again) {
				t.Fatalf("%+v, then %+v, %v", r, again, err)
			}
			w := newWorld(1, 3)
			w.start(w.nodes[0])
			w.nodes[0].f.Serve(0, b)
		}
		if a, err := decodeAnswer(b); err == nil {
			if again, err := decodeAnswer(a.encode()); err != nil || !reflect.DeepEqual(a, again) {
				t.Fatalf("%+v, then %+v, %v", a, again, err)
			}
			w := newWorld(1, 3)
			w.start(w.nodes[0])
			out := w.nodes[0].f.Tick(0)
			w.nodes[0].f.Answered(0, out.Calls[0].Tag, b, nil)
		}
	})
}

// The state is written as JSON and read back. The text stands here because files with it lie about.
func TestStateText(t *testing.T) {
	f := newFounding(ID{0xab}, []string{"a:1", "b:1"}, []Node{{1<<63 + 1, "one", "a:1"}})
	s := State{List: f.List, Promised: Ballot{4, 1<<63 + 1}, Granted: &Grant{Ballot{3, 2}, f}}
	const want = `{"list":["a:1","b:1"],"promised":{"round":4,"node":"9223372036854775809"},"granted":{"ballot":{"round":3,"node":"2"},` +
		`"founding":{"cluster":"ab000000000000000000000000000000","list":["a:1","b:1"],"founders":[{"id":"9223372036854775809","name":"one","addr":"a:1","voter":true}]}}}`
	text, err := json.Marshal(s)
	if err != nil || string(text) != want {
		t.Errorf("%s, %v", text, err)
	}
	var back State
	if err := json.Unmarshal([]byte(want), &back); err != nil || !reflect.DeepEqual(back, s) {
		t.Errorf("%+v, %v", back, err)
	}
	if text, err := json.Marshal(State{}); err != nil || !bytes.Equal(text, []byte("{}")) {
		t.Errorf("%s, %v", text, err)
	}
	if err := json.Unmarshal([]byte(`{"founding":{"cluster":"ab"}}`), &back); err == nil {
		t.Error("a short id was read")
	}
}
