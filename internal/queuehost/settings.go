package queuehost

import (
	"sync"
	"sync/atomic"

	"holdfast/internal/queue"
	"holdfast/internal/seglog"
)

// wanted is what the machine should be set to, as far as the catalog has told it.
func (h *host) wanted() queue.Settings {
	def := h.known()
	var s queue.Settings
	if def.Settings != nil {
		s = def.Settings.Settings
	}
	s.AutoDelete = def.AutoDelete
	return s
}

// packSettings has the machine follow the catalog. For a queue that holds nothing that can wait for another command.
func (h *host) packSettings(p *pack) {
	w := h.wanted()
	switch {
	case h.configure && w == queue.Settings{AutoDelete: w.AutoDelete}:
		p.cmds = append(p.cmds, queue.Command{Kind: queue.Configure, AutoDelete: w.AutoDelete})
	case h.configure:
		h.packSet(p, w)
	case !h.unset || h.outdated():
	case h.m.Settings() == w:
		// That they hold still, or again, is said of a quorum queue with whatever comes next: a leader that hears of others late, which were
		// said in between, knows by it that it is late. Before anything comes they make no difference.
		if h.setting() > h.m.SetAt() {
			h.packSet(p, w)
		}
	case !h.reg.behind.holds(h):
		h.packSet(p, w)
		p.must = p.must || h.holdsAny()
	}
}

func (h *host) packSet(p *pack, w queue.Settings) {
	p.cmds = append(p.cmds, queue.Command{Kind: queue.Set, Epoch: h.setting(), Terms: &queue.Terms{Set: &w}})
	p.sets = true
}

// setting is the generation of the catalog that the settings of a quorum queue come from: members of it lead by turns, on nodes whose
// catalogs are not equally far. A queue that runs on one node alone needs none.
func (h *host) setting() uint64 {
	if h.lead == nil {
		return 0
	}
	if s := h.known().Settings; s != nil {
		return s.Generation
	}
	return 0
}

// outdated reports whether the machine goes by a later catalog than is known here, which another leader had. It is looked at again when
// the catalog here says something else.
func (h *host) outdated() bool { return h.setting() < h.m.SetAt() }

// behind is the queues that would go by other settings, if the catalog here were known to have all there is. What it says after a start may be
// old: a limit that was raised meanwhile would cost messages, a dead-letter exchange that is not known yet letters.
type behind struct {
	is    atomic.Bool
	mu    sync.Mutex
	hosts []*host
}

// holds reports whether a queue has to go on by the settings that it has; then it is looked at again when that is over.
func (b *behind) holds(h *host) bool {
	if h.unknown() {
		return true // the catalog does not know it yet; it is looked at when it does
	}
	if !b.is.Load() || h.m.Settings() == (queue.Settings{}) && !h.holdsAny() { // it may have just begun
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.is.Load() {
		return false
	}
	b.hosts = append(b.hosts, h)
	return true
}

// CaughtUp says that the catalog here has all that there was when this node started, and that queues have been told: see Expect.
func (r *Registry) CaughtUp() {
	b := &r.behind
	b.mu.Lock()
	b.is.Store(false)
	hosts := b.hosts
	b.hosts = nil
	b.mu.Unlock()
	for _, h := range hosts {
		h.alert.Or(alertSettings)
		h.group.Wake()
	}
	r.bear()
}

// expires is after how many ns without use the queue goes; 0: it stays.
func (h *host) expires() int64 {
	if s := h.known().Settings; s != nil {
		return int64(s.Expires)
	}
	return 0
}

// touch notes that the queue is used: by a consumer, a get, a declare.
func (h *host) touch() {
	if h.expires() > 0 {
		h.used = h.reg.o.Clock.Mono()
	}
}

// holdsAny reports whether there is any message in the queue.
func (h *host) holdsAny() bool {
	return h.m.Ready()+h.m.Unacked()+h.m.Delayed()+h.m.DeadCount() > 0
}

// SetSettings has a queue that runs here, or has a member here, or is about to have one, follow other arguments and policies than those that it was made with, or
// that were told last. It takes effect with the next entry of whoever puts its commands in order.
func (r *Registry) SetSettings(id seglog.GroupID, s Settings) {
	if f := r.far(id); f != nil && f.entry != nil {
		f.mu.Lock()
		f.entry.settings = &s
		f.mu.Unlock()
	}
	r.mu.RLock()
	h := r.hosts[id]
	r.mu.RUnlock()
	if h == nil {
		return
	}
	for {
		old := h.named.Load()
		def := h.def
		if old != nil {
			def = *old
		}
		// The same that a later catalog says is news: they may have been others in between, and the machine set to those.
		if def.Settings != nil && *def.Settings == s || def.Settings == nil && s == (Settings{}) {
			return
		}
		def.Settings = &s
		if h.named.CompareAndSwap(old, &def) {
			break
		}
	}
	if h.lead != nil {
		h.lead.look.Store(true)
	}
	h.alert.Or(alertSettings)
	h.group.Wake()
}

// examines reports whether priorities and expirations of messages count: commands that say so can be read by every node.
func (r *Registry) examines() bool { return r.o.Level != nil && r.o.Level() >= 2 }

// blameless is Return or Decline, or what there is of it for a cluster of an older level.
func (r *Registry) blameless(how queue.Settlement) queue.Settlement {
	switch {
	case r.examines():
		return how
	case how == Return:
		return queue.Requeue
	}
	return queue.Discard
}

// counts reports whether consumers are told how often a message came back: of a quorum queue, and where there is a limit.
func (h *host) counts() bool {
	return (h.lead != nil || h.m.Settings().DeliveryLimit > 0) && h.reg.examines()
}

// terms says that a consumer's priority counts, if it has one, and for how long it may hold messages.
func (h *host) terms(c *consumer) *queue.Terms {
	if c.spec.Priority == 0 && c.timeout == 0 || !h.reg.examines() {
		return nil
	}
	return &queue.Terms{Ranked: c.spec.Priority != 0, Timeout: uint64(c.timeout)}
}

// packAsSet notes what counts of publishes.
func (h *host) packAsSet(p *pack) {
	s := h.m.Settings()
	for i := range p.cmds { // from now on
		if c := &p.cmds[i]; c.Kind == queue.Set {
			s = *c.Terms.Set
		}
	}
	p.examine = h.reg.examines()
	p.weigh = s.MaxBytes > 0 || s.HeldMostBytes > 0
	p.refuses = s.Overflow != queue.OverflowDropHead || s.HeldMost > 0 || s.HeldMostBytes > 0 || s.Deduplicate != queue.NoKey
	p.top, p.keys = s.TopPriority, s.Deduplicate
	p.paused = s.Paused
	if with := h.known().Settings; with != nil {
		p.delays, p.delay, p.forwards = with.Delays, uint64(with.Delay), s.Forward
	}
}
