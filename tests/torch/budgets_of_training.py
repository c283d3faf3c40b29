#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Budgets do not change training: networks.py, exported by torch, down a sweep of budgets.

    budgets_of_training.py ULLAGE [--target cpu] [--plans 10] [NETWORK...]

The sweep of each network is monotone: fewer bytes take more time. Each of ten budgets from the plan
without one down to the smallest known compiles to a model that trains three steps as a
library (painted_steps.c) with every byte that is not persistent filled with NaN before each step,
touches no byte outside of its arena, and ends with the losses, parameters, states and running
statistics of the plan without a budget, bit for bit, as does --pack none.
Exit: 0 ok, 1 a promise is broken, 77 a Python package is missing.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time

try:
    import numpy
    import torch
except ImportError as error:
    print(f"budgets_of_training.py: skipped: {error}")
    sys.exit(77)

import learn_as_torch
import networks
from learn_as_torch import NETWORKS, Failure, export, make_samples, run, run_networks

HERE = os.path.dirname(os.path.abspath(__file__))
STEPS = 3
# As deep as those that are known by these names, on less data; as in learn_as_torch.py.
LARGER = {
    "resnet50": (lambda: networks.ResNet([3, 4, 6, 3], True, 10), ([2, 3, 64, 64], None), [2], 10,
                 "momentum", 1e-3),
    "unet4": (lambda: networks.UNet(16, 4), ([2, 3, 64, 64], None), [2, 64, 64], 2, "momentum", 1e-3),
    "vit12": (lambda: networks.Vit(64, 8, 96, 6, 12, 10), ([4, 3, 64, 64], None), [4], 10, "adamw",
              1e-3),
    "gpt12": (lambda: networks.Gpt(50257, 128, 96, 6, 12), ([2, 128], 50257), [2, 128], 50257,
              "adamw", 1e-3),
}
NETWORKS.update(LARGER)


def choose(sizes, count):
    """So many of them, first and last among them."""
    if len(sizes) <= count:
        return sizes
    return [sizes[round(i * (len(sizes) - 1) / (count - 1))] for i in range(count)]


def sweep(words):
    plans = json.loads(run(*words, "--sweep", "--budget-of", "arena", "--json", "-"))["plans"]
    for above, below in zip(plans, plans[1:]):
        if below["reserved_bytes"] > above["reserved_bytes"] or below["cost"] < above["cost"]:
            raise Failure(f"not monotone: {above} before {below}")
    return sorted({plan["reserved_bytes"] for plan in plans}, reverse=True)


def train(args, model, words, folder, samples):
    """Losses as they are printed, and the bytes of what was saved."""
    emitted = os.path.join(folder, "emitted")
    shutil.rmtree(emitted, ignore_errors=True)
    run(args.ullage, "compile", model, "--emit", emitted, *words)
    natives = [name for name in ("ul_dnnl", "ul_posts", "ul_winograd")
               if os.path.exists(os.path.join(emitted, f"{name}.c"))]
    objects = [f"{name}.o" for name in ["model", *natives]]
    run("make", "-C", emitted, "CFLAGS=-O2", *objects)
    program = os.path.join(emitted, "painted_steps")
    run("gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-I", emitted, "-o", program,
        os.path.join(HERE, "painted_steps.c"), *(os.path.join(emitted, name) for name in objects),
        "-fopenmp", *(["-ldnnl"] if natives else []), "-lm")
    saved = os.path.join(folder, "saved")
    losses = run(program, os.path.join(emitted, "weights.bin"), *samples, str(STEPS), saved).split()
    with open(saved, "rb") as file:
        return losses, file.read()


def check(args, name, folder):
    torch.manual_seed(5)
    network = NETWORKS[name][0]().train()
    data, labels = make_samples(name, STEPS)
    if data.dtype == numpy.float64:
        data = data.astype(numpy.float32)
    samples = [os.path.join(folder, key) for key in ("x", "y")]
    data.tofile(samples[0])
    labels.tofile(samples[1])
    model = os.path.join(folder, "m.onnx")
    export(network, torch.from_numpy(data[: NETWORKS[name][1][0][0]]), model)
    words = ["--target", args.target, "--train", "--optimizer", NETWORKS[name][4], "--lr",
             str(NETWORKS[name][5]), "--threads", "2", *learn_as_torch.class_axis(name)]
    sizes = sweep([args.ullage, "plan", model, *words])
    want = train(args, model, words, folder, samples)
    if any(not numpy.isfinite(float(loss)) for loss in want[0]) or len(want[0]) != STEPS:
        raise Failure(f"losses {want[0]}")
    tried = choose(sizes, args.plans)
    for size in ["none", *tried]:
        more = ["--pack", "none"] if size == "none" else ["--budget-of", "arena", "--budget", str(size)]
        got = train(args, model, [*words, *more], folder, samples)
        if got != want:
            raise Failure(f"{size}: losses {got[0]}, not {want[0]}, or other bits in what was saved")
    print(f"  {len(sizes)} plans of {sizes[0]} to {sizes[-1]} bytes, {len(tried)} trained, losses "
          f"{' '.join(want[0])}", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ullage")
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--plans", type=int, default=10)
    parser.add_argument("networks", nargs="*", default=list(NETWORKS))
    args = parser.parse_args()
    return run_networks(args, check)


if __name__ == "__main__":
    sys.exit(main())
