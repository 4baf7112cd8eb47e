// Package metrics is what the broker tells Prometheus: names, types and help texts, and the two pages that carry them.
//
// Names are those of RabbitMQ's exporter, rabbitmq_..., where the meaning is the same; what only this broker has is
// named holdfast_.... Nothing here costs anything per message: the rooms count what happens to them in plain fields of
// their own, and the numbers are fetched when somebody asks for the page.
//
// The package knows no other room. What it shows arrives as plain structs from functions that the node hands over.
//
// Map:
//
//	histogram.go   a histogram that many goroutines may observe into, without locks
//	registry.go    the registry of a node and the aggregated page
//	values.go      the numbers of one scrape, by room
//	runtime.go     what the Go runtime tells of delays
//	collector.go   the numbers as Prometheus families
//	objects.go     the page with one line a queue, connection and channel, streamed
package metrics
