package session

import (
	"testing"
	"time"

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
