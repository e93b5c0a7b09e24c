#!/usr/bin/env bash
# All that has to hold before a change lands, what tells soonest first. Prints the time of each
# step, also when one fails. Everything but the count of instructions uses the dev profile, so that
# little is compiled twice: lints and documentation share the checked dependencies, tests and bench
# smoke the built ones. Instructions are counted in the release: a figure of anything else would
# miss what costs there, and that the release builds at all is worth its minutes.
set -uo pipefail
cd "$(dirname "$0")/.."
times=()
summary=

finish() { # finish STATUS
  echo
  echo "== time of each step"
  printf '%s\n' "${times[@]}"
  printf '%6d s  all\n' "$SECONDS"
  [ -z "$summary" ] || echo "$summary"
  exit "$1"
}

step() { # step NAME COMMAND...
  local name=$1 start=$SECONDS
  shift
  echo "== $name"
  if "$@" </dev/null; then
    times+=("$(printf '%6d s  %s' $((SECONDS - start)) "$name")")
  else
    times+=("$(printf '%6d s  %s: FAILED' $((SECONDS - start)) "$name")")
    echo "ci: $name failed; alone: $*" >&2
    finish 1
  fi
}

run_tests() {
  local out status
  out=$(mktemp)
  make test | tee "$out"
  status=${PIPESTATUS[0]}
  summary=$(grep -E '^[0-9]+ passed, [0-9]+ failed$' "$out" | tail -n 1)
  rm -f "$out"
  return "$status"
}

step "format" make fmt
step "lints" make lint
step "documentation" make docs
step "tests" run_tests
step "bench smoke" make smoke
step "instructions" make count
step "dependencies" make deny
finish 0
