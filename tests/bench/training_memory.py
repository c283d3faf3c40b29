#!/usr/bin/env python3
"""What training takes of memory: plans of known networks with AdamW, target cpu, by --train --sweep.

    training_memory.py [--ullage build/release/cli/ullage] [--target cpu] [NETWORK...]

A row for each network: what moves, which is the buffer less weights, the optimizer's state, inputs
and outputs, without a budget, at 3 % more predicted time, and in the smallest buffer known; in MiB,
and as parts of what torch eager saves for the backward pass without parameters: figures that this
script takes as given, and does not measure. Networks are made by models/make.py.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.join(HERE, "..", "..")

# name -> what makes it, options, MiB that torch eager saves
NETWORKS = {
    "resnet50": (["--batch", "8"], [], 651),
    "unet": (["--batch", "2"], ["--class-axis", "1"], 654),
    "bert_base": (["--batch", "8", "--seq", "128"], ["--output", "last_hidden_state", "--loss", "mse"], 583),
    "vit_b16": (["--batch", "8"], [], 897),
    "gpt2": (["--batch", "2", "--seq", "512"], ["--class-axis", "-1"], 779),
    "digits": (None, ["--dim", "N=64", "--output", "/fc/Gemm_output_0"], 2.53),
}
STILL = ("weights", "optimizer", "inputs", "outputs")


def plan(args, model, options):
    command = [args.ullage, "plan", model, "--target", args.target, "--train", "--train-mode",
               "--optimizer", "adamw", "--budget-of", "arena", "--json", "-", *options]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def measure(args, name, folder):
    make, options, saved = NETWORKS[name]
    model = os.path.join(ROOT, "models", "digits", "untrained.onnx")
    if make is not None:
        model = os.path.join(folder, f"{name}.onnx")
        subprocess.run([sys.executable, os.path.join(ROOT, "models", "make.py"), name, *make, "-o", model],
                       check=True, stdout=subprocess.DEVNULL)
    rows = plan(args, model, options)["rows"]
    still = sum(rows[key] for key in rows if key.startswith(STILL))
    plans = plan(args, model, [*options, "--sweep"])["plans"]
    cheap = [p for p in plans if (p["overhead"] or 0) <= 0.03]
    chosen = [plans[0], min(cheap, key=lambda p: p["reserved_bytes"]),
              min(plans, key=lambda p: p["reserved_bytes"])]
    cells = []
    for one in chosen:
        moving = (one["reserved_bytes"] - still) / 2**20
        cells.append(f"{one['reserved_bytes'] / 2**20:.1f} | {moving:.1f} | {moving / saved:.2f} | "
                     f"{100 * (one['overhead'] or 0):.1f} %")
    print(f"| {name} | {saved} | " + " | ".join(cells) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ullage", default=os.path.join(ROOT, "build", "release", "cli", "ullage"))
    parser.add_argument("--target", default="cpu")
    parser.add_argument("networks", nargs="*", metavar="NETWORK")
    args = parser.parse_args()
    print("| network | torch saves, MiB |" +
          "".join(f" {what}: buffer | moves | of torch | more time |" for what in
                  ("no budget", "3 %", "smallest")))
    with tempfile.TemporaryDirectory() as folder:
        for name in args.networks or NETWORKS:
            measure(args, name, folder)


if __name__ == "__main__":
    main()
