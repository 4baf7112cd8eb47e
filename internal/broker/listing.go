package broker

import "time"

// The rows of the listings. Their JSON names are the column names of
// rabbitmqctl, which are also the field names of its HTTP API where both exist.

// QueuePage says which rows of the list of queues are wanted.
type QueuePage struct {
	Skip, Limit int  // the first rows to leave out; the most to give, 0: all
	Known       bool // no other node is asked: numbers, leaders and states are as this one knows them
}

// QueueInfo is a row of the list of queues.
type QueueInfo struct {
	Name                   string         `json:"name"`
	VHost                  string         `json:"vhost"`
	Type                   string         `json:"type"`
	ID                     uint64         `json:"id"`
	Durable                bool           `json:"durable"`
	AutoDelete             bool           `json:"auto_delete"`
	Exclusive              bool           `json:"exclusive"`
	Arguments              map[string]any `json:"arguments"`
	Policy                 string         `json:"policy"`                      // that holds, "": none does
	OperatorPolicy         string         `json:"operator_policy"`             // the same
	EffectiveDefinition    map[string]any `json:"effective_policy_definition"` // what the two say together
	Node                   string         `json:"node"`                        // who serves it; empty: nobody is known to
	Leader                 string         `json:"leader"`                      // the same
	Members                []string       `json:"members"`
	Online                 []string       `json:"online"` // members on nodes that are up
	State                  string         `json:"state"`  // running, quarantined, minority (too few members are online), down (its node is, or nobody leads it)
	Reason                 string         `json:"reason,omitempty"`
	Paused                 bool           `json:"paused"` // nothing of it is delivered, until an operator has it go on
	Owner                  string         `json:"owner_connection,omitempty"`
	MessagesReady          uint64         `json:"messages_ready"`
	MessagesUnacknowledged uint64         `json:"messages_unacknowledged"`
	MessagesDelayed        uint64         `json:"messages_delayed"` // neither: they wait for their time
	Messages               uint64         `json:"messages"`
	Dead                   uint64         `json:"messages_dlx"`                // dead letters that have not arrived
	DeadBytes              *uint64        `json:"message_bytes_dlx,omitempty"` // of their bodies, if sizes count in the queue
	Consumers              uint64         `json:"consumers"`
	SingleActive           string         `json:"single_active_consumer_tag"` // of the one that gets messages, if only one may
	Counters               QueueCounters  `json:"counters"`
	// Stale: the numbers are what the node asked knew last; those who serve the queue have not answered, or are not there.
	Stale bool `json:"stale"`
}

// QueueCounters count what happened in a queue since this node started.
type QueueCounters struct {
	Published   uint64 `json:"publish"`
	Delivered   uint64 `json:"deliver_get"`
	Acked       uint64 `json:"ack"`
	Redelivered uint64 `json:"redeliver"`
	Gets        uint64 `json:"get"`
	GetsEmpty   uint64 `json:"get_empty"`
	// Publishes of clients of the node that is asked: those that the queue did not take, and those of which nobody knows.
	Refused uint64 `json:"publishes_refused"`
	Unknown uint64 `json:"publishes_unknown"`
	// Messages that died here, if any has: as the node knows that is asked.
	DeadLetters     *QueueDeadLetters `json:"dead_letters,omitempty"`
	DeadLetterRates *DeadLetterRates  `json:"dead_letter_rates,omitempty"` // the same in the last minute
}

// ExchangeInfo is a row of the list of exchanges.
type ExchangeInfo struct {
	Name       string         `json:"name"`
	VHost      string         `json:"vhost"`
	Type       string         `json:"type"`
	Durable    bool           `json:"durable"`
	AutoDelete bool           `json:"auto_delete"`
	Internal   bool           `json:"internal"`
	Arguments  map[string]any `json:"arguments"`
	Policy     string         `json:"policy"` // that holds, "": none does
	// MessagesDelayed is how many messages an exchange keeps until their time has come; nil: of one that does not.
	MessagesDelayed *uint64 `json:"messages_delayed,omitempty"`
}

// BindingInfo is a row of the list of bindings.
type BindingInfo struct {
	VHost           string         `json:"vhost"`
	Source          string         `json:"source_name"`
	Destination     string         `json:"destination_name"`
	DestinationKind string         `json:"destination_kind"` // queue, exchange
	RoutingKey      string         `json:"routing_key"`
	Arguments       map[string]any `json:"arguments"`
}

// ConnectionInfo is a row of the list of connections. The session fills all
// but Name, ID, User and VHost, which the broker knows.
type ConnectionInfo struct {
	ID               uint64         `json:"id"`
	Name             string         `json:"name"` // peer address -> own address
	User             string         `json:"user"`
	VHost            string         `json:"vhost"`
	Protocol         string         `json:"protocol"`
	Mechanism        string         `json:"auth_mechanism"`
	PeerHost         string         `json:"peer_host"`
	PeerPort         int            `json:"peer_port"`
	Host             string         `json:"host"`
	Port             int            `json:"port"`
	TLS              bool           `json:"ssl"`
	TLSVersion       string         `json:"ssl_protocol"` // as the configuration file names it
	TLSCipher        string         `json:"ssl_cipher"`
	State            string         `json:"state"` // running, blocking, blocked, closing
	Channels         int            `json:"channels"`
	ChannelMax       int            `json:"channel_max"`
	FrameMax         int            `json:"frame_max"`
	Heartbeat        int            `json:"timeout"`
	ClientProperties map[string]any `json:"client_properties"`
	ConnectedAt      time.Time      `json:"connected_at"`
	ReceivedBytes    uint64         `json:"recv_oct"`
	SentBytes        uint64         `json:"send_oct"`
}

// ChannelInfo is a row of the list of channels. The session fills all but
// Connection, User and VHost.
type ChannelInfo struct {
	Connection     string `json:"connection"`
	Number         int    `json:"number"`
	User           string `json:"user"`
	VHost          string `json:"vhost"`
	Transactional  bool   `json:"transactional"`
	Confirm        bool   `json:"confirm"`
	Consumers      int    `json:"consumer_count"`
	Unacknowledged uint64 `json:"messages_unacknowledged"`
	Unconfirmed    uint64 `json:"messages_unconfirmed"`
	Uncommitted    uint64 `json:"messages_uncommitted"`
	AcksUncommited uint64 `json:"acks_uncommitted"`
	Prefetch       uint32 `json:"prefetch_count"`
	GlobalPrefetch uint32 `json:"global_prefetch_count"`
}

// ConsumerInfo is a row of the list of consumers.
type ConsumerInfo struct {
	VHost       string         `json:"vhost"`
	Queue       string         `json:"queue_name"`
	Connection  string         `json:"connection"`
	Channel     int            `json:"channel"`
	Tag         string         `json:"consumer_tag"`
	AckRequired bool           `json:"ack_required"`
	Exclusive   bool           `json:"exclusive"`
	Prefetch    uint32         `json:"prefetch_count"`
	Unacked     uint64         `json:"messages_unacknowledged"`
	Active      bool           `json:"active"`
	Activity    string         `json:"activity_status"` // up, single_active, waiting, suspected_down
	Arguments   map[string]any `json:"arguments"`
}

// OrphanInfo is a group found in the log that the catalog does not know. It is
// kept until an operator discards it.
type OrphanInfo struct {
	Group  uint64 `json:"group"`
	Reason string `json:"reason"`
}
