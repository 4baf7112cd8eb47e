package amqperr

// LoginRefused: wrong user, password or place. The reason stays in the log.
func LoginRefused(mechanism string) *Error {
	return newError(AccessRefused, "Login was refused using authentication mechanism %s. For details see the broker logfile.", mechanism).AsConnection()
}

// LoginRefusedReason: a login refused for a reason the client may know, such as
// the guest user coming from another machine.
func LoginRefusedReason(mechanism, reason string) *Error {
	return newError(AccessRefused, "Login was refused using authentication mechanism %s: %s", mechanism, reason).AsConnection()
}

// UnknownMechanism: start-ok chose a SASL mechanism that was not offered.
func UnknownMechanism(name string) *Error {
	return newError(CommandInvalid, "unknown authentication mechanism '%s'", name)
}

// MalformedLogin: the SASL response cannot be read.
func MalformedLogin(mechanism, problem string) *Error {
	return newError(SyntaxError, "%s response is malformed: %s", mechanism, problem)
}

// SecretRefused: connection.update-secret with credentials that do not hold.
func SecretRefused(reason string) *Error {
	return newError(NotAllowed, "New secret was refused by one of the backends: %s", reason)
}

// VHostNotFound: connection.open names a vhost that does not exist.
func VHostNotFound(vhost string) *Error {
	return newError(NotAllowed, "vhost %s not found", vhost)
}

// VHostRefused: the user has no permissions in the vhost.
func VHostRefused(vhost, user string) *Error {
	return newError(NotAllowed, "access to vhost '%s' refused for user '%s'", vhost, user)
}

// VHostConnectionLimit: the vhost has as many connections as it may have.
func VHostConnectionLimit(vhost, user string, limit int) *Error {
	return newError(NotAllowed, "access to vhost '%s' refused for user '%s': connection limit (%d) is reached", vhost, user, limit)
}

// UserConnectionLimit: the user has as many connections as it may have.
func UserConnectionLimit(user string, limit int) *Error {
	return newError(NotAllowed, "connection refused for user '%s': user connection limit (%d) is reached", user, limit)
}

// UserChannelLimit: the user has as many channels as it may have.
func UserChannelLimit(user string, limit int) *Error {
	return newError(NotAllowed, "number of channels opened for user '%s' has reached the maximum allowed user limit of (%d)", user, limit)
}

// NodeConnectionLimit: the node has as many connections as it may have.
func NodeConnectionLimit(limit int) *Error {
	return newError(NotAllowed, "connection refused: node connection limit (%d) is reached", limit)
}

// PermissionRefused: the user's pattern for this permission ("configure",
// "write" or "read") does not match the entity.
func PermissionRefused(permission string, kind Kind, vhost, name, user string) *Error {
	return newError(AccessRefused, "%s access to %s '%s' in vhost '%s' refused for user '%s'", permission, kind, name, vhost, user)
}

// TopicRefused: the user may not use this routing key with a topic exchange.
func TopicRefused(permission, key, exchange, vhost, user string) *Error {
	return newError(AccessRefused, "%s access to topic '%s' in exchange '%s' in vhost '%s' refused for user '%s'", permission, key, exchange, vhost, user)
}

// UserIDMismatch: the user-id property is not the name of the user.
func UserIDMismatch(claimed, actual string) *Error {
	return newError(PreconditionFailed, "user_id property set to '%s' but authenticated user was '%s'", claimed, actual)
}
