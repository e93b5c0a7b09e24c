#!/usr/bin/env bash
# Runs every test. The last line is `N passed, M failed`, summed over what the runners reported.
#
# Nothing has to be started first: the integration runner (tests/it) brings its own upstreams,
# certificates and gateways, all on loopback with free ports.
set -uo pipefail
cd "$(dirname "$0")/.."
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# One cargo run: unit and property tests, then the cases against the real binary, then the
# examples in the documentation. A failing part does not hide the parts after it.
cargo test --workspace --no-fail-fast 2>&1 </dev/null | tee "$log"
status=${PIPESTATUS[0]}
# Real clients of the Admin API, against what was just built.
bash tests/clients/run.sh 2>&1 </dev/null | tee -a "$log"
clients=${PIPESTATUS[0]}
[ "$status" != 0 ] || status=$clients

read -r passed failed < <(
  awk '/^test result: / { for (i = 2; i <= NF; i++) { if ($i ~ /^passed/) p += $(i - 1); if ($i ~ /^failed/) f += $(i - 1) } }
       END { print p + 0, f + 0 }' "$log"
)
if [ "$status" != 0 ] && [ "$failed" = 0 ]; then
  echo "tests: a part ended without a result (it did not compile, or it crashed; see above)"
  failed=1
fi
if [ "$passed" = 0 ]; then
  echo "tests: nothing ran"
  [ "$failed" != 0 ] || failed=1
fi
# Named once more at the end, where one looks first.
grep -E '^test .* (\.\.\. )?FAILED$' "$log"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
