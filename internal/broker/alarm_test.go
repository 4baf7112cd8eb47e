package broker

import (
	"testing"
	"time"

	"holdfast/internal/amqperr"
)

func (c *client) state() (string, int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.blocked, c.told
}

// T49: an alarm is told once to each connection, new ones included, with all
// that is running short; consumers go on.
func TestAlarms(t *testing.T) {
	r := newRig(t)
	c := r.connect()
	c.declare(DeclareQueue{Name: "q"})
	c.send("", "q", "one")
	says := func(c *client, want string, times int) {
		t.Helper()
		if got, told := c.state(); got != want || told != times {
			t.Errorf("the connection was told %q, %d times; want %q, %d times", got, told, want, times)
		}
	}
	r.SetAlarm(AlarmMemory, true, "1 GiB in use")
	r.SetAlarm(AlarmMemory, true, "2 GiB in use")
	says(c, "low on memory", 1)
	late := r.connect()
	says(late, "low on memory", 1)
	r.SetAlarm(AlarmDisk, true, "full")
	says(c, "low on disk & memory", 2)
	if err := r.Health(); err == nil {
		t.Error("healthy under alarm")
	}
	if got := r.Alarms(); len(got) != 2 || got[0].Reason != "2 GiB in use" {
		t.Errorf("alarms: %+v", got)
	}
	if got := drain(c, "q"); len(got) != 1 {
		t.Errorf("got %v under alarm", got)
	}
	r.SetAlarm(AlarmMemory, false, "")
	r.SetAlarm(AlarmDisk, false, "")
	r.SetAlarm(AlarmDisk, false, "")
	says(c, "", 4)
	if err := r.Health(); err != nil {
		t.Error(err)
	}
}

// Closing: everybody is told, nobody new gets in, and the wait is bounded.
func TestCloseConnections(t *testing.T) {
	r := newRig(t)
	c := r.connect()
	if n := r.CloseConnections(amqperr.Shutdown(), 10*time.Second); n != 0 {
		t.Errorf("%d connections left", n)
	}
	if why := c.wasClosed(); why == nil || why.Code != 320 {
		t.Errorf("closed with %v", why)
	}
	if _, err := r.Register(c.user, vhost, "late", &client{t: t}); err == nil || err.Code != 320 {
		t.Errorf("a late connection: %v", err)
	}
}
