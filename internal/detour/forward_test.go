package detour

import (
	"fmt"
	"testing"
	"time"

	"holdfast/internal/peer"
)

// What waits in the middle for a detour that is over is dropped when it ends, or when there is another of the same two nodes: it does
// not count against that one.
func TestADeadDetourDoesNotCountInTheMiddle(t *testing.T) {
	for _, told := range []bool{true, false} {
		t.Run(fmt.Sprint("told ", told), func(t *testing.T) {
			w := newTown(t, 24, 1, 2, 3)
			w.lanes = [peer.Lanes]int{50 << 10, 50 << 10, 50 << 10}
			w.startAll()
			w.pass(2 * time.Second)
			w.net.Hold(3, 2, true)
			m := w.nodes[3]
			data := func(id, seq uint64, size int) {
				f := frame{kind: kindData, from: 1, to: 2, id: id, seq: seq, msg: make([]byte, size)}
				m.Handler().Message(1, peer.Data, f.append([]byte{tag}))
			}
			waits := func() (bytes, ends int) {
				for _, p := range m.passing {
					sum := 0
					for _, x := range p.list {
						sum += len(x.msg)
					}
					w.want("counted as it is", sum == p.bytes)
					bytes += sum
				}
				return bytes, m.links.Room(2, peer.Control)
			}
			for seq := range uint64(30) {
				data(7, seq+1, 100<<10)
			}
			before, room := waits()
			w.want("much waits", before > 2<<20)
			if told {
				f := frame{kind: kindEnd, from: 1, to: 2, id: 7}
				m.Handler().Message(1, peer.Control, f.append([]byte{tag}))
				after, left := waits()
				w.want("nothing waits, and the end was led on", after == 0 && left < room)
			}
			for seq := range uint64(40) {
				data(8, seq+1, 100<<10)
			}
			after, _ := waits()
			w.want("the bound is the second's own", after > 39*100<<10 && after < 41*100<<10)
		})
	}
}
