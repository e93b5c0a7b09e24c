"""The test stand: processes pinned to cores, their CPU time, wrk, and tables.

Core 0 has the upstream and the load, core 1 the gateway under test; whatever
else the machine does disturbs all contenders alike because they take turns.

    with Stand() as stand:
        gateway = stand.start(lockgate(stand, plugins="none"))
        result = stand.measure(gateway, "/small", seconds=4, connections=64)
"""

import contextlib
import datetime
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
RESULTS = ROOT / "bench" / "results"
# The upstream and the load share a core: together they need less than a gateway does.
LOAD_CORE, GATEWAY_CORE = 0, 1
# What the bodies are: one that fits the packet of the head, one that takes several.
BODIES = {"/small": b"hello world\n", "/large": b"x" * 10 * 1024}
# The key of the consumer in the configuration with plugins. Contenders without plugins ignore it,
# so that every one gets the same requests.
KEY = "bench-key"
# A start under valgrind takes seconds.
START_LIMIT = 60
# A browser would send more; this is what wrk and the raw client send.
HEADERS = {"apikey": KEY, "User-Agent": "bench"}


def fail(text):
    sys.exit("bench: " + text)


class Contender:
    """A gateway: its name, its command, the port it listens on."""

    def __init__(self, name, command, port):
        self.name, self.command, self.port = name, command, port


class Running:
    """A started contender."""

    def __init__(self, contender, process):
        self.name, self.port, self.process = contender.name, contender.port, process

    def pids(self):
        """The process and its children: nginx works in a child."""
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [self.process.pid] + [int(pid) for pid in children.read_text().split()]

    def cpu(self):
        """Seconds of CPU so far: in all (exact, all threads) and of it in user mode (sampled)."""
        total = user = system = 0.0
        for pid in self.pids():
            # The scheduler's own sum for a whole process: clock `CPUCLOCK_SCHED` of that pid.
            total += time.clock_gettime((~pid << 3) | 2)
            fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            user += int(fields[11])
            system += int(fields[12])
        # Ticks say how the time splits, the clock how much it is.
        ticks = os.sysconf("SC_CLK_TCK")
        return total, user / ticks, system / ticks

    def rss(self):
        """Resident memory in MiB."""
        kib = 0
        for pid in self.pids():
            text = pathlib.Path(f"/proc/{pid}/status").read_text()
            kib += int(re.search(r"VmRSS:\s+(\d+)", text).group(1))
        return kib / 1024


class Stand:
    """A folder, an upstream, and everything that has to end at the end.

    Without `measuring` nothing is pinned and Python itself is the upstream: neither nginx, wrk nor
    a second core is needed to see that everything works.
    """

    def __init__(self, measuring=True):
        self.measuring = measuring
        if measuring and (os.cpu_count() or 1) < 2:
            fail("two cores are needed, one for the load and one for the gateway")
        for tool in ("nginx", "wrk", "taskset") if measuring else ():
            if shutil.which(tool) is None:
                fail(f"{tool} is missing; bash tests/setup.sh bench installs it")
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lockgate-bench-"))
        self.processes = []
        self.upstream_port = free_port()

    def __enter__(self):
        for path, body in BODIES.items():
            (self.folder / "www").mkdir(exist_ok=True)
            (self.folder / "www" / path.strip("/")).write_bytes(body)
        if not self.measuring:
            command = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1",
                       "--directory", str(self.folder / "www"), str(self.upstream_port)]
            self.spawn(command, LOAD_CORE, self.upstream_port, "the upstream")
            return self
        conf = nginx_conf(self.folder, "upstream", f"""
            server {{
                listen 127.0.0.1:{self.upstream_port} backlog=4096;
                root {self.folder}/www;
                open_file_cache max=16;
            }}""")
        self.spawn(["nginx", "-c", str(conf)], LOAD_CORE, self.upstream_port, "the upstream")
        return self

    def __exit__(self, *_):
        for process in list(self.processes):
            self.stop(process)
        shutil.rmtree(self.folder, ignore_errors=True)

    def spawn(self, command, core, port, name):
        """Starts a process on a core and waits until it listens."""
        log = open(self.folder / f"{name.replace(' ', '-').replace('/', '-')}.log", "ab")
        pin = ["taskset", "-c", str(core)] if self.measuring else []
        process = subprocess.Popen([*pin, *command],
                                   stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.processes.append(process)
        deadline = time.monotonic() + START_LIMIT
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), 1).close()
                return process
            if process.poll() is not None or time.monotonic() > deadline:
                log.flush()
                lines = pathlib.Path(log.name).read_text(errors="replace").splitlines()[-15:]
                fail(f"{name} did not start: {' '.join(map(str, command))}\n" + "\n".join(lines))
            time.sleep(0.05)

    def stop(self, process):
        """Ends a process by its id."""
        self.processes.remove(process)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def start(self, contender, wrapper=()):
        """Starts a contender on its core, and makes sure that it answers what is expected."""
        process = self.spawn([*wrapper, *contender.command], GATEWAY_CORE, contender.port, contender.name)
        running = Running(contender, process)
        for path, body in BODIES.items():
            status, got = get(contender.port, path)
            if status != 200 or got != body:
                fail(f"{contender.name} answers {path} with status {status}: {got[:200]!r}")
        return running

    def measure(self, running, path, seconds, connections):
        """One round of load."""
        before = running.cpu()
        load = wrk(running.port, path, seconds, connections)
        after = running.cpu()
        total, user, system = (b - a for a, b in zip(before, after))
        split = user / (user + system) if user + system else 0.0
        requests = max(load["requests"], 1)
        return {
            "cpu_us": total / requests * 1e6,
            "user_us": total * split / requests * 1e6,
            "rps": load["rps"], "p50_ms": load["p50_ms"], "p99_ms": load["p99_ms"],
            "rss_mib": running.rss(), "failed": load["failed"],
        }


def wrk(port, path, seconds, connections):
    """Runs wrk; what it reports as numbers."""
    headers = [arg for name, value in HEADERS.items() for arg in ("-H", f"{name}: {value}")]
    command = ["taskset", "-c", str(LOAD_CORE), "wrk", "-t1", f"-c{connections}", f"-d{seconds}s",
               "--latency", "--timeout", "10s", *headers, f"http://127.0.0.1:{port}{path}"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"(\d+) requests in", text)
    if not found:
        fail(f"wrk said nothing of use:\n{text}")
    errors = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", text)
    other = re.search(r"Non-2xx or 3xx responses: (\d+)", text)
    return {
        "requests": int(found.group(1)),
        "rps": float(re.search(r"Requests/sec:\s+([\d.]+)", text).group(1)),
        "p50_ms": percentile(text, "50%"),
        "p99_ms": percentile(text, "99%"),
        "failed": sum(map(int, errors.groups() if errors else ())) + int(other.group(1) if other else 0),
    }


def percentile(text, name):
    value, unit = re.search(rf"^\s+{name}\s+([\d.]+)(us|ms|s)\s*$", text, re.M).groups()
    return float(value) * {"us": 1e-3, "ms": 1.0, "s": 1e3}[unit]


def get(port, path):
    """Status and body of one request."""
    with socket.create_connection(("127.0.0.1", port), 10) as conn:
        fields = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())
        conn.sendall(f"GET {path} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n{fields}\r\n".encode())
        data = b""
        while chunk := conn.recv(65536):
            data += chunk
    head, _, body = data.partition(b"\r\n\r\n")
    words = head.split(None, 2)
    return int(words[1]) if len(words) > 1 and words[1].isdigit() else 0, body


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


# ---- contenders ----

def nginx_conf(folder, name, http, extra=""):
    """An nginx configuration with one worker and without logs."""
    user = "user root;" if os.geteuid() == 0 else ""
    temp = "".join(f"{kind}_temp_path {folder}/{name}-{kind};"
                   for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    path = folder / f"{name}.conf"
    path.write_text(f"""
        {user} worker_processes 1; daemon off; pid {folder}/{name}.pid; error_log stderr crit; {extra}
        events {{ worker_connections 4096; }}
        http {{ access_log off; keepalive_requests 1000000000; sendfile on; tcp_nopush on; {temp} {http} }}
    """)
    return path


def nginx(stand, extra=""):
    """nginx as a proxy that keeps its upstream connections."""
    port = free_port()
    conf = nginx_conf(stand.folder, f"proxy-{port}", f"""
        upstream u {{ server 127.0.0.1:{stand.upstream_port}; keepalive 1024; keepalive_requests 1000000000; }}
        server {{
            listen 127.0.0.1:{port} backlog=4096;
            location / {{ proxy_pass http://u; proxy_http_version 1.1; proxy_set_header Connection ""; }}
        }}""", extra)
    return Contender("nginx", ["nginx", "-c", str(conf)], port)


def floor(stand):
    """Pingora without anything."""
    port = free_port()
    command = [str(binary("examples/floor")), f"127.0.0.1:{port}", f"127.0.0.1:{stand.upstream_port}"]
    return Contender("floor", command, port)


def lockgate(stand, plugins, access_log=False):
    """lockgate with one route. `plugins`: `none` or `ten`, as in the folder routes/."""
    port = free_port()
    name = f"lockgate, {plugins} plugins" if plugins != "none" else "lockgate"
    name += ", access log" if access_log else ""
    conf = stand.folder / f"lockgate-{port}" / "conf"
    conf.mkdir(parents=True)
    settings = {
        "apisix": {"node_listen": [{"ip": "127.0.0.1", "port": port}], "ssl": {"enable": False},
                   "status": {"ip": "127.0.0.1", "port": free_port()}},
        "deployment": {"role": "data_plane", "role_data_plane": {"config_provider": "json"}},
        "nginx_config": {"worker_processes": 1, "http": {"enable_access_log": access_log}},
        "plugin_attr": {"prometheus": {"enable_export_server": False}},
    }
    # JSON is YAML.
    (conf / "config.yaml").write_text(json.dumps(settings))
    routes = json.loads((ROOT / "bench" / "load" / "routes" / f"{plugins}.json").read_text())
    for route in routes["routes"]:
        route["upstream"] = {"nodes": {f"127.0.0.1:{stand.upstream_port}": 1}}
    (conf / "apisix.json").write_text(json.dumps(routes))
    contender = Contender(name, [str(binary("lockgate")), "run", "-c", str(conf / "config.yaml")], port)
    contender.routes = conf / "apisix.json"
    contender.status_port = settings["apisix"]["status"]["port"]
    return contender


def binary(name):
    """A built program. The profile is `release` unless BENCH_PROFILE says `debug`."""
    profile = os.environ.get("BENCH_PROFILE", "release")
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    path = target / profile / name
    if not path.exists():
        fail(f"{path} is not built; make load builds it")
    return path


# ---- results ----

def facts():
    """What a reader has to know about the machine, as lines of Markdown."""
    def first(command):
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
        lines = (done.stdout or done.stderr).splitlines()
        return lines[0].strip() if done.returncode in (0, 1) and lines else "unknown"
    model = re.search(r"model name\s*:\s*(.*)", pathlib.Path("/proc/cpuinfo").read_text())
    dirty = " with changes" if subprocess.run(["git", "diff", "--quiet", "HEAD"], cwd=ROOT).returncode else ""
    return [
        f"- commit {first(['git', 'rev-parse', '--short', 'HEAD'])}{dirty}, profile "
        f"{os.environ.get('BENCH_PROFILE', 'release')}, {first(['rustc', '--version'])}",
        f"- {os.cpu_count()} cores, {model.group(1) if model else platform.machine()}, "
        f"Linux {platform.release()}, load {os.getloadavg()[0]:.1f} at the start",
        f"- {first(['nginx', '-v'])}, {' '.join(first(['wrk', '-v']).split()[:2])}",
    ]


def table(columns, rows):
    """Markdown lines of a table; numbers to the right."""
    rows = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]
    pad = lambda row: "| " + " | ".join(
        cell.ljust(width) if i == 0 else cell.rjust(width) for i, (cell, width) in enumerate(zip(row, widths))) + " |"
    rule = "|" + "|".join("-" * (w + 1) + ("-" if i == 0 else ":") for i, w in enumerate(widths)) + "|"
    return [pad(columns), rule, *map(pad, rows)]


def publish(kind, lines):
    """Prints a result and keeps it as bench/results/DATE-KIND.md; one of a debug build is not kept."""
    text = "\n".join(lines) + "\n"
    print(text)
    if os.environ.get("BENCH_PROFILE", "release") != "release":
        return
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{datetime.date.today().isoformat()}-{kind}.md"
    path.write_text(text)
    print(f"written to {path.relative_to(ROOT)}")
