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

func noNode(id uint64) *amqperr.Error {
	return adminError(amqperr.NotFound, "Node %d is not in the cluster", id)
}

func nodeNameTaken(name string) *amqperr.Error {
	return adminError(amqperr.PreconditionFailed, "Another node of the cluster has the name '%s'", name)
}

func levelRefused(why error) *amqperr.Error {
	return adminError(amqperr.PreconditionFailed, "%v", why)
}

func levelUnknown(n *Node, level uint16) *amqperr.Error {
	return adminError(amqperr.PreconditionFailed, "Node '%s' does not know level %d of the formats, it knows %v", n.Name, level, n.Levels())
}

func noPolicy() *amqperr.Error { return adminError(amqperr.NotFound, "Parameter does not exist") }

func noNodeID() *amqperr.Error {
	return adminError(amqperr.PreconditionFailed, "The id of a node must not be 0")
}

func noQueueID(id QueueID) *amqperr.Error {
	return adminError(amqperr.NotFound, "There is no queue %d", id)
}

// notQuorum: members of a queue of another type; RabbitMQ's tools call it classic_queue_not_supported.
func notQuorum(q *Queue) *amqperr.Error {
	return adminError(amqperr.PreconditionFailed, "queue '%s' in vhost '%s' is a %s queue, only a quorum queue has members", q.Name, q.VHost, q.Type)
}

// lastMember: RabbitMQ's tools call it last_node.
func lastMember(q *Queue) *amqperr.Error {
	return adminError(amqperr.PreconditionFailed, "queue '%s' in vhost '%s': the last member cannot be removed (last_node)", q.Name, q.VHost)
}

func badMembers(problem string) *amqperr.Error {
	return adminError(amqperr.PreconditionFailed, "These members of a queue cannot be: %s", problem)
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
