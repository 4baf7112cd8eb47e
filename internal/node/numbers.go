package node

import (
	"fmt"
	"sync"
	"time"

	"holdfast/internal/broker"
	"holdfast/internal/clock"
	"holdfast/internal/metrics"
	"holdfast/internal/queuehost"
	"holdfast/internal/seglog"
	"holdfast/internal/spill"
)

// values gathers the numbers of one scrape from the rooms.
func (n *Node) values() metrics.Values {
	t, c, shards := n.broker.Totals(), n.server.Counters(), n.groups.Stats()
	blockedBy, oldest, unexamined := n.examine()
	v := metrics.Values{
		Identity: metrics.Identity{Node: n.identity.ID, Version: n.version, Started: n.started},
		Clients: metrics.Clients{
			Connections: t.Connections, Channels: c.Channels, Consumers: t.Consumers,
			Blocked:           map[string]uint64{},
			ConnectionsOpened: t.ConnectionsOpened, ConnectionsClosed: t.ConnectionsClosed,
			ChannelsOpened: c.ChannelsOpened, ChannelsClosed: c.ChannelsClosed,
			LoginsSucceeded: t.Logins - t.LoginsRefused, LoginsFailed: t.LoginsRefused,
			ReceivedBytes: c.ReceivedBytes, SentBytes: c.SentBytes,
			MessagesUnacked: c.Unacked, MessagesUnconfirmed: c.Unconfirmed,
		},
		Queues: metrics.Queues{
			Queues: t.Queues, Quarantined: t.Quarantined, Orphans: uint64(len(n.queues.Orphans())),
			Created: t.QueuesCreated, Deleted: t.QueuesDeleted,
			Ready: t.Ready, Unacked: t.Unacked, Delayed: t.Delayed, Forwarded: t.Forwarded, ForwardedDropped: t.ForwardedDropped, Consumers: t.Consumers, ConsumerTimeouts: n.queues.Timeouts(), Duplicates: n.queues.Duplicates(), Activations: n.queues.Activations(), Dead: t.Dead,
			BodiesInMemory: t.BodiesInMemory, BodiesSpilled: t.BodiesSpilled, WaitingForDisk: t.WaitingForDisk,
			OldestUnacked: oldest, BlockedBy: blockedBy, Unexamined: unexamined,
		},
		Messages: metrics.Messages{
			Received: t.Published, Routed: t.Routed, Dropped: t.UnroutableDropped, Returned: t.UnroutableReturned,
			Confirmed: c.Confirmed, Nacked: c.Nacked,
			Delivered: t.Delivered, Redelivered: t.Redelivered, Acked: t.Acked, GetsEmpty: t.GetsEmpty,
		},
		Dead:  deadValues(t.DeadLetters),
		Log:   logValues(n.seglog.Stats(), n.seglog.Times()),
		Spill: spillValues(n.spill.Stats()),
		Shards: metrics.Shards{
			Shards: uint64(shards.Shards), Groups: uint64(shards.Groups),
			Rounds: shards.Rounds, Entries: shards.Entries, Records: shards.Records,
			BusySeconds:  float64(shards.BusyNanos) * 1e-9,
			RoundSeconds: shards.RoundTime, StableSeconds: shards.StableTime,
		},
		Machine: n.machine(),
		Cluster: n.clusterValues(),
		Peers:   n.peerValues(),
	}
	stalls, stalled := n.queues.Stalls()
	v.Queues.Stalls, v.Queues.Stalled = stalls, uint64(stalled)
	for _, q := range n.queues.Leaderless(queuehost.LeaderlessFor) {
		v.Queues.Leaderless++
		v.Queues.LeaderlessConsumers += uint64(q.Consumers)
	}
	if t.BlockedReason != "" {
		v.Clients.Blocked[t.BlockedReason] = c.Blocked
	}
	for _, a := range n.broker.Alarms() {
		v.Alarms.Memory = v.Alarms.Memory || a.Kind == broker.AlarmMemory
		v.Alarms.Disk = v.Alarms.Disk || a.Kind == broker.AlarmDisk
	}
	return v
}

func deadValues(t broker.DeadLetterTotals) metrics.DeadLetters {
	d := metrics.DeadLetters{Confirmed: t.Confirmed, Dropped: t.Dropped, Held: t.Held, UnderWay: t.UnderWay}
	for _, c := range t.Died {
		d.Died = append(d.Died, metrics.Died(c))
	}
	return d
}

func spillValues(s spill.Stats) metrics.Spill {
	return metrics.Spill{
		Blocks: uint64(s.Blocks), Files: uint64(s.Files), Bytes: uint64(s.Bytes), DiskBytes: uint64(s.DiskBytes),
		Writes: s.Writes, Written: s.Written, Reads: s.Reads, ReadBytes: s.ReadBytes, Failures: s.Failures,
		Lost: s.Lost,
	}
}

func logValues(s seglog.Stats, t seglog.Times) metrics.Log {
	return metrics.Log{
		Segments:  map[string]uint64{"hot": uint64(s.Hot), "cold": uint64(s.Cold), "free": uint64(s.Free)},
		DiskBytes: uint64(s.DiskBytes), LiveBytes: uint64(s.LiveBytes), DeadBytes: uint64(s.DeadBytes), SegmentBytes: uint64(s.SegmentSize),
		LiveMessages: uint64(s.LiveItems), QueuedBytes: uint64(s.QueuedBytes),
		Times: metrics.LogTimes{
			Write: t.Write, Sync: t.Sync, Index: t.Index, Change: t.Change,
			Checkpoint: t.Checkpoint, Rewrite: t.Rewrite, Hold: t.Hold,
			RecordsPerSync: t.Records, MessagesPerSync: t.Items,
		},
		Syncs: s.Syncs, Records: s.Records, Messages: s.Items, WrittenBytes: s.WrittenBytes,
		Reads: s.FrameReads, ReadBytes: s.ReadBytes,
		RewrittenBytes: s.RewrittenBytes, RewrittenSegments: s.RewrittenSegments, RecycledSegments: s.RecycledSegments,
		Checkpoints: s.Checkpoints, QuarantinedGroups: uint64(s.Quarantined),
	}
}

// What one scrape may ask of the shards: queues whose worker is asked, and how long their answers are waited for.
const (
	examineMost = 2000
	examineWait = time.Second
)

// examine asks queues that hold messages what these wait for: how many queues wait for what, the age of the oldest
// delivery not yet acknowledged, and how many queues could not be asked within the bounds.
func (n *Node) examine() (blockedBy map[string]uint64, oldest time.Duration, unexamined uint64) {
	var (
		mu      sync.Mutex
		asked   int
		waiting uint64 // asked and not answered
		over    bool   // answers come too late
		pending sync.WaitGroup
	)
	blockedBy = map[string]uint64{}
	for h := range n.queues.Served() {
		s := h.Stats()
		switch {
		case h.Unavailable() != nil || s.Ready == 0 && s.Unacked == 0:
			continue
		case s.Consumers == 0 && s.Unacked == 0: // no worker need be asked
			mu.Lock()
			blockedBy["no consumers"]++
			mu.Unlock()
			continue
		}
		if asked++; asked > examineMost {
			unexamined++
			continue
		}
		mu.Lock()
		waiting++
		mu.Unlock()
		pending.Add(1)
		h.Explain(func(x queuehost.Explanation) {
			defer pending.Done()
			mu.Lock()
			defer mu.Unlock()
			if over {
				return
			}
			waiting--
			oldest = max(oldest, x.OldestUnacked)
			if x.BlockedBy != "" {
				blockedBy[x.BlockedBy]++
			}
		})
	}
	answered := make(chan struct{})
	go func() { pending.Wait(); close(answered) }()
	late, done := clock.After(n.clock, examineWait)
	defer done()
	select {
	case <-answered:
	case <-late:
	}
	mu.Lock()
	defer mu.Unlock()
	over = true
	return blockedBy, oldest, unexamined + waiting
}

// objects walks what the page per object shows.
func (n *Node) objects() metrics.Objects {
	return metrics.Objects{
		Queues: func(yield func(*metrics.Queue) bool) {
			var q metrics.Queue
			for h := range n.queues.Served() {
				s, def := h.Stats(), h.Def()
				if def.Store {
					continue
				}
				q = metrics.Queue{
					VHost: def.VHost, Name: def.Name,
					Ready: s.Ready, Unacked: s.Unacked, Delayed: s.Delayed, Consumers: s.Consumers,
					BodiesInMemory: s.BodiesInMemory, BodiesSpilled: s.BodiesSpilled,
					Published: s.Published, Delivered: s.Delivered, Redelivered: s.Redelivered, Acked: s.Acked,
					GetsEmpty: s.GetsEmpty, WaitingForDisk: s.Unstable, Dead: s.Dead, Quarantined: h.Unavailable() != nil,
				}
				if !yield(&q) {
					return
				}
			}
		},
		Nacked: func(yield func(*metrics.Nacks) bool) {
			for h := range n.queues.Nacked() {
				c, def := h.Nacks(), h.Def()
				if !yield(&metrics.Nacks{VHost: def.VHost, Name: def.Name, Refused: c.Refused, Unknown: c.Unknown}) {
					return
				}
			}
		},
		Dead: func(yield func(*metrics.Dead) bool) {
			for h, c := range n.broker.DeadLettered() {
				def := h.Def()
				if !yield(&metrics.Dead{VHost: def.VHost, Name: def.Name, Rejected: c.Rejected, Expired: c.Expired, MaxLen: c.MaxLen,
					OverDelivery: c.DeliveryLimit, Dropped: c.Dropped}) {
					return
				}
			}
		},
		Connections: func(yield func(*metrics.Connection) bool) {
			for _, c := range n.broker.ListConnections() {
				if !yield(&metrics.Connection{Name: c.Name, Channels: uint64(c.Channels), ReceivedBytes: c.ReceivedBytes, SentBytes: c.SentBytes}) {
					return
				}
			}
		},
		Channels: func(yield func(*metrics.Channel) bool) {
			for _, c := range n.broker.ListChannels() {
				if !yield(&metrics.Channel{
					Name: fmt.Sprintf("%s (%d)", c.Connection, c.Number), Consumers: uint64(c.Consumers),
					Unacked: c.Unacknowledged, Unconfirmed: c.Unconfirmed, Prefetch: uint64(c.Prefetch),
				}) {
					return
				}
			}
		},
	}
}
