// Package broker says what a client's request means for the whole broker: is
// it allowed, which parts of the broker does it touch, and in which order.
//
// It stands between the sessions above it, which know what one client has been
// promised, and the catalog and the running queues below it. A request comes
// in as a struct, is checked against the catalog's view and the user's
// permissions, becomes at most one catalog command, and is then carried out on
// the queues concerned.
//
// It never reads or writes protocol bytes and never knows how a queue is made
// durable.
//
// Map of the files:
//
//	api.go         what a session uses: Conn, requests, replies, callbacks
//	admin.go       what the management side uses: users, vhosts, connections
//	admin_queue.go what the management side does with queues and messages
//	policy.go      policies: setting them, and what becomes of queues when they change
//	listing.go     rows of the listings
//	gather.go      how the rows are gathered
//	explain.go     why a queue delivers nothing
//	broker.go      the Broker, its options, start and stop
//	login.go       who may log in, who may open which virtual host
//	conn.go        the registry of open connections, their channels and exclusive queues
//	permission.go  configure, write, read: which operation asks for which
//	exchange.go    declare, delete and bind exchanges
//	queue.go       declare, delete and purge queues
//	binding.go     bind and unbind
//	consume.go     consume and get
//	publisher.go   a channel's publishing side: what it publishes is lined up and handed on
//	publisher_route.go     where one publish goes
//	publisher_find.go      how that is found, and the cache of routes
//	publisher_examined.go  publishes with properties that mean something to the broker
//	lined.go       what is lined up there for each queue
//	history.go     the latest messages of exchanges that keep them for later bindings
//	reply.go       direct reply-to
//	deadletter.go  dead letters: where they wait, and what becomes of them
//	deadletter_carry.go  how they are routed and sent
//	deadletter_count.go  how they are counted
//	collect.go     auto-delete, exclusive and deleted queues: cleaning up
//	elsewhere.go   what another node of the cluster decided, or took with it
//	alarm.go       memory and disk alarms
//	metrics.go     counters
package broker
