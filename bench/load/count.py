"""One small GET under callgrind against the figure in bench/instructions.json.

The same requests and answers each time, one after another on one connection, so that a difference
is the gateway's: with several, a turn of its event loop takes more or fewer of them as the machine
pleases, which is 2 % up or down. It costs more than in the table of `make instructions`, where turns
are shared. It depends on compiler and profile: it is the release that is counted, what is shipped.

    count.py             fails when a GET costs more than 5 % above what is recorded
    count.py --record    records what it costs now
"""

import json
import pathlib
import platform
import sys

import callgrind
from contenders import contender
from report import ROOT, compiler
from stand import Stand, fail
from workloads import SMALL

RECORD = ROOT / "bench" / "instructions.json"
WARM, REQUESTS = 400, 4000
TOLERANCE = 0.05


def main():
    machine = kind()
    with Stand(measuring=False) as stand:
        now = callgrind.per_request(stand, lambda: contender(stand, "lockgate"), SMALL, WARM, REQUESTS,
                                     connections=1)
    instructions = round(now.instructions)
    print(f"count: a small GET costs {instructions} instructions and {now.allocations:.2f} allocations")
    known = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    if sys.argv[1:] == ["--record"]:
        known[machine] = {"small_get": instructions, "compiler": compiler()}
        RECORD.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n")
        print(f"count: recorded in {RECORD.relative_to(ROOT)}")
        return
    if machine not in known:
        print(f"count: nothing is recorded for {machine}, so nothing is compared; make instructions RECORD=1 records it")
        return
    recorded, by = known[machine]["small_get"], known[machine]["compiler"]
    change = instructions / recorded - 1
    if change > TOLERANCE:
        cause = "" if by == compiler() else f" It was recorded with {by}; this is {compiler()}, which may be the cause."
        fail(f"a small GET costs {instructions} instructions, {change:.1%} above the {recorded} recorded "
             f"(allowed: {TOLERANCE:.0%}).{cause} If it has to cost that, `make instructions RECORD=1` records it; "
             f"commit {RECORD.relative_to(ROOT)} and say why.")
    print(f"count: {change:+.1%} against the {recorded} recorded")
    if change < -TOLERANCE:
        print("count: that is a gain worth keeping: make instructions RECORD=1")


def kind():
    """The architecture, and whether it has the wide instructions that searching chooses at run time."""
    cpuinfo = pathlib.Path("/proc/cpuinfo")
    wide = cpuinfo.exists() and " avx2" in cpuinfo.read_text()
    return platform.machine() + ("+avx2" if wide else "")


if __name__ == "__main__":
    main()
