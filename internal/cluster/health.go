package cluster

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"holdfast/internal/detour"
	"holdfast/internal/peer"
)

// Condition is how a node stands, as seen from here.
type Condition uint8

// The conditions. A node begins as Suspect: nothing has been heard of it.
const (
	// Suspect: no sign of life for 0.8 s, or it said goodbye. Its sessions get no new deliveries, its groups elect anew.
	Suspect Condition = iota
	// Up: it is heard, from itself or through others.
	Up
	// Gone: no sign of life for 30 s. What dies with its start may be removed.
	Gone
)

// String returns the condition as people are told it.
func (c Condition) String() string {
	switch c {
	case Up:
		return "up"
	case Gone:
		return "gone"
	}
	return "suspect"
}

// Times of the Detector.
const (
	SuspectAfter = peer.SuspectAfter
	GoneAfter    = 30 * time.Second
	// TickEvery is how often Tick is meant to be called: one ticker of a node is for this and for its detours.
	TickEvery = detour.TickEvery
)

// stalled is a pause between two ticks from which on this process, and not the others, is taken to have stood still.
const stalled = 4 * TickEvery

// Change is news about a node.
type Change struct {
	Node    uint64
	Was, Is Condition
	Why     string // for people: "has not been heard for 0.8s"
	// Restarted says that the node came back as another process than before: whatever the former one held is free.
	Restarted   bool
	Incarnation uint64 // the latest known start of its process; 0 if it never came up
}

// Detector turns what the links say into conditions. Its methods are for one goroutine; now is monotonic, in nanoseconds.
type Detector struct {
	nodes    map[uint64]*watched
	lastTick int64
	began    bool
}

type watched struct {
	is          Condition
	linked      bool  // links are up, and beats come
	sign        int64 // the last sign of life, when not linked
	incarnation uint64
	why         string // what went wrong last
}

// NewDetector returns a Detector that knows nobody.
func NewDetector() *Detector { return &Detector{nodes: map[uint64]*watched{}} }

// Watch says who the others of the cluster are. Those that are new begin as suspect, for the first time without a Change,
// those that are missing are forgotten.
func (d *Detector) Watch(now int64, nodes []uint64) {
	for id := range d.nodes {
		if !slices.Contains(nodes, id) {
			delete(d.nodes, id)
		}
	}
	for _, id := range nodes {
		if d.nodes[id] == nil {
			d.nodes[id] = &watched{sign: now, why: "has not been reached yet"}
		}
	}
}

// Condition returns how a node stands, and why; somebody unknown is Gone.
func (d *Detector) Condition(node uint64) (Condition, string) {
	if w := d.nodes[node]; w != nil {
		return w.is, w.why
	}
	return Gone, "is not in the cluster"
}

// Up says that the links to a node stand in both directions.
func (d *Detector) Up(now int64, node, incarnation uint64) []Change {
	w := d.nodes[node]
	if w == nil {
		return nil
	}
	restarted := w.incarnation != 0 && w.incarnation != incarnation
	w.linked, w.incarnation, w.sign = true, incarnation, now
	return d.set(node, w, Up, "", restarted)
}

// Down says that a link to a node broke. A node that said goodbye is suspect at once, another only after 0.8 s.
func (d *Detector) Down(now int64, node uint64, why error, goodbye bool) []Change {
	w := d.nodes[node]
	if w == nil {
		return nil
	}
	if w.linked {
		w.sign = now
	}
	w.linked = false
	w.why = fmt.Sprintf("lost its link: %v", why)
	if goodbye && w.is == Up {
		return d.set(node, w, Suspect, "said goodbye", false)
	}
	return nil
}

// Suspect says that beats have not come for 0.8 s although the link stands.
func (d *Detector) Suspect(now int64, node uint64) []Change {
	w := d.nodes[node]
	if w == nil || !w.linked {
		return nil
	}
	w.linked = false
	w.sign = now - int64(SuspectAfter)
	w.why = "its heartbeats do not come"
	return d.look(now, node, w)
}

// Trust says that beats come again over a link that was not lost.
func (d *Detector) Trust(now int64, node uint64) []Change {
	w := d.nodes[node]
	if w == nil || w.incarnation == 0 {
		return nil
	}
	w.linked, w.sign = true, now
	return d.set(node, w, Up, "", false)
}

// Heard says that another node hears this one: its link to us is broken, it is not.
func (d *Detector) Heard(now int64, node, by uint64) []Change {
	w := d.nodes[node]
	if w == nil || w.linked {
		return nil
	}
	w.sign = now
	return d.set(node, w, Up, fmt.Sprintf("is heard through node %d", by), false)
}

// Tick looks at the clock. It is to be called every TickEvery; a much longer pause says that this process stood still, and
// then that time is nobody's silence.
func (d *Detector) Tick(now int64) []Change {
	if pause := now - d.lastTick; d.began && pause >= int64(stalled) {
		for _, w := range d.nodes {
			w.sign = min(w.sign+pause-int64(TickEvery), now)
		}
	}
	d.lastTick, d.began = now, true
	var changes []Change
	for _, id := range slices.Sorted(maps.Keys(d.nodes)) {
		changes = append(changes, d.look(now, id, d.nodes[id])...)
	}
	return changes
}

// look decides by how long a node has been silent.
func (d *Detector) look(now int64, id uint64, w *watched) []Change {
	silent := time.Duration(now - w.sign)
	switch {
	case w.linked:
		return nil
	case silent >= GoneAfter:
		return d.set(id, w, Gone, w.why, false)
	case silent >= SuspectAfter && w.is == Up:
		return d.set(id, w, Suspect, w.why, false)
	}
	return nil
}

func (d *Detector) set(id uint64, w *watched, is Condition, why string, restarted bool) []Change {
	was := w.is
	w.is, w.why = is, why
	if was == is && !restarted {
		return nil
	}
	return []Change{{Node: id, Was: was, Is: is, Why: why, Restarted: restarted, Incarnation: w.incarnation}}
}
