#!/usr/bin/env bash
# Starts the demo upstream and the gateway; ends both together.
set -euo pipefail
gateway=$1 demo=$2
"$demo" 127.0.0.1:1980 127.0.0.1:1981 &
demo_pid=$!
trap 'kill "$demo_pid" 2>/dev/null || true' EXIT
cat <<TXT

lockgate is starting on port 9080 with conf/config.yaml and conf/apisix.yaml. In another terminal, try:

  curl -i http://127.0.0.1:9080/hello/world
  curl -i -H 'X-Canary: v2' http://127.0.0.1:9080/api/v1/orders/7
  curl -i -H 'apikey: demo-key' http://127.0.0.1:9080/private

Then edit conf/apisix.yaml (another path, another weight) and save: the change is live within a second.
What became of it: curl http://127.0.0.1:7085/status/config        Ctrl-C ends everything.

TXT
"$gateway" run -c conf/config.yaml &
gateway_pid=$!
trap 'kill -TERM "$gateway_pid" "$demo_pid" 2>/dev/null || true; wait "$gateway_pid" 2>/dev/null || true' EXIT INT TERM
wait "$gateway_pid"
