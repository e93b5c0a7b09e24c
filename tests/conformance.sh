#!/usr/bin/env bash
# Replays the part of APISIX's own test suite that is about what this version delivers, and writes the
# counts into tests/conformance.md:
#
#   conformance.sh SUITE REPLAY [FOLDER|PLUGIN...]     replay, against target/release/lockgate
#   conformance.sh --check SUITE REPLAY                only see whether both are there
#
# SUITE is a checkout of APISIX, REPLAY the replayer's program; neither is part of this repository.
# A word with a slash is a folder or file (t/router, t/node/upstream.t), others are plugins.
# LOCKGATE_BIN names another build. REPORT=FILE keeps the replayer's report as JSON.
set -euo pipefail
check=
if [ "${1:-}" = --check ]; then
  check=1
  shift
fi
suite=${1:-} replay=${2:-}
shift $(($# < 2 ? $# : 2))

fail() {
  echo "conformance: $*" >&2
  exit 2
}
[ -n "$suite" ] || fail "say where the checkout of APISIX is: make conformance SUITE=PATH"
[ -d "$suite/t" ] || fail "there is no folder t in $suite: not a checkout of APISIX"
[ -f "$replay" ] || fail "there is no replayer at $replay; say where: make conformance SUITE=... REPLAY=PATH"
suite=$(realpath "$suite")
replay=$(realpath "$replay")
cd "$(dirname "$0")/.."
gateway=$(realpath -m "${LOCKGATE_BIN:-target/release/lockgate}")
[ -n "$check" ] || [ -x "$gateway" ] || fail "$gateway is not built: cargo build --release --bin lockgate"
[ -z "$check" ] || exit 0
export PYTHONDONTWRITEBYTECODE=1
exec python3 tests/conformance.py "$suite" "$replay" "$gateway" "$@"
