package replica

import (
	"slices"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"holdfast/internal/invariant"
)

// store is what raft knows of a group's log, in memory: index and term of each
// entry above the snapshot (or above the tail kept for members that are away).
// What the entries carry is beside it, and may be gone: then it is in the log.
type store struct {
	term, vote, commit uint64 // as written, or about to be

	conf *pb.ConfState // as of the last entry applied

	first     uint64 // index of slots[0]
	firstTerm uint64 // term of the entry before it
	slots     []slot

	applied, appliedTerm uint64
	of                   *raftGroup // whose state a snapshot is of, or nil
}

// slot is one entry.
type slot struct {
	term    uint64
	kind    byte
	payload *payload // of a normal entry; nil if it is in the log only
	data    []byte   // of a change of members
	size    int      // bytes of the payload
}

// dataOfNormal marks a normal entry for raft, which never sees what it carries.
var dataOfNormal = []byte{entryNormal}

// maxMessage bounds how many bytes of entries are sent as one message, if there is more than one.
const maxMessage = 512 << 10

func (s *store) last() uint64 { return s.first + uint64(len(s.slots)) - 1 }

func (s *store) lastTerm() uint64 {
	if n := len(s.slots); n > 0 {
		return s.slots[n-1].term
	}
	return s.firstTerm
}

// at returns the slot of an entry, or nil.
func (s *store) at(index uint64) *slot {
	if index < s.first || index > s.last() {
		return nil
	}
	return &s.slots[index-s.first]
}

// append adds an entry, in place of what was at its index and above. It returns what was.
func (s *store) append(index uint64, e slot, gone func(*slot)) {
	if index < s.first || index > s.last()+1 || index <= s.applied {
		invariant.Failf("entry %d appended to a log of %d..%d, %d applied", index, s.first, s.last(), s.applied)
	}
	s.truncate(index, gone)
	s.slots = append(s.slots, e)
}

// truncate drops the entries from index on.
func (s *store) truncate(index uint64, gone func(*slot)) {
	if index > s.last() {
		return
	}
	at := index - s.first
	for i := at; i < uint64(len(s.slots)); i++ {
		gone(&s.slots[i])
	}
	clear(s.slots[at:])
	s.slots = s.slots[:at]
}

// compact forgets the entries up to index.
func (s *store) compact(index uint64, gone func(*slot)) {
	if index < s.first {
		return
	}
	n := int(min(index, s.last()) - s.first + 1)
	for i := range n {
		gone(&s.slots[i])
	}
	s.firstTerm = s.slots[n-1].term
	s.first += uint64(n)
	rest := slices.Clone(s.slots[n:])
	s.slots = rest
}

// reset begins anew after a snapshot.
func (s *store) reset(index, term uint64, conf *pb.ConfState, gone func(*slot)) {
	for i := range s.slots {
		gone(&s.slots[i])
	}
	s.slots = nil
	s.first, s.firstTerm = index+1, term
	s.applied, s.appliedTerm, s.commit = index, term, max(s.commit, index)
	s.conf = conf
}

// forget lets go of the payload of an entry, if it is still this one.
func (s *store) forget(index uint64, p *payload) {
	if e := s.at(index); e != nil && e.payload == p {
		e.payload = nil
	}
}

// InitialState implements raft.Storage.
func (s *store) InitialState() (*pb.HardState, *pb.ConfState, error) {
	return &pb.HardState{Term: new(s.term), Vote: new(s.vote), Commit: new(s.commit)}, s.conf, nil
}

// Entries implements raft.Storage.
func (s *store) Entries(lo, hi, maxSize uint64) ([]*pb.Entry, error) {
	if lo < s.first {
		return nil, raft.ErrCompacted
	}
	if hi > s.last()+1 {
		return nil, raft.ErrUnavailable
	}
	var out []*pb.Entry
	bytes, encoded := 0, uint64(0)
	for i := lo; i < hi; i++ {
		e := s.at(i)
		bytes += e.size + len(e.data)
		encoded += uint64(len(e.data)) + entryOverhead
		if len(out) > 0 && (bytes > maxMessage || encoded > maxSize) {
			break
		}
		out = append(out, e.entry(i))
	}
	return out, nil
}

// entryOverhead is about what raft reckons for an entry without its data.
const entryOverhead = 16

// entry is the entry as raft wants it.
func (e *slot) entry(index uint64) *pb.Entry {
	out := &pb.Entry{Index: new(index), Term: new(e.term), Type: pb.EntryNormal.Enum()}
	switch e.kind {
	case entryNormal:
		out.Data = dataOfNormal
	case entryConf:
		out.Type, out.Data = pb.EntryConfChangeV2.Enum(), e.data
	}
	return out
}

// Term implements raft.Storage.
func (s *store) Term(i uint64) (uint64, error) {
	switch {
	case i+1 == s.first:
		return s.firstTerm, nil
	case i < s.first:
		return 0, raft.ErrCompacted
	case i > s.last():
		return 0, raft.ErrUnavailable
	}
	return s.slots[i-s.first].term, nil
}

// LastIndex implements raft.Storage.
func (s *store) LastIndex() (uint64, error) { return s.last(), nil }

// FirstIndex implements raft.Storage.
func (s *store) FirstIndex() (uint64, error) { return s.first, nil }

// Snapshot implements raft.Storage: the state now is what a member that is behind gets.
func (s *store) Snapshot() (*pb.Snapshot, error) {
	if s.of != nil {
		if snap := s.of.snapshotNow(); snap != nil {
			return snap, nil
		}
	}
	return nil, raft.ErrSnapshotTemporarilyUnavailable
}
