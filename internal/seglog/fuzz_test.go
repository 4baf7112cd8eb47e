package seglog

import (
	"bytes"
	"testing"
)

// The fuzzers feed every decoder with damaged input. What decodes must hold together: no later access may panic.

func FuzzRecord(f *testing.F) {
	for _, r := range []Record{entryRecord(1, 2, 3, 4, 50), snapshotRecord(9, 8), hardRecord(4, "t1"), {Group: 1, Kind: KindEntry, Blocks: []Block{
		{First: 5, Items: [][]byte{nil, {1}}}, {First: 90}, {First: 100, Items: [][]byte{{1, 2}}}}}} {
		p, _, _ := appendRecord(nil, &r, 5)
		f.Add(p, false)
		f.Add(p, true)
	}
	f.Fuzz(func(t *testing.T, p []byte, fix bool) {
		if n := recordLength(p); fix && n > 0 && n <= len(p) {
			p = bytes.Clone(p)
			le.PutUint32(p[4:], checksum(p[8:n])) // so that the fuzzer gets past the checksum
		}
		r, err := parseRecord(p)
		if err != nil {
			return
		}
		k := 0
		for i := range r.numBlocks() {
			first, n := r.block(i)
			for j := range n {
				want := r.item(k)
				if got, ok := r.find(first + uint64(j)); ok && len(got) != len(want) && r.numBlocks() == 1 {
					t.Fatal("find and item differ")
				}
				k++
			}
		}
		r.ids()
		replayedOf(&r)
		if e := r.entry(); len(e.Items) != len(r.ends)/4 {
			t.Fatal("an entry read back has more or fewer items")
		}
		if r.overhead() < recordHead {
			t.Fatal("overhead below the head")
		}
	})
}

func FuzzFrameHead(f *testing.F) {
	buf, n := openFrame(nil, appendList(nil, &Record{Group: 3, Kind: KindEntry, Index: 77}))
	buf, _, _ = appendRecord(buf, &Record{Group: 3, Kind: KindEntry, Index: 78}, 2)
	buf = sealFrame(buf, 0, head{gen: 1, seq: 2, kind: frameData, listLen: n, records: 1})
	f.Add(buf, false)
	f.Add(buf, true)
	hdr := segmentHeader{kind: segmentHot, prevGen: 4, prevLast: 5, size: 6}.append(nil)
	f.Add(hdr, false)
	f.Fuzz(func(t *testing.T, p []byte, fix bool) {
		if fix && len(p) >= headSize {
			p = bytes.Clone(p)
			if end := headSize + int(le.Uint32(p[52:])); end >= headSize && end <= len(p) {
				le.PutUint32(p[4:], checksum(p[8:end]))
			}
		}
		if h, list, err := parseHead(p); err == nil {
			if h.bytes()%pageSize != 0 || h.bytes() < pageSize {
				t.Fatalf("frame of %d bytes", h.bytes())
			}
			eachListed(list, func(g GroupID, _ uint64, _ byte) {
				if g == 0 {
					t.Fatal("group 0 listed")
				}
			})
		}
		parseSegmentHeader(p)
		eachRecord(p, func(off int, rec *record) {
			if off+rec.length > len(p) {
				t.Fatal("record reaches beyond its body")
			}
		})
	})
}

// oldWitness is a witness of segment 9, as the first build that had one wrote it.
func oldWitness() []byte {
	buf, n := openFrame(nil, appendList(nil, &Record{Group: 3, Kind: KindEntry, Index: 77}))
	buf = segmentHeader{kind: segmentHot, id: 9, prevGen: 4, prevLast: 5, size: 1 << 20}.append(buf)
	return sealFrame(buf, 0, head{gen: 7, seq: 6, synced: 12, kind: frameHeader, listLen: n})
}

// witnessPage is one of now.
func witnessPage() []byte {
	list := func(index uint64) []byte { return appendList(nil, &Record{Group: 3, Kind: KindEntry, Index: index}) }
	t := testimony{
		head:       head{gen: 7, seq: 6, synced: 12, kind: frameHeader},
		header:     segmentHeader{kind: segmentHot, id: 9, prevGen: 4, prevLast: 5, size: 1 << 20},
		checkpoint: 17,
	}
	t.take(list(77), []listed{{7, list(75)}, {9, list(76)}})
	return t.encode()
}

func FuzzWitness(f *testing.F) {
	s := &segment{id: 9, gen: 7, firstSeq: 6}
	for i, p := range [][]byte{oldWitness(), witnessPage()} {
		w := parseWitness(p)
		if w.durable(s) != 12 || w.header.prevLast != 5 || len(w.listOf(s, 12)) == 0 || w.checkpoint != uint64(17*i) || len(w.listOf(s, 7)) != 3*i {
			f.Fatalf("read back: %+v", w)
		}
		f.Add(p, false)
	}
	f.Add(witnessPage(), true)
	f.Add(make([]byte, pageSize), false)
	f.Fuzz(func(t *testing.T, p []byte, fix bool) {
		if fix && len(p) >= headSize {
			p = bytes.Clone(p)
			if end := headSize + int(le.Uint32(p[52:])); end >= headSize && end <= len(p) {
				if body := end + int(le.Uint32(p[40:])); body >= end && body <= len(p) {
					le.PutUint32(p[44:], checksum(p[end:body]))
				}
				le.PutUint32(p[4:], checksum(p[8:end]))
			}
		}
		if w := parseWitness(p); w.head.gen != 0 && (w.header.id == 0 || w.durable(&segment{id: w.header.id, gen: w.head.gen}) <= w.head.seq) {
			t.Fatalf("a witness of nothing: %+v", w)
		}
	})
}

func FuzzTable(f *testing.F) {
	f.Add(appendTable(nil, 7, []entry{{5, 3, 4096}, {10, 1, 5000}}), false)
	f.Add(appendTable(nil, 7, []entry{{5, 3, 4096}, {10, 1, 5000}}), true)
	f.Fuzz(func(t *testing.T, p []byte, fix bool) {
		if fix && len(p) >= 4 {
			p = bytes.Clone(p)
			le.PutUint32(p, checksum(p[4:]))
		}
		entries, err := parseTable(p, 7)
		if err != nil {
			return
		}
		for _, e := range entries {
			if got, ok := findEntry(entries, e.first+uint64(e.count)-1); !ok || got != e {
				t.Fatalf("entry %v is not found by its last id", e)
			}
		}
		again, err := parseTable(appendTable(nil, 7, entries), 7)
		if err != nil || len(again) != len(entries) {
			t.Fatalf("re-encoding: %v", err)
		}
	})
}

func FuzzCheckpoint(f *testing.F) {
	r := newRig(f)
	r.start()
	for i := uint64(1); i < 40; i++ {
		r.append(entryRecord(2, i, i*3, 3, 3000), entryRecord(3, i, i, 1, 10))
		r.l.Release(2, i, []Range{{i * 3, i*3 + 1}})
		r.keep()
	}
	r.append(snapshotRecord(2, 39))
	r.append(hardRecord(4, "t1"), installRecord(4, KindInstall, 1, 1), termRecord(4, 1, 2, 1, 3, 50), termRecord(4, 1, 3, 9, 1, 50))
	r.l.KeepTail(4, 1)
	r.append(installRecord(4, KindSnapshot, 1, 2), termRecord(4, 2, 3, 8, 2, 50))
	r.l.setHit(9, "because")
	if err := r.l.Close(true); err != nil {
		f.Fatal(err)
	}
	names := r.fs.Names("log/checkpoint")
	p, err := r.l.readFile(names[len(names)-1][len("log/"):])
	if err != nil {
		f.Fatal(err)
	}
	if _, err := parseCheckpoint(p); err != nil {
		f.Fatal(err)
	}
	f.Add(p, false)
	f.Add(p, true)
	f.Fuzz(func(t *testing.T, p []byte, fix bool) {
		if fix && len(p) >= checkpointHead {
			p = bytes.Clone(p)
			le.PutUint32(p, checkpointMagic)
			le.PutUint32(p[4:], checkpointVersion)
			le.PutUint32(p[8:], checksum(p[checkpointHead:]))
			le.PutUint64(p[16:], uint64(len(p)-checkpointHead))
		}
		c, err := parseCheckpoint(p)
		if err != nil {
			return
		}
		for _, g := range c.list {
			if g.repl != nil && len(g.repl.tail) != len(g.tail) {
				t.Fatal("entries and what they carry differ in number")
			}
			for _, r := range g.runs {
				if r.seg == nil || c.segs[r.seg.id] != r.seg {
					t.Fatal("a run in a segment that is not there")
				}
			}
		}
	})
}
