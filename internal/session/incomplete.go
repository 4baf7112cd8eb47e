package session

import "holdfast/internal/amqperr"

// What a channel holds of a message that is not complete, and what its transaction holds, is counted by the connection's credit, which bounds it
// (package queuehost, coming.go). It is counted when the reader turns to another channel or to the client, not with each frame.

// contentCost is what a message that is coming in costs beside its bytes.
const contentCost = 256

// heldBytes is how many bytes the message takes that is coming in.
func (c *content) heldBytes() int64 {
	if c.stage == contentNone {
		return 0
	}
	return contentCost + int64(len(c.exchange)+len(c.key)+len(c.whole)+c.builder.Held())
}

// countContent counts what the channel holds of a message that is not complete. It runs on the owner.
func (ch *channel) countContent() {
	if n := ch.content.heldBytes() - ch.coming; n > 0 {
		ch.coming += n
		ch.hold(n)
		if ch.conn.credit.TooMuch() {
			ch.fail(tooMuchIncomplete())
		}
	}
}

// countUnfinished counts for the channel that the reader turns away from.
func (c *conn) countUnfinished() {
	if ch := c.last; ch != nil && !ch.busy.Load() && ch.content.stage != contentNone {
		ch.countContent()
	}
}

// hold counts n bytes more, or less.
func (ch *channel) hold(n int64) {
	ch.holds.Add(n)
	ch.conn.credit.Coming(n)
}

// arrived says that what was coming in is not any more.
func (ch *channel) arrived() {
	if n := ch.coming; n != 0 {
		ch.coming = 0
		ch.hold(-n)
	}
}

// forgetIncomplete forgets a message that will not be completed, and a transaction. It runs on the owner.
func (ch *channel) forgetIncomplete() {
	ch.content.stage = contentNone
	ch.content.whole = nil
	ch.content.builder.Forget()
	ch.arrived()
	if t := ch.tx; t != nil {
		ch.txClear()
		ch.mu.Lock()
		ch.tx = nil
		ch.mu.Unlock()
	}
}

func tooMuchIncomplete() *amqperr.Error {
	return amqperr.Overloaded("too many bytes of messages that are not complete, and of transactions, on this connection")
}

// giveUp ends the channels that hold anything incomplete, as others wait for the memory and this connection does not go on with it in time. Any goroutine
// may call it. If the reader waits for something else than the client, the whole connection ends: it would not come to it.
func (c *conn) giveUp() {
	why := amqperr.Overloaded("messages or transactions were not completed in time, and memory is short")
	if c.waiting.Load() {
		c.Close(why.AsConnection())
		return
	}
	c.mu.Lock()
	var list []*channel
	for _, ch := range c.channels {
		if ch.holds.Load() > 0 {
			list = append(list, ch)
		}
	}
	c.mu.Unlock()
	for _, ch := range list {
		c.doom(ch, why)
	}
}
