package node

import (
	"log/slog"
	"path"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"holdfast/internal/clock"
	"holdfast/internal/queue"
	"holdfast/internal/seglog"
)

// plant writes an entry for a group into the log of a node that is stopped.
func (p place) plant(t *testing.T, group seglog.GroupID) {
	t.Helper()
	s := p.settings()
	log, err := seglog.Open(p.disk, path.Join(p.dir, logDir), seglog.Options{
		SegmentMin: int64(s.Storage.SegmentMin), SegmentMax: int64(s.Storage.SegmentMax),
		Clock: clock.System(), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := log.Replay(func(seglog.Replayed) error { return nil }); err != nil {
		t.Fatal(err)
	}
	log.Start()
	stable := make(chan struct{})
	log.Append(&seglog.Batch{
		Records: []seglog.Record{{
			Group: group, Kind: seglog.KindEntry, Index: 1, Time: 1,
			Meta:   queue.AppendCommands(nil, []queue.Command{{Kind: queue.Enqueue, Count: 1, Persistent: true, Bytes: 4}}),
			Blocks: []seglog.Block{{First: 1, Items: [][]byte{[]byte("kept")}}},
		}},
		Sync: true, Stable: func(*seglog.Batch) { close(stable) },
	})
	<-stable
	if err := log.Close(false); err != nil {
		t.Fatal(err)
	}
}

// A group that the catalog does not know is kept and listed, start after
// start, until an operator gives it up. L49
// R101: a queue is in two places, the catalog and its own part of the log; what is in one alone is noticed.
func TestUnknownGroupIsKept(t *testing.T) {
	p := newPlace(t)
	stop(t, p.run(t))
	const group = 1 << 30 // the catalog has not come that far
	p.plant(t, group)
	for range 2 {
		n := p.run(t)
		list := n.Broker().ListOrphans()
		if n.Report().Orphans != 1 || len(list) != 1 || list[0].Group != group || list[0].Reason == "" {
			t.Fatalf("orphans %+v, report %+v", list, n.Report())
		}
		if live := n.Log().Stats().LiveItems; live != 1 {
			t.Errorf("%d items live, want the orphan's", live)
		}
		stop(t, n)
	}
	n := p.run(t)
	if err := n.Broker().DiscardGroup(group); err != nil {
		t.Fatal(err)
	}
	stop(t, n)
	n = p.run(t)
	if n.Report().Orphans != 0 || n.Log().Stats().LiveItems != 0 {
		t.Errorf("after the discard: %+v, %d items", n.Report(), n.Log().Stats().LiveItems)
	}
}

// A group whose queue the catalog has deleted, and whose own end did not reach
// the disk, is freed by the next start.
func TestDeletedQueuesGroupIsFreed(t *testing.T) {
	p := newPlace(t)
	n := p.run(t)
	ch := open(t, n)
	must(ch.QueueDeclare("q", true, false, false, false, nil))(t)
	info, err := n.Broker().QueueInfo("/", "q")
	if err != nil {
		t.Fatal(err)
	}
	must(ch.QueueDelete("q", false, false, false))(t)
	must(ch.QueueDeclare("other", true, false, false, false, nil))(t)
	send(t, ch, "other", amqp.Persistent, "m")
	stop(t, n)
	p.plant(t, seglog.GroupID(info.ID))
	n = p.run(t)
	if n.Report().Orphans != 0 {
		t.Errorf("report %+v", n.Report())
	}
	eventually(t, "only the other queue's message lives", func() bool { return n.Log().Stats().LiveItems == 1 })
	stop(t, n)
	if n = p.run(t); len(n.Broker().ListOrphans()) != 0 || n.Log().Stats().LiveItems != 1 {
		t.Errorf("orphans %+v, %d items", n.Broker().ListOrphans(), n.Log().Stats().LiveItems)
	}
}
