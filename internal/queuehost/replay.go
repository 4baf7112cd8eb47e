package queuehost

import (
	"holdfast/internal/amqperr"
	"holdfast/internal/queue"
	"holdfast/internal/seglog"
)

// Replay implements replica.Host.
func (h *host) Replay(rec seglog.Replayed) error {
	l := h.lane
	cmds, err := queue.DecodeCommands(l.replayed[:0], rec.Meta)
	if err != nil {
		return err
	}
	l.replayed = cmds
	l.entry = queue.Entry{Index: rec.Index, Time: rec.Time, Commands: cmds}
	h.m.Apply(&l.entry, &l.fx)
	l.fx.Reset()
	l.entry.Commands = nil
	if h.lead != nil {
		h.applied(rec.Index)
	}
	return nil
}

// Restore implements replica.Host.
func (h *host) Restore(blob []byte) error {
	if h.lead != nil { // the state of another member, perhaps
		h.bodies.clear(h.lane)
	}
	return h.m.Restore(blob)
}

// AppendSnapshot implements replica.Host.
func (h *host) AppendSnapshot(dst []byte) []byte { return h.m.AppendSnapshot(dst) }

// Freeze implements replica.FreezingHost.
func (h *host) Freeze() func(dst []byte) []byte {
	f := h.m.Freeze()
	return f.Append
}

// Failed implements replica.Host.
func (h *host) Failed(err error) {
	if h.lead != nil {
		h.resign()
	}
	h.outOfService(err.Error())
}

// outOfService says that the queue, or the member here, cannot be used.
func (h *host) outOfService(reason string) {
	h.m, h.besides().reason = nil, reason
	h.unavailable.Store(amqperr.QueueUnavailable(h.known().VHost, h.known().Name, reason))
}

// Live implements replica.Host: what the Recover to come will drop is not
// needed, and need not be in the log. An orphan keeps everything.
func (h *host) Live(dst []seglog.Range) ([]seglog.Range, bool) {
	switch {
	case h.lead != nil && h.m == nil:
		return dst, false
	case h.lead != nil:
		h.lane.numbers = h.m.Live(h.lane.numbers[:0])
	case !h.expected && !h.claimed:
		return dst, false
	default:
		h.lane.numbers = h.m.Kept(h.lane.numbers[:0])
	}
	for _, r := range h.lane.numbers {
		dst = append(dst, seglog.Range{First: uint64(r.First), Last: uint64(r.Last)})
	}
	if cap(h.lane.numbers) > keptNumbers { // of a million that wait, each for a time of its own
		h.lane.numbers = nil
	}
	return dst, true
}

// keptNumbers is how long a list of numbers may be that is kept for the next use.
const keptNumbers = 4096

// Recover implements replica.Host. The Recover command is the first of the new
// incarnation: it is put in front of whatever comes first, and at once if it
// changes anything that somebody could see or that a later stop would hide.
func (h *host) Recover(clean bool) bool {
	if h.lead != nil {
		if h.m != nil {
			h.count(nil)
		}
		return false
	}
	if !h.expected && !h.claimed || h.m == nil || h.m.Applied() == 0 {
		return h.handle.in.waiting()
	}
	h.recover, h.clean = true, clean
	if h.sized() {
		h.alert.Or(alertReweigh)
	}
	h.items = true
	h.persistent = h.holdsAny()
	h.configure, h.unset = false, true // the entries begin with it
	h.count(nil)
	_, due := h.m.NextDeadline()
	if due { // a time that is to be looked at, though nobody may ever ask for anything: the worker sets it
		h.alert.Or(alertDue)
	}
	return due || h.mustRecoverNow() || h.handle.in.waiting()
}

// mustRecoverNow reports whether the Recover command cannot wait for another
// command to come. What is left out when a queue that looks so stays idle is
// done by the next incarnation's Recover as well.
func (h *host) mustRecoverNow() bool {
	if !h.recover || h.m == nil {
		return false
	}
	return h.holdsAny() || h.m.Consumers() > 0 || h.m.HandedOut() ||
		h.m.Next(queue.ChunkLane).Ordinal() > 1 || h.m.Uncommitted() > 0
}
