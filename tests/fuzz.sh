#!/usr/bin/env bash
# Runs each fuzz target of tests/fuzz for some seconds: fuzz.sh [SECONDS [TARGET...]]. The stable
# compiler is enough. What is found is kept in target/fuzz/corpus and makes the next run start there.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-60}
all=(path expression yaml trie request response)
targets=("${@:2}")
[ ${#targets[@]} -gt 0 ] || targets=("${all[@]}")
case $seconds in
  '' | *[!0-9]* | 0)
    echo "fuzz: SECONDS has to be a number above 0, not '$seconds'" >&2
    exit 1
    ;;
esac

# The longest input: room for what a target is about, and short enough for many executions.
max_len() {
  case $1 in
    path) echo 512 ;;
    trie) echo 1024 ;;
    request | response) echo 2048 ;;
    *) echo 4096 ;;
  esac
}

# The compiler counts what is executed and what is compared; libFuzzer reads the counts. With
# --target the flags are not for build scripts and macros, which have no libFuzzer to link to.
host=$(rustc -vV | sed -n 's/^host: //p')
flags="-Cpasses=sancov-module"
for option in level=4 inline-8bit-counters pc-table trace-compares; do
  flags+=" -Cllvm-args=-sanitizer-coverage-$option"
done
echo "building the fuzz targets: some minutes the first time"
RUSTFLAGS="$flags" cargo build --quiet --release --manifest-path tests/fuzz/Cargo.toml \
  --target "$host" --target-dir target/fuzz || {
  echo "fuzz: the targets do not build" >&2
  exit 1
}

lines=()
finish() { # finish STATUS SENTENCE
  printf '\n== %-12s %12s %9s  %s\n' target executions coverage result
  printf '%s\n' "${lines[@]}"
  echo "fuzz: $2"
  exit "$1"
}

for name in "${targets[@]}"; do
  program=target/fuzz/$host/release/$name
  [ -x "$program" ] || finish 1 "there is no target $name; there are: ${all[*]}"
  corpus=target/fuzz/corpus/$name found=target/fuzz/found/$name log=target/fuzz/$name.log
  mkdir -p "$corpus" "$found"
  options=(-timeout=5 -rss_limit_mb=2048 -max_len="$(max_len "$name")")
  echo "== $name, $seconds s"
  status=0
  "$program" "${options[@]}" -max_total_time="$seconds" -print_final_stats=1 -verbosity=1 \
    -dict="tests/fuzz/dictionaries/$name" -artifact_prefix="$found/" \
    "$corpus" "tests/fuzz/seeds/$name" >"$log" 2>&1 </dev/null || status=$?
  count=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log" | tail -n 1)
  coverage=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)
  result=ok
  [ "$status" = 0 ] || result=FAILED
  # Without counters every input looks alike, and nothing would ever be found.
  grep -aq '^INFO: Loaded [0-9]* modules *([0-9]* inline 8-bit counters)' "$log" ||
    result="FAILED: not instrumented"
  lines+=("$(printf '   %-12s %12s %9s  %s' "$name" "${count:-?}" "${coverage:-?}" "$result")")
  [ "$result" != ok ] || continue
  grep -aE -A 4 "panicked at|ERROR: libFuzzer" "$log" | head -n 20 >&2 || true
  file=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
  [ -n "$file" ] || finish 1 "$name failed without an input; its output is $log"
  finish 1 "$name fails on $file; again: $program ${options[*]:0:2} $file"
done
finish 0 "${#targets[@]} targets, nothing found"
