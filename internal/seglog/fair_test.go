package seglog

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestSmallGroupIsNotDelayed: with megabytes of one group waiting, a small record of another goes out with the next frame.
func TestSmallGroupIsNotDelayed(t *testing.T) {
	r := newRig(t)
	r.start()
	for i := uint64(1); i <= 100; i++ {
		r.l.Append(&Batch{Records: []Record{entryRecord(2, i, i, 1, 5000)}, Sync: true})
	}
	small := false
	r.l.Append(&Batch{Records: []Record{entryRecord(3, 1, 1, 1, 10)}, Sync: true, Stable: func(*Batch) { small = true }})
	r.l.commitOnce()
	if !small {
		t.Fatal("the small record waited")
	}
	if left := r.l.com.fair.bytes; left < 400<<10 {
		t.Fatalf("the frame was not capped: %d bytes left", left)
	}
	if !r.commit() || r.l.groups[2].lastIndex != 100 {
		t.Fatal("the rest was not written in order")
	}
}

// TestStableInOrder: batches that share a group become stable in the order they were appended, whatever the frames.
func TestStableInOrder(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 4))
		r := newRig(t)
		r.start()
		index := map[GroupID]uint64{}
		last := map[GroupID]int{} // newest batch reported per group
		reported := 0
		for n := 1; n <= 60; n++ {
			b := &Batch{Sync: rng.IntN(2) == 0}
			for range rng.IntN(4) {
				g := GroupID(1 + rng.IntN(5))
				index[g]++
				b.Records = append(b.Records, entryRecord(g, index[g], index[g], 1, 10+rng.IntN(9000)))
			}
			b.Stable = func(b *Batch) {
				reported++
				for _, rec := range b.Records {
					if last[rec.Group] > n {
						t.Fatalf("seed %d: batch %d of group %d is reported after %d", seed, n, rec.Group, last[rec.Group])
					}
					last[rec.Group] = n
					if r.l.groups[rec.Group].lastIndex < rec.Index {
						t.Fatalf("seed %d: batch %d reported before it was stable", seed, n)
					}
				}
			}
			r.l.Append(b)
			if rng.IntN(20) == 0 {
				r.l.commitOnce()
			}
		}
		if !r.commit() || reported != 60 {
			t.Fatalf("seed %d: %d of 60 reported", seed, reported)
		}
		if q := &r.l.com.fair; !q.empty() || q.bytes != 0 || len(q.groups) != 0 {
			t.Fatalf("seed %d: the queue is not empty: %d bytes, %d groups", seed, q.bytes, len(q.groups))
		}
		for g, n := range index {
			for id := uint64(1); id <= n; id++ {
				r.mustRead(g, id)
			}
		}
	}
}

// TestLazyBatches: without Sync a batch waits for company, but not for ever and not for much.
func TestLazyBatches(t *testing.T) {
	r := newRig(t)
	r.start()
	lazy := 0
	add := func(size int) {
		i := r.l.com.written + uint64(lazy) + 1
		r.l.Append(&Batch{Records: []Record{entryRecord(GroupID(i), 1, 1, 1, size)}, Stable: func(*Batch) { lazy++ }})
	}
	urgent := func() bool { _, u := r.l.in.state(); return u }
	add(100)
	if urgent() {
		t.Fatal("a lazy batch is urgent")
	}
	r.append(entryRecord(2, 1, 1, 1, 10))
	if lazy != 1 {
		t.Fatal("a lazy batch did not ride along")
	}
	add(300 << 10)
	if !urgent() {
		t.Fatal("many lazy bytes are not urgent")
	}
	r.commit()
}

// TestBitsOfEveryKind: outsize records, empty blocks, empty items, batches without records.
func TestBitsOfEveryKind(t *testing.T) {
	r := newRig(t)
	r.start()
	called := false
	r.l.Append(&Batch{Sync: true, Stable: func(*Batch) { called = true }})
	r.commit()
	if !called {
		t.Fatal("an empty batch was not reported")
	}
	r.append(Record{Group: 2, Kind: KindEntry, Index: 1, Blocks: []Block{{First: 1}, {First: 5, Items: [][]byte{nil, {}}}, {First: 4 << 58, Items: [][]byte{[]byte("high lane")}}}})
	r.append(entryRecord(2, 2, 7, 1, 1<<20))
	r.append(Record{Group: 2, Kind: KindSnapshot, Index: 2, Meta: item(2, 2, 300<<10)})
	check := func() {
		t.Helper()
		for _, id := range []uint64{5, 6} {
			if got, err := r.read(2, id); err != nil || len(got) != 0 {
				t.Fatalf("item %d: %q, %v", id, got, err)
			}
		}
		if got, err := r.read(2, 4<<58); err != nil || string(got) != "high lane" {
			t.Fatalf("%q, %v", got, err)
		}
		if got, err := r.read(2, 7); err != nil || len(got) != 1<<20 {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
	}
	check()
	for i := uint64(1); i < 40; i++ { // enough for rewriting
		r.append(entryRecord(3, i, i, 1, 12000))
		r.l.Release(3, i, []Range{{i, i}})
		r.snapshotIfAsked(2, 2)
		r.snapshotIfAsked(3, i)
		r.keep()
		r.clk.Advance(1e9)
	}
	check()
	if err := r.l.Close(true); err != nil {
		t.Fatal(err)
	}
	r.mustOpen()
	if got := r.replay(); len(got) < 2 || len(got[0]) < 300<<10 {
		t.Fatalf("replayed %d records", len(got))
	}
	check()
	if hits := fmt.Sprint(r.l.Quarantined()); hits != "[]" {
		t.Fatal(hits)
	}
}
