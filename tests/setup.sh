#!/usr/bin/env bash
# Installs what is missing for a purpose: build, test, bench or conformance. Says what and why.
set -euo pipefail
purpose=${1:-build}
packages=()

need() { # need COMMAND-OR-FILE PACKAGE WHY
  if command -v "$1" >/dev/null 2>&1 || [ -e "$1" ]; then return; fi
  echo "needed: $2 ($3)"
  packages+=("$2")
}

need cc gcc "C compiler: mimalloc, zstd and the OpenSSL bindings compile C"
need make make "runs these verbs"
need pkg-config pkg-config "finds OpenSSL"
need /usr/include/openssl/ssl.h libssl-dev "OpenSSL headers: TLS comes from the system's library"
case $purpose in
  bench)
    need nginx nginx "the measured alternative, and the upstream of the load tests"
    need wrk wrk "makes load"
    need valgrind valgrind "counts instructions"
    ;;
  conformance)
    need nginx nginx "upstream and client of the suite"
    need /usr/share/doc/libnginx-mod-http-lua libnginx-mod-http-lua "the suite's servers are in Lua"
    need /usr/share/doc/libnginx-mod-http-headers-more-filter libnginx-mod-http-headers-more-filter "the suite's servers set headers"
    need /usr/share/doc/lua-cjson lua-cjson "the suite's servers speak JSON"
    need etcd etcd-server "blocks that configure through etcd"
    need redis-server redis-server "blocks about Redis"
    ;;
esac
if ! command -v cargo >/dev/null 2>&1; then
  echo "cargo is missing: install Rust (1.89 or newer) first; this script does not do that for you" >&2
  exit 1
fi
[ ${#packages[@]} -gt 0 ] || exit 0
as_root=
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null 2>&1 || { echo "missing: ${packages[*]}; run as root, or: apt-get install ${packages[*]}" >&2; exit 1; }
  as_root=sudo
fi
echo "installing: ${packages[*]}"
$as_root apt-get update -qq
DEBIAN_FRONTEND=noninteractive $as_root apt-get install -y -qq "${packages[@]}" >/dev/null || {
  echo "apt-get could not install: ${packages[*]}" >&2
  exit 1
}
