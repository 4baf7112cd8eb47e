package metrics

import (
	"runtime"
	"sort"

	"github.com/prometheus/client_golang/prometheus"
)

// family is one metric: its name and help, and how its samples come out of the values.
type family struct {
	desc   *prometheus.Desc
	kind   prometheus.ValueType
	sample func(v *Values, emit func(value float64, labels ...string))
	spread func(v *Values) Distribution // a histogram, instead of sample
}

func gauge(name, help string, value func(v *Values) float64) family {
	return family{desc: prometheus.NewDesc(name, help, nil, nil), kind: prometheus.GaugeValue, sample: single(value)}
}

func counter(name, help string, value func(v *Values) uint64) family {
	return family{desc: prometheus.NewDesc(name, help, nil, nil), kind: prometheus.CounterValue,
		sample: single(func(v *Values) float64 { return float64(value(v)) })}
}

// global is a counter in RabbitMQ's form for a whole protocol.
func global(name, help string, value func(v *Values) uint64) family {
	return family{desc: prometheus.NewDesc("rabbitmq_global_"+name, help, nil, prometheus.Labels{"protocol": "amqp091"}),
		kind: prometheus.CounterValue, sample: single(func(v *Values) float64 { return float64(value(v)) })}
}

// byQueueType is a counter in RabbitMQ's form for a protocol and a type of queue.
func byQueueType(name, help string, value func(v *Values) uint64) family {
	return family{desc: prometheus.NewDesc("rabbitmq_global_"+name, help, nil, prometheus.Labels{"protocol": "amqp091", "queue_type": "rabbit_classic_queue"}),
		kind: prometheus.CounterValue, sample: single(func(v *Values) float64 { return float64(value(v)) })}
}

// labelled is a gauge with one sample for each key of a map.
func labelled(name, help, label string, values func(v *Values) map[string]uint64) family {
	return family{desc: prometheus.NewDesc(name, help, []string{label}, nil), kind: prometheus.GaugeValue,
		sample: func(v *Values, emit func(float64, ...string)) {
			m := values(v)
			keys := make([]string, 0, len(m))
			for key := range m {
				keys = append(keys, key)
			}
			sort.Strings(keys)
			for _, key := range keys {
				emit(float64(m[key]), key)
			}
		}}
}

// died is a counter in RabbitMQ's form of what has died for one reason.
func died(reason, help string) family {
	return family{
		desc: prometheus.NewDesc("rabbitmq_global_messages_dead_lettered_"+reason+"_total", help, []string{"queue_type", "dead_letter_strategy"}, nil),
		kind: prometheus.CounterValue,
		sample: func(v *Values, emit func(float64, ...string)) {
			for _, d := range v.Dead.Died {
				if d.Reason == reason {
					emit(float64(d.Messages), d.QueueType, d.Strategy)
				}
			}
		},
	}
}

// byPeer is a metric with a sample for each link to another node.
func byPeer(name, help string, kind prometheus.ValueType, value func(p *Peer) float64) family {
	return family{desc: prometheus.NewDesc(name, help, []string{"peer"}, nil), kind: kind,
		sample: func(v *Values, emit func(float64, ...string)) {
			for i := range v.Peers {
				emit(value(&v.Peers[i]), v.Peers[i].Name)
			}
		}}
}

// byLane is a metric with a sample for each lane of these links.
func byLane(name, help string, kind prometheus.ValueType, value func(l *PeerLane) uint64) family {
	return family{desc: prometheus.NewDesc(name, help, []string{"peer", "lane"}, nil), kind: kind,
		sample: func(v *Values, emit func(float64, ...string)) {
			for _, p := range v.Peers {
				for i := range p.Lanes {
					emit(float64(value(&p.Lanes[i])), p.Name, p.Lanes[i].Name)
				}
			}
		}}
}

func histogram(name, help string, spread func(v *Values) Distribution) family {
	return family{desc: prometheus.NewDesc(name, help, nil, nil), spread: spread}
}

func single(value func(v *Values) float64) func(*Values, func(float64, ...string)) {
	return func(v *Values, emit func(float64, ...string)) { emit(value(v)) }
}

func truth(on bool) float64 {
	if on {
		return 1
	}
	return 0
}

// families is every metric of the aggregated page that is ours to tell; the runtime and process collectors add theirs.
var families = []family{
	{desc: prometheus.NewDesc("rabbitmq_build_info", "Product and version", []string{"product_name", "product_version", "go_version"}, nil), kind: prometheus.GaugeValue,
		sample: func(v *Values, emit func(float64, ...string)) {
			emit(1, "Holdfast", v.Identity.Version, runtime.Version())
		}},
	{desc: prometheus.NewDesc("rabbitmq_identity_info", "Identity of the node", []string{"rabbitmq_node", "rabbitmq_cluster", "rabbitmq_endpoint"}, nil), kind: prometheus.GaugeValue,
		sample: func(v *Values, emit func(float64, ...string)) {
			emit(1, v.Identity.Node, v.Identity.Node, "aggregated")
		}},
	gauge("holdfast_start_time_seconds", "When the node started, in seconds since 1970", func(v *Values) float64 {
		return float64(v.Identity.Started.UnixMilli()) / 1000
	}),

	gauge("rabbitmq_connections", "Connections currently open", func(v *Values) float64 { return float64(v.Clients.Connections) }),
	gauge("rabbitmq_channels", "Channels currently open", func(v *Values) float64 { return float64(v.Clients.Channels) }),
	gauge("rabbitmq_consumers", "Consumers currently connected", func(v *Values) float64 { return float64(v.Clients.Consumers) }),
	gauge("rabbitmq_queues", "Queues available", func(v *Values) float64 { return float64(v.Queues.Queues) }),
	counter("rabbitmq_connections_opened_total", "Connections opened", func(v *Values) uint64 { return v.Clients.ConnectionsOpened }),
	counter("rabbitmq_connections_closed_total", "Connections closed or broken off", func(v *Values) uint64 { return v.Clients.ConnectionsClosed }),
	counter("rabbitmq_channels_opened_total", "Channels opened", func(v *Values) uint64 { return v.Clients.ChannelsOpened }),
	counter("rabbitmq_channels_closed_total", "Channels closed", func(v *Values) uint64 { return v.Clients.ChannelsClosed }),
	counter("rabbitmq_queues_created_total", "Queues created", func(v *Values) uint64 { return v.Queues.Created }),
	counter("rabbitmq_queues_deleted_total", "Queues deleted", func(v *Values) uint64 { return v.Queues.Deleted }),
	counter("rabbitmq_auth_attempts_succeeded_total", "Logins that succeeded", func(v *Values) uint64 { return v.Clients.LoginsSucceeded }),
	counter("rabbitmq_auth_attempts_failed_total", "Logins that were refused", func(v *Values) uint64 { return v.Clients.LoginsFailed }),
	counter("rabbitmq_auth_attempts_total", "Logins tried", func(v *Values) uint64 { return v.Clients.LoginsSucceeded + v.Clients.LoginsFailed }),
	counter("rabbitmq_connection_incoming_bytes_total", "Bytes received from clients", func(v *Values) uint64 { return v.Clients.ReceivedBytes }),
	counter("rabbitmq_connection_outgoing_bytes_total", "Bytes sent to clients", func(v *Values) uint64 { return v.Clients.SentBytes }),
	gauge("rabbitmq_channel_messages_unacked", "Messages delivered on channels and not yet acknowledged", func(v *Values) float64 { return float64(v.Clients.MessagesUnacked) }),
	gauge("rabbitmq_channel_messages_unconfirmed", "Messages published on channels and not yet confirmed", func(v *Values) float64 { return float64(v.Clients.MessagesUnconfirmed) }),

	global("messages_received_total", "Messages received from publishers", func(v *Values) uint64 { return v.Messages.Received }),
	global("messages_routed_total", "Messages put into queues, once for each queue", func(v *Values) uint64 { return v.Messages.Routed }),
	global("messages_unroutable_dropped_total", "Unroutable messages dropped", func(v *Values) uint64 { return v.Messages.Dropped }),
	global("messages_unroutable_returned_total", "Unroutable mandatory messages returned to their publisher", func(v *Values) uint64 { return v.Messages.Returned }),
	global("messages_confirmed_total", "Messages confirmed to publishers", func(v *Values) uint64 { return v.Messages.Confirmed }),
	byQueueType("messages_delivered_total", "Messages delivered to consumers and getters", func(v *Values) uint64 { return v.Messages.Delivered }),
	byQueueType("messages_redelivered_total", "Messages delivered that had been delivered before", func(v *Values) uint64 { return v.Messages.Redelivered }),
	byQueueType("messages_acknowledged_total", "Messages acknowledged by consumers", func(v *Values) uint64 { return v.Messages.Acked }),
	byQueueType("messages_get_empty_total", "Gets that found no message", func(v *Values) uint64 { return v.Messages.GetsEmpty }),
	counter("holdfast_messages_nacked_total", "Publishes answered with a nack", func(v *Values) uint64 { return v.Messages.Nacked }),

	died("rejected", "Messages that died since a consumer rejected them"),
	died("expired", "Messages that died since their time was over"),
	died("maxlen", "Messages that died since their queue had no room"),
	died("delivery_limit", "Messages that died since they came back too often"),
	counter("rabbitmq_global_messages_dead_lettered_confirmed_total", "Dead letters that are known to have arrived", func(v *Values) uint64 { return v.Dead.Confirmed }),
	{desc: prometheus.NewDesc("holdfast_dead_letters_dropped_total", "Dead letters that have not arrived, by cause", []string{"cause"}, nil), kind: prometheus.CounterValue,
		sample: labelled("", "", "", func(v *Values) map[string]uint64 { return v.Dead.Dropped }).sample},
	gauge("holdfast_queue_dead_letters", "Dead letters that queues hold until they have arrived", func(v *Values) float64 { return float64(v.Queues.Dead) }),
	gauge("holdfast_dead_letters_held", "Dead letters that a queue did not take, or that have nowhere to go, and that will be carried again", func(v *Values) float64 { return float64(v.Dead.Held) }),
	gauge("holdfast_dead_letters_waiting_bytes", "Bytes of dead letters for which the queues that they are for have not answered", func(v *Values) float64 { return float64(v.Dead.UnderWay) }),

	gauge("rabbitmq_queue_messages_ready", "Messages ready to be delivered to consumers", func(v *Values) float64 { return float64(v.Queues.Ready) }),
	gauge("rabbitmq_queue_messages_unacked", "Messages delivered to consumers but not yet acknowledged", func(v *Values) float64 { return float64(v.Queues.Unacked) }),
	gauge("holdfast_queue_messages_delayed", "Messages that wait until their time has come, in queues and for exchanges", func(v *Values) float64 { return float64(v.Queues.Delayed) }),
	counter("holdfast_delayed_messages_routed_total", "Messages that exchanges had delayed, and routed when their time had come", func(v *Values) uint64 { return v.Queues.Forwarded }),
	{desc: prometheus.NewDesc("holdfast_delayed_messages_dropped_total", "Messages that exchanges had delayed, and that have not arrived, by cause", []string{"cause"}, nil), kind: prometheus.CounterValue,
		sample: labelled("", "", "", func(v *Values) map[string]uint64 { return v.Queues.ForwardedDropped }).sample},
	gauge("rabbitmq_queue_messages", "Sum of ready and unacknowledged messages", func(v *Values) float64 { return float64(v.Queues.Ready + v.Queues.Unacked) }),
	gauge("rabbitmq_queue_messages_ram_bytes", "Size in bytes of message bodies that are in memory", func(v *Values) float64 { return float64(v.Queues.BodiesInMemory) }),
	gauge("rabbitmq_queue_messages_paged_out_bytes", "Size in bytes of message bodies that are on disk and not in the log, about", func(v *Values) float64 { return float64(v.Queues.BodiesSpilled) }),
	gauge("rabbitmq_queue_consumers", "Consumers on queues", func(v *Values) float64 { return float64(v.Queues.Consumers) }),
	counter("holdfast_duplicates_total", "Messages that a queue did not take since they had come before", func(v *Values) uint64 { return v.Queues.Duplicates }),
	counter("holdfast_consumer_timeouts_total", "Consumers that held messages for longer than they may, which were taken back", func(v *Values) uint64 { return v.Queues.ConsumerTimeouts }),
	counter("holdfast_single_active_changes_total", "How often another consumer, or none any more, became the single active one of its queue", func(v *Values) uint64 { return v.Queues.Activations }),
	counter("holdfast_queue_stalls_total", "How often a queue has delivered nothing for some time although messages were ready and a consumer could have had them", func(v *Values) uint64 { return v.Queues.Stalls }),
	gauge("holdfast_queues_stalled", "Queues for which that is so now", func(v *Values) float64 { return float64(v.Queues.Stalled) }),
	gauge("holdfast_queue_oldest_unacked_seconds", "Age of the oldest delivery that is not yet acknowledged, over all queues", func(v *Values) float64 { return v.Queues.OldestUnacked.Seconds() }),
	gauge("holdfast_queues_quarantined", "Queues whose data in the log is damaged and which serve nobody", func(v *Values) float64 { return float64(v.Queues.Quarantined) }),
	gauge("holdfast_quorum_queues_without_leader", "Quorum queues that clients of this node use and that have had no leader for some seconds", func(v *Values) float64 { return float64(v.Queues.Leaderless) }),
	gauge("holdfast_quorum_consumers_without_leader", "Consumers of this node that wait for such a queue to have a leader", func(v *Values) float64 { return float64(v.Queues.LeaderlessConsumers) }),
	gauge("holdfast_log_groups_quarantined", "Groups of the log that lost records to damage", func(v *Values) float64 { return float64(v.Log.QuarantinedGroups) }),
	gauge("holdfast_log_orphans", "Groups in the log that no queue claims", func(v *Values) float64 { return float64(v.Queues.Orphans) }),
	labelled("holdfast_queues_blocked", "Queues with ready messages that do not move, by reason", "reason", func(v *Values) map[string]uint64 { return v.Queues.BlockedBy }),
	labelled("holdfast_cluster_nodes", "Nodes of the cluster as seen from this one, by state", "state", func(v *Values) map[string]uint64 { return v.Cluster.Nodes }),
	gauge("holdfast_cluster_catalog_leader_known", "1 if the catalog has a leader, as far as this node knows, else 0", func(v *Values) float64 {
		if v.Cluster.Leader {
			return 1
		}
		return 0
	}),
	gauge("holdfast_cluster_catalog_stale", "1 while messages are routed by what this node knew last, since the leader of the catalog gives no answer, else 0", func(v *Values) float64 {
		if v.Cluster.Stale {
			return 1
		}
		return 0
	}),
	gauge("holdfast_cluster_nodes_apart", "Nodes of the cluster with another catalog: they, or this side, went on alone by force_boot", func(v *Values) float64 { return float64(v.Cluster.Apart) }),
	gauge("holdfast_cluster_nodes_alarmed", "Other nodes with an alarm: publishers to queues that they serve are blocked", func(v *Values) float64 { return float64(v.Cluster.Alarmed) }),
	gauge("holdfast_cluster_commands_waiting", "Commands of this node for the catalog of the cluster that were not answered yet", func(v *Values) float64 { return float64(v.Cluster.Waiting) }),
	byPeer("holdfast_peer_up", "1 if the link to the node is up, else 0", prometheus.GaugeValue, func(p *Peer) float64 { return truth(p.Up) }),
	byPeer("holdfast_peer_detour", "1 if there is no link to the node, and another one leads messages on, else 0", prometheus.GaugeValue, func(p *Peer) float64 { return truth(p.Detour) }),
	byPeer("holdfast_peer_reconnects_total", "How often the link came up again", prometheus.CounterValue, func(p *Peer) float64 { return float64(p.Reconnects) }),
	byPeer("holdfast_peer_suspicions_total", "How often the node missed four heartbeats in a row", prometheus.CounterValue, func(p *Peer) float64 { return float64(p.Suspicions) }),
	byPeer("holdfast_peer_round_trip_seconds", "Time between the last heartbeat that was answered and its answer; 0 if none was", prometheus.GaugeValue, func(p *Peer) float64 { return p.RoundTrip.Seconds() }),
	byLane("holdfast_peer_sent_messages_total", "Messages for the node, by lane of the link", prometheus.CounterValue, func(l *PeerLane) uint64 { return l.SentMessages }),
	byLane("holdfast_peer_sent_bytes_total", "Bytes of these messages with their heads", prometheus.CounterValue, func(l *PeerLane) uint64 { return l.SentBytes }),
	byLane("holdfast_peer_received_messages_total", "Messages from the node, by lane of the link", prometheus.CounterValue, func(l *PeerLane) uint64 { return l.ReceivedMessages }),
	byLane("holdfast_peer_received_bytes_total", "Bytes of these messages with their heads", prometheus.CounterValue, func(l *PeerLane) uint64 { return l.ReceivedBytes }),
	byLane("holdfast_peer_refused_messages_total", "Messages that found the lane full; they are made again when it has room", prometheus.CounterValue, func(l *PeerLane) uint64 { return l.Refused }),
	byLane("holdfast_peer_waiting_bytes", "Bytes that wait to be written to the node", prometheus.GaugeValue, func(l *PeerLane) uint64 { return l.WaitingBytes }),
	gauge("holdfast_queues_unexamined", "Queues that did not tell in time what they wait for; they are missing in holdfast_queues_blocked", func(v *Values) float64 { return float64(v.Queues.Unexamined) }),
	labelled("holdfast_connections_blocked", "Connections whose publishing is held back, by reason", "reason", func(v *Values) map[string]uint64 { return v.Clients.Blocked }),

	counter("rabbitmq_io_sync_ops_total", "Syncs of the log", func(v *Values) uint64 { return v.Log.Syncs }),
	{desc: prometheus.NewDesc("rabbitmq_io_sync_time_seconds_total", "Time spent writing and syncing the log", nil, nil), kind: prometheus.CounterValue,
		sample: single(func(v *Values) float64 { return v.Log.Times.Write.Sum + v.Log.Times.Sync.Sum })},
	counter("rabbitmq_io_write_bytes_total", "Bytes written to the log", func(v *Values) uint64 { return v.Log.WrittenBytes }),
	counter("rabbitmq_io_read_ops_total", "Reads of the log", func(v *Values) uint64 { return v.Log.Reads }),
	counter("rabbitmq_io_read_bytes_total", "Bytes read from the log", func(v *Values) uint64 { return v.Log.ReadBytes }),
	counter("holdfast_log_stable_messages_total", "Messages made stable; by rabbitmq_io_sync_ops_total it is messages per sync", func(v *Values) uint64 { return v.Log.Messages }),
	counter("holdfast_log_stable_records_total", "Records made stable; by rabbitmq_io_sync_ops_total it is records per sync", func(v *Values) uint64 { return v.Log.Records }),
	histogram("holdfast_log_write_seconds", "Time of handing one frame of the log to the system", func(v *Values) Distribution { return v.Log.Times.Write }),
	histogram("holdfast_log_sync_seconds", "Time of one sync of the log", func(v *Values) Distribution { return v.Log.Times.Sync }),
	histogram("holdfast_log_index_seconds", "Time of entering one frame into the index, waiting for its lock included", func(v *Values) Distribution { return v.Log.Times.Index }),
	histogram("holdfast_log_segment_change_seconds", "Time of going on in another segment, waiting for one included", func(v *Values) Distribution { return v.Log.Times.Change }),
	histogram("holdfast_log_checkpoint_seconds", "Time of one checkpoint; commits go on beside it", func(v *Values) Distribution { return v.Log.Times.Checkpoint }),
	histogram("holdfast_log_rewrite_step_seconds", "Time of one step of rewriting: a frame of survivors encoded, written, synced and entered", func(v *Values) Distribution { return v.Log.Times.Rewrite }),
	histogram("holdfast_log_hold_seconds", "Time for which work behind the writing held the index: so long a commit or a shard may have waited", func(v *Values) Distribution { return v.Log.Times.Hold }),
	histogram("holdfast_log_records_per_sync", "Records made stable by one sync", func(v *Values) Distribution { return v.Log.Times.RecordsPerSync }),
	histogram("holdfast_log_messages_per_sync", "Messages made stable by one sync", func(v *Values) Distribution { return v.Log.Times.MessagesPerSync }),
	labelled("holdfast_log_segments", "Segments of the log, by state", "state", func(v *Values) map[string]uint64 { return v.Log.Segments }),
	gauge("holdfast_log_disk_bytes", "Bytes of the log's files on disk", func(v *Values) float64 { return float64(v.Log.DiskBytes) }),
	gauge("holdfast_log_live_messages", "Messages in the log that somebody still needs", func(v *Values) float64 { return float64(v.Log.LiveMessages) }),
	gauge("holdfast_log_live_bytes", "Bytes of the log that somebody still needs", func(v *Values) float64 { return float64(v.Log.LiveBytes) }),
	gauge("holdfast_log_dead_bytes", "Bytes of the log that wait to be reclaimed", func(v *Values) float64 { return float64(v.Log.DeadBytes) }),
	gauge("holdfast_log_segment_bytes", "Size of the segments made now: larger under load, small in calm", func(v *Values) float64 { return float64(v.Log.SegmentBytes) }),
	gauge("holdfast_log_queued_bytes", "Bytes appended to the log and not yet written", func(v *Values) float64 { return float64(v.Log.QueuedBytes) }),
	counter("holdfast_log_rewritten_bytes_total", "Bytes of live messages copied to free the segments they lay in", func(v *Values) uint64 { return v.Log.RewrittenBytes }),
	counter("holdfast_log_rewritten_segments_total", "Segments whose live messages were copied", func(v *Values) uint64 { return v.Log.RewrittenSegments }),
	counter("holdfast_log_recycled_segments_total", "Segments freed for new use", func(v *Values) uint64 { return v.Log.RecycledSegments }),
	counter("holdfast_log_checkpoints_total", "Checkpoints written", func(v *Values) uint64 { return v.Log.Checkpoints }),
	gauge("holdfast_spill_blocks", "Blocks of message bodies on disk that memory had no room for and that are not in the log", func(v *Values) float64 { return float64(v.Spill.Blocks) }),
	gauge("holdfast_spill_bytes", "Bytes of these blocks", func(v *Values) float64 { return float64(v.Spill.Bytes) }),
	gauge("holdfast_spill_files", "Files that hold them", func(v *Values) float64 { return float64(v.Spill.Files) }),
	gauge("holdfast_spill_disk_bytes", "Bytes of these files on disk", func(v *Values) float64 { return float64(v.Spill.DiskBytes) }),
	counter("holdfast_spill_writes_total", "Blocks written", func(v *Values) uint64 { return v.Spill.Writes }),
	counter("holdfast_spill_written_bytes_total", "Bytes of blocks written", func(v *Values) uint64 { return v.Spill.Written }),
	counter("holdfast_spill_reads_total", "Blocks read", func(v *Values) uint64 { return v.Spill.Reads }),
	counter("holdfast_spill_read_bytes_total", "Bytes of blocks read", func(v *Values) uint64 { return v.Spill.ReadBytes }),
	counter("holdfast_spill_failed_writes_total", "Blocks that could not be written at a try; publishers wait meanwhile", func(v *Values) uint64 { return v.Spill.Failures }),
	counter("holdfast_spill_lost_messages_total", "Messages, or pieces of large ones, that could not be read back", func(v *Values) uint64 { return v.Spill.Lost }),
	gauge("holdfast_log_waiting_publishes", "Persistent publishes that wait for the disk", func(v *Values) float64 { return float64(v.Queues.WaitingForDisk) }),

	gauge("holdfast_shards", "Workers that run the queues", func(v *Values) float64 { return float64(v.Shards.Shards) }),
	gauge("holdfast_groups", "Groups run by the shards: one for the catalog and one for each queue", func(v *Values) float64 { return float64(v.Shards.Groups) }),
	counter("holdfast_shard_rounds_total", "Rounds of the shards", func(v *Values) uint64 { return v.Shards.Rounds }),
	counter("holdfast_shard_entries_total", "Entries applied by the shards", func(v *Values) uint64 { return v.Shards.Entries }),
	counter("holdfast_shard_records_total", "Records handed to the log by the shards", func(v *Values) uint64 { return v.Shards.Records }),
	{desc: prometheus.NewDesc("holdfast_shard_busy_seconds_total", "Time the shards spent in rounds", nil, nil), kind: prometheus.CounterValue,
		sample: single(func(v *Values) float64 { return v.Shards.BusySeconds })},
	histogram("holdfast_shard_round_seconds", "Time of one round of a shard", func(v *Values) Distribution { return v.Shards.RoundSeconds }),
	histogram("holdfast_shard_stable_seconds", "Time from handing a round's records to the log until they are stable", func(v *Values) Distribution { return v.Shards.StableSeconds }),

	histogram("holdfast_collector_pause_seconds", "Time for which everything stood still for the garbage collector", func(v *Values) Distribution { return v.Runtime.Pauses }),
	histogram("holdfast_processor_wait_seconds", "Time for which a goroutine that could run waited for a processor", func(v *Values) Distribution { return v.Runtime.Waits }),

	gauge("rabbitmq_process_resident_memory_bytes", "Memory used by the process", func(v *Values) float64 { return float64(v.Machine.ResidentBytes) }),
	gauge("rabbitmq_resident_memory_limit_bytes", "Memory mark above which publishing is blocked", func(v *Values) float64 { return float64(v.Machine.MemoryLimitBytes) }),
	gauge("rabbitmq_disk_space_available_bytes", "Free space on the disk of the data folder", func(v *Values) float64 { return float64(v.Machine.DiskFreeBytes) }),
	gauge("rabbitmq_disk_space_available_limit_bytes", "Free space under which publishing is blocked", func(v *Values) float64 { return float64(v.Machine.DiskLimitBytes) }),
	gauge("rabbitmq_process_open_fds", "Open file descriptors", func(v *Values) float64 { return float64(v.Machine.OpenFiles) }),
	gauge("rabbitmq_process_max_fds", "Limit of open file descriptors", func(v *Values) float64 { return float64(v.Machine.MaxFiles) }),
	gauge("rabbitmq_alarms_memory_used_watermark", "1 while the memory alarm is on", func(v *Values) float64 { return truth(v.Alarms.Memory) }),
	gauge("rabbitmq_alarms_free_disk_space_watermark", "1 while the disk alarm is on", func(v *Values) float64 { return truth(v.Alarms.Disk) }),
}

// collector turns the values into samples when it is asked.
type collector struct {
	source func() Values
}

// Describe names the families.
func (c collector) Describe(out chan<- *prometheus.Desc) {
	for i := range families {
		out <- families[i].desc
	}
}

// Collect fetches the values once and gives every sample.
func (c collector) Collect(out chan<- prometheus.Metric) {
	v := c.source()
	v.Runtime = readRuntime()
	for i := range families {
		f := &families[i]
		if f.spread != nil {
			if d := f.spread(&v); d.Bounds != nil {
				out <- constHistogram(f.desc, d)
			}
			continue
		}
		f.sample(&v, func(value float64, labels ...string) {
			out <- prometheus.MustNewConstMetric(f.desc, f.kind, value, labels...)
		})
	}
}

// constHistogram gives a distribution in Prometheus' form, whose buckets are cumulative.
func constHistogram(desc *prometheus.Desc, d Distribution) prometheus.Metric {
	buckets := make(map[float64]uint64, len(d.Bounds))
	var below uint64
	for i, bound := range d.Bounds {
		below += d.Counts[i]
		buckets[bound] = below
	}
	return prometheus.MustNewConstHistogram(desc, d.Count(), d.Sum, buckets)
}
