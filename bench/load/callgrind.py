"""Counts by callgrind: instructions in user mode, and calls of the allocator.

A contender runs twice, for a few requests and for more; the difference is free of start-up. The
kernel is not counted. Counted too high: large copies, of which valgrind counts every byte.

Allocations are the calls in the same recording that enter an allocator from outside: malloc and its
kin of the C library, and the entry points of mimalloc, which is linked into lockgate and the floor
(so that a preloaded library would see nothing). A reallocation counts as one. nginx and HAProxy
carve most of what they need out of pools, of which only the pool's own blocks are seen.
"""

import collections
import re
import shutil

from client import Conn
from stand import fail

# All in flight at once: as many answers as requests for each turn of an event loop.
CONNECTIONS = 4
# Fewer requests of a mebibyte do.
BULK_SHARE = 20
ALLOCATE = re.compile(r"^(_*libc_)?(malloc|calloc|realloc|posix_memalign|memalign|aligned_alloc|reallocarray)$"
                      r"|^mi_(malloc|zalloc|calloc|realloc)(_aligned)?$")
# Calls between an allocator's own functions are no further allocations.
INSIDE = re.compile(r"^_?mi_|^_int_")
Counts = collections.namedtuple("Counts", "instructions allocations")


def per_request(stand, make, workload, warm, requests, connections=CONNECTIONS):
    """What one request costs; `make` gives a fresh contender."""
    if shutil.which("valgrind") is None:
        fail("valgrind is missing; bash tests/setup.sh bench installs it")
    if workload.bulk:
        warm, requests = (max(n // BULK_SHARE, connections) for n in (warm, requests))
    few, many = (whole_run(stand, make(), workload, n, connections) for n in (warm, warm + requests))
    return Counts(*((b - a) / requests for a, b in zip(few, many)))


def whole_run(stand, contender, workload, requests, connections):
    """Counts from start to end with that many requests."""
    out = stand.folder / f"callgrind-{contender.port}"
    # Names as they are linked: Rust's do not matter here, and demangling them takes long.
    wrapper = ["valgrind", "--tool=callgrind", "--demangle=no", f"--callgrind-out-file={out}"]
    running = stand.start(contender, [workload], wrapper)
    conns = [Conn(contender.port, contender.tls) for _ in range(connections)]
    request = workload.request(contender.port)
    try:
        for _ in range(requests // connections):
            for conn in conns:
                conn.sock.sendall(request)
            for conn in conns:
                conn.expect(workload)
    except (ValueError, OSError) as error:
        fail(f"{contender.name} fails at `{workload.title}`: {error}")
    finally:
        for conn in conns:
            conn.sock.close()
    stand.stop(running.process)
    text = out.read_text() if out.exists() else ""
    found = re.search(r"^(?:totals|summary): (\d+)", text, re.M)
    if not found:
        fail(f"callgrind left no sum for {contender.name}: it did not end by itself")
    return Counts(int(found.group(1)), allocations(text))


def allocations(text):
    """Calls of an allocator in a recording. A name is written once, then only its number."""
    names, caller, callee, found = {}, "", "", 0
    for line in text.splitlines():
        if line.startswith(("fn=", "cfn=")):
            number, _, name = line.partition("=")[2].partition(" ")
            name = names.setdefault(number, name).partition("'")[0]
            if line[0] == "c":
                callee = name
            else:
                caller = name
        elif line.startswith("calls="):
            inside = INSIDE.match(caller) or ALLOCATE.match(caller)
            if ALLOCATE.match(callee) and not inside:
                found += int(line[6:].split()[0])
    return found
