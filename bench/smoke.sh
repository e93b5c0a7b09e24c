#!/usr/bin/env bash
# Builds the benches unoptimised and runs each once, so that they do not rot: the micro benches one
# iteration each, the programs of the load tests one request each. Says nothing about speed.
set -euo pipefail
cd "$(dirname "$0")/.."
# Same features and profile as the tests: nothing is compiled twice.
cargo build --workspace --bins --examples
if grep -q '^name = "micro"' Cargo.toml; then
  # Without --bench the bench program tests itself: one iteration of each.
  cargo test --workspace --bench micro
fi
"${CARGO_TARGET_DIR:-target}/debug/examples/limit-ratios" quick >/dev/null
# The programs that measure are not run here; at least they parse.
python3 -c 'import ast, sys; [ast.parse(open(f).read(), f) for f in sys.argv[1:]]' bench/load/*.py
export PYTHONDONTWRITEBYTECODE=1
exec python3 bench/load/smoke.py
