#!/usr/bin/env bash
# Measures under load: run.sh load|instructions|edits [OPTION...]. Builds the release first; the
# options are those of the Python program (--help). `make load ARGS=...` calls this.
set -euo pipefail
cd "$(dirname "$0")/../.."
kind=${1:-load}
shift || true
case $kind in
  load | instructions | edits) ;;
  *)
    echo "bench: unknown measurement $kind; known: load, instructions, edits" >&2
    exit 2
    ;;
esac
bash tests/setup.sh bench
cargo build --release --bin lockgate --example floor
export PYTHONDONTWRITEBYTECODE=1
exec python3 "bench/load/$kind.py" "$@"
