"""CPU, throughput, latency and memory of lockgate beside a bare Pingora proxy, nginx and HAProxy.

All contenders of a workload run at once, each in turn gets the load, round by round, so that a
disturbance of the machine meets them alike; medians over the rounds are shown. The first figure is
CPU time per request: requests/s depend on what the load generator and the upstream leave over.
"""

import argparse
import datetime
import statistics

from contenders import contender
from report import facts, publish, ratio, table
from stand import BOTH, BULK_CONNECTIONS, GATEWAY_CORE, LOAD_CORE, Stand
from workloads import PLAIN, SMALL, chosen

TWO = "two-workers"
# Workers that do not take over each other's tasks.
OWN_TASKS = ("lockgate, own tasks", "lockgate, general, own tasks")
# The lowest priority: the load generator takes what the gateway and the upstream leave.
NICE = 19
REST = ["req/s", "p50 ms", "p99 ms", "RSS MiB", "failed"]


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--rounds", type=int, default=5, help="how often each contender gets the load (5)")
    args.add_argument("--seconds", type=int, default=4, help="length of one round (4)")
    args.add_argument("--connections", type=int, default=64, help="keep-alive connections (64)")
    args.add_argument("--workloads", default="", help=f"comma-separated names, also {TWO}; all when left out")
    args.add_argument("--only", default="", help="contenders whose name contains this, and nginx")
    args = args.parse_args()

    lines = [f"# Load, {datetime.date.today().isoformat()}", "", *facts(),
             f"- one worker each on core {GATEWAY_CORE}; wrk and the upstream (nginx, static files) on core "
             f"{LOAD_CORE}; {args.connections} keep-alive connections ({BULK_CONNECTIONS} for 1 MiB); {args.rounds} "
             f"interleaved rounds of {args.seconds} s after a warm-up; medians, for multiples of CPU time those of the "
             "multiples of each round",
             "- `floor` is a bare Pingora proxy (`bench/floor.rs`); how each is configured, and what nginx has for the "
             "ten plugins, is in `bench/load/contenders.py`; RSS at the end of a round"]
    figures = {}
    with Stand() as stand:
        for workload in chosen(args.workloads):
            results = rounds(stand, args, workload, workload.name)
            lines += ["", f"## {workload.title}", "", *cpu_table(workload, results)]
            figures[workload.name] = results
        if not args.workloads or TWO in args.workloads.split(","):
            results = rounds(stand, args, SMALL, TWO, workers=2, cores=BOTH)
            lines += ["", "## Two workers on both cores: " + SMALL.title, "",
                      f"wrk (two threads, nice {NICE}) has both cores too, the upstream keeps core {LOAD_CORE}.", "",
                      *table(["contender", *REST, "CPU us/req"],
                             ([name, *rest(m), f"{m['cpu_us']:.1f}"] for name, m in results.items()))]
            figures[TWO] = results
    publish("load", lines, None if args.only else figures, whole=not (args.workloads or args.only))


def rounds(stand, args, workload, label, workers=1, cores=GATEWAY_CORE):
    """Medians for each contender of a workload."""
    names = (*PLAIN, *OWN_TASKS) if workers > 1 else workload.contenders
    running = [stand.start(contender(stand, name, tls=workload.tls, workers=workers), [workload], cores=cores)
               for name in names if name == workload.nginx or args.only in name]
    more = {"cores": BOTH, "threads": 2, "nice": NICE} if workers > 1 else {}
    results = {gateway.name: [] for gateway in running}
    for gateway in running:
        stand.measure(gateway, workload, 1, args.connections, **more)
    for number in range(args.rounds):
        for gateway in running:
            print(f"{label} round {number + 1}/{args.rounds}: {gateway.name}", flush=True)
            results[gateway.name].append(stand.measure(gateway, workload, args.seconds, args.connections, **more))
    for gateway in running:
        stand.stop(gateway.process)
    return {name: medians(done, results) for name, done in results.items()}


def medians(done, results):
    """Medians of a contender's rounds, and its CPU time as a multiple of the others': round by round,
    because what disturbs a round disturbs its neighbours too."""
    out = {key: (sum if key == "failed" else statistics.median)(r[key] for r in done) for key in done[0]}
    out["cpu_x"] = {name: statistics.median(a["cpu_us"] / b["cpu_us"] for a, b in zip(done, theirs))
                    for name, theirs in results.items()}
    return out


def cpu_table(workload, results):
    other, column = workload.other
    base = results[workload.nginx]
    return table(
        ["contender", "CPU us/req", "x nginx", column, "user us/req", "x nginx", *REST],
        ([name, f"{m['cpu_us']:.1f}", f"{m['cpu_x'][workload.nginx]:.2f}",
          f"{m['cpu_x'][other]:.2f}" if other in results else "-", f"{m['user_us']:.1f}",
          ratio(m["user_us"], base["user_us"]), *rest(m)] for name, m in results.items()))


def rest(m):
    return [f"{m['rps']:.0f}", f"{m['p50_ms']:.2f}", f"{m['p99_ms']:.2f}", f"{m['rss_mib']:.0f}", m["failed"]]


if __name__ == "__main__":
    main()
