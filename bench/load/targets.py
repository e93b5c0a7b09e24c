"""The targets of the wire lane beside what was measured last, as one table.

Reads what load, instructions and memory left in bench/out.
"""

import datetime

from report import facts, kept, publish, table
from workloads import WORKLOADS

MIB_IDLE = 40
WIRE, NGINX = "lockgate", "nginx"
TEN, TEN_GENERAL, TEN_NGINX = "lockgate, ten plugins", "lockgate, general, ten plugins", "nginx, equivalents"


def main():
    kinds = {kind: kept(kind) for kind in ("instructions", "load", "memory")}
    commits = ", ".join(f"{kind} {figures.get('commit', 'missing')}" for kind, figures in kinds.items())
    lines = [f"# Targets, {datetime.date.today().isoformat()}", "", *facts(), f"- figures of commit: {commits}", "",
             *table(["what", "target", "measured", "met"], rows(**kinds))]
    publish("targets", lines)


def rows(instructions, load, memory):
    def counted(workload, limit):
        ours, theirs = (figure(instructions, workload, name, "instructions") for name in (WIRE, NGINX))
        return row(f"instructions: {title(workload)}", f"<= {limit} and below nginx's", ours and theirs
                   and f"{ours:.0f}; nginx {theirs:.0f}", ours and theirs and ours <= limit and ours < theirs)

    def cpu(workload, ours, theirs, limit):
        a, b = (figure(load, workload, name, "cpu_us") for name in (ours, theirs))
        multiple = figure(load, workload, ours, "cpu_x", theirs)
        return row(f"CPU: {title(workload)}", f"<= {limit} x {theirs}",
                   multiple and f"{multiple:.2f} ({a:.1f} us; {b:.1f} us)", multiple and round(multiple, 2) <= limit)

    yield counted("small", 17_000)
    yield counted("browser", 21_000)
    yield cpu("small", WIRE, NGINX, 1.0)
    yield cpu("browser", WIRE, NGINX, 1.0)
    yield cpu("10k", WIRE, NGINX, 1.0)
    yield cpu("ten", TEN, TEN_NGINX, 1.0)
    yield cpu("ten", TEN, TEN_GENERAL, 0.45)
    yield cpu("down", WIRE, NGINX, 1.0)
    yield cpu("up", WIRE, NGINX, 1.0)
    yield cpu("tls", WIRE, NGINX, 1.0)
    allocations = figure(instructions, "small", WIRE, "allocations")
    # The process allocates a little by the clock too: a hundredth is not the request's.
    yield row(f"allocations: {title('small')}", "<= 1", some(allocations, "{:.2f}"),
              allocations is not None and round(allocations, 1) <= 1)
    idle = max((figure(memory, WIRE, key) or 0 for key in ("idle_mib", "again_mib")), default=0)
    yield row("10,000 idle keep-alive connections", f"<= {MIB_IDLE} MiB in all", idle and f"{idle:.1f} MiB",
              idle and idle <= MIB_IDLE)
    names = (WIRE, NGINX, "haproxy")
    rates = {name: figure(load, "two-workers", name, "rps") for name in names}
    told = "; ".join(f"{name} {rate:.0f}" for name, rate in rates.items() if rate)
    yield ["requests/s, two workers on two cores", "reported", told or "not measured", "-"]


def title(name):
    return next(w.title for w in WORKLOADS if w.name == name)


def some(value, form):
    return None if value is None else form.format(value)


def figure(figures, *path):
    for part in path:
        figures = figures.get(part, {}) if isinstance(figures, dict) else {}
    return figures or (figures if figures == 0 else None)


def row(what, target, measured, met):
    return [what, target, measured or "not measured", ("yes" if met else "NO") if measured else "-"]


if __name__ == "__main__":
    main()
