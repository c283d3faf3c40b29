#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""How long the compiler takes and how much memory it needs, for the networks of models/.

    compile_time.py --ullage build/release/ullage [FILTER] [--runs 3] [--tsv FILE]

"to source" is `compile --emit` without running a C compiler, "in all" is `compile -o`, with it;
both are the best of --runs. "peak" is the largest resident set of the compiler itself while it
writes source, beside the size of the model's file. Limits, on two cores: ResNet-50 under 1 s to
source and 20 s in all; Swin-T under 3 s and 60 s. Exit 6 when one is exceeded.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "ref")]

import compare_ort  # noqa: E402
import onnx  # noqa: E402

LIMITS = {"resnet50": (1, 20), "swin_t": (3, 60)}  # seconds to source, in all


def measure(command, log):
    """(seconds, peak bytes of the child itself, exit code). GNU time forks the child, since a
    child's peak starts at that of the process that forked it, and this one has read a model."""
    peak = log + ".peak"
    begin = time.monotonic()
    with open(log, "wb") as f:
        code = subprocess.call(["/usr/bin/time", "-q", "-f", "%M", "-o", peak, *command],
                               stdin=subprocess.DEVNULL, stdout=f, stderr=f)  # fmt: skip
    seconds = time.monotonic() - begin
    with open(peak, encoding="utf-8") as f:
        return seconds, int(f.read()) * 1024, code


def best(command, runs, folder):
    log = os.path.join(folder, "log")
    results = []
    for _ in range(runs):
        shutil.rmtree(os.path.join(folder, "source"), ignore_errors=True)
        seconds, peak, code = measure(command, log)
        if code != 0:
            with open(log, encoding="utf-8", errors="replace") as f:
                print(f"FAIL exit {code}: {f.readline().strip()}")
            return None, None
        results.append((seconds, peak))
    return min(seconds for seconds, _ in results), max(peak for _, peak in results)


def bench(args, name, path, folder):
    """One row: name, nodes, file MiB, seconds to source, peak MiB, seconds in all."""
    base = [args.ullage, "compile", path, "--target", args.target]
    source, peak = best([*base, "--emit", os.path.join(folder, "source")], args.runs, folder)
    whole, _ = best([*base, "-o", os.path.join(folder, "program")], 1, folder)
    if source is None or whole is None:
        return None
    nodes = len(onnx.load(path, load_external_data=False).graph.node)
    return [name, nodes, os.path.getsize(path) / 2**20, source, peak / 2**20, whole]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("filter", nargs="?", default=".")
    parser.add_argument("--ullage", required=True)
    parser.add_argument("--target", default="c")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--tsv", help="write the table here too")
    args = parser.parse_args()
    rows, failed = [], 0
    names = [name for name in compare_ort.make.NETWORKS if re.search(args.filter, name)]
    if not names:
        parser.error(f"no network has {args.filter} in its name")
    for name in names:
        path = compare_ort.model_path(argparse.Namespace(model=name, small=False, batch=1))
        with tempfile.TemporaryDirectory(prefix="ullage-bench-") as folder:
            row = bench(args, name, path, folder)
        if row is None:
            failed += 1
            continue
        limits = LIMITS.get(name, (float("inf"),) * 2)
        late = row[3] > limits[0] or row[5] > limits[1]
        failed += late
        rows.append(row)
        print(f"{row[0]:18} {row[1]:5} nodes {row[2]:7.1f} MiB  to source {row[3]:6.2f} s, "
              f"peak {row[4]:7.1f} MiB  in all {row[5]:6.2f} s{'  OVER THE LIMIT' * late}",
              flush=True)  # fmt: skip
    if args.tsv:
        with open(args.tsv, "w", encoding="utf-8") as f:
            f.write("model\tnodes\tfile_mib\tto_source_s\tpeak_mib\tin_all_s\n")
            for row in rows:
                f.write("\t".join(f"{v:.3f}" if isinstance(v, float) else str(v) for v in row))
                f.write("\n")
    sys.exit(6 if failed else 0)


if __name__ == "__main__":
    main()
