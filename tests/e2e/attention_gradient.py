#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The gradient of attention in shapes that tiles do not fit, on every target.

    attention_gradient.py [--target cuda] ULLAGE [NAME]...

gradient_cases.py says how. Exit: 0 ok, 1 a gradient differs, 77 a Python package is missing.
"""

import sys

import gradient_cases  # exits with 77 where a package is missing

import numpy
from onnx import TensorProto, helper, numpy_helper, save

# batch, heads, groups of heads, queries, keys, elements of keys and of values
CASES = {
    "one": dict(sizes=(2, 1, 1, 1, 1, 1, 1)),
    "small": dict(sizes=(2, 2, 2, 16, 16, 8, 8)),
    "causal": dict(sizes=(2, 2, 2, 70, 70, 64, 64), is_causal=1),
    "long": dict(sizes=(1, 2, 2, 200, 150, 32, 32)),
    "odd": dict(sizes=(2, 3, 3, 37, 53, 20, 12)),
    "grouped": dict(sizes=(2, 4, 2, 40, 40, 16, 24), is_causal=1),
    "shared": dict(sizes=(2, 4, 1, 19, 33, 16, 16)),
    "wide": dict(sizes=(1, 1, 1, 35, 33, 130, 200)),
    "widest": dict(sizes=(1, 2, 2, 70, 40, 256, 256), is_causal=1),
    "beyond": dict(sizes=(1, 1, 1, 9, 20, 264, 8)),
    "masked": dict(sizes=(2, 2, 2, 40, 50, 16, 16), mask="bool"),
    "biased": dict(sizes=(2, 2, 2, 40, 50, 16, 16), mask="float", is_causal=1),
    "capped": dict(sizes=(2, 2, 2, 33, 33, 16, 16), softcap=0.7, is_causal=1),
    # what is added to the scores is trained: for all batches, for all heads, for both, for neither
    "windows": dict(sizes=(12, 3, 3, 49, 49, 32, 32), trained=(1, 3, 49, 49)),
    "sequences": dict(sizes=(2, 4, 2, 20, 70, 16, 24), trained=(2, 1, 20, 70), is_causal=1),
    "positions": dict(sizes=(2, 4, 2, 70, 33, 20, 12), trained=(70, 33), softcap=0.7),
    "rounds": dict(sizes=(40, 2, 2, 12, 40, 16, 16), trained=(12, 40)),
    "each": dict(sizes=(2, 2, 2, 19, 35, 16, 16), trained=(2, 2, 19, 35)),
}


def write(case, path, weights, dtype):
    batch, heads, groups, queries, keys, size, value_size = case["sizes"]
    kind = TensorProto.DOUBLE if dtype == numpy.float64 else TensorProto.FLOAT
    values = dict(weights)
    names, random = ["q", "k", "v"], numpy.random.default_rng(3)
    if "mask" in case:
        mask = random.random((queries, keys)) < 0.7
        mask[min(5, queries - 1)] = False  # a query that sees no key
        bias = numpy.where(mask, random.standard_normal(mask.shape), -numpy.inf)
        values["mask"] = mask if case["mask"] == "bool" else bias.astype(dtype)
        names.append("mask")
    values["axes"] = numpy.array([1], dtype=numpy.int64)
    mean, last = [helper.make_node("ReduceMean", ["x", "axes"], ["m"], keepdims=1)], []
    if "trained" in case:  # here all factors have 16 bits where activations have
        names.append("wm")
        values["zero"] = numpy.array([0], dtype=numpy.int64)
        mean = [helper.make_node("Slice", ["x", "zero", "axes", "axes"], ["m"])]
        last = [helper.make_node("Mul", ["a", "wy"], ["y"])]
    more = {key: case[key] for key in ("is_causal", "softcap") if key in case}
    nodes = [helper.make_node("Mul", ["x", "wq"], ["q"]),
             *mean,
             helper.make_node("Mul", ["m", "wk"], ["k"]),
             helper.make_node("Mul", ["m", "wv"], ["v"]),
             helper.make_node("Attention", names, ["a" if last else "y"], q_num_heads=heads,
                              kv_num_heads=groups, **more), *last]
    graph = helper.make_graph(
        nodes, "attention", [helper.make_tensor_value_info("x", kind, [batch, queries, 1])],
        [helper.make_tensor_value_info("y", kind, [batch, queries, heads * value_size])],
        [numpy_helper.from_array(value, name) for name, value in values.items()])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11), path)


def make(name):
    case, random = CASES[name], numpy.random.default_rng(sum(map(ord, name)))
    batch, heads, groups, queries, keys, size, value_size = case["sizes"]
    weights = {"wq": random.standard_normal((1, queries, heads * size)),
               "wk": random.standard_normal((1, keys, groups * size)),
               "wv": random.standard_normal((1, keys, groups * value_size))}
    if "trained" in case:
        weights["wm"] = random.standard_normal(case["trained"])
        weights["wy"] = random.standard_normal(heads * value_size)
    data = random.standard_normal((batch, queries, 1)) + 1
    labels = random.standard_normal((batch, queries, heads * value_size))
    return gradient_cases.Case(lambda *args: write(case, *args), weights, data, labels)


if __name__ == "__main__":
    sys.exit(gradient_cases.main(CASES, make))
