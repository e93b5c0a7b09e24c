"""Connections that send nothing: what they cost, who is served beside them, and how they end.

A client opens as many connections as the limit of open files and lockgate.max_connections allow,
from several loopback addresses because one has too few ports, and says nothing. The gateway starts
with a soft limit of 1,024 files, as on most systems, and has to raise it itself.
"""

import argparse
import datetime
import pathlib
import re
import resource
import select
import socket
import statistics
import time

from client import Conn
from contenders import contender
from memory import SETTLE_SECONDS, settled
from report import facts, publish, table
from stand import Stand, fail
from workloads import SMALL

# Ports that one source address can spare of the usual 28,000.
PER_SOURCE = 20_000
# A request is made whenever so many more are open.
EVERY = 500
# Places left for connections that ask for something, and connections beyond the limit.
ROOM, BEYOND = 20, 200
# lockgate's defaults: connections, the time for a head, and the share of open files kept for other things.
MAX_CONNECTIONS, HEAD_SECONDS, RESERVE = 100_000, 60, 8
# Later than this after its deadline nothing may be open.
GRACE_SECONDS = 10


def main():
    args = argparse.ArgumentParser(description=__doc__)
    args.add_argument("--connections", type=int, default=MAX_CONNECTIONS, help=f"at most ({MAX_CONNECTIONS})")
    args = args.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with Stand() as stand:
        made = contender(stand, "lockgate")
        running = stand.start(made, [SMALL], wrapper=["prlimit", "--nofile=1024:"])
        files = open_files(running.process.pid)
        limit = min(MAX_CONNECTIONS, files - files // RESERVE)
        count = min(args.connections, limit - ROOM)
        start = settled(running)
        sockets, took, asked = opened(running.port, count)
        held = settled(running)
        beyond = closed_at_once(running.port, limit - count) if count == limit - ROOM else "not tried"
        ends, received, asked_meanwhile = given_up(running.port, sockets, took[0])
        after = settled(running)
        with Conn(running.port) as conn:
            conn.ask(SMALL, running.port)
        log = (stand.folder / "lockgate.log").read_text(errors="replace")
    if "panic" in log:
        fail("the gateway panicked:\n" + log[-2000:])
    lines = [f"# Silent connections, {datetime.date.today().isoformat()}", "", *facts(),
             f"- one worker, started with 1024 open files at most; it raised that to {files}, the hard limit here, and so "
             f"keeps {limit} connections of the {MAX_CONNECTIONS} of `lockgate.max_connections`",
             f"- {count} connections from {1 + (count - 1) // PER_SOURCE} loopback address(es), opened within "
             f"{took[1] - took[0]:.1f} s, nothing sent; one GET on a connection of its own for every {EVERY} of them, and "
             f"later one each 100 ms until all are closed; {SETTLE_SECONDS} s of rest before each reading of VmRSS",
             "", *table(["what", "measured"], [
                 ["connections held", count],
                 ["MiB before, with them, after", f"{start:.1f}, {held:.1f}, {after:.1f}"],
                 ["KiB each", f"{(held - start) * 1024 / count:.2f}"],
                 ["GETs while they came: number, median ms, slowest ms", told(asked)],
                 ["GETs while they were held and closed: the same", told(asked_meanwhile)],
                 [f"of {BEYOND} connections beyond the limit, closed at once", beyond],
                 [f"closed after their {HEAD_SECONDS} s: first, last", f"{ends[0]:.1f} s, {ends[1]:.1f} s"],
                 ["bytes they were sent", received],
             ])]
    publish("silent", lines, whole=args.connections >= limit)


def open_files(pid):
    """The soft limit of a process, which has to be its hard limit."""
    text = pathlib.Path(f"/proc/{pid}/limits").read_text()
    soft, hard = re.search(r"Max open files\s+(\d+)\s+(\d+)", text).groups()
    if soft != hard:
        fail(f"the limit of open files is {soft} and not the hard limit {hard}")
    return int(soft)


def silent(port, number):
    sock = socket.socket()
    # The port is chosen at connect, when the kernel knows that it only has to be new for this target.
    sock.setsockopt(socket.IPPROTO_IP, getattr(socket, "IP_BIND_ADDRESS_NO_PORT", 24), 1)
    sock.bind((f"127.0.0.{2 + number // PER_SOURCE}", 0))
    sock.connect(("127.0.0.1", port))
    return sock


def ask(port):
    """Milliseconds of one request with its connection."""
    start = time.monotonic()
    with Conn(port) as conn:
        conn.ask(SMALL, port)
    return (time.monotonic() - start) * 1000


def opened(port, count):
    sockets, asked, start = [], [], time.monotonic()
    try:
        for number in range(count):
            sockets.append(silent(port, number))
            if number % EVERY == 0:
                asked.append(ask(port))
    except (OSError, ValueError) as error:
        fail(f"connection {len(sockets)}: {error}")
    return sockets, (start, time.monotonic()), asked


def closed_at_once(port, room):
    """How many of those beyond the limit are closed; the room that is left is filled first."""
    fill = [silent(port, 0) for _ in range(room)]
    time.sleep(1)
    beyond = [silent(port, 0) for _ in range(BEYOND)]
    time.sleep(1)
    closed = 0
    for sock in beyond:
        sock.setblocking(False)
        try:
            closed += sock.recv(1) == b""
        except BlockingIOError:
            pass
        except ConnectionError:
            closed += 1
    for sock in fill + beyond:
        sock.close()
    return closed


def given_up(port, sockets, start):
    """When the first and the last was closed, what they were sent, and how requests fared meanwhile."""
    poll = select.epoll()
    waiting = {sock.fileno(): sock for sock in sockets}
    for fd in waiting:
        poll.register(fd, select.EPOLLIN)
    first = last = received = 0
    asked = []
    while waiting:
        for fd, _ in poll.poll(0.1, 1024):
            last = time.monotonic() - start
            first = first or last
            try:
                received += len(waiting[fd].recv(1024))
            except ConnectionError:
                pass
            poll.unregister(fd)
            waiting.pop(fd).close()
        asked.append(ask(port))
        if time.monotonic() - start > HEAD_SECONDS * 2 + GRACE_SECONDS:
            fail(f"{len(waiting)} silent connections are still open")
    return (first, last), received, asked


def told(asked):
    return f"{len(asked)}, {statistics.median(asked):.1f}, {max(asked):.1f}"


if __name__ == "__main__":
    main()
