#!/usr/bin/env bash
# Measures: run.sh load|instructions|memory|edits|count|targets [OPTION...]. Builds the release
# first; the options are those of the Python program (--help). `make load ARGS=...` calls this.
set -euo pipefail
cd "$(dirname "$0")/../.."
kind=${1:-load}
shift || true
purpose=bench
build=(--bin lockgate --example floor)
case $kind in
  load | instructions | memory | edits) ;;
  count)
    purpose=count
    build=(--bin lockgate)
    ;;
  targets)
    # Shows what the others left.
    build=()
    ;;
  *)
    echo "bench: unknown measurement $kind; known: load, instructions, memory, edits, count, targets" >&2
    exit 2
    ;;
esac
if [ ${#build[@]} -gt 0 ]; then
  bash tests/setup.sh "$purpose"
  cargo build --release "${build[@]}"
fi
export PYTHONDONTWRITEBYTECODE=1
exec python3 "bench/load/$kind.py" "$@"
