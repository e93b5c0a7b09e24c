"""What the clients talk to: a gateway, an upstream, and an etcd where one is wanted.

Everything is on loopback with free ports, in a folder of its own, and ended by its process id.
"""

import contextlib
import http.server
import json
import os
import pathlib
import shutil
import socket
import subprocess
import tempfile
import threading
import time

import requests

ROOT = pathlib.Path(__file__).resolve().parents[2]
ADMIN_KEY, VIEWER_KEY = "clients-admin-key", "clients-viewer-key"
# A debug build on a busy machine is ready well within this.
START_SECONDS = 60


def gateway_binary():
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return pathlib.Path(os.environ.get("LOCKGATE_BIN", target / "debug" / "lockgate"))


def free_ports(count):
    """Ports that nobody had a moment ago."""
    with contextlib.ExitStack() as stack:
        socks = [stack.enter_context(socket.socket()) for _ in range(count)]
        for sock in socks:
            sock.bind(("127.0.0.1", 0))
        return [sock.getsockname()[1] for sock in socks]


class Upstream(http.server.BaseHTTPRequestHandler):
    """Answers with what it was asked."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        body = f"{self.command} {self.path} {self.headers.get('X-Consumer-Username', '-')}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        """Nobody reads it."""


class Stand:
    """A running gateway. Its `deployment` says where the configuration is kept."""

    def __init__(self, mode, **deployment):
        self.mode, self.processes, self.etcd_port = mode, [], None
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="lockgate-clients-"))
        self.deployment = {"role": "traditional", **deployment}
        self.http, self.admin_port, self.status = free_ports(3)
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Upstream)
        self.upstream = f"127.0.0.1:{self.server.server_address[1]}"

    @property
    def admin(self):
        return f"http://127.0.0.1:{self.admin_port}/apisix/admin"

    def __enter__(self):
        try:
            threading.Thread(target=self.server.serve_forever, daemon=True).start()
            if self.mode == "etcd":
                self.start_etcd()
            self.start_gateway()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in reversed(self.processes):
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.server.shutdown()
        self.server.server_close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def start_etcd(self):
        self.etcd_port, peer = free_ports(2)
        client, peer = f"http://127.0.0.1:{self.etcd_port}", f"http://127.0.0.1:{peer}"
        self.spawn("etcd", ["etcd", "--name", "clients", "--data-dir", str(self.folder / "etcd"),
                            "--listen-client-urls", client, "--advertise-client-urls", client,
                            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                            "--initial-cluster", f"clients={peer}"])
        self.until("etcd", f"{client}/health")
        self.deployment["etcd"] = {"host": [client], "prefix": "/apisix", "timeout": 10}

    def start_gateway(self):
        conf = self.folder / "conf"
        conf.mkdir()
        here = lambda port: {"ip": "127.0.0.1", "port": port}
        keys = [{"name": "admin", "key": ADMIN_KEY, "role": "admin"},
                {"name": "viewer", "key": VIEWER_KEY, "role": "viewer"}]
        settings = {
            "apisix": {"node_listen": [here(self.http)], "status": here(self.status), "ssl": {"enable": False},
                       "proxy_mode": "http&stream"},
            "deployment": {**self.deployment, "admin": {"admin_listen": here(self.admin_port), "admin_key": keys}},
            "nginx_config": {"http": {"enable_access_log": False}},
            "plugin_attr": {"prometheus": {"enable_export_server": False}},
        }
        # JSON is YAML.
        (conf / "config.yaml").write_text(json.dumps(settings))
        self.spawn("gateway", [str(gateway_binary()), "run", "-c", str(conf / "config.yaml")])
        self.until("gateway", f"http://127.0.0.1:{self.status}/status/ready")

    def spawn(self, name, command):
        with open(self.folder / f"{name}.log", "wb") as log:
            self.processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    def until(self, name, url):
        """Waits until a page answers 200."""
        deadline = time.monotonic() + START_SECONDS
        while True:
            with contextlib.suppress(requests.ConnectionError):
                if requests.get(url, timeout=5).status_code == 200:
                    return
            ended = self.processes[-1].poll()
            if ended is not None or time.monotonic() > deadline:
                log = (self.folder / f"{name}.log").read_text(errors="replace")
                raise RuntimeError(f"{name} did not start (status {ended}):\n{log[-3000:]}")
            time.sleep(0.02)

    def served(self, path, host="clients.test", **headers):
        """Status and body of a request through the gateway."""
        answer = requests.get(f"http://127.0.0.1:{self.http}{path}", headers={"Host": host, **headers}, timeout=10)
        return answer.status_code, answer.text
