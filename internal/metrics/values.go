package metrics

import "time"

// Values are the numbers of one scrape, by subject. Totals count since the node started.
type Values struct {
	Identity Identity
	Clients  Clients
	Queues   Queues
	Messages Messages
	Dead     DeadLetters
	Log      Log
	Spill    Spill
	Shards   Shards
	Machine  Machine
	Alarms   Alarms
	Cluster  Cluster
	Peers    []Peer
	Runtime  Runtime // filled in by the page itself
}

// Identity says which node the numbers come from.
type Identity struct {
	Node    string // the node's identity from its data folder
	Version string
	Started time.Time
}

// Clients are connections and what hangs on them.
type Clients struct {
	Connections, Channels, Consumers     uint64
	Blocked                              map[string]uint64 // connections held back, by reason
	ConnectionsOpened                    uint64
	ConnectionsClosed                    uint64
	ChannelsOpened, ChannelsClosed       uint64
	LoginsSucceeded, LoginsFailed        uint64
	ReceivedBytes, SentBytes             uint64
	MessagesUnacked, MessagesUnconfirmed uint64 // on channels
}

// Queues are sums over all queues.
type Queues struct {
	Queues, Quarantined, Orphans uint64
	// Quorum queues that clients of this node use and that nobody leads, and the consumers that wait for them.
	Leaderless, LeaderlessConsumers uint64
	Created, Deleted                uint64
	Ready, Unacked, Consumers       uint64
	Delayed                         uint64            // messages that wait for their time, in queues and for exchanges
	Forwarded                       uint64            // messages that exchanges had delayed and routed then
	ForwardedDropped                map[string]uint64 // of these: not arrived, by cause
	ConsumerTimeouts                uint64            // consumers that held messages for too long
	Duplicates                      uint64            // messages that had come before
	Activations                     uint64            // changes of single active consumers
	Dead                            uint64            // dead letters that have not arrived
	Stalls, Stalled                 uint64            // times when a queue did not deliver although it could; queues that do not now
	BodiesInMemory                  uint64            // bytes of bodies that are in memory
	BodiesSpilled                   uint64            // bytes of bodies that are on disk and not in the log
	WaitingForDisk                  uint64            // persistent publishes not yet on disk
	OldestUnacked                   time.Duration
	BlockedBy                       map[string]uint64 // queues with ready messages that do not move, by reason
	Unexamined                      uint64            // queues that could not be asked for the two before within the time
}

// Messages are what happened to messages since the start.
type Messages struct {
	Received           uint64 // from publishers
	Routed             uint64 // into queues, counted once a queue
	Dropped, Returned  uint64 // unroutable
	Confirmed, Nacked  uint64 // to publishers
	Delivered          uint64 // to consumers and getters
	Redelivered, Acked uint64
	GetsEmpty          uint64
}

// DeadLetters are the messages that have died in queues with a dead-letter exchange.
type DeadLetters struct {
	Died      []Died
	Confirmed uint64            // known to have arrived
	Dropped   map[string]uint64 // not arrived, by cause
	Held      uint64            // now: to be carried again
	UnderWay  uint64            // now: bytes of messages for which targets have not answered
}

// Died is how many of them died in queues of one type, for one reason, and what was done for them.
type Died struct {
	QueueType, Reason, Strategy string
	Messages                    uint64
}

// Log is the segment log.
type Log struct {
	Segments             map[string]uint64 // by state
	DiskBytes            uint64            // of its files
	LiveBytes, DeadBytes uint64
	SegmentBytes         uint64 // of segments made now
	LiveMessages         uint64
	QueuedBytes          uint64 // appended and not yet stable
	Syncs                uint64
	Records, Messages    uint64 // made stable
	Times                LogTimes
	WrittenBytes         uint64
	Reads, ReadBytes     uint64
	RewrittenBytes       uint64 // survivors copied to get space back
	RewrittenSegments    uint64
	RecycledSegments     uint64
	Checkpoints          uint64
	QuarantinedGroups    uint64
}

// Spill is where bodies go that are not in the log, when memory has no room for them.
type Spill struct {
	Blocks, Files    uint64 // now
	Bytes, DiskBytes uint64 // of the blocks; of the files, without holes
	Writes, Written  uint64 // blocks since the start, and their bytes
	Reads, ReadBytes uint64
	Failures         uint64 // writes that failed
	Lost             uint64 // messages, or pieces of large ones, that could not be read
}

// LogTimes are how long the steps of the log took, in seconds, and how much one sync made stable.
type LogTimes struct {
	Write, Sync, Index, Change      Distribution // a commit: handed to the system, synced, entered into the index; the next segment
	Checkpoint, Rewrite, Hold       Distribution // behind it: a checkpoint, a frame of survivors, the index's lock held
	RecordsPerSync, MessagesPerSync Distribution
}

// Shards are the workers that run the queues.
type Shards struct {
	Shards, Groups              uint64
	Rounds, Entries, Records    uint64
	BusySeconds                 float64
	RoundSeconds, StableSeconds Distribution // a round; from append to stable
}

// Cluster is the nodes of the cluster, as seen from this one.
type Cluster struct {
	Nodes   map[string]uint64 // by state; this one included
	Leader  bool              // the catalog has a leader, as far as is known here
	Alarmed uint64            // other nodes with an alarm
	Waiting uint64            // commands for the catalog that were not answered yet
	Apart   uint64            // nodes with a catalog that has come apart from this one's
	Stale   bool              // messages are routed by what this node knew last: nobody could tell it more
}

// Peer is the link to another node.
type Peer struct {
	Name       string // one of a kind on the page
	Up         bool
	Detour     bool   // there is no link, and another node leads messages on
	Reconnects uint64 // links that came up after the first
	Suspicions uint64
	RoundTrip  time.Duration // of the last heartbeat and its echo; 0: none came back yet
	Lanes      []PeerLane
}

// PeerLane is one lane of a link. Bytes are those of messages with their heads.
type PeerLane struct {
	Name                            string
	SentMessages, SentBytes         uint64
	ReceivedMessages, ReceivedBytes uint64
	Refused                         uint64 // messages that found the lane full
	WaitingBytes                    uint64
}

// Machine is what the node runs on.
type Machine struct {
	ResidentBytes, MemoryLimitBytes uint64 // the limit is the mark of the alarm
	DiskFreeBytes, DiskLimitBytes   uint64
	DiskUsedBytes                   uint64 // by the data folder
	OpenFiles, MaxFiles             uint64
}

// Alarms are what is running short.
type Alarms struct {
	Memory, Disk bool
}
