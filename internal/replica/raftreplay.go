package replica

import (
	"errors"
	"fmt"

	"go.etcd.io/raft/v3/confchange"
	pb "go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"
	"google.golang.org/protobuf/proto"

	"holdfast/internal/planted"
	"holdfast/internal/seglog"
)

// replay takes one record of the log: the newest snapshot, the hard state, and the
// entries above. What is known to be committed is applied; the rest is kept until a
// leader says what becomes of it.
func (x *raftGroup) replay(rec seglog.Replayed) error {
	switch rec.Kind {
	case seglog.KindSnapshot:
		head, blob, err := parseSnapshot(rec.Meta)
		if err != nil {
			return err
		}
		if err := x.host.Restore(blob); err != nil {
			return err
		}
		x.self, x.members, x.time, x.create = head.self, x.g.shard.node.shared(head.members), head.time, false
		x.store.reset(rec.Index, rec.Term, x.conf, func(*slot) {})
		x.promised(rec.Term, 0)
		x.g.index, x.g.term = rec.Index, rec.Term
		x.snapshotAt = rec.Index
		x.g.snapshotTaken(len(rec.Meta))
	case seglog.KindHardState:
		h, err := parseHardState(rec.Meta)
		if err != nil {
			return err
		}
		x.self, x.create = h.self, false
		if !planted.Is(planted.VotesForgotten) {
			x.promised(h.term, h.vote)
		}
		x.committed = max(x.committed, h.commit)
	case seglog.KindEntry:
		if err := x.replayEntry(rec); err != nil {
			return err
		}
	default:
		return fmt.Errorf("unknown kind of record %d", rec.Kind)
	}
	return x.replayCommitted()
}

// promised remembers the newest term, and who got the vote in it.
func (x *raftGroup) promised(term, vote uint64) {
	if term > x.store.term {
		x.store.term, x.store.vote = term, 0
	}
	if term == x.store.term && vote != 0 {
		x.store.vote = vote
	}
}

func (x *raftGroup) replayEntry(rec seglog.Replayed) error {
	kind, commit, rest, ok := header(rec.Meta)
	switch {
	case !ok:
		return errors.New("malformed entry")
	case rec.Index <= x.store.applied || rec.Term < x.store.lastTerm():
		return nil // of a leader that was deposed: the snapshot came in its place
	case rec.Index > x.store.last()+1:
		return fmt.Errorf("entry %d is missing", x.store.last()+1)
	}
	e := slot{term: rec.Term, kind: kind, size: len(rec.Meta)}
	switch kind {
	case entryNormal:
		e.payload = &payload{time: rec.Time, record: rec.Meta, size: len(rec.Meta), ids: rec.IDs, partial: len(rec.IDs) > 0}
	case entryConf:
		e.data = rest
	}
	x.store.append(rec.Index, e, func(*slot) {})
	x.promised(rec.Term, 0)
	x.committed = max(x.committed, commit)
	x.g.sinceEntries++
	x.g.sinceBytes += int64(e.size)
	return nil
}

// replayCommitted applies what is known to be committed.
func (x *raftGroup) replayCommitted() error {
	x.store.commit = max(x.store.commit, min(x.committed, x.store.last()))
	for x.store.applied < x.store.commit {
		index := x.store.applied + 1
		e := x.store.at(index)
		switch e.kind {
		case entryConf:
			if err := x.replayConf(e.data); err != nil {
				return err
			}
		case entryNormal:
			p := e.payload
			e.payload = nil
			x.time = p.time
			err := x.host.Replay(seglog.Replayed{
				Group: x.g.id, Kind: seglog.KindEntry, Term: e.term, Index: index, Time: p.time, Meta: p.meta(), IDs: p.ids,
			})
			if err != nil {
				return err
			}
		}
		x.store.applied, x.store.appliedTerm = index, e.term
		x.g.index, x.g.term = index, e.term
	}
	return nil
}

// replayConf carries out a change of members without a raft node.
func (x *raftGroup) replayConf(data []byte) error {
	cc := &pb.ConfChangeV2{}
	if err := proto.Unmarshal(data, cc); err != nil {
		return err
	}
	c := confchange.Changer{Tracker: tracker.MakeProgressTracker(1, 0), LastIndex: x.store.last()}
	cfg, progress, err := confchange.Restore(c, x.conf)
	if err != nil {
		return err
	}
	c.Tracker.Config, c.Tracker.Progress = cfg, progress
	if cc.LeaveJoint() {
		cfg, progress, err = c.LeaveJoint()
	} else if autoLeave, joint := cc.EnterJoint(); joint {
		cfg, progress, err = c.EnterJoint(autoLeave, cc.Changes...)
	} else {
		cfg, progress, err = c.Simple(cc.Changes...)
	}
	if err != nil {
		return err
	}
	c.Tracker.Config, c.Tracker.Progress = cfg, progress
	x.setConf(c.Tracker.ConfState(), cc.GetContext())
	return nil
}

// replayNext applies the next entry although nobody has said that it is committed: items are missing that the state before
// it needs, and only an entry that this member had applied, and that was therefore committed, has had them let go of.
func (x *raftGroup) replayNext() error {
	x.committed = x.store.applied + 1
	return x.replayCommitted()
}

// live adds the items of entries that are not applied yet to those the state needs.
func (x *raftGroup) live(dst []seglog.Range) []seglog.Range {
	n := len(dst)
	for i := x.store.applied + 1; i <= x.store.last(); i++ {
		if p := x.store.at(i).payload; p != nil {
			dst = append(dst, p.ids...)
		}
	}
	if len(dst) > n {
		dst = mergeRanges(dst)
	}
	return dst
}
