// Package perf is the load generator behind `holdfast perf`: it puts load on any AMQP 0-9-1 broker and says how fast that
// was, how long messages took, and what it cost the broker, itself and everything else on the machine.
//
// It knows a broker only from outside, through a socket and /proc, and imports none of the broker's rooms but wire. It is
// made to cost little: publishes are encoded once and stamped in place, a write carries many of them, deliveries are parsed
// in the read buffer, a lock is taken once per buffer, and nothing is allocated per message. It never spins.
//
// Map of the files:
//
//   - perf.go: the command: picks a scenario, runs it, prints its report
//   - flags.go, options.go: the command line, with the names of RabbitMQ's PerfTest
//   - conn.go: a client connection, its handshake and its read buffer; topology.go: what is declared before a run
//   - template.go: publishes encoded beforehand; producer.go: sending them; window.go: confirms
//   - consumer.go: receiving and acknowledging
//   - fleet.go: producers and consumers of one run together; progress.go: a line each second
//   - load.go: the scenarios that move messages: throughput, latency, fanout; soak.go, quarters.go: a long run in
//     four parts; backlog.go; many.go: connections, queues, churn
//   - audit.go, ledger.go: nothing confirmed is lost, order holds; recovery.go: the same across a killed broker; failover.go:
//     the same while a node is away that others stand in for; takeover.go: how long many queues take for it;
//     upheaval.go: declares and deletions, very many
//   - echo.go, echo_conn.go: a fake broker that shows the floor; disk.go: the floor of the disk; page.go: messages
//     per sync, from a metrics page
//   - histogram.go, report.go, proc.go: figures
package perf
