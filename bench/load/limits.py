"""Limits: what a decision costs, what a limit costs a gateway, and how often Redis is asked.

Three parts. The table in memory beside a concurrent map and governor (`bench/limit_ratios.rs`). One gateway with wrk,
in turns: without a limit, with one in memory, with one in Redis by permits taken ahead (lease) and for every request
(exact), and the latter two with a Redis that is frozen. Two gateways with one limit in Redis, far below it and far
above it: what is admitted, and how many scripts Redis runs for it. The targets are those of the design.
"""

import argparse
import datetime
import json
import re
import signal
import statistics
import subprocess
import sys
import threading
import time

from contenders import binary, contender
from report import facts, publish, table
from stand import GATEWAY_CORE, LOAD_CORE, Stand, fail, free_port
from workloads import SMALL

# Never reached: what is measured is what a limit costs those that are within it.
PLENTY = 1_000_000_000
# Far above what an answer takes here, and short enough to see what a frozen Redis costs.
TIMEOUT_MS = 50
NONE, LOCAL, LEASE, EXACT = "no limit", "local", "lease", "exact"
COUNT_LOCAL, COUNT_EXACT = "limit-count, local", "limit-count, exact"
FROZEN_LEASE, FROZEN_EXACT = "lease, Redis frozen", "exact, Redis frozen"
TURNS = (NONE, LOCAL, LEASE, EXACT, COUNT_LOCAL, COUNT_EXACT, FROZEN_LEASE, FROZEN_EXACT)
# Two gateways, one limit: so many in a window, of which each gateway's part is 5,000.
SHARED, WINDOW = 10_000, 10
LOADS = (("0.2 x the limit", 0.2), ("far above it", None))


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--rounds", type=int, default=5, help="rounds of the turns (5)")
    args.add_argument("--seconds", type=int, default=4, help="length of each turn (4)")
    args.add_argument("--shared", type=int, default=20, help="seconds of load on two gateways, each time (20)")
    args.add_argument("--connections", type=int, default=64, help="keep-alive connections (64)")
    args.add_argument("--quick", action="store_true", help="a second of everything: does it work?")
    args = args.parse_args()
    if args.quick:
        args.rounds, args.seconds, args.shared = 1, 1, 2
    goals = []
    lines = [f"# Limits, {datetime.date.today().isoformat()}", "", *facts(),
             f"- {first_line(['redis-server', '--version'])}, on the load's core; `redis_timeout` {TIMEOUT_MS} ms"]
    lines += memory(args, goals)
    with Stand() as stand:
        lines += one_gateway(stand, args, goals)
    with Stand() as stand:
        lines += two_gateways(stand, args, goals)
    lines += ["", "## Targets", "", *table(["#", "what", "target", "measured", "met"], sorted(goals, key=number))]
    publish("limits", lines, whole=not args.quick)


def first_line(command):
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return " ".join(out.split()[:3])


def number(goal):
    return int(re.sub(r"\D", "", goal[0]))


def judge(goals, name, what, limit, measured, form="{:.2f}"):
    """A measurement with a target: `<= 0.5` or `>= 0.98`; without one it is only reported."""
    met = "-"
    if limit:
        word, bound = limit.split()
        met = "yes" if (measured <= float(bound) if word == "<=" else measured >= float(bound)) else "NO"
    goals.append([name, what, limit or "reported", form.format(measured), met])


# The table in memory

def memory(args, goals):
    command = [binary("examples/limit-ratios"), *(["quick"] if args.quick else [])]
    told = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    few, many, threads, three = told["B1"], told["B2"], told["B3"], told["B4"]
    judge(goals, "B1", "decision, 10,000 keys: x map with atomic words", "<= 0.5", few["table"] / few["map"])
    judge(goals, "B1", "the same: x governor", "<= 0.25", few["table"] / few["governor"])
    judge(goals, "B2", "decision, 1,000,000 keys: x map with atomic words", "<= 1.0", many["table"] / many["map"])
    judge(goals, "B2", "the same: x governor", "<= 0.4", many["table"] / many["governor"])
    judge(goals, "B3", "two threads, keys of their own: x one thread", ">= 1.8", threads["two"] / threads["one"])
    judge(goals, "B4", "three limits at once: x one", "<= 3.5", three["three"] / three["one"])
    for fill in told["B5"]:
        # At half of the room the slack is as large as what is used.
        judge(goals, "B5", f"bytes for a key that counts, room filled to {100 * fill['live'] / fill['room']:.0f} %",
              "<= 32" if fill["percent"] > 50 else None, fill["bytes"], "{:.1f}")
    over = told["B11"]
    judge(goals, "B11", f"{over['keys']} keys count in a table for {over['room']}: refused wrongly, %", "<= 0.01",
          100 * over["refused"] / max(over["asked"], 1), "{:.4f}")
    rows = [[what, *(f"{measured[who]:.0f}" for who in ("table", "map", "governor"))]
            for what, measured in (("10,000 keys", few), ("1,000,000 keys", many))]
    return ["", "## A decision in memory", "",
            "Nanoseconds, the least of 15 rounds in turns, one thread; keys are hashed by each. governor reads its own clock.",
            "", *table(["", "the table", "DashMap and AtomicU64", "governor"], rows), "",
            f"One thread makes {threads['one']:.1f} million decisions a second, two {threads['two']:.1f}. One limit of a request "
            f"takes {three['one']:.0f} ns, three {three['three']:.0f}. Of those that keep to their limit "
            f"{over['refused']} of {over['asked']} requests were refused while {over['keys']} keys counted in a table for "
            f"{over['room']}; those that ask for five times their limit got {over['heavy']:.2f} of it."]


# Redis

class Redis:
    """A server on the load's core."""

    def __init__(self, stand):
        self.port = free_port()
        command = ["redis-server", "--port", self.port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no",
                   "--dir", stand.folder]
        self.process = stand.spawn([str(word) for word in command], LOAD_CORE, self.port, "redis")

    def store(self):
        return {"policy": "redis", "redis_host": "127.0.0.1", "redis_port": self.port, "redis_timeout": TIMEOUT_MS}

    def cli(self, *words):
        command = ["redis-cli", "-p", str(self.port), *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout

    def calls(self):
        """Scripts run so far."""
        found = re.findall(r"cmdstat_eval(?:sha)?:calls=(\d+)", self.cli("INFO", "commandstats"))
        return sum(map(int, found))

    def cpu(self):
        """Seconds of CPU so far."""
        return time.clock_gettime((~self.process.pid << 3) | 2)


def limit(mode, store, count=PLENTY, window=60):
    """The plugin `limit` with one window for everybody."""
    one = {"name": "bench", "algorithm": "fixed_window", "count": count, "time_window": window, "key": "", "mode": mode}
    return {"limit": {"limits": [one], **({} if mode == LOCAL else {"store": store})}}


def plugins(name, store):
    """The plugins of a turn."""
    count = {"count": PLENTY, "time_window": 60, "key_type": "constant", "key": "all", "allow_degradation": True}
    if name == NONE:
        return {}
    if name == COUNT_LOCAL:
        return {"limit-count": count}
    if name == COUNT_EXACT:
        return {"limit-count": {**count, **store}}
    return limit(name.split(",")[0], store)


def limited(stand, name, plugins):
    """lockgate with these plugins on its route."""
    made = contender(stand, "lockgate")
    routes = json.loads(made.routes.read_text())
    routes["routes"][0]["plugins"] = plugins
    made.routes.write_text(json.dumps(routes))
    made.name = f"lockgate {name}"
    return made


# One gateway

def one_gateway(stand, args, goals):
    redis, frozen = Redis(stand), Redis(stand)
    running = {}
    for name in TURNS:
        store = (frozen if "frozen" in name else redis).store()
        running[name] = stand.start(limited(stand, name, plugins(name, store)), [SMALL])
    for gateway in running.values():
        stand.measure(gateway, SMALL, 1, args.connections)
    frozen.process.send_signal(signal.SIGSTOP)
    try:
        results, asked = turns(stand, args, running, redis)
    finally:
        # It has to be able to end.
        frozen.process.send_signal(signal.SIGCONT)
    part = lambda name, base: statistics.median(a["rps"] / b["rps"] for a, b in zip(results[name], results[base]))
    judge(goals, "B6", "requests/s with one local limit: x without", ">= 0.98", part(LOCAL, NONE))
    judge(goals, "B6", "the same, limit-count", ">= 0.98", part(COUNT_LOCAL, NONE))
    judge(goals, "B7", "requests/s, lease: x local", ">= 0.97", part(LEASE, LOCAL))
    judge(goals, "B8", "requests/s, exact: x local", None, part(EXACT, LOCAL))
    judge(goals, "B10", "requests/s, exact with Redis frozen: x local", ">= 0.95", part(FROZEN_EXACT, LOCAL))
    judge(goals, "B10", "requests/s, lease with Redis frozen: x local", ">= 0.95", part(FROZEN_LEASE, LOCAL))
    failed = sum(result["failed"] for done in results.values() for result in done)
    rows = []
    for name, done in results.items():
        middle = lambda key: statistics.median(result[key] for result in done)
        rows.append([name, f"{middle('rps'):.0f}", f"{part(name, NONE):.2f}", f"{part(name, LOCAL):.2f}",
                     f"{middle('cpu_us'):.1f}", f"{middle('p50_ms'):.2f}", f"{middle('p99_ms'):.2f}",
                     f"{asked[name]:.2f}", sum(result["failed"] for result in done)])
    return ["", "## One gateway", "",
            f"{SMALL.title}; {args.rounds} rounds of {args.seconds} s a turn, one worker on core {GATEWAY_CORE}, wrk, the upstream "
            f"and Redis on core {LOAD_CORE}, {args.connections} connections; medians, multiples round by round. The limit is a "
            f"fixed window for everybody that is not reached; {failed} requests failed. `CPU` is the gateway's; where Redis is asked "
            "its own CPU is taken from the load generator, so requests/s of `exact` say less than CPU does.", "",
            *table(["turn", "req/s", "x none", "x local", "CPU us/req", "p50 ms", "p99 ms", "Redis calls/1,000", "failed"],
                   rows)]


def turns(stand, args, running, redis):
    """Results of each turn, and how often Redis was asked for a thousand requests."""
    results, calls = {name: [] for name in running}, dict.fromkeys(running, 0)
    for round_number in range(args.rounds):
        for name, gateway in running.items():
            print(f"round {round_number + 1}/{args.rounds}: {name}", flush=True)
            before = redis.calls()
            results[name].append(stand.measure(gateway, SMALL, args.seconds, args.connections))
            calls[name] += redis.calls() - before
    made = lambda name: sum(result["rps"] * args.seconds for result in results[name])
    return results, {name: 1000 * calls[name] / made(name) for name in running}


# Two gateways

def two_gateways(stand, args, goals):
    rows, ratios, excess = [], [], 0.0
    for title, part in LOADS:
        asked = {}
        for mode in (EXACT, LEASE):
            told = shared(stand, args, mode, part)
            asked[mode] = told["calls"] / told["requests"] * 1000
            excess = max(excess, told["excess"])
            rows.append([f"{mode}, {title}", told["requests"], told["admitted"], told["most"],
                         f"{100 * told['excess']:.2f}", told["calls"], f"{asked[mode]:.2f}",
                         f"{told['redis_us']:.2f}"])
        ratios.append(asked[LEASE] / asked[EXACT])
    judge(goals, "B9", "Redis calls, lease: x exact, below the limit", "<= 0.02", ratios[0], "{:.4f}")
    judge(goals, "B9", "the same, far above it", "<= 0.02", ratios[1], "{:.4f}")
    judge(goals, "B9", "admitted beyond what the windows allow, %", "<= 1", 100 * excess)
    return ["", "## Two gateways, one limit", "",
            f"{SHARED} in {WINDOW} s for both together (or five times what is asked); {args.shared} s of load each. `at most`: the limit, "
            "as often as windows can begin in that time.", "",
            *table(["mode, load", "requests", "admitted", "at most", "excess %", "Redis calls", "calls/1,000", "Redis us/req"], rows)]


def shared(stand, args, mode, part):
    """Two gateways with one limit; `part`: the load as a part of the limit, which is moved rather than the load."""
    redis = Redis(stand)
    count = SHARED
    if part is not None:
        # A limit that is so many times what two gateways do here in a window.
        count = round(pilot(stand, args) * WINDOW / part)
    # Before the first request, which sees whether it works.
    start = time.monotonic()
    gateways = [stand.start(limited(stand, f"{mode} {at}", limit(mode, redis.store(), count, WINDOW)), [SMALL])
                for at in range(2)]
    calls, cpu = redis.calls(), redis.cpu()
    done = together(stand, gateways, args)
    took, used, calls = time.monotonic() - start, redis.cpu() - cpu, redis.calls() - calls
    for running in gateways:
        stand.stop(running.process)
    stand.stop(redis.process)
    requests = sum(load["requests"] for load in done)
    admitted = requests - sum(load["failed"] for load in done)
    most = count * (int(took // WINDOW) + 1)
    return {"requests": requests, "admitted": admitted, "most": most, "excess": max(0, admitted / most - 1),
            "calls": calls, "redis_us": used / requests * 1e6}


def pilot(stand, args):
    """Requests a second of two gateways without a limit."""
    gateways = [stand.start(limited(stand, f"pilot {at}", {}), [SMALL]) for at in range(2)]
    done = together(stand, gateways, argparse.Namespace(shared=2, connections=args.connections))
    for running in gateways:
        stand.stop(running.process)
    return sum(load["rps"] for load in done)


def together(stand, gateways, args):
    """Load on both at once."""
    done = [None] * len(gateways)

    def load(at):
        done[at] = stand.wrk(gateways[at].port, SMALL, args.shared, args.connections // 2)

    threads = [threading.Thread(target=load, args=(at,)) for at in range(len(gateways))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if None in done:
        fail("a load generator failed")
    return done


if __name__ == "__main__":
    sys.exit(main())
