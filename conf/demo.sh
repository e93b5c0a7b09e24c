#!/usr/bin/env bash
# Starts the demo upstream and the gateway in the foreground; Ctrl-C ends both.
# demo.sh GATEWAY DEMO_UPSTREAM (`make run` builds them and calls this)
set -euo pipefail
cd "$(dirname "$0")/.."
gateway=$1 demo=$2
config=conf/config.yaml
key_file=data/admin.key
admin=http://127.0.0.1:9180/apisix/admin
# The gateway is up within a fraction of this; a busy machine may take longer.
start_limit=30
pids=()

end() {
  trap - EXIT INT TERM
  # The gateway, started last, goes first: the upstream stays until its requests are done.
  for ((i = ${#pids[@]} - 1; i >= 0; i--)); do
    kill -TERM "${pids[i]}" 2>/dev/null || true
    wait "${pids[i]}" 2>/dev/null || true
  done
  exit "${1:-0}"
}
trap 'end 0' INT TERM
trap 'end $?' EXIT

answers() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

for port in 1980 1981 9080 7085 9090 9091 9180; do
  if answers "$port"; then
    echo "demo: port $port is taken by another process; end it, or change conf/config.yaml and conf/demo.sh" >&2
    exit 1
  fi
done

"$demo" 127.0.0.1:1980 127.0.0.1:1981 >/dev/null &
pids+=("$!")
"$gateway" run -c "$config" &
pids+=("$!")
gateway_pid=$!

until answers 7085 && curl -sf -o /dev/null http://127.0.0.1:7085/status/ready; do
  if ! kill -0 "$gateway_pid" 2>/dev/null; then
    echo "demo: the gateway did not start; its reasons are above" >&2
    exit 1
  fi
  if [ "$SECONDS" -ge "$start_limit" ]; then
    echo "demo: the gateway is not ready after $start_limit s; curl http://127.0.0.1:7085/status/ready says why" >&2
    exit 1
  fi
  sleep 0.1
done

# The demo's resources, by the Admin API. What is there already was made or edited in an earlier run, and stays.
put() {
  local answer
  if curl -sf -o /dev/null -H "X-API-KEY: $(<"$key_file")" "$admin/$1"; then
    return
  fi
  answer=$(curl -s -w '\n%{http_code}' -X PUT -H "X-API-KEY: $(<"$key_file")" -d "$2" "$admin/$1")
  if [[ ${answer##*$'\n'} != 201 ]]; then
    echo "demo: $1 was not made: $answer" >&2
    exit 1
  fi
}

put upstreams/demo '{"nodes": {"127.0.0.1:1980": 2, "127.0.0.1:1981": 1}}'
put routes/hello '{"uri": "/hello/*", "plugins": {"request-id": {}}, "upstream_id": "demo"}'
put routes/private '{"uri": "/private", "plugins": {"key-auth": {}}, "upstream_id": "demo"}'
put consumers/demo '{"username": "demo", "plugins": {"key-auth": {"key": "demo-key"}}}'
put routes/orders-canary '{"uri": "/api/v1/orders/*", "priority": 10, "vars": [["http_x_canary", "==", "v2"]],
  "upstream": {"nodes": {"127.0.0.1:1981": 1}}}'
put routes/orders '{"uri": "/api/v1/orders/*", "upstream": {"nodes": {"127.0.0.1:1980": 1}}}'

cat <<'TXT'

The gateway serves on port 9080. In another terminal, in this folder:

  curl -i http://127.0.0.1:9080/hello/world
  curl -i -H 'X-Canary: v2' http://127.0.0.1:9080/api/v1/orders/7
  curl -i -H 'apikey: demo-key' http://127.0.0.1:9080/private

Make a route of your own through the Admin API; it is live when the answer is there:

  curl -i -X PUT http://127.0.0.1:9180/apisix/admin/routes/mine -H "X-API-KEY: $(cat data/admin.key)" \
    -d '{"uri": "/mine", "upstream": {"nodes": {"127.0.0.1:1980": 1}}}'
  curl -i http://127.0.0.1:9080/mine

All routes:               curl http://127.0.0.1:9180/apisix/admin/routes -H "X-API-KEY: $(cat data/admin.key)"
What is in use:           curl http://127.0.0.1:7085/status/config
Everything is kept in data/lockgate.redb. Ctrl-C ends the gateway and the demo upstream.

TXT
status=0
wait "$gateway_pid" || status=$?
echo "demo: the gateway ended with status $status" >&2
exit "$status"
