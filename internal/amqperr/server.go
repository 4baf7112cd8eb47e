package amqperr

import "time"

// Forced: an operator or the server itself ends the connection.
func Forced(reason string) *Error { return newError(ConnectionForced, "%s", reason) }

// Shutdown: the node stops.
func Shutdown() *Error {
	return newError(ConnectionForced, "broker forced connection closure with reason 'shutdown'")
}

// VHostDeleted: the connection's vhost was deleted.
func VHostDeleted(vhost string) *Error {
	return newError(ConnectionForced, "vhost '%s' is deleted", vhost)
}

// UserDeleted: the connection's user was deleted.
func UserDeleted(user string) *Error {
	return newError(ConnectionForced, "user '%s' is deleted", user)
}

// TimedOut: what the client asked for got no answer in time; whether it took
// effect is unknown. Only the channel ends: the others are not concerned.
func TimedOut(operation string, kind Kind, vhost, name string, limit time.Duration) *Error {
	e := newError(InternalError, "%s of %s '%s' in vhost '%s' got no answer within %d ms", operation, kind, name, vhost, limit.Milliseconds())
	e.Scope = Channel
	return e
}

// TransactionRefused: a queue did not take its part of a transaction.
func TransactionRefused() *Error {
	return newError(PreconditionFailed, "partial tx completion")
}

// Overloaded: a bound of the server is full, and waiting would not help. The channel ends that needs it; the others are not concerned.
func Overloaded(what string) *Error {
	e := newError(ResourceError, "%s", what)
	e.Scope = Channel
	return e
}

// Internal: trouble of our own that the client has to know about.
func Internal(reason string) *Error { return newError(InternalError, "%s", reason) }
