#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A parameter that products of a trainer in bf16 read turned and as it lies, by the emulated
cuBLASLt: it is rounded once where both would lie in memory at the same time, which takes fewer
bytes, and has the bits of two roundings.

    tied.py ULLAGE

Exit: 0 ok, 1 a promise is broken, 77 a Python package or g++ is missing.
"""

import os
import sys
import tempfile

import accumulated
from accumulated import need, numpy

from onnx import TensorProto, helper, numpy_helper, save

ROWS, IN, OUT = 32, 96, 64


def make(folder):
    """Products of x with the matrix turned, as it lies, and turned."""
    random = numpy.random.default_rng(1)
    w = (random.standard_normal((OUT, IN)) * IN ** -0.5).astype(numpy.float32)
    nodes = [helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]),
             helper.make_node("MatMul", ["x", "t"], ["a"]), helper.make_node("Tanh", ["a"], ["b"]),
             helper.make_node("MatMul", ["b", "w"], ["c"]), helper.make_node("Tanh", ["c"], ["d"]),
             helper.make_node("MatMul", ["d", "t"], ["y"])]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [ROWS, side])
              for name, side in (("x", IN), ("y", OUT))]
    graph = helper.make_graph(nodes, "net", values[:1], values[1:],
                              [numpy_helper.from_array(w, "w")])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
         os.path.join(folder, "net.onnx"))
    numpy.save(os.path.join(folder, "x.npy"),
               random.standard_normal((3 * ROWS, IN)).astype(numpy.float32))
    numpy.save(os.path.join(folder, "y.npy"), random.integers(0, OUT, 3 * ROWS))


def count_casts(trainer):
    return sum(op == "Cast" for op, _, _ in trainer.steps())


def main():
    ullage = os.path.abspath(sys.argv[1])
    os.environ.setdefault("NVCC", os.path.join(os.path.dirname(os.path.abspath(__file__)), "nvcc"))
    words = [*accumulated.CUDA, "--precision", "bf16"]
    with tempfile.TemporaryDirectory() as folder:
        make(folder)
        twice = accumulated.Trainer(ullage, folder, *words, "--no-pass", "casts")
        before, want = count_casts(twice), twice.losses()
        once = accumulated.Trainer(ullage, folder, *words)
        need(count_casts(once) < before, f"{before} roundings before, {count_casts(once)} now")
        got = once.losses()
        need(got[1] == want[1], f"one rounding has other bits than two: losses {got[0]}, {want[0]}")
        plain = accumulated.Trainer(ullage, folder, "--target", "c", "--precision", "bf16").losses()
        need(numpy.allclose(got[0], plain[0], rtol=2e-2), f"losses {got[0]}, of c {plain[0]}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except AssertionError as error:
        print(f"tied.py: {error}")
        sys.exit(1)
