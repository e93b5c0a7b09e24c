"""User instructions and allocations per request: the figures that no neighbour disturbs."""

import argparse
import datetime

import callgrind
from contenders import contender
from report import facts, publish, ratio, table
from stand import Stand
from workloads import chosen


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--requests", type=int, default=2000, help="requests that are counted (2000)")
    args.add_argument("--warm", type=int, default=400, help="requests of the short run (400)")
    args.add_argument("--workloads", default="", help="comma-separated names; all when left out")
    args.add_argument("--only", default="", help="contenders whose name contains this, and nginx")
    args = args.parse_args()

    lines = [f"# Instructions, {datetime.date.today().isoformat()}", "", *facts(),
             f"- user instructions per request by callgrind: {callgrind.CONNECTIONS} keep-alive connections, all with "
             f"a request in flight; a run of {args.warm + args.requests} requests less one of {args.warm} (a "
             f"{callgrind.BULK_SHARE}th of both for 1 MiB); the kernel is not counted",
             "- allocations per request: calls in the same recording that enter malloc, calloc, realloc, memalign or "
             "mimalloc's entry points from outside the allocator"]
    figures = {}
    with Stand() as stand:
        for workload in chosen(args.workloads):
            results = {}
            for name in workload.contenders:
                if name != workload.nginx and args.only not in name:
                    continue
                make = lambda: contender(stand, name, tls=workload.tls, alone=True)
                results[name] = callgrind.per_request(stand, make, workload, args.warm, args.requests)
                print("{}: {}: {:.0f} instructions, {:.2f} allocations".format(workload.name, name, *results[name]),
                      flush=True)
            other, column = workload.other
            base, second = results[workload.nginx], results.get(other)
            rows = [[name, f"{c.instructions:.0f}", ratio(c.instructions, base.instructions),
                     ratio(c.instructions, second and second.instructions), f"{c.allocations:.2f}"]
                    for name, c in results.items()]
            lines += ["", f"## {workload.title}", "",
                      *table(["contender", "instructions/req", "x nginx", column, "allocations/req"], rows)]
            figures[workload.name] = {name: c._asdict() for name, c in results.items()}
    publish("instructions", lines, None if args.only else figures, whole=not (args.workloads or args.only))


if __name__ == "__main__":
    main()
