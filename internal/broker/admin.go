package broker

import "holdfast/internal/wire"

// AdminErrorKind tells the management side what kind of refusal an AdminError is.
type AdminErrorKind uint8

// The kinds of refusal of an administrative operation.
const (
	// NotFound means that what the operation names does not exist.
	NotFound AdminErrorKind = iota + 1
	// Exists means that what the operation would make exists already.
	Exists
	// Invalid means that the operation's arguments make no sense.
	Invalid
	// Refused means that the thing is there but will not have it (in use, exclusive, not empty).
	Refused
	// Unavailable means that the broker cannot do it now; the text says why.
	Unavailable
)

// AdminError is the answer to an administrative operation that was not carried out.
type AdminError struct {
	Kind AdminErrorKind
	Text string
}

// Error returns the text shown to the operator.
func (e *AdminError) Error() string { return e.Text }

// User is a row of the list of users.
type User struct {
	Name string   `json:"name"`
	Tags []string `json:"tags"`
}

// Permission is a row of the list of permissions: what user may do in vhost.
type Permission struct {
	User      string `json:"user"`
	VHost     string `json:"vhost"`
	Configure string `json:"configure"`
	Write     string `json:"write"`
	Read      string `json:"read"`
}

// VHost is a row of the list of virtual hosts.
type VHost struct {
	Name        string   `json:"name"`
	Description string   `json:"description"`
	Tags        []string `json:"tags"`
}

// AdminPublish is a message published from the management side.
type AdminPublish struct {
	VHost, Exchange, RoutingKey string
	// Properties are by AMQP's names (content_type, delivery_mode, headers, ...).
	Properties map[string]any
	Body       []byte
}

// AdminMessage is a message fetched by the management side.
type AdminMessage struct {
	Exchange    string         `json:"exchange"`
	RoutingKey  string         `json:"routing_key"`
	Redelivered bool           `json:"redelivered"`
	Remaining   uint64         `json:"message_count"`
	Properties  map[string]any `json:"properties"`
	Body        []byte         `json:"payload"`
}

// AdminQueue asks the management side's way for a queue.
type AdminQueue struct {
	VHost, Name         string
	Durable, AutoDelete bool
	Arguments           wire.Table
}
