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
    # With the gradient of the result rounded to f16, as all that is multiplied, that of wk is 0.0042 off.
    "sequences": dict(sizes=(2, 4, 2, 20, 70, 16, 24), trained=(2, 1, 20, 70), is_causal=1, half_limit=5e-3),
    "positions": dict(sizes=(2, 4, 2, 70, 33, 20, 12), trained=(70, 33), softcap=0.7),
    "rounds": dict(sizes=(40, 2, 2, 12, 40, 16, 16), trained=(12, 40)),
    "each": dict(sizes=(2, 2, 2, 19, 35, 16, 16), trained=(2, 2, 19, 35)),
    # As in networks: operands are products, and the backward pass reads the result as well, so that
    # targets may save what they know of a query.
    "net": dict(sizes=(2, 3, 3, 37, 53, 20, 12), net=True),
    "net-causal": dict(sizes=(1, 4, 2, 70, 70, 64, 64), net=True, is_causal=1),
    "net-masked": dict(sizes=(2, 2, 2, 40, 50, 16, 16), net=True, mask="bool"),
    "net-wide": dict(sizes=(1, 1, 1, 70, 40, 128, 72), net=True),
    "net-widest": dict(sizes=(1, 1, 1, 35, 33, 130, 200), net=True),
    "net-few": dict(sizes=(1, 1, 1, 3, 2100, 16, 16), net=True, mask="float"),
    # Beside steps that touch far more, so that a library may have scratch for the gradient.
    "call": dict(sizes=(2, 4, 4, 70, 90, 32, 24), net=True, wide=4096),
    "call-causal": dict(sizes=(1, 2, 2, 65, 65, 64, 64), net=True, wide=4096, is_causal=1),
    "call-masked": dict(sizes=(2, 2, 2, 40, 130, 128, 8), net=True, wide=8192, mask="some"),
    # Spelled out, with zeros in place of NaN where a query sees no key.
    "nan": dict(sizes=(2, 2, 2, 40, 50, 16, 16), net=True, mask="float", spelled=True, nan_is_zero=True),
    "nan-free": dict(sizes=(2, 2, 2, 40, 50, 16, 16), mask="float", spelled=True, nan_is_zero=True),
}
WIDTH = 8  # of what products are of


def operands(case, values):
    """Queries, keys and values, [batch, position, heads * elements], in a network of x."""
    if not case.get("net"):
        values["axes"] = numpy.array([1], dtype=numpy.int64)
        mean = helper.make_node("ReduceMean", ["x", "axes"], ["m"], keepdims=1)
        if "trained" in case:  # here all factors have 16 bits where activations have
            values["zero"] = numpy.array([0], dtype=numpy.int64)
            mean = helper.make_node("Slice", ["x", "zero", "axes", "axes"], ["m"])
        return [helper.make_node("Mul", ["x", "wq"], ["q"]), mean,
                helper.make_node("Mul", ["m", "wk"], ["k"]), helper.make_node("Mul", ["m", "wv"], ["v"])]
    queries, keys = case["sizes"][3:5]
    turn = numpy.random.default_rng(5).standard_normal((keys, queries)) / queries**0.5
    values["turn"] = turn.astype(values["wq"].dtype)
    return [helper.make_node("MatMul", ["x", "wq"], ["q"]),
            helper.make_node("MatMul", ["turn", "x"], ["m"]),
            helper.make_node("MatMul", ["m", "wk"], ["k"]), helper.make_node("MatMul", ["m", "wv"], ["v"])]


def spelled(case, values):
    """Attention by Softmax."""
    batch, heads, _, queries, keys, size, value_size = case["sizes"]
    dtype = values["wq"].dtype
    values["scale"] = numpy.array(size**-0.5, dtype)
    values["zero"] = numpy.zeros((), dtype)
    nodes = []
    for name, count, elements, perm in (("q", queries, size, [0, 2, 1, 3]), ("k", keys, size, [0, 2, 3, 1]),
                                        ("v", keys, value_size, [0, 2, 1, 3])):
        values[name + "s"] = numpy.array([batch, count, heads, elements], numpy.int64)
        nodes += [helper.make_node("Reshape", [name, name + "s"], [name + "r"]),
                  helper.make_node("Transpose", [name + "r"], [name + "t"], perm=perm)]
    values["ys"] = numpy.array([batch, queries, heads * value_size], numpy.int64)
    return nodes + [
        helper.make_node("MatMul", ["qt", "kt"], ["qk"]), helper.make_node("Mul", ["qk", "scale"], ["s"]),
        helper.make_node("Add", ["s", "mask"], ["sm"]), helper.make_node("Softmax", ["sm"], ["p"], axis=-1),
        helper.make_node("IsNaN", ["p"], ["n"]), helper.make_node("Where", ["n", "zero", "p"], ["pz"]),
        helper.make_node("MatMul", ["pz", "vt"], ["yt"]),
        helper.make_node("Transpose", ["yt"], ["yr"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["yr", "ys"], ["a"])]


def wide(case, values):
    """Two layers after the result, with many elements between them."""
    random, size = numpy.random.default_rng(7), values["wy"].size
    values["up"] = (random.standard_normal((size, case["wide"])) / size**0.5).astype(values["wy"].dtype)
    values["down"] = (values["up"].T / (case["wide"] / size)).astype(values["wy"].dtype)
    return [helper.make_node("Mul", ["a", "wy"], ["b"]), helper.make_node("MatMul", ["b", "up"], ["c"]),
            helper.make_node("Relu", ["c"], ["d"]), helper.make_node("MatMul", ["d", "down"], ["y"])]


def write(case, path, weights, dtype):
    batch, heads, groups, queries, keys, size, value_size = case["sizes"]
    kind = TensorProto.DOUBLE if dtype == numpy.float64 else TensorProto.FLOAT
    values = dict(weights)
    names, random = ["q", "k", "v"], numpy.random.default_rng(3)
    if "mask" in case:
        mask = random.random((queries, keys)) < 0.7
        mask[min(5, queries - 1)] = case["mask"] == "some"  # else a query that sees no key
        bias = numpy.where(mask, random.standard_normal(mask.shape), -numpy.inf)
        values["mask"] = mask if case["mask"] == "bool" else bias.astype(dtype)
        names.append("mask")
    if "trained" in case:
        names.append("wm")
    more = {key: case[key] for key in ("is_causal", "softcap") if key in case}
    nodes = operands(case, values)
    if case.get("spelled"):
        nodes += spelled(case, values)
    else:
        nodes.append(helper.make_node("Attention", names, ["a"], q_num_heads=heads, kv_num_heads=groups, **more))
    nodes += wide(case, values) if "wide" in case else [
        helper.make_node("Mul", ["a", "wy"], ["y"]) if "wy" in values else
        helper.make_node("Identity", ["a"], ["y"])]
    graph = helper.make_graph(
        nodes, "attention",
        [helper.make_tensor_value_info("x", kind, [batch, queries, WIDTH if case.get("net") else 1])],
        [helper.make_tensor_value_info("y", kind, [batch, queries, heads * value_size])],
        [numpy_helper.from_array(value, name) for name, value in values.items()])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11), path)


def make(name):
    case, random = CASES[name], numpy.random.default_rng(sum(map(ord, name)))
    batch, heads, groups, queries, keys, size, value_size = case["sizes"]
    rows = (WIDTH, WIDTH) if case.get("net") else (queries, keys)
    shape = (lambda count: (count,)) if case.get("net") else (lambda count: (1, count))
    weights = {"wq": random.standard_normal((*shape(rows[0]), heads * size)),
               "wk": random.standard_normal((*shape(rows[1]), groups * size)),
               "wv": random.standard_normal((*shape(rows[1]), groups * value_size))}
    if case.get("net"):
        weights = {key: value / WIDTH**0.5 for key, value in weights.items()}
        weights["wy"] = random.standard_normal((1, 1, heads * value_size)) + 2
    if "trained" in case:
        weights["wm"] = random.standard_normal(case["trained"])
        weights["wy"] = random.standard_normal(heads * value_size)
    data = random.standard_normal((batch, queries, WIDTH if case.get("net") else 1)) + 1
    labels = random.standard_normal((batch, queries, heads * value_size))
    return gradient_cases.Case(lambda *args: write(case, *args), weights, data, labels,
                               half_limit=case.get("half_limit", 0.0))


if __name__ == "__main__":
    sys.exit(gradient_cases.main(CASES, make))
