package session

import (
	"errors"
	"os"
	"time"

	"holdfast/internal/amqperr"
)

// doomed is a channel that is to be closed for another reason than what its client sends.
type doomed struct {
	ch  *channel
	why *amqperr.Error
}

// doom has a channel closed by its owner, from any goroutine and without waiting.
func (c *conn) doom(ch *channel, why *amqperr.Error) {
	c.mu.Lock()
	c.doomed = append(c.doomed, doomed{ch, why})
	c.mu.Unlock()
	c.socket.SetReadDeadline(past) // the reader wakes, and closes it
}

// closeDoomed closes the channels that others have doomed, on the reader, if that is why a read has failed with err. If the
// connection is to be closed, that is the other reason for a read to fail so, and its reason is known before.
func (c *conn) closeDoomed(err error) bool {
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		return false
	}
	c.socket.SetReadDeadline(time.Time{}) // before the list is read: whoever comes after that wakes the reader again
	c.mu.Lock()
	list := c.doomed
	c.doomed = nil
	c.mu.Unlock()
	for _, d := range list {
		d.ch.mu.Lock()
		busy := d.ch.busy.Load()
		if busy {
			d.ch.doomed = d.why // the worker owns it
		}
		d.ch.mu.Unlock()
		if !busy && !d.ch.ended {
			d.ch.fail(d.why)
		}
	}
	return true
}
