package seglog

import (
	"sync"
	"sync/atomic"
	"testing"

	"holdfast/internal/vfs"
)

func benchLog(b *testing.B, fs vfs.FS, dir string, ask func([]GroupID)) *Log {
	var l *Log
	o := Options{Logger: quiet(), Events: Events{NeedSnapshot: ask}}
	var err error
	if l, err = Open(fs, dir, o); err != nil {
		b.Fatal(err)
	}
	l.Start()
	b.Cleanup(func() { l.Close(false) })
	return l
}

// BenchmarkCommit appends entries of 1 KiB items and waits for them to be stable: so many writers, each with so many items
// per entry and so many entries under way.
func BenchmarkCommit(b *testing.B) {
	benchCommit(b, func() (vfs.FS, string) { return vfs.OS(), b.TempDir() })
}

// BenchmarkCommitMem is the same with files in memory: what the room itself costs.
func BenchmarkCommitMem(b *testing.B) {
	benchCommit(b, func() (vfs.FS, string) { return vfs.NewMem(), "log" })
}

func benchCommit(b *testing.B, where func() (vfs.FS, string)) {
	for _, c := range []struct {
		name                   string
		writers, items, window int
		keep                   bool // nothing is released: the log grows
	}{{"1x1", 1, 1, 1, false}, {"8x1", 8, 1, 1, false}, {"64x1", 64, 1, 1, false}, {"1x100", 1, 100, 1, false},
		{"8x100", 8, 100, 1, false}, {"8x100x4", 8, 100, 4, false}, {"8x100-growing", 8, 100, 1, true}} {
		b.Run(c.name, func(b *testing.B) {
			asked := make([]atomic.Bool, c.writers+1)
			fs, dir := where()
			l := benchLog(b, fs, dir, func(gs []GroupID) {
				for _, g := range gs {
					asked[g].Store(true)
				}
			})
			body := make([]byte, 1024)
			items := make([][]byte, c.items)
			for i := range items {
				items[i] = body
			}
			b.SetBytes(int64(1024))
			b.ReportAllocs()
			b.ResetTimer()
			var wg sync.WaitGroup
			for w := range c.writers {
				wg.Add(1)
				go func() {
					defer wg.Done()
					g := GroupID(w + 1)
					free := make(chan *Batch, c.window)
					for range c.window {
						free <- &Batch{Sync: true, Stable: func(b *Batch) { free <- b },
							Records: []Record{{Group: g, Kind: KindEntry, Meta: make([]byte, 32), Blocks: []Block{{Items: items}}}}}
					}
					index, id := uint64(0), uint64(0)
					for range max(1, b.N/c.writers/c.items) {
						batch := <-free
						index++
						if index > 1 && !c.keep {
							l.Release(g, index-1, []Range{{id - uint64(c.items), id - 1}})
						}
						batch.Records[0].Index = index
						batch.Records[0].Blocks[0].First = id
						if c.keep {
						} else if asked[g].Swap(false) {
							batch.Records = append(batch.Records[:1], Record{Group: g, Kind: KindSnapshot, Index: index, Meta: make([]byte, 100)})
						} else {
							batch.Records = batch.Records[:1]
						}
						id += uint64(c.items)
						l.Append(batch)
					}
					for range c.window {
						<-free
					}
				}()
			}
			wg.Wait()
			b.StopTimer()
			s, times := l.Stats(), l.Times()
			b.ReportMetric(float64(s.Items)/b.Elapsed().Seconds(), "msg/s")
			b.ReportMetric(float64(s.Items)/float64(s.Syncs), "msg/sync")
			b.ReportMetric((times.Write.Sum+times.Sync.Sum)/float64(s.Syncs)*1e6, "us/sync")
		})
	}
}

// fillLog appends n items of a size to one group, in entries of so many, and waits for them. Asked for snapshots, it gives one.
func fillLog(b *testing.B, fs vfs.FS, dir string, n, per, size int, groups int) {
	var l *Log
	var mu sync.Mutex
	index := make([]uint64, groups+1)
	o := Options{Logger: quiet()}
	o.Events.NeedSnapshot = func(gs []GroupID) {
		mu.Lock()
		defer mu.Unlock()
		for _, g := range gs {
			l.Append(&Batch{Records: []Record{{Group: g, Kind: KindSnapshot, Index: index[g], Meta: make([]byte, 100)}}})
		}
	}
	var err error
	if l, err = Open(fs, dir, o); err != nil {
		b.Fatal(err)
	}
	l.Start()
	body := make([]byte, size)
	items := make([][]byte, per)
	for i := range items {
		items[i] = body
	}
	sem := make(chan struct{}, 16)
	for at := 0; at < n; at += per * groups {
		sem <- struct{}{}
		batch := &Batch{Sync: true, Stable: func(*Batch) { <-sem }}
		mu.Lock()
		for g := 1; g <= groups; g++ {
			index[g]++
			batch.Records = append(batch.Records, Record{Group: GroupID(g), Kind: KindEntry, Index: index[g], Meta: make([]byte, 16),
				Blocks: []Block{{First: uint64(at / groups), Items: items}}})
		}
		l.Append(batch)
		mu.Unlock()
	}
	for range 16 {
		sem <- struct{}{}
	}
	if err := l.Close(false); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkOpen opens a log after an unclean stop: ten million messages in one queue, in a thousand, and a hundred thousand
// queues with ten messages each.
func BenchmarkOpen(b *testing.B) {
	for _, c := range []struct {
		name               string
		items, per, groups int
	}{{"10M-in-1", 10_000_000, 100, 1}, {"10M-in-1000", 10_000_000, 100, 1000}, {"1M-in-100k", 1_000_000, 1, 100_000}} {
		b.Run(c.name, func(b *testing.B) {
			dir, groups := b.TempDir(), c.groups
			fillLog(b, vfs.OS(), dir, c.items, c.per, 100, groups)
			b.ResetTimer()
			for range b.N {
				l, err := Open(vfs.OS(), dir, Options{Logger: quiet()})
				if err != nil {
					b.Fatal(err)
				}
				n := 0
				if err := l.Replay(func(Replayed) error { n++; return nil }); err != nil {
					b.Fatal(err)
				}
				for g := 1; g <= groups; g++ {
					l.SetLive(GroupID(g), []Range{{0, 1 << 40}})
				}
				if s := l.Stats(); s.LiveItems < int64(c.items) {
					b.Fatalf("%d live items", s.LiveItems)
				}
				b.ReportMetric(float64(n), "replayed")
				l.Close(false)
			}
		})
	}
}

// BenchmarkRead reads items of 1 KiB: a queue drained in order, one of a hundred interleaved ones, and here and there.
func BenchmarkRead(b *testing.B) {
	benchRead(b, 400_000, func() (vfs.FS, string) { return vfs.OS(), b.TempDir() })
}

// BenchmarkReadMem is the same with files in memory.
func BenchmarkReadMem(b *testing.B) {
	benchRead(b, 50_000, func() (vfs.FS, string) { return vfs.NewMem(), "log" })
}

func benchRead(b *testing.B, n int, where func() (vfs.FS, string)) {
	for _, c := range []struct {
		name   string
		groups int
		step   uint64
	}{{"in-order", 1, 1}, {"in-order-of-100", 100, 1}, {"random", 1, 7919}} {
		b.Run(c.name, func(b *testing.B) {
			fs, dir := where()
			fillLog(b, fs, dir, n, 100, 1024, c.groups)
			l, err := Open(fs, dir, Options{Logger: quiet()})
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close(false)
			per := uint64(n / c.groups)
			r := l.NewReader()
			b.SetBytes(1024)
			b.ReportAllocs()
			b.ResetTimer()
			id := uint64(0)
			for range b.N {
				ref, ok := l.Pin(1, id%per)
				if !ok {
					b.Fatalf("item %d is not there", id%per)
				}
				if _, err := r.Read(ref); err != nil {
					b.Fatal(err)
				}
				ref.Unpin()
				id += c.step
			}
			s := l.Stats()
			b.ReportMetric(float64(s.FrameReads)/float64(b.N), "preads/op")
		})
	}
}

// BenchmarkEncode is the committer's work without the disk: records of a hundred 1 KiB items into a frame.
func BenchmarkEncode(b *testing.B) {
	rec := entryRecord(1, 1, 1, 100, 1024)
	buf := make([]byte, 0, 1<<20)
	b.SetBytes(100 * 1024)
	b.ReportAllocs()
	for range b.N {
		out, n := openFrame(buf[:0], nil)
		out, _, _ = appendRecord(out, &rec, 1)
		sealFrame(out, 0, head{gen: 1, seq: 1, listLen: n, records: 1})
	}
	b.ReportMetric(100, "msg/op")
}

// BenchmarkHeldFirst holds the first item while all others pass, and reports how far the files went beyond what D3 allows: twice
// the live bytes and six segments of the size then in use.
func BenchmarkHeldFirst(b *testing.B) {
	var asked atomic.Bool
	l := benchLog(b, vfs.OS(), b.TempDir(), func([]GroupID) { asked.Store(true) })
	const per = 100
	body := make([]byte, 1024)
	items := make([][]byte, per)
	for i := range items {
		items[i] = body
	}
	free := make(chan *Batch, 4)
	for range cap(free) {
		free <- &Batch{Sync: true, Stable: func(b *Batch) { free <- b }}
	}
	worst := 0.0
	b.SetBytes(1024)
	b.ResetTimer()
	for i := range uint64(max(1, b.N/per)) {
		batch := <-free
		batch.Records = append(batch.Records[:0], Record{Group: 1, Kind: KindEntry, Index: i + 1, Meta: body[:16],
			Blocks: []Block{{First: i * per, Items: items}}})
		if asked.Swap(false) {
			batch.Records = append(batch.Records, Record{Group: 1, Kind: KindSnapshot, Index: i + 1, Meta: body[:100]})
		}
		l.Append(batch)
		l.Release(1, i+1, []Range{{max(i*per, 1), i*per + per - 1}})
		if i%100 == 0 {
			s := l.Stats()
			worst = max(worst, float64(s.DiskBytes)/float64(2*s.LiveBytes+6*s.SegmentSize))
		}
	}
	for range cap(free) {
		<-free
	}
	b.StopTimer()
	if _, ok := l.Pin(1, 0); !ok {
		b.Fatal("the held item is gone")
	}
	s := l.Stats()
	b.ReportMetric(worst, "of-bound")
	b.ReportMetric(float64(s.SegmentSize>>20), "MiB/segment")
	b.ReportMetric(float64(s.Items)/b.Elapsed().Seconds(), "msg/s")
}
