#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Regions of networks laid out as in the model: programs give what they give channels-last.

    layout.py ULLAGE [--target cpu] [--choices 3] [--seed 1] [NETWORK...]

The rungs of a network's sweep (small, of models/make.py) say which regions there are. Each choice of
some of them is compiled with --row-major, and so is the program of a rung that lays some out so;
their plans pass `check`, programs pass --guard, and outputs are the first program's, to rounding. The
plans of all rungs of a model with attention beside convolutions pass `check`.
Exit: 0 ok, 1 outputs differ or a command failed, 77 a Python package is missing.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile

try:
    import numpy
    from onnx import parser, save
except ImportError as error:
    print(f"layout.py: skipped: {error}")
    sys.exit(77)

MAKE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "models", "make.py")
NETWORKS = ["mobilenet_v2", "unet", "inception_v3", "shufflenet_v2"]
# Whether its products become attention is judged with what convolutions lay out.
ATTENTION = """<ir_version: 8, opset_import: ["": 17]>
g (float[1,32,4,64] q, float[1,32,64,4] k, float[1,32,4,64] v, float[1,3,32,32] x, float[8,3,3,3] a,
   float[16,8,3,3] b) => (float[1,32,4,64] y, float[1,16,32,32] o) {
  s = MatMul (q, k)
  p = Softmax <axis = -1> (s)
  y = MatMul (p, v)
  c = Conv <pads = [1, 1, 1, 1]> (x, a)
  o = Conv <pads = [1, 1, 1, 1]> (c, b)
}"""
NEAR = 1e-4  # of what an output's numbers are: sums are in another order


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command[:3])}: exit {done.returncode}: {done.stderr[-400:]}")


def load(path):
    with open(path) as file:
        return json.load(file)


def outputs_of(ullage, model, options, folder):
    """The program's outputs, and the regions that it lays out as in the model."""
    program, plan = os.path.join(folder, "program"), os.path.join(folder, "plan.json")
    run([ullage, "compile", model, *options, "--cflags", "-O1", "-o", program, "--json", plan])
    run([ullage, "check", model, plan])
    run([program, "--random", "3", "--guard"])
    run([program, "--random", "3", "--output-dir", folder])
    regions = [value for name, value in load(plan)["options"] if name == "row-major"]
    names = [name for name in os.listdir(folder) if name.endswith(".npy")]
    return {name: numpy.load(os.path.join(folder, name)) for name in names}, regions


def is_near(a, b):
    return a.shape == b.shape and numpy.linalg.norm(a - b) <= NEAR * numpy.linalg.norm(b)


def check(ullage, model, options, rng, choice_count, folder):
    sweep = os.path.join(folder, "sweep.json")
    run([ullage, "plan", model, "--sweep", "--json", sweep, *options])
    rungs = load(sweep)["plans"]
    names = sorted({name for rung in rungs for name in rung["row_major"]})
    if not names:
        raise RuntimeError("no plan lays anything out as in the model")
    wanted, regions = outputs_of(ullage, model, options, folder)
    if regions:
        raise RuntimeError(f"without a budget {regions} are laid out as in the model")
    choices = [["--budget", str(rung["process_bytes"])] for rung in rungs if rung["row_major"]][-1:]
    for _ in range(choice_count):
        some = rng.sample(names, rng.randint(1, len(names)))
        choices.append([word for name in some for word in ("--row-major", name)])
    for choice in choices:
        got, regions = outputs_of(ullage, model, options + choice, folder)
        bad = [name for name in wanted if not is_near(got[name], wanted[name])]
        if bad or not regions:
            raise RuntimeError(f"{' '.join(choice)}: {bad or 'no region'} differ from the first program")
    print(f"ok {os.path.basename(model)}: {len(names)} regions, {len(choices)} programs")


def check_plans(ullage, model, options, folder):
    """The plans of all rungs are plans of the program that their options make again."""
    sweep, plan = os.path.join(folder, "sweep.json"), os.path.join(folder, "plan.json")
    run([ullage, "plan", model, "--sweep", "--json", sweep, *options])
    rungs = load(sweep)["plans"]
    for rung in rungs:
        run([ullage, "plan", model, "--budget", str(rung["process_bytes"]), "--json", plan, *options])
        run([ullage, "check", model, plan])
    print(f"ok {os.path.basename(model)}: {len(rungs)} plans")


def main():
    parse = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parse.add_argument("ullage")
    parse.add_argument("--target", default="cpu")
    parse.add_argument("--choices", type=int, default=3)
    parse.add_argument("--seed", type=int, default=1)
    parse.add_argument("networks", nargs="*", default=NETWORKS)
    args = parse.parse_args()
    failed = 0
    ullage, options = os.path.abspath(args.ullage), ["--target", args.target]
    for name in ["attention", *(args.networks or NETWORKS)]:
        with tempfile.TemporaryDirectory(prefix="ullage-layout-") as folder:
            model = os.path.join(folder, name + ".onnx")
            try:
                if name == "attention":
                    save(parser.parse_model(ATTENTION), model)
                    check_plans(ullage, model, options, folder)
                    continue
                run([sys.executable, MAKE, name, "--small", "-o", model])
                check(ullage, model, options, random.Random(args.seed), args.choices, folder)
            except (RuntimeError, subprocess.TimeoutExpired, OSError) as error:
                print(f"FAIL {name}: {error}")
                failed += 1
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
