package queue

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// keyed makes enqueues of messages with a key each, all through one exchange that lets nothing through twice.
type keyed struct {
	*rig
	terms  Terms
	screen Screen
	next   uint64
	mix    bool // a time of its own for each key
	r      *rand.Rand
}

func newKeyed(keys uint64, window Limit, mix bool) *keyed {
	k := &keyed{rig: newRig(), screen: Screen{Exchange: 1, Keys: keys, Window: window}, mix: mix, r: rand.New(rand.NewPCG(1, 1))}
	k.terms.Screen = &k.screen
	return k
}

// put lets one in, at a time in milliseconds, which is acknowledged at once.
func (k *keyed) put(now int64) {
	k.next++
	binary.LittleEndian.PutUint64(k.screen.Key[:], k.next*0x9e3779b97f4a7c15)
	binary.LittleEndian.PutUint64(k.screen.Key[8:], k.next)
	if k.mix {
		k.screen.Window = Most(1 + k.r.Uint64N(1_000_000))
	}
	k.e.Time = max(k.e.Time, now*millisecond)
	k.apply(Command{Kind: Enqueue, Count: 1, Persistent: true, Terms: &k.terms}, Command{Kind: Purge})
}

// BenchmarkKeys is an enqueue with a million keys there: the oldest is forgotten for each new one, or what has had its time. worst-ms is the
// longest that one took, while a million more came than there were.
func BenchmarkKeys(b *testing.B) {
	const n = 1_000_000
	for _, tc := range []struct {
		name   string
		window Limit
		mix    bool
	}{{"untimed", 0, false}, {"timed", Most(1_000_000), false}, {"mixed", Most(1), true}} {
		b.Run(tc.name, func(b *testing.B) {
			for range b.N {
				k := newKeyed(n, tc.window, tc.mix)
				var now int64
				put := func() time.Duration {
					now++
					start := time.Now()
					k.put(now)
					return time.Since(start)
				}
				var filling time.Duration
				for range n {
					filling = max(filling, put())
				}
				worst, all := time.Duration(0), time.Duration(0)
				for range 2 * n {
					d := put()
					worst, all = max(worst, d), all+d
				}
				start := time.Now()
				f := k.m.Freeze()
				freeze := time.Since(start)
				start = time.Now()
				blob := f.Append(nil)
				encode := time.Since(start)
				start = time.Now()
				if err := New().Restore(blob); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(time.Since(start).Microseconds())/1000, "restore-ms")
				start = time.Now()
				k.put(now + 10_000_000)
				idle := time.Since(start)
				b.ReportMetric(float64(filling.Microseconds())/1000, "worst-filling-ms")
				b.ReportMetric(float64(worst.Microseconds())/1000, "worst-ms")
				b.ReportMetric(float64(idle.Microseconds())/1000, "after-idle-ms")
				b.ReportMetric(float64(all.Nanoseconds())/float64(2*n), "ns/put")
				b.ReportMetric(float64(freeze.Microseconds())/1000, "freeze-ms")
				b.ReportMetric(float64(encode.Microseconds())/1000, "encode-ms")
			}
		})
	}
}

// BenchmarkKeysMemory is what a key takes, in bytes.
func BenchmarkKeysMemory(b *testing.B) {
	for _, n := range []int{1000, 600_000, 1_000_000} {
		for _, window := range []Limit{0, Most(1 << 40)} {
			for _, restores := range []bool{false, true} {
				b.Run(fmt.Sprintf("%d/timed=%v/restored=%v", n, window > 0, restores), func(b *testing.B) {
					for range b.N {
						k := newKeyed(uint64(n), window, false)
						fill := func() any {
							for i := range n + n/10 {
								k.put(int64(i))
							}
							return k.m
						}
						if !restores {
							b.ReportMetric(heap(fill)/float64(n), "B/key")
							continue
						}
						fill()
						blob := k.m.AppendSnapshot(nil)
						b.ReportMetric(heap(func() any {
							m := New()
							if err := m.Restore(blob); err != nil {
								b.Fatal(err)
							}
							return m
						})/float64(n), "B/key")
					}
				})
			}
		}
	}
}
