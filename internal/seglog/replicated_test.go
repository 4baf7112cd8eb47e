package seglog

import (
	"errors"
	"fmt"
	"slices"
	"testing"
)

func hardRecord(g GroupID, meta string) Record {
	return Record{Group: g, Kind: KindHardState, Term: 1, Meta: []byte(meta)}
}

// termRecord is an entry with n items whose bytes tell the term.
func termRecord(g GroupID, term, index, first uint64, n, size int) Record {
	rec := Record{Group: g, Kind: KindEntry, Term: term, Index: index, Meta: []byte(fmt.Sprintf("e%d@%d", index, term))}
	b := Block{First: first}
	for i := range n {
		b.Items = append(b.Items, itemOf(g, first+uint64(i), itemValue(size, term)))
	}
	if n > 0 {
		rec.Blocks = []Block{b}
	}
	return rec
}

func installRecord(g GroupID, kind Kind, term, index uint64) Record {
	return Record{Group: g, Kind: kind, Term: term, Index: index, Meta: []byte(fmt.Sprintf("s%d@%d", index, term))}
}

// mustReadOf reads an item and compares it with what this term wrote.
func (r *rig) mustReadOf(g GroupID, id, term uint64, size int) {
	r.t.Helper()
	got, err := r.read(g, id)
	if err != nil || string(got) != string(itemOf(g, id, itemValue(size, term))) {
		r.t.Fatalf("item %d/%d of term %d: %.20q, %v", g, id, term, got, err)
	}
}

func (r *rig) mustReplay(want ...string) {
	r.t.Helper()
	if hits := r.l.Quarantined(); len(hits) > 0 {
		r.t.Fatalf("quarantined: %v", hits)
	}
	if got := r.replay(); !slices.Equal(got, want) {
		r.t.Fatalf("replayed %v, want %v", got, want)
	}
}

// TestReplacedItems: ids of replaced entries come again with other bytes, in the same segment and record by record; a reader
// that holds the old record, a pin, a damaged table and salvage tell them apart.
func TestReplacedItems(t *testing.T) {
	r := newRig(t)
	r.start()
	r.append(hardRecord(2, "t1"), installRecord(2, KindInstall, 1, 1))
	r.append(termRecord(2, 1, 2, 1, 4, 50))
	r.append(termRecord(2, 1, 3, 5, 4, 50))
	reader := r.l.NewReader()
	old, ok := r.l.Pin(2, 7)
	if !ok {
		t.Fatal("item 7 is not there")
	}
	if _, err := reader.Read(old); err != nil {
		t.Fatal(err)
	}
	r.append(termRecord(2, 2, 3, 6, 3, 70)) // 5 does not come again
	if _, ok := r.l.Pin(2, 5); ok || r.l.Stats().LiveItems != 7 {
		t.Fatalf("replaced items live: %d", r.l.Stats().LiveItems)
	}
	newer, _ := r.l.Pin(2, 7)
	for _, ref := range []struct {
		ref  Ref
		want []byte
	}{{newer, itemOf(2, 7, itemValue(70, 2))}, {old, itemOf(2, 7, itemValue(50, 1))}, {newer, itemOf(2, 7, itemValue(70, 2))}} {
		if got, err := reader.Read(ref.ref); err != nil || string(got) != string(ref.want) {
			t.Fatalf("%.20q, %v; want %.20q", got, err, ref.want)
		}
	}
	r.append(installRecord(2, KindSnapshot, 2, 3), hardRecord(2, "t2"))
	r.l.mu.Lock()
	seg := r.l.active
	r.l.sealLocked(seg)
	r.l.active = nil
	r.l.mu.Unlock()
	if err := r.l.writeFooter(seg); err != nil {
		t.Fatal(err)
	}
	for _, run := range seg.runs {
		if err := r.fs.Flip("log/"+segmentName(seg.id), run.tabOff+5, 1); err != nil {
			t.Fatal(err)
		}
	}
	check := func() {
		t.Helper()
		for id := uint64(1); id <= 8; id++ {
			switch {
			case id < 5:
				r.mustReadOf(2, id, 1, 50)
			case id > 5:
				r.mustReadOf(2, id, 2, 70)
			}
		}
	}
	check()
	found := map[uint64]string{}
	if err := r.l.DumpGroup(2, func(id uint64, it []byte) error { found[id] = string(it); return nil }); err != nil {
		t.Fatal(err)
	}
	if len(found) != 8 || found[7] != string(itemOf(2, 7, itemValue(70, 2))) {
		t.Fatalf("salvaged %v", found)
	}
	r.churn(1, 200) // and they are moved
	if g := r.l.groups[2]; g.snap.seg.kind != segmentCold || g.repl.hard.seg.kind != segmentCold || g.runs[0].seg.kind != segmentCold {
		t.Fatal("group 2 has not become cold")
	}
	check()
	r.loseCheckpoints()
	if got := slices.DeleteFunc(r.replay(), func(s string) bool { return s[0] == '3' }); !slices.Equal(got, []string{"2:s3@2", "2:t2"}) {
		t.Fatalf("replayed %v", got)
	}
	check()
}

// TestInstall: a snapshot from elsewhere takes the tail with it, above it, too, and finds its items there.
func TestInstall(t *testing.T) {
	r := newRig(t)
	r.start()
	r.append(hardRecord(2, "t1"), installRecord(2, KindInstall, 1, 1))
	for i := uint64(2); i < 8; i++ {
		r.append(termRecord(2, 1, i, i, 1, 50))
	}
	r.l.KeepTail(2, 1)
	r.append(hardRecord(2, "t3"), Record{Group: 2, Kind: KindItems, Term: 3, Blocks: termRecord(2, 3, 0, 4, 1, 60).Blocks})
	r.append(installRecord(2, KindInstall, 3, 5))
	if first, last := r.l.TailBounds(2); first != 6 || last != 5 {
		t.Fatalf("entries %d to %d are left", first, last)
	}
	for range 3 {
		r.mustReadOf(2, 2, 1, 50)
		r.mustReadOf(2, 4, 3, 60)
		for id := uint64(6); id < 8; id++ {
			if _, ok := r.l.Pin(2, id); ok {
				t.Fatalf("item %d of a replaced entry lives", id)
			}
		}
		r.fs = r.fs.KillClone()
		r.mustOpen()
		r.mustReplay("2:s5@3", "2:t3")
		r.l.begin()
		if err := r.l.checkpoint(false); err != nil {
			t.Fatal(err)
		}
	}
	r.append(termRecord(2, 3, 6, 6, 1, 40))
	r.mustReadOf(2, 6, 3, 40)
}

// TestLostHardState: damage that loses a vote, or an entry that replaced another, is noticed although no index has a gap. R202
func TestLostHardState(t *testing.T) {
	for _, c := range []struct {
		name string
		lost Record
		then Record
		hit  bool
	}{
		{"hard state", hardRecord(2, "t2"), termRecord(2, 2, 4, 9, 1, 50), true},
		{"hard state, but there is a newer one", hardRecord(2, "t2"), hardRecord(2, "t3"), false},
		{"replacing entry", termRecord(2, 2, 3, 3, 1, 50), termRecord(2, 2, 4, 4, 1, 50), true},
		{"items", Record{Group: 2, Kind: KindItems, Term: 2, Blocks: termRecord(2, 2, 0, 9, 1, 50).Blocks}, hardRecord(2, "t3"), true},
		{"install", installRecord(2, KindInstall, 2, 3), hardRecord(2, "t3"), true},
		{"own snapshot", installRecord(2, KindSnapshot, 1, 3), hardRecord(2, "t3"), false},
	} {
		for _, checkpoint := range []bool{false, true} {
			r := newRig(t)
			r.start()
			r.append(hardRecord(2, "t1"), installRecord(2, KindInstall, 1, 1))
			r.append(termRecord(2, 1, 2, 1, 1, 50), termRecord(2, 1, 3, 2, 1, 50), entryRecord(3, 1, 1, 1, 50))
			if checkpoint {
				if err := r.l.checkpoint(false); err != nil {
					t.Fatal(err)
				}
			}
			at := r.l.active.end
			r.append(entryRecord(3, 2, 2, 1, 50), c.lost)
			r.append(c.then)
			first := at + headSize + 16 // behind the head and the list, somewhere in group 3's entry
			for _, off := range []int64{first, 0} {
				fs := r.fs.Clone()
				if off == 0 { // only what is lost is damaged
					size, _ := recordSize(&Record{Group: 3, Kind: KindEntry, Meta: []byte("e2"), Blocks: entryRecord(3, 2, 2, 1, 50).Blocks})
					h, _, _ := (&frameReader{file: r.l.active.file, size: r.l.active.size}).head(at, r.l.active.gen)
					off = at + headSize + int64(h.listLen) + int64(align8(size)) + 20
				} else {
					off = at + 20 // the whole frame
				}
				if err := fs.Flip("log/"+segmentName(r.l.active.id), off, 1); err != nil {
					t.Fatal(err)
				}
				one := &rig{t: t, fs: fs, clk: r.clk, o: r.o}
				one.mustOpen()
				var hit []GroupID
				for _, h := range one.l.Quarantined() {
					hit = append(hit, h.Group)
				}
				if slices.Contains(hit, 2) != c.hit {
					t.Errorf("%s (checkpoint %v, at %d): quarantined %v", c.name, checkpoint, off, one.l.Quarantined())
				}
			}
		}
	}
}

// TestDamagedEntryReadBack: an entry found damaged is a hit above the snapshot, and let go of below it. R202
func TestDamagedEntryReadBack(t *testing.T) {
	r := newRig(t)
	r.start()
	r.append(hardRecord(2, "t1"), installRecord(2, KindInstall, 1, 1))
	r.l.KeepTail(2, 1)
	for i := uint64(2); i < 9; i++ {
		r.append(termRecord(2, 1, i, i, 1, 50))
	}
	r.append(installRecord(2, KindSnapshot, 1, 6))
	r.l.Release(2, 6, []Range{{2, 6}})
	g := r.l.groups[2]
	for _, p := range []place{g.repl.kept[1], g.tail[1]} { // 3 and 8
		if err := r.fs.Flip("log/"+segmentName(p.seg.id), int64(p.off)+recordHead+30, 1); err != nil {
			t.Fatal(err)
		}
	}
	reader := r.l.NewReader()
	read := func(index uint64) error {
		_, err := reader.ReadEntry(2, index)
		return err
	}
	if err := read(2); err != nil {
		t.Fatalf("entry 2: %v", err)
	}
	if err := read(3); err != ErrCompacted || len(r.l.Quarantined()) > 0 {
		t.Fatalf("entry 3: %v, quarantined %v", err, r.l.Quarantined())
	}
	if err := read(2); err != ErrCompacted {
		t.Fatalf("entry 2, not dense with the snapshot: %v", err)
	}
	for _, i := range []uint64{4, 5, 6, 7} {
		if err := read(i); err != nil {
			t.Fatalf("entry %d: %v", i, err)
		}
	}
	var damage *CorruptError
	if err := read(8); !errors.As(err, &damage) || damage.Index != 8 || len(r.l.Quarantined()) != 1 {
		t.Fatalf("entry 8: %v, quarantined %v", err, r.l.Quarantined())
	}
	for _, s := range r.l.segs {
		if s.pins != 0 {
			t.Fatalf("%d pins are left", s.pins)
		}
	}
}

// TestKeptTail: kept entries outlive the segments' other contents and a clean start; when nobody wants them any more, the files
// come back.
func TestKeptTail(t *testing.T) {
	r := newRig(t)
	r.start()
	r.append(hardRecord(2, "t1"), installRecord(2, KindInstall, 1, 1))
	r.l.KeepTail(2, 5)
	last := uint64(1)
	for len(r.l.segs) < 6 {
		last++
		r.append(termRecord(2, 1, last, last, 1, 6000))
		for r.l.prepareStep() { // none is made in haste, and smaller
		}
	}
	r.append(installRecord(2, KindSnapshot, 1, last))
	r.l.Release(2, last, []Range{{1, last}})
	for range 5 {
		r.clk.Advance(1e9)
		r.keep()
	}
	read := func() {
		t.Helper()
		reader := r.l.NewReader()
		for i := uint64(6); i <= last; i++ {
			e, err := reader.ReadEntry(2, i)
			if err != nil || len(e.Items) != 1 || string(e.Items[0]) != string(itemOf(2, i, itemValue(6000, 1))) {
				t.Fatalf("entry %d: %v", i, err)
			}
		}
		if first, end := r.l.TailBounds(2); first != 6 || end != last {
			t.Fatalf("entries %d to %d are readable, want 6 to %d", first, end, last)
		}
	}
	read()
	s := r.l.Stats()
	if s.LiveItems != 0 || s.KeptBytes < 4*s.SegmentSize || s.LiveBytes < s.KeptBytes {
		t.Fatalf("%+v", s)
	}
	if err := r.l.Close(true); err != nil {
		t.Fatal(err)
	}
	r.mustOpen()
	r.mustReplay(fmt.Sprintf("2:s%d@1", last), "2:t1")
	read()
	r.l.begin()
	r.l.KeepTail(2, 0)
	for range 5 {
		r.clk.Advance(1e9)
		r.keep()
	}
	if s := r.l.Stats(); s.KeptBytes != 0 || s.Hot > 2 {
		t.Fatalf("nobody wants the entries: %+v", s)
	}
	if first, end := r.l.TailBounds(2); first != last+1 || end != last {
		t.Fatalf("entries %d to %d are readable", first, end)
	}
}

// TestGroupBeginsAnew: after its drop a replicated group may begin anew under its number; without a checkpoint its old state
// in cold segments is not taken for the new one. R50
func TestGroupBeginsAnew(t *testing.T) {
	for _, cold := range []bool{false, true} {
		r := newRig(t)
		r.start()
		r.append(hardRecord(2, "t9"), installRecord(2, KindInstall, 9, 90))
		r.churn(1, 200)
		if g := r.l.groups[2]; g.snap.seg.kind != segmentCold || g.repl.hard.seg.kind != segmentCold {
			t.Fatal("group 2 has not become cold")
		}
		r.append(Record{Group: 2, Kind: KindDrop, Index: 90}, entryRecord(4, 1, 0, 0, 0)) // the tail of 4 keeps the drop
		ended, next := r.l.active, uint64(200)
		for ; r.l.active == ended; next++ {
			r.churn(next, next+1)
		}
		r.append(hardRecord(2, "t1"), installRecord(2, KindInstall, 1, 1))
		r.append(termRecord(2, 1, 2, 5, 1, 50))
		want := []string{"2:s1@1", "2:t1", "2:e2@1[5-5]"}
		if cold {
			r.append(installRecord(2, KindSnapshot, 1, 2))
			want = []string{"2:s2@1", "2:t1"}
			r.churn(next, next+200)
			if g := r.l.groups[2]; g.snap.seg.kind != segmentCold || g.repl.hard.seg.kind != segmentCold {
				t.Fatal("group 2 has not become cold again")
			}
		}
		r.loseCheckpoints()
		if got := slices.DeleteFunc(r.replay(), func(s string) bool { return s[0] > '2' }); !slices.Equal(got, want) {
			t.Fatalf("cold %v: replayed %v, want %v (quarantined %v)", cold, got, want, r.l.Quarantined())
		}
		r.mustReadOf(2, 5, 1, 50)
	}
}

// TestReplacedEntriesStayReplaced: entries whose replacements lie in a segment used again do not come back without a checkpoint.
func TestReplacedEntriesStayReplaced(t *testing.T) {
	r := newRig(t)
	r.start()
	r.append(hardRecord(2, "t1"), installRecord(2, KindInstall, 1, 1))
	r.append(entryRecord(4, 1, 1, 1, 20000), termRecord(2, 1, 2, 1, 1, 50), termRecord(2, 1, 3, 2, 1, 50), termRecord(2, 1, 4, 3, 1, 50))
	held := r.l.active // by group 4
	for r.l.active == held {
		r.append(entryRecord(5, r.l.group(5).lastIndex+1, 0, 0, 0))
	}
	for i := uint64(1); i < 8; i++ { // the next segment is full of what nobody needs
		r.append(termRecord(2, 2, 2, 1, 1, 6000))
	}
	replaced := r.l.active
	for r.l.active == replaced {
		r.append(entryRecord(5, r.l.group(5).lastIndex+1, 0, 0, 0))
	}
	r.append(hardRecord(2, "t2"), installRecord(2, KindSnapshot, 2, 2), snapshotRecord(5, r.l.group(5).lastIndex))
	r.l.Release(2, 2, []Range{{1, 1}})
	r.clk.Advance(1e9)
	for range 5 {
		r.keep()
		r.clk.Advance(1e9)
	}
	if r.l.segs[replaced.id] == replaced || r.l.segs[held.id] != held {
		t.Fatal("the segments did not end as this test needs them")
	}
	r.loseCheckpoints()
	if got := slices.DeleteFunc(r.replay(), func(s string) bool { return s[0] != '2' }); !slices.Equal(got, []string{"2:s2@2", "2:t2"}) {
		t.Fatalf("replayed %v, quarantined %v", got, r.l.Quarantined())
	}
}
