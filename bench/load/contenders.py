"""The gateways under test, each configured to do the same.

What is left as it comes is left; what was changed is said here:

- all: one worker, no access log unless the name says so, keep-alive to clients and to the upstream
  without a limit on requests, bodies streamed rather than stored.
- lockgate adds APISIX's fields for the upstream (X-Real-IP and four X-Forwarded-*) as always; the
  plain nginx, HAProxy and floor add none, which is in their favour. `floor, fields` adds them, too.
- nginx: `proxy_request_buffering off` and no temporary files: with its defaults it would write an
  upload to the disk first.
- HAProxy: `http-reuse always`, as all others share upstream connections between clients.
- `nginx, equivalents` does with stock modules what the ten plugins do; see `MAPS` and `CHECKS`.
"""

import json
import os
import pathlib

from report import ROOT, profile
from stand import fail, free_port
from workloads import FIELDS, KEY

# Idle connections with one request after another do not reach it; bench/load/memory.py asks for more.
CONNECTIONS = 4096
FOREVER = 1000000000

# What nginx has for the ten plugins of routes/ten.json. Left out, in nginx's favour: prometheus
# (stock nginx counts for the whole process only, which it always does) and redirect (in this route
# it has nothing to do). The regular expressions are the same; nginx runs them through PCRE's JIT.
MAPS = f"""
    # key-auth: the consumer's name, empty for a key that nobody has.
    map $http_apikey $consumer {{ default ""; {KEY} bench; }}
    # request-id: the client's, else a random one.
    map $http_x_request_id $id {{ default $http_x_request_id; "" $request_id; }}
    # ua-restriction
    map $http_user_agent $bad_agent {{ default 0; "~*badbot" 1; "~^curl/6" 1; }}
    # uri-blocker
    map $request_uri $bad_uri {{ default 0; "~\\.php$" 1; "~^/admin/" 1; }}
"""
CHECKS = """
    allow 10.0.0.0/8; allow 127.0.0.0/8; deny all;      # ip-restriction
    if ($bad_uri) { return 403; }
    if ($bad_agent) { return 403; }
    if ($consumer = "") { return 401; }
    # cors
    add_header Vary Origin; add_header Access-Control-Allow-Origin https://app.test;
    add_header Access-Control-Allow-Methods GET,POST; add_header Access-Control-Max-Age 5;
    add_header Access-Control-Allow-Headers *;
    add_header X-Request-Id $id;                        # request-id
    add_header X-Answered-By nginx;                     # response-rewrite
    proxy_set_header X-Request-Id $id;
    proxy_set_header X-Consumer-Username $consumer;     # key-auth
    proxy_set_header X-Gateway nginx;                   # proxy-rewrite
    # What lockgate tells every upstream.
    proxy_set_header Host $http_host; proxy_set_header X-Real-IP $remote_addr;
    proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; proxy_set_header X-Forwarded-Proto $scheme;
    proxy_set_header X-Forwarded-Host $host; proxy_set_header X-Forwarded-Port $server_port;
"""


class Contender:
    """A gateway: its name, its command, the port of the workload and whether that speaks TLS."""

    def __init__(self, name, command, port, tls):
        self.name, self.command, self.port, self.tls = name, [str(part) for part in command], port, tls


def contender(stand, name, tls=False, workers=1, connections=CONNECTIONS, alone=False):
    """A contender of the tables by its name. `alone`: in one process, which callgrind needs."""
    options = dict(name=name, tls=tls, workers=workers, connections=connections)
    if name.startswith("floor"):
        return floor(stand, **options)
    if name == "haproxy":
        return haproxy(stand, **options)
    if name.startswith("nginx"):
        return nginx(stand, alone=alone, **options)
    return lockgate(stand, **options)


def nginx_conf(folder, name, http, workers=1, connections=CONNECTIONS, extra="", log="off"):
    """An nginx configuration."""
    user = "user root;" if os.geteuid() == 0 else ""
    temp = "".join(f"{kind}_temp_path {folder}/{name}-{kind};"
                   for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    path = folder / f"{name}.conf"
    path.write_text(f"""
        {user} worker_processes {workers}; daemon off; pid {folder}/{name}.pid; error_log stderr crit; {extra}
        events {{ worker_connections {connections}; }}
        http {{
            access_log {log}; keepalive_requests {FOREVER}; sendfile on; tcp_nopush on; client_max_body_size 0;
            {temp} {http}
        }}
    """)
    return path


def nginx(stand, name, tls, workers, connections, alone):
    port = free_port()
    rich = name == "nginx, equivalents"
    log = f"{stand.folder}/nginx-access.log" if "access log" in name else "off"
    secure = ""
    if tls:
        cert, key = stand.certificate()
        secure = f"ssl_certificate {cert}; ssl_certificate_key {key};"
    extra = ("pcre_jit on;" if rich else "") + ("master_process off;" if alone else "")
    conf = nginx_conf(stand.folder, f"proxy-{port}", f"""
        upstream u {{ server 127.0.0.1:{stand.upstream_port}; keepalive 1024; keepalive_requests {FOREVER}; }}
        {MAPS if rich else ""}
        server {{
            listen 127.0.0.1:{port} backlog=4096{" ssl" if tls else ""}; {secure}
            {CHECKS if rich else ""}
            proxy_http_version 1.1; proxy_set_header Connection "";
            proxy_request_buffering off; proxy_max_temp_file_size 0;
            location / {{ proxy_pass http://u; }}
        }}""", workers, connections, extra, log)
    return Contender(name, ["nginx", "-c", conf], port, tls)


def haproxy(stand, name, tls, workers, connections):
    port = free_port()
    secure = ""
    if tls:
        both = stand.folder / "haproxy.pem"
        both.write_text("".join(path.read_text() for path in stand.certificate()))
        secure = f"ssl crt {both}"
    conf = stand.folder / f"haproxy-{port}.conf"
    conf.write_text(f"""
global
    nbthread {workers}
    maxconn {connections}
    # It would ask for twice as many files, which idle clients do not need.
    no strict-limits
defaults
    mode http
    timeout connect 5s
    timeout client 75s
    timeout server 60s
    http-reuse always
frontend clients
    bind 127.0.0.1:{port} backlog 4096 {secure}
    default_backend nodes
backend nodes
    server one 127.0.0.1:{stand.upstream_port} pool-purge-delay 1h
""")
    # -db: in the foreground.
    return Contender(name, ["haproxy", "-db", "-f", conf], port, tls)


def floor(stand, name, tls, workers, connections):
    """Pingora without anything, or with the fields that lockgate adds."""
    del connections  # It has no limit.
    port = free_port()
    command = [binary("examples/floor"), f"127.0.0.1:{port}", f"127.0.0.1:{stand.upstream_port}", workers]
    command += [*(stand.certificate() if tls else ())] + (["fields"] if name == FIELDS else [])
    return Contender(name, command, port, tls)


def lockgate(stand, name, tls=False, workers=1, connections=CONNECTIONS):
    """lockgate with one route; words of the name say which lane, which plugins, whether workers
    keep their tasks and whether it logs."""
    del connections  # Its limit is higher.
    port, plain, status = free_port(), free_port(), free_port()
    conf = stand.folder / f"lockgate-{port}" / "conf"
    conf.mkdir(parents=True)
    here = [{"ip": "127.0.0.1", "port": port}]
    settings = {
        "apisix": {"node_listen": [{"ip": "127.0.0.1", "port": plain}] if tls else here,
                   "ssl": {"enable": tls, "listen": here if tls else []},
                   "status": {"ip": "127.0.0.1", "port": status}},
        "deployment": {"role": "data_plane", "role_data_plane": {"config_provider": "json"}},
        "nginx_config": {"worker_processes": workers, "http": {
            "enable_access_log": "access log" in name,
            "upstream": {"keepalive": 1024, "keepalive_requests": FOREVER}}},
        "plugin_attr": {"prometheus": {"enable_export_server": False}},
        "lockgate": {"engine": "general" if "general" in name else "auto",
                     "work_stealing": "own tasks" not in name},
    }
    # JSON is YAML.
    (conf / "config.yaml").write_text(json.dumps(settings))
    plugins = "ten" if "ten plugins" in name else "none"
    routes = json.loads((ROOT / "bench" / "load" / "routes" / f"{plugins}.json").read_text())
    for route in routes["routes"]:
        route["upstream"] = {"nodes": {f"127.0.0.1:{stand.upstream_port}": 1}}
    if tls:
        cert, key = (path.read_text() for path in stand.certificate())
        routes["ssls"] = [{"id": "bench", "sni": "localhost", "cert": cert, "key": key}]
    (conf / "apisix.json").write_text(json.dumps(routes))
    made = Contender(name, [binary("lockgate"), "run", "-c", conf / "config.yaml"], port, tls)
    made.routes, made.status_port = conf / "apisix.json", status
    return made


def binary(name):
    """A built program. The profile is `release` unless BENCH_PROFILE says `debug`."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    path = target / profile() / name
    if not path.exists():
        fail(f"{path} is not built; make load builds it")
    return path
