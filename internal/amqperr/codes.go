package amqperr

// Reply codes of AMQP 0-9-1, with RabbitMQ's use of them.
const (
	ReplySuccess       uint16 = 200
	ContentTooLarge    uint16 = 311
	NoRoute            uint16 = 312
	NoConsumers        uint16 = 313
	ConnectionForced   uint16 = 320
	InvalidPath        uint16 = 402
	AccessRefused      uint16 = 403
	NotFound           uint16 = 404
	ResourceLocked     uint16 = 405
	PreconditionFailed uint16 = 406
	FrameError         uint16 = 501
	SyntaxError        uint16 = 502
	CommandInvalid     uint16 = 503
	ChannelError       uint16 = 504
	UnexpectedFrame    uint16 = 505
	ResourceError      uint16 = 506
	NotAllowed         uint16 = 530
	NotImplemented     uint16 = 540
	InternalError      uint16 = 541
)

var codeNames = map[uint16]string{
	ReplySuccess:       "OK",
	ContentTooLarge:    "CONTENT_TOO_LARGE",
	NoRoute:            "NO_ROUTE",
	NoConsumers:        "NO_CONSUMERS",
	ConnectionForced:   "CONNECTION_FORCED",
	InvalidPath:        "INVALID_PATH",
	AccessRefused:      "ACCESS_REFUSED",
	NotFound:           "NOT_FOUND",
	ResourceLocked:     "RESOURCE_LOCKED",
	PreconditionFailed: "PRECONDITION_FAILED",
	FrameError:         "FRAME_ERROR",
	SyntaxError:        "SYNTAX_ERROR",
	CommandInvalid:     "COMMAND_INVALID",
	ChannelError:       "CHANNEL_ERROR",
	UnexpectedFrame:    "UNEXPECTED_FRAME",
	ResourceError:      "RESOURCE_ERROR",
	NotAllowed:         "NOT_ALLOWED",
	NotImplemented:     "NOT_IMPLEMENTED",
	InternalError:      "INTERNAL_ERROR",
}

// CodeName returns the upper-case name that starts a reply text, such as
// "NOT_FOUND"; for a number outside the protocol it returns "UNKNOWN".
func CodeName(code uint16) string {
	if n, ok := codeNames[code]; ok {
		return n
	}
	return "UNKNOWN"
}

// scopeOf says what an error of this code ends by default: the protocol's
// "soft" codes close the channel, the "hard" ones the connection.
func scopeOf(code uint16) Scope {
	switch code {
	case ContentTooLarge, NoRoute, NoConsumers, AccessRefused, NotFound, ResourceLocked, PreconditionFailed:
		return Channel
	}
	return Connection
}
