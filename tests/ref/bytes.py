#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bytes that every network of models/ reserves, against the golden list models/golden_bytes.tsv.

    bytes.py --ullage build/release/ullage [--target c] [--precision fp32] [FILTER]
             [--update [--why REASON]]

Prints, for each, weights, reserved, reserved less weights, the lower bound and the gap. A network
that reserves other bytes than the golden list says, or that the list lacks, is a failure (exit 6)
until the change is reviewed and taken over by --update, with the reason where bytes grow.
Another target or precision has a list of its own, models/golden_bytes_cpu.tsv (for AVX2, two threads
and Debian 12's oneDNN) and models/golden_bytes_bf16.tsv. The networks are of full size; their
weights are holes (models/make.py --hollow) where values decide nothing of the bytes.
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
MACHINE = {"c": [], "cpu": ["--isa", "avx2", "--threads", "2"]}
HEAD = ["model", "weights_bytes", "reserved_bytes", "lower_bound_bytes", "why_it_grew"]
DIGITS = "digits"

# Scales and zero points, which are weights too, decide what is computed.
VALUED = {"qdq_convnet", "integer_net"}

# MiB of reserved less weights, batch 1, that the light models must not exceed.
LIGHT_LIMITS = {"resnet50": 5.5, "densenet121": 7.0, "inception_v1": 4.5, "squeezenet": 3.8,
                "shufflenet": 3.0}  # fmt: skip


def plan(args, path, options):
    """The golden numbers of one model, or the compiler's complaint."""
    command = [args.ullage, "plan", path, "--target", args.target, *MACHINE[args.target],
               "--precision", args.precision, "--json", "-", *options]  # fmt: skip
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode != 0:
        message = done.stderr.decode(errors="replace").strip().splitlines()
        return None, f"exit {done.returncode}: {message[0] if message else ''}"
    report = json.loads(done.stdout)
    bound = max(report["lower_bound_bytes"], report["order_lower_bound_bytes"])
    return [report["rows"]["weights"], report["reserved_bytes"], bound], None


def networks(small, pattern, hollow=False):
    """(name, path, options) of every network, made first where it is not there; none is an error."""
    sys.path[:0] = [HERE]
    import compare_ort

    names = [name for name in [DIGITS, *compare_ort.make.NETWORKS] if re.search(pattern, name)]
    if not names:
        sys.exit(f"{os.path.basename(sys.argv[0])}: no network has {pattern} in its name")
    if DIGITS in names:
        names.remove(DIGITS)
        path = os.path.join(ROOT, "models", "digits", "digits.onnx")
        yield DIGITS, path, ["--dim", "N=1"]
    for name in names:
        request = argparse.Namespace(model=name, small=small, batch=1,
                                     hollow=hollow and name not in VALUED)  # fmt: skip
        yield name + ("_small" if small else ""), compare_ort.model_path(request), []


def golden_path(args):
    words = [word for word in (args.target, args.precision) if word not in ("c", "fp32")]
    return os.path.join(ROOT, "models", "_".join(["golden_bytes", *words]) + ".tsv")


def read_golden(path):
    """{network: [its three numbers, why they grew]}"""
    golden = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as f:
            for line in f.read().splitlines()[1:]:
                name, *numbers, why = line.split("\t")
                golden[name] = [*map(int, numbers), why]
    return golden


def write_golden(path, golden):
    with open(path, "w", encoding="utf-8") as f:
        f.write("\t".join(HEAD) + "\n")
        for name in sorted(golden):
            f.write("\t".join([name, *map(str, golden[name])]) + "\n")


def show(name, numbers, note=""):
    weights, reserved, bound = numbers
    gap = (reserved - bound) / reserved if reserved else 0
    other = (reserved - weights) / 2**20
    print(f"{name:24} weights {weights:>11}  reserved {reserved:>11}  "
          f"other {other:8.3f} MiB  gap {100 * gap:5.2f} %{note}")  # fmt: skip


def fault(golden, numbers):
    """What is wrong with the numbers of a network, or nothing."""
    if golden is None:
        return "  FAIL not in the golden list"
    if numbers == golden[:3]:
        return ""
    return f"  FAIL {', '.join(map(str, golden[:3]))} in the golden list; --update renews it"


def light(args):
    """ONNX's light models against their limits; returns how many fail."""
    folder = os.path.join(os.environ.get("ULLAGE_DATA", "/nonexistent"), "light")
    if not os.path.isdir(folder):
        print("SKIP ONNX's light models: ULLAGE_DATA names no folder with light/")
        return 0
    failed = 0
    for name, limit in LIGHT_LIMITS.items():
        path = os.path.join(folder, f"light_{name}.onnx")
        numbers, complaint = plan(args, path, [])
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
    parser.add_argument("--target", default="c", choices=MACHINE)
    parser.add_argument("--precision", default="fp32", choices=["fp32", "fp16", "bf16"])
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--why", help="of bytes that grow")
    args = parser.parse_args()
    golden, passed, failed = read_golden(golden_path(args)), 0, 0
    for name, path, options in networks(False, args.filter, hollow=True):
        numbers, complaint = plan(args, path, options)
        if complaint:
            print(f"FAIL {name}: {complaint}")
            failed += 1
            continue
        if args.update and golden.get(name, [])[:3] != numbers:
            golden[name] = [*numbers, args.why or ""]
        note = fault(golden.get(name), numbers)
        failed += note != ""
        passed += note == ""
        show(name, numbers, note)
    if args.update:
        write_golden(golden_path(args), golden)
    if args.target == "c" and args.precision == "fp32":
        failed += light(args)
    print(f"{passed} passed, {failed} failed")
    sys.exit(6 if failed else 0)


if __name__ == "__main__":
    main()
