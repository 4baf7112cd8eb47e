package blackbox

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"holdfast/test/rig"
)

// member is a broker with an address for other nodes.
type member struct {
	*node
	name, addr string
}

// newMember prepares a broker with the secret of a file, which is told of the nodes at some addresses.
func newMember(t *testing.T, secret, name string, join ...string) *member {
	t.Helper()
	addr := must(rig.FreeAddr())(t)
	args := []string{"--name", name, "--cluster", addr, "--cluster-secret-file", secret}
	if len(join) > 0 {
		args = append(args, "--join", strings.Join(join, ","))
	}
	return &member{ownNode(t, args...), name, addr}
}

// secretFile is a file with a secret that nodes share.
func secretFile(t *testing.T) string {
	t.Helper()
	if target.binary == "" {
		t.Skip("the broker is not ours to start")
	}
	secret := filepath.Join(t.TempDir(), "secret")
	ok(t, os.WriteFile(secret, []byte("what the nodes of this test know\n"), 0o600))
	return secret
}

// newCluster starts nodes n1, n2, and so on, which found a cluster together.
func newCluster(t *testing.T, n int) []*member {
	t.Helper()
	secret := secretFile(t)
	var list []*member
	var addrs []string
	for i := range n {
		m := newMember(t, secret, fmt.Sprintf("n%d", i+1))
		list, addrs = append(list, m), append(addrs, m.addr)
	}
	for _, m := range list {
		m.Extra = append(m.Extra, "--join", strings.Join(addrs, ","))
		ok(t, m.Launch())
	}
	for _, m := range list {
		ok(t, m.Ready())
	}
	return list
}

// secretOf is the secret's file of a node.
func (m *member) secret() string { return m.Extra[slices.Index(m.Extra, "--cluster-secret-file")+1] }

// fails runs a command that is to fail and gives its exit code and what it said.
func (m *member) fails(args ...string) (code int, text string) {
	m.t.Helper()
	out, err := m.Ctl(args...)
	if err == nil {
		m.t.Fatalf("ctl %v succeeded: %s", args, out)
	}
	code = -1
	for e := err; e != nil; {
		if exit, is := e.(*exec.ExitError); is {
			code = exit.ExitCode()
		}
		u, is := e.(interface{ Unwrap() error })
		if !is {
			break
		}
		e = u.Unwrap()
	}
	return code, err.Error()
}

// refuses asserts that a command fails with a code and says something.
func (m *member) refuses(code int, says string, args ...string) {
	m.t.Helper()
	if got, text := m.fails(args...); got != code || !strings.Contains(text, says) {
		m.t.Errorf("ctl %v: code %d, want %d, and %q in:\n%s", args, got, code, says, text)
	}
}

// does runs a command.
func (m *member) does(args ...string) string {
	m.t.Helper()
	return must(m.Ctl(args...))(m.t)
}

// known waits until a node lists these nodes, all of them up, and gives what it lists.
func (m *member) known(names ...string) (c clusterView) {
	m.t.Helper()
	until(m.t, fmt.Sprintf("%s sees %v up", m.name, names), func() bool {
		c = m.cluster()
		return slices.Equal(c.Disk, names) && slices.Equal(c.Running, names)
	})
	return c
}

// votes waits until so many nodes vote, as a node lists it.
func (m *member) votes(n int) {
	m.t.Helper()
	until(m.t, fmt.Sprintf("%d nodes vote", n), func() bool {
		votes := 0
		for _, node := range m.cluster().Nodes {
			if node.Voter {
				votes++
			}
		}
		return votes == n
	})
}

// said waits until a text is in the end of the log.
func (m *member) said(text string) {
	m.t.Helper()
	until(m.t, m.name+" says "+text, func() bool { return strings.Contains(m.Tail(), text) })
}

// absent asserts that there is no such queue.
func (m *member) absent(queue string) {
	m.t.Helper()
	_, err := m.open().QueueDeclarePassive(queue, true, false, false, false, nil)
	if e, is := err.(*amqp.Error); !is || e.Code != amqp.NotFound {
		m.t.Errorf("queue %s on %s: %v, want 404", queue, m.name, err)
	}
}

// Nodes that come later are let in through any node, get all there is, and a vote as soon as that makes an odd number.
func TestClusterNodesComeLater(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	ch := c[0].open()
	for k := range 50 {
		must(ch.QueueDeclare(fmt.Sprintf("q%02d", k), true, false, false, false, nil))(t)
	}
	c = append(c, newMember(t, c[0].secret(), "n4", c[1].addr))
	ok(t, c[3].Start())
	if names := c[3].queues(); len(names) != 50 {
		t.Errorf("the fourth node lists %d queues", len(names))
	}
	c[3].known("n1", "n2", "n3", "n4")
	c[0].votes(3)
	must(c[3].open().QueueDeclare("of-n4", true, false, false, false, nil))(t)
	must(ch.QueueDeclarePassive("of-n4", true, false, false, false, nil))(t)

	// The fifth knows but the fourth, which was not there when the cluster was founded and does not lead.
	c = append(c, newMember(t, c[0].secret(), "n5", c[3].addr))
	ok(t, c[4].Start())
	for _, m := range c {
		m.known("n1", "n2", "n3", "n4", "n5")
	}
	c[4].votes(5)
	// Two of five may go, be they founders, and who restarts finds the others although none of those it was told is there.
	ok(t, c[0].Kill())
	ok(t, c[3].Kill())
	must(c[4].open().QueueDeclare("two-are-away", true, false, false, false, nil))(t)
	ok(t, c[4].Kill())
	ok(t, c[4].Launch())
	ok(t, c[0].Start())
	ok(t, c[4].Ready())
	must(c[4].open().QueueDeclarePassive("q00", true, false, false, false, nil))(t)
}

// Who may not join is told why, and serves nobody.
func TestClusterRefusesAJoinerInClearWords(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 1)
	double := newMember(t, c[0].secret(), "n1", c[0].addr)
	ok(t, double.Launch())
	double.said("the cluster refuses this node")
	double.said("n1")
	if rig.Answers(double.Addr) {
		t.Error("the node serves clients")
	}
	// It is there for ctl all the same, and can be stopped.
	until(t, "ctl says why", func() bool {
		code, text := double.fails("status")
		return code == 69 && strings.Contains(text, "the node is starting (the cluster refuses this node: ")
	})
	double.does("stop_app")
	double.refuses(64, "start_app", "status")
	ok(t, double.Stop())
}

// join_cluster: an empty node that runs alone becomes a member; one that holds something, or is a member, does not.
func TestClusterJoinByCommand(t *testing.T) {
	t.Parallel()
	secret := secretFile(t)
	one, two := newMember(t, secret, "one"), newMember(t, secret, "two")
	ok(t, one.Start())
	ok(t, two.Start())
	must(one.open().QueueDeclare("of-one", true, false, false, false, nil))(t)
	must(two.open().QueueDeclare("of-two", true, false, false, false, nil))(t)

	two.refuses(70, "not empty: it has 1 queues", "join_cluster", one.addr)
	two.refuses(69, "cannot be asked", "join_cluster", must(rig.FreeAddr())(t))
	two.refuses(70, "cannot cluster node with itself", "join_cluster", two.addr)
	two.refuses(65, "not the address of a node", "join_cluster", "rabbit@one")
	two.refuses(64, "stop_app", "reset")
	must(two.open().QueueDeclarePassive("of-two", true, false, false, false, nil))(t) // nothing was done to it

	must(two.open().QueueDelete("of-two", false, false, false))(t)
	before := two.cluster().Nodes[0].ID
	if out := two.does("join_cluster", one.addr); !strings.Contains(out, "Clustering node two with "+one.addr) {
		t.Errorf("join_cluster said %q", out)
	}
	ok(t, two.Ready())
	for _, m := range []*member{one, two} {
		c := m.known("one", "two")
		if c.Nodes[0].ID == before || c.Nodes[1].ID == before {
			t.Error("the node has kept its old id")
		}
	}
	must(two.open().QueueDeclarePassive("of-one", true, false, false, false, nil))(t)
	if out := two.does("join_cluster", one.addr); !strings.Contains(out, "The node is already a member of this cluster") {
		t.Errorf("join_cluster by a member said %q", out)
	}
	other := newMember(t, secret, "other")
	ok(t, other.Start())
	two.refuses(70, "member of a cluster with others", "join_cluster", other.addr)

	// It stays a member when it is started anew, although nothing on its command line says so.
	ok(t, two.Stop())
	ok(t, two.Start())
	two.known("one", "two")
}

// reset takes a node out of its cluster; what lived on it is gone, and it is another node from then on.
func TestClusterResetLeaves(t *testing.T) {
	t.Parallel()
	secret := secretFile(t)
	one, two := newMember(t, secret, "one"), newMember(t, secret, "two")
	ok(t, one.Start())
	ok(t, two.Start())
	two.does("join_cluster", one.addr)
	must(one.open().QueueDeclare("of-one", true, false, false, false, nil))(t)
	must(two.open().QueueDeclare("of-two", true, false, false, false, nil))(t)
	must(one.open().QueueDeclarePassive("of-two", true, false, false, false, nil))(t)

	two.does("stop_app")
	two.does("stop_app") // no error
	two.does("ping")
	if rig.Answers(two.Addr) {
		t.Error("the stopped node serves clients")
	}
	var result struct{ Node, Result string }
	ok(t, json.Unmarshal([]byte(two.does("reset", "--formatter", "json")), &result))
	if result.Node != "two" || result.Result != "ok" {
		t.Errorf("reset said %+v", result)
	}
	until(t, "the cluster has one node", func() bool { return slices.Equal(one.cluster().Disk, []string{"one"}) })
	one.absent("of-two")
	one.said("a node was removed from the cluster")
	two.does("start_app")
	ok(t, two.Ready())
	two.known("two") // on its own again, since nobody has told it of others
	two.absent("of-one")
	must(two.open().QueueDeclare("anew", true, false, false, false, nil))(t)
	must(one.open().QueueDeclare("still", true, false, false, false, nil))(t) // and the other goes on

	// As with RabbitMQ: stopped, reset, joined, started.
	for _, command := range [][]string{{"stop_app"}, {"reset"}, {"join_cluster", one.addr}, {"start_app"}, {"start_app"}} {
		two.does(command...)
	}
	ok(t, two.Ready())
	two.known("one", "two")

	// Without the others reset is refused, and force_reset is not.
	two.does("stop_app")
	ok(t, one.Kill())
	two.refuses(69, "force_reset", "reset")
	two.does("force_reset")
	two.does("start_app")
	ok(t, two.Ready())
	two.known("two")
}

// forget_cluster_node removes a node that is away: its queues are gone, and it does not come back but as a new one.
func TestClusterForgetsANode(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	must(c[2].open().QueueDeclare("of-n3", true, false, false, false, nil))(t)
	c[0].refuses(69, "must be stopped", "forget_cluster_node", "n3")
	c[0].refuses(69, "not in the cluster", "forget_cluster_node", "nobody")
	c[0].refuses(69, "does not remove itself", "forget_cluster_node", "n1")
	ok(t, c[2].Kill())
	until(t, "n3 is not up", func() bool { return len(c[0].cluster().Running) == 2 && len(c[1].cluster().Running) == 2 })
	var result struct{ Node, Result string }
	ok(t, json.Unmarshal([]byte(c[0].does("forget_cluster_node", "n3", "--formatter", "json")), &result))
	if result.Result != "ok" {
		t.Errorf("forget_cluster_node said %+v", result)
	}
	for _, m := range c[:2] {
		m.known("n1", "n2")
		m.absent("of-n3")
		m.said("and with it the queues that lived there")
	}
	must(c[1].open().QueueDeclare("without-n3", true, false, false, false, nil))(t)
	c[0].votes(1)

	ok(t, c[2].Launch())
	c[2].said("the cluster has removed this node")
	if rig.Answers(c[2].Addr) {
		t.Error("the removed node serves clients")
	}
	until(t, "the node is stopped", func() bool {
		code, text := c[2].fails("status")
		return code == 64 && strings.Contains(text, "has removed this node")
	})
	c[2].does("reset")
	c[2].does("start_app")
	ok(t, c[2].Ready())
	for _, m := range c {
		m.known("n1", "n2", "n3")
	}
	c[1].votes(3)
	c[2].absent("of-n3")
	must(c[2].open().QueueDeclarePassive("without-n3", true, false, false, false, nil))(t)
}

// A removed node that was running on its own side of a cut stops when it hears of it.
func TestClusterStopsANodeThatWasRemoved(t *testing.T) {
	t.Parallel()
	c := newCluster(t, 3)
	pid := c[2].Pid()
	ok(t, pause(pid))
	until(t, "n3 is not up", func() bool { return len(c[0].cluster().Running) == 2 && len(c[1].cluster().Running) == 2 })
	c[0].does("forget_cluster_node", "n3")
	ok(t, resume(pid))
	c[2].said("the cluster has removed this node")
	until(t, "the node is stopped", func() bool { code, _ := c[2].fails("status"); return code == 64 })
	if rig.Answers(c[2].Addr) {
		t.Error("the removed node serves clients")
	}
}

// both is what a command says on its two streams.
func (m *member) both(args ...string) string {
	m.t.Helper()
	out, err := exec.Command(m.Binary, append([]string{"ctl", "--data", m.Data}, args...)...).CombinedOutput()
	ok(m.t, err)
	return string(out)
}
