package config

import (
	"net"
	"runtime"
	"slices"
	"strconv"
	"time"
)

// Bytes is a size in bytes.
type Bytes uint64

// The units in which sizes are written.
const (
	KiB Bytes = 1 << 10
	MiB Bytes = 1 << 20
	GiB Bytes = 1 << 30
)

// Settings is every setting of the broker. The table in table.go says for each one its key in the configuration file,
// its unit, its limits and what it is for; Default fills in the defaults. It is constant once the node has started.
type Settings struct {
	// DataDir is the folder that holds everything the node keeps, its identity included.
	DataDir string

	// NodeName is what people call the node; empty: its identity's name.
	NodeName string
	Cluster  Cluster

	// TCPListeners and TLSListeners are the addresses, host:port, on which clients are served. An empty host is every
	// interface.
	TCPListeners []string
	TLSListeners []string
	TLS          TLS

	// HTTPIP and HTTPPort are where /healthz and /metrics are served; MetricsIP and MetricsPort is a second place for
	// the same, at the port that scrapers of RabbitMQ expect. Port 0 turns one off.
	HTTPIP      string
	HTTPPort    int
	MetricsIP   string
	MetricsPort int

	Heartbeat        time.Duration // offered to the client; 0 turns heartbeats off
	FrameMax         uint32        // largest frame offered and accepted, in bytes
	ChannelMax       uint16        // most channels a connection; offered to the client
	ConsumerMax      uint32        // most consumers a channel; 0 is no limit
	HandshakeTimeout time.Duration // from accept to connection.open
	MaxMessageSize   Bytes         // largest body a client may publish

	// PublishTimeout bounds the wait for a publish to be settled; when it is over, the publisher gets a nack that means
	// unknown. DeclareTimeout bounds every other request of a client.
	PublishTimeout time.Duration
	DeclareTimeout time.Duration
	// ConsumerTimeout is how long a consumer of a quorum queue may hold a delivery, if neither it nor the queue's
	// arguments and policies say.
	ConsumerTimeout time.Duration
	// DeliveryStall is after how long a queue that could deliver and does not is said to be stalled; 0: never.
	DeliveryStall time.Duration

	// What the first start of an empty data folder creates.
	DefaultVHost       string
	DefaultUser        string
	DefaultPass        string
	DefaultUserTags    []string
	DefaultPermissions Permissions
	// LoopbackUsers may log in from this machine only.
	LoopbackUsers []string

	// DefaultQueueType is the type of a queue that is declared without one and could be of it: classic, quorum.
	DefaultQueueType string
	// QueueLeaderLocator says where the first leader of a quorum queue, or the home of a classic one, shall be if its declare
	// does not say: client-local, balanced.
	QueueLeaderLocator string

	// DiskFreeLimitAbsolute and DiskFreeLimitRelative are the mark under which publishing is blocked; see DiskFreeLimit
	// for what holds when both are zero.
	DiskFreeLimitAbsolute Bytes
	DiskFreeLimitRelative float64 // share of the machine's memory, as in RabbitMQ

	// MemoryMark is the share of the memory of the machine or its control group above which publishing is blocked;
	// MemoryMarkAbsolute, when it is not zero, is the mark itself. See MemoryLimit.
	MemoryMark         float64
	MemoryMarkAbsolute Bytes
	// MemoryTotal, when it is not zero, is how much memory there is, whatever the machine and its control groups say.
	MemoryTotal Bytes

	Log     Log
	Storage Storage

	// Shards is the number of workers that run the queues; 0 is one a processor (see ShardCount).
	Shards int
}

// Cluster says whether the node belongs with others.
type Cluster struct {
	// Address, host:port, is where other nodes reach this one. Empty: it is alone.
	Address string
	// Listen, host:port, is where it listens for them. Empty: at Address. See Bind.
	Listen string
	// Join are the addresses of the nodes that form a cluster together, this one's own among them or not. Empty: the node
	// founds a cluster of one, if it is in none.
	Join []string
	// DNS is a host name that stands for all nodes: each of its addresses, with the port of Address, is one.
	DNS    string
	Secret string // what nodes prove to each other to know; empty: nothing
	TLS    bool   // links use the certificate and the authorities of the TLS listeners
}

// Bind is where the node listens for other nodes; empty if it is alone.
func (c *Cluster) Bind() string {
	if c.Listen != "" {
		return c.Listen
	}
	return c.Address
}

// Permissions are three regular expressions over names of queues and exchanges.
type Permissions struct {
	Configure, Write, Read string
}

// Log says what is logged, and how. The log goes to the standard error or output stream and nowhere else.
type Log struct {
	Console bool   // false: nothing is logged
	Level   string // debug, info, warning, error, critical, none
	Format  string // plaintext, json
	Stream  string // stderr, stdout
}

// Storage is about the segment log.
type Storage struct {
	SegmentMin         Bytes         // size of the first segments
	SegmentMax         Bytes         // size to which segments grow with use
	CommitMax          Bytes         // most bytes written by one commit
	CheckpointBytes    Bytes         // bytes written since the last checkpoint that ask for the next
	CheckpointInterval time.Duration // longest time between checkpoints while something is written
	HangLimit          time.Duration // a sync that takes longer stops the node
	TailCache          Bytes         // memory for the newest bodies, shared by all queues
}

// Default returns the settings of a node without a configuration file.
func Default() *Settings {
	return &Settings{
		DataDir:            "holdfast-data",
		TCPListeners:       []string{":5672"},
		TLS:                TLS{Verify: VerifyNone, Versions: []string{"tlsv1.3", "tlsv1.2"}},
		HTTPPort:           15672,
		MetricsPort:        15692,
		Heartbeat:          60 * time.Second,
		FrameMax:           131072,
		ChannelMax:         2047,
		HandshakeTimeout:   10 * time.Second,
		MaxMessageSize:     16 * MiB,
		PublishTimeout:     15 * time.Second,
		DeclareTimeout:     15 * time.Second,
		ConsumerTimeout:    30 * time.Minute,
		DeliveryStall:      time.Minute,
		DefaultVHost:       "/",
		DefaultUser:        "guest",
		DefaultPass:        "guest",
		DefaultUserTags:    []string{"administrator"},
		DefaultPermissions: Permissions{Configure: ".*", Write: ".*", Read: ".*"},
		LoopbackUsers:      []string{"guest"},
		DefaultQueueType:   "classic",
		QueueLeaderLocator: "client-local",
		MemoryMark:         0.6,
		Log:                Log{Console: true, Level: "info", Format: "plaintext", Stream: "stderr"},
		Storage: Storage{
			SegmentMin:         16 * MiB,
			SegmentMax:         256 * MiB,
			CommitMax:          2 * MiB,
			CheckpointBytes:    256 * MiB,
			CheckpointInterval: time.Minute,
			HangLimit:          30 * time.Second,
			TailCache:          16 * MiB,
		},
	}
}

// ShardCount is the number of shard workers to start.
func (s *Settings) ShardCount() int {
	if s.Shards > 0 {
		return s.Shards
	}
	return runtime.GOMAXPROCS(0)
}

// The disk mark when no setting names one: 2 GiB or a twentieth of the disk, whichever is less, and never under 256 MiB.
const (
	defaultDiskMark    = 2 * GiB
	defaultDiskDivisor = 20
	leastDiskMark      = 256 * MiB
)

// DiskFreeLimit is the mark under which publishing is blocked, on a disk of diskTotal bytes and a machine (or control
// group) with memory bytes.
func (s *Settings) DiskFreeLimit(diskTotal, memory uint64) uint64 {
	switch {
	case s.DiskFreeLimitAbsolute > 0:
		return uint64(s.DiskFreeLimitAbsolute)
	case s.DiskFreeLimitRelative > 0:
		return uint64(s.DiskFreeLimitRelative * float64(memory))
	}
	return max(min(uint64(defaultDiskMark), diskTotal/defaultDiskDivisor), uint64(leastDiskMark))
}

// MemoryLimit is the mark above which publishing is blocked, where the machine (or control group) has memory bytes.
func (s *Settings) MemoryLimit(memory uint64) uint64 {
	if s.MemoryMarkAbsolute > 0 {
		return uint64(s.MemoryMarkAbsolute)
	}
	return uint64(s.MemoryMark * float64(memory))
}

// HTTPListeners are the addresses on which /healthz and /metrics are served, without those that are turned off.
func (s *Settings) HTTPListeners() []string {
	var list []string
	for _, at := range []struct {
		ip   string
		port int
	}{{s.HTTPIP, s.HTTPPort}, {s.MetricsIP, s.MetricsPort}} {
		address := net.JoinHostPort(at.ip, strconv.Itoa(at.port))
		if at.port != 0 && (len(list) == 0 || list[0] != address) {
			list = append(list, address)
		}
	}
	return list
}

// IsLoopbackUser reports whether the user may log in from this machine only.
func (s *Settings) IsLoopbackUser(name string) bool {
	return slices.Contains(s.LoopbackUsers, name)
}

// HTTPIsDefault reports whether nobody asked for the addresses of health and metrics.
func (s *Settings) HTTPIsDefault() bool {
	d := Default()
	return s.HTTPIP == d.HTTPIP && s.HTTPPort == d.HTTPPort && s.MetricsIP == d.MetricsIP && s.MetricsPort == d.MetricsPort
}
