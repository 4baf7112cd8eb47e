package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"holdfast/internal/broker"
	"holdfast/internal/catalog"
	"holdfast/internal/clock"
	"holdfast/internal/config"
	"holdfast/test/rig"
)

// trio is three nodes on loopback.
type trio struct {
	places [3]place
	addrs  [3]string
	nodes  [3]*Node
	secret string
	levels catalog.Levels // what the nodes know; zero: what this build does
}

func newTrio(t *testing.T) *trio {
	tr := &trio{secret: "a secret of the test"}
	for i := range tr.places {
		tr.places[i] = newPlace(t)
		tr.addrs[i] = must(rig.FreeAddr())(t) // which stays free while the node is stopped
	}
	t.Cleanup(func() {
		var all sync.WaitGroup
		for i := range tr.nodes {
			if tr.nodes[i] != nil {
				all.Go(func() { tr.stop(t, i) })
			}
		}
		all.Wait()
	})
	return tr
}

func (tr *trio) options(i int) Options {
	s := tr.places[i].settings()
	s.NodeName = fmt.Sprintf("n%d", i+1)
	s.Cluster = config.Cluster{Address: tr.addrs[i], Join: tr.addrs[:], Secret: tr.secret}
	log := slog.New(slog.DiscardHandler)
	if os.Getenv("MESH_LOG") != "" {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil)).With("at", s.NodeName)
	}
	return Options{Settings: s, FS: tr.places[i].disk, Clock: clock.System(), Logger: log, Version: "test", Context: context.Background(), Levels: tr.levels}
}

// start starts some of the nodes, at the same time.
func (tr *trio) start(t *testing.T, which ...int) {
	t.Helper()
	var all sync.WaitGroup
	for _, i := range which {
		all.Go(func() {
			n, err := Start(tr.options(i))
			if err != nil {
				t.Error(err)
			}
			tr.nodes[i] = n
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
}

// raised waits until all nodes are at the level of the formats that they know: a cluster that has just begun goes there when all have met.
func (tr *trio) raised(t *testing.T) {
	t.Helper()
	for _, n := range tr.nodes {
		eventually(t, "the level of the formats", func() bool { return n.catalog.View().Level() >= 2 })
	}
}

func (tr *trio) stop(t *testing.T, i int) {
	t.Helper()
	n := tr.nodes[i]
	tr.nodes[i] = nil
	if err := n.Stop(); err != nil {
		t.Error(err)
	}
}

// What is declared on one node can be used on another at once.
func TestClusterDeclaresEverywhere(t *testing.T) {
	tr := newTrio(t)
	tr.start(t, 2, 0, 1)
	var chans [3]*amqp.Channel
	for i, n := range tr.nodes {
		chans[i] = open(t, n)
	}
	for k := range 100 {
		name := fmt.Sprintf("q%d", k)
		on, other := k%3, (k+1)%3
		must(chans[on].QueueDeclare(name, true, false, false, false, nil))(t)
		must(chans[other].QueueDeclarePassive(name, true, false, false, false, nil))(t)
		send(t, chans[other], name, amqp.Persistent, "hello")
		d, ok, err := chans[(k+2)%3].Get(name, true)
		if err != nil || !ok || string(d.Body) != "hello" {
			t.Fatalf("queue %s: %v, %v, %q", name, err, ok, d.Body)
		}
	}
	for i, n := range tr.nodes {
		list, total, err := n.Broker().ListQueues("/", broker.QueuePage{})
		if err != nil || total != 100 || len(list) != 100 {
			t.Errorf("node %d lists %d queues of 100: %v", i, total, err)
		}
	}
}

// A node that gives itself another name or address as it starts, and is removed at this very moment, does not come back by it.
func TestARemovedNodeIsNotRenamed(t *testing.T) {
	tr := newTrio(t)
	tr.start(t, 0, 1, 2)
	tr.stop(t, 2)
	m := tr.nodes[0].mesh
	third := *tr.nodes[0].catalog.View().NodeByName("n3")
	third.Addr = "127.0.0.1:1"
	if err := m.rename(t.Context(), third); err != nil {
		t.Fatal(err)
	}
	if now := tr.nodes[0].catalog.View().Node(third.ID); now.Addr != third.Addr || now.Incarnation != third.Incarnation {
		t.Errorf("it is %+v", now)
	}
	if _, err := tr.nodes[0].ask(t.Context(), catalog.RemoveNode(third.ID)); err != nil {
		t.Fatal(err)
	}
	if err := m.rename(t.Context(), third); !errors.Is(err, ErrRemoved) {
		t.Errorf("it was renamed: %v", err)
	}
	if now := tr.nodes[0].catalog.View().Node(third.ID); now != nil {
		t.Errorf("it is back: %+v", now)
	}
}
