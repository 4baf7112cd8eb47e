// Package mgmt is how people and scrapers see a node: the local API on a unix socket in the data folder, which `ctl`
// speaks, and the HTTP listeners that serve /healthz and /metrics to anyone.
//
// The local API is HTTP with JSON; its paths and field names are those of RabbitMQ's management API where that has the
// same thing. Whoever can open the socket, which is the owner of the data folder, may do everything, profiles included.
// The HTTP listeners change nothing and show no names, except for the page of metrics per object.
//
// It never meets a session and never looks below the broker: what it shows of the log and the shards the node hands in.
//
// Map:
//
//	server.go    what a server is made of; opening and closing its doors
//	door.go      the local socket of a process whose node may be stopped
//	local.go     the routes of the local API
//	route.go     a path taken apart, and the handler for it
//	listing.go   the lists of what there is
//	users.go     users, permissions and virtual hosts
//	policies.go  policies
//	queues.go    queues and messages
//	overview.go  the node as a whole
//	public.go    /healthz and /metrics
//	answer.go    JSON, and how errors become answers
//
// The folders socket and ctl hold the local door and the command line side.
package mgmt
