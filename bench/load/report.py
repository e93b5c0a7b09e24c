"""Results: facts about the machine, tables, and where both are kept."""

import datetime
import json
import os
import pathlib
import platform
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
# For people, kept in the repository.
RESULTS = ROOT / "bench" / "results"
# For targets.py, not kept.
FIGURES = ROOT / "bench" / "out"


def first_line(command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    except FileNotFoundError:
        return "not installed"
    lines = (done.stdout or done.stderr).splitlines()
    return lines[0].strip() if done.returncode in (0, 1) and lines else "unknown"


def profile():
    return os.environ.get("BENCH_PROFILE", "release")


def commit():
    # Results are written between one measurement and the next: they change nothing.
    dirty = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", ".", ":!bench/results"], cwd=ROOT).returncode
    return first_line(["git", "rev-parse", "--short", "HEAD"]) + (" with changes" if dirty else "")


def compiler():
    return first_line(["rustc", "--version"])


def facts():
    """What a reader has to know about the machine, as lines of Markdown."""
    model = re.search(r"model name\s*:\s*(.*)", pathlib.Path("/proc/cpuinfo").read_text())
    return [
        f"- commit {commit()}, profile {profile()}, {compiler()}",
        f"- {os.cpu_count()} cores, {model.group(1) if model else platform.machine()}, "
        f"Linux {platform.release()}, load {os.getloadavg()[0]:.1f} at the start",
        f"- {first_line(['nginx', '-v'])}, {' '.join(first_line(['haproxy', '-v']).split()[:3])}, "
        f"{' '.join(first_line(['wrk', '-v']).split()[:2])}, {first_line(['valgrind', '--version'])}",
    ]


def table(columns, rows):
    """Markdown lines of a table; numbers to the right."""
    rows = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in [columns, *rows]) for i in range(len(columns))]
    pad = lambda row: "| " + " | ".join(
        cell.ljust(width) if i == 0 else cell.rjust(width) for i, (cell, width) in enumerate(zip(row, widths))) + " |"
    rule = "|" + "|".join("-" * (w + 1) + ("-" if i == 0 else ":") for i, w in enumerate(widths)) + "|"
    return [pad(columns), rule, *map(pad, rows)]


def ratio(value, base):
    return f"{value / base:.2f}" if base else "-"


def publish(kind, lines, figures=None, whole=True):
    """Prints a result and keeps it as bench/results/DATE-KIND.md.

    Not kept is what a debug build did, or a run of a part only. `figures` are the numbers behind
    it, for targets.py; those of a part join the others of the same commit."""
    text = "\n".join(lines) + "\n"
    print(text)
    if profile() != "release":
        return
    if figures is not None:
        keep(kind, figures)
    if not whole:
        print("a part of the table: not kept")
        return
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{datetime.date.today().isoformat()}-{kind}.md"
    path.write_text(text)
    print(f"written to {path.relative_to(ROOT)}")


def keep(kind, figures):
    known = kept(kind)
    if known.get("commit") != commit():
        known = {"commit": commit()}
    known.update(figures)
    FIGURES.mkdir(parents=True, exist_ok=True)
    (FIGURES / f"{kind}.json").write_text(json.dumps(known, indent=1) + "\n")


def kept(kind):
    """The figures of the last runs; empty when there were none."""
    path = FIGURES / f"{kind}.json"
    return json.loads(path.read_text()) if path.exists() else {}
