#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Filters of trainers of target cuda, which are stored with channels innermost.

    train_filters.py ULLAGE [CASE]...

plain, adam, bytes, master, parts, norm: a network of convolutions is trained with those options by
target cuda beside target c. What is saved of a step that moves nothing is the model's own weights; what
target c saved is the same bits when cuda has loaded and saved it, and the other way; a training that
stops and goes on has the bits of one that does not; losses are near those of c. With cuDNN its
convolutions are calls.
Exit: 0 ok, 1 a promise is broken, 77 a Python package is missing.
"""

import argparse
import json
import os
import sys

from learn import run, run_cases, train  # exits with 77 where a package is missing

import numpy
from onnx import TensorProto, helper, numpy_helper, save

BATCH, STEPS, NEAR = 4, 4, 2e-3
CALLS = 12  # forward, of the source and of the weights: all with a window, but for "stem" and "deep"
CASES = {  # options; how many of these are calls; None: some
    "plain": (["--optimizer", "momentum", "--lr", "0.05"], CALLS),
    "adam": (["--optimizer", "adamw", "--lr", "0.003", "--tf32"], CALLS),
    "bytes": (["--optimizer", "adam", "--state-bits", "8", "--lr", "0.003"], None),
    "master": (["--optimizer", "adamw", "--lr", "0.003", "--precision", "bf16", "--master",
                "bf16-stochastic"], None),
    "parts": (["--optimizer", "sgd", "--lr", "0.05", "--micro-batches", "2"], CALLS),
    "norm": (["--optimizer", "lion", "--lr", "0.001", "--clip-norm", "0.5"], CALLS),
}
FILTERS = {"stem": (16, 5, 3, 3), "wide": (32, 16, 3, 3), "groups": (32, 16, 3, 3),
           "deep": (32, 1, 3, 3), "point": (48, 32, 1, 1), "up": (48, 24, 2, 2), "last": (8, 24, 3, 2)}
SAMPLE = (5, 12, 10)


def make(path, random):
    def node(name, source, operator="Conv", **more):
        return [helper.make_node(operator, [source, "w" + name], [name + "_y"], name=name, **more),
                helper.make_node("Relu", [name + "_y"], [name])]
    same = {"pads": [1, 1, 1, 1]}
    nodes = [*node("stem", "x", **same), *node("wide", "stem", strides=[2, 2], **same),
             *node("groups", "wide", group=2, **same), *node("deep", "groups", group=32, **same),
             *node("point", "deep"), *node("up", "point", "ConvTranspose", strides=[2, 2]),
             *node("last", "up", **same),
             helper.make_node("GlobalAveragePool", ["last"], ["mean"]),
             helper.make_node("Flatten", ["mean"], ["y"])]
    weights = {"w" + name: (random.standard_normal(shape) * (2 / numpy.prod(shape[1:])) ** 0.5).astype(numpy.float32)
               for name, shape in FILTERS.items()}
    graph = helper.make_graph(
        nodes, "filters", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [BATCH, *SAMPLE])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [BATCH, 8])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return weights


def same(what, got, want):
    for name, value in want.items():
        if got[name].tobytes() != value.tobytes():
            raise AssertionError(f"{what}: {name} has other bits")


def check_calls(args, model, words, calls):
    steps = json.loads(run([args.ullage, "plan", model, "--target", "cuda", "--with-cudnn", "on", *words,
                            "--json", "-"]))["steps"]
    count = steps["implementation"].count("cudnn")
    if calls is not None and count != calls:
        raise AssertionError(f"{count} calls of cuDNN, not {calls}")


def check(args, name, folder):
    random = numpy.random.default_rng(5)
    model, words = os.path.join(folder, "m.onnx"), ["--train", "--loss", "mse", *CASES[name][0]]
    weights = make(model, random)
    data = random.standard_normal((2 * STEPS * BATCH, *SAMPLE)).astype(numpy.float32)
    labels = random.standard_normal((2 * STEPS * BATCH, 8)).astype(numpy.float32)
    check_calls(args, model, words, CASES[name][1])
    programs = {}
    for kind in ("c", "cuda"):
        programs[kind] = os.path.join(folder, kind)
        said = [word for word in words if kind == "cuda" or word != "--tf32"]
        run([args.ullage, "compile", model, "-o", programs[kind], "--target", kind, *said])

    def keep(kind, steps, file, *more):
        losses, saved = train(programs[kind], folder, data, labels, steps, *more)
        os.replace(os.path.join(folder, "c.npz"), os.path.join(folder, file))
        return losses, saved

    def resume(file):
        return ["--resume", os.path.join(folder, file)]

    losses, plain = keep("c", STEPS, "c4.npz")
    ours, _ = keep("cuda", STEPS, "d4.npz")
    _, last = keep("cuda", 2 * STEPS, "d8.npz")
    if numpy.abs(numpy.array(losses) - ours).max() > NEAR * (10 if "bf16" in words else 1):
        raise AssertionError(f"losses are {ours}, of target c {losses}")
    same("resumed", keep("cuda", 2 * STEPS, "e8.npz", *resume("d4.npz"))[1], last)
    same("of target c", keep("cuda", STEPS, "e4.npz", *resume("c4.npz"))[1], plain)
    same("to target c", keep("c", 2 * STEPS, "f8.npz", *resume("d8.npz"))[1], last)
    if "bf16" not in words:
        run([args.ullage, "compile", model, "-o", programs["cuda"], "--target", "cuda", *words, "--lr", "1e-30"])
        same("hardly trained", keep("cuda", 1, "g1.npz")[1], weights)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ullage")
    parser.add_argument("cases", nargs="*")
    args = parser.parse_args()
    return run_cases(args.cases or list(CASES), lambda name, folder: check(args, name, folder))


if __name__ == "__main__":
    sys.exit(main())
