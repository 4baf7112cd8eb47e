// Package blackbox drives a running broker over its socket, as clients do, and
// holds it to the behaviours that the requirements name.
//
// The tests build the broker's binary and run it on loopback; with
// HOLDFAST_TEST_URL set to an AMQP URL they use that broker instead, which is
// how they are themselves checked against RabbitMQ 3.10.8
// (HOLDFAST_TEST_BROKER=rabbitmq). HOLDFAST_TEST_CTL then names the command
// line that stands for "ctl", for the tests that need users and vhosts.
//
// A comment like "R27" or "T17" on a test names the requirement or case it
// proves. Where RabbitMQ and Holdfast answer differently on purpose, the test
// asks the table in differences.go; docs/compatibility.md is written from it.
//
// The package never imports anything under internal.
//
// Map of the files: harness_test.go starts the broker and has the helpers;
// handshake, frames, tables, declare, route, exchange_types, publish, confirm, consume, settle,
// requeue, tx, access and restart tests are in the files of those names;
// cluster_*.go are about several nodes, quorum_*.go about quorum queues, on the
// nodes and the network of web_test.go. Those that take long run with -args -heavy.
package blackbox
