"""The test stand: processes pinned to cores, their CPU time, and wrk.

Core 0 has the upstream and the load, core 1 the gateway under test; whatever
else the machine does disturbs all contenders alike because they take turns.

    with Stand() as stand:
        gateway = stand.start(contender(stand, "lockgate"), [SMALL])
        result = stand.measure(gateway, SMALL, seconds=4, connections=64)
"""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

from client import Conn
from workloads import BODIES, MIB, UPLOAD

# The upstream and the load share a core: together they need less than a gateway does.
LOAD_CORE, GATEWAY_CORE, BOTH = "0", "1", "0,1"
# A start under valgrind takes seconds.
START_LIMIT = 60
# Bulky requests: fewer at a time, or the load generator's memory is what is measured.
BULK_CONNECTIONS = 16


def fail(text):
    sys.exit("bench: " + text)


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

    Without `measuring` nothing is pinned and upstream.py is the upstream: neither nginx, wrk nor a
    second core is needed to see that everything works, or to count instructions.
    """

    def __init__(self, measuring=True):
        self.measuring = measuring
        if measuring and (os.cpu_count() or 1) < 2:
            fail("two cores are needed, one for the load and one for the gateway")
        for tool in ("nginx", "haproxy", "wrk", "taskset", "openssl") if measuring else ():
            if shutil.which(tool) is None:
                fail(f"{tool} is missing; bash tests/setup.sh bench installs it")
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lockgate-bench-"))
        self.processes = []
        self.upstream_port = free_port()

    def __enter__(self):
        if not self.measuring:
            command = [sys.executable, str(pathlib.Path(__file__).with_name("upstream.py"))]
            self.spawn([*command, str(self.upstream_port)], LOAD_CORE, self.upstream_port, "the upstream")
            return self
        (self.folder / "www").mkdir()
        for path, body in BODIES.items():
            (self.folder / "www" / path.strip("/")).write_bytes(body)
        from contenders import nginx_conf  # It needs this module.
        # Reads an upload to its end before it answers; what answers is a file, through a second listener.
        conf = nginx_conf(self.folder, "upstream", f"""
            upstream files {{ server unix:{self.folder}/files; keepalive 256; keepalive_requests 1000000000; }}
            server {{
                listen 127.0.0.1:{self.upstream_port} backlog=4096; listen unix:{self.folder}/files;
                root {self.folder}/www; open_file_cache max=16;
                location = {UPLOAD} {{
                    client_body_buffer_size {MIB}; proxy_pass http://files/small; proxy_http_version 1.1;
                    proxy_method GET; proxy_pass_request_body off;
                    proxy_set_header Content-Length ""; proxy_set_header Connection "";
                }}
            }}""")
        self.spawn(["nginx", "-c", str(conf)], LOAD_CORE, self.upstream_port, "the upstream")
        return self

    def __exit__(self, *_):
        for process in list(self.processes):
            self.stop(process)
        shutil.rmtree(self.folder, ignore_errors=True)

    def certificate(self):
        """Paths of a certificate for localhost and of its key."""
        cert, key = self.folder / "cert.pem", self.folder / "key.pem"
        if not cert.exists():
            subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
                            "-nodes", "-days", "2", "-subj", "/CN=localhost", "-addext",
                            "subjectAltName=DNS:localhost", "-keyout", key, "-out", cert],
                           check=True, capture_output=True)
        return cert, key

    def spawn(self, command, cores, port, name):
        """Starts a process on its cores and waits until it listens."""
        log = open(self.folder / f"{re.sub('[^a-z]+', '-', name)}.log", "ab")
        pin = ["taskset", "-c", cores] if self.measuring else []
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

    def start(self, contender, workloads, wrapper=(), cores=GATEWAY_CORE):
        """Starts a contender, and makes sure that it answers these workloads as expected."""
        process = self.spawn([*wrapper, *contender.command], cores, contender.port, contender.name)
        for workload in workloads:
            try:
                with Conn(contender.port, contender.tls) as conn:
                    conn.ask(workload, contender.port)
            except (ValueError, OSError) as error:
                fail(f"{contender.name} fails at `{workload.title}`: {error}")
        return Running(contender, process)

    def measure(self, running, workload, seconds, connections, **more):
        """One round of load."""
        before = running.cpu()
        load = self.wrk(running.port, workload, seconds, connections, **more)
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

    def wrk(self, port, workload, seconds, connections, cores=LOAD_CORE, threads=1, nice=0):
        """Runs wrk; what it reports as numbers."""
        if workload.bulk:
            connections = min(connections, BULK_CONNECTIONS)
        headers = [arg for name, value in workload.fields for arg in ("-H", f"{name}: {value}")]
        script = self.folder / f"{workload.name}.lua"
        # Repeated, not quoted: a body is one byte again and again.
        script.write_text(f'wrk.method = "{workload.method}"\n' + (
            f'wrk.body = string.rep("x", {len(workload.body)})\n' if workload.body else ""))
        scheme = "https" if workload.tls else "http"
        command = ["nice", "-n", str(nice), "taskset", "-c", cores, "wrk", f"-t{threads}", f"-c{connections}",
                   f"-d{seconds}s", "--latency", "--timeout", "10s", "-s", str(script), *headers,
                   f"{scheme}://localhost:{port}{workload.path}"]
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


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]
