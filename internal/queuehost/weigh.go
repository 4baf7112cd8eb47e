package queuehost

import (
	"sync"

	"holdfast/internal/message"
	"holdfast/internal/queue"
	"holdfast/internal/replica"
)

// weighing finds out the sizes of messages that were in a queue before it had a limit of bytes. The machine says which they are, bodies in
// memory say at once how large they are, and the others are read, by who reads for other nodes. A message that cannot be read weighs
// nothing: whoever is to have it meets the damage. It belongs to the worker.
type weighing struct {
	todo  []queue.Numbers // not looked at yet, in order
	known []weighed       // not packed yet, in order
	load  *weighLoad      // on its way; nil: none
}

// weighed is messages of one size, neighbours.
type weighed struct {
	queue.Numbers
	size uint64
}

const (
	weighAtOnce = 1024     // messages that are looked at in one round
	weighMost   = 16 << 10 // messages that are being read
)

// weighLoad is messages that are read for their sizes.
type weighLoad struct {
	h     *host
	pins  []weighPin
	sizes []weighed // in order; of the worker's again once it is done

	mu         sync.Mutex
	over, done bool
}

type weighPin struct {
	n queue.Number
	pin
}

// reweigh has the sizes found out that the machine does not know.
func (h *host) reweigh() {
	if h.sized() {
		h.alert.Or(alertReweigh)
		h.group.Wake()
	}
}

// sized reports whether sizes of messages count.
func (h *host) sized() bool {
	s := h.m.Settings()
	return s.MaxBytes > 0 || s.HeldMostBytes > 0
}

// endWeighing forgets what is known and under way.
func (h *host) endWeighing() {
	if h.aside == nil || h.aside.weighing == nil {
		return
	}
	if l := h.aside.weighing.load; l != nil {
		l.mu.Lock()
		l.over = true
		l.mu.Unlock()
	}
	h.aside.weighing = nil
}

// packWeighing goes on with finding out sizes, and packs those that are known.
func (h *host) packWeighing(p *pack, anew bool) {
	if anew {
		h.endWeighing()
		if todo := h.m.Unweighed(nil); len(todo) > 0 {
			h.besides().weighing = &weighing{todo: todo}
		}
	}
	if h.aside == nil || h.aside.weighing == nil {
		return
	}
	w := h.aside.weighing
	if l := w.load; l != nil {
		if !l.isDone() {
			return
		}
		w.known, w.load = append(w.known, l.sizes...), nil
	}
	if len(w.known) == 0 {
		h.look(w)
	}
	n := 0
	for n < len(w.known) && len(p.cmds) < replica.MaxEntryCommands/2 {
		x := &w.known[n]
		p.cmds = append(p.cmds, queue.Command{Kind: queue.Weigh, First: uint64(x.First), Last: uint64(x.Last), Bytes: x.size})
		p.must = true
		n++
	}
	w.known = w.known[n:]
	switch {
	case len(w.known) > 0 || w.load == nil && len(w.todo) > 0:
		h.alert.Or(alertWeighing)
		h.group.Wake()
	case w.load == nil:
		h.aside.weighing = nil
	}
}

// look finds out the sizes of the next messages, and has those read that are not in memory.
func (h *host) look(w *weighing) {
	load := &weighLoad{h: h}
	for range weighAtOnce {
		if len(w.todo) == 0 || len(load.pins) >= weighMost {
			break
		}
		r := &w.todo[0]
		if n := r.First; h.bodies.item(n) != nil {
			w.known = addWeighed(w.known, n, message.ReadTraits(h.bodies.item(n)).Size)
		} else if pin, ok := h.findPin(n, r.Last); ok {
			load.pins = append(load.pins, weighPin{n, pin})
		} // else it has left meanwhile
		if r.First++; r.First > r.Last {
			w.todo = w.todo[1:]
		}
	}
	h.lane.unpinned()
	if len(load.pins) > 0 {
		w.load = load
		h.reg.loads.add(load)
	}
}

// addWeighed adds a message, joined with the one before if it is its neighbour.
func addWeighed(list []weighed, n queue.Number, size uint64) []weighed {
	if k := len(list); k > 0 && list[k-1].Last+1 == n && list[k-1].size == size {
		list[k-1].Last = n
		return list
	}
	return append(list, weighed{queue.Numbers{First: n, Last: n}, size})
}

func (l *weighLoad) isDone() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.done
}

// load reads the next messages, implementing toLoad.
func (l *weighLoad) load(rd *Reader, buf []byte) []byte {
	for i := range min(len(l.pins), loadAtOnce) {
		x := &l.pins[i]
		l.mu.Lock()
		over := l.over
		l.mu.Unlock()
		if over || x.log != nil && rd.log == nil {
			x.drop()
			continue
		}
		if b, err := x.read(rd); err == nil {
			l.sizes = addWeighed(l.sizes, x.n, message.ReadTraits(b).Size)
		} else if !over {
			l.h.reg.o.Logger.Warn("a message whose size is to count could not be read", "queue", l.h.known().Name, "error", err)
		}
	}
	if l.pins = l.pins[min(len(l.pins), loadAtOnce):]; len(l.pins) > 0 {
		l.h.reg.loads.add(l)
		return buf
	}
	l.mu.Lock()
	l.done = true
	l.mu.Unlock()
	l.h.alert.Or(alertWeighing)
	l.h.group.Wake()
	return buf
}
