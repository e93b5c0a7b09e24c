"""From a write through the Admin API to the request that it serves, with few routes and with many.

Measured are, on an embedded store and on etcd: how soon after its answer a new route is served, on
the node that was written to and on three that follow one etcd; how long a start takes that reads
everything; and whether requests notice five hundred writes a second.
"""

import argparse
import datetime
import gc
import os
import statistics
import threading
import time

from client import Conn
from report import facts, publish, table
from stand import Stand, fail
from store import Etcd, Node, get, route
from workloads import SMALL

FEW = 10
# Between two looks whether a route is served yet, and between two writes.
LOOK, PAUSE = 0.0005, 0.005
# A new route that is not served after this is lost.
LOST = 30
NODES = 3
# Connections that write five hundred times a second, and the routes that they change in turn.
WRITERS, CHANGED = 16, 500
# Of the memory: read after this, when what is made once is there, and compared with the end.
WARM = 10
STARTS = 3
SIZE_FLAT = 1.05


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--routes", type=int, default=100_000, help="how many are many (100000)")
    args.add_argument("--puts", type=int, default=500, help="new routes for each time to the first request (500)")
    args.add_argument("--seconds", type=int, default=60, help="length of the load with writes (60)")
    args.add_argument("--rate", type=int, default=500, help="writes a second under load (500)")
    args.add_argument("--neighbours", type=int, default=1000, help="routes beside those written under load (1000)")
    args.add_argument("--connections", type=int, default=64, help="keep-alive connections of the load (64)")
    args = args.parse_args()
    lines = [f"# Configuration, {datetime.date.today().isoformat()}", "", *facts(),
             "- the gateway (one worker, all its threads) has one core; etcd, the upstream, the client and wrk share the other; "
             "stores are on the disk, each write is synced",
             "- each route has a name, a label, the plugin proxy-rewrite, and an upstream by its id"]
    figures = Figures()
    for part in (times, under_writes):
        with Stand() as stand:
            lines += part(stand, args, figures)
    lines += ["", f"Load {os.getloadavg()[0]:.1f} at the end. What is above 2 or 3, here and at the start, is others' work on this machine: "
              "the quiet turns suffer from it as well, and a quiet machine shows lower times and clearer multiples."]
    lines += ["", "## Targets", "", *table(["what", "target", "measured", "met"], figures.rows)]
    default = all(getattr(args, name) == value for name, value in
                  [("routes", 100_000), ("puts", 500), ("seconds", 60), ("rate", 500)])
    publish("config", lines, whole=default)


class Figures:
    """Measurements with a target."""

    def __init__(self):
        self.rows = []

    def add(self, what, limit, measured, form="{:.1f} ms", unit="ms"):
        told = "<= " + (f"{limit:g} {unit}" if unit else f"{limit:g}")
        self.rows.append([what, told, form.format(measured), "yes" if measured <= limit else "NO"])


def times(stand, args, figures):
    """New routes and starts."""
    rows, starts = [], []
    for count in (FEW, args.routes):
        node = Node(stand)
        filled = node.fill(count)
        starts.append(started("embedded", count, [node], f"{filled:.1f}"))
        seen = Seen(node, [node]).many(args.puts)
        rows.append(seen.row("embedded, one node", count))
        figures.add(f"embedded, {count} routes: answered to served, p99", 5, seen.p99)
        node.stop()

        etcd = Etcd(stand)
        etcd.fill(count)
        nodes = [Node(stand, etcd) for _ in range(NODES)]
        starts.append(started("etcd", count, nodes, "-"))
        if count == args.routes:
            figures.add(f"etcd, first load of {count} routes, one core", 5, starts[-1][3], "{:.2f} s", "s")
        seen = Seen(nodes[0], nodes[:1]).many(args.puts)
        rows.append(seen.row("etcd, one node", count))
        figures.add(f"etcd, {count} routes: answered to served, p99", 50, seen.p99)
        seen = Seen(nodes[0], nodes).many(args.puts)
        rows.append(seen.row(f"etcd, the last of {NODES} nodes", count))
        figures.add(f"etcd, {count} routes: answered to served by {NODES} nodes, p99", 100, seen.p99)
        for node in nodes:
            node.stop()
        etcd.stop()
    rows = [[*row[:2], *(f"{ms:.2f}" for ms in row[2:])] for row in rows]
    starts = [[*row[:3], *(f"{figure:.2f}" for figure in row[3:])] for row in starts]
    return ["", "## From the write to the request", "",
            f"{args.puts} new routes one after the other; ms. `answered to served`: from the answer of the PUT to the first request "
            f"that the new route serves, looked for every {LOOK * 1000:g} ms. `PUT`: from its first byte to its answer, which "
            "waits until requests of that node see it.", "",
            *table(["store", "routes", "answered to served, p50", "p99", "max", "PUT p50", "p99", "max"], rows),
            "", "## Starts", "",
            f"From the start of the process to the first request that a route serves, the median of {STARTS} starts (etcd: the "
            f"first, alone); MiB resident after it. `filled`: seconds that writing all routes through the Admin API took, "
            "16 at a time, into memory.", "",
            *table(["store", "routes", "filled, s", "start, s", "slowest, s", "MiB"], starts)]


def started(store, count, nodes, filled):
    """Starts the nodes; those beside the first one once only."""
    last = f"/r/{count - 1}/x"
    took = []
    for number in range(STARTS):
        took.append(nodes[0].start(last))
        if number < STARTS - 1:
            nodes[0].stop()
        print(f"{store}, {count} routes: started in {took[-1]:.2f} s", flush=True)
    for node in nodes[1:]:
        node.start(last)
    return [store, count, filled, statistics.median(took), max(took), nodes[0].running.rss()]


class Seen:
    """New routes through one node, and when others serve them."""

    made = 0

    def __init__(self, writer, readers):
        self.writer, self.readers = writer, readers
        self.visible, self.answered = [], []

    def many(self, count):
        conns = [Conn(node.port) for node in self.readers]
        gc.disable()
        try:
            with self.writer.admin() as admin:
                for _ in range(count):
                    self.once(admin, conns)
                    time.sleep(PAUSE)
        finally:
            gc.enable()
            for conn in conns:
                conn.sock.close()
        return self

    def once(self, admin, conns):
        Seen.made += 1
        number, path = Seen.made, f"/new/{Seen.made}"
        value = route(path, number)
        start = time.perf_counter()
        if admin.put(f"routes/new{number}", value) != 201:
            fail(f"{path} was refused")
        answered = time.perf_counter()
        for conn in conns:
            while get(conn, path) != 200:
                if time.perf_counter() - answered > LOST:
                    fail(f"{path} is not served")
                time.sleep(LOOK)
        self.visible.append((time.perf_counter() - answered) * 1000)
        self.answered.append((answered - start) * 1000)

    @property
    def p99(self):
        return percentile(self.visible, 99)

    def row(self, store, count):
        row = [store, count]
        for list_ in (self.visible, self.answered):
            row += [percentile(list_, 50), percentile(list_, 99), max(list_)]
        print(f"{store}, {count} routes: answered to served p99 {row[3]:.2f} ms, PUT p99 {row[6]:.2f} ms", flush=True)
        return row


def percentile(values, wanted):
    values = sorted(values)
    return values[min(len(values) - 1, len(values) * wanted // 100)]


def under_writes(stand, args, figures):
    """Load with writes, and without before and after."""
    rows = []
    for store in ("embedded", "etcd"):
        etcd = Etcd(stand) if store == "etcd" else None
        node = Node(stand, etcd)
        if etcd:
            etcd.fill(args.neighbours)
        else:
            node.fill(args.neighbours)
        node.start()
        with node.admin() as admin:
            if admin.put("routes/small", {"uri": "/small", "upstream_id": "u0"}) != 201:
                fail("the route under load was refused")
        turns = [turn(stand, node, None, args), turn(stand, node, Writers(node, args.rate), args), turn(stand, node, None, args)]
        quiet = statistics.mean([turns[0]["p99_ms"], turns[2]["p99_ms"]])
        multiple = turns[1]["p99_ms"] / quiet
        for name, result in zip(("quiet", "with writes", "quiet again"), turns):
            rows.append([f"{store}, {name}", result["requests"], result["failed"], f"{result['rps']:.0f}", f"{result['p50_ms']:.2f}",
                         f"{result['p99_ms']:.2f}", *result["writes"], *result["memory"]])
        figures.add(f"{store}: failed requests and writes at {args.rate} writes/s", 0,
                    sum(result["failed"] for result in turns) + turns[1]["refused"], "{:.0f}", "")
        figures.add(f"{store}: p99 with writes, times quiet", 1.5, multiple, "{:.2f}", "")
        figures.add(f"{store}: memory at the end of the writes, times that after {WARM} s", SIZE_FLAT, turns[1]["grown"], "{:.3f}", "")
        figures.add(f"{store}: writes a second that were asked for, times those done", 1.02, turns[1]["behind"], "{:.3f}", "")
        node.stop()
        if etcd:
            etcd.stop()
    return ["", "## Under writes", "",
            f"{args.rate} writes a second for {args.seconds} s, each changing one of {CHANGED} routes beside {args.neighbours} others; "
            f"{args.connections} keep-alive connections ask for one more, as fast as they can. Writes: done, a second, median ms, "
            f"p99 ms. MiB: at the start, after {WARM} s, at the end.", "",
            *table(["", "requests", "failed", "req/s", "p50 ms", "p99 ms", "writes", "writes/s", "write p50", "write p99",
                    "MiB start", "MiB warm", "MiB end"], rows)]


def turn(stand, node, writers, args):
    seconds = args.seconds if writers else max(args.seconds // 2, 1)
    memory = [node.running.rss()]
    warm = threading.Timer(min(WARM, seconds / 2), lambda: memory.append(node.running.rss()))
    warm.start()
    if writers:
        writers.start()
    result = stand.wrk(node.port, SMALL, seconds, args.connections)
    memory.append(node.running.rss())
    warm.join()
    took, refused = [], 0
    if writers:
        took, refused = writers.stop()
    rate = len(took) / seconds
    print(f"{'with writes' if writers else 'quiet'}: p99 {result['p99_ms']:.2f} ms, {rate:.0f} writes/s", flush=True)
    told = [len(took), f"{rate:.0f}", *(f"{percentile(took, part):.1f}" if took else "-" for part in (50, 99))]
    return {**result, "writes": told, "refused": refused, "memory": [f"{mib:.1f}" for mib in memory],
            "grown": memory[-1] / memory[1], "behind": args.rate / rate if rate else 0.0}


class Writers:
    """Connections that write at a pace."""

    def __init__(self, node, rate):
        self.node, self.step = node, WRITERS / rate
        self.done, self.took, self.refused = threading.Event(), [], []
        self.threads = [threading.Thread(target=self.run, args=(at,), daemon=True) for at in range(WRITERS)]

    def start(self):
        for thread in self.threads:
            thread.start()

    def stop(self):
        self.done.set()
        for thread in self.threads:
            thread.join()
        return self.took, len(self.refused)

    def run(self, at):
        due, version = time.monotonic() + at * self.step / WRITERS, at
        with self.node.admin() as admin:
            while not self.done.is_set():
                time.sleep(max(due - time.monotonic(), 0))
                value = route(f"/changed/{version % CHANGED}/v{version}", version)
                start = time.monotonic()
                status = admin.put(f"routes/c{version % CHANGED}", value)
                self.took.append((time.monotonic() - start) * 1000)
                if status not in (200, 201):
                    self.refused.append(status)
                version += WRITERS
                # A pause of the machine is made up for, but not for ever.
                due = max(due + self.step, time.monotonic() - 1)


if __name__ == "__main__":
    main()
