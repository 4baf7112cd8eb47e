package blackbox

//go:generate go test -run TestCompatibilityPage -update .

// Difference is one answer that Holdfast gives otherwise than RabbitMQ 3.10.8,
// with a test that shows both.
type Difference struct {
	ID       string
	Subject  string
	RabbitMQ string
	Holdfast string
	Why      string
}

// Differences is the whole list. A test that depends on one names its ID.
var Differences = []Difference{
	{
		ID:       "refused-header",
		Subject:  "Opening bytes that are no AMQP 0-9-1 header",
		RabbitMQ: "answers `AMQP` 0 0 9 1",
		Holdfast: "answers `AMQP` 3 1 0 0 to the plain 1.0 header, HTTP, TLS and anything else; `AMQP` 0 0 9 1 to other 0-x versions and to 1.0 with SASL",
		Why:      "as RabbitMQ 4.3; 1.0 with SASL is answered with what is supported",
	},
	{
		ID:       "early-fault",
		Subject:  "A mistake in start-ok (unknown mechanism, malformed response) or tune-ok (limits over those offered)",
		RabbitMQ: "closes the socket without a frame after three seconds",
		Holdfast: "connection.close with 502, 503 or 530",
		Why:      "the client learns what was wrong",
	},
	{
		ID:       "decode-crash",
		Subject:  "Unknown class or method, unknown type letter in a table, table shorter than it says",
		RabbitMQ: "drops the socket without a frame",
		Holdfast: "connection.close with a code of the 500s",
		Why:      "the client learns what was wrong",
	},
	{
		ID:       "bad-properties",
		Subject:  "Content header whose properties are cut off",
		RabbitMQ: "541 INTERNAL_ERROR",
		Holdfast: "501 or 502",
		Why:      "it is the client's mistake",
	},
	{
		ID:       "long-body",
		Subject:  "Body frames longer than the header said",
		RabbitMQ: "waits for ever",
		Holdfast: "closes the connection",
		Why:      "the frames cannot be understood any more",
	},
	{
		ID:       "huge-body",
		Subject:  "Declared body size over 512 MiB",
		RabbitMQ: "waits for the body",
		Holdfast: "501 at the header",
		Why:      "as RabbitMQ 4.3",
	},
	{
		ID:       "max-message-size",
		Subject:  "Body over 16 MiB",
		RabbitMQ: "accepted up to 128 MiB",
		Holdfast: "406 on the channel",
		Why:      "as RabbitMQ 4.3: the default of max_message_size is 16 MiB",
	},
	{
		ID:       "channel-number",
		Subject:  "Channel number over the agreed channel_max",
		RabbitMQ: "only the count of open channels is limited",
		Holdfast: "530 on the connection",
		Why:      "tune agreed on the highest number, as the specification says",
	},
	{
		ID:       "bytes-kept",
		Subject:  "Headers with unusual encodings: booleans other than 0 and 1, type `L`",
		RabbitMQ: "rewritten (1, `l`)",
		Holdfast: "delivered byte for byte as published",
		Why:      "the broker does not interpret the publisher's data",
	},
	{
		ID:       "large-body",
		Subject:  "A large message going out to a slow reader",
		RabbitMQ: "blocks the other channels of the connection until it is written",
		Holdfast: "frames of other channels come between its body frames",
		Why:      "one large message must not delay the small ones",
	},
	{
		ID:       "three-hashes",
		Subject:  "Topic binding key with three `#`",
		RabbitMQ: "accepted",
		Holdfast: "406 on the channel",
		Why:      "as RabbitMQ from 4.3.5: matching it costs too much",
	},
	{
		ID:       "reply-to-bind",
		Subject:  "Binding the direct reply-to queue",
		RabbitMQ: "404 on the channel",
		Holdfast: "403 on the channel",
		Why:      "as RabbitMQ 4.3",
	},
	{
		ID:       "exchange-kind",
		Subject:  "Declaring an exchange of an unknown kind",
		RabbitMQ: "503 on the connection",
		Holdfast: "406 on the channel",
		Why:      "one declaration that does not fit need not end all channels",
	},
	{
		ID:       "passive-permission",
		Subject:  "A passive declare by a user without any permission on the name",
		RabbitMQ: "allowed",
		Holdfast: "403 on the channel; any of configure, write and read is enough",
		Why:      "as RabbitMQ 4.3: what exists, and how full it is, is not for everybody",
	},
	{
		ID:       "policy-classic",
		Subject:  "A policy with `delivery-limit` or `dead-letter-strategy` that matches a classic queue",
		RabbitMQ: "does not hold for it: classic queues have neither",
		Holdfast: "holds for it",
		Why:      "classic queues have both",
	},
	{
		ID:       "policy-json",
		Subject:  "The definition of a policy is no JSON",
		RabbitMQ: "`JSON decoding error`",
		Holdfast: "`Could not parse JSON document`, and where",
		Why:      "as RabbitMQ 4.3",
	},
	{
		ID:       "policy-pattern",
		Subject:  "The pattern of a policy has look-ahead, look-behind, a back reference, an atomic group or a possessive quantifier",
		RabbitMQ: "accepted",
		Holdfast: "refused, with what is not supported",
		Why:      "matching a pattern takes no longer than its name is long",
	},
	{
		ID:       "hash-weight",
		Subject:  "A binding of a consistent-hash exchange with a weight over 10,000",
		RabbitMQ: "accepted, with as many buckets",
		Holdfast: "406 on the channel",
		Why:      "as RabbitMQ 4.3",
	},
	{
		ID:       "history-order",
		Subject:  "What an exchange gets that is bound to a recent-history exchange",
		RabbitMQ: "the latest messages, the newest first",
		Holdfast: "the latest messages, the oldest first",
		Why:      "as a queue gets them, from both brokers",
	},
	{
		ID:       "forged-deaths",
		Subject:  "Publishing a message with `x-death` among its headers, as of a dead letter that is published anew",
		RabbitMQ: "counts on from it",
		Holdfast: "begins a history of its own, which takes the place of the client's at the first death",
		Why:      "as RabbitMQ 4.3: what a client writes is no history",
	},
	{
		ID:       "pause-queue",
		Subject:  "Pausing the deliveries of a queue",
		RabbitMQ: "there is no such command",
		Holdfast: "`ctl pause_queue` and `ctl resume_queue`, the column `paused` of `list_queues`",
		Why:      "an operator can keep a queue's messages back without ending its consumers",
	},
}
