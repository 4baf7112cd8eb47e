package node

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"holdfast/internal/broker"
	"holdfast/internal/catalog"
	"holdfast/test/rig"
)

// upgrade starts a node of a trio with a build that knows these levels.
func (tr *trio) upgrade(i int, l catalog.Levels) (err error) {
	o := tr.options(i)
	o.Levels = l
	n, err := Start(o)
	if err == nil {
		tr.nodes[i] = n
	}
	return err
}

func wantRefused(t *testing.T, what string, err error) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), "the cluster is at level 2 of its formats, this version of the node knows level 1 only: update this node") {
		t.Errorf("%s: %v", what, err)
	}
}

// R310: a rolling upgrade to a build that knows the next level of the formats: the cluster goes there when the last node knows it. Then
// an older build is refused, whether it comes anew, or on a folder that is at that level, be it written down beside the log or not.
func TestTheLevelRisesWithTheLastNode(t *testing.T) {
	tr := newTrio(t)
	old, both := catalog.Levels{Least: 1, Most: 1}, catalog.Levels{Least: 1, Most: 2}
	tr.levels = old
	tr.start(t, 0, 1, 2)
	for i := range 2 {
		tr.stop(t, i)
		if err := tr.upgrade(i, both); err != nil {
			t.Fatal(err)
		}
	}
	v := tr.nodes[1].catalog.View()
	if v.Level() != 1 || v.NextLevel() != 0 {
		t.Fatalf("with one old node the level is %d, the next one %d", v.Level(), v.NextLevel())
	}
	policy := broker.AdminPolicy{VHost: "/", Name: "p", Pattern: ".*", Definition: map[string]any{"max-length": json.Number("5")}}
	if err := tr.nodes[1].broker.SetPolicy(policy); err == nil || !strings.Contains(err.Error(), "every node of the cluster has to run a version that knows it first") {
		t.Errorf("a policy at level 1: %v", err)
	}
	tr.stop(t, 0) // there is a way back
	tr.start(t, 0)
	for n := range tr.nodes[0].catalog.View().Nodes().All() {
		if want := n.Name == "n2"; (n.Levels() == both) != want || (n.Levels() == old) == want {
			t.Errorf("node %s knows %v", n.Name, n.Levels())
		}
	}
	tr.stop(t, 2)
	if err := tr.upgrade(2, both); err != nil {
		t.Fatal(err)
	}
	tr.stop(t, 2)
	tr.stop(t, 0)
	if err := tr.upgrade(0, both); err != nil {
		t.Fatal(err)
	}
	for _, n := range tr.nodes[:2] {
		eventually(t, "the cluster is at level 2, one node is away", func() bool { return n.catalog.View().Level() == 2 })
	}
	wantRefused(t, "a folder that is not yet at level 2", tr.upgrade(2, old)) // the others tell
	if err := tr.upgrade(2, both); err != nil {
		t.Fatal(err)
	}
	for _, n := range tr.nodes {
		eventually(t, "the cluster is at level 2", func() bool { return n.catalog.View().Level() == 2 })
	}
	if c := tr.nodes[0].cluster(); c.Level != 2 || c.Nodes[2].Levels.Least != 1 || c.Nodes[2].Levels.Most != 2 {
		t.Errorf("the status: %+v", c)
	}
	must(open(t, tr.nodes[0]).QueueDeclare("q", true, false, false, false, nil))(t)
	if err := tr.nodes[1].broker.SetPolicy(policy); err != nil {
		t.Fatal(err)
	}
	for _, n := range tr.nodes {
		eventually(t, "the policy holds on every node", func() bool {
			q := n.catalog.View().Queue("/", "q")
			return q != nil && n.catalog.View().Effective(q).MaxLength == catalog.LimitOf(5)
		})
	}

	joins := &trio{secret: tr.secret, addrs: tr.addrs, levels: old}
	joins.places[0], joins.addrs[0] = newPlace(t), must(rig.FreeAddr())(t)
	o := joins.options(0)
	o.Settings.NodeName, o.Settings.Cluster.Join = "n4", tr.addrs[:1]
	n, err := Start(o)
	if wantRefused(t, "a node that joins", err); err == nil {
		stop(t, n)
	}
	if n := tr.nodes[0].catalog.View().NodeByName("n4"); n != nil {
		t.Errorf("it was let in: %+v", n)
	}

	tr.stop(t, 2)
	wantRefused(t, "a folder at level 2", tr.upgrade(2, old))
	disk, dir := tr.places[2].disk, tr.places[2].dir
	id := must(readIdentity(disk, dir))(t)
	if id.Level != 2 {
		t.Errorf("level %d is written down", id.Level)
	}
	id.Level = 0
	if err := id.save(disk, dir); err != nil {
		t.Fatal(err)
	}
	wantRefused(t, "a folder with the level in its log alone", tr.upgrade(2, old))
	if err := tr.upgrade(2, catalog.Levels{Least: 2, Most: 2}); err != nil {
		t.Fatal(err)
	}
	must(open(t, tr.nodes[2]).QueueDeclarePassive("q", true, false, false, false, nil))(t)
	if info := must(tr.nodes[2].broker.QueueInfo("/", "q"))(t); info.Policy != "p" {
		t.Errorf("after a restart the queue has the policy %q", info.Policy)
	}
}

// R330: a folder of a build that knew the first level only goes up at the first start of one that knows policies, and what is set
// then is there after the next.
func TestAFolderOfTheFirstLevelGetsPolicies(t *testing.T) {
	p := newPlace(t)
	o := options(p.settings(), p.disk)
	o.Levels = catalog.Levels{Least: 1, Most: 1}
	n := must(Start(o))(t)
	must(open(t, n).QueueDeclare("q", true, false, false, false, nil))(t)
	policy := broker.AdminPolicy{VHost: "/", Name: "p", Pattern: ".*", Definition: map[string]any{"max-length": json.Number("5")}}
	if err := n.broker.SetPolicy(policy); err == nil {
		t.Error("a policy was set at level 1")
	}
	stop(t, n)
	o.Levels = catalog.KnownLevels()
	n = must(Start(o))(t)
	if err := n.broker.SetPolicy(policy); err != nil {
		t.Fatal(err)
	}
	stop(t, n)
	n = must(Start(o))(t)
	defer stop(t, n)
	if info := must(n.broker.QueueInfo("/", "q"))(t); info.Policy != "p" || info.EffectiveDefinition["max-length"] != int64(5) {
		t.Errorf("policy %q, %v", info.Policy, info.EffectiveDefinition)
	}
}

// A node that is alone is a cluster of its own: it goes to the latest level that it knows, and there is no way back.
func TestTheLevelOfANodeAlone(t *testing.T) {
	p := newPlace(t)
	run := func(least, most uint16) (level uint16, err error) {
		o := options(p.settings(), p.disk)
		o.Levels = catalog.Levels{Least: least, Most: most}
		n, err := Start(o)
		if err != nil {
			return 0, err
		}
		level = n.catalog.View().Level()
		if c := n.cluster(); c.Level != int(level) || c.Nodes[0].Levels.Most != int(most) {
			t.Errorf("the status: %+v", c)
		}
		stop(t, n)
		return level, nil
	}
	for _, c := range []struct{ least, most, level uint16 }{{1, 1, 1}, {1, 2, 2}, {1, 1, 0}, {3, 3, 0}, {2, 3, 3}, {3, 3, 3}} {
		if level, err := run(c.least, c.most); level != c.level || (err == nil) != (c.level != 0) {
			t.Errorf("%d to %d: level %d, want %d: %v", c.least, c.most, level, c.level, err)
		}
	}
	p = newPlace(t)
	if level, err := run(4, 5); level != 5 || err != nil {
		t.Errorf("a new folder: level %d, %v", level, err)
	}
}

// R619: that there is no way back is news where older versions have written, and not where the folder is new.
func TestTheLevelIsNewsToAnOldFolder(t *testing.T) {
	for _, old := range []bool{false, true} {
		p := newPlace(t)
		run := func(most uint16) *journal {
			j := new(journal)
			o := options(p.settings(), p.disk)
			o.Logger, o.Levels = slog.New(slog.NewTextHandler(j, nil)), catalog.Levels{Least: 1, Most: most}
			stop(t, must(Start(o))(t))
			return j
		}
		if old {
			run(1)
		}
		if said := run(2).has("there is no way back"); said != old {
			t.Errorf("old %v: said %v", old, said)
		}
	}
}

// R645: a queue goes by the level that the folder says the cluster is at, while the catalog here is behind: what messages say of themselves
// counts. A start knows it before anything else.
func TestQueuesGoByTheLevelOfTheFolder(t *testing.T) {
	var early Node
	early.levels.known, early.identity.Level = catalog.Levels{Least: 1, Most: 2}, 2
	if err := early.readable(false); err != nil || early.levels.inUse() != 2 {
		t.Errorf("a folder of level 2: queues go by level %d (%v)", early.levels.inUse(), err)
	}
	var fresh Node
	if level := fresh.levels.inUse(); level != 1 {
		t.Errorf("a new folder: queues go by level %d", level)
	}

	p := newPlace(t)
	o := options(p.settings(), p.disk)
	o.Levels = catalog.Levels{Least: 1, Most: 1}
	n := must(Start(o))(t)
	defer stop(t, n)
	n.levels.at.Store(2) // as if the catalog had not learned of it yet
	ch := open(t, n)
	must(ch.QueueDeclare("q", true, false, false, false, nil))(t)
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	c := must(ch.PublishWithDeferredConfirm("", "q", false, false, amqp.Publishing{Expiration: "1", Body: []byte("a")}))(t)
	if !c.Wait() {
		t.Fatal("the message was not confirmed")
	}
	eventually(t, "the message has expired", func() bool { return must(n.broker.QueueInfo("/", "q"))(t).MessagesReady == 0 })
}
