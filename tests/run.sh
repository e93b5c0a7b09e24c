#!/usr/bin/env bash
# Runs every test; the last line is the sum over all runners.
set -uo pipefail
cd "$(dirname "$0")/.."
log=$(mktemp)
trap 'rm -f "$log"' EXIT
status=0
run() {
  echo "== $*"
  "$@" 2>&1 | tee -a "$log"
  [ "${PIPESTATUS[0]}" = 0 ] || status=1
}
# Unit and property tests, then documentation examples, then the cases against the real binary.
run cargo test --workspace --lib --bins
run cargo test --workspace --doc
run cargo test --test it
passed=$(grep -oE '[0-9]+ passed' "$log" | awk '{n += $1} END {print n + 0}')
failed=$(grep -oE '[0-9]+ failed' "$log" | awk '{n += $1} END {print n + 0}')
if [ "$status" != 0 ] && [ "$failed" = 0 ]; then
  echo "a test run ended without a result (see above)"
  failed=1
fi
echo "$passed passed, $failed failed"
exit $status
