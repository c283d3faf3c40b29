#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sums of integers to which something is added, exactly as numpy has them.

    sums.py ULLAGE [--target c]

Sums over rows of a few columns: loops of few rounds, which gcc 12 unrolls and then adds wrongly what is
added behind them. All in one model. Exit: 0 ok, 1 outputs differ, 77 a Python package is missing.
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


def cases():
    """Name, source, and what is added behind the sum."""
    rng = np.random.default_rng(5)
    for kind in TYPES:
        for columns in COLUMNS:
            for height, width in ROWS:
                x = rng.integers(0, 100, (height, width, columns)).astype(kind)
                yield f"{kind}_{columns}_{height}_{width}", x, int(rng.integers(1, 200000))


def build(all_cases):
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
    graph = helper.make_graph(nodes, "sums", inputs, outputs, weights)
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 21)])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ullage")
    parser.add_argument("--target", default="c")
    options = parser.parse_args()
    all_cases, failed = list(cases()), 0
    with tempfile.TemporaryDirectory() as folder:
        model, program, given = os.path.join(folder, "m.onnx"), os.path.join(folder, "m"), []
        onnx.save(build(all_cases), model)
        for name, x, _ in all_cases:
            np.save(os.path.join(folder, f"{name}.npy"), x)
            given += ["--input", f"x_{name}={os.path.join(folder, name)}.npy"]
        subprocess.run([options.ullage, "compile", model, "--target", options.target, "-o", program], check=True,
                       stdout=subprocess.DEVNULL)  # fmt: skip
        subprocess.run([program, *given, "--output-dir", folder], check=True)
        for name, x, more in all_cases:
            want = (x.astype(np.int32).sum((0, 1)) + more).astype(np.float32) * np.float32(0.0625)
            got = np.load(os.path.join(folder, f"y_{name}.npy"))
            if not np.array_equal(got, want):
                failed += 1
                print(f"FAIL {name}: {got[:4]}, wanted {want[:4]}")
    print(f"{len(all_cases)} sums, {failed} differ")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
