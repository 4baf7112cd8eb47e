package config

import "strings"

// knownKey is a key that files written for RabbitMQ may hold and that has no effect here.
type knownKey struct {
	key    string // a * at the end stands for the rest of the key
	reason string
}

const (
	noCluster     = "nodes find each other by cluster.address, cluster.join and cluster_formation.dns.hostname; the rest is not adjustable"
	noPlugin      = "there are no plug-ins"
	noMirror      = "queues with several copies are quorum queues: x-queue-type, default_queue_type"
	noMemoryKnob  = "only vm_memory_high_watermark.relative and .absolute, and total_memory_available_override_value, are"
	noLimit       = "this limit is not there"
	noDefinitions = "definitions files are not read"
	noManagement  = "the HTTP listener serves /healthz and /metrics only"
	noLogTarget   = "the log goes to the console stream only, under one level"
	noErlang      = "it belongs to the Erlang runtime"
	noPolicy      = "policies are set with ctl set_policy and set_operator_policy"
	noBackend     = "users and passwords are kept by the broker itself"
	fixed         = "this is not adjustable"
)

// known lists them. Exact keys come before the pattern that would also match.
var known = []knownKey{
	{"amqp10_client.*", noPlugin},
	{"amqp_client.*", noPlugin},
	{"anonymous_login_pass", "every client has to log in"},
	{"anonymous_login_user", "every client has to log in"},
	{"auth_backends.*", noBackend},
	{"auth_cache.*", noBackend},
	{"auth_http.*", noBackend},
	{"auth_ldap.*", noBackend},
	{"auth_oauth2.*", noBackend},
	{"auth_mechanisms.*", "PLAIN and AMQPLAIN are offered"},
	{"aws.*", noPlugin},
	{"background_gc_enabled", noErlang},
	{"background_gc_target_interval", noErlang},
	{"channel_interceptor.*", noPlugin},
	{"channel_max_per_node", noLimit},
	{"channel_operation_timeout", "see declare_timeout"},
	{"channel_tick_interval", fixed},
	{"classic_queue.default_version", "classic queues have one storage format"},
	{"cluster_exchange_limit", noLimit},
	{"cluster_formation.*", noCluster},
	{"cluster_keepalive_interval", noCluster},
	{"cluster_name", noCluster},
	{"cluster_partition_handling", noCluster},
	{"cluster_partition_handling.*", noCluster},
	{"cluster_queue_limit", noLimit},
	{"cluster_tags.*", noCluster},
	{"collect_statistics", "metrics are always there and are fetched when asked for"},
	{"collect_statistics_interval", "metrics are always there and are fetched when asked for"},
	{"consumer_disconnected_timeout", noLimit},
	{"credential_validator.*", noBackend},
	{"default_limits.*", noLimit},
	{"default_policies.*", noPolicy},
	{"default_users.*", "use default_user, and ctl add_user for others"},
	{"default_worker_pool_size", noErlang},
	{"definitions.*", noDefinitions},
	{"delegate_count", noErlang},
	{"deprecated_features.*", "nothing is behind such a switch"},
	{"distribution.*", noCluster},
	{"erlang.*", noErlang},
	{"event_exchange.*", noPlugin},
	{"exchange_types.*", noPlugin},
	{"federation.*", noPlugin},
	{"hipe_compile", noErlang},
	{"http_dispatch.*", noManagement},
	{"initial_frame_max", "before the tuning a frame may have 4096 bytes"},
	{"link_max_per_session", "AMQP 1.0 is not spoken"},
	{"load_definitions", noDefinitions},
	{"log.*", noLogTarget},
	{"management.*", noManagement},
	{"management_agent.*", noManagement},
	{"max_channels_per_connection", "see channel_max"},
	{"max_connections", noLimit},
	{"memory_monitor_interval", noMemoryKnob},
	{"message_interceptors.*", noPlugin},
	{"message_store_shutdown_timeout", fixed},
	{"metadata_store.*", noCluster},
	{"mirroring_sync_batch_size", noMirror},
	{"mirroring_sync_max_throughput", noMirror},
	{"mnesia_table_loading_retry_limit", noCluster},
	{"mnesia_table_loading_retry_timeout", noCluster},
	{"motd_file", fixed},
	{"mqtt.*", noPlugin},
	{"msg_store_file_size_limit", "see storage.segment_size.max"},
	{"net_ticktime", fixed},
	{"node_tags.*", noCluster},
	{"num_acceptors.*", noErlang},
	{"password_hashing_module", "passwords are hashed as salted SHA-256"},
	{"permit_deprecated_features.*", "nothing is behind such a switch"},
	{"prevent_startup_if_node_was_reset", noCluster},
	{"product.*", fixed},
	{"prometheus.*", "see prometheus.tcp.ip, prometheus.tcp.port and the page /metrics/per-object"},
	{"proxy_protocol", "the PROXY protocol is not spoken"},
	{"queue_index_embed_msgs_below", "all messages are in one log"},
	{"queue_master_locator", "see queue_leader_locator"},
	{"queue_types.*", "classic and quorum queues are there"},
	{"quorum_queue.*", fixed},
	{"raft.*", fixed},
	{"ranch_connection_max", noLimit},
	{"reverse_dns_lookups", fixed},
	{"runtime_parameters.*", noLimit},
	{"session_max_per_connection", "AMQP 1.0 is not spoken"},
	{"shovel.*", noPlugin},
	{"socket_writer.*", noErlang},
	{"ssl_allow_poodle_attack", "only TLS 1.2 and 1.3 are spoken"},
	{"ssl_cert_login_from", "logging in by certificate is not there"},
	{"ssl_cert_login_san_index", "logging in by certificate is not there"},
	{"ssl_cert_login_san_type", "logging in by certificate is not there"},
	{"ssl_handshake_timeout", "handshake_timeout counts from the first byte, TLS included"},
	{"ssl_options.*", "only the TLS settings of the reference page are used"},
	{"stomp.*", noPlugin},
	{"stream.*", noPlugin},
	{"sysmon_handler.*", noErlang},
	{"tcp_listen_options.*", fixed},
	{"tracing.*", noPlugin},
	{"trust_store.*", noPlugin},
	{"vhost_max", noLimit},
	{"vhost_restart_strategy", "all virtual hosts share one log"},
	{"vm_memory_calculation_strategy", noMemoryKnob},
	{"vm_memory_high_watermark_paging_ratio", noMemoryKnob},
	{"web_mqtt.*", noPlugin},
	{"web_stomp.*", noPlugin},
}

// understood gives the reason why a key of RabbitMQ is not used here.
func understood(key string) (reason string, ok bool) {
	for _, k := range known {
		stem, wild := strings.CutSuffix(k.key, "*")
		if key == k.key || wild && strings.HasPrefix(key, stem) {
			return k.reason, true
		}
	}
	return "", false
}
