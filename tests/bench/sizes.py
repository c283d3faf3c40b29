#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs for a range of sizes beside those for each size alone: bytes, time, compile time.

    sizes.py bytes --ullage build/release/ullage [--network resnet50:b=1..8 ...] [--full]
    sizes.py time  --ullage build/release/ullage [--network bert_base:s=1..512 ...] [--at 8,128,512] [--rounds 3]
    sizes.py sets  --ullage build/release/ullage [--network mobilenet_v2:b=1..8 ...] [--at 1,2,4,8] [--rounds 3]

`bytes`: the arena that model_arena_bytes_at says for each size (--offsets sizes, weights in read-only memory) over what the plan for
that size alone reserves. Six convolution networks at batches 1 to 8, wanted equal; with --full also BERT-base from 1 to 512 tokens,
wanted equal at 500, and at most 1.05 elsewhere.
`time`: latency of the one program at a size over that of the program for the size alone, in turns, the median of the rounds'
ratios; and the time to compile, wanted at most 2.0 times that of fixed sizes. Target c, one thread; wanted at most 1.15.
`sets`: the same for a set of sizes (--dim b=1,2,4,8) on target cpu, wanted at most 1.10, and what it reserves over the program for the
largest alone.
Networks are made by models/make.py: small ones for bytes of convolutions, full ones else. Exit: 0.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time

MAKE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "models", "make.py")
CONVOLUTIONS = [f"{n}:b=1..8" for n in ("resnet50", "mobilenet_v2", "densenet121", "convnext_t", "deeplab_v3", "unet")]
MAIN = """
#include "model.h"
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        struct model_sizes sizes = {atoll(argv[i])};
        printf("%llu\\n", (unsigned long long)model_arena_bytes_at(&sizes));
    }
    return 0;
}
"""

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("part", choices=("bytes", "time", "sets"))
parser.add_argument("--ullage", required=True)
parser.add_argument("--network", action="append", help="NAME:DIM=LOW..HIGH, where DIM is b or s")
parser.add_argument("--full", action="store_true", help="BERT-base too, and full networks")
parser.add_argument("--at")
parser.add_argument("--rounds", type=int, default=3)
args = parser.parse_args()
args.ullage = os.path.abspath(args.ullage)
folder = tempfile.TemporaryDirectory()
os.chdir(folder.name)


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr}")
    return done.stdout


def make(network, small, hollow):
    """The model's file, the dimension, its values, and the options for the other dimension."""
    name, dim, low, high = re.fullmatch(r"(\w+):(b|s)=(\d+)\.\.(\d+)", network).groups()
    words = ["--small"] if small else ["--hollow"] if hollow else []
    has_length = name in ("bert_base", "bert_base_ln", "gpt2", "lstm", "lstm_bi", "gru", "gru_bi")
    words += ["--batch", "b" if dim == "b" else "1"] + (["--seq", "s" if dim == "s" else "16"] if has_length else [])
    run(sys.executable, MAKE, name, *words, "-o", f"{name}.onnx")
    return f"{name}.onnx", dim, range(int(low), int(high) + 1)


def measure_bytes(network, small):
    model, dim, values = make(network, small, True)
    options = ["--target", "c", "--weights", "rom"]
    run(args.ullage, "compile", model, *options, "--dim", f"{dim}={values[0]}..{values[-1]}", "--offsets", "sizes", "--emit", "by", "--library")
    with open("by/bytes.c", "w") as file:
        file.write(MAIN)
    run("cc", "-O0", "-w", "-I", "by", "by/bytes.c", "by/model.c", "by/rom.S", "-lm", "-o", "by/bytes")
    said = [int(line) for line in run("by/bytes", *map(str, values)).split()]
    ratios = []
    for value, bytes_ in zip(values, said):
        run(args.ullage, "plan", model, *options, "--dim", f"{dim}={value}", "--advice", "off", "--json", "alone.json")
        with open("alone.json") as file:
            ratios.append((bytes_ - 64) / json.load(file)["reserved_bytes"])  # the arena's bytes are noted in a place of their own
    most = max(ratios)
    print(f"{network}: {len(ratios)} sizes: {ratios.count(1.0)} equal, {sum(r < 1 for r in ratios)} less; most {most:.4f} at {values[ratios.index(most)]}, "
          f"{sum(r > 1.05 for r in ratios)} above 1.05", flush=True)


def latency(program, *words):
    text = run(f"./{program}", "--bench", "--random", "1", "--warmup", "0.3", "--duration", "1.5", *words)
    return float(re.search(r"median ([\d.]+)", text).group(1))


def reserved(plan):
    with open(plan) as file:
        return json.load(file)["reserved_bytes"]


def measure_time(network, target, sizes, wanted):
    model, dim, values = make(network, False, False)
    begin = time.monotonic()
    said = wanted or f"{values[0]}..{values[-1]}"
    run(args.ullage, "compile", model, "--target", target, "--dim", f"{dim}={said}", "-o", "ranged", "--json", "ranged.json")
    ranged_seconds = time.monotonic() - begin
    for at in map(int, sizes.split(",")):
        begin = time.monotonic()
        run(args.ullage, "compile", model, "--target", target, "--dim", f"{dim}={at}", "-o", "alone", "--json", "alone.json")
        alone_seconds = time.monotonic() - begin
        pairs = [(latency("ranged", "--size", f"{dim}={at}"), latency("alone")) for _ in range(args.rounds)]
        print(f"{network} at {at}: {statistics.median(p[0] for p in pairs):.3f} ms, alone {statistics.median(p[1] for p in pairs):.3f} ms, "
              f"ratio {statistics.median(p[0] / p[1] for p in pairs):.3f}; compiled in {ranged_seconds:.1f} s, alone {alone_seconds:.1f} s, "
              f"ratio {ranged_seconds / alone_seconds:.1f}", flush=True)
    print(f"{network}: reserves {reserved('ranged.json') / reserved('alone.json'):.4f} of the program for the last alone", flush=True)


if args.part == "bytes":
    for network in args.network or CONVOLUTIONS:
        measure_bytes(network, not args.full)
    if args.full and not args.network:
        measure_bytes("bert_base:s=1..512", False)
elif args.part == "time":
    for network in args.network or ["bert_base:s=1..512"]:
        measure_time(network, "c", args.at or "8,128,512", None)
else:
    for network in args.network or ["mobilenet_v2:b=1..8", "resnet50:b=1..8"]:
        measure_time(network, "cpu", args.at or "1,2,4,8", args.at or "1,2,4,8")
