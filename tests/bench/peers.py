#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Speed and memory of compiled programs beside onnxruntime, in one run, as ratios.

    peers.py --ullage build/release/ullage [FILTER] [--target c] [--threads 1] [--seconds 3]
             [--tsv FILE] [-- COMPILE OPTIONS]

For each network of models/ at batch 1: the median latency of the program's --bench and of
onnxruntime with all its optimizations and the same number of threads, and the peak resident memory
of both processes; onnxruntime's less that of a Python process that has only imported it. A ratio
above 1 is in ullage's favour. Nothing here passes or fails; the numbers are for BENCHMARKS.md.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "ref")]

import compare_ort  # noqa: E402
import numpy as np  # noqa: E402
import onnx  # noqa: E402
from lib_run import random_inputs  # noqa: E402

# Runs in a process of its own, so that its peak is that of one network: prints JSON.
RUNTIME = """
import json, statistics, sys, time
import numpy, onnxruntime
peak = lambda: next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmHWM"))
path, file, threads, seconds = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
inputs, before = dict(numpy.load(file)), peak()
options = onnxruntime.SessionOptions()
options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
options.log_severity_level = 3
session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
samples, begin = [], time.perf_counter()
session.run(None, inputs)
while time.perf_counter() - begin < seconds or len(samples) < 10:
    start = time.perf_counter()
    session.run(None, inputs)
    samples.append(time.perf_counter() - start)
print(json.dumps({"median": statistics.median(samples), "bytes": peak() - before}))
"""


def onnxruntime_numbers(args, path, folder):
    file = os.path.join(folder, "inputs.npz")
    command = [sys.executable, "-c", RUNTIME, path, file, str(args.threads), str(args.seconds)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def program_numbers(args, path, folder, names):
    program, report = os.path.join(folder, "program"), os.path.join(folder, "bench.json")
    command = [args.ullage, "compile", path, "-o", program, "--target", args.target, *args.options]
    if args.target == "cpu":  # the others have no use for it
        command += ["--threads", str(args.threads)]
    compare_ort.run(command, "compiling")
    environment = dict(os.environ, OMP_NUM_THREADS=str(args.threads))
    command = [program, "--bench", "--duration", str(args.seconds), "--json", report]
    for name in names:
        command += ["--input", f"{name}={folder}/inputs.npz:{name}"]
    subprocess.run(command, stdout=subprocess.DEVNULL, env=environment, check=True)
    with open(report, encoding="utf-8") as f:
        return json.load(f)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("filter", nargs="?", default=".")
    parser.add_argument("--ullage", required=True)
    parser.add_argument("--target", default="c")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--tsv", help="write the table here too")
    argv = sys.argv[1:]
    at = argv.index("--") if "--" in argv else len(argv)
    args = parser.parse_args(argv[:at])
    args.options = argv[at + 1 :]
    rows, failed = [], 0
    names = [name for name in compare_ort.make.NETWORKS if re.search(args.filter, name)]
    if not names:
        parser.error(f"no network has {args.filter} in its name")
    for name in names:
        path = compare_ort.model_path(argparse.Namespace(model=name, small=False, batch=1))
        with tempfile.TemporaryDirectory(prefix="ullage-bench-") as folder:
            inputs = random_inputs(onnx.load(path, load_external_data=False), seed=1)
            np.savez(os.path.join(folder, "inputs.npz"), **inputs)
            peer = onnxruntime_numbers(args, path, folder)
            try:
                own = program_numbers(args, path, folder, list(inputs))
            except (SystemExit, subprocess.CalledProcessError) as error:
                print(f"FAIL {name}: {error}")
                failed += 1
                continue
        ms, peer_ms = own["latency_seconds"]["median"] * 1e3, peer["median"] * 1e3
        mib, peer_mib = own["peak_resident_bytes"] / 2**20, peer["bytes"] / 2**20
        row = [name, own["reserved_bytes"] / 2**20, ms, peer_ms, peer_ms / ms,
               mib, peer_mib, peer_mib / mib]  # fmt: skip
        rows.append(row)
        print(f"{name:18} reserved {row[1]:8.2f} MiB  {ms:9.2f} ms, onnxruntime {peer_ms:9.2f} ms: "
              f"x{row[4]:5.2f}  resident {mib:8.1f} MiB, onnxruntime {peer_mib:8.1f} MiB: "
              f"x{row[7]:5.2f}", flush=True)  # fmt: skip
    if args.tsv:
        with open(args.tsv, "w", encoding="utf-8") as f:
            f.write("model\treserved_mib\tms\tonnxruntime_ms\tspeed_ratio\tresident_mib\t"
                    "onnxruntime_mib\tmemory_ratio\n")  # fmt: skip
            for row in rows:
                f.write("\t".join([row[0], *(f"{value:.3f}" for value in row[1:])]) + "\n")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
