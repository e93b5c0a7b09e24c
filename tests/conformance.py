"""Replays the blocks of APISIX's suite that start a data plane with a file.

This version has neither Admin API nor etcd, through which most blocks configure; those are taken
out before the replay, so that a run takes minutes. The replayer's own classification, checks and
list of valid blocks (those that pass on APISIX itself under the same replayer) stay as they are.

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

ROOT = pathlib.Path(__file__).resolve().parents[1]
TABLE = ROOT / "tests" / "conformance.md"
# What this version delivers.
FOLDERS = ["t/router", "t/node", "t/config-center-yaml", "t/config-center-json"]
PLUGINS = ["echo", "key-auth", "ip-restriction", "proxy-rewrite", "response-rewrite", "request-id", "cors",
           "redirect", "uri-blocker", "ua-restriction", "fault-injection", "mocking", "prometheus"]
OTHER = "configures through the Admin API or etcd"
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


def by_file(block):
    """Whether the block brings its own routes file."""
    return bool(block.get("apisix_yaml") or block.get("apisix_json"))


def load_replayer(path):
    """The replayer as a module, with a suite of file-configured blocks only."""
    sys.path.insert(0, str(path.parent))
    import suite

    everything = suite.load

    def load(folder, only=None):
        files = everything(folder, only)
        for file in files:
            for block in file.blocks:
                if block.cls != "skip" and not by_file(block):
                    block.cls, block.reason = "skip", OTHER
        return files

    suite.load = load
    spec = importlib.util.spec_from_file_location("replay", path)
    replay = importlib.util.module_from_spec(spec)
    # The replayer's workers are processes that run its own file; they get the filtered blocks.
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
        sys.exit("conformance: no block of the selection configures through a file")
    lines = table(groups)
    print("\n".join(lines))
    if words:
        print("tests/conformance.md is written only by a run without a selection")
    else:
        write(lines)


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
        if block.get("reason") == OTHER:
            row["other"] += 1
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
    columns = ["blocks", "other", "replay", "pass", "valid", "valid pass"]
    lines = ["| group | blocks | by Admin API | replayed | pass | valid | valid pass |",
             "| --- | ---: | ---: | ---: | ---: | ---: | ---: |"]
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
