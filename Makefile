# What is built and tested here. `make help` lists the targets.

GO ?= go
BINARY ?= bin/holdfast
ROUNDS ?= 100
MINUTES ?= 30
BENCH ?=
TAIL ?=
PEER ?= rabbitmq

.PHONY: help build vet test race cluster chaos interop examples nightly crash crash-short flood flood-short space recovery churn bench bench-compare bench-table bench-cluster bench-micro bench-rabbitmq tail power generate clean

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' Makefile | expand -t 16

build: ## the binary, bin/holdfast
	CGO_ENABLED=0 $(GO) build -o $(BINARY) ./cmd/holdfast

vet: ## go vet
	$(GO) vet ./...

test: ## all tests; they need nothing but Go
	$(GO) test ./...

race: ## the rooms under the race detector
	$(GO) test -race ./internal/...

cluster: build ## the tests of several nodes that take long: two minutes
	HOLDFAST_BINARY=$(abspath $(BINARY)) $(GO) test ./test/blackbox -run 'TestCluster|TestQuorum' -count 1 -timeout 10m -args -heavy

chaos: build ## three nodes under load and harm for MINUTES, and what the clients saw
	HOLDFAST_BINARY=$(abspath $(BINARY)) $(GO) run ./test/chaos -minutes $(MINUTES)

interop: build ## the suites and sessions of other clients; installs what they need
	HOLDFAST_BINARY=$(abspath $(BINARY)) $(GO) run ./test/interop

examples: build ## the examples, and what they print; installs python3-pika
	HOLDFAST_BINARY=$(abspath $(BINARY)) $(GO) run ./examples/run

nightly: build ## what takes very long: clusters, and pika and Java against three nodes that end and come back
	HOLDFAST_BINARY=$(abspath $(BINARY)) $(GO) test ./test/blackbox -run 'TestCluster|TestQuorum' -count 1 -timeout 30m -args -heavy -long
	HOLDFAST_BINARY=$(abspath $(BINARY)) $(GO) run ./test/interop -cluster

crash: build ## kill -9 under load, ROUNDS times
	HOLDFAST_BINARY=$(abspath $(BINARY)) $(GO) run ./test/crash rounds -n $(ROUNDS)

crash-short: build ## a few rounds of it
	HOLDFAST_BINARY=$(abspath $(BINARY)) $(GO) run ./test/crash rounds -n 10

power: ## the power cut at each of the first thousand calls of the disk, on the whole broker
	$(GO) test ./internal/node -run 'TestPowerCutAtEveryCall' -v -timeout 30m -args -power.calls 1000

flood: build ## publishers without consumers, in 512 MiB of memory: bodies kept in memory, what is set by default, very large messages, messages that are never complete
	HOLDFAST_BINARY=$(abspath $(BINARY)) $(GO) run ./test/crash flood
	HOLDFAST_BINARY=$(abspath $(BINARY)) $(GO) run ./test/crash overflow
	HOLDFAST_BINARY=$(abspath $(BINARY)) $(GO) run ./test/crash torrent
	HOLDFAST_BINARY=$(abspath $(BINARY)) $(GO) run ./test/crash hoard

flood-short: build ## the first of them
	HOLDFAST_BINARY=$(abspath $(BINARY)) $(GO) run ./test/crash flood

space: build ## one message held while ten million pass: the disk in use
	HOLDFAST_BINARY=$(abspath $(BINARY)) $(GO) run ./test/crash space

recovery: build ## a million messages on disk, kill -9: the first delivery
	HOLDFAST_BINARY=$(abspath $(BINARY)) $(GO) run ./test/crash recovery

churn: build ## a million requeues of one message, consumers coming and going: the disk in use
	HOLDFAST_BINARY=$(abspath $(BINARY)) $(GO) run ./test/crash churn

bench: ## the scenarios against this tree; BENCH='-only latency -rounds 5' narrows them
	$(GO) run ./bench/run $(BENCH) holdfast

bench-compare: ## this tree beside a PEER: rabbitmq (the default), echo, holdfast@COMMIT
	$(GO) run ./bench/compare $(BENCH) $(PEER) holdfast

bench-table: ## every target of bench/targets.txt, RabbitMQ beside this tree, about 35 minutes; again: what is missing
	$(GO) run ./bench/campaign $(BENCH)

bench-cluster: ## three nodes: every target of bench/targets-cluster.txt, RabbitMQ's three beside them
	$(GO) run ./bench/campaign -list bench/scenarios-cluster.txt -targets bench/targets-cluster.txt -name campaign-cluster $(BENCH)

bench-micro: ## what one message costs in each room, by Go benchmarks
	$(GO) run ./bench/micro $(BENCH)

tail: ## pauses, rounds, commits, checkpoints and rewriting under load, from the metrics; TAIL='-only large -z 10' narrows it
	$(GO) run ./bench/tail $(TAIL)

bench-rabbitmq: ## install Debian's RabbitMQ to compare with, without its service
	bench/install-rabbitmq

generate: ## generated source and pages
	$(GO) generate ./...

clean: ## what was built
	rm -rf bin
