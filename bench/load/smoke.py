"""Every contender that is ours answers every path once, unoptimised: the load tests still work."""

import os

os.environ.setdefault("BENCH_PROFILE", "debug")

import stand as s

with s.Stand(measuring=False) as stand:
    for contender in (s.floor(stand), s.lockgate(stand, "none"),
                      s.lockgate(stand, "none", access_log=True), s.lockgate(stand, "ten")):
        stand.stop(stand.start(contender).process)
        print(f"smoke: {contender.name} works")
