package seglog

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"io"
	"os"
	"slices"
	"testing"

	"holdfast/internal/vfs"
)

// oldFolder is a log as the first version left it when it was killed: five groups, 9 quarantined, a checkpoint and frames
// behind it. The file holds { length of name, name, size, bytes }*, numbers as varints.
func oldFolder(t *testing.T) *vfs.Mem {
	t.Helper()
	f, err := os.Open("testdata/version1.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	p, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	fs := vfs.NewMem()
	if err := fs.MkdirAll("log"); err != nil {
		t.Fatal(err)
	}
	next := func() []byte {
		n, k := binary.Uvarint(p)
		out := p[k : k+int(n)]
		p = p[k+int(n):]
		return out
	}
	for len(p) > 0 {
		name, content := string(next()), next()
		file, err := fs.Create(name)
		if err == nil {
			_, err = file.WriteAt(content, 0)
		}
		if err == nil {
			err = file.Sync()
		}
		if err != nil {
			t.Fatal(err)
		}
		file.Close()
	}
	if err := fs.SyncDir("log"); err != nil {
		t.Fatal(err)
	}
	return fs
}

// TestFirstVersionOpens: a folder of the first version opens and goes on, with its checkpoint and without. R50
func TestFirstVersionOpens(t *testing.T) {
	const lane = 1 << 40
	for _, checkpoint := range []bool{true, false} {
		r := newRig(t)
		r.fs = oldFolder(t)
		want := []string{"1:s7", "2:s1", "2:e2[3-6]", "2:e3[1099511627776-1099511627777]", "2:e4[7-7]", "3:s59", "4:s1", "5:e1[1-1]"}
		if !checkpoint {
			for _, n := range r.fs.Names("log/checkpoint") {
				if err := r.fs.Flip(n, 40, 1); err != nil {
					t.Fatal(err)
				}
			}
		}
		r.mustOpen()
		hits := r.l.Quarantined()
		if checkpoint && (len(hits) != 1 || hits[0].Group != 9) || !checkpoint && len(hits) > 0 {
			t.Fatalf("checkpoint %v: quarantined %v", checkpoint, hits)
		}
		if got := r.replay(); !slices.Equal(got, want) {
			t.Fatalf("checkpoint %v: replayed %v, want %v", checkpoint, got, want)
		}
		if missing := r.l.SetLive(2, []Range{{1, 3}, {5, 7}, {lane, lane + 1}}); missing > 0 {
			t.Fatalf("%d items are missing", missing)
		}
		for _, id := range []uint64{1, 2, 3, 5, 6, 7, lane, lane + 1} {
			r.mustRead(2, id)
		}
		r.l.begin()
		r.append(entryRecord(2, 5, 8, 1, 10))
		want = slices.Insert(want, slices.Index(want, "3:s59"), "2:e5[8-8]")
		if err := r.l.Close(true); err != nil {
			t.Fatal(err)
		}
		r.mustOpen()
		if got := r.replay(); !slices.Equal(got, want) {
			t.Fatalf("checkpoint %v: then replayed %v, want %v", checkpoint, got, want)
		}
	}
}

// TestFormatOfOtherRecords: what the first version knew is written as it wrote it, but for the sequence in snapshots.
func TestFormatOfOtherRecords(t *testing.T) {
	e := entryRecord(2, 3, 4, 2, 20)
	p, _, _ := appendRecord(nil, &e, 77)
	if !bytes.Equal(p[56:64], make([]byte, 8)) {
		t.Error("an entry says where it was born")
	}
	s := snapshotRecord(2, 3)
	p, _, _ = appendRecord(nil, &s, 77)
	rec, err := parseRecord(p)
	if err != nil || rec.born != 77 {
		t.Errorf("a snapshot of frame 77 was born in %d (%v)", rec.born, err)
	}
}
