#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The gradients of convolutions, of their source and of their weights, on every target.

    conv_gradient.py [--target cuda] ULLAGE [NAME]...

Two convolutions in a row: the first one's weights want the gradient of the second one's source.
gradient_cases.py says how they are checked. On target cuda the plan must have as many of them by each
library as the case says. Exit: 0 ok, 1 something differs, 77 a Python package is missing.
"""

import json
import os
import sys

import gradient_cases  # exits with 77 where a package is missing
from learn import run

import numpy
from onnx import TensorProto, helper, numpy_helper, save

# source (batch, channels, places), filters, kernel; attributes of Conv; in 16 bits on cuda which
# library has the gradient of the second one's source, and that of its weights; in f32 the first has both
CASES = {
    "plain": dict(source=(2, 16, 9, 10), filters=24, kernel=(3, 3), pads=[1, 1, 1, 1],
                  calls=("cudnn", None)),
    "point": dict(source=(2, 16, 9, 10), filters=24, kernel=(1, 1), calls=("cublaslt", "cublaslt")),
    "points": dict(source=(2, 24, 60), filters=16, kernel=(1,), calls=("cublaslt", "cublaslt")),
    "steps": dict(source=(2, 16, 12, 13), filters=24, kernel=(3, 3), strides=[2, 2],
                  pads=[1, 1, 1, 1], calls=("cudnn", None)),
    "far": dict(source=(1, 16, 14, 13), filters=16, kernel=(3, 2), strides=[1, 2], dilations=[2, 3],
                pads=[2, 0, 2, 0], calls=("cudnn", None)),
    "uneven": dict(source=(2, 16, 9, 10), filters=24, kernel=(3, 3), pads=[0, 1, 2, 1],
                   calls=(None, None)),
    "groups": dict(source=(2, 32, 8, 9), filters=48, kernel=(3, 3), group=2, pads=[1, 1, 1, 1],
                   calls=("cudnn", None)),
    "depth": dict(source=(2, 24, 9, 10), filters=24, kernel=(3, 3), group=24, pads=[1, 1, 1, 1],
                  calls=(None, None)),
    "row": dict(source=(2, 16, 40), filters=24, kernel=(5,), strides=[2], pads=[2, 2],
                calls=("cudnn", None)),
    "few": dict(source=(2, 3, 12, 12), filters=8, kernel=(7, 7), strides=[2, 2], pads=[3, 3, 3, 3],
                calls=(None, None)),
    "pixel": dict(source=(4, 16, 1, 1), filters=8, kernel=(1, 1), calls=(None, None)),
}
IMAGE = 5  # channels of the first one's source


def places(case):
    """The spatial dimensions of the second one's result."""
    source, rank = case["source"][2:], len(case["kernel"])
    pads, steps = case.get("pads", [0] * 2 * rank), case.get("strides", [1] * rank)
    taps = case.get("dilations", [1] * rank)
    return [(source[d] + pads[d] + pads[rank + d] - (case["kernel"][d] - 1) * taps[d] - 1) // steps[d] + 1
            for d in range(rank)]


def write(case, path, weights, dtype):
    kind = TensorProto.DOUBLE if dtype == numpy.float64 else TensorProto.FLOAT
    batch, _, *source = case["source"]
    more = {key: case[key] for key in ("strides", "pads", "dilations", "group") if key in case}
    nodes = [helper.make_node("Conv", ["x", "wfirst", "wbias"], ["f"], name="first"),
             helper.make_node("Conv", ["f", "wsecond"], ["y"], name="second", **more)]
    graph = helper.make_graph(
        nodes, "convolutions", [helper.make_tensor_value_info("x", kind, [batch, IMAGE, *source])],
        [helper.make_tensor_value_info("y", kind, [batch, case["filters"], *places(case)])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10), path)


def make(name):
    case, random = CASES[name], numpy.random.default_rng(sum(map(ord, name)))
    batch, channels, *source = case["source"]
    rank = len(case["kernel"])
    second = (case["filters"], channels // case.get("group", 1), *case["kernel"])
    weights = {"wfirst": random.standard_normal((channels, IMAGE, *[1] * rank)) / IMAGE ** 0.5,
               "wbias": random.standard_normal(channels),
               "wsecond": random.standard_normal(second) / numpy.prod(second[1:]) ** 0.5}
    data = random.standard_normal((batch, IMAGE, *source))
    labels = random.standard_normal((batch, case["filters"], *places(case)))
    return gradient_cases.Case(lambda *args: write(case, *args), weights, data, labels)


def check_calls(args, name, precision, folder):
    if args.target != "cuda":
        return
    calls = CASES[name]["calls"] if precision != "fp32" else CASES[name]["calls"][:1] * 2
    plan = os.path.join(folder, "plan.json")
    run([args.ullage, "plan", os.path.join(folder, "m.onnx"), "--target", "cuda", "--json", plan,
         *gradient_cases.options_of(precision)])
    with open(plan, encoding="utf-8") as file:
        steps = json.load(file)["steps"]
    for op, call in zip(("ConvTranspose", "ConvWeightGradient"), calls):
        found = {steps["implementation"][i] for i in range(len(steps["op"]))
                 if op in steps["op"][i].split("+") and "second" in steps["node"][i]}
        if found != {call or "ullage"}:
            raise AssertionError(f"{name} {precision}: {op} by {found}, not by {call or 'ullage'}")


if __name__ == "__main__":
    sys.exit(gradient_cases.main(CASES, make, check_calls))
