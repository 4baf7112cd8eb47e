// Package topology is what the publisher and the consumer of this example agree on: the queues and how they behave.
package topology
