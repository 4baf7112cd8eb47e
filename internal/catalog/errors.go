package catalog

import (
	"fmt"

	"holdfast/internal/amqperr"
)

// Mistakes of administrators. No AMQP method leads to them, so they are not in the catalogue of amqperr; they share its
// type so that a Result has one kind of error. 404 is something missing, 406 anything else.

func noVHost(name string) *amqperr.Error {
	return adminError(amqperr.NotFound, "Virtual host '%s' does not exist", name)
}

func noUser(name string) *amqperr.Error {
	return adminError(amqperr.NotFound, "User '%s' does not exist", name)
}

func userExists(name string) *amqperr.Error {
	return adminError(amqperr.PreconditionFailed, "User '%s' already exists", name)
}

func noName(what string) *amqperr.Error {
	return adminError(amqperr.PreconditionFailed, "The name of a %s must not be empty", what)
}

// staleIncarnation: a node asks in the name of a start that is over.
func staleIncarnation(what, vhost, name string) *amqperr.Error {
	return adminError(amqperr.NotFound, "no %s '%s' in vhost '%s': the node that asked for it has been started anew", what, name, vhost)
}

func adminError(code uint16, format string, args ...any) *amqperr.Error {
	return &amqperr.Error{Code: code, Text: amqperr.CodeName(code) + " - " + fmt.Sprintf(format, args...), Scope: amqperr.Channel}
}
