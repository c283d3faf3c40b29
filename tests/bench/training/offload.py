#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training whose values leave the buffer for a file: bytes, and predicted against measured time.

    offload.py [--ullage build/release/cli/ullage] [--threads 1] [--seconds 10] [--folder DIR] [NETWORK...]

Measures a profile of this machine, with the rate of a file in --folder (default: the current one), and
with it plans networks of models/ at full size with AdamW on target cpu. R is the least buffer that
recomputation alone reaches; programs are made without a budget, and with --offload at R and at R / 2, or
at the least that is met where that is more. They run in turns; a time is the least of all turns, since
whatever else the machine does only adds.

buffer     MiB, and what is offloaded
predicted  the plan's time, as a multiple of that of the plan without a budget
measured   likewise, of the programs
ratio      measured / predicted: holds where it is at most 1.15

Exit: 0 measured, whatever came out.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", ".."))
NETWORKS = {"unet": ["--train-mode", "--loss", "mse"], "resnet50": ["--train-mode"], "vit_b16": []}
SMALLEST = {"ds_cnn": ["--train-mode", "--output", "/fc/Gemm_output_0"]}  # it ends in a Softmax
SLOWER, TURNS, MIB = 1.15, 3, 1 << 20


def run(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


class Network:
    """A model with its options, and its plans."""

    def __init__(self, args, name, folder):
        self.args, self.folder, self.name = args, folder, name
        self.model = os.path.join(folder, f"{name}.onnx")
        run(sys.executable, os.path.join(ROOT, "models", "make.py"), name, "-o", self.model)
        self.words = ["--train", "--optimizer", "adamw", "--threads", str(args.threads), "--budget-of", "arena",
                      "--profile", os.path.join(folder, "profile.json"), *{**NETWORKS, **SMALLEST}[name]]  # fmt: skip

    def least(self, *more):
        return min(plan["reserved_bytes"] for plan in json.loads(run(self.args.ullage, "plan", self.model, *self.words, *more, "--sweep", "--json", "-"))["plans"])

    def compile(self, label, *more):
        program, plan = os.path.join(self.folder, label), os.path.join(self.folder, f"{label}.json")
        run(self.args.ullage, "compile", self.model, *self.words, *more, "-o", program, "--json", plan)
        with open(plan, encoding="utf-8") as file:
            return program, json.load(file)

    def seconds(self, program):
        result = f"{program}.bench"
        run(program, "--bench", "--random", "1", "--iterations", "3", "--duration", str(self.args.seconds), "--json", result)
        with open(result, encoding="utf-8") as file:
            return json.load(file)["latency_seconds"]["min"]


def offloaded_bytes(plan):
    spaces = plan["spaces"]
    return sum(size for name, size in zip(spaces["name"], spaces["reserved_bytes"]) if name.startswith("offload"))


def measure(network):
    offload = ["--offload", network.args.folder]
    alone, least = network.least(), network.least(*offload)
    programs = [network.compile("plain")]
    for label, budget in (("same", alone), ("half", max(alone // 2, least))):
        programs.append(network.compile(label, *offload, "--budget", str(budget)))
    times = [[network.seconds(program) for program, _ in programs] for _ in range(TURNS)]
    least_times = [min(column) for column in zip(*times)]
    print(f"{network.name}: without a budget {programs[0][1]['reserved_bytes'] / MIB:.1f} MiB, least by recomputation {alone / MIB:.1f}, "
          f"with a file {least / MIB:.1f} ({least / alone:.2f}), {least_times[0] * 1e3:.0f} ms a step")  # fmt: skip
    for (_, plan), seconds in list(zip(programs, least_times))[1:]:
        predicted, measured = plan["cost"] / programs[0][1]["cost"], seconds / least_times[0]
        ratio = measured / predicted
        print(f"  buffer {plan['reserved_bytes'] / MIB:9.1f} MiB, offloaded {offloaded_bytes(plan) / MIB:9.1f}   predicted {predicted:6.3f}   "
              f"measured {measured:6.3f}   ratio {ratio:5.3f}  {'holds' if ratio <= SLOWER else 'MISSED'}", flush=True)  # fmt: skip


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ullage", default=os.path.join(ROOT, "build", "release", "cli", "ullage"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--folder", default=".")
    parser.add_argument("networks", nargs="*", choices=[[], *NETWORKS, *SMALLEST])  # []: none is given
    args = parser.parse_args()
    args.ullage, args.folder = os.path.abspath(args.ullage), os.path.abspath(args.folder)
    with tempfile.TemporaryDirectory() as folder:
        profile = subprocess.run([args.ullage, "profile", "-o", os.path.join(folder, "profile.json")], check=True,
                                 capture_output=True, text=True, cwd=args.folder)  # fmt: skip
        print(" ".join(re.findall(r"^  file .*$", profile.stdout, re.M)).strip(), flush=True)
        for name in args.networks or NETWORKS:
            measure(Network(args, name, folder))


if __name__ == "__main__":
    main()
