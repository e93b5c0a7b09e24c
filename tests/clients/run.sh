#!/usr/bin/env bash
# Real clients of the Admin API against a gateway of its own, see README.md: run.sh [CHECK]
# The last line is `test result: ok. N passed; M failed`, as of the other runners. Where the clients
# cannot be installed from their registry, one line says so and nothing has failed.
# ADC=CHECKOUT drives ADC itself, too.
set -euo pipefail
cd "$(dirname "$0")/../.."
work=${CARGO_TARGET_DIR:-target}/clients
python=$work/venv/bin/python
log=$work/install.log
mkdir -p "$work"

skip() {
  echo "skipped: the clients of tests/clients ($1)"
  exit 0
}
gateway=${LOCKGATE_BIN:-${CARGO_TARGET_DIR:-target}/debug/lockgate}
[ -x "$gateway" ] || {
  echo "clients: $gateway is not built: cargo build --bin lockgate" >&2
  exit 1
}
command -v python3 >/dev/null || skip "there is no python3"
python3 -c 'import sys; sys.exit(sys.version_info < (3, 10))' || skip "$(python3 -V) is too old: 3.10 is needed"
command -v openssl >/dev/null || skip "there is no openssl command"

# Installed once for each list of versions.
stamp=$work/venv/requirements.txt
if ! cmp -s tests/clients/requirements.txt "$stamp"; then
  rm -rf "$work/venv"
  python3 -m venv "$work/venv" >"$log" 2>&1 || skip "no virtual environment: Debian has it in python3-venv; see $log"
  "$python" -m pip install --quiet --disable-pip-version-check --retries 1 --timeout 15 \
    -r tests/clients/requirements.txt >>"$log" 2>&1 </dev/null || skip "they cannot be installed: $(tail -n 1 "$log")"
  cp tests/clients/requirements.txt "$stamp"
fi
options=()
if [ -n "${ADC:-}" ]; then
  bash tests/clients/adc.sh "$ADC" "$work/adc"
  options=(--adc "$(realpath "$work/adc/adc.cjs")")
else
  echo "skipped: ADC itself, which is in no registry: ADC=CHECKOUT drives it; its requests are made all the same"
fi
export PYTHONDONTWRITEBYTECODE=1 PYTHONWARNINGS=ignore
exec "$python" tests/clients/main.py "${options[@]}" "$@"
