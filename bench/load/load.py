"""CPU, throughput, latency and memory of lockgate beside a bare Pingora proxy and nginx.

All contenders run at once, each in turn gets the load, round by round, so that a disturbance of
the machine meets them alike; medians over the rounds are shown. The first figure is CPU time per
request: requests/s depend on what the load generator and the upstream leave over.
"""

import argparse
import datetime
import statistics

import stand as s

COLUMNS = ["contender", "CPU us/req", "x floor", "user us/req", "x floor", "req/s", "p50 ms", "p99 ms",
           "RSS MiB", "failed"]


def contenders(stand):
    return [
        s.floor(stand),
        s.lockgate(stand, "none"),
        s.lockgate(stand, "none", access_log=True),
        s.lockgate(stand, "ten"),
        s.nginx(stand),
    ]


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--rounds", type=int, default=5, help="how often each contender gets the load (5)")
    args.add_argument("--seconds", type=int, default=4, help="length of one round (4)")
    args.add_argument("--connections", type=int, default=64, help="keep-alive connections (64)")
    args.add_argument("--only", default="", help="contenders whose name contains this, and the floor")
    args = args.parse_args()

    lines = [f"# Load, {datetime.date.today().isoformat()}", "", *s.facts(),
             f"- one worker each on core {s.GATEWAY_CORE}; wrk and the upstream (nginx, static files) on core "
             f"{s.LOAD_CORE}; {args.connections} keep-alive connections; {args.rounds} interleaved rounds of "
             f"{args.seconds} s after a warm-up; medians",
             "- `floor` is a bare Pingora proxy (`bench/floor.rs`); RSS at the end of a round"]
    with s.Stand() as stand:
        running = [stand.start(c) for c in contenders(stand) if c.name == "floor" or args.only in c.name]
        for path, body in s.BODIES.items():
            results = {gateway.name: [] for gateway in running}
            for gateway in running:
                stand.measure(gateway, path, 1, args.connections)
            for number in range(args.rounds):
                for gateway in running:
                    print(f"{path} round {number + 1}/{args.rounds}: {gateway.name}", flush=True)
                    results[gateway.name].append(
                        stand.measure(gateway, path, args.seconds, args.connections))
            lines += ["", f"## Answers of {len(body)} bytes", "", *s.table(COLUMNS, rows(results))]
    s.publish("load", lines)


def rows(results):
    medians = {name: {key: statistics.median(r[key] for r in rounds) for key in rounds[0]}
               for name, rounds in results.items()}
    floor = medians["floor"]
    for name, m in medians.items():
        yield [name, f"{m['cpu_us']:.1f}", f"{m['cpu_us'] / floor['cpu_us']:.2f}",
               f"{m['user_us']:.1f}", f"{m['user_us'] / max(floor['user_us'], 0.01):.2f}",
               f"{m['rps']:.0f}", f"{m['p50_ms']:.2f}", f"{m['p99_ms']:.2f}", f"{m['rss_mib']:.0f}",
               sum(r["failed"] for r in results[name])]


if __name__ == "__main__":
    main()
