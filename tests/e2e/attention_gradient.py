#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The gradient of attention in shapes that tiles do not fit, on every target.

    attention_gradient.py [--target cuda] ULLAGE [NAME]...

Each case is trained one step by SGD: what a parameter loses is its gradient. It is held against the
same network in double on target c, whose gradients are held against finite differences
(tests/gradient, learn_ops.py). A name that ends with _bf16 or _amp-fp16 is that case with --precision.
Exit: 0 ok, 1 a gradient differs, 77 a Python package is missing.
"""

import argparse
import os
import sys

from learn import check_numbers, run, run_cases, train  # exits with 77 where a package is missing

import numpy
from onnx import TensorProto, helper, numpy_helper, save

RATE = 1000  # so that gradients are not lost in the parameters' last bits
LIMITS = {"fp32": 2e-5, "bf16": 3e-2, "amp-fp16": 4e-3}

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
}


def write(path, case, dtype, weights):
    batch, heads, groups, queries, keys, size, value_size = case["sizes"]
    kind = TensorProto.DOUBLE if dtype == numpy.float64 else TensorProto.FLOAT
    values = {name: value.astype(dtype) for name, value in weights.items()}
    names, random = ["q", "k", "v"], numpy.random.default_rng(3)
    if "mask" in case:
        mask = random.random((queries, keys)) < 0.7
        mask[min(5, queries - 1)] = False  # a query that sees no key
        bias = numpy.where(mask, random.standard_normal(mask.shape), -numpy.inf)
        values["mask"] = mask if case["mask"] == "bool" else bias.astype(dtype)
        names.append("mask")
    values["axes"] = numpy.array([1], dtype=numpy.int64)
    more = {key: case[key] for key in ("is_causal", "softcap") if key in case}
    nodes = [helper.make_node("Mul", ["x", "wq"], ["q"]),
             helper.make_node("ReduceMean", ["x", "axes"], ["m"], keepdims=1),
             helper.make_node("Mul", ["m", "wk"], ["k"]),
             helper.make_node("Mul", ["m", "wv"], ["v"]),
             helper.make_node("Attention", names, ["y"], q_num_heads=heads, kv_num_heads=groups, **more)]
    graph = helper.make_graph(
        nodes, "attention", [helper.make_tensor_value_info("x", kind, [batch, queries, 1])],
        [helper.make_tensor_value_info("y", kind, [batch, queries, heads * value_size])],
        [numpy_helper.from_array(value, name) for name, value in values.items()])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11), path)


def gradients(args, folder, case, dtype, target, more, weights, data, labels):
    model, program = os.path.join(folder, "m.onnx"), os.path.join(folder, "m")
    write(model, case, dtype, weights)
    run([args.ullage, "compile", model, "-o", program, "--target", target, "--train", "--loss", "mse",
         "--optimizer", "sgd", "--lr", str(RATE), "--train-only", "w*", *more])
    _, saved = train(program, folder, data.astype(dtype), labels.astype(dtype), 1)
    return {name: (value.astype(dtype) - saved[name]) / RATE for name, value in weights.items()}


def check(args, name, folder):
    base, _, precision = name.partition("_")
    case, random = CASES[base], numpy.random.default_rng(sum(map(ord, base)))
    batch, heads, groups, queries, keys, size, value_size = case["sizes"]
    weights = {"wq": random.standard_normal((1, queries, heads * size)),
               "wk": random.standard_normal((1, keys, groups * size)),
               "wv": random.standard_normal((1, keys, groups * value_size))}
    data = random.standard_normal((batch, queries, 1)) + 1
    labels = random.standard_normal((batch, queries, heads * value_size))
    precision = precision or "fp32"
    want = gradients(args, folder, case, numpy.float64, "c", [], weights, data, labels)
    more = ["--precision", precision, *(["--loss-scale", "256"] if precision == "amp-fp16" else [])]
    got = gradients(args, folder, case, numpy.float32, args.target, more, weights, data, labels)
    for key, value in want.items():
        check_numbers(f"{name}: gradient of {key}", got[key] * 1e3, value * 1e3, LIMITS[precision])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ullage")
    parser.add_argument("--target", default="c")
    parser.add_argument("cases", nargs="*")
    args = parser.parse_args()
    every = [name + more for name in CASES for more in ("", "_bf16", "_amp-fp16")]
    return run_cases(args.cases or every, lambda name, folder: check(args, name, folder))


if __name__ == "__main__":
    sys.exit(main())
