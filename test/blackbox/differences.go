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
}
