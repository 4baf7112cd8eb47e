package seglog

import (
	"sync"
	"testing"

	"holdfast/internal/vfs"
)

func benchLog(b *testing.B) *Log {
	var l *Log
	o := Options{Logger: quiet()}
	var err error
	if l, err = Open(vfs.OS(), b.TempDir(), o); err != nil {
		b.Fatal(err)
	}
	l.Start()
	b.Cleanup(func() { l.Close(false) })
	return l
}

// BenchmarkCommit appends entries of 1 KiB items and waits for them to be stable: so many writers, each with so many items
// per entry and so many entries under way.
func BenchmarkCommit(b *testing.B) {
	for _, c := range []struct {
		name                   string
		writers, items, window int
	}{{"1x1", 1, 1, 1}, {"8x1", 8, 1, 1}, {"64x1", 64, 1, 1}, {"1x100", 1, 100, 1}, {"8x100", 8, 100, 1}, {"8x100x4", 8, 100, 4}} {
		b.Run(c.name, func(b *testing.B) {
			l := benchLog(b)
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
						if index > 1 {
							l.Release(g, index-1, []Range{{id - uint64(c.items), id - 1}})
						}
						batch.Records[0].Index = index
						batch.Records[0].Blocks[0].First = id
						if index%1000 == 0 {
							batch.Records[0].Kind = KindSnapshot
						} else {
							batch.Records[0].Kind = KindEntry
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
			s := l.Stats()
			b.ReportMetric(float64(s.Items)/b.Elapsed().Seconds(), "msg/s")
			b.ReportMetric(float64(s.Items)/float64(s.Syncs), "msg/sync")
			b.ReportMetric(float64(s.SyncNanos)/float64(s.Syncs)/1000, "us/sync")
		})
	}
}
