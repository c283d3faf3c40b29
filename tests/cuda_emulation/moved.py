#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Bytes that the kernels of target cuda read and write, counted under the emulation, beside the
plan's account of each step: each byte of an argument once, which is the least for these kernels.

    moved.py ULLAGE [--full] [--precision fp16] [--calls on|off] [--limit 1.2] [--steps] [NAME...]

counted    distinct sectors of 32 bytes that each launch reads, and those that it writes: what
           memory moves where a cache holds what is read again within the launch
through    all that threads read and write: what goes through the cache in front of memory
A network that counts more than --limit of its plan is a failure; --steps lists the steps that do.
exit: 0 ok, 6 a network moves more, 77 a Python package is missing
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "scripts"))

import environment  # noqa: E402

environment.need("onnx", "onnxruntime")

NETWORKS = ["resnet50", "convnext_t", "swin_t", "bert_base", "gpt2"]


def call(command, passes=(0,), **environment):
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          env={**os.environ, **environment}, check=False)  # fmt: skip
    if done.returncode not in passes:
        sys.exit(f"{command[0]}: exit {done.returncode}: {done.stderr.strip()[-800:]}")
    return done.stdout


def measure(ullage, model, options, folder):
    """For each step its name, its plan's bytes, those counted, and all that threads touch."""
    program, counts = os.path.join(folder, "program"), os.path.join(folder, "counts.tsv")
    plan = json.loads(call([ullage, "plan", model, "--target", "cuda", *options, "--json", "-"]))
    call([ullage, "compile", model, "--target", "cuda", *options, "-o", program],
         UL_EMULATE_COUNT="1")  # fmt: skip
    call([program, "--random", "1"], (0, 2), UL_EMULATE_COUNT=counts)  # 2: a random index was out of range
    names, moved = plan["steps"]["name"], plan["steps"]["moved_bytes"]
    steps = [[name, least, 0, 0] for name, least in zip(names, moved, strict=True)]
    with open(counts, encoding="utf-8") as file:
        for line in file.read().splitlines()[1:]:
            number, _, _, *counts = line.split("\t")
            number, read, written, read_sectors, written_sectors = map(int, [number, *counts[:4]])
            steps[number][2] += 32 * (read_sectors + written_sectors)
            steps[number][3] += read + written
    return steps


def show(steps, limit):
    more = [step for step in steps if step[2] > limit * step[1]]
    for name, least, counted, through in sorted(more, key=lambda step: step[1] - step[2])[:40]:
        factor = counted / least if least > 0 else float("inf")
        print(f"    {factor:8.2f} {least:12} {counted:12} {through:12}  {name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ullage")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--precision", default="fp16")
    parser.add_argument("--calls", default="on", choices=["on", "off"])
    parser.add_argument("--limit", type=float, default=1.2)
    parser.add_argument("--steps", action="store_true")
    arguments = parser.parse_intermixed_args()
    os.environ["NVCC"] = os.path.join(HERE, "nvcc")
    if arguments.calls == "off":  # kernels of ours in place of the libraries' calls
        os.environ["UL_EMULATE_NO_ALGORITHMS"] = "1"
    options = ["--precision", arguments.precision, "--with-cudnn", "on"]
    failed = 0
    print(f"{'network':16} {'plan':>12} {'counted':>12} {'factor':>7} {'through':>13} {'factor':>7}")
    for name in arguments.names or NETWORKS:
        with tempfile.TemporaryDirectory() as folder:
            model = os.path.join(folder, "model.onnx")
            size = [] if arguments.full else ["--small"]
            call([sys.executable, os.path.join(ROOT, "models", "make.py"), name, *size, "-o", model])
            steps = measure(arguments.ullage, model, options, folder)
        least, counted, through = (sum(step[i] for step in steps) for i in (1, 2, 3))
        print(f"{name:16} {least:12} {counted:12} {counted / least:7.2f} {through:13} "
              f"{through / least:7.2f}", flush=True)  # fmt: skip
        if arguments.steps:
            show(steps, arguments.limit)
        failed = 6 if counted > arguments.limit * least else failed
    return failed


sys.exit(main())
