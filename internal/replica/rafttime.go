package replica

import (
	"slices"

	"holdfast/internal/seglog"
)

// maxTicks is how many ticks a shard makes up for after it stood still. A stall of
// this process must not look like the silence of a leader.
const maxTicks = 3

func (n *Node) raftTick() {
	for {
		select {
		case <-n.tickDone:
			return
		case <-n.raftTicker.C():
			n.TickRaft()
		}
	}
}

// TickRaft lets one tick pass for all raft groups; the node's goroutine calls it, or a simulator.
func (n *Node) TickRaft() {
	n.early.tick()
	for _, s := range n.shards {
		if s.hasRafts.Load() {
			s.mu.Lock()
			s.ticks = min(s.ticks+1, maxTicks)
			s.unpark()
		}
	}
}

// adopt makes a raft group known to the worker.
func (s *Shard) adopt(x *raftGroup) {
	s.mu.Lock()
	s.adopted = append(s.adopted, x)
	s.hasRafts.Store(true)
	s.mu.Unlock()
}

func bySeglogID(x *raftGroup, id seglog.GroupID) int {
	switch {
	case x.g.id < id:
		return -1
	case x.g.id > id:
		return 1
	}
	return 0
}

// takeRafts takes what the mailbox has for raft groups. The mutex is held.
func (s *Shard) takeRafts() {
	for _, x := range s.adopted {
		i, _ := slices.BinarySearchFunc(s.rafts, x.g.id, bySeglogID)
		s.rafts = slices.Insert(s.rafts, i, x)
		x.stir()
	}
	clear(s.adopted)
	s.adopted = s.adopted[:0]
	s.takenNews, s.news = s.news, s.takenNews[:0]
}

// leave forgets a raft group that has ended.
func (s *Shard) leave(x *raftGroup) {
	if i, found := slices.BinarySearchFunc(s.rafts, x.g.id, bySeglogID); found && s.rafts[i] == x {
		s.rafts = slices.Delete(s.rafts, i, i+1)
	}
}

// timePasses tells the raft groups which nodes came and went, and lets them tick.
func (s *Shard) timePasses(ticks int, now int64) {
	for _, p := range s.takenNews {
		for _, x := range s.rafts {
			x.peerNews(p)
		}
	}
	s.takenNews = emptied(s.takenNews)
	if ticks > 0 {
		s.tickAll(ticks, now)
	}
}

// beatsTo is the heartbeats of a round to one node, which travel as one message.
type beatsTo struct {
	node  uint64
	beats []beat
}

func (s *Shard) beat(node uint64, b beat) {
	for i := range s.beats {
		if s.beats[i].node == node {
			s.beats[i].beats = append(s.beats[i].beats, b)
			return
		}
	}
	s.beats = append(s.beats, beatsTo{node, []beat{b}})
}

func (s *Shard) sendBeats() {
	for i := range s.beats {
		b := &s.beats[i]
		if len(b.beats) == 0 {
			continue
		}
		if s.node.o.Transport.Send(b.node, LaneControl, func(dst []byte) []byte { return appendBeats(dst, b.beats) }) {
			s.stats.sent.Add(1)
		} else {
			s.notSaid(b.beats)
		}
		b.beats = emptied(b.beats)
	}
}

// notSaid wakes groups that were to rest: somebody has not been told.
func (s *Shard) notSaid(beats []beat) {
	for _, b := range beats {
		if g := s.node.Group(b.group); b.rest && g != nil && g.raft != nil {
			g.raft.stir()
		}
	}
}
