package queuehost

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
)

// R411: a publisher that has used up its credit waits until queues give some of it back.
func TestCreditHoldsBackAndLetsGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Credit{pool: newCreditPool(1000, 1<<20, 0)}
		stop := make(chan struct{})
		want(t, "at first", c.Wait(stop), true)
		c.charge(1500)
		let := false
		go func() { let = c.Wait(stop) }()
		synctest.Wait()
		want(t, "charged", let, false)
		c.give(100)
		synctest.Wait()
		want(t, "still too much", let, false)
		c.give(500)
		synctest.Wait()
		want(t, "given back", let, true)
		c.charge(1000)
		answered, got := false, true
		go func() { got = c.Wait(stop); answered = true }()
		synctest.Wait()
		close(stop)
		synctest.Wait()
		want(t, "stopped", []bool{answered, got}, []bool{true, false})
	})
}

// The workers of a connection's channels wait beside its reader: whoever waits
// is let go, whether others of the connection came, or left, meanwhile.
func TestCreditLetsAllWaitersGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Credit{pool: newCreditPool(1000, 1<<20, 0)}
		c.charge(1500)
		c.applied(1500)
		var let atomic.Int64
		wait := func(stop <-chan struct{}) {
			if c.Wait(stop) {
				let.Add(1)
			}
		}
		stop := make(chan struct{})
		for range 3 {
			go wait(nil)
			synctest.Wait()
		}
		go wait(stop)
		synctest.Wait()
		close(stop)
		synctest.Wait()
		want(t, "let go while there is no credit", let.Load(), int64(0))
		c.give(1500)
		synctest.Wait()
		want(t, "let go", let.Load(), int64(3))
		want(t, "still waited for", []any{len(c.pool.waiters), c.waiting.Load()}, []any{0, false})
	})
}

// When the node's credit is used up, everybody is left with a small share.
func TestCreditUnderPressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newCreditPool(4<<20, 8<<20, 0)
		cs := make([]*Credit, 10)
		let := make([]bool, len(cs))
		for i := range cs {
			cs[i] = &Credit{pool: p}
			cs[i].charge(1 << 20)
			cs[i].applied(1 << 20)
		}
		for i := range cs { // only now: before, there was credit for the first of them
			go func() { let[i] = cs[i].Wait(nil) }()
		}
		fresh := &Credit{pool: p}
		want(t, "a newcomer's share", fresh.Wait(nil), true)
		synctest.Wait()
		for i := range let {
			want(t, "let go", let[i], false)
		}
		for i := range 3 {
			cs[i].give(1 << 20)
		}
		synctest.Wait()
		for i := range let {
			want(t, "let go", let[i], true)
		}
	})
}

// What lies in inboxes is bounded more tightly than what waits for the disk.
func TestCreditForInboxes(t *testing.T) {
	c := &Credit{pool: newCreditPool(4<<20, 8<<20, 0)}
	c.charge(inboxLimit)
	want(t, "in inboxes", c.Enough(), false)
	c.applied(1)
	want(t, "applied", c.Enough(), true)
	c.applied(inboxLimit - 1)
	c.give(inboxLimit)
	want(t, "in flight", []int64{c.InFlight(), c.inbox.Load()}, []int64{0, 0})
}

// A publisher without confirms is held back by the disk, and goes on when it has caught up.
func TestCreditIsGivenBackWhenOnDisk(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{durable(7), transient(8)}, func(_ *replicaOptions, o *Options) { o.ConnectionCredit = 1000 })
	c := r.reg.NewCredit()
	put := func(h *Handle, persistent bool) {
		h.Publish([]Publish{{Message: text(string(make([]byte, 1000))), Persistent: persistent, Credit: c}})
	}
	put(r.queue(7), true)
	r.step()
	want(t, "enough", c.Enough(), false)
	r.settle()
	want(t, "in flight", c.InFlight(), int64(0))
	put(r.queue(7), false)
	put(r.queue(8), true)
	want(t, "enough", c.Enough(), false)
	r.step()
	want(t, "in flight", c.InFlight(), int64(0))
	r.reg.Drop(8, nil, nil)
	h := r.queue(7)
	h.Seal(false, false, func(uint64, error) {})
	put(h, true)
	r.step()
	r.reg.Drop(7, nil, nil)
	r.step()
	want(t, "in flight", []int64{c.InFlight(), c.inbox.Load()}, []int64{0, 0})
}

// Nobody waits for a publish without a ticket; its connection does when it is out
// of credit, and must not wait for a sync that somebody else asks for.
func TestOutOfCreditAsksForASync(t *testing.T) {
	r := newRig(t, newFakeLog(), []QueueDef{durable(7)}, func(_ *replicaOptions, o *Options) { o.ConnectionCredit = 1000 })
	c := r.reg.NewCredit()
	put := func(n int) {
		r.queue(7).Publish([]Publish{{Message: text(string(make([]byte, n))), Persistent: true, Credit: c}})
		r.step()
	}
	put(100)
	want(t, "syncs asked for", r.log.syncs, 0)
	put(1000)
	want(t, "syncs asked for without credit", r.log.syncs, 1)
}

func TestWindow(t *testing.T) {
	w := Window{Size: 10}
	var grants []uint32
	for range 12 {
		if g := w.Sent(2); g > 0 {
			grants = append(grants, g)
		}
	}
	want(t, "grants", grants, []uint32{6, 6, 6, 6})
	one := Window{Size: 1}
	want(t, "a window of one", one.Sent(1), uint32(1))
}
