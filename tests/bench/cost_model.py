#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the cost model is worth: predicted against measured time of every step of networks.

    cost_model.py --ullage build/release/cli/ullage [--profile NAME|FILE] [--models DIR] [FILTER...]
                  [-- COMPILE OPTIONS]

Compiles each network, runs it with --bench --profile, and takes the least time of each step, since
whatever else the machine does only adds. "rank" is Spearman's correlation of the steps' predicted
and measured times; "ratio" the sum of the predicted by the sum of the measured; "within" the share
of the measured time that is in steps predicted within a factor of two; "typical" the median factor
between the two, weighted by measured time. The last line takes all networks together.
--steps prints the steps that are predicted worst. Without --models, the networks are made small.
"""

import argparse
import glob
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "..", "scripts")]

import environment  # noqa: E402

environment.need("onnx", "onnxruntime")


def ranks(values):
    """Ranks from 0; equal values share the mean of theirs."""
    order = sorted(range(len(values)), key=lambda i: values[i])
    result = [0.0] * len(values)
    at = 0
    while at < len(order):
        end = at
        while end < len(order) and values[order[end]] == values[order[at]]:
            end += 1
        for i in order[at:end]:
            result[i] = (at + end - 1) / 2
        at = end
    return result


def rank_correlation(left, right):
    a, b = ranks(left), ranks(right)
    mean = (len(a) - 1) / 2
    spread = (sum((x - mean) ** 2 for x in a) * sum((x - mean) ** 2 for x in b)) ** 0.5
    return sum((x - mean) * (y - mean) for x, y in zip(a, b)) / spread if spread else 1.0


def measure(args, path, folder):
    """[(predicted, measured, operators, node)] of all steps, or None."""
    program = os.path.join(folder, "program")
    result = os.path.join(folder, "bench.json")
    compile_it = [args.ullage, "compile", path, "-o", program]
    if args.profile:
        compile_it += ["--profile", args.profile]
    compile_it += args.options
    run = [program, "--bench", "--profile", "--duration", str(args.seconds), "--json", result]
    for command in (compile_it, run):
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        if done.returncode != 0:
            print(f"{os.path.basename(path)}: exit {done.returncode}: {done.stderr.strip()[-200:]}")
            return None
    with open(result, encoding="utf-8") as f:
        steps = json.load(f)["steps"]
    return [
        (s["predicted_seconds"], max(s["least_seconds"], 1e-9), s["op"], s["node"]) for s in steps
    ]


def summary(name, steps):
    predicted = [s[0] for s in steps]
    measured = [s[1] for s in steps]
    total = sum(measured)
    factors = sorted((max(p / m, m / p), m) for p, m in zip(predicted, measured))
    within = sum(m for factor, m in factors if factor <= 2) / total
    half, typical = 0.0, 1.0
    for factor, m in factors:
        half += m
        typical = factor
        if half >= total / 2:
            break
    rank = rank_correlation(predicted, measured)
    print(f"{name:24} {len(steps):5} {total * 1e3:10.3f} {sum(predicted) * 1e3:10.3f}"
          f" {sum(predicted) / total:6.2f} {rank:6.3f} {100 * within:6.1f}% {typical:8.2f}", flush=True)  # fmt: skip


def worst(steps, count):
    steps = sorted(steps, key=lambda s: -abs(s[0] - s[1]))[:count]
    for predicted, measured, op, node in steps:
        print(f"    {measured * 1e6:10.2f} us, predicted {predicted * 1e6:10.2f}  {op}  {node}")


def find_models(directory, filters, folder):
    """Files of a folder whose names have one of `filters`; of None: small networks, made in `folder`."""
    if directory is None:
        directory = folder
        maker = os.path.join(HERE, "..", "..", "models", "make.py")
        subprocess.run([sys.executable, maker, "all", "--small", "-o", folder], check=True, stdout=subprocess.DEVNULL)  # fmt: skip
    paths = sorted(glob.glob(os.path.join(directory, "*.onnx")))
    found = [p for p in paths if not filters or any(f in os.path.basename(p) for f in filters)]
    if not found:
        sys.exit(f"{os.path.basename(sys.argv[0])}: no model has {' or '.join(filters)} in its name")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("filters", nargs="*")
    parser.add_argument("--ullage", required=True)
    parser.add_argument("--profile", help="of ullage profile; else the built-in one")
    parser.add_argument("--models", help="a folder of .onnx files")
    parser.add_argument("--seconds", type=float, default=1.0, help="of measuring each network")
    parser.add_argument("--steps", type=int, default=0, help="how many steps to print")
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    args = parser.parse_args(sys.argv[1:at])
    args.options = sys.argv[at + 1 :]
    everything = []
    print(f"{'network':24} {'steps':>5} {'measured':>10} {'predicted':>10} {'ratio':>6} {'rank':>6}"
          f" {'within':>7} {'typical':>8}   (ms)")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        for path in find_models(args.models, args.filters, folder):
            steps = measure(args, path, folder)
            if steps is None:
                continue
            summary(os.path.basename(path).removesuffix(".onnx"), steps)
            worst(steps, args.steps)
            everything += steps
    if everything:
        summary("all", everything)
    return 0 if everything else 6


if __name__ == "__main__":
    sys.exit(main())
