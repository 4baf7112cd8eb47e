package broker

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"holdfast/internal/catalog"
	"holdfast/internal/clock"
	"holdfast/internal/queuehost"
)

// afar is a rig of node 1 with queues of nodes 2 and 3, whose links take everything and answer nothing.
func afar(t *testing.T) (*rig, *clock.Manual) {
	hands := clock.NewManual(time.Unix(1_700_000_000, 0))
	r := newRigAt(t, clock.System(), deaf{})
	r.clock = hands
	r.inCluster()
	for _, node := range []uint64{2, 3} {
		r.queues.LinkUp(node, 1)
		r.must(catalog.DeclareQueue(catalog.QueueDecl{VHost: vhost, Name: fmt.Sprint("at", node), Durable: true, Home: node}))
	}
	return r, hands
}

// to publishes to queues and does not wait.
func (c *client) to(queues ...string) {
	c.t.Helper()
	p := c.Publisher()
	for _, q := range queues {
		n, err := publish(p, "", q, nil, "x", nil, 0)
		if ok(c.t, "publish", err); n != 1 {
			c.t.Fatalf("%s: %d queues", q, n)
		}
	}
	p.Flush()
}

func (c *client) holds() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held
}

// R495: a connection is held back from its first publish on to a queue that a node with an alarm serves, once, with the reason, until
// no alarm is on there. Who publishes elsewhere, or not at all, is not touched.
func TestAlarmsElsewhere(t *testing.T) {
	r, _ := afar(t)
	r.connect().declare(DeclareQueue{Name: "here"})
	before, at2, at3, here := r.connect(), r.connect(), r.connect(), r.connect()
	before.to("at2") // without an alarm
	says := func(what string, c *client, want ...string) {
		t.Helper()
		if got := c.holds(); strings.Join(got, ", ") != strings.Join(want, ", ") {
			t.Errorf("%s: told %q, want %q", what, got, want)
		}
	}
	two := NodeAlarms{Node: 2, Name: "n2", Kinds: []AlarmKind{AlarmDisk}}
	r.SetAlarmsElsewhere([]NodeAlarms{two})
	at3.to("at3", "here")
	here.to("here")
	at2.to("here", "at2", "at2")
	at2.to("at2")
	both := r.connect()
	both.to("at2", "at3")
	for what, c := range map[string]*client{"before": before, "another node": at3, "here": here} {
		says(what, c)
	}
	says("at the node", at2, "low on disk at node n2")

	r.Reconsider()
	two.Kinds = []AlarmKind{AlarmDisk, AlarmMemory}
	three := NodeAlarms{Node: 3, Name: "n3", Kinds: []AlarmKind{AlarmMemory}}
	r.SetAlarmsElsewhere([]NodeAlarms{two, three})
	says("an alarm more", at2, "low on disk at node n2")
	both.to("at3")
	before.to("at2")
	says("both alarms", before, "low on disk & memory at node n2")
	if list := r.AlarmsElsewhere(); len(list) != 2 || list[0].Since.IsZero() || !reflect.DeepEqual(list[0].Kinds, two.Kinds) {
		t.Errorf("listed: %+v", list)
	}
	if got := r.Totals().BlockedReason; got != "low on disk & memory" {
		t.Errorf("counted as %q", got)
	}
	if _, err := r.AdminPublish(AdminPublish{VHost: vhost, RoutingKey: "at2"}); kind(err) != Unavailable || !strings.Contains(err.Error(), "n2") {
		t.Errorf("an operator's publish: %v", err)
	}
	r.SetAlarmsElsewhere([]NodeAlarms{three})
	says("over", at2, "low on disk at node n2", "")
	says("over at one of two", both, "low on disk at node n2")
	gone := r.connect()
	gone.to("at3")
	gone.end()
	r.SetAlarmsElsewhere(nil)
	says("over at both", both, "low on disk at node n2", "")
	says("a connection that has gone", gone, "low on memory at node n3")
	says("another node, at last", at3)
	at2.to("at2")
	says("afterwards", at2, "low on disk at node n2", "")
	if r.Totals().BlockedReason != "" || len(r.farAlarms.held) != 0 {
		t.Errorf("left behind: %v", r.farAlarms.held)
	}
}

// R496: a queue that others can lead counts as that node's when it had a moment to hand it over and did not. Those held back for it go on
// as soon as another one leads it, or it is deleted.
func TestAlarmsElsewhereOfQueuesThatAreHandedOver(t *testing.T) {
	r, hands := afar(t)
	leader := uint64(2)
	r.farAlarms.home = func(h *queuehost.Handle) (uint64, bool) {
		if h.Def().Name == "at3" {
			return leader, true
		}
		return h.Home(), false
	}
	c := r.connect()
	r.SetAlarmsElsewhere([]NodeAlarms{{Node: 2, Name: "n2", Kinds: []AlarmKind{AlarmMemory}}})
	c.to("at3")
	hands.Advance(handOverGrace - 1)
	c.to("at3")
	if got := c.holds(); got != nil {
		t.Errorf("held back before it could be handed over: %q", got)
	}
	hands.Advance(1)
	r.Reconsider()
	c.to("at3")
	leader = 0 // nobody, for a moment
	r.Reconsider()
	leader = 2
	c.to("at3")
	leader = 3
	r.Reconsider()
	const told = "low on memory at node n2"
	if got := c.holds(); !reflect.DeepEqual(got, []string{told, "", told, ""}) {
		t.Errorf("told %q", got)
	}
	c.to("at3")
	c.to("at2")
	r.must(catalog.DeleteQueues([]catalog.QueueID{r.view().Queue(vhost, "at2").ID}))
	r.Sync()
	r.Reconsider()
	if got := c.holds(); !reflect.DeepEqual(got[4:], []string{told, ""}) {
		t.Errorf("told %q", got)
	}
}
