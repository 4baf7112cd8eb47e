package queuehost

import (
	"testing"
	"testing/synctest"
	"time"
)

// R410, R581: what has come of messages that are not complete is bounded, with what is in flight, by the node's credit. Beyond it one
// connection after the other completes what it holds.
func TestIncompleteMessagesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newCreditPool(1e6, 1e6, 6e6)
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
			cs[i].Coming(300e3)
		}
		little := &Credit{pool: p}
		little.Coming(comingShare)
		want(t, "a little is no matter", []bool{cs[0].MayCome(), little.MayCome()}, []bool{false, true})
		wait(0, nil) // has the turn
		stop := make(chan struct{})
		wait(1, nil)
		wait(2, stop)
		wait(3, nil)
		want(t, "let go on", let, []int{1, 0, 0, 0})
		cs[0].Coming(5e6) // a large one
		want(t, "with the turn", []bool{cs[0].MayCome(), cs[1].MayCome(), cs[0].TooMuch()}, []bool{true, false, false})
		cs[0].Coming(1e6)
		want(t, "more than any may hold", []bool{cs[0].TooMuch(), cs[1].TooMuch()}, []bool{true, false})
		cs[0].Coming(-1e6)
		close(stop)
		synctest.Wait()
		cs[2].End()
		want(t, "let go on", let, []int{1, 0, -1, 0})
		cs[0].charge(1e6)     // complete, and on its way to the disk
		cs[0].Coming(-5200e3) // the next one has begun
		want(t, "while more than a little is not complete", p.coming.turn.Load() == cs[0], true)
		cs[0].Coming(-(100e3 - comingShare))
		synctest.Wait()
		want(t, "while all credit is in flight", let, []int{1, 0, -1, 0})
		cs[0].give(300e3)
		synctest.Wait()
		want(t, "when there is some again, for one", let, []int{1, 1, -1, 0})
		cs[1].Coming(-300e3)
		synctest.Wait()
		want(t, "and then for the next", let, []int{1, 1, -1, 1})
		cs[3].End()
		little.End()
		cs[0].End()
		cs[0].give(700e3)
		want(t, "in the end", []any{p.coming.bytes.Load(), p.coming.turn.Load() == nil, len(p.coming.line), p.coming.pressed.Load(), len(p.waiters)}, []any{int64(0), true, 0, false, 0})
	})
}

// queuer is a connection that waits for its turn.
type queuer struct {
	*Credit
	began   time.Time
	let     time.Duration // after so long it was let go on
	givenUp bool
}

func newQueuer(p *creditPool, bytes int64) *queuer {
	w := &queuer{Credit: &Credit{pool: p}}
	w.OnGivenUp(func() { w.givenUp = true })
	w.Coming(bytes)
	return w
}

// wait has it wait, from now on.
func (w *queuer) wait() {
	w.began, w.let = time.Now(), 0
	go func() { w.WaitToCome(nil); w.let = time.Since(w.began) }()
	synctest.Wait()
}

// dribble has n bytes come of a connection, again and again, while it has the turn; it returns after how long it had it no more, if that is less than the most.
func (w *queuer) dribble(n int64, every, most time.Duration) time.Duration {
	began := time.Now()
	for w.pool.coming.turn.Load() == w.Credit && time.Since(began) < most {
		time.Sleep(every)
		w.Coming(n)
	}
	synctest.Wait()
	return time.Since(began)
}

// R410, R582: a client that sends a part of a message and then nothing, or next to nothing, does not keep the turn from others, nor does one that goes.
func TestTurnOfWhoStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newCreditPool(1e6, 1e6, 16e6)
		a, b, c := newQueuer(p, 600e3), newQueuer(p, 600e3), newQueuer(p, 600e3)
		a.wait()
		want(t, "the first", p.coming.turn.Load() == a.Credit, true)
		b.wait()
		c.wait()
		a.dribble(turnLeast, turnStall*7/10, 10*turnStall)
		want(t, "while enough comes", p.coming.turn.Load() == a.Credit, true)
		took := a.dribble(1, turnStall/7, 10*turnStall)
		want(t, "with a byte now and then", []bool{took < 3*turnStall, p.coming.turn.Load() == b.Credit, b.let != 0, c.let == 0}, []bool{true, true, true, true})
		want(t, "who stalled waits like others", a.MayCome(), false)
		a.wait()
		b.End()
		synctest.Wait()
		want(t, "passed on", []bool{c.let != 0, p.coming.turn.Load() == c.Credit}, []bool{true, true})
		b.Coming(600e3)
		b.wait()
		c.End()
		synctest.Wait()
		want(t, "the next time", p.coming.turn.Load() == a.Credit, true)
		took = a.dribble(1, turnStall/100, 10*turnStall)
		want(t, "the slow one is looked at earlier", took < 3*turnStall/slowAgain, true)
		want(t, "given up", []bool{a.givenUp, b.givenUp, c.givenUp}, []bool{false, false, false})
		a.End()
		b.End()
		synctest.Wait()
		want(t, "in the end", []any{p.coming.bytes.Load(), p.coming.turn.Load() == nil, p.coming.pressed.Load()}, []any{int64(0), true, false})
	})
}

// R582: who is held back by what is in flight is not blamed for it.
func TestTurnOfWhoIsHeldBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newCreditPool(1e6, 1e6, 16e6)
		a, b := newQueuer(p, 600e3), newQueuer(p, 600e3)
		a.wait()
		b.wait()
		p.used.Add(1e6) // of others
		a.wait()
		time.Sleep(10 * turnStall)
		want(t, "the turn", p.coming.turn.Load() == a.Credit, true)
		p.used.Add(-1e6)
		a.charge(1e6)
		a.applied(1e6)
		go a.Wait(nil)
		time.Sleep(10 * turnStall)
		want(t, "the turn", p.coming.turn.Load() == a.Credit, true)
		a.give(1e6)
		synctest.Wait()
		a.End()
		b.End()
		synctest.Wait()
	})
}

// R581: what is incomplete stays bounded, though one client after the other stalls shortly before the end of its message: who then loses the turn
// gives up what it holds. So it is with one that goes on for ever.
func TestWhatIsIncompleteIsGivenUp(t *testing.T) {
	for _, endless := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			p := newCreditPool(1e6, 1e6, 4e6)
			ws := make([]*queuer, 50)
			for i := range ws {
				ws[i] = newQueuer(p, comingShare+1)
				ws[i].wait()
			}
			most, givenUp := int64(0), 0
			for round := 0; round < 20; round++ {
				w := ws[0]
				for _, x := range ws {
					if p.coming.turn.Load() == x.Credit {
						w = x
					}
				}
				before := w.Incomplete()
				for range 40 {
					if w.Coming(100e3); w.TooMuch() {
						w.Coming(-100e3) // a channel less
					}
					most = max(most, p.coming.bytes.Load())
				}
				if endless {
					for p.coming.turn.Load() == w.Credit {
						w.Coming(100e3)
						w.Coming(-100e3)
						time.Sleep(turnStall / 100)
					}
				} else {
					time.Sleep(2 * turnStall)
				}
				synctest.Wait()
				if w.givenUp {
					w.Coming(before - w.Incomplete())
					w.givenUp = false
					givenUp++
				}
			}
			want(t, "bounded", most <= p.node+p.coming.most/2+p.coming.most+int64(len(ws))*comingShare*2, true)
			want(t, "given up", givenUp > 10, true)
			for _, w := range ws {
				w.End()
			}
			synctest.Wait()
		})
	}
}
