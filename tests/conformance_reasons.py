"""Why blocks of APISIX's suite fail here, one line each.

People write the reasons (conformance-reasons.txt); what is written beside them (conformance-failures.md)
comes from a run, so that a failure without a reason and a reason that is out of date both show.
"""

import collections
import datetime
import pathlib

HERE = pathlib.Path(__file__).resolve().parent
# Such a block may pass.
AT_TIMES = "at times: "
REASONS, FAILURES = HERE / "conformance-reasons.txt", HERE / "conformance-failures.md"
# What is explained block by block.
FOLDERS = ["t/admin", "t/config-center-json", "t/config-center-yaml", "t/control", "t/router"]


def read(text):
    """Reasons by file and number; a ValueError names the line that is none."""
    reasons = {}
    for at, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            file, blocks, reason = line.split(None, 2)
            for part in blocks.split(","):
                for number in numbers(part):
                    if (file, number) in reasons:
                        raise ValueError(f"{file} {number} is there twice")
                    reasons[file, number] = reason.strip()
        except ValueError as error:
            raise ValueError(f"{REASONS.name}:{at}: {error}: a line is FILE BLOCKS REASON") from None
    return reasons


def explained(blocks, reasons, table):
    """The lines of the page for the blocks of a run, and how many have no reason or one that is out of date."""
    blocks = [block for block in blocks if block["class"] == "replay" and folder(block["file"]) in FOLDERS]
    results = {identity(block): block.get("result") == "pass" for block in blocks}
    failing = [key for key, passed in results.items() if not passed]
    missing = [key for key in failing if key not in reasons]
    # What was not replayed this time says nothing about its reason.
    files = {file for file, _ in results}
    stale = [key for key, reason in reasons.items()
             if key[0] in files and results.get(key, True) and not reason.startswith(AT_TIMES)]
    groups = collections.defaultdict(lambda: collections.defaultdict(list))
    for file, number in failing:
        if (file, number) in reasons:
            groups[folder(file)][file, reasons[file, number]].append(number)
    lines = [*table, ""]
    for name in sorted(groups):
        lines += [f"## {name}", ""]
        lines += [f"- {file.split('/')[-1]} {spans(failed)}: {reason}" for (file, reason), failed in groups[name].items()]
        lines.append("")
    for title, keys in (("Without a reason", missing), ("Reasons that are out of date: these blocks pass, or are not replayed", stale)):
        if keys:
            lines += [f"## {title}", "", *(f"- {file} {number}" for file, number in keys), ""]
    return lines, len(missing) + len(stale)


def numbers(part):
    """Blocks of `7`, `1-3` or `#17`: one that has no number of its own."""
    if part.startswith("#"):
        return [part]
    first, _, last = part.partition("-")
    return range(int(first), int(last or first) + 1)


def folder(file):
    return "/".join(file.split("/")[:2])


def identity(block):
    file, _, number = block["id"].rpartition(":")
    return file, int(number) if number.isdigit() else number


def spans(blocks):
    """Blocks as people write them: 1-3, 5."""
    out = []
    plain = [number for number in blocks if isinstance(number, int)]
    for number in sorted(plain):
        if out and number == out[-1][1] + 1:
            out[-1][1] = number
        else:
            out.append([number, number])
    named = [number for number in blocks if number not in plain]
    return ", ".join([*(str(a) if a == b else f"{a}-{b}" for a, b in out), *named])


def write(lines):
    head = ["# Blocks of APISIX's suite that fail", "",
            f"Written by `make conformance` on {datetime.date.today().isoformat()}. The reasons are in "
            f"[{REASONS.name}]({REASONS.name}), one line for each file and reason; APISIX's configuration is in etcd "
            "(`t/config-center-*`: in a file).", ""]
    FAILURES.write_text("\n".join(head + lines).rstrip() + "\n")
