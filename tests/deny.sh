#!/usr/bin/env bash
# Licences, sources, bans and known vulnerabilities of the dependencies, by cargo-deny (deny.toml).
set -euo pipefail
cd "$(dirname "$0")/.."
# How long the database of advisories may take to arrive.
fetch_limit=60

if ! command -v cargo-deny >/dev/null 2>&1; then
  echo "cargo-deny is missing: compiling it takes some minutes, once"
  # Unoptimised: it runs for a second, and compiling is what costs.
  cargo install --quiet --locked --debug cargo-deny || {
    echo "deny: cargo-deny could not be installed; try: cargo install --locked cargo-deny" >&2
    exit 1
  }
  # A fresh cargo may not have its bin folder in the path.
  PATH=$PATH:${CARGO_INSTALL_ROOT:-${CARGO_HOME:-$HOME/.cargo}}/bin
fi
cargo deny --all-features check --hide-inclusion-graph licenses bans sources

# Advisories come from a Git server that not every build machine can reach. Out of reach is said
# aloud and is no failure; an advisory that was found is one.
if timeout "$fetch_limit" cargo deny --all-features fetch db >/dev/null 2>&1; then
  cargo deny --all-features check --hide-inclusion-graph advisories
else
  echo "deny: the advisory database is out of reach; advisories were NOT checked"
fi
