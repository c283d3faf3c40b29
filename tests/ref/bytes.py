#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bytes that every network of models/ reserves, against the golden list models/golden_bytes.tsv.

    bytes.py --ullage build/release/ullage [--target c] [--precision fp32] [--small] [--update]
             [FILTER]

Prints, for each, weights, reserved, reserved less weights, the lower bound and the gap. A network
that reserves more than the golden list says, or that the list lacks, is a failure (exit 6) until
the growth is reviewed and taken over by --update; one that reserves less is only named. The list is
that of target c; another target may exceed it by what its rows name, scratch and alignment at the
peak, what packing adds to the weights, and in the networks of OPERANDS what is written only for
calls of its library, and by nothing else.
Each precision has a list of its own, models/golden_bytes_bf16.tsv.
With ULLAGE_DATA naming a folder that has ONNX's light models in light/, these are listed too,
against the limits below.
"""

import argparse
import json
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
GOLDEN = os.path.join(ROOT, "models", "golden_bytes.tsv")
HEAD = ["model", "weights_bytes", "reserved_bytes", "lower_bound_bytes"]
DIGITS = "digits"

# Kernels of target c normalise and clip what they read on the way to the product; for a call that
# is written first.
OPERANDS = {"densenet121"}

# MiB of reserved less weights, batch 1, that the light models must not exceed.
LIGHT_LIMITS = {"resnet50": 5.5, "densenet121": 7.0, "inception_v1": 4.5, "squeezenet": 3.8,
                "shufflenet": 3.0}  # fmt: skip


def plan(ullage, target, path, options):
    """The golden columns of one model and its bytes beside values, or the compiler's complaint."""
    command = [ullage, "plan", path, "--target", target, "--json", "-", *options]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode != 0:
        message = done.stderr.decode(errors="replace").strip().splitlines()
        return None, f"exit {done.returncode}: {message[0] if message else ''}"
    report = json.loads(done.stdout)
    bound = max(report["lower_bound_bytes"], report["order_lower_bound_bytes"])
    rows = report["rows"]
    beside = rows["scratch"] + rows["alignment"]
    if os.path.basename(path).removesuffix(".onnx") in OPERANDS:
        beside += report.get("for_library", {}).get("operand_bytes", 0)
    return [rows["weights"], report["reserved_bytes"], bound, beside], None


def networks(small, pattern):
    """(name, path, options) of every network, made first where it is not there."""
    sys.path[:0] = [HERE]
    import compare_ort

    if re.search(pattern, DIGITS):
        path = os.path.join(ROOT, "models", "digits", "digits.onnx")
        yield DIGITS, path, ["--dim", "N=1"]
    for name in compare_ort.make.NETWORKS:
        if not re.search(pattern, name):
            continue
        request = argparse.Namespace(model=name, small=small, batch=1)
        yield name + ("_small" if small else ""), compare_ort.model_path(request), []


def golden_path(precision):
    return GOLDEN if precision == "fp32" else GOLDEN.replace(".tsv", f"_{precision}.tsv")


def read_golden(path):
    golden = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as f:
            for line in f.read().splitlines()[1:]:
                name, *numbers = line.split("\t")
                golden[name] = [int(number) for number in numbers]
    return golden


def write_golden(path, golden):
    with open(path, "w", encoding="utf-8") as f:
        f.write("\t".join(HEAD) + "\n")
        for name in sorted(golden):
            f.write("\t".join([name, *map(str, golden[name])]) + "\n")


def show(name, numbers, note=""):
    weights, reserved, bound, _ = numbers
    gap = (reserved - bound) / reserved if reserved else 0
    other = (reserved - weights) / 2**20
    print(f"{name:24} weights {weights:>11}  reserved {reserved:>11}  "
          f"other {other:8.3f} MiB  gap {100 * gap:5.2f} %{note}")  # fmt: skip


def compare(golden, numbers, target):
    """(has it grown, a note)"""
    if golden is None:
        return True, "  FAIL not in the golden list"
    more = numbers[1] - golden[1]
    packing, beside = max(0, numbers[0] - golden[0]), numbers[3]
    allowed = 0 if target == "c" else packing + beside
    if more > allowed:
        return True, f"  FAIL grown by {more}" + (f" of {allowed}" if target != "c" else "")
    if more > 0:
        return False, f"  more by {more}: packing {packing}, other rows {beside}"
    return False, f"  less by {-more}" if more < 0 else ""


def light(ullage, target):
    """ONNX's light models against their limits; returns how many fail."""
    folder = os.path.join(os.environ.get("ULLAGE_DATA", "/nonexistent"), "light")
    if not os.path.isdir(folder):
        print("SKIP ONNX's light models: ULLAGE_DATA names no folder with light/")
        return 0
    failed = 0
    for name, limit in LIGHT_LIMITS.items():
        path = os.path.join(folder, f"light_{name}.onnx")
        numbers, complaint = plan(ullage, target, path, [])
        if complaint:
            print(f"FAIL light_{name}: {complaint}")
            failed += 1
            continue
        over = numbers[1] - numbers[0] > limit * 2**20
        failed += over
        show("light_" + name, numbers, f"  limit {limit} MiB{'  FAIL' if over else ''}")
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("filter", nargs="?", default=".")
    parser.add_argument("--ullage", required=True)
    parser.add_argument("--target", default="c")
    parser.add_argument("--precision", default="fp32", choices=["fp32", "fp16", "bf16"])
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--update", action="store_true")
    args = parser.parse_args()
    if args.update and args.target != "c":
        parser.error("the golden list is that of target c")
    golden, passed, failed = read_golden(golden_path(args.precision)), 0, 0
    for name, path, options in networks(args.small, args.filter):
        options = [*options, "--precision", args.precision]
        numbers, complaint = plan(args.ullage, args.target, path, options)
        if complaint:
            print(f"FAIL {name}: {complaint}")
            failed += 1
            continue
        if args.update:
            golden[name] = numbers[:3]
        grown, note = compare(golden.get(name), numbers, args.target)
        failed += grown
        passed += not grown
        show(name, numbers, note)
    if args.update:
        write_golden(golden_path(args.precision), golden)
    if not args.small and args.precision == "fp32":
        failed += light(args.ullage, args.target)
    print(f"{passed} passed, {failed} failed")
    sys.exit(6 if failed else 0)


if __name__ == "__main__":
    main()
