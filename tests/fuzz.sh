#!/usr/bin/env bash
# Runs each fuzz target of tests/fuzz for some seconds: fuzz.sh [SECONDS]. Needs no nightly compiler.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
targets=(tests/fuzz/fuzz_targets/*.rs)
if [ ! -e "${targets[0]}" ]; then
  echo "fuzz: there are no targets in tests/fuzz/fuzz_targets" >&2
  exit 1
fi
if ! command -v cargo-fuzz >/dev/null 2>&1; then
  echo "cargo-fuzz is missing: compiling it takes a minute, once"
  cargo install --quiet --locked cargo-fuzz || {
    echo "fuzz: cargo-fuzz could not be installed; try: cargo install --locked cargo-fuzz" >&2
    exit 1
  }
  PATH=$PATH:${CARGO_INSTALL_ROOT:-${CARGO_HOME:-$HOME/.cargo}}/bin
fi
# The instrumentation is an unstable flag of the compiler; this admits it on a stable one.
export RUSTC_BOOTSTRAP=1
for target in "${targets[@]}"; do
  name=$(basename "$target" .rs)
  echo "== $name, $seconds s"
  cargo fuzz run --fuzz-dir tests/fuzz "$name" -- -max_total_time="$seconds" -timeout=10 || {
    echo "fuzz: $name found something; the input is under tests/fuzz/artifacts/$name" >&2
    exit 1
  }
done
echo "fuzz: ${#targets[@]} targets, nothing found"
