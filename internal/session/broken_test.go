package session

import (
	"errors"
	"testing"
	"time"

	"holdfast/internal/broker"
	"holdfast/internal/wire"
)

// serverSide returns the server's side of the only connection, nil if it has ended.
func (r *rig) serverSide() *conn {
	r.server.mu.Lock()
	defer r.server.mu.Unlock()
	for c := range r.server.conns {
		return c
	}
	return nil
}

// comesAbout waits for something that must come about.
func comesAbout(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("in vain: %s", what)
		}
	}
}

// A connection whose socket fails while its reader waits for something else
// ends: it neither stays nor spins.
func TestBrokenWhileHeldBack(t *testing.T) {
	r := newRig(t)
	c := (&script{rig: r}).dial(t)
	if got := c.tune(map[string]string{}); got != "0 connection.open-ok" {
		t.Fatal(got)
	}
	c.method(1, &wire.ChannelOpen{})
	c.expect(wire.IDChannelOpenOk)
	r.broker.SetAlarm(broker.AlarmMemory, true, "test")
	c.write(encodePublish(t, nil, 1, []string{"key=q", "body=x"}))
	s := r.serverSide()
	comesAbout(t, "the connection is held back", func() bool { return s.block.held() != nil })
	s.broken(errors.New("the client is gone"))
	comesAbout(t, "the connection has ended", func() bool { return r.serverSide() == nil })
}
