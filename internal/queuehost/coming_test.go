package queuehost

import (
	"testing"
	"testing/synctest"
	"time"
)

// R410: what has come of messages that are not complete is bounded, with what is in flight, by the node's credit. Beyond it one
// connection after the other completes its message.
func TestIncompleteMessagesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newCreditPool(1000, 1000)
		cs := make([]*Credit, 4)
		let := make([]int, len(cs))
		wait := func(i int, stop <-chan struct{}) {
			go func() {
				if cs[i].WaitToCome(stop) {
					let[i]++
				} else {
					let[i] = -1
				}
			}()
			synctest.Wait()
		}
		for i := range cs {
			cs[i] = &Credit{pool: p}
			want(t, "at first", cs[i].MayCome(), true)
			cs[i].Coming(300)
		}
		wait(0, nil) // has the turn
		stop := make(chan struct{})
		wait(1, nil)
		wait(2, stop)
		wait(3, nil)
		want(t, "let go on", let, []int{1, 0, 0, 0})
		cs[0].Coming(5000) // a large one
		want(t, "with the turn", []bool{cs[0].MayCome(), cs[1].MayCome()}, []bool{true, false})
		close(stop)
		synctest.Wait()
		cs[2].End()
		want(t, "let go on", let, []int{1, 0, -1, 0})
		cs[0].charge(1000) // complete, and on its way to the disk
		cs[0].Coming(-5300)
		synctest.Wait()
		want(t, "while all credit is in flight", let, []int{1, 0, -1, 0})
		cs[0].give(300)
		synctest.Wait()
		want(t, "when there is some again, for one", let, []int{1, 1, -1, 0})
		cs[1].Coming(-300)
		synctest.Wait()
		want(t, "and then for the next", let, []int{1, 1, -1, 1})
		cs[3].End()
		cs[0].give(700)
		want(t, "in the end", []any{p.coming.bytes.Load(), p.coming.turn.Load() == nil, len(p.coming.line), p.coming.pressed.Load(), len(p.waiters)}, []any{int64(0), true, 0, false, 0})
	})
}

// R410: a client that sends a part of a message and then nothing does not keep the turn from others, nor does one that goes.
func TestTurnOfWhoStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newCreditPool(1000, 1000)
		a, b, c := &Credit{pool: p}, &Credit{pool: p}, &Credit{pool: p}
		for _, x := range []*Credit{a, b, c} {
			x.Coming(600)
		}
		want(t, "the first", a.WaitToCome(nil), true)
		began, letB, letC := time.Now(), time.Duration(0), time.Duration(0)
		go func() { b.WaitToCome(nil); letB = time.Since(began) }()
		synctest.Wait()
		go func() { c.WaitToCome(nil); letC = time.Since(began) }()
		time.Sleep(turnStall / 2)
		a.Coming(1)
		time.Sleep(2 * turnStall)
		synctest.Wait()
		want(t, "the turn was taken when nothing had come for long enough", []time.Duration{letB, letC}, []time.Duration{2 * turnStall, 0})
		want(t, "who stalled waits like others", a.MayCome(), false)
		b.End()
		synctest.Wait()
		want(t, "passed on", letC != 0, true)
		a.End()
		c.End()
		want(t, "in the end", []any{p.coming.bytes.Load(), p.coming.turn.Load() == nil, p.coming.pressed.Load()}, []any{int64(0), true, false})
	})
}
