package seglog

import (
	"reflect"
	"testing"
)

func TestAppendReadReopen(t *testing.T) {
	r := newRig(t)
	r.start()
	r.append(entryRecord(7, 1, 10, 3, 100), entryRecord(8, 1, 0, 0, 0))
	r.append(entryRecord(7, 2, 13, 2, 5000))
	for id := uint64(10); id < 15; id++ {
		r.mustRead(7, id)
	}
	if _, ok := r.l.Pin(7, 15); ok {
		t.Fatal("an unknown id was pinned")
	}
	r.fs = r.fs.Clone()
	r.mustOpen()
	want := []string{"7:e1[10-12]", "7:e2[13-14]", "8:e1"}
	if got := r.replay(); !reflect.DeepEqual(got, want) {
		t.Fatalf("replayed %v, want %v", got, want)
	}
	r.l.SetLive(7, []Range{{11, 13}})
	r.l.begin()
	for id := uint64(11); id < 14; id++ {
		r.mustRead(7, id)
	}
	if _, ok := r.l.Pin(7, 10); ok {
		t.Fatal("a dead id was pinned")
	}
	r.append(snapshotRecord(7, 2), entryRecord(7, 3, 15, 1, 10))
	r.mustRead(7, 15)
	if err := r.l.Close(true); err != nil {
		t.Fatal(err)
	}
	r.mustOpen()
	if !r.l.Clean() {
		t.Fatal("not clean after a clean stop")
	}
	want = []string{"7:s2", "7:e3[15-15]", "8:e1"}
	if got := r.replay(); !reflect.DeepEqual(got, want) {
		t.Fatalf("replayed %v, want %v", got, want)
	}
	r.mustRead(7, 12)
	r.mustRead(7, 15)
}

func TestSpaceComesBack(t *testing.T) {
	r := newRig(t)
	r.start()
	r.append(entryRecord(5, 1, 0, 1, 100)) // held for ever
	index := uint64(1)
	for id := uint64(1); id < 20000; id += 10 {
		index++
		r.append(entryRecord(5, index, id, 10, 1000))
		r.l.Release(5, index, []Range{{id, id + 9}})
		if r.asked[5] {
			delete(r.asked, 5)
			r.append(snapshotRecord(5, index))
		}
		r.keep()
		if s := r.l.Stats(); s.DiskBytes > 2*s.LiveBytes+6*s.SegmentSize {
			t.Fatalf("after %d: %+v", id, s)
		}
		r.clk.Advance(50e6)
	}
	r.mustRead(5, 0)
	s := r.l.Stats()
	if s.LiveItems != 1 || s.RewrittenSegments == 0 || s.RecycledSegments == 0 {
		t.Fatalf("%+v", s)
	}
	if u := r.fs.Used(); u > 7*r.o.SegmentMin {
		t.Fatalf("%d bytes on disk", u)
	}
}
