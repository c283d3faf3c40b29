#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Parameters that are bf16 between steps: --master bf16-stochastic.

    master.py ULLAGE [--target c] [CASE]...

chance: of 65,536 weights that a step moves by a quarter of the distance to the next number of bf16,
a quarter moves there, others at each step, so that the mean goes where float32 would (rounded to
nearest, none ever moves); the seed says which. bits: --pack none, a budget, --checkpoint and a
resumed training have the same bits, with states of 32 and 8 bits. given: a checkpoint has float32
arrays that hold bf16; --init rounds to nearest, --resume takes no others. bytes: what the plan says.
Exit: 0 ok, 1 a promise is broken, 77 a Python package is missing.
"""

import json
import os
import subprocess
import sys

from learn import BATCH, CLASSES, TensorProto, deep_net, helper, make_model, numpy, run, run_cases
from loss_scale import hurry, read_arguments, train

MASTER = ["--precision", "bf16", "--master", "bf16-stochastic"]
WIDTH, STEP = 256, 2.0 ** -10  # a fourth of what lies between 1 and the number of bf16 below


def same(got, want):
    return all(got[name].tobytes() == value.tobytes() for name, value in want.items())


def check_chance(args, folder):
    program = os.path.join(folder, "m")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]),
             helper.make_node("ReduceSum", ["p"], ["y"], keepdims=0)]
    make_model(program + ".onnx", nodes, {"w": numpy.ones((WIDTH, WIDTH))}, [("x", [1, WIDTH])],
               ("y", []), TensorProto.FLOAT)
    run([args.ullage, "compile", program + ".onnx", "-o", program, *hurry(args), "--target",
         args.target, "--train", "--loss", "output:y", "--optimizer", "sgd", "--lr", str(STEP),
         *MASTER])
    data = numpy.ones((60, WIDTH), numpy.float32)
    once = train(program, folder, data, None, 1)[1]["w"]
    twice = train(program, folder, data, None, 2)[1]["w"]
    moved = {value: float((once == value).mean()) for value in (1, 1 - 4 * STEP)}
    spread = (0.25 * 0.75 / WIDTH ** 2) ** 0.5
    if abs(moved[1] - 0.75) > 5 * spread or moved[1] + moved[1 - 4 * STEP] != 1:
        raise AssertionError(f"chance: a quarter is {moved}")
    if abs(float((twice == 1).mean()) - 0.5625) > 5 * spread:
        raise AssertionError(f"chance: {(twice == 1).mean()} of all stay twice")
    rows = numpy.abs(once.mean(axis=0) - (1 - STEP)).max() / STEP
    if rows > 6 * (3 / WIDTH) ** 0.5:
        raise AssertionError(f"chance: a column is off by {rows} of a step")
    last = train(program, folder, data, None, 60)[1]["w"]
    if abs(float(last.mean(dtype=float)) - (1 - 60 * STEP)) > 5 * STEP * (60 * 3) ** 0.5 / WIDTH:
        raise AssertionError(f"chance: the mean is {last.mean(dtype=float)}")
    if (train(program, folder, data, None, 1, "--seed", "1")[1]["w"] == once).all() or \
            (train(program, folder, data, None, 1)[1]["w"] != once).any():
        raise AssertionError("chance: the seed does not say what is drawn")


def samples(steps):
    random = numpy.random.default_rng(3)
    return (random.standard_normal((steps * BATCH, 96)).astype(numpy.float32),
            random.integers(0, CLASSES, steps * BATCH))


def check_bits(args, folder):
    program = os.path.join(folder, "m")
    deep_net(program + ".onnx")
    data, labels = samples(6)
    for optimizer in (["adamw"], ["lion", "--state-bits", "8"], ["momentum", "--clip-norm", "1"]):
        words = [program + ".onnx", "--target", args.target, "--train", *MASTER, "--optimizer",
                 *optimizer]
        least = json.loads(run([args.ullage, "plan", *words, "--budget-of", "arena", "--sweep",
                                "--json", "-"]))["plans"][-1]["reserved_bytes"]
        want = None
        for more in (["--pack", "none"], ["--checkpoint", "sqrt"],
                     ["--budget-of", "arena", "--budget", str(least)], []):
            run([args.ullage, "compile", *words, "-o", program, *hurry(args), *more])
            got = train(program, folder, data, labels, 6)
            want = want or got
            if str(got[0]) != str(want[0]) or not same(got[1], want[1]):
                raise AssertionError(f"bits: {optimizer}: {more}: other bits")
        run([program, "--guard", "--random", "1"])
        for name, value in want[1].items():
            if value.ndim == 2 and name.startswith("w") and "/" not in name and \
                    (value.dtype != numpy.float32 or (value.view(numpy.uint32) & 0xFFFF).any()):
                raise AssertionError(f"bits: {optimizer}: {name} is no float32 that bf16 has")
        train(program, folder, data, labels, 3)
        later = train(program, folder, data, labels, 6, "--resume", os.path.join(folder, "c.npz"))
        if str(later[0][-3:]) != str(want[0][-3:]) or not same(later[1], want[1]):
            raise AssertionError(f"bits: {optimizer}: a resumed training has other bits")


def check_given(args, folder):
    program, other = os.path.join(folder, "m"), os.path.join(folder, "other")
    deep_net(program + ".onnx")
    data, labels = samples(2)
    words = ["--target", args.target, "--train", "--optimizer", "sgd", "--lr", "0", *hurry(args)]
    run([args.ullage, "compile", program + ".onnx", "-o", program, *words, *MASTER])
    run([args.ullage, "compile", program + ".onnx", "-o", other, *words, "--precision", "bf16"])
    if "of the model, factors of products in bf16" not in run([other, "--version"]):
        raise AssertionError("given: --version does not say which numbers")
    start = os.path.join(folder, "start.npz")
    exact = train(other, folder, data, labels, 1)[1]
    os.rename(os.path.join(folder, "c.npz"), start)
    rounded = train(program, folder, data, labels, 1, "--init", start)[1]
    for name in [name for name in exact if exact[name].ndim == 2]:
        bits = exact[name].view(numpy.uint32).astype(numpy.uint64)
        nearest = ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(numpy.uint32)
        if (rounded[name].view(numpy.uint32) != nearest).any():
            raise AssertionError(f"given: --init does not round {name} to nearest")
    for command, code, says in (
            ([program, "--data", os.path.join(folder, "x.npy"), "--labels",
              os.path.join(folder, "y.npy"), "--steps", "2", "--resume", start], 2, "--init"),
            ([args.ullage, "plan", program + ".onnx", "--train", "--master", "bf16-stochastic"], 1,
             "--precision bf16"),
            ([args.ullage, "plan", program + ".onnx", "--train", *MASTER, "--optimizer",
              "adafactor"], 1, "sgd, momentum")):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != code or says not in done.stderr:
            raise AssertionError(f"given: exit {done.returncode}: {done.stderr}")


def check_bytes(args, folder):
    """2 bytes a weight, a byte and 4 of a block's 256 for each of two states."""
    model = os.path.join(folder, "m.onnx")
    deep_net(model, width=512, layers=3)
    words = [model, "--target", args.target, "--train", "--optimizer", "adamw"]
    trained = json.loads(run([args.ullage, "plan", *words, *MASTER, "--state-bits", "8", "--json",
                              "-"]))["training"]
    large, small = 3 * 512 * 512, 3 * 512
    want = large * (2 + 2 * (1 + 4 / 256)) + small * 12 + 512 * CLASSES * (2 + 8)  # below 4,096
    if trained["parameter_bytes"] + trained["state_bytes"] != want:
        raise AssertionError(f"bytes: {trained}, not {want}")
    small = os.path.join(folder, "small.onnx")
    deep_net(small, width=8, layers=1)
    told = run([args.ullage, "plan", small, "--target", args.target, "--train", "--optimizer", "adam",
                "--state-bits", "8"])
    if "All keep their bits" not in told:
        raise AssertionError(f"bytes: nothing says that nothing has fewer bits: {told}")
    # One parameter's name is in front of the other's, and a slash, as it is of a state's.
    nodes = [helper.make_node("MatMul", ["x", "a/b"], ["p"]), helper.make_node("Add", ["p", "a"], ["y"])]
    make_model(model, nodes, {"a/b": numpy.ones((512, 512)), "a": numpy.ones(512)}, [("x", [BATCH, 512])],
               ("y", [BATCH, 512]), TensorProto.FLOAT)
    trained = json.loads(run([args.ullage, "plan", *words, *MASTER, "--state-bits", "8", "--json",
                              "-"]))["training"]
    if (trained["wide_tensors"], trained["wide_parameters"], trained["wide_bytes"]) != (1, 512, 512 * 12):
        raise AssertionError(f"bytes: {trained}: the bias alone keeps 32 bits")


CHECKS = {"chance": check_chance, "bits": check_bits, "given": check_given, "bytes": check_bytes}


def main():
    args = read_arguments()
    return run_cases(args.cases or list(CHECKS), lambda name, folder: CHECKS[name](args, folder))


if __name__ == "__main__":
    sys.exit(main())
