package queuehost

// Credit bounds what one connection has in flight towards queues. Publishes
// charge it and never wait; the connection's reader calls Wait before it reads
// on. Taken back, it is granted again by the queues' workers.
type Credit struct{}

// Wait returns true when there is credit, at once in the ordinary case, and
// false when stop was closed first.
func (c *Credit) Wait(stop <-chan struct{}) bool

// Enough reports whether Wait would return at once.
func (c *Credit) Enough() bool
