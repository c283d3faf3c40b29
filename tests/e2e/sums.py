#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sums of integers to which something is added, exactly as numpy has them.

    sums.py ULLAGE [--target c]

Sums over rows of a few columns: loops of few rounds, which gcc 12 unrolls and then adds wrongly what is
added after them; and averages of few quantized channels, which are quantized again. All in one model.
Exit: 0 ok, 1 outputs differ, 77 a Python package is missing.
"""

import argparse
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ImportError as error:
    print(f"sums.py: skipped: {error}")
    sys.exit(77)

COLUMNS = (2, 3, 4, 6, 8, 12, 16, 17, 24)
ROWS = ((32, 32), (1, 16), (4, 4), (7, 9))
TYPES = ("int8", "uint8", "int16", "int32")
CHANNELS = (2, 3, 4, 7, 8, 12, 16)
X_ZERO, Y_ZERO = 7, 12


def cases():
    """Name, source, and what is added after the sum."""
    rng = np.random.default_rng(5)
    for kind in TYPES:
        for columns in COLUMNS:
            for height, width in ROWS:
                x = rng.integers(0, 100, (height, width, columns)).astype(kind)
                yield f"{kind}_{columns}_{height}_{width}", x, int(rng.integers(1, 200000))


def averages():
    """Name and source of averages: channels innermost, as many places as a power of two, so that they are exact."""
    rng = np.random.default_rng(6)
    for kind in TYPES[:2]:
        for channels in CHANNELS:
            low = -40 if kind == "int8" else 0
            yield f"{kind}_{channels}", rng.integers(low, 100, (1, 16, 16, channels)).astype(kind)


def average(x):
    """The average of each channel: x has scale 0.5 and zero point X_ZERO, the result has 0.25 and Y_ZERO."""
    mean = (x.astype(np.float64).mean((1, 2), keepdims=True) - X_ZERO) * 0.5
    limits = np.iinfo(x.dtype)
    return np.clip(np.rint(mean / 0.25) + Y_ZERO, limits.min, limits.max).astype(x.dtype)


def add_averages(all_averages, nodes, inputs, weights, outputs):
    """The averages by one operator (p_), and by three (q_)."""
    weights += [numpy_helper.from_array(np.array([1, 2], np.int64), "places"),
                numpy_helper.from_array(np.float32(0.5), "x_scale"),
                numpy_helper.from_array(np.float32(0.25), "y_scale")]
    for kind in TYPES[:2]:
        weights += [numpy_helper.from_array(np.array(X_ZERO, kind), f"x_zero_{kind}"),
                    numpy_helper.from_array(np.array(Y_ZERO, kind), f"y_zero_{kind}")]
    for name, x in all_averages:
        a, c = ["x_scale", f"x_zero_{x.dtype}"], ["y_scale", f"y_zero_{x.dtype}"]
        nodes += [helper.make_node("QLinearGlobalAveragePool", [f"i_{name}", *a, *c], [f"p_{name}"],
                                   domain="com.microsoft", channels_last=1),
                  helper.make_node("DequantizeLinear", [f"i_{name}", *a], [f"d_{name}"]),
                  helper.make_node("ReduceMean", [f"d_{name}", "places"], [f"m_{name}"]),
                  helper.make_node("QuantizeLinear", [f"m_{name}", *c], [f"q_{name}"])]
        dtype = helper.np_dtype_to_tensor_dtype(x.dtype)
        inputs.append(helper.make_tensor_value_info(f"i_{name}", dtype, x.shape))
        outputs += [helper.make_tensor_value_info(f"{of}_{name}", dtype, (1, 1, 1, x.shape[3])) for of in "pq"]


def build(all_cases, all_averages):
    nodes, inputs, weights, outputs = [], [], [], []
    weights.append(numpy_helper.from_array(np.array([0, 1], np.int64), "axes"))
    weights.append(numpy_helper.from_array(np.float32(0.0625), "factor"))
    for name, x, more in all_cases:
        weights.append(numpy_helper.from_array(np.int32(more), f"more_{name}"))
        nodes += [helper.make_node("Cast", [f"x_{name}"], [f"c_{name}"], to=TensorProto.INT32),
                  helper.make_node("ReduceSum", [f"c_{name}", "axes"], [f"s_{name}"], keepdims=0),
                  helper.make_node("Add", [f"s_{name}", f"more_{name}"], [f"a_{name}"]),
                  helper.make_node("Cast", [f"a_{name}"], [f"f_{name}"], to=TensorProto.FLOAT),
                  helper.make_node("Mul", [f"f_{name}", "factor"], [f"y_{name}"])]
        inputs.append(helper.make_tensor_value_info(f"x_{name}", helper.np_dtype_to_tensor_dtype(x.dtype), x.shape))
        outputs.append(helper.make_tensor_value_info(f"y_{name}", TensorProto.FLOAT, x.shape[2:]))
    add_averages(all_averages, nodes, inputs, weights, outputs)
    graph = helper.make_graph(nodes, "sums", inputs, outputs, weights)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, ir_version=10, opset_imports=opsets)


def check(folder, name, want):
    got = np.load(os.path.join(folder, f"{name}.npy"))
    if np.array_equal(got, want) and got.dtype == want.dtype:
        return 0
    print(f"FAIL {name}: {got.ravel()[:4]}, wanted {want.ravel()[:4]}")
    return 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ullage")
    parser.add_argument("--target", default="c")
    options = parser.parse_args()
    all_cases, all_averages, failed = list(cases()), list(averages()), 0
    with tempfile.TemporaryDirectory() as folder:
        model, program, given = os.path.join(folder, "m.onnx"), os.path.join(folder, "m"), []
        onnx.save(build(all_cases, all_averages), model)
        for name, x in [(f"x_{case[0]}", case[1]) for case in all_cases] + [(f"i_{n}", x) for n, x in all_averages]:
            np.save(os.path.join(folder, f"{name}.npy"), x)
            given += ["--input", f"{name}={os.path.join(folder, name)}.npy"]
        subprocess.run([options.ullage, "compile", model, "--target", options.target, "-o", program], check=True,
                       stdout=subprocess.DEVNULL)  # fmt: skip
        subprocess.run([program, *given, "--output-dir", folder], check=True)
        for name, x, more in all_cases:
            want = (x.astype(np.int32).sum((0, 1)) + more).astype(np.float32) * np.float32(0.0625)
            failed += check(folder, f"y_{name}", want)
        for name, x in all_averages:
            failed += check(folder, f"p_{name}", average(x)) + check(folder, f"q_{name}", average(x))
    print(f"{len(all_cases)} sums and {2 * len(all_averages)} averages, {failed} differ")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
