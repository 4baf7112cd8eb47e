package seglog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"testing"
	"time"

	"holdfast/internal/clock"
	"holdfast/internal/vfs"
)

// rig is a log on a disk in memory, stepped by hand.
type rig struct {
	t     testing.TB
	fs    *vfs.Mem
	clk   *clock.Manual
	o     Options
	l     *Log
	fatal error
	asked map[GroupID]bool
	alarm []string
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

func newRig(t testing.TB) *rig {
	r := &rig{t: t, fs: vfs.NewMem(), clk: clock.NewManual(time.Unix(1e9, 0)), asked: map[GroupID]bool{}}
	r.o = Options{
		SegmentMin: 64 << 10, SegmentMax: 64 << 10, FrameMax: 16 << 10, CheckpointBytes: 128 << 10,
		Clock: r.clk, Logger: quiet(),
		Events: Events{
			NeedSnapshot: func(gs []GroupID) {
				for _, g := range gs {
					r.asked[g] = true
				}
			},
			Alarm: func(k AlarmKind, on bool, why string) { r.alarm = append(r.alarm, fmt.Sprint(k, " ", on)) },
			Fatal: func(err error) { r.fatal = err },
		},
	}
	return r
}

// open opens the log on the rig's disk.
func (r *rig) open() error {
	l, err := Open(r.fs, "log", r.o)
	if err != nil {
		return err
	}
	l.noLoop = true
	r.l = l
	return nil
}

func (r *rig) mustOpen() {
	r.t.Helper()
	if err := r.open(); err != nil {
		r.t.Fatal(err)
	}
}

// start opens, replays into nothing and begins.
func (r *rig) start() {
	r.t.Helper()
	r.mustOpen()
	r.l.begin()
}

// commit commits until nothing waits, or the log cannot go on.
func (r *rig) commit() bool {
	for r.l.in.waiting() {
		if !r.l.commitOnce() {
			return false
		}
	}
	return true
}

// calm has the committer do what it does when nothing is appended.
func (r *rig) calm() {
	for did := true; did && !r.l.failed.Load(); {
		did, _ = r.l.calm(r.clk.Mono())
	}
}

// keep lets the keeper and the preparer do all that is due.
func (r *rig) keep() {
	for i := 0; !r.l.failed.Load() && (r.l.keepStep() || r.l.prepareStep()); i++ {
		if i > 10000 {
			r.l.Dump(os.Stderr)
			r.t.Fatalf("the keeper never comes to rest: %+v", r.l.Stats())
		}
	}
}

func item(g GroupID, id uint64, size int) []byte {
	s := []byte(fmt.Sprintf("%d/%d.", g, id))
	return bytes.Repeat(s, size/len(s)+1)[:max(size, len(s))]
}

// entryRecord is an entry with n items from first on.
func entryRecord(g GroupID, index, first uint64, n, size int) Record {
	rec := Record{Group: g, Kind: KindEntry, Index: index, Time: int64(index), Meta: []byte(fmt.Sprintf("e%d", index))}
	if n > 0 {
		b := Block{First: first}
		for i := range n {
			b.Items = append(b.Items, item(g, first+uint64(i), size))
		}
		rec.Blocks = []Block{b}
	}
	return rec
}

func snapshotRecord(g GroupID, index uint64) Record {
	return Record{Group: g, Kind: KindSnapshot, Index: index, Meta: []byte(fmt.Sprintf("s%d", index))}
}

// append appends records and commits them.
func (r *rig) append(recs ...Record) {
	r.t.Helper()
	stable := false
	r.l.Append(&Batch{Records: recs, Sync: true, Stable: func(*Batch) { stable = true }})
	if !r.commit() || !stable {
		r.t.Fatalf("batch did not become stable: %v", r.l.failure)
	}
}

func (r *rig) read(g GroupID, id uint64) ([]byte, error) {
	ref, ok := r.l.Pin(g, id)
	if !ok {
		return nil, errUnknown
	}
	defer ref.Unpin()
	return r.l.NewReader().Read(ref)
}

var errUnknown = errors.New("unknown id")

func (r *rig) mustRead(g GroupID, id uint64) {
	r.t.Helper()
	got, err := r.read(g, id)
	if err != nil {
		r.t.Fatalf("item %d/%d: %v", g, id, err)
	}
	if !bytes.HasPrefix(got, []byte(fmt.Sprintf("%d/%d.", g, id))) {
		r.t.Fatalf("item %d/%d reads %.20q", g, id, got)
	}
}

// replay returns what Replay hands back, one short string per record.
func (r *rig) replay() []string {
	var out []string
	err := r.l.Replay(func(x Replayed) error {
		s := fmt.Sprintf("%d:%s", x.Group, x.Meta)
		for _, ids := range x.IDs {
			s += fmt.Sprintf("[%d-%d]", ids.First, ids.Last)
		}
		out = append(out, s)
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}
