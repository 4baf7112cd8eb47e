package session

import (
	"testing"
	"time"

	"holdfast/internal/config"
	"holdfast/internal/wire"
)

// The end of the server cuts off who is still shaking hands, and waits for who
// is saying goodbye.
func TestCloseOfTheServer(t *testing.T) {
	r := newRig(t)
	s := &script{rig: r}
	early, open := s.dial(t), r.client(t)
	early.write([]byte("AMQP\x00\x00\x09\x01"))
	early.expect(wire.IDConnectionStart)
	r.broker.CloseAllConnections("", "", "maintenance")
	open.expect(wire.IDConnectionClose)
	closed := make(chan struct{})
	go func() {
		r.server.Close(time.Minute)
		close(closed)
	}()
	if rest := early.untilClosed(); rest != "" {
		t.Errorf("the early one is told %s", rest)
	}
	open.method(0, &wire.ConnectionCloseOk{})
	if rest := open.untilClosed(); rest != "" {
		t.Errorf("the open one is told %s", rest)
	}
	open.nc.Close()
	<-closed
	if rest := s.dial(t).untilClosed(); rest != "" {
		t.Errorf("the late one is told %s", rest)
	}
}

// Clients beyond the limit are turned away until others have left.
func TestClientsBeyondTheLimit(t *testing.T) {
	r := newRig(t, func(_ *config.Settings, o *Options, _ *rig) { o.MaxConnections = 2 })
	s := &script{rig: r}
	first := s.dial(t)
	if got := first.tune(map[string]string{}); got != "0 connection.open-ok" {
		t.Fatal(got)
	}
	if got := s.dial(t).tune(map[string]string{}); got != "0 connection.open-ok" {
		t.Fatal(got)
	}
	if rest := s.dial(t).untilClosed(); rest != "" {
		t.Errorf("a third client is told %q", rest)
	}
	first.nc.Close()
	until(t, "the first has left", func() bool { return r.server.Counters().Connections == 1 })
	if got := s.dial(t).tune(map[string]string{}); got != "0 connection.open-ok" {
		t.Error("not let in again:", got)
	}
}
