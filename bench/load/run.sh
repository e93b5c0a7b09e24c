#!/usr/bin/env bash
# Measures: run.sh load|instructions|memory|silent|edits|config|limits|count|targets [OPTION...]. Builds the release
# first; the options are those of the Python program (--help). `make load ARGS=...` calls this.
set -euo pipefail
cd "$(dirname "$0")/../.."
kind=${1:-load}
shift || true
purpose=bench
example=floor
case $kind in
  load | instructions | memory | silent | edits) ;;
  config) example= ;;
  limits) example=limit-ratios ;;
  count)
    purpose=count
    example=
    ;;
  targets)
    # Shows what the others left.
    purpose=
    ;;
  *)
    echo "bench: unknown measurement $kind; known: load, instructions, memory, silent, edits, config, limits, count, targets" >&2
    exit 2
    ;;
esac
if [ -n "$purpose" ]; then
  bash tests/setup.sh "$purpose"
  # Apart from the example, whose dev-dependencies would add features: what is shipped is measured.
  cargo build --release --bin lockgate
  [ -z "$example" ] || cargo build --release --example "$example"
fi
export PYTHONDONTWRITEBYTECODE=1
exec python3 "bench/load/$kind.py" "$@"
