"""Resident memory of each gateway with many idle keep-alive connections.

Every connection makes one request and then waits. After that all make another, a thousand at a
time, and wait again: memory that a request borrowed should be back. The connections come from
several loopback addresses, because one has too few ports for them.
"""

import argparse
import datetime
import resource
import time

from client import Conn
from contenders import contender
from report import facts, publish, table
from stand import Stand, fail
from workloads import PLAIN, SMALL

# Ports that one source address can spare, with those that still close.
PER_SOURCE = 2500
# Requests at a time in the second part, and files that a gateway needs besides its clients'.
WAVE, SPARE = 1000, 2000
# Until allocators have given back what they will.
SETTLE_SECONDS = 3


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--connections", type=int, default=10_000, help="idle connections (10000)")
    args.add_argument("--tls", action="store_true", help="over TLS")
    args.add_argument("--only", default="", help="contenders whose name contains this")
    args = args.parse_args()
    allow_files(args.connections + SPARE)

    wire = "over TLS" if args.tls else "in clear text"
    lines = [f"# Memory, {datetime.date.today().isoformat()}", "", *facts(),
             f"- resident memory (VmRSS) of the gateway, one worker, {args.connections} idle keep-alive connections "
             f"{wire} from several loopback addresses, each after one request of 12 bytes; `again`: after one more "
             f"request on each, {WAVE} at a time; {SETTLE_SECONDS} s of rest before each reading",
             "- at the start: after one request"]
    rows, figures = [], {}
    with Stand() as stand:
        for name in PLAIN:
            if args.only not in name:
                continue
            running = stand.start(
                contender(stand, name, tls=args.tls, connections=args.connections + SPARE), [SMALL])
            start, idle, again = readings(running, args)
            stand.stop(running.process)
            print(f"{name}: {start:.1f}, {idle:.1f}, {again:.1f} MiB", flush=True)
            each = (max(idle, again) - start) * 1024 / args.connections
            rows.append([name, *(f"{mib:.1f}" for mib in (start, idle, again)), f"{each:.2f}"])
            figures[name] = {"start_mib": start, "idle_mib": idle, "again_mib": again}
    lines += ["", *table(["contender", "MiB at the start", "MiB idle", "MiB again", "KiB each"], rows)]
    kind = "memory-tls" if args.tls else "memory"
    whole = not args.only and args.connections == 10_000
    publish(kind, lines, figures if args.connections == 10_000 else None, whole)


def readings(running, args):
    """Resident memory at the start, with idle connections, and after another request on each."""
    rss = [settled(running)]
    conns = []
    try:
        for number in range(args.connections):
            conns.append(Conn(running.port, args.tls, f"127.0.0.{2 + number // PER_SOURCE}"))
            conns[-1].ask(SMALL, running.port)
        rss.append(settled(running))
        for first in range(0, len(conns), WAVE):
            wave = conns[first:first + WAVE]
            for conn in wave:
                conn.sock.sendall(SMALL.request(running.port))
            for conn in wave:
                conn.expect(SMALL)
        rss.append(settled(running))
    except (ValueError, OSError) as error:
        fail(f"{running.name}, connection {len(conns)}: {error}")
    finally:
        for conn in conns:
            conn.sock.close()
    return rss


def settled(running):
    time.sleep(SETTLE_SECONDS)
    return running.rss()


def allow_files(wanted):
    """Raises the limit of open files, which the gateways inherit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= wanted:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(hard, wanted)))
    except (ValueError, OSError):
        fail(f"{wanted} open files are needed and {hard} allowed; try ulimit -n {wanted} as root")


if __name__ == "__main__":
    main()
