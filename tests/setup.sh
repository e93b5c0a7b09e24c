#!/usr/bin/env bash
# Installs what is missing for a purpose and says why: setup.sh build|run|smoke|count|bench|fuzz|conformance.
# Nothing is installed that is there already; nothing outside Debian's packages is touched.
set -euo pipefail
purpose=${1:-build}
# The oldest compiler that builds this; `rust-version` in Cargo.toml says the same to cargo.
rust_minor=89
packages=()

need() { # need COMMAND-OR-FILE PACKAGE WHY
  if command -v "$1" >/dev/null 2>&1 || [ -e "$1" ]; then return; fi
  echo "needed: $2 ($3)"
  packages+=("$2")
}

need_package() { # need_package PACKAGE WHY: for what is neither a command nor one known file
  if dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q 'ok installed'; then return; fi
  echo "needed: $1 ($2)"
  packages+=("$1")
}

fail() {
  echo "setup: $*" >&2
  exit 1
}

need cc gcc "C compiler: mimalloc, zstd and zlib-ng are C"
need /usr/include/stdio.h libc6-dev "C headers, and what every Rust program is linked with"
need make make "zlib-ng's build"
need cmake cmake "zlib-ng's build"
need pkg-config pkg-config "finds OpenSSL"
need /usr/include/openssl/ssl.h libssl-dev "OpenSSL headers: TLS comes from the system's library"
need protoc protobuf-compiler "etcd's protocol is compiled from its definition"
need /usr/include/google/protobuf/descriptor.proto libprotobuf-dev "the definitions that etcd's protocol builds on"
case $purpose in
  build)
    need etcd etcd-server "the tests start one"
    need redis-server redis-server "the tests start some"
    need openssl openssl "certificates of the tests"
    need python3 python3 "real clients of the Admin API"
    need_package python3-venv "they are installed in a folder of their own"
    ;;
  run)
    need curl curl "the requests that the demo suggests"
    ;;
  smoke)
    need python3 python3 "runs the measurements"
    ;;
  count)
    need valgrind valgrind "counts instructions"
    need python3 python3 "runs the measurements"
    ;;
  bench)
    need nginx nginx "the upstream of the load tests, and a proxy to compare with"
    need haproxy haproxy "another proxy to compare with"
    need etcd etcd-server "the store that several gateways follow"
    need redis-server redis-server "the store that several gateways count in"
    need wrk wrk "makes load"
    need valgrind valgrind "counts instructions"
    need python3 python3 "runs the measurements"
    need taskset util-linux "pins each process to a core"
    need openssl openssl "makes the certificate of the TLS load"
    ;;
  fuzz)
    need c++ g++ "C++ compiler: libFuzzer is C++"
    ;;
  conformance)
    need python3 python3 "runs the replayer"
    need_package python3-yaml "the replayer reads YAML"
    need perl perl "evaluates the suite's files"
    need nginx nginx "upstream and client of the suite"
    need_package libnginx-mod-http-lua "the suite's servers are in Lua"
    need_package libnginx-mod-http-headers-more-filter "the suite's servers set headers"
    for lua in resty-core resty-lrucache cjson nginx-string nginx-websocket nginx-redis nginx-dns filesystem; do
      need_package "lua-$lua" "a library of the suite's servers"
    done
    need etcd etcd-server "the replayer starts one for every file"
    need redis-server redis-server "blocks about Redis"
    need curl curl "some blocks are shell commands"
    need openssl openssl "some blocks are shell commands"
    ;;
  *) fail "unknown purpose $purpose; known: build, run, smoke, count, bench, fuzz, conformance" ;;
esac

if [ ${#packages[@]} -gt 0 ]; then
  command -v apt-get >/dev/null 2>&1 ||
    fail "there is no apt-get here; install by other means: ${packages[*]}"
  as_root=()
  if [ "$(id -u)" != 0 ]; then
    command -v sudo >/dev/null 2>&1 ||
      fail "neither root nor sudo; have somebody run: apt-get install ${packages[*]}"
    as_root=(sudo)
  fi
  echo "installing: ${packages[*]}"
  log=$(mktemp)
  trap 'rm -f "$log"' EXIT
  if ! { "${as_root[@]}" apt-get update -q &&
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
      "${packages[@]}"; } >"$log" 2>&1 </dev/null; then
    tail -n 15 "$log" >&2
    fail "apt-get could not install: ${packages[*]}"
  fi
fi

command -v cargo >/dev/null 2>&1 ||
  fail "cargo is missing: install Rust 1.$rust_minor or newer (rustup, or your distribution)"
minor=$(rustc --version | sed -E 's/^rustc 1\.([0-9]+).*/\1/')
if [ "$minor" -lt "$rust_minor" ] 2>/dev/null; then
  fail "$(rustc --version) is too old: Rust 1.$rust_minor or newer is needed"
fi
