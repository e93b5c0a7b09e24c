#!/usr/bin/env bash
# Builds the documentation of the code, private items included; a warning is an error. Then writes
# the pages of the plugins anew, which must change nothing, and checks that every relative link
# between the pages of this repository leads somewhere.
set -euo pipefail
cd "$(dirname "$0")/.."
RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items --all-features

# `cargo metadata` would need a JSON reader; the manifest says it in one line.
if grep -q '^name = "plugin-docs"' Cargo.toml; then
  cargo run --quiet --example plugin-docs -- docs/plugins
  # A page that is new is not in the diff.
  new=$(git ls-files --others --exclude-standard -- docs/plugins)
  if [ -n "$new" ] || ! git diff --exit-code --stat -- docs/plugins; then
    echo "docs: docs/plugins was out of date and is now written anew; commit it" $new >&2
    exit 1
  fi
fi

dead=0
while IFS= read -r page; do
  while IFS= read -r link; do
    case $link in *://* | mailto:* | '#'*) continue ;; esac
    target=$(dirname "$page")/${link%%#*}
    if [ ! -e "$target" ]; then
      echo "docs: $page links to $link, which does not exist" >&2
      dead=1
    fi
  done < <(awk '/^ *```/ { code = !code; next } !code' "$page" | grep -oE '\]\([^)[:space:]]+\)' | sed -E 's/^\]\((.*)\)$/\1/')
done < <(git ls-files --cached --others --exclude-standard -- '*.md')
exit "$dead"
