#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gradients that add up over micro-batches, by the emulated cuBLASLt.

    accumulated.py ULLAGE [--quick]

The gradient of each matrix is added to the sum of its step by the product that makes it, where that
sum lies: a call of cuBLASLt with a factor of 1 for what is there, or a kernel of ours. Losses are
those of target c, where the library runs the calls and where it has nothing for them; --pack none
has the same bits. The first run of a step takes nothing over: steps with gradients that are not
finite are passed over, and those after them are none the worse. --quick: in float32 alone.
Exit: 0 ok, 1 a promise is broken, 77 a Python package or g++ is missing.
"""

import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile

try:
    import numpy
    from onnx import TensorProto, helper, numpy_helper, save
except ImportError as error:
    print(f"accumulated.py: skipped: {error}")
    sys.exit(77)
if shutil.which("g++") is None:
    print("accumulated.py: skipped: g++ is missing")
    sys.exit(77)

BATCH, SIDES = 32, (64, 128, 96, 10)
MICRO = ["--micro-batches", "4"]
CUDA = ["--target", "cuda", "--cflags", "-O1"]


def run(*words, **environment):
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, **environment})
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(words)}: exit {done.returncode}: {done.stderr[-2000:]}")


def need(good, text):
    if not good:
        raise AssertionError(text)


def make(folder):
    random = numpy.random.default_rng(1)
    nodes, weights, x = [], [], "x"
    for i in range(len(SIDES) - 1):
        scale = SIDES[i] ** -0.5
        w = (random.standard_normal((SIDES[i], SIDES[i + 1])) * scale).astype(numpy.float32)
        weights += [numpy_helper.from_array(w, f"w{i}"),
                    numpy_helper.from_array(numpy.zeros(SIDES[i + 1], numpy.float32), f"b{i}")]
        nodes.append(helper.make_node("Gemm", [x, f"w{i}", f"b{i}"], [f"y{i}"]))
        x = f"y{i}"
        if i + 2 < len(SIDES):
            nodes.append(helper.make_node("Relu", [x], [f"a{i}"]))
            x = f"a{i}"
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [BATCH, side])
              for name, side in (("x", SIDES[0]), (x, SIDES[-1]))]
    graph = helper.make_graph(nodes, "net", values[:1], values[1:], weights)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
         os.path.join(folder, "net.onnx"))
    numpy.save(os.path.join(folder, "x.npy"),
               random.standard_normal((3 * BATCH, SIDES[0])).astype(numpy.float32))
    numpy.save(os.path.join(folder, "y.npy"), random.integers(0, SIDES[-1], 3 * BATCH))


class Trainer:
    """A trainer of the network; `words` say how it is compiled."""

    def __init__(self, ullage, folder, *words):
        self.folder, self.program = folder, os.path.join(folder, "trainer")
        self.plan = os.path.join(folder, "plan.json")
        run(ullage, "compile", os.path.join(folder, "net.onnx"), "-o", self.program, "--train",
            "--optimizer", "momentum", "--lr", "0.1", "--json",
            self.plan, *words)

    def losses(self, steps=8, **environment):
        """The loss of each step, and the parameters after them."""
        paths = [os.path.join(self.folder, name) for name in ("x.npy", "y.npy", "m.csv", "c.npz")]
        run(self.program, "--data", paths[0], "--labels", paths[1], "--metrics", paths[2], "--save",
            paths[3], "--steps", str(steps), "--seed", "1", **environment)
        with open(paths[2], newline="") as file:
            losses = [float(row["loss"]) for row in csv.DictReader(file)]
        with open(paths[3], "rb") as file:
            return numpy.array(losses), file.read()

    def steps(self):
        """Operators and implementation of each."""
        with open(self.plan) as file:
            steps = json.load(file)["steps"]
        return list(zip(steps["op"], steps["implementation"], steps["name"]))


def check_plan(steps):
    products = [how for op, how, _ in steps if op in ("Gemm+Accumulate", "MatMul+Accumulate")]
    need(len(products) == len(SIDES) - 1, f"{len(products)} products add up in place: {steps}")
    need(products.count("cublaslt") >= 2, f"the products that add up are by {products}")
    alone = [name for op, _, name in steps if op == "Accumulate" and "w" in name.split("/")[0]]
    need(not alone, f"steps of their own add up {alone}")


def check_precision(ullage, folder, precision, limit):
    words = ["--precision", precision, *MICRO]
    want = Trainer(ullage, folder, "--target", "c", *words).losses()[0]
    trainer = Trainer(ullage, folder, *CUDA, *words)
    check_plan(trainer.steps())
    got, bits = trainer.losses()
    need(numpy.allclose(got, want, rtol=limit), f"{precision}: losses {got}, of target c {want}")
    own = trainer.losses(UL_EMULATE_NO_ALGORITHMS="1")[0]
    need(numpy.allclose(own, want, rtol=limit), f"{precision}: losses {own} by kernels of ours")
    plain = Trainer(ullage, folder, *CUDA, *words, "--pack", "none").losses()[1]
    need(plain == bits, f"{precision}: --pack none has other bits")


def check_skipped(ullage, folder):
    """A scale by which the first gradients become infinite."""
    words = ["--precision", "amp-fp16", "--loss-scale", "4194304", *MICRO]
    want = Trainer(ullage, folder, "--target", "c", *words).losses(steps=16)[0]
    got = Trainer(ullage, folder, *CUDA, *words).losses(steps=16)[0]
    need(got[0] == got[3] or got[-1] < got[0], f"amp-fp16: nothing is skipped, or learned: {got}")
    need(numpy.isfinite(got).all() and numpy.allclose(got, want, rtol=2e-2),
         f"amp-fp16: losses {got}, of target c {want}")


def main():
    ullage = os.path.abspath(sys.argv[1])
    os.environ.setdefault("NVCC", os.path.join(os.path.dirname(os.path.abspath(__file__)), "nvcc"))
    with tempfile.TemporaryDirectory() as folder:
        make(folder)
        check_precision(ullage, folder, "fp32", 1e-5)
        if "--quick" not in sys.argv:
            check_precision(ullage, folder, "bf16", 2e-2)
            check_skipped(ullage, folder)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except AssertionError as error:
        print(f"accumulated.py: {error}")
        sys.exit(1)
