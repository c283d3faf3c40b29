#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The gradients of normalisations, of source, scale and bias, on every target.

    norm_gradient.py [--target cuda] ULLAGE [NAME]...

gradient_cases.py says how they are checked. On target cuda the sums of scale and bias are one step, and
what stands around the gradient of the source is in the step that the case names.
Exit: 0 ok, 1 something differs, 77 a Python package is missing.
"""

import json
import os
import sys

import gradient_cases  # exits with 77 where a package is missing
from learn import run

import numpy
from onnx import TensorProto, helper, numpy_helper, save

ROWS = (4, 64, 96)
IMAGE = (4, 24, 12, 14)

# shape of the source; scale and bias; attributes; steps of target cuda
CASES = {
    "layer": dict(op="LayerNormalization", shape=ROWS, affine=(96,), inputs=2,
                  steps=("NormalizationSums", "NormalizationGradient+Add")),
    "reshaped": dict(op="LayerNormalization", shape=ROWS, affine=(96,), inputs=2, flat=(256, 96),
                     steps=("NormalizationSums", "NormalizationGradient+Add")),
    "unbiased": dict(op="LayerNormalization", shape=ROWS, affine=(64, 96), inputs=1,
                     attributes={"axis": 1}, steps=()),
    "square": dict(op="RMSNormalization", shape=ROWS, affine=(96,), inputs=1,
                   steps=("NormalizationSums", "NormalizationGradient+Add")),
    "instance": dict(op="InstanceNormalization", shape=IMAGE, affine=(24,), inputs=2,
                     steps=("NormalizationSums",)),
    "group": dict(op="GroupNormalization", shape=IMAGE, affine=(24,), inputs=2,
                  attributes={"num_groups": 4}, steps=("NormalizationSums",)),
    "batch": dict(op="BatchNormalization", shape=IMAGE, affine=(24,), inputs=2,
                  attributes={"training_mode": 1},
                  steps=("Normalize+Relu+Gradient+NormalizationSums",
                         "Normalize+Relu+Gradient+NormalizeGradient")),
    "batches": dict(op="BatchNormalization", shape=(64, 40, 7), affine=(40,), inputs=2,
                    attributes={"training_mode": 1},
                    steps=("Normalize+Relu+Gradient+NormalizationSums",
                           "Normalize+Relu+Gradient+NormalizeGradient")),
}


def norm_nodes(case, source):
    """The normalisation, and what it is added to or goes through."""
    inputs = [source, "wscale", "wbias"][:1 + case["inputs"]]
    attributes = case.get("attributes", {})
    if case["op"] == "BatchNormalization":
        taps = [1] * (len(case["shape"]) - 2)
        return [helper.make_node(case["op"], inputs + ["mean", "variance"], ["n", "m", "v"], **attributes),
                helper.make_node("Relu", ["n"], ["r"]),
                helper.make_node("Conv", ["r", "wlast"], ["y"], kernel_shape=taps)]
    return [helper.make_node(case["op"], inputs, ["n"], **attributes),
            helper.make_node("Add", ["n", source], ["s"])]


def write(case, path, weights, dtype):
    kind = TensorProto.DOUBLE if dtype == numpy.float64 else TensorProto.FLOAT
    given, shape = case.get("flat", case["shape"]), case["shape"]
    constants = {}
    if case["op"] == "BatchNormalization":
        nodes = [helper.make_node("Conv", ["x", "wfirst"], ["h"])] + norm_nodes(case, "h")
        constants = {"mean": numpy.zeros(case["affine"], dtype), "variance": numpy.ones(case["affine"], dtype)}
    elif "flat" in case:
        constants = {"rows": numpy.array(shape), "flat": numpy.array(given)}
        nodes = [helper.make_node("Add", ["x", "wfirst"], ["f"]),
                 helper.make_node("Reshape", ["f", "rows"], ["h"]),
                 norm_nodes(case, "h")[0],
                 helper.make_node("Reshape", ["n", "flat"], ["b"]),
                 helper.make_node("Gemm", ["b", "wlast"], ["p"]),
                 helper.make_node("Add", ["p", "f"], ["s"])]
    else:
        nodes = [helper.make_node("Add", ["x", "wfirst"], ["h"])] + norm_nodes(case, "h")
    if nodes[-1].output[0] == "s":
        nodes.append(helper.make_node("Mul", ["s", "s"], ["y"]))
    weights = dict(weights, **constants)
    graph = helper.make_graph(
        nodes, "norms", [helper.make_tensor_value_info("x", kind, given)],
        [helper.make_tensor_value_info("y", kind, given)],
        [numpy_helper.from_array(value, name) for name, value in weights.items()])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10), path)


def make(name):
    case, random = CASES[name], numpy.random.default_rng(sum(map(ord, name)))
    given = case.get("flat", case["shape"])
    weights = {"wfirst": random.standard_normal(given),
               "wscale": 1 + 0.3 * random.standard_normal(case["affine"])}
    if case["inputs"] > 1:
        weights["wbias"] = 0.3 * random.standard_normal(case["affine"])
    if "flat" in case:
        weights["wlast"] = random.standard_normal((96, 96)) / 10
    if case["op"] == "BatchNormalization":
        channels, ones = given[1], [1] * (len(given) - 2)
        for key in ("wfirst", "wlast"):
            weights[key] = random.standard_normal((channels, channels, *ones)) / channels ** 0.5
    data, labels = random.standard_normal(given), random.standard_normal(given)
    has_relu = any("Relu" in step for step in case["steps"])
    return gradient_cases.Case(lambda *args: write(case, *args), weights, data, labels,
                               half_limit=3e-2 if has_relu else 0.0)


def check_steps(args, name, precision, folder):
    if args.target != "cuda":
        return
    plan = os.path.join(folder, "plan.json")
    run([args.ullage, "plan", os.path.join(folder, "m.onnx"), "--target", "cuda", "--json", plan,
         *gradient_cases.options_of(precision)])
    with open(plan, encoding="utf-8") as file:
        ops = json.load(file)["steps"]["op"]
    for step in CASES[name]["steps"]:
        if ops.count(step) != 1:
            raise AssertionError(f"{name} {precision}: {ops.count(step)} steps {step} in {ops}")


if __name__ == "__main__":
    sys.exit(gradient_cases.main(CASES, make, check_steps))
