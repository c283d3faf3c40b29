#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a run of every network of models/ launches on target cuda, against the golden list
models/golden_launches.tsv: from plans alone, no compiler of CUDA's is asked.

    launches.py --ullage build/release/ullage [--precision fp32,fp16,bf16] [--small] [--update]
                [FILTER]
    launches.py --ullage build/release/ullage --typed [--small] [FILTER]
    launches.py --ullage build/release/ullage --train [--precision fp32,bf16] [--update] [FILTER]

Columns as plan.json's `launches` (docs/plan-format.md). A network with more launches, scalar products,
narrow or identity steps, softmaxes or idle products than the list says, or with fewer library calls, or that the list lacks,
is a failure (exit 6) until that is reviewed and taken over by --update; what is better is named.
With --typed the models are of 16 bits themselves (models/lib_half.py, both ways), and none may be
worse than the network in float32 under --precision, but by Casts of inputs and outputs: launches.
With --train they are steps of AdamW at batch 8 of some networks, the rows NAME/train.
"""

import argparse
import json
import os
import re
import subprocess
import sys

import bytes as golden_bytes
import compare_ort

ROOT = golden_bytes.ROOT
GOLDEN = os.path.join(ROOT, "models", "golden_launches.tsv")
COUNTS = ["count", "of_libraries", "scalar_products", "narrow_steps", "identity_steps", "softmaxes",
          "idle_products"]  # fmt: skip
HEAD = ["model", "precision", "launches", *COUNTS[1:]]
CASTS = 2  # of inputs and outputs, more than where --precision decides
BETTER = {"of_libraries": 1}  # the more the better; of all others the fewer
TRAINED = {
    "bert_base": ["--output", "last_hidden_state", "--loss", "mse"],
    "convnext_t": [],
    "gpt2": ["--class-axis", "-1"],
    "resnet50": ["--train-mode"],
    "unet": ["--train-mode", "--class-axis", "1"],
    "vit_b16": [],
}
TRAINED_BATCH = 8


def plan(ullage, path, options):
    """The counts of one model, or the compiler's complaint."""
    command = [ullage, "plan", path, "--target", "cuda", "--with-cudnn", "on", "--json", "-",
               *options]  # fmt: skip
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode != 0:
        message = done.stderr.decode(errors="replace").strip().splitlines()
        return None, f"exit {done.returncode}: {message[0] if message else ''}"
    launches = json.loads(done.stdout)["launches"]
    return [launches[name] for name in COUNTS], None


def read_golden():
    golden = {}
    if os.path.exists(GOLDEN):
        with open(GOLDEN, encoding="utf-8") as f:
            for line in f.read().splitlines()[1:]:
                name, precision, *numbers = line.split("\t")
                golden[name, precision] = [int(number) for number in numbers]
    return golden


def write_golden(golden):
    with open(GOLDEN, "w", encoding="utf-8") as f:
        f.write("\t".join(HEAD) + "\n")
        for key in sorted(golden):
            f.write("\t".join([*key, *map(str, golden[key])]) + "\n")


def compare(golden, counts):
    """(is it worse, a note)"""
    if golden is None:
        return True, "  FAIL not in the golden list"
    signs = [BETTER.get(name, -1) for name in COUNTS]
    worse = any(sign * (now - was) < 0 for sign, was, now in zip(signs, golden, counts))
    note = "" if golden == counts else f"  instead of {' '.join(map(str, golden))}"
    return worse, ("  FAIL" if worse else "") + note


def check_typed(ullage, path, options, precision, golden):
    """How many of the two models of 16 bits are worse than the list."""
    failed = 0
    for islands in (False, True):
        request = argparse.Namespace(type=precision, islands=islands)
        counts, complaint = plan(ullage, compare_ort.typed_path(request, path), options)
        allowed = [golden[0] + CASTS, *golden[1:]]
        if complaint is None and not compare(allowed, counts)[0]:
            continue
        failed += 1
        name = os.path.basename(path) + (" with islands" if islands else "")
        print(f"FAIL {name} {precision}: {complaint or counts}, of float32 {golden}")
    return failed


def trained(pattern):
    """(name, path, options) of what trains, made first where it is not there."""
    for name, words in TRAINED.items():
        request = argparse.Namespace(model=name, small=False, batch=TRAINED_BATCH, hollow=True)
        if re.search(pattern, name):
            options = ["--train", "--optimizer", "adamw", "--advice", "off", *words]
            yield f"{name}/train", compare_ort.model_path(request), options


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("filter", nargs="?", default=".")
    parser.add_argument("--ullage", required=True)
    parser.add_argument("--precision")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--typed", action="store_true", help="models of 16 bits themselves")
    parser.add_argument("--train", action="store_true")
    args = parser.parse_args()
    golden, passed, failed = read_golden(), 0, 0
    if args.precision is None:
        args.precision = "fp32,bf16" if args.train else "fp32,fp16,bf16"
    networks = (trained(args.filter) if args.train else
                golden_bytes.networks(args.small, args.filter, hollow=not args.small))  # fmt: skip
    for name, path, options in networks:
        for precision in ("fp16", "bf16") if args.typed else ():
            worse = check_typed(args.ullage, path, options, precision, golden[name, precision])
            failed, passed = failed + worse, passed + 2 - worse
        for precision in () if args.typed else args.precision.split(","):
            counts, complaint = plan(args.ullage, path, [*options, "--precision", precision])
            if complaint:
                print(f"FAIL {name} {precision}: {complaint}")
                failed += 1
                continue
            if args.update:
                golden[name, precision] = counts
            worse, note = compare(golden.get((name, precision)), counts)
            failed += worse
            passed += not worse
            print(f"{name:24} {precision:5} {' '.join(f'{count:4}' for count in counts)}{note}")
    if args.update:
        write_golden(golden)
    print(f"{passed} passed, {failed} failed")
    sys.exit(6 if failed else 0)


if __name__ == "__main__":
    main()
