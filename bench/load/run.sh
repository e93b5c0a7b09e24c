#!/usr/bin/env bash
# Measures: run.sh load|instructions|memory|silent|edits|config|count|targets [OPTION...]. Builds the release
# first; the options are those of the Python program (--help). `make load ARGS=...` calls this.
set -euo pipefail
cd "$(dirname "$0")/../.."
kind=${1:-load}
shift || true
purpose=bench
floor=1
case $kind in
  load | instructions | memory | silent | edits) ;;
  config) floor= ;;
  count)
    purpose=count
    floor=
    ;;
  targets)
    # Shows what the others left.
    purpose=
    ;;
  *)
    echo "bench: unknown measurement $kind; known: load, instructions, memory, silent, edits, config, count, targets" >&2
    exit 2
    ;;
esac
if [ -n "$purpose" ]; then
  bash tests/setup.sh "$purpose"
  # Apart from the example, whose dev-dependencies would add features: what is shipped is measured.
  cargo build --release --bin lockgate
  [ -z "$floor" ] || cargo build --release --example floor
fi
export PYTHONDONTWRITEBYTECODE=1
exec python3 "bench/load/$kind.py" "$@"
