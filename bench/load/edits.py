"""Edits of the routes under load: does a request notice?

The same load runs in turns: quiet, with twenty edits a second of a file that nobody reads, and with
twenty a second of the routes. The second shows what making and writing the file does to the load and
to the machine; only what the third adds is the gateway's. Every edit changes the route under load
itself (a header it sets) and one of its many neighbours.
"""

import argparse
import datetime
import http.client
import json
import os
import pathlib
import statistics
import threading
import time

from contenders import contender
from report import facts, publish, table
from stand import LOAD_CORE, Stand, fail
from workloads import SMALL

# Enough that a rebuild of everything for each edit would show.
NEIGHBOURS = 1000
PER_SECOND = 20
# The p99 with edits may be so many times that of the quiet turn of the same round.
TARGET = 1.5
QUIET, ELSEWHERE, EDITS = "quiet", "edits of another file", "with edits"
COLUMNS = ["", "requests", "failed", "req/s", "p50 ms", "p99 ms", "x quiet", "edits", "swaps", "swap ms",
           "config ms/s", "worker waits ms/s"]


class Editor(threading.Thread):
    """Replaces a file until told to stop."""

    def __init__(self, path, routes):
        super().__init__(daemon=True)
        self.path, self.done, self.edits = path, threading.Event(), 0
        # Rendered once: an editor that is busy for milliseconds would be what is measured.
        self.first, *self.parts = (json.dumps(route) for route in routes["routes"])

    def run(self):
        # On the load's core: the gateway's is for what the gateway does.
        os.sched_setaffinity(0, {int(LOAD_CORE)})
        due = time.monotonic()
        while not self.done.is_set():
            self.edits += 1
            plugins = {"proxy-rewrite": {"headers": {"set": {"X-Edit": str(self.edits)}}}}
            first = self.first[:-1] + f', "plugins": {json.dumps(plugins)}}}'
            at = self.edits % NEIGHBOURS
            changed = self.parts[at][:-1] + f', "priority": {self.edits}}}'
            write(self.path, [first, *self.parts[:at], changed, *self.parts[at + 1:]])
            # A late edit is not made up for in a burst: the pace is the point.
            due = max(due + 1 / PER_SECOND, time.monotonic())
            time.sleep(max(due - time.monotonic(), 0))


def write(path, parts):
    """By rename, as deployment tools do."""
    fresh = path.with_suffix(".new")
    fresh.write_text('{"routes": [' + ", ".join(parts) + "]}")
    os.replace(fresh, path)


def config_status(port):
    conn = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    conn.request("GET", "/status/config")
    return json.loads(conn.getresponse().read())


def threads(pid):
    """Milliseconds that the thread of the configuration ran, and that the worker waited for its core."""
    ran = waited = 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        on_core, for_core, _ = map(int, (task / "schedstat").read_text().split())
        name = (task / "comm").read_text().strip()
        ran += on_core if name == "config" else 0
        waited += for_core if name == "front" else 0
    return ran / 1e6, waited / 1e6


def swap_ms(log, start):
    """Each swap's time from the batch to the snapshot in use, of the log's lines from `start` on."""
    with open(log, "rb") as lines:
        lines.seek(start)
        words = lines.read().decode(errors="replace").split("took_us=")[1:]
    return [int(word.split(None, 1)[0].strip("\x1b[0m")) / 1000 for word in words]


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--seconds", type=int, default=20, help="length of each turn (20)")
    args.add_argument("--rounds", type=int, default=3, help="rounds of the three turns (3)")
    args.add_argument("--connections", type=int, default=64, help="keep-alive connections (64)")
    args = args.parse_args()
    lines = [f"# Edits under load, {datetime.date.today().isoformat()}", "", *facts(),
             f"- {1 + NEIGHBOURS} routes, {PER_SECOND} edits a second by rename, each changing the route under "
             f"load and one other; {args.connections} keep-alive connections; one worker; all threads of the "
             "gateway share its core; wrk, the upstream and the editor share the other",
             f"- {args.rounds} rounds of {args.seconds} s a turn; medians, failed requests in all; `x quiet` against "
             "the quiet turn of the same round; `swap ms`: from a parsed file to the snapshot in use, median; "
             "`config`: CPU of the thread that reads, compiles and swaps; `worker waits`: ready to run and "
             "without its core"]
    turns = {QUIET: [], ELSEWHERE: [], EDITS: []}
    with Stand() as stand:
        made = contender(stand, "lockgate")
        routes = json.loads(made.routes.read_text())
        upstream = routes["routes"][0]["upstream"]
        routes["routes"] += [{"id": f"n{i}", "uri": f"/neighbour/{i}/*", "upstream": upstream}
                             for i in range(NEIGHBOURS)]
        write(made.routes, [json.dumps(route) for route in routes["routes"]])
        running = stand.start(made, [SMALL])
        stand.wrk(running.port, SMALL, 1, args.connections)
        # Beside the file, its folder is watched: a file in another one is nobody's business.
        elsewhere = stand.folder / "elsewhere.json"
        for number in range(args.rounds):
            for name, path in ((QUIET, None), (ELSEWHERE, elsewhere), (EDITS, made.routes)):
                turns[name].append(turn(stand, running, made, path, routes, args))
                print(f"{number + 1} {name}: p99 {turns[name][-1]['p99_ms']:.2f} ms", flush=True)
    if not all(result["swaps"] for result in turns[EDITS]):
        fail("no edit arrived: the figures would say nothing")
    lines += ["", *table(COLUMNS, [row(name, results, turns[QUIET]) for name, results in turns.items()])]
    found = statistics.median(multiples(turns[EDITS], turns[QUIET]))
    failed = sum(result["failed"] for results in turns.values() for result in results)
    lines += ["", f"Target: p99 with edits <= {TARGET} x quiet and no failed request. Measured: {found:.2f} x and "
              f"{failed} failed: {'met' if found <= TARGET and failed == 0 else 'NOT met'}."]
    publish("edits", lines)


def turn(stand, running, made, path, routes, args):
    log = stand.folder / "lockgate.log"
    start, before = log.stat().st_size, config_status(made.status_port)
    ran, waited = threads(running.process.pid)
    editor = Editor(path, routes) if path else None
    if editor:
        editor.start()
    result = stand.wrk(running.port, SMALL, args.seconds, args.connections)
    if editor:
        editor.done.set()
        editor.join()
    ran_after, waited_after = threads(running.process.pid)
    after = config_status(made.status_port)
    if after["rejected"]:
        fail(f"an edit was rejected: {after['rejected'][0]}")
    took = swap_ms(log, start)
    return {**result, "edits": editor.edits if editor else 0, "swaps": after["revision"] - before["revision"],
            "swap_ms": statistics.median(took) if took else 0.0, "config": (ran_after - ran) / args.seconds,
            "waits": (waited_after - waited) / args.seconds}


def multiples(results, quiet):
    return [a["p99_ms"] / b["p99_ms"] for a, b in zip(results, quiet)]


def row(name, results, quiet):
    middle = lambda key: statistics.median(result[key] for result in results)
    total = lambda key: sum(result[key] for result in results)
    return [name, total("requests"), total("failed"), f"{middle('rps'):.0f}", f"{middle('p50_ms'):.2f}",
            f"{middle('p99_ms'):.2f}", f"{statistics.median(multiples(results, quiet)):.2f}", total("edits"),
            total("swaps"), f"{middle('swap_ms'):.2f}", f"{middle('config'):.1f}", f"{middle('waits'):.1f}"]


if __name__ == "__main__":
    main()
