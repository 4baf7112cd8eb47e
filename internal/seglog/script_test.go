package seglog

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"holdfast/internal/vfs"
)

// TestScripts runs the histories in testdata. Each command is one thing that happens to a log; what it prints is kept in the
// file, and a change there is a change of behaviour.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		s := &script{rig: newRig(t)}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			f, ok := scriptCommands[d.Cmd]
			if !ok {
				return "no such command"
			}
			s.t = t
			s.out.Reset()
			f(s, d)
			if s.out.Len() == 0 {
				return "ok\n"
			}
			return s.out.String()
		})
	})
}

type script struct {
	*rig
	out strings.Builder
}

var scriptCommands = map[string]func(s *script, d *datadriven.TestData){
	"open":     scriptOpen,
	"append":   scriptAppend,
	"commit":   func(s *script, d *datadriven.TestData) { s.commit() },
	"mark":     func(s *script, d *datadriven.TestData) { s.l.writeMark() },
	"release":  scriptRelease,
	"keeptail": scriptKeepTail,
	"tail":     scriptTail,
	"live":     scriptLive,
	"keep":     scriptKeep,
	"read":     scriptRead,
	"crash":    scriptCrash,
	"kill":     func(s *script, d *datadriven.TestData) { s.fs = s.fs.Clone() },
	"close":    scriptClose,
	"flip":     scriptFlip,
	"dump":     func(s *script, d *datadriven.TestData) { s.l.Dump(&s.out) },
	"salvage":  scriptSalvage,
}

// scriptOpen opens the log and prints what it says of itself and replays.
func scriptOpen(s *script, d *datadriven.TestData) {
	if err := s.open(); err != nil {
		fmt.Fprintln(&s.out, err)
		return
	}
	fmt.Fprintf(&s.out, "clean %v\n", s.l.Clean())
	for _, r := range s.replay() {
		fmt.Fprintln(&s.out, "replay", r)
	}
	for _, h := range s.l.Quarantined() {
		fmt.Fprintf(&s.out, "quarantined %d: %s\n", h.Group, h.Reason)
	}
	s.l.begin()
}

// scriptAppend appends one batch: a line per record, "group kind index [first-last size]". With "term", in a replicated group.
func scriptAppend(s *script, d *datadriven.TestData) {
	var term uint64
	d.MaybeScanArgs(s.t.(*testing.T), "term", &term)
	b := &Batch{Sync: !d.HasArg("lazy"), Stable: func(*Batch) { fmt.Fprintln(&s.out, "stable") }}
	for _, line := range strings.Split(strings.TrimSpace(d.Input), "\n") {
		var g GroupID
		var kind string
		var index, first, last uint64
		var size int
		n, _ := fmt.Sscanf(line, "%d %s %d %d-%d %d", &g, &kind, &index, &first, &last, &size)
		rec := entryRecord(g, index, first, 0, 0)
		switch kind {
		case "snapshot":
			rec = snapshotRecord(g, index)
		case "drop":
			rec.Kind = KindDrop
		case "hardstate":
			rec.Kind, rec.Meta = KindHardState, []byte(fmt.Sprintf("t%d", term))
		case "install":
			rec.Kind, rec.Meta = KindInstall, []byte(fmt.Sprintf("i%d", index))
		case "items":
			rec.Kind = KindItems
		}
		rec.Term = term
		if n == 6 {
			rec.Blocks = termRecord(g, term, index, first, int(last-first+1), size).Blocks
		}
		b.Records = append(b.Records, rec)
	}
	s.l.Append(b)
	if !d.HasArg("wait") {
		s.commit()
	}
}

func scriptRelease(s *script, d *datadriven.TestData) {
	var g GroupID
	var index uint64
	var r Range
	d.ScanArgs(s.t.(*testing.T), "group", (*uint64)(&g))
	d.ScanArgs(s.t.(*testing.T), "index", &index)
	d.ScanArgs(s.t.(*testing.T), "ids", &r.First, &r.Last)
	s.l.Release(g, index, []Range{r})
}

func scriptKeepTail(s *script, d *datadriven.TestData) {
	var g, index uint64
	d.ScanArgs(s.t.(*testing.T), "group", &g)
	d.ScanArgs(s.t.(*testing.T), "index", &index)
	s.l.KeepTail(GroupID(g), index)
}

// scriptTail reads back all entries that can be.
func scriptTail(s *script, d *datadriven.TestData) {
	var g uint64
	d.ScanArgs(s.t.(*testing.T), "group", &g)
	first, last := s.l.TailBounds(GroupID(g))
	fmt.Fprintf(&s.out, "%d to %d\n", first, last)
	r := s.l.NewReader()
	for i := first - 1; i <= last+1; i++ {
		e, err := r.ReadEntry(GroupID(g), i)
		if err != nil {
			fmt.Fprintf(&s.out, "%d: %v\n", i, err)
			continue
		}
		fmt.Fprintf(&s.out, "%d: %v %d (term %d) %s %v", i, e.Kind, e.Index, e.Term, e.Meta, e.IDs)
		for _, it := range e.Items {
			fmt.Fprintf(&s.out, " %.10s", it)
		}
		fmt.Fprintln(&s.out)
	}
}

func scriptLive(s *script, d *datadriven.TestData) {
	var g uint64
	var r Range
	d.ScanArgs(s.t.(*testing.T), "group", &g)
	d.ScanArgs(s.t.(*testing.T), "ids", &r.First, &r.Last)
	s.l.SetLive(GroupID(g), []Range{r})
}

// scriptKeep lets time pass and the keeper work.
func scriptKeep(s *script, d *datadriven.TestData) {
	secs := 1
	d.MaybeScanArgs(s.t.(*testing.T), "seconds", &secs)
	for range secs {
		s.clk.Advance(time.Second)
		s.keep()
	}
	for g := range s.asked {
		fmt.Fprintf(&s.out, "asks %d for a snapshot\n", g)
		delete(s.asked, g)
	}
	st := s.l.Stats()
	fmt.Fprintf(&s.out, "%d hot, %d cold, %d free, %d live items, %d rewritten, %d recycled, %d checkpoints\n",
		st.Hot, st.Cold, st.Free, st.LiveItems, st.RewrittenSegments, st.RecycledSegments, st.Checkpoints)
}

func scriptRead(s *script, d *datadriven.TestData) {
	var g, id uint64
	d.ScanArgs(s.t.(*testing.T), "group", &g)
	d.ScanArgs(s.t.(*testing.T), "id", &id)
	got, err := s.read(GroupID(g), id)
	if err != nil {
		fmt.Fprintln(&s.out, err)
		return
	}
	fmt.Fprintf(&s.out, "%.20s (%d bytes)\n", got, len(got))
}

// scriptCrash cuts the power; with "at-sync" in the middle of committing what waits.
func scriptCrash(s *script, d *datadriven.TestData) {
	if d.HasArg("at-sync") {
		s.fs.Inject(vfs.Fault{Op: vfs.OpDatasync, Err: vfs.ErrCrashed})
		s.fs.CrashAt(s.fs.Calls() + 2)
		s.commit()
	}
	seed := uint64(1)
	d.MaybeScanArgs(s.t.(*testing.T), "seed", &seed)
	s.fs = s.fs.CrashClone(rand.New(rand.NewPCG(seed, 0)))
}

func scriptClose(s *script, d *datadriven.TestData) {
	if err := s.l.Close(d.HasArg("clean")); err != nil {
		fmt.Fprintln(&s.out, err)
	}
}

func scriptFlip(s *script, d *datadriven.TestData) {
	var name string
	var off int64
	d.ScanArgs(s.t.(*testing.T), "file", &name)
	d.ScanArgs(s.t.(*testing.T), "off", &off)
	if err := s.fs.Flip("log/"+name, off, 2); err != nil {
		fmt.Fprintln(&s.out, err)
	}
}

func scriptSalvage(s *script, d *datadriven.TestData) {
	var g uint64
	d.ScanArgs(s.t.(*testing.T), "group", &g)
	s.l.DumpGroup(GroupID(g), func(id uint64, it []byte) error {
		fmt.Fprintf(&s.out, "%d: %.10s\n", id, it)
		return nil
	})
}
