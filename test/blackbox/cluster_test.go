package blackbox

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"holdfast/test/rig"
)

// trio is three brokers that were told of each other.
type trio struct {
	t     *testing.T
	nodes [3]*node
}

// newTrio prepares three brokers; the test starts them.
func newTrio(t *testing.T) *trio {
	t.Helper()
	if target.binary == "" {
		t.Skip("the broker is not ours to start")
	}
	tr := &trio{t: t}
	secret := filepath.Join(t.TempDir(), "secret")
	ok(t, os.WriteFile(secret, []byte("what the nodes of this test know\n"), 0o600))
	var addrs [3]string
	for i := range addrs {
		addrs[i] = must(rig.FreeAddr())(t)
	}
	for i := range tr.nodes {
		tr.nodes[i] = ownNode(t, "--name", fmt.Sprintf("n%d", i+1), "--cluster", addrs[i], "--join", strings.Join(addrs[:], ","), "--cluster-secret-file", secret)
	}
	return tr
}

// ownNode prepares a broker that the test may start and kill.
func ownNode(t *testing.T, extra ...string) *node {
	t.Helper()
	b := must(rig.New(target.binary, t.TempDir(), extra...))(t)
	t.Cleanup(func() {
		_ = b.Kill()
		if t.Failed() {
			t.Logf("end of the broker's log:\n%s", b.Tail())
		}
	})
	return &node{Broker: b, t: t}
}

// start launches brokers in this order and waits until all serve.
func (tr *trio) start(order ...int) {
	tr.t.Helper()
	for _, i := range order {
		ok(tr.t, tr.nodes[i].Launch())
	}
	for _, i := range order {
		ok(tr.t, tr.nodes[i].Ready())
	}
}

// clusterView is what the test reads of cluster_status.
type clusterView struct {
	Disk    []string `json:"disk_nodes"`
	Running []string `json:"running_nodes"`
	Nodes   []struct {
		Name   string
		ID     string
		State  string
		Leader bool
		Voter  bool
	} `json:"nodes"`
}

func (n *node) cluster() (c clusterView) {
	n.t.Helper()
	out := must(n.Ctl("cluster_status", "--formatter", "json"))(n.t)
	ok(n.t, json.Unmarshal([]byte(out), &c))
	slices.Sort(c.Disk)
	slices.Sort(c.Running)
	return c
}

// until waits until a condition holds. The bound is the test's patience, not a promise: what is promised in time is measured.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	untilIn(t, 2*time.Minute, what, holds)
}

// untilIn is until with another bound.
func untilIn(t *testing.T, bound time.Duration, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(bound); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// leader is the node that leads the catalog, as node on sees it.
func (tr *trio) leader(on int) int {
	tr.t.Helper()
	found := -1
	until(tr.t, "the catalog has a leader", func() bool {
		for _, n := range tr.nodes[on].cluster().Nodes {
			if n.Leader && n.State == "up" {
				found = int(n.Name[1] - '1')
				return true
			}
		}
		return false
	})
	return found
}

// queues lists the names of the queues as a node tells them.
func (n *node) queues() []string {
	n.t.Helper()
	names := strings.Fields(must(n.Ctl("list_queues", "-s", "name"))(n.t))
	slices.Sort(names)
	return names
}

// R49: three nodes find together in any order, and what is declared on one is there on the others at once.
func TestClusterDeclareIsEverywhereAtOnce(t *testing.T) {
	t.Parallel()
	tr := newTrio(t)
	tr.start(2, 0, 1)
	for _, n := range tr.nodes {
		if c := n.cluster(); !slices.Equal(c.Disk, []string{"n1", "n2", "n3"}) {
			t.Errorf("disk nodes: %v", c.Disk)
		}
	}
	var chans [3]*amqp.Channel
	for i, n := range tr.nodes {
		chans[i] = n.open()
	}
	for k := range 1000 {
		name := fmt.Sprintf("q%04d", k)
		must(chans[k%3].QueueDeclare(name, true, false, false, false, nil))(t)
		for _, on := range []int{(k + 1) % 3, (k + 2) % 3} {
			if _, err := chans[on].QueueDeclarePassive(name, true, false, false, false, nil); err != nil {
				t.Fatalf("queue %d, declared on node %d, is not on node %d: %v", k, k%3, on, err)
			}
		}
	}
	for i, n := range tr.nodes {
		if names := n.queues(); len(names) != 1000 {
			t.Errorf("node %d lists %d queues", i, len(names))
		}
	}
}

// The catalog's leader is killed: the other two go on, and when it comes back it has everything.
func TestClusterLeaderOfTheCatalogIsKilled(t *testing.T) {
	t.Parallel()
	tr := newTrio(t)
	tr.start(0, 1, 2)
	lead := tr.leader(0)
	rest := []int{(lead + 1) % 3, (lead + 2) % 3}
	must(tr.nodes[lead].open().QueueDeclare("of-the-leader", true, false, false, false, nil))(t)
	ok(t, tr.nodes[lead].Kill())
	for k, i := range rest {
		must(tr.nodes[i].open().QueueDeclare(fmt.Sprintf("after-%d", k), true, false, false, false, nil))(t)
	}
	_, err := tr.nodes[rest[0]].open().QueueDeclarePassive("of-the-leader", true, false, false, false, nil)
	if e, is := err.(*amqp.Error); !is || e.Code != amqp.NotFound {
		t.Errorf("a queue of a node that is down: %v, want 404", err)
	}
	ok(t, tr.nodes[lead].Start())
	want := []string{"after-0", "after-1", "of-the-leader"}
	for i, n := range tr.nodes {
		if names := n.queues(); !slices.Equal(names, want) {
			t.Errorf("node %d has %v", i, names)
		}
	}
	for _, i := range rest {
		until(t, "the node that came back is up", func() bool { return len(tr.nodes[i].cluster().Running) == 3 })
	}
	must(tr.nodes[rest[1]].open().QueueDeclarePassive("of-the-leader", true, false, false, false, nil))(t)
}

// A node that does not know the secret is not let in.
func TestClusterRefusesAWrongSecret(t *testing.T) {
	t.Parallel()
	tr := newTrio(t)
	wrong := filepath.Join(t.TempDir(), "secret")
	ok(t, os.WriteFile(wrong, []byte("a guess"), 0o600))
	stranger := tr.nodes[2]
	stranger.Extra[len(stranger.Extra)-1] = wrong
	ok(t, stranger.Launch())
	tr.start(0, 1)
	until(t, "somebody says why", func() bool {
		return strings.Contains(stranger.Tail(), "secret") || strings.Contains(tr.nodes[0].Tail(), "secret")
	})
	if rig.Answers(stranger.Addr) {
		t.Error("the node serves clients")
	}
	if c := tr.nodes[0].cluster(); slices.Contains(c.Running, "n3") {
		t.Errorf("the node is in the cluster: %+v", c)
	}
}
