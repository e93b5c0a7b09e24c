"""Every contender that is ours answers every workload once, unoptimised: the load tests still work."""

import os

os.environ.setdefault("BENCH_PROFILE", "debug")

from contenders import contender
from stand import Stand
from workloads import WORKLOADS

with Stand(measuring=False) as stand:
    names = {name: None for w in WORKLOADS for name in w.contenders if not name.startswith(("nginx", "haproxy"))}
    for name in names:
        workloads = [w for w in WORKLOADS if name in w.contenders and not w.tls]
        stand.stop(stand.start(contender(stand, name), workloads).process)
        print(f"smoke: {name} works")
