package replica

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"holdfast/internal/seglog"
	"holdfast/internal/vfs"
)

// lanes carry messages between nodes that work by themselves.
type lanes struct {
	from  uint64
	nodes []*Node // by number, from 1 on
	out   []chan []byte
}

func (l *lanes) Send(to uint64, _ Lane, add func([]byte) []byte) bool {
	select {
	case l.out[to-1] <- add(nil):
		return true
	default:
		return false
	}
}

// workerLister counts the commands that another goroutine than a shard's worker carries out, once it is to look.
type workerLister struct {
	lister
	looks     *atomic.Bool
	elsewhere atomic.Int32
}

func (m *workerLister) Apply(index uint64, time int64, cmd []byte) any {
	if m.looks.Load() && !bytes.Contains(debug.Stack(), []byte("replica.(*Shard).run(")) {
		m.elsewhere.Add(1)
	}
	return m.lister.Apply(index, time, cmd)
}

// Three nodes with their goroutines, on the segment log: commands go to whoever leads, the
// leadership is handed over, all stop in an orderly way, and a start finds everything.
//
// R650: what a simple group applies may take long, and holds up neither a link nor the log: its worker does it, whoever brings the news.
func TestRaftWithWorkers(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	list := []Member{{ID: 1, Node: 1}, {ID: 2, Node: 2}, {ID: 3, Node: 3}}
	disks := []*vfs.Mem{vfs.NewMem(), vfs.NewMem(), vfs.NewMem()}
	words := 0
	for life := range 2 {
		var (
			nodes = make([]*Node, 3)
			logs  = make([]*seglog.Log, 3)
			gs    = make([]*SimpleGroup, 3)
			ms    = make([]*workerLister, 3)
			looks atomic.Bool
			wg    sync.WaitGroup
			ends  = make(chan struct{})
		)
		for i := range nodes {
			l, err := seglog.Open(disks[i], "log", seglog.Options{SegmentMin: 64 << 10, SegmentMax: 1 << 20, Logger: quiet})
			if err != nil {
				t.Fatal(err)
			}
			tr := &lanes{from: uint64(i + 1), nodes: nodes}
			for to := range nodes {
				c := make(chan []byte, 1000)
				tr.out = append(tr.out, c)
				wg.Go(func() {
					for {
						select {
						case <-ends:
							return
						case b := <-c:
							nodes[to].Receive(tr.from, b)
						}
					}
				})
			}
			nodes[i] = Open(Options{Log: l, Reader: NewReader(l), Shards: 2, Logger: quiet, NodeID: uint64(i + 1), Transport: tr, Tick: 5 * time.Millisecond})
			logs[i] = l
			ms[i] = &workerLister{looks: &looks}
			gs[i] = nodes[i].NewSimpleRaftGroup(1, ms[i], list)
			if err := nodes[i].Replay(func(seglog.GroupID, bool) Host { return nil }); err != nil {
				t.Fatal(err)
			}
		}
		looks.Store(true)
		for _, n := range nodes {
			n.Start()
		}
		propose := func(word string) {
			for at := 0; ; {
				answer := make(chan error, 1)
				var got any
				gs[at].Propose([]byte(word), true, func(r any, err error) { got = r; answer <- err })
				err := <-answer
				var other *NotLeaderError
				switch {
				case err == nil:
					words++
					if n, _, _ := strings.Cut(got.(string), "@"); n != fmt.Sprint(words) {
						t.Fatalf("the answer to word %d is %v", words, got)
					}
					return
				case errors.As(err, &other):
					at = (at + 1) % 3
					if other.Leader != 0 {
						at = int(other.Leader - 1)
					}
					time.Sleep(time.Millisecond) // a pause between tries; nothing depends on it
				default:
					t.Fatal(err)
				}
			}
		}
		for i := range 100 {
			propose(fmt.Sprint("w", life, ".", i))
		}
		for _, n := range nodes {
			n.HandOver()
		}
		for _, n := range nodes {
			if err := n.Close(true); err != nil {
				t.Fatal(err)
			}
		}
		close(ends)
		wg.Wait()
		for i, m := range ms {
			want(t, fmt.Sprint("applied elsewhere on node ", i+1), m.elsewhere.Load(), int32(0))
		}
		for _, l := range logs {
			if err := l.Close(true); err != nil {
				t.Fatal(err)
			}
		}
	}
	want(t, "words", words, 200)
}
