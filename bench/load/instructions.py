"""User instructions per request, counted by callgrind: the figure that no neighbour disturbs.

Each contender runs twice, for a few requests and for more; the difference is free of start-up.
Four keep-alive connections, all with a request in flight. Not counted: the kernel. Counted too
high: large copies, of which valgrind counts every byte.
"""

import argparse
import datetime
import re
import shutil
import socket

import stand as s

CONNECTIONS = 4
COLUMNS = ["contender", "instructions/req", "x floor"]


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--requests", type=int, default=2000, help="requests that are counted (2000)")
    args.add_argument("--warm", type=int, default=400, help="requests of the short run (400)")
    args.add_argument("--only", default="", help="contenders whose name contains this, and the floor")
    args = args.parse_args()
    if shutil.which("valgrind") is None:
        s.fail("valgrind is missing; bash tests/setup.sh bench installs it")

    lines = [f"# Instructions, {datetime.date.today().isoformat()}", "", *s.facts(),
             f"- user instructions per request by callgrind: {CONNECTIONS} keep-alive connections, a run of "
             f"{args.warm + args.requests} requests less one of {args.warm}"]
    with s.Stand() as stand:
        makers = [lambda: s.floor(stand), lambda: s.lockgate(stand, "none"),
                  lambda: s.lockgate(stand, "none", access_log=True), lambda: s.lockgate(stand, "ten"),
                  # One process: callgrind's sum is that of the process it started.
                  lambda: s.nginx(stand, "master_process off;")]
        for path, body in s.BODIES.items():
            results = {}
            for make in makers:
                name = make().name
                if name != "floor" and args.only not in name:
                    continue
                few = count(stand, make(), path, args.warm)
                many = count(stand, make(), path, args.warm + args.requests)
                results[name] = (many - few) / args.requests
                print(f"{path}: {name}: {results[name]:.0f}", flush=True)
            rows = [[name, f"{n:.0f}", f"{n / results['floor']:.2f}"] for name, n in results.items()]
            lines += ["", f"## Answers of {len(body)} bytes", "", *s.table(COLUMNS, rows)]
    s.publish("instructions", lines)


def count(stand, contender, path, requests):
    """Instructions of a whole run with that many requests."""
    out = stand.folder / f"callgrind-{contender.port}"
    wrapper = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}"]
    running = stand.start(contender, wrapper)
    send(contender.port, path, requests)
    stand.stop(running.process)
    found = re.search(r"^(?:totals|summary): (\d+)", out.read_text(), re.M) if out.exists() else None
    if not found:
        s.fail(f"callgrind left no sum for {contender.name}: it did not end by itself")
    return int(found.group(1))


def send(port, path, requests):
    """Requests on all connections at once, answers read before the next ones."""
    fields = "".join(f"{name}: {value}\r\n" for name, value in s.HEADERS.items())
    request = f"GET {path} HTTP/1.1\r\nHost: bench\r\n{fields}\r\n".encode()
    conns = [socket.create_connection(("127.0.0.1", port), 30) for _ in range(CONNECTIONS)]
    try:
        for _ in range(requests // CONNECTIONS):
            for conn in conns:
                conn.sendall(request)
            for conn in conns:
                read_answer(conn)
    finally:
        for conn in conns:
            conn.close()


def read_answer(conn):
    data = b""
    while b"\r\n\r\n" not in data:
        data += receive(conn)
    head, _, body = data.partition(b"\r\n\r\n")
    if not head.startswith(b"HTTP/1.1 200"):
        s.fail(f"unexpected answer: {head[:200]!r}")
    length = re.search(rb"(?i)content-length: *(\d+)", head)
    if not length:
        s.fail("an answer without Content-Length")
    missing = int(length.group(1)) - len(body)
    while missing > 0:
        missing -= len(receive(conn))


def receive(conn):
    data = conn.recv(65536)
    if not data:
        s.fail("the connection was closed in the middle")
    return data


if __name__ == "__main__":
    main()
