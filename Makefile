# The verbs of this repository. `make` alone explains them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory
# Every verb is a sequence; cargo itself uses the cores.
.NOTPARALLEL:
.PHONY: help run test quick fmt lint unit cases ci docs bench micro load instructions memory silent targets count edits config-bench limit-bench clients smoke fuzz fuzz-lanes chaos deny conformance setup

# conformance: the checkout of APISIX, what of it to replay, and the replayer.
SUITE ?=
ONLY ?=
REPLAY ?= ../shared/conformance/replay.py
# cases, clients, chaos, load, instructions, memory, silent, edits, config-bench, limit-bench: passed on to the runner.
ARGS ?=
# clients: a checkout of ADC, which comes from no registry.
ADC ?=
# instructions: 1 records what a small GET costs instead.
RECORD ?=
# fuzz, fuzz-lanes: seconds for each target, and which of them; all unless named.
SECONDS_EACH ?= 60
TARGETS ?=

help: ## This list
	@echo "lockgate: an API gateway that reads Apache APISIX configuration"
	@echo
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

run: ## Builds a release, starts it on port 9080 with a demo upstream, says what to try; Ctrl-C ends both
	@bash tests/setup.sh run
	@echo "building a release: some minutes the first time"
	@cargo build --release --bin lockgate --example demo-upstream
	@bash conf/demo.sh target/release/lockgate target/release/examples/demo-upstream

test: setup ## Every test: unit, property, cases, documentation; ends with `N passed, M failed`
	@bash tests/run.sh

quick: setup fmt lint unit ## Before a commit: format, lints, unit tests

fmt: ## Checks the format (cargo fmt --all repairs it)
	@cargo fmt --all --check || { echo "fmt: run cargo fmt --all"; exit 1; }
	@cargo fmt --check --manifest-path tests/fuzz/Cargo.toml || { \
	  echo "fmt: run cargo fmt --manifest-path tests/fuzz/Cargo.toml"; exit 1; }

lint: setup ## Lints everything; a warning is an error
	@cargo clippy --workspace --all-targets -- -D warnings
	@cargo check --quiet --manifest-path tests/fuzz/Cargo.toml --target-dir target

unit: setup ## Unit and property tests only
	@cargo test --workspace --lib --bins --quiet

cases: setup ## The case files only: make cases ARGS='routing/vars -j 1'
	@cargo test --workspace --test it -- $(ARGS)

clients: setup ## Real clients of the Admin API only: make clients [ARGS='etcd: adc'] [ADC=CHECKOUT]
	@cargo build --bin lockgate
	@ADC="$(ADC)" bash tests/clients/run.sh "$(ARGS)"

ci: setup ## All that has to hold before a change lands; prints the time of each step
	@bash tests/ci.sh

docs: setup ## Builds the documentation, writes docs/plugins; a warning is an error
	@bash tests/docs.sh

bench: micro load instructions memory targets ## Everything that is measured, then the targets beside it; half an hour

micro: setup ## Micro benches of router, plan and compiler
	@grep -q '^name = "micro"' Cargo.toml || { echo "micro: Cargo.toml has no bench of that name yet"; exit 1; }
	@cargo bench --bench micro

load: ## CPU, requests/s, latency and memory beside a bare Pingora proxy, nginx and HAProxy
	@bash bench/load/run.sh load $(ARGS)

instructions: ## User instructions and allocations per request under valgrind; RECORD=1 records a small GET for `make count`
	@bash bench/load/run.sh $(if $(RECORD),count --record,instructions $(ARGS))

memory: ## Resident memory with 10,000 idle keep-alive connections
	@bash bench/load/run.sh memory $(ARGS)

silent: ## As many connections as may be open that send nothing: memory, who is served, how they end
	@bash bench/load/run.sh silent $(ARGS)

targets: ## The targets beside what was measured last
	@bash bench/load/run.sh targets

count: ## Fails when a small GET costs 5 % more instructions than bench/instructions.json says
	@bash bench/load/run.sh count

edits: ## Twenty edits of the routes a second under load: failed requests and p99
	@bash bench/load/run.sh edits $(ARGS)

config-bench: ## Writes to served requests and starts, with 10 and 100,000 routes; 500 writes a second under load
	@bash bench/load/run.sh config $(ARGS)

limit-bench: ## Limits: decisions in memory, a gateway with each mode, calls of Redis; five minutes after the build
	@bash bench/load/run.sh limits $(ARGS)

smoke: ## Builds the benches unoptimised and runs each once: they still work
	@bash tests/setup.sh smoke
	@bash bench/smoke.sh

fuzz: ## Runs each fuzz target for a minute: make fuzz SECONDS_EACH=600 TARGETS='yaml trie'
	@bash tests/setup.sh fuzz
	@bash tests/fuzz.sh $(SECONDS_EACH) $(TARGETS)

fuzz-lanes: setup ## The same hostile bytes through both lanes: make fuzz-lanes SECONDS_EACH=1800
	@cargo test --test it -- --lanes $(SECONDS_EACH)

chaos: setup ## Limits whose servers freeze, die, are slow or full: outcomes, times and verdicts; some minutes
	@cargo build --release --bin lockgate
	@LOCKGATE_BIN="$(CURDIR)/target/release/lockgate" cargo test --test it -- --chaos $(ARGS)

deny: setup ## Licences, sources, bans and advisories of the dependencies
	@bash tests/deny.sh

conformance: ## Replays APISIX's own tests: make conformance SUITE=CHECKOUT [ONLY='key-auth t/router'] [REPLAY=replay.py]
	@bash tests/setup.sh conformance
	@bash tests/conformance.sh --check "$(SUITE)" "$(REPLAY)"
	@cargo build --release --bin lockgate
	@bash tests/conformance.sh "$(SUITE)" "$(REPLAY)" $(ONLY)

setup: ## Installs what the build needs (asks apt, only for what is missing)
	@bash tests/setup.sh build
