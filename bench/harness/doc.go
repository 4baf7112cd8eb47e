// Package harness runs the scenarios of bench/scenarios.txt against brokers and keeps what they gave: it starts each broker
// on loopback with a data folder of its own, lets `holdfast perf` put the load on it, and compares the medians.
//
// It measures nothing itself, and ends only processes that it started, by their pid. bench/run and bench/compare are its
// commands.
//
// Map of the files: main.go reads the command line and does the rounds; scenario.go reads the list; broker.go starts
// Holdfast, the echo server, or a broker that runs already; rabbitmq.go starts Debian's RabbitMQ; build.go builds this tree or
// another commit; run.go does one run; result.go says on which machine and writes it down; table.go compares.
package harness
