package replica

// replicator decides when an entry that a host has packed may be applied, and
// what its group is told when the entry's record is on disk. There are three:
// direct and solo, and raftGroup, which packs and applies in a turn of its own.
type replicator interface {
	// logged says whether entries carry what the log needs.
	logged() bool
	// packed takes the entry that g's host has packed in round r.
	packed(s *Shard, r *round, g *Group, e *Entry)
	// stable hears that g's entry index is on disk.
	stable(g *Group, index uint64)
}

// direct applies at once and writes nothing.
type direct struct{}

func (direct) logged() bool { return false }

func (direct) packed(s *Shard, _ *round, g *Group, e *Entry) { s.line = append(s.line, ready{g, *e}) }

func (direct) stable(*Group, uint64) {}

// solo appends to this node's log and applies when that is done; who needs the
// disk waits for stable.
type solo struct{}

func (solo) logged() bool { return true }

func (solo) packed(s *Shard, r *round, g *Group, e *Entry) {
	r.add(g, e)
	g.sinceEntries++
	g.sinceBytes += int64(len(e.Meta) + r.bytes)
	s.line = append(s.line, ready{g, *e})
}

func (solo) stable(g *Group, index uint64) {
	g.stable = index
	g.host.Stable(index)
}
