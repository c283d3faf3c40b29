#!/usr/bin/env python3
"""Target cpu needs no more than target c but for what its library asks for, network by network.

    reserved.py --ullage build/release/cli/ullage [--small] [--threads N] [FILTER]

Plans every network of models/ for both and compares what is reserved. What cpu may need beyond c
are the rows that its plan names for it: scratch, the packing of weights ("for_library") and the
alignment of what is there besides. Exit 6 where it needs more, where a row is not in the text of
`ullage plan`, or where packing is claimed that the live ranges do not have.
"""

import argparse
import json
import math
import os
import re
import subprocess
import sys

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "ref")]

import bytes as reference_bytes  # noqa: E402  tests/ref/bytes.py

LABELS = {"packing_bytes": "of it the library's packing", "operand_bytes": "of it operands of its calls"}
SIZES = {"bool": 1, "i8": 1, "u8": 1, "i32": 4, "f32": 4, "i64": 8}


def plan(ullage, path, target, options):
    """(text, plan.json)"""
    command = [ullage, "plan", path, "--target", target, "--json", "/dev/fd/2", *options]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"exit {done.returncode}: {done.stderr.decode(errors='replace')}")
    return done.stdout.decode(), json.loads(done.stderr)


def plain_bytes(type_text):
    name, dims = re.fullmatch(r"(\w+)(?:\[(.*)\])?", type_text).groups()
    return SIZES[name] * math.prod(int(dim) for dim in (dims or "").split(",") if dim)


def packing_bytes(ranges):
    columns = (ranges[key] for key in ("class", "space", "size_bytes", "type"))
    return sum(size - plain_bytes(of) for kind, space, size, of in zip(*columns)
               if kind == "weights" and space == 0)  # fmt: skip


def faults(name, text, cpu, c):
    rows = cpu.get("for_library", dict.fromkeys(LABELS, 0))
    allowed = cpu["rows"]["scratch"] + rows["packing_bytes"] + cpu["rows"]["alignment"]
    if name in reference_bytes.OPERANDS:
        allowed += rows["operand_bytes"]
    more = cpu["reserved_bytes"] - c["reserved_bytes"]
    if more > allowed:
        yield f"  {more} bytes more than target c, of which {allowed} are named"
    if rows["packing_bytes"] != packing_bytes(cpu["ranges"]):
        yield f"  packing {rows['packing_bytes']}, by ranges {packing_bytes(cpu['ranges'])}"
    for key, label in LABELS.items():
        line = re.search(rf"^ +{label} +\S+ +(\d+)$", text, re.MULTILINE)
        if (int(line[1]) if line else 0) != rows[key]:
            yield f"  '{label}' is not {rows[key]} in the text"


def check(name, path, options, args):
    more = ["--threads", str(args.threads)]
    try:
        text, cpu = plan(args.ullage, path, "cpu", [*options, *more])
        _, c = plan(args.ullage, path, "c", options)
    except RuntimeError as error:
        return f"FAIL {name}: {error}"
    lines = list(faults(name, text, cpu, c))
    summary = f"c {c['reserved_bytes']}, cpu {cpu['reserved_bytes']} bytes"
    return "\n".join([f"{'FAIL' if lines else 'ok'} {name}: {summary}", *lines])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ullage", required=True)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("filter", nargs="?", default=".")
    args = parser.parse_args()
    failed = False
    for name, path, options in reference_bytes.networks(args.small, args.filter):
        result = check(name, path, options, args)
        failed = failed or result.startswith("FAIL")
        print(result, flush=True)
    return 6 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
