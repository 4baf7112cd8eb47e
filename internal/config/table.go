package config

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"
)

// row is one setting: what the file calls it and how it gets in and out of the struct. A row whose key ends in $name
// is a family: every key of that form adds to one list.
type row struct {
	group  string
	key    string
	unit   string
	about  string
	limits string
	secret bool // masked when shown, unless it is the default

	set   func(s *Settings, name, text string) error // name: what stands for $name
	reset func(s *Settings)                          // family: empties the list before its first key
	show  func(s *Settings) []pair                   // as it would stand in a file
}

// pair is a key and its value, as in a file.
type pair struct{ key, value string }

func (r *row) family() bool { return strings.HasSuffix(r.key, ".$name") }

// stem is the key of a family without its $name.
func (r *row) stem() string { return strings.TrimSuffix(r.key, ".$name") }

// one is the row of a setting with a single value.
func one[T any](group, key, unit, about string, at func(*Settings) *T, c codec[T]) row {
	return row{
		group: group, key: key, unit: unit, about: about, limits: c.limits,
		set: func(s *Settings, _, text string) error {
			v, err := c.parse(text)
			if err == nil {
				*at(s) = v
			}
			return err
		},
		show: func(s *Settings) []pair { return []pair{{key, c.show(*at(s))}} },
	}
}

// list is the row of a family whose values are the members: listeners.tcp.1 = 5672. The order of the file is kept.
func list(group, stem, about string, at func(*Settings) *[]string, c codec[string]) row {
	return row{
		group: group, key: stem + ".$name", about: about, limits: c.limits,
		set: func(s *Settings, _, text string) error {
			v, err := c.parse(text)
			if err == nil && slices.Contains(*at(s), v) {
				err = fmt.Errorf("%q is there twice", text)
			}
			if err == nil {
				*at(s) = append(*at(s), v)
			}
			return err
		},
		reset: func(s *Settings) { *at(s) = nil },
		show: func(s *Settings) []pair {
			var pairs []pair
			for i, v := range *at(s) {
				pairs = append(pairs, pair{stem + "." + strconv.Itoa(i+1), c.show(v)})
			}
			return noneWhenEmpty(stem, pairs)
		},
	}
}

// set is the row of a family whose names are the members: loopback_users.guest = true. false takes one out again.
func set(group, stem, about string, at func(*Settings) *[]string) row {
	return row{
		group: group, key: stem + ".$name", about: about, limits: "true or false",
		set: func(s *Settings, name, text string) error {
			in, err := boolean().parse(text)
			if err != nil {
				return err
			}
			members := slices.DeleteFunc(slices.Clone(*at(s)), func(m string) bool { return m == name })
			if in {
				members = append(members, name)
			}
			sort.Strings(members)
			*at(s) = members
			return nil
		},
		reset: func(s *Settings) { *at(s) = nil },
		show: func(s *Settings) []pair {
			var pairs []pair
			for _, name := range *at(s) {
				pairs = append(pairs, pair{stem + "." + strings.ReplaceAll(name, ".", `\.`), "true"})
			}
			return noneWhenEmpty(stem, pairs)
		},
	}
}

// noneWhenEmpty writes an empty list as the one line that empties it.
func noneWhenEmpty(stem string, pairs []pair) []pair {
	if len(pairs) == 0 {
		return []pair{{stem, none}}
	}
	return pairs
}

// none, as the value of a family's stem, empties it: listeners.tcp = none.
const none = "none"

// The groups, in the order of the reference page.
const (
	groupNode      = "Data folder"
	groupCluster   = "Cluster"
	groupListeners = "Listeners"
	groupTLS       = "TLS"
	groupHTTP      = "Health and metrics"
	groupLimits    = "Limits of a connection"
	groupWaits     = "Waits"
	groupFirst     = "What the first start creates"
	groupUsers     = "Users"
	groupQueues    = "Queues"
	groupMemory    = "Memory alarm"
	groupDisk      = "Disk alarm"
	groupLog       = "Log"
	groupStorage   = "Storage"
)

// rows is the table. The order is that of the reference page and of the effective settings.
var rows = []row{
	one(groupNode, "data_dir", "", "The folder that holds everything the node keeps: messages, definitions, its identity. One process at a time; it is created when it is not there.",
		func(s *Settings) *string { return &s.DataDir }, words("a path", false)),

	one(groupCluster, "node_name", "", "What people call this node; no two nodes of a cluster have the same. Empty: its identity from the data folder.",
		func(s *Settings) *string { return &s.NodeName }, words("a name", true)),
	one(groupCluster, "cluster.address", "", "Where other nodes reach this one; it listens there for them, unless cluster.listen says otherwise. Empty: the node is alone.",
		func(s *Settings) *string { return &s.Cluster.Address }, nodeAddress(true)),
	one(groupCluster, "cluster.listen", "", "Where it listens for other nodes, if they reach it elsewhere: behind a translation of addresses, or a proxy. Empty: at cluster.address.",
		func(s *Settings) *string { return &s.Cluster.Listen }, anAddress()),
	list(groupCluster, "cluster.join", "The addresses of the nodes that form a cluster together, the same list for all of them. They may start in any order; a majority founds the cluster, and who comes later joins. A host name with several addresses stands for all of them. Without a list, a node founds a cluster of one.",
		func(s *Settings) *[]string { return &s.Cluster.Join }, nodeAddress(false)),
	one(groupCluster, "cluster_formation.dns.hostname", "", "A host name with an address for each node, all of them at the port of cluster.address; it is asked again while nodes look for each other.",
		func(s *Settings) *string { return &s.Cluster.DNS }, words("a host name", true)),
	secret(one(groupCluster, "cluster.secret", "", "What nodes have to know to be let in; the same for all, long and random. It is never sent.",
		func(s *Settings) *string { return &s.Cluster.Secret }, words("a secret", true))),
	one(groupCluster, "cluster.tls", "", "Whether links between nodes are encrypted. Both sides show the certificate of ssl_options.certfile and check the other's with ssl_options.cacertfile.",
		func(s *Settings) *bool { return &s.Cluster.TLS }, boolean()),

	list(groupListeners, "listeners.tcp", "Where clients are served without TLS. `listeners.tcp = none` turns it off.",
		func(s *Settings) *[]string { return &s.TCPListeners }, listener()),
	list(groupListeners, "listeners.ssl", "Where clients are served with TLS; usually port 5671.",
		func(s *Settings) *[]string { return &s.TLSListeners }, listener()),

	one(groupTLS, "ssl_options.cacertfile", "", "Certificates of the authorities that sign client certificates, PEM.",
		func(s *Settings) *string { return &s.TLS.CACertFile }, words("a path", true)),
	one(groupTLS, "ssl_options.certfile", "", "The certificate of the server, PEM, with intermediate certificates after it.",
		func(s *Settings) *string { return &s.TLS.CertFile }, words("a path", true)),
	one(groupTLS, "ssl_options.keyfile", "", "The private key of the server, PEM, without a passphrase.",
		func(s *Settings) *string { return &s.TLS.KeyFile }, words("a path", true)),
	one(groupTLS, "ssl_options.verify", "", "Whether a client's certificate is asked for and checked.",
		func(s *Settings) *string { return &s.TLS.Verify }, oneOf(VerifyNone, VerifyPeer)),
	one(groupTLS, "ssl_options.fail_if_no_peer_cert", "", "With verify_peer: refuse a client that shows no certificate.",
		func(s *Settings) *bool { return &s.TLS.FailIfNoPeerCert }, boolean()),
	list(groupTLS, "ssl_options.versions", "The versions of TLS that are spoken.",
		func(s *Settings) *[]string { return &s.TLS.Versions }, oneOf("tlsv1.2", "tlsv1.3")),

	one(groupHTTP, "management.tcp.ip", "", "The interface on which /healthz and /metrics are served.",
		func(s *Settings) *string { return &s.HTTPIP }, address()),
	one(groupHTTP, "management.tcp.port", "", "The port of the same; 0 turns it off.",
		func(s *Settings) *int { return &s.HTTPPort }, number[int](0, 65535)),
	one(groupHTTP, "prometheus.tcp.ip", "", "The interface of a second place for the same, where scrapers of RabbitMQ look.",
		func(s *Settings) *string { return &s.MetricsIP }, address()),
	one(groupHTTP, "prometheus.tcp.port", "", "The port of the same; 0 turns it off.",
		func(s *Settings) *int { return &s.MetricsPort }, number[int](0, 65535)),

	one(groupLimits, "heartbeat", "seconds", "The heartbeat offered to clients; the client may ask for less. 0 offers none. A peer silent for two heartbeats is disconnected.",
		func(s *Settings) *time.Duration { return &s.Heartbeat }, span(time.Second, 0, math.MaxUint16*time.Second)),
	one(groupLimits, "frame_max", "bytes", "The largest frame offered to clients; the client may ask for less, down to 4096.",
		func(s *Settings) *uint32 { return &s.FrameMax }, number[uint32](4096, 1<<20)),
	one(groupLimits, "channel_max", "", "The most channels one connection may open.",
		func(s *Settings) *uint16 { return &s.ChannelMax }, number[uint16](1, math.MaxUint16)),
	one(groupLimits, "consumer_max_per_channel", "", "The most consumers one channel may have; one more closes the connection. 0 is no limit.",
		func(s *Settings) *uint32 { return &s.ConsumerMax }, number[uint32](0, math.MaxUint32)),
	one(groupLimits, "max_message_size", "bytes", "The largest body a client may publish. A larger one closes its channel.",
		func(s *Settings) *Bytes { return &s.MaxMessageSize }, size(1, 512*MiB)),

	one(groupWaits, "handshake_timeout", "milliseconds", "From the first byte to an open connection; slower clients are disconnected.",
		func(s *Settings) *time.Duration { return &s.HandshakeTimeout }, span(time.Millisecond, 100*time.Millisecond, 10*time.Minute)),
	one(groupWaits, "publish_timeout", "seconds", "How long a publish may wait to be settled; then it is answered with a nack, which here means: unknown.",
		func(s *Settings) *time.Duration { return &s.PublishTimeout }, span(time.Second, time.Second, time.Hour)),
	one(groupWaits, "declare_timeout", "seconds", "How long any other request of a client may wait for its answer.",
		func(s *Settings) *time.Duration { return &s.DeclareTimeout }, span(time.Second, time.Second, time.Hour)),
	one(groupWaits, "consumer_timeout", "milliseconds", "How long a consumer of a quorum queue may hold a delivery that is not acknowledged, unless it or the queue says otherwise; then it is cancelled and the delivery goes to others.",
		func(s *Settings) *time.Duration { return &s.ConsumerTimeout }, span(time.Millisecond, time.Millisecond, 10*365*24*time.Hour)),
	one(groupWaits, "delivery_stall", "seconds", "After how long without a delivery a queue is logged and counted as stalled, if messages are ready and a consumer could have them. That tells of a fault of the broker; a queue whose consumers read slowly, or do not acknowledge, does not count. 0 turns it off.",
		func(s *Settings) *time.Duration { return &s.DeliveryStall }, span(time.Second, 0, 24*time.Hour)),

	one(groupFirst, "default_vhost", "", "The virtual host that an empty data folder starts with.",
		func(s *Settings) *string { return &s.DefaultVHost }, words("a name", false)),
	one(groupFirst, "default_user", "", "The user that an empty data folder starts with.",
		func(s *Settings) *string { return &s.DefaultUser }, words("a name", false)),
	secret(one(groupFirst, "default_pass", "", "The password of that user.",
		func(s *Settings) *string { return &s.DefaultPass }, words("a password", false))),
	set(groupFirst, "default_user_tags", "The tags of that user.",
		func(s *Settings) *[]string { return &s.DefaultUserTags }),
	one(groupFirst, "default_permissions.configure", "", "Names that user may declare and delete.",
		func(s *Settings) *string { return &s.DefaultPermissions.Configure }, pattern()),
	one(groupFirst, "default_permissions.write", "", "Names that user may publish and bind to.",
		func(s *Settings) *string { return &s.DefaultPermissions.Write }, pattern()),
	one(groupFirst, "default_permissions.read", "", "Names that user may consume from and bind from.",
		func(s *Settings) *string { return &s.DefaultPermissions.Read }, pattern()),

	set(groupUsers, "loopback_users", "Users that may log in from this machine only. `loopback_users = none` lifts it for all.",
		func(s *Settings) *[]string { return &s.LoopbackUsers }),

	one(groupQueues, "default_queue_type", "", "The type of a queue declared without x-queue-type. A queue that cannot be a quorum queue (exclusive, not durable, auto-delete, named by the server) is classic in any case.",
		func(s *Settings) *string { return &s.DefaultQueueType }, oneOf("classic", "quorum")),
	one(groupQueues, "queue_leader_locator", "", "Where a queue declared without x-queue-leader-locator is led at first: on the node where it is declared, or on the one with fewest of them.",
		func(s *Settings) *string { return &s.QueueLeaderLocator }, oneOf("client-local", "balanced")),

	one(groupMemory, "vm_memory_high_watermark.relative", "share of memory", "Publishing is blocked while the broker holds more than this share of the memory of the machine or its control group.",
		func(s *Settings) *float64 { return &s.MemoryMark }, fraction(0.01, 1)),
	one(groupMemory, "vm_memory_high_watermark.absolute", "bytes", "The same mark as a size; where it is set, the share does not count. 0 is none.",
		func(s *Settings) *Bytes { return &s.MemoryMarkAbsolute }, size(0, 1024*1024*GiB)),
	one(groupMemory, "total_memory_available_override_value", "bytes", "How much memory there is, where what the machine and its control groups say is not what the broker may use. 0: what they say.",
		func(s *Settings) *Bytes { return &s.MemoryTotal }, size(0, 1024*1024*GiB)),

	one(groupDisk, "disk_free_limit.absolute", "bytes", "Publishing is blocked while less than this is free on the disk of the data folder. 0 is no absolute mark. When neither this nor the relative mark is set: 2 GiB or 5 % of the disk, whichever is less, and never under 256 MiB.",
		func(s *Settings) *Bytes { return &s.DiskFreeLimitAbsolute }, size(0, 1024*1024*GiB)),
	one(groupDisk, "disk_free_limit.relative", "share of memory", "The same mark as a multiple of the memory of the machine or its control group. 0 is none.",
		func(s *Settings) *float64 { return &s.DiskFreeLimitRelative }, fraction(0, 100)),

	one(groupLog, "log.console", "", "Whether anything is logged.",
		func(s *Settings) *bool { return &s.Log.Console }, boolean()),
	one(groupLog, "log.console.level", "", "The least serious line that is logged.",
		func(s *Settings) *string { return &s.Log.Level }, oneOf("debug", "info", "warning", "error", "critical", none)),
	one(groupLog, "log.console.formatter", "", "The form of a line.",
		func(s *Settings) *string { return &s.Log.Format }, oneOf("plaintext", "json")),
	one(groupLog, "log.console.stdio", "", "The stream the log goes to.",
		func(s *Settings) *string { return &s.Log.Stream }, oneOf("stderr", "stdout")),

	one(groupStorage, "storage.segment_size.min", "bytes", "The size of the first segments of the log. Segments are created in full, before they are needed.",
		func(s *Settings) *Bytes { return &s.Storage.SegmentMin }, size(1*MiB, 1*GiB)),
	one(groupStorage, "storage.segment_size.max", "bytes", "The size to which segments grow with use.",
		func(s *Settings) *Bytes { return &s.Storage.SegmentMax }, size(1*MiB, 1*GiB)),
	one(groupStorage, "storage.commit_size.max", "bytes", "The most bytes one commit of the log writes before it syncs.",
		func(s *Settings) *Bytes { return &s.Storage.CommitMax }, size(512*KiB, 16*MiB)),
	one(groupStorage, "storage.checkpoint.bytes", "bytes", "How much is written to the log before the next checkpoint; it bounds what a start has to read.",
		func(s *Settings) *Bytes { return &s.Storage.CheckpointBytes }, size(1*MiB, 16*GiB)),
	one(groupStorage, "storage.checkpoint.interval", "seconds", "The longest time between checkpoints while anything is written.",
		func(s *Settings) *time.Duration { return &s.Storage.CheckpointInterval }, span(time.Second, time.Second, 24*time.Hour)),
	one(groupStorage, "storage.hang_limit", "seconds", "A sync of the disk that takes longer stops the node: nothing could be confirmed any more.",
		func(s *Settings) *time.Duration { return &s.Storage.HangLimit }, span(time.Second, time.Second, time.Hour)),
	one(groupStorage, "storage.tail_cache", "bytes", "Memory for the newest message bodies of all queues, so that a consumer that keeps up never reads the disk. Older ones are on the disk only.",
		func(s *Settings) *Bytes { return &s.Storage.TailCache }, size(0, 1024*GiB)),
	one(groupStorage, "shards", "", "Workers that run the queues. 0 is one a processor.",
		func(s *Settings) *int { return &s.Shards }, number[int](0, 1024)),
}

func secret(r row) row {
	r.secret = true
	return r
}

// find gives the row of a key and, for a family, what stands for $name.
func find(key string) (r *row, name string) {
	for i := range rows {
		r := &rows[i]
		if r.key == key {
			return r, ""
		}
		if r.family() {
			if name, ok := strings.CutPrefix(key, r.stem()+"."); ok && name != "" {
				return r, name
			}
		}
	}
	return nil, ""
}

// Set changes one setting, as a line of a file or a flag would.
func (s *Settings) Set(key, text string) error {
	r, name := find(key)
	if r == nil {
		return unknown(key)
	}
	if err := r.set(s, name, text); err != nil {
		return fmt.Errorf("%s %w", key, err)
	}
	return nil
}

// conflict is a check that needs several settings; key is where the file is most likely wrong.
type conflict struct{ key, text string }

// conflicts checks settings against each other.
func (s *Settings) conflicts() []conflict {
	var found []conflict
	say := func(key, text string) { found = append(found, conflict{key, text}) }
	if len(s.TCPListeners)+len(s.TLSListeners) == 0 {
		say("listeners.tcp", "there is no listener: neither listeners.tcp nor listeners.ssl names one")
	}
	if s.Cluster.Address == "" && s.Cluster.Listen != "" {
		say("cluster.listen", "cluster.listen needs cluster.address, where the others reach this node")
	}
	if s.Cluster.TLS && (s.TLS.CertFile == "" || s.TLS.KeyFile == "" || s.TLS.CACertFile == "") {
		say("cluster.tls", "cluster.tls needs ssl_options.certfile, ssl_options.keyfile and ssl_options.cacertfile")
	}
	if len(s.TLSListeners) > 0 && (s.TLS.CertFile == "" || s.TLS.KeyFile == "") {
		say("listeners.ssl", "listeners.ssl needs ssl_options.certfile and ssl_options.keyfile")
	}
	if s.TLS.Verify == VerifyPeer && s.TLS.CACertFile == "" {
		say("ssl_options.verify", "ssl_options.verify = verify_peer needs ssl_options.cacertfile")
	}
	if s.TLS.FailIfNoPeerCert && s.TLS.Verify != VerifyPeer {
		say("ssl_options.fail_if_no_peer_cert", "ssl_options.fail_if_no_peer_cert needs ssl_options.verify = verify_peer")
	}
	if len(s.TLS.Versions) == 0 {
		say("ssl_options.versions", "ssl_options.versions names no version")
	}
	if s.DiskFreeLimitAbsolute > 0 && s.DiskFreeLimitRelative > 0 {
		say("disk_free_limit.relative", "disk_free_limit.absolute and disk_free_limit.relative are both set; keep one")
	}
	if s.Storage.SegmentMin > s.Storage.SegmentMax {
		say("storage.segment_size.min", "storage.segment_size.min is above storage.segment_size.max")
	}
	// A commit is one frame, and a frame never crosses the end of a segment; below this ratio the unused ends cost too much.
	if s.Storage.CommitMax*2 > s.Storage.SegmentMin {
		say("storage.commit_size.max", "storage.commit_size.max is above half of storage.segment_size.min")
	}
	return found
}

// Check tells what is wrong between settings that are each in order. Parse does it for a file; whoever changes settings
// afterwards, with flags, does it again.
func (s *Settings) Check() error {
	var ps Problems
	for _, c := range s.conflicts() {
		ps = append(ps, Problem{Text: c.text})
	}
	// A file that all nodes share leaves the address to the command line of each.
	if s.Cluster.Address == "" {
		if len(s.Cluster.Join) > 0 {
			ps = append(ps, Problem{Text: "cluster.join needs cluster.address, where the others reach this node"})
		}
		if s.Cluster.DNS != "" {
			ps = append(ps, Problem{Text: "cluster_formation.dns.hostname needs cluster.address, where the others reach this node"})
		}
	}
	return ps.orNil()
}
