package session

import (
	"testing"
	"testing/synctest"
)

// Little is carried out at once. With much to carry out, readers take turns, and one that waits for
// something in its turn lets the next one go on.
func TestReadersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{turns: make(turns, 1)}
		reader := func(bytes int) *conn {
			return &conn{server: s, stop: make(chan struct{}), slab: slab{w: bytes}}
		}
		first, second, small := reader(bulkBytes), reader(bulkBytes), reader(bulkBytes-1)
		first.takeTurn()
		small.takeTurn()
		small.endTurn()

		got, end := false, make(chan struct{})
		go func() {
			second.takeTurn()
			got = true
			<-end
			second.endTurn()
		}()
		synctest.Wait()
		if got || !second.waiting.Load() {
			t.Fatalf("the second reader has a turn: %v, waits: %v", got, second.waiting.Load())
		}

		answer, back := make(chan struct{}), false
		go func() {
			back = first.aside(func() bool { return first.waitFor(answer) })
		}()
		synctest.Wait()
		if !got || second.waiting.Load() || !first.waiting.Load() {
			t.Fatalf("the first reader waits: %v, and the second has a turn: %v", first.waiting.Load(), got)
		}
		close(answer)
		synctest.Wait()
		if back {
			t.Fatal("both have a turn")
		}
		close(end)
		synctest.Wait()
		if !back || !first.turn || first.waiting.Load() {
			t.Fatalf("the first reader went on: %v; it waits: %v", back, first.waiting.Load())
		}
		first.halt()
		if first.aside(func() bool { return first.waitFor(make(chan struct{})) }) {
			t.Fatal("a connection that ends got an answer")
		}
		first.frames = yieldFrames
		first.endTurn()
		if first.frames != 0 {
			t.Fatal("others are let run at each read from now on")
		}
		if len(s.turns) != 0 {
			t.Fatal("a turn is lost")
		}
	})
}
