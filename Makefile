# `make` lists the targets. Everything here is one command that can also be typed by hand.
.DEFAULT_GOAL := help
FUZZTIME ?= 10s
BENCH ?= .

.PHONY: help build test race lint fuzz bench bench-ack bench-robot bench-send bars figures chaos chaos-long dev prove ci engines-up engines-down

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "%-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: ## bin/tidegate, without cgo
	CGO_ENABLED=0 go build -trimpath -o bin/tidegate .

test: ## all tests on the embedded engines
	go test ./...

race: ## all tests under the race detector
	go test -race ./...

lint: ## golangci-lint with .golangci.yml (builds the linter the first time)
	deployments/dev/lint

fuzz: ## every fuzz target for FUZZTIME (10s) each
	FUZZTIME=$(FUZZTIME) deployments/dev/fuzz

bench: ## all benchmarks, or those that match BENCH
	go test -run '^$$' -bench '$(BENCH)' -benchmem ./...

bench-ack: ## the door against bare net/http on real engines; BENCH_SECONDS=2 is short, BENCH_FLAGS='-o out.json'
	go run -tags bench ./test/bench $(BENCH_FLAGS)

bench-robot: ## robots beside a bare consumer-group copy loop on real engines; BENCH_FLAGS='-only static -rounds 1'
	go run -tags bench ./test/bench robot $(BENCH_FLAGS)

bench-send: ## a sender beside a bare HTTP loop, receipts beside COPY, on real engines; BENCH_FLAGS='-rounds 1 -n 6000' BENCH_RECEIPTS=20000
	go run -tags bench ./test/bench send $(BENCH_FLAGS)
	TIDEGATE_TEST_RECEIPTS=$(or $(BENCH_RECEIPTS),200000) go test -count=1 -v -timeout 20m -run TestBarOfReceipts ./receipts/storetest

bars: ## what papers 000 and 003 promise of guard and robot as a table: bar, measured, verdict (about six minutes)
	deployments/dev/bars

figures: ## the papers' figures anew under docs/figures, on the engines of TIDEGATE_TEST_KAFKA and _REDIS (else embedded)
	go run . figures --kafka "$(TIDEGATE_TEST_KAFKA)" --redis "$(TIDEGATE_TEST_REDIS)"

chaos: ## kill, freeze and starve doors, Redis and Kafka under load; the guarantees at their numbers (under 8 minutes)
	test/chaos/run full

chaos-long: ## the same for a release (up to an hour)
	test/chaos/run soak

dev: ## every role in one process with embedded engines and the WeChat simulator
	go run . dev

prove: ## the long proofs of deployments/dev/prove.list (up to 60 minutes)
	deployments/dev/prove

ci: ## what CI runs: lint, race, embedded and real engines, end to end
	.ci/run

engines-up: ## Apache Kafka, Redis and PostgreSQL on 127.0.0.1; then: eval "$$(deployments/dev/engines env)"
	deployments/dev/engines up

engines-down: ## stop them; the data stays
	deployments/dev/engines down
