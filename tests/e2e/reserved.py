#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Targets need the same bytes except for what their libraries ask for, network by network.

    reserved.py --ullage build/release/cli/ullage [--threads N] [FILTER]

Plans every network of models/ for c, cpu and cuda and compares what is reserved. What cpu may need
beyond c are the rows that its plan names for it: scratch, the packing of weights ("for_library")
and the alignment of what is there besides. Beside scratch, alignment and packing, cuda holds what
cpu holds, to the byte, but for constants that it computes when compiling, where a step is a launch:
a 32nd of the weights at most (codegen/target.c). Exit 6 where a target needs more, where a row is not in the text of `ullage
plan`, or where packing is claimed that the live ranges do not have.
"""

import argparse
import itertools
import json
import math
import os
import re
import subprocess
import sys

sys.path[:0] = [os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "ref")]

import bytes as reference_bytes  # noqa: E402  tests/ref/bytes.py

# Kernels of target c normalise and clip what they read on the way to the product; for a call that
# is written first.
OPERANDS = {"densenet121"}
# Its kernels write over what they read, too, which a call cannot.
WRITTEN_OVER = {"ds_cnn"}
FOLDED = 32  # weights that target cuda computes more are at most this part of them

LABELS = {"packing_bytes": "of it the library's packing", "operand_bytes": "of it operands of its calls"}
SIZES = {"bool": 1, "i8": 1, "u8": 1, "i32": 4, "f32": 4, "i64": 8}


def plan(ullage, path, target, options):
    """(text, plan.json)"""
    command = [ullage, "plan", path, "--target", target, "--advice", "off", "--json", "/dev/fd/2",
               *options]
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


def most_held(plan_json):
    """The most bytes alive at a step, apart from scratch and packing; a range that takes over another
    one's bytes has them at the step where both live."""
    ranges = [dict(zip(plan_json["ranges"], row)) for row in zip(*plan_json["ranges"].values())]
    held = [one["space"] == 0 and one["class"] != "scratch" for one in ranges]
    sizes = [plain_bytes(one["type"]) if one["class"] == "weights" else one["size_bytes"]
             for one in ranges]  # fmt: skip
    change = [0] * (max(one["end"] for one in ranges) + 1)
    for one, is_held, size in zip(ranges, held, sizes):
        if not is_held:
            continue
        change[one["begin"]] += size
        change[one["end"]] -= size
        if one["alias"] is not None:
            other, both = ranges[one["alias"]], min(size, sizes[one["alias"]])
            change[one["begin"]] -= both
            change[other["end"]] += both
    return max(itertools.accumulate(change))


def max_activation(ranges):
    return max(size for size, kind in zip(ranges["size_bytes"], ranges["class"], strict=True)
               if kind == "other_activations")  # fmt: skip


def plain_weights(plan):
    return plan["rows"]["weights"] - plan.get("for_library", {}).get("packing_bytes", 0)


def faults(name, text, cpu, c):
    """What is wrong with what target cpu needs beyond c."""
    rows = cpu.get("for_library", dict.fromkeys(LABELS, 0))
    allowed = cpu["rows"]["scratch"] + rows["packing_bytes"] + cpu["rows"]["alignment"]
    if name in OPERANDS:
        allowed += rows["operand_bytes"]
    if name in WRITTEN_OVER:
        allowed += max_activation(cpu["ranges"])
    more = cpu["reserved_bytes"] - c["reserved_bytes"]
    if more > allowed:
        yield f"{more} bytes more than target c, of which {allowed} are named"
    if rows["packing_bytes"] != packing_bytes(cpu["ranges"]):
        yield f"packing {rows['packing_bytes']}, by ranges {packing_bytes(cpu['ranges'])}"
    for key, label in LABELS.items():
        line = re.search(rf"^ +{label} +\S+ +(\d+)$", text, re.MULTILINE)
        if (int(line[1]) if line else 0) != rows[key]:
            yield f"'{label}' is not {rows[key]} in the text"


def check(name, path, options, args):
    more = {"c": [], "cpu": ["--threads", str(args.threads)], "cuda": ["--with-cudnn", "on"]}
    try:
        plans = {target: plan(args.ullage, path, target, [*options, *words])
                 for target, words in more.items()}  # fmt: skip
    except RuntimeError as error:
        return f"FAIL {name}: {error}"
    lines = [f"  {line}" for line in faults(name, *plans["cpu"], plans["c"][1])]
    held = {target: most_held(plans[target][1]) for target in ("cpu", "cuda")}
    weights = {target: plain_weights(plans[target][1]) for target in held}
    folded = weights["cuda"] - weights["cpu"]
    if held["cuda"] - held["cpu"] != folded or folded * FOLDED > weights["cpu"]:
        lines.append(f"  beside scratch, alignment and packing cpu holds {held['cpu']} bytes, "
                     f"cuda {held['cuda']}, of them {folded} of more weights")  # fmt: skip
    rows = plans["cuda"][1]["rows"]
    named = held["cuda"] + rows["scratch"] + rows["alignment"] + rows["holes"]
    if plans["cuda"][1]["reserved_bytes"] > named:
        lines.append(f"  cuda needs more than {named} bytes, of which its plan names each")
    summary = ", ".join(f"{target} {one['reserved_bytes']}" for target, (_, one) in plans.items())
    return "\n".join([f"{'FAIL' if lines else 'ok'} {name}: {summary} bytes", *lines])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ullage", required=True)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("filter", nargs="?", default=".")
    args = parser.parse_args()
    failed = False
    for name, path, options in reference_bytes.networks(False, args.filter, hollow=True):
        result = check(name, path, options, args)
        failed = failed or result.startswith("FAIL")
        print(result, flush=True)
    return 6 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
