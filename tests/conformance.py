"""Replays the part of APISIX's suite that is about what this version delivers.

The replayer's own classification, checks and list of valid blocks (those that pass on APISIX itself
under the same replayer) are taken as they are.

    conformance.py SUITE REPLAY GATEWAY [FOLDER|PLUGIN...]
"""

import collections
import datetime
import importlib.util
import json
import os
import pathlib
import shlex
import sys
import tempfile

import conformance_reasons

ROOT = pathlib.Path(__file__).resolve().parents[1]
TABLE = ROOT / "tests" / "conformance.md"
# What this version delivers.
FOLDERS = ["t/admin", "t/router", "t/node", "t/config-center-yaml", "t/config-center-json", "t/control"]
PLUGINS = ["echo", "key-auth", "ip-restriction", "proxy-rewrite", "response-rewrite", "request-id", "cors",
           "redirect", "uri-blocker", "ua-restriction", "fault-injection", "mocking", "prometheus", "limit-count", "limit-req",
           "limit-conn"]
BEGIN, END = "<!-- table: written by make conformance -->", "<!-- end of table -->"


def patterns(words):
    """Globs of suite files for folders, files and plugins."""
    for word in words:
        if word.endswith(".t"):
            yield word
        elif "/" in word:
            yield word.rstrip("/") + "/*"
        else:
            # key-auth.t, key-auth2.t, key-auth-upstream.t; not key-auth's namesakes in other folders.
            yield f"t/plugin/{word}.t"
            yield f"t/plugin/{word}[0-9-]*.t"


def load_replayer(path):
    """The replayer as a module."""
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location("replay", path)
    replay = importlib.util.module_from_spec(spec)
    sys.modules["replay"] = replay
    spec.loader.exec_module(replay)
    return replay


def main():
    folder, replay, gateway, *words = sys.argv[1:]
    replay = pathlib.Path(replay)
    chosen = list(patterns(words or FOLDERS + PLUGINS))
    valid = set(json.loads((replay.parent / "valid-blocks.json").read_text())["blocks"])
    with tempfile.TemporaryDirectory(prefix="lockgate-conformance-") as scratch:
        report = pathlib.Path(os.environ.get("REPORT") or pathlib.Path(scratch) / "report.json")
        options = ["--suite", folder, "--report", str(report), "--jobs", os.environ.get("JOBS", "2"),
                   "--gateway-cmd", shlex.quote(gateway) + " run -c {config}"]
        for pattern in chosen:
            options += ["--only", pattern]
        sys.argv = [str(replay), *options]
        load_replayer(replay).main()
        blocks = json.loads(report.read_text())["blocks"]
    groups = count(blocks, valid)
    if not any(row["replay"] for row in groups.values()):
        sys.exit("conformance: no block of the selection can be replayed")
    lines = table(groups)
    print("\n".join(lines))
    if words:
        print("tests/conformance.md is written only by a run without a selection")
    else:
        write(lines)
    explain(blocks, groups, words)


def explain(blocks, groups, words):
    """The failures of the folders whose blocks are explained one by one; written when all of them were replayed."""
    mine = {name: row for name, row in groups.items() if name in conformance_reasons.FOLDERS}
    if not mine:
        return
    reasons = conformance_reasons.read(conformance_reasons.REASONS.read_text())
    lines, open_ones = conformance_reasons.explained(blocks, reasons, table(mine))
    delivered = set(FOLDERS) & set(conformance_reasons.FOLDERS)
    if not words or delivered <= {word.rstrip("/") for word in words}:
        conformance_reasons.write(lines)
        print(f"written to tests/{conformance_reasons.FAILURES.name}")
    else:
        print("\n".join(lines[len(mine) + 3:]))
    print(f"{open_ones} blocks without a reason, or with one that is out of date")


def group_of(path):
    parts = path.split("/")
    if parts[1] == "plugin":
        name = parts[2].removesuffix(".t")
        return "plugin " + max((p for p in PLUGINS if name.startswith(p)), key=len, default=name)
    return "/".join(parts[:2])


def count(blocks, valid):
    groups = collections.defaultdict(collections.Counter)
    for block in blocks:
        row = groups[group_of(block["file"])]
        row["blocks"] += 1
        if block["class"] != "replay":
            continue
        passed = block.get("result") == "pass"
        row["replay"] += 1
        row["pass"] += passed
        if block["id"] in valid:
            row["valid"] += 1
            row["valid pass"] += passed
    return groups


def table(groups):
    columns = ["blocks", "replay", "pass", "valid", "valid pass"]
    lines = ["| group | blocks | replayed | pass | valid | valid pass |",
             "| --- | ---: | ---: | ---: | ---: | ---: |"]
    total = collections.Counter()
    for name in sorted(groups):
        row = groups[name]
        total.update(row)
        lines.append(f"| {name} | " + " | ".join(str(row[c]) for c in columns) + " |")
    lines.append("| **all** | " + " | ".join(f"**{total[c]}**" for c in columns) + " |")
    return lines


def write(lines):
    text = TABLE.read_text()
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    if not rest or END not in rest:
        sys.exit(f"conformance: {TABLE.name} lacks the marks of its table")
    date = datetime.date.today().isoformat()
    TABLE.write_text("\n".join([before + BEGIN, "", f"Run of {date}.", "", *lines, "", END + after]))
    print(f"written to {TABLE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
