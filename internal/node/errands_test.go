package node

import "testing"

// Who closes waits for what is under way, and nothing more begins.
func TestErrands(t *testing.T) {
	var e errands
	begun, on, done := make(chan struct{}), make(chan struct{}), false
	if !e.Go(func() {
		close(begun)
		<-on
		done = true
	}) {
		t.Fatal("it was not begun")
	}
	<-begun
	go func() {
		for e.Go(func() {}) { // until End is waiting
		}
		close(on)
	}()
	e.End()
	if !done {
		t.Error("it has not ended")
	}
	if e.Go(func() { t.Error("it was begun") }) {
		t.Error("something was begun afterwards")
	}
}
