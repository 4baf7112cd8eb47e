package queuehost

import (
	"holdfast/internal/queue"
	"holdfast/internal/seglog"
)

// Handle reaches one queue. Its methods may be called from any goroutine and
// never block; callbacks run on the queue's shard worker, must not block, and
// may call Handle methods. After the queue is gone the operations still answer:
// publishes as Gone, everything else with 404.
type Handle struct{}

// ID returns the queue's group.
func (h *Handle) ID() seglog.GroupID

// Def returns the queue's definition.
func (h *Handle) Def() QueueDef

// Publish hands in messages, in this order. The slice is free after the call.
func (h *Handle) Publish(ps []Publish)

// Attach adds a consumer. done runs before its first delivery; the id is valid
// for the other operations as soon as Attach has returned it.
func (h *Handle) Attach(spec ConsumerSpec, c Consumer, done func(id queue.ConsumerID, err error)) queue.ConsumerID

// Getter adds a consumer that gets nothing by itself: it holds the checkouts
// of Get. Nothing is written for it before the first Get that finds a message.
func (h *Handle) Getter(spec ConsumerSpec, c Consumer) queue.ConsumerID

// Get fetches one message for a getter. ok is false if the queue had none
// ready; left is the number of ready messages that remain. With noAck the
// message is settled and the delivery's ID is 0.
func (h *Handle) Get(id queue.ConsumerID, noAck bool, done func(d Delivery, left uint64, ok bool, err error))

// Cancel ends deliveries to a consumer; its checkouts stay. done, if not nil,
// runs after the last delivery.
func (h *Handle) Cancel(id queue.ConsumerID, done func())

// Detach removes a consumer; its checkouts go back to the queue. done, if not
// nil, runs after that.
func (h *Handle) Detach(id queue.ConsumerID, done func())

// Settle ends the checkouts of a consumer's deliveries. Ids that are not
// checked out are ignored. The slice is free after the call.
func (h *Handle) Settle(id queue.ConsumerID, ranges []queue.Range, how queue.Settlement)

// Credit grants a consumer n more deliveries. With drain, what is left of the
// credit after that comes back at once as Consumer.Drained.
func (h *Handle) Credit(id queue.ConsumerID, n uint32, drain bool)

// Purge removes the ready messages and says how many.
func (h *Handle) Purge(done func(n uint64, err error))

// Seal prepares the queue's deletion: from then on publishes are settled as
// Gone and new consumers are refused. n is the number of ready messages. It
// fails with 406 if the queue has consumers (ifUnused) or ready messages
// (ifEmpty), and then changes nothing. Registry.Drop or Unseal must follow.
func (h *Handle) Seal(ifUnused, ifEmpty bool, done func(n uint64, err error))

// Unseal takes a Seal back.
func (h *Handle) Unseal()

// Stats returns the queue's counters without disturbing its worker.
func (h *Handle) Stats() Stats

// Explain says how the queue stands and what its ready messages wait for.
func (h *Handle) Explain(done func(Explanation))

// Consumers lists the consumers, in order of their ids.
func (h *Handle) Consumers(done func([]ConsumerInfo))

// Unavailable returns nil, or why the queue cannot serve (it is quarantined);
// every operation then fails with this error.
func (h *Handle) Unavailable() error
