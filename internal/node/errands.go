package node

import "sync"

// errands are goroutines that whoever closes waits for. The zero value is ready for use.
type errands struct {
	mu    sync.Mutex
	ended bool
	out   sync.WaitGroup
}

// Go runs a function, unless nothing more is to begin: then it returns false.
func (e *errands) Go(fn func()) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.ended {
		e.out.Go(fn)
	}
	return !e.ended
}

// End lets nothing more begin, and returns when everything has ended.
func (e *errands) End() {
	e.mu.Lock()
	e.ended = true
	e.mu.Unlock()
	e.out.Wait()
}
