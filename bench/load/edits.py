"""Edits of the routes under load: does a request notice?

The same load runs twice: quiet, and with the routes file replaced twenty times a second. Every
edit changes the route under load itself (a header it sets) and one of its many neighbours.
"""

import argparse
import datetime
import http.client
import json
import os
import threading
import time

from contenders import contender
from report import facts, publish, table
from stand import Stand, fail
from workloads import SMALL

# Enough that a rebuild of everything for each edit would show.
NEIGHBOURS = 1000
PER_SECOND = 20
COLUMNS = ["", "requests", "failed", "req/s", "p50 ms", "p99 ms", "edits", "swaps"]


class Editor(threading.Thread):
    """Replaces the file until told to stop."""

    def __init__(self, path, routes):
        super().__init__(daemon=True)
        self.path, self.routes, self.done, self.edits = path, routes, threading.Event(), 0

    def run(self):
        due = time.monotonic()
        while not self.done.is_set():
            self.edits += 1
            self.routes["routes"][0]["plugins"] = {
                "proxy-rewrite": {"headers": {"set": {"X-Edit": str(self.edits)}}}}
            self.routes["routes"][1 + self.edits % NEIGHBOURS]["priority"] = self.edits
            write(self.path, self.routes)
            # A late edit is not made up for in a burst: the pace is the point.
            due = max(due + 1 / PER_SECOND, time.monotonic())
            time.sleep(max(due - time.monotonic(), 0))


def write(path, routes):
    """By rename, as deployment tools do."""
    fresh = path.with_suffix(".new")
    fresh.write_text(json.dumps(routes))
    os.replace(fresh, path)


def config_status(port):
    conn = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    conn.request("GET", "/status/config")
    return json.loads(conn.getresponse().read())


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--seconds", type=int, default=60, help="length of each part (60)")
    args.add_argument("--connections", type=int, default=64, help="keep-alive connections (64)")
    args = args.parse_args()
    lines = [f"# Edits under load, {datetime.date.today().isoformat()}", "", *facts(),
             f"- {1 + NEIGHBOURS} routes, {PER_SECOND} edits a second by rename, each changing the route under "
             f"load and one other; {args.connections} keep-alive connections; one worker; the thread that "
             "compiles shares the worker's core"]
    with Stand() as stand:
        made = contender(stand, "lockgate")
        routes = json.loads(made.routes.read_text())
        upstream = routes["routes"][0]["upstream"]
        routes["routes"] += [{"id": f"n{i}", "uri": f"/neighbour/{i}/*", "upstream": upstream}
                             for i in range(NEIGHBOURS)]
        write(made.routes, routes)
        running = stand.start(made, [SMALL])
        stand.wrk(running.port, SMALL, 1, args.connections)
        print("quiet", flush=True)
        quiet = stand.wrk(running.port, SMALL, args.seconds, args.connections)
        before = config_status(made.status_port)
        editor = Editor(made.routes, routes)
        editor.start()
        print("with edits", flush=True)
        busy = stand.wrk(running.port, SMALL, args.seconds, args.connections)
        editor.done.set()
        editor.join()
        after = config_status(made.status_port)
    swaps = after["revision"] - before["revision"]
    if after["rejected"]:
        fail(f"an edit was rejected: {after['rejected'][0]}")
    if swaps == 0:
        fail("no edit arrived: the figures would say nothing")
    rows = [[name, r["requests"], r["failed"], f"{r['rps']:.0f}", f"{r['p50_ms']:.2f}", f"{r['p99_ms']:.2f}", e, w]
            for name, r, e, w in (("quiet", quiet, 0, 0), ("with edits", busy, editor.edits, swaps))]
    lines += ["", *table(COLUMNS, rows)]
    publish("edits", lines)


if __name__ == "__main__":
    main()
