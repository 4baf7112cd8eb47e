package node

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"holdfast/internal/broker"
	"holdfast/internal/mgmt/socket"
)

// The majority of the nodes is lost for good: the one that is left goes on alone, with what it has, takes the others out, and is
// a cluster that can be changed again. Not while any of them answers.
func TestForceBoot(t *testing.T) {
	tr := newTrio(t)
	tr.start(t, 0, 1, 2)
	must(open(t, tr.nodes[0]).QueueDeclare("before", true, false, false, false, nil))(t)
	var no *broker.AdminError
	eventually(t, "the node sees that the others are there", func() bool {
		err := tr.nodes[0].forceCatalog(t.Context())
		if !errors.As(err, &no) || no.Kind != broker.Rejected {
			t.Fatalf("while the others are there: %v", err)
		}
		return strings.Contains(no.Text, "n2, n3")
	})
	for i := range tr.nodes {
		tr.stop(t, i)
	}

	o := tr.options(0)
	var forced error = errors.New("not asked")
	o.Force = func(err error) { forced = err }
	n, err := Start(o) // which waits for two of three otherwise
	if err != nil || forced != nil {
		t.Fatal(err, forced)
	}
	tr.nodes[0] = n
	for _, name := range []string{"n2", "n3"} {
		if err := n.Forget(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	ch := open(t, n)
	must(ch.QueueDeclarePassive("before", true, false, false, false, nil))(t)
	must(ch.QueueDeclare("after", true, false, false, false, nil))(t)
	if c := n.cluster(); len(c.Nodes) != 1 || !c.Nodes[0].Leader {
		t.Errorf("the cluster: %+v", c.Nodes)
	}
	if err := n.forceCatalog(t.Context()); !errors.As(err, &no) || !strings.Contains(no.Text, "has a leader") {
		t.Errorf("once more: %v", err)
	}
}

// The same by command, of a process whose node waits for the others: it goes on at once.
func TestForceBootWhileItWaits(t *testing.T) {
	tr := newTrio(t)
	tr.start(t, 0, 1, 2)
	for i := range tr.nodes {
		tr.stop(t, i)
	}
	type began struct {
		life *Life
		err  error
	}
	up := make(chan began, 1)
	o := tr.options(0)
	go func() {
		life, err := Begin(o, nil)
		up <- began{life, err}
	}()
	door := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return socket.Dial(ctx, o.Settings.DataDir)
	}}}
	var last string
	eventually(t, "the node goes on", func() bool {
		answer, err := door.Post("http://node/api/app/force-boot", "application/json", nil)
		if err != nil {
			return false // there is no door yet
		}
		defer answer.Body.Close()
		body, _ := io.ReadAll(answer.Body)
		last = string(body)
		return answer.StatusCode == 200 && strings.Contains(last, "false")
	})
	b := <-up
	if b.err != nil {
		t.Fatal(b.err, last)
	}
	defer func() {
		if err := b.life.End(); err != nil {
			t.Error(err)
		}
	}()
	if err := b.life.Forget(t.Context(), "n2", true); err != nil { // as ever: it has a leader now
		t.Error(err)
	}
	if n := b.life.running(); n == nil || n.catalog.View().Nodes().Len() != 2 {
		t.Errorf("the node: %v, %+v", n, b.life.State())
	}
}

// A node that has stopped writes nothing more, not even on an order.
func TestForceBootOfANodeThatHasStopped(t *testing.T) {
	tr := newTrio(t)
	tr.start(t, 0, 1, 2)
	n := tr.nodes[0]
	tr.stop(t, 1)
	tr.stop(t, 2)
	eventually(t, "nobody else is there", func() bool { return len(n.mesh.whoAnswers(t.Context())) == 0 })
	tr.stop(t, 0)
	var no *broker.AdminError
	if err := n.forceCatalog(t.Context()); !errors.As(err, &no) || !strings.Contains(no.Text, "stopping") {
		t.Errorf("it goes on alone: %v", err)
	}
	if id := must(readIdentity(tr.places[0].disk, tr.places[0].dir))(t); id.Forcing != nil {
		t.Error("the order was written down")
	}
}
