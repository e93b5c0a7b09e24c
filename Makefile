# The verbs of this repository. `make` alone explains them.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.PHONY: help run test quick ci bench conformance docs fuzz setup fmt lint deny unit cases

export CARGO_TERM_COLOR ?= auto
SUITE ?=
REPLAY ?= ../shared/conformance/replay.py

help: ## This list
	@echo "lockgate: an API gateway that reads Apache APISIX configuration"
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## /  make \1|/' | column -t -s '|'

setup: ## Installs what the build needs (asks apt only for what is missing)
	@bash tests/setup.sh build

run: setup ## Builds release, starts the gateway on port 9080 with a demo upstream, says what to try
	@echo "building the release (the first time takes some minutes)"
	@cargo build --release --bin lockgate --example demo-upstream
	@bash conf/demo.sh target/release/lockgate target/release/examples/demo-upstream

test: setup ## Installs what tests need, runs everything, one line at the end
	@bash tests/run.sh

quick: setup ## Format, lints and unit tests
	@cargo fmt --all --check
	@cargo clippy --workspace --all-targets --quiet -- -D warnings
	@cargo test --workspace --lib --quiet

ci: setup ## Everything that has to hold before a change lands; prints the time of each step
	@bash tests/ci.sh

bench: setup ## Micro benchmarks, then load against a bare Pingora proxy and nginx; one table
	@bash tests/setup.sh bench
	@cargo bench --bench micro
	@bash bench/load/run.sh

conformance: setup ## Replays a checkout of Apache APISIX's test suite: make conformance SUITE=PATH
	@[ -n "$(SUITE)" ] || { echo "say where the checkout is: make conformance SUITE=PATH"; exit 2; }
	@bash tests/setup.sh conformance
	@cargo build --release --bin lockgate
	@bash tests/conformance.sh "$(SUITE)" "$(REPLAY)"

docs: setup ## Builds the API documentation and the plugin pages, without warnings
	@cargo run --quiet --example plugin-docs -- docs/plugins
	@RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items --quiet

fuzz: setup ## Runs each fuzz target for 60 seconds
	@bash tests/fuzz.sh
