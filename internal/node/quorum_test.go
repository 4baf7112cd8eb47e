package node

import (
	"fmt"
	"slices"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"holdfast/internal/broker"
	"holdfast/internal/mgmt"
	"holdfast/internal/replica"
	"holdfast/internal/seglog"
)

var quorum = amqp.Table{"x-queue-type": "quorum"}

// A node that is alone has quorum queues with one member; they keep everything over a restart.
func TestQuorumQueueOfANodeAlone(t *testing.T) {
	p := newPlace(t)
	n := p.run(t)
	ch := open(t, n)
	must(ch.QueueDeclare("q", true, false, false, false, quorum))(t)
	send(t, ch, "q", amqp.Transient, numbered("m", 10)...) // persistent all the same
	if _, ok, err := ch.Get("q", true); err != nil || !ok {
		t.Fatal(ok, err)
	}
	info, err := n.Broker().QueueInfo("/", "q")
	if err != nil || info.Type != "quorum" || info.Leader != n.name() || !slices.Equal(info.Members, []string{n.name()}) || info.State != "running" {
		t.Errorf("listed as %+v, %v", info, err)
	}
	eventually(t, "the queue knows that the first is gone", func() bool {
		info, err := n.Broker().QueueInfo("/", "q")
		return err == nil && info.MessagesReady == 9 && info.MessagesUnacknowledged == 0
	})
	stop(t, n)
	n = p.run(t)
	ch = open(t, n)
	must(ch.QueueDeclare("q", true, false, false, false, quorum))(t)
	if got, want := get(t, ch, "q"), numbered("m", 10)[1:]; !slices.Equal(got, want) {
		t.Errorf("after the restart: %v, want %v", got, want)
	}
	if n := must(ch.QueueDelete("q", true, true, false))(t); n != 0 {
		t.Errorf("%d messages went with the queue", n)
	}
	if _, err := open(t, n).QueueDeclarePassive("q", true, false, false, false, quorum); err == nil {
		t.Error("the deleted queue is there")
	}
}

// leads waits until a node of the trio leads a queue, and says which.
func (tr *trio) leads(t *testing.T, queue string, on int) int {
	t.Helper()
	found := -1
	eventually(t, "the queue has a leader", func() bool {
		info, err := tr.nodes[on].Broker().QueueInfo("/", queue)
		if err != nil || info.Leader == "" {
			return false
		}
		found = int(info.Leader[1] - '1')
		return true
	})
	return found
}

// A quorum queue is declared on one node and used on all of them. It is led where it was declared, and listed everywhere.
func TestClusterQuorumQueueEverywhere(t *testing.T) {
	tr := newTrio(t)
	tr.start(t, 0, 1, 2)
	var chans [3]*amqp.Channel
	for i, n := range tr.nodes {
		chans[i] = open(t, n)
	}
	for k := range 12 {
		name, on := fmt.Sprint("q", k), k%3
		args := amqp.Table{"x-queue-type": "quorum"}
		if k >= 9 {
			args["x-quorum-initial-group-size"] = 2
		}
		must(chans[on].QueueDeclare(name, true, false, false, false, args))(t)
		for i := range chans { // R81, R82
			send(t, chans[i], name, amqp.Persistent, fmt.Sprint("from", i))
		}
		for i, n := range tr.nodes { // R147
			eventually(t, "the listing is right", func() bool {
				info, err := n.Broker().QueueInfo("/", name)
				return err == nil && info.MessagesReady == 3
			})
			if list, _, err := n.Broker().ListQueues("/", broker.QueuePage{}); err != nil || len(list) != k+1 {
				t.Errorf("node %d lists %d queues, %v", i, len(list), err)
			}
		}
		for i := range chans {
			d, ok, err := chans[i].Get(name, true)
			if err != nil || !ok || string(d.Body) != fmt.Sprint("from", i) {
				t.Fatalf("queue %s on node %d: %v, %v, %q", name, i, err, ok, d.Body)
			}
		}
		if lead := tr.leads(t, name, (k+1)%3); lead != on {
			t.Errorf("queue %s was declared on node %d and is led by %d", name, on, lead)
		}
		for i, n := range tr.nodes { // R65, R66
			info, err := n.Broker().QueueInfo("/", name)
			if want := 3 - k/9; err != nil || len(info.Members) != want || len(info.Online) != want || info.State != "running" || info.Members[0] != fmt.Sprint("n", on+1) {
				t.Errorf("node %d lists %+v, %v", i, info, err)
			}
		}
	}
	must(chans[0].QueueDelete("q1", false, false, false))(t)
	for i := range chans {
		if _, err := open(t, tr.nodes[i]).QueueDeclarePassive("q1", true, false, false, false, quorum); err == nil {
			t.Errorf("node %d has the deleted queue", i)
		}
	}
}

// row is a row of quorum_status in short.
func row(m mgmt.QuorumMember) string {
	return fmt.Sprint(m.Node, " ", m.State, " ", m.Membership, " ", m.Last, " ", m.Applied)
}

// abreast waits until a queue has so many members that vote and have the same log.
func (tr *trio) abreast(t *testing.T, queue string, on, want int) {
	t.Helper()
	var last string
	defer func() {
		if t.Failed() {
			t.Log("the members: " + last)
		}
	}()
	eventually(t, "the members are abreast", func() bool {
		rows, err := tr.nodes[on].members.Status(t.Context(), "/", queue)
		last = fmt.Sprint(err)
		for _, r := range rows {
			last += "; " + row(r)
		}
		return err == nil && len(rows) == want && !slices.ContainsFunc(rows, func(r mgmt.QuorumMember) bool {
			return r.Membership != "voter" || r.Last != rows[0].Last || r.Applied != r.Last
		})
	})
}

// A member whose part of the log is damaged is replaced by another one, which gets everything from the leader.
func TestClusterQuorumDamagedMemberIsReplaced(t *testing.T) {
	tr := newTrio(t)
	tr.start(t, 0, 1, 2)
	ch := open(t, tr.nodes[0])
	must(ch.QueueDeclare("q", true, false, false, false, quorum))(t)
	must(ch.QueueDeclare("other", true, false, false, false, quorum))(t)
	send(t, ch, "q", amqp.Persistent, "before", "the damaged one", "after")
	send(t, ch, "other", amqp.Persistent, numbered("m", 20)...)
	tr.abreast(t, "q", 1, 3)
	tr.stop(t, 2)
	tr.places[2].damage(t, "the damaged one")
	tr.start(t, 2) // an orderly start does not look
	tr.abreast(t, "q", 0, 3)
	look := func() {
		t.Helper()
		ch := open(t, tr.nodes[2])
		for _, want := range []string{"before", "the damaged one", "after"} {
			if d, ok, err := ch.Get("q", false); err != nil || !ok || string(d.Body) != want {
				t.Fatalf("%v, %v, %q, want %q", err, ok, d.Body, want)
			}
		}
		if err := ch.Close(); err != nil { // they go back
			t.Fatal(err)
		}
	}
	transfer := func() {
		t.Helper()
		if err := tr.nodes[1].members.Transfer(t.Context(), "/", "q", "n3"); err != nil {
			t.Fatal(err)
		}
	}
	transfer()
	look() // it finds the damage; the message comes from another one, which takes over
	eventually(t, "the member is replaced", func() bool {
		m, is := tr.nodes[0].catalog.View().Queue("/", "q").MemberOn(tr.nodes[2].mesh.self)
		return is && m.ID != m.Node
	})
	tr.abreast(t, "q", 0, 3)
	// It is as good as any: also after a start, and as the leader.
	tr.stop(t, 2)
	tr.start(t, 2)
	tr.abreast(t, "q", 0, 3)
	transfer()
	look()
	tr.abreast(t, "other", 0, 3)
}

// A node is stopped and forgotten: it is taken out of its queues, and what it leaves goes on.
func TestClusterQuorumNodeIsForgotten(t *testing.T) {
	tr := newTrio(t)
	tr.start(t, 0, 1, 2)
	ch := open(t, tr.nodes[2])
	for _, q := range []string{"a", "b", "c"} {
		must(ch.QueueDeclare(q, true, false, false, false, quorum))(t)
		send(t, ch, q, amqp.Persistent, q)
	}
	tr.stop(t, 2)
	gone := tr.nodes[0].catalog.View().NodeByName("n3").ID
	eventually(t, "the node is not heard any more", func() bool { return !tr.nodes[0].mesh.isUp(gone) && !tr.nodes[1].mesh.isUp(gone) })
	if err := tr.nodes[0].Forget(t.Context(), "n3"); err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{"a", "b", "c"} {
		tr.abreast(t, q, 1, 2)
		if got := get(t, open(t, tr.nodes[1]), q); !slices.Equal(got, []string{q}) {
			t.Errorf("queue %s has %v", q, got)
		}
		eventually(t, "the group knows it, too", func() bool {
			st := make(chan int, 1)
			id := seglog.GroupID(tr.nodes[0].catalog.View().Queue("/", q).ID)
			tr.nodes[0].memberHere(id).AskRaftStatus(func(s replica.RaftStatus) { st <- len(s.Members) })
			return <-st == 2
		})
	}
}

// A member that was removed and comes back on the same node begins anew, and what it holds outlives a start.
func TestClusterQuorumMemberComesBack(t *testing.T) {
	tr := newTrio(t)
	tr.start(t, 0, 1, 2)
	ch := open(t, tr.nodes[0])
	must(ch.QueueDeclare("q", true, false, false, false, quorum))(t)
	send(t, ch, "q", amqp.Persistent, numbered("a", 50)...)
	ctx := t.Context()
	for range 2 {
		if err := tr.nodes[1].members.Delete(ctx, "/", "q", "n3"); err != nil {
			t.Fatal(err)
		}
		if err := tr.nodes[1].members.Add(ctx, "/", "q", "n3"); err != nil {
			t.Fatal(err)
		}
		tr.abreast(t, "q", 2, 3)
	}
	tr.stop(t, 2)
	send(t, ch, "q", amqp.Persistent, numbered("b", 50)...)
	tr.start(t, 2)
	tr.abreast(t, "q", 2, 3)
	if err := tr.nodes[0].members.Transfer(ctx, "/", "q", "n3"); err != nil {
		t.Fatal(err)
	}
	if got, want := get(t, open(t, tr.nodes[2]), "q"), append(numbered("a", 50), numbered("b", 50)...); !slices.Equal(got, want) {
		t.Errorf("it has %v", got)
	}
}

// What happens to queues while a node is away, it follows when it is back: a member that was removed is gone, with its part
// of the log; so is a queue that was deleted; one that was declared gets its member.
func TestClusterQuorumChangesWhileAway(t *testing.T) {
	tr := newTrio(t)
	tr.start(t, 0, 1, 2)
	ch := open(t, tr.nodes[0])
	for _, q := range []string{"removed", "deleted", "kept"} {
		must(ch.QueueDeclare(q, true, false, false, false, quorum))(t)
		send(t, ch, q, amqp.Persistent, numbered(q, 20)...)
		tr.abreast(t, q, 0, 3)
	}
	v := tr.nodes[0].catalog.View()
	gone := []seglog.GroupID{seglog.GroupID(v.Queue("/", "removed").ID), seglog.GroupID(v.Queue("/", "deleted").ID)}
	tr.stop(t, 2)
	if err := tr.nodes[1].members.Delete(t.Context(), "/", "removed", "n3"); err != nil {
		t.Fatal(err)
	}
	must(ch.QueueDelete("deleted", false, false, false))(t)
	send(t, ch, "kept", amqp.Persistent, numbered("more", 20)...)
	must(ch.QueueDeclare("new", true, false, false, false, amqp.Table{"x-queue-type": "quorum", "x-quorum-initial-group-size": 3}))(t)
	send(t, ch, "new", amqp.Persistent, "new")
	tr.start(t, 2)
	for _, q := range []string{"kept", "new"} {
		tr.abreast(t, q, 2, 3)
	}
	tr.abreast(t, "removed", 2, 2)
	n := tr.nodes[2]
	for _, id := range gone {
		eventually(t, "its group is gone", func() bool { return n.groups.Group(id) == nil })
	}
	if got := n.queues.Orphans(); len(got) > 0 {
		t.Errorf("orphans: %v", got)
	}
	at := open(t, n)
	if got, want := get(t, at, "removed"), numbered("removed", 20); !slices.Equal(got, want) {
		t.Errorf("through the node that has no member any more: %v", got)
	}
	if _, err := open(t, n).QueueDeclarePassive("deleted", true, false, false, false, quorum); err == nil {
		t.Error("the deleted queue is there")
	}
	tr.stop(t, 2)
	tr.start(t, 2)
	if got := tr.nodes[2].queues.Orphans(); len(got) > 0 {
		t.Errorf("orphans after another start: %v", got)
	}
	tr.abreast(t, "kept", 2, 3)
}

// A node that runs short of something hands over what it leads, so that publishers on others need not wait for it. R304
func TestClusterQuorumAlarmHandsOver(t *testing.T) {
	tr := newTrio(t)
	tr.start(t, 0, 1, 2)
	ch := open(t, tr.nodes[0])
	must(ch.QueueDeclare("q", true, false, false, false, quorum))(t)
	n := tr.nodes[0]
	n.alarm(n.broker, broker.AlarmDisk, true, "the test says so")
	eventually(t, "another node leads", func() bool { return tr.leads(t, "q", 1) != 0 })
	send(t, open(t, tr.nodes[1]), "q", amqp.Persistent, "from another node")
	n.alarm(n.broker, broker.AlarmDisk, false, "the test says so")
	if got := get(t, ch, "q"); !slices.Equal(got, []string{"from another node"}) {
		t.Errorf("got %v", got)
	}
}
