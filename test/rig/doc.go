// Package rig builds the broker's binary, runs it, stops it and kills it, for
// the tests that use it from outside.
//
// It never speaks AMQP beyond the eight bytes that tell whether the broker
// answers, and never touches a process it did not start.
//
// Map of the files: binary.go builds or finds the binary; broker.go is one
// running broker with its data folder; cluster.go is several that belong
// together, and network.go what lies between them: proxies that hold, cut and
// slow what nodes send each other; memgroup.go is a control group with a limit of
// memory; proc.go reads memory and disk figures, metrics.go the metrics page.
package rig
