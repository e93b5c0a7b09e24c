"""Gateways that keep their configuration in a store, an etcd, and many routes in them.

    with Stand() as stand:
        etcd = Etcd(stand)
        etcd.fill(100_000)
        node = Node(stand, etcd)
        node.start()
        node.admin().put("routes/new", {"uri": "/new", ...})
"""

import base64
import concurrent.futures
import http.client
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

from client import Conn
from contenders import FOREVER, binary
from stand import GATEWAY_CORE, LOAD_CORE, Running, fail, free_port

KEY = "bench-admin-key"
# Upstreams that the routes share.
UPSTREAMS = 100
# Operations that etcd takes in one transaction.
TXN = 128
# Connections that fill an embedded store.
FILLERS = 16
# For the first load of the largest configuration, with a debug build.
LOAD_LIMIT = 300


def route(path, number):
    """A route as people write them: a name, labels, an upstream by id, and a plugin."""
    return {"uri": path, "name": f"route {number}", "labels": {"team": f"t{number % 50}"},
            "plugins": {"proxy-rewrite": {"uri": "/small"}}, "upstream_id": f"u{number % UPSTREAMS}"}


def resources(stand, count):
    """What a store is filled with: path and resource."""
    for number in range(UPSTREAMS):
        yield f"upstreams/u{number}", {"nodes": {f"127.0.0.1:{stand.upstream_port}": 1}}
    for number in range(count):
        yield f"routes/r{number}", route(f"/r/{number}/*", number)


class AdminConn(Conn):
    """A keep-alive connection to the Admin API."""

    def put(self, path, value):
        """The status."""
        body = json.dumps(value).encode()
        head = f"PUT /apisix/admin/{path} HTTP/1.1\r\nHost: admin\r\nX-API-KEY: {KEY}\r\nContent-Length: {len(body)}\r\n\r\n"
        self.sock.sendall(head.encode() + body)
        return self.answer()[0]


class Etcd:
    """An etcd on the load's core; its data is on a disk, as in operation."""

    def __init__(self, stand):
        self.stand, self.port, peer = stand, free_port(), free_port()
        url, peer = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{peer}"
        command = ["etcd", "--name", "bench", "--data-dir", tempfile.mkdtemp(dir=stand.folder, prefix="etcd-"),
                   "--listen-client-urls", url, "--advertise-client-urls", url, "--listen-peer-urls", peer,
                   "--initial-advertise-peer-urls", peer, "--initial-cluster", f"bench={peer}", "--log-level", "error"]
        self.process = stand.spawn(command, LOAD_CORE, self.port, "etcd")

    def fill(self, count):
        """Puts resources into it as APISIX would have them there."""
        conn = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        code = lambda text: base64.b64encode(text.encode()).decode()
        ops = []
        for path, value in resources(self.stand, count):
            name = path.split("/")[1]
            text = json.dumps({**value, "id": name, "create_time": 1767225600, "update_time": 1767225600})
            ops.append({"request_put": {"key": code(f"/apisix/{path}"), "value": code(text)}})
            if len(ops) == TXN:
                self.ask(conn, ops)
                ops = []
        if ops:
            self.ask(conn, ops)

    def ask(self, conn, ops):
        conn.request("POST", "/v3/kv/txn", json.dumps({"success": ops}))
        answer = conn.getresponse()
        text = answer.read()
        if answer.status != 200:
            fail(f"etcd answers {answer.status}: {text[:300]!r}")

    def stop(self):
        self.stand.stop(self.process)


class Node:
    """A gateway over a store: an etcd, or a file of its own."""

    def __init__(self, stand, etcd=None):
        self.stand, self.etcd = stand, etcd
        self.port, self.admin_port, status = free_port(), free_port(), free_port()
        self.home = pathlib.Path(tempfile.mkdtemp(dir=stand.folder, prefix="node-"))
        (self.home / "conf").mkdir()
        here = lambda port: {"ip": "127.0.0.1", "port": port}
        deployment = {"role": "traditional", "admin": {
            "admin_listen": here(self.admin_port), "admin_key": [{"name": "bench", "key": KEY, "role": "admin"}]}}
        if etcd:
            deployment["role_traditional"] = {"config_provider": "etcd"}
            deployment["etcd"] = {"host": [f"http://127.0.0.1:{etcd.port}"], "prefix": "/apisix", "timeout": 60}
        settings = {
            "apisix": {"node_listen": [here(self.port)], "ssl": {"enable": False}, "status": here(status)},
            "deployment": deployment,
            "nginx_config": {"worker_processes": 1, "error_log_level": "warn", "http": {
                "enable_access_log": False, "upstream": {"keepalive": 1024, "keepalive_requests": FOREVER}}},
            "plugin_attr": {"prometheus": {"enable_export_server": False}},
        }
        # JSON is YAML.
        (self.home / "conf" / "config.yaml").write_text(json.dumps(settings))
        self.name, self.running = "lockgate", None

    def start(self, path="/r/0/x", cores=GATEWAY_CORE):
        """Starts it; gives the seconds until a path was served."""
        pin = ["taskset", "-c", cores] if self.stand.measuring else []
        log = open(self.home / "gateway.log", "ab")
        begin = time.monotonic()
        process = subprocess.Popen([*pin, binary("lockgate"), "run", "-c", self.home / "conf" / "config.yaml"],
                                   stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.stand.processes.append(process)
        while self.served(path) != 200:
            if process.poll() is not None or time.monotonic() - begin > LOAD_LIMIT:
                log.flush()
                fail("the gateway did not start:\n" + (self.home / "gateway.log").read_text(errors="replace")[-2000:])
            time.sleep(0.005)
        took = time.monotonic() - begin
        self.running = Running(self, process)
        return took

    def stop(self):
        self.stand.stop(self.running.process)

    def admin(self):
        return AdminConn(self.admin_port)

    def served(self, path):
        """The status of one request on a connection of its own; 0 when nobody listens yet."""
        try:
            with Conn(self.port) as conn:
                return get(conn, path)
        except (OSError, ValueError):
            return 0

    def fill(self, count):
        """Fills the embedded store through the Admin API, in memory first: a disk would be waited for at each write.
        Gives the seconds it took."""
        ram = pathlib.Path("/dev/shm")
        beside = pathlib.Path(tempfile.mkdtemp(dir=ram if ram.is_dir() else self.stand.folder, prefix="lockgate-bench-"))
        try:
            # Nothing is there yet: what starts is served on the second route.
            (self.home / "data").symlink_to(beside)
            self.running = None
            empty = self.begin_empty()
            start = time.monotonic()
            put_all(self, list(resources(self.stand, count)))
            took = time.monotonic() - start
            self.stand.stop(empty)
            (self.home / "data").unlink()
            shutil.copytree(beside, self.home / "data")
        finally:
            shutil.rmtree(beside, ignore_errors=True)
        os.sync()
        return took

    def begin_empty(self):
        return self.stand.spawn([binary("lockgate"), "run", "-c", str(self.home / "conf" / "config.yaml")], GATEWAY_CORE,
                                self.admin_port, "lockgate filled")


def put_all(node, items):
    """Upstreams first: routes refer to them."""
    def put(part):
        with node.admin() as conn:
            for path, value in part:
                if conn.put(path, value) not in (200, 201):
                    fail(f"{path} was refused")
    put(items[:UPSTREAMS])
    parts = [items[UPSTREAMS + at::FILLERS] for at in range(FILLERS)]
    with concurrent.futures.ThreadPoolExecutor(FILLERS) as pool:
        list(pool.map(put, parts))


def get(conn, path):
    """The status of a GET on a kept connection."""
    conn.sock.sendall(f"GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n".encode())
    return conn.answer()[0]
