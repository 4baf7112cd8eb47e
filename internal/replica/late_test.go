package replica

import (
	"fmt"
	"testing"

	"holdfast/internal/seglog"
)

// freezer is an adder with a state that can be written down later.
type freezer struct{ *adder }

func (f freezer) Freeze() func(dst []byte) []byte {
	state := f.AppendSnapshot(nil)
	return func(dst []byte) []byte { return append(dst, state...) }
}

// lateLog is a log that keeps what makes late snapshots, by their index.
type lateLog struct {
	*fakeLog
	snapshots []string
	late      map[uint64]func([]byte) []byte
}

func (l *lateLog) Append(b *seglog.Batch) {
	for _, r := range b.Records {
		if r.Kind == seglog.KindSnapshot {
			l.snapshots = append(l.snapshots, fmt.Sprintf("%d late=%v", r.Index, r.Later != nil))
			if r.Later != nil {
				l.late[r.Index] = r.Later
			}
		}
	}
	l.fakeLog.Append(b)
}

// R561: a group of which the last snapshot was large has the next one made later, of the state as it was; one that turns out to be small is the last
// that is, until another one is large.
func TestLargeSnapshotsAreMadeLater(t *testing.T) {
	l := &lateLog{&fakeLog{}, nil, map[uint64]func([]byte) []byte{}}
	n := open(t, l.fakeLog, Options{SnapshotEntries: 3, LateSnapshots: 8})
	n.o.Log = l
	a := &adder{}
	a.g = n.NewGroup(2, freezer{a}, true)
	n.Prepare()
	for v := range uint64(25) {
		if v == 15 { // most of the state goes
			a.state = a.state[:1]
		}
		a.add(v)
		steps(n)
		l.sync()
		if v == 15 {
			l.late[15](nil)
		}
	}
	want(t, "snapshots", l.snapshots, []string{
		"3 late=false", "6 late=false", "9 late=false", "12 late=true", "15 late=true", "18 late=false", "21 late=false", "24 late=true",
	})
	want(t, "the state as it was", string(l.late[12](nil)), "\x00\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b")
	a.add(25)
	steps(n)
	n.clean = true
	n.Shard(0).finish()
	want(t, "at the end", l.snapshots[len(l.snapshots)-1], "26 late=false")
}
