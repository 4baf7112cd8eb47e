package replica

import (
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"

	"holdfast/internal/seglog"
)

// BenchmarkRaftCodec writes and reads a message with one entry of 100 commands and as many items of 100 bytes.
func BenchmarkRaftCodec(b *testing.B) {
	items := make([][]byte, 100)
	for i := range items {
		items[i] = make([]byte, 100)
	}
	p := newPayload(1, make([]byte, 600), []seglog.Block{{First: 1 << 24, Items: items}})
	e := (&slot{kind: entryNormal, term: 7}).entry(1 << 22)
	e.Data = []byte{1}
	m := &pb.Message{Type: pb.MsgApp.Enum(), To: new(uint64(3)), From: new(uint64(1)), Term: new(uint64(7)), LogTerm: new(uint64(7)),
		Index: new(uint64(1<<22 - 1)), Commit: new(uint64(1<<22 - 2)), Entries: []*pb.Entry{e}}
	payloadOf := func(*pb.Entry) *payload { return p }
	var buf []byte
	b.Run("append", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			buf = appendRaft(buf[:0], 1<<20, m, payloadOf)
		}
	})
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			d, kind, err := openMessage(buf)
			if err != nil || kind != msgRaft {
				b.Fatal(err)
			}
			if in, err := d.raft(); err != nil || len(in.payloads) != 1 {
				b.Fatal(err)
			}
		}
	})
	beats := make([]beat, 1000)
	for i := range beats {
		beats[i] = beat{group: seglog.GroupID(i + 1), to: 3, from: 1, term: 7, commit: 1 << 22}
	}
	b.Run("beats", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			buf = appendBeats(buf[:0], beats)
			d, _, _ := openMessage(buf)
			if err := d.beats(func(incoming) {}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
