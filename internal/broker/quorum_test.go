package broker

import (
	"fmt"
	"slices"
	"testing"

	"holdfast/internal/catalog"
	"holdfast/internal/wire"
)

// village is how the nodes of a cluster of four stand.
type village struct{ down uint64 }

func (village) Name(node uint64) string { return fmt.Sprint("n", node) }
func (v village) Up(node uint64) bool   { return node != v.down }

func args(pairs ...any) wire.Table {
	m := map[string]any{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i].(string)] = pairs[i+1]
	}
	return wire.NewTable(m)
}

// inCluster makes the rig's node the first of four.
func (r *rig) inCluster(down uint64) {
	for id := uint64(1); id <= 4; id++ {
		r.must(catalog.AddNode(catalog.Node{ID: id, Name: fmt.Sprint("n", id)}))
		if id > 1 {
			r.must(catalog.NewIncarnation(id))
		}
	}
	r.others, r.self = village{down}, 1
}

// A quorum queue gets as many members as it asks for or there are nodes, one of them here, and its leader here or where
// there are fewest. R140, R141
func TestWhereAQueueIsPut(t *testing.T) {
	r := newRig(t)
	place := func(pairs ...any) (nodes []uint64, home uint64) {
		d := r.place(catalog.QueueDecl{VHost: vhost, Name: "q", Durable: true, Args: args(pairs...)})
		for _, m := range d.Members {
			if m.ID != m.Node {
				t.Errorf("member %d of the declaration is on node %d", m.ID, m.Node)
			}
			nodes = append(nodes, m.Node)
		}
		return nodes, d.Home
	}
	if nodes, _ := place("x-queue-type", "quorum"); !slices.Equal(nodes, []uint64{1}) {
		t.Errorf("alone: %v", nodes)
	}
	if nodes, home := place(); nodes != nil || home != 0 {
		t.Errorf("a classic queue of a node that is alone: %v, %d", nodes, home)
	}
	r.inCluster(4)
	for range 20 {
		nodes, _ := place("x-queue-type", "quorum")
		if slices.Sort(nodes[1:]); !slices.Equal(nodes, []uint64{1, 2, 3}) { // not on the one that is down
			t.Fatalf("three members: %v", nodes)
		}
		if nodes, _ := place("x-queue-type", "quorum", "x-quorum-initial-group-size", 1); !slices.Equal(nodes, []uint64{1}) {
			t.Fatalf("one member: %v", nodes)
		}
		if nodes, _ := place("x-queue-type", "quorum", "x-quorum-initial-group-size", 9); len(nodes) != 4 || nodes[0] != 1 {
			t.Fatalf("as many as there are: %v", nodes)
		}
	}
	seen := map[uint64]bool{}
	for range 200 {
		nodes, _ := place("x-queue-type", "quorum", "x-queue-leader-locator", "balanced")
		if seen[nodes[0]] = true; !slices.Contains(nodes, 1) {
			t.Fatalf("not here: %v", nodes)
		}
	}
	if len(seen) != 3 || seen[4] {
		t.Errorf("leaders of balanced queues: %v", seen)
	}
	if _, home := place(); home != 0 {
		t.Errorf("a classic queue is not here but on %d", home)
	}
	r.settings.QueueLeaderLocator = "balanced"
	clear(seen)
	for range 200 {
		_, home := place()
		seen[home] = true
	}
	if len(seen) != 3 || seen[4] { // 0: here
		t.Errorf("homes of balanced queues: %v", seen)
	}
	if _, home := place("x-queue-leader-locator", "client-local"); home != 0 {
		t.Errorf("client-local: %d", home)
	}
}

// default_queue_type = quorum is for queues that could be of that type.
func TestDefaultQueueType(t *testing.T) {
	r := newRig(t)
	c := r.connect()
	c.declare(DeclareQueue{Name: "before", Durable: true})
	r.settings.DefaultQueueType = "quorum"
	for _, x := range []struct {
		what string
		d    catalog.QueueDecl
		want catalog.QueueType
	}{
		{"durable", catalog.QueueDecl{Name: "q", Durable: true}, catalog.Quorum},
		{"durable with arguments", catalog.QueueDecl{Name: "q", Durable: true, Args: args("x-quorum-initial-group-size", 1)}, catalog.Quorum},
		{"explicit", catalog.QueueDecl{Name: "q", Durable: true, Args: args("x-queue-type", "classic")}, catalog.Classic},
		{"from before", catalog.QueueDecl{Name: "before", Durable: true}, catalog.Classic},
		{"not durable", catalog.QueueDecl{Name: "q"}, catalog.Classic},
		{"exclusive", catalog.QueueDecl{Name: "q", Durable: true, Exclusive: true}, catalog.Classic},
		{"auto-delete", catalog.QueueDecl{Name: "q", Durable: true, AutoDelete: true}, catalog.Classic},
		{"named by the server", catalog.QueueDecl{Name: "amq.gen-x", ServerNamed: true, Durable: true}, catalog.Classic},
	} {
		x.d.VHost = vhost
		n := x.d.Args.Len()
		if got := catalog.TypeOf(r.withType(x.d).Args); got != x.want {
			t.Errorf("%s: %s", x.what, got)
		}
		if x.d.Args.Len() != n {
			t.Errorf("%s: the request itself was changed", x.what)
		}
	}
}
