#!/usr/bin/env bash
# Every check, in order of how soon it tells; prints the time of each.
set -uo pipefail
cd "$(dirname "$0")/.."
times=()
step() { # step NAME COMMAND...
  local name=$1 start=$SECONDS
  shift
  echo "=== $name"
  if ! "$@"; then
    echo "=== $name failed after $((SECONDS - start)) s"
    exit 1
  fi
  times+=("$name $((SECONDS - start)) s")
}
deny() {
  if ! cargo deny --version >/dev/null 2>&1; then
    echo "cargo-deny is missing; compiling it once takes some minutes"
    cargo install --quiet --locked cargo-deny || return 1
  fi
  cargo deny --log-level error check licenses bans sources
}
step format cargo fmt --all --check
step tests make --no-print-directory test
step lints cargo clippy --workspace --all-targets --quiet -- -D warnings
step docs env RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --quiet
step dependencies deny
printf '%s\n' "${times[@]}"
