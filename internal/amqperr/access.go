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

// VHostNotFound: connection.open names a vhost that does not exist.
func VHostNotFound(vhost string) *Error {
	return newError(NotAllowed, "vhost %s not found", vhost)
}

// VHostRefused: the user has no permissions in the vhost.
func VHostRefused(vhost, user string) *Error {
	return newError(NotAllowed, "access to vhost '%s' refused for user '%s'", vhost, user)
}

// PermissionRefused: the user's pattern for this permission ("configure",
// "write" or "read") does not match the entity.
func PermissionRefused(permission string, kind Kind, vhost, name, user string) *Error {
	return newError(AccessRefused, "%s access to %s '%s' in vhost '%s' refused for user '%s'", permission, kind, name, vhost, user)
}

// UserIDMismatch: the user-id property is not the name of the user.
func UserIDMismatch(claimed, actual string) *Error {
	return newError(PreconditionFailed, "user_id property set to '%s' but authenticated user was '%s'", claimed, actual)
}
