#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gradients of biases, which the products that form the gradients of weights form, too, by the
emulated cuBLASLt.

    bias_sums.py ULLAGE [--quick]

Losses are those of target c: where the library forms the sums, where it has no algorithm that does
(then the program launches as many kernels more), and where it runs no product at all. A plan counts
the launches of the first. --guard finds nothing in any of the three; --pack none and the smallest
budget have the same bits, and so has a program that is told the algorithms that --tune wrote.
--quick: in float32 alone, and without tiles. Exit: 0 ok, 1 a promise is broken, 77 a Python package
or g++ is missing.
"""

import json
import os
import subprocess
import sys
import tempfile

import accumulated
from accumulated import CUDA, Trainer, need, numpy, run

from onnx import TensorProto, helper, numpy_helper, save

BATCH, TOKENS, CLASSES = 16, 6, 10
NO_SUMS, NO_CALLS = {"UL_EMULATE_NO_SUMS": "1"}, {"UL_EMULATE_NO_ALGORITHMS": "1"}


class Net:
    def __init__(self):
        self.random = numpy.random.default_rng(1)
        self.nodes, self.weights = [], []

    def weight(self, name, *dims):
        scale = 0.1 if len(dims) == 1 else dims[0] ** -0.5
        numbers = (self.random.standard_normal(dims) * scale).astype(numpy.float32)
        self.weights.append(numpy_helper.from_array(numbers, name))
        return name

    def add(self, op, inputs, output, **attributes):
        self.nodes.append(helper.make_node(op, inputs, [output], **attributes))
        return output

    def save(self, folder, dims):
        values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
                  for name, shape in (("x", dims), ("y", [dims[0], CLASSES]))]
        graph = helper.make_graph(self.nodes, "net", values[:1], values[1:], self.weights)
        save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
             os.path.join(folder, "net.onnx"))
        numpy.save(os.path.join(folder, "x.npy"),
                   self.random.standard_normal((3 * dims[0], *dims[1:])).astype(numpy.float32))
        numpy.save(os.path.join(folder, "y.npy"),
                   self.random.integers(0, CLASSES, 3 * dims[0]))


def make_gemms(folder):
    """Weights as they lie, and turned; the last product is too small for a call. Returns how many
    products form sums."""
    net = Net()
    net.add("Gemm", ["x", net.weight("w0", 64, 128), net.weight("b0", 128)], "g0")
    net.add("Relu", ["g0"], "a0")
    net.add("Gemm", ["a0", net.weight("w1", 96, 128), net.weight("b1", 96)], "g1", transB=1)
    net.add("Relu", ["g1"], "a1")
    net.add("Gemm", ["a1", net.weight("w2", 96, CLASSES), net.weight("b2", CLASSES)], "y")
    net.save(folder, [2 * BATCH, 64])
    return 2


def add_layers(net, sides):
    """Two layers from x to a1."""
    for i, x in enumerate(("x", "a0")):
        net.add("MatMul", [x, net.weight(f"w{i}", *sides[i:i + 2])], f"m{i}")
        net.add("Add", [net.weight(f"b{i}", sides[i + 1]), f"m{i}"], f"s{i}")
        net.add("Tanh", [f"s{i}"], f"a{i}")


def make_rows(folder):
    """Products of three axes with biases that are added afterwards: sums come before the products."""
    net = Net()
    add_layers(net, (48, 64, 96))
    net.add("ReduceMean", ["a1"], "mean", axes=[1], keepdims=0)
    net.add("Gemm", ["mean", net.weight("w2", 96, CLASSES), net.weight("b2", CLASSES)], "y")
    net.save(folder, [BATCH, TOKENS, 48])
    return 2


def make_tiles(folder):
    """A gradient that is large beside all else, in tiles, after the update of its bias."""
    net = Net()
    add_layers(net, (64, 512, 1024))
    net.add("Gemm", ["a1", net.weight("w2", 1024, CLASSES), net.weight("b2", CLASSES)], "y")
    net.save(folder, [BATCH, 64])
    return 2


def launches(trainer, **environment):
    file = trainer.program + ".json"
    run(trainer.program, "--memory", "--random", "1", "--json", file, **environment)
    with open(file) as handle:
        return json.load(handle)["device"]["launch_count"]


def check_launches(trainer, least, most, refused):
    """The planned launches, and between `least` and `most` more where the library refuses."""
    with open(trainer.plan) as file:
        planned = json.load(file)["launches"]["count"]
    found, apart = launches(trainer), launches(trainer, **refused)
    need(found == planned, f"{planned} launches planned, {found} found")
    need(planned + least <= apart <= planned + most,
         f"{planned} launches with results by calls, {apart} without")


def check_choices(trainer, bits):
    """Returns how many digits the choices of cuBLASLt have."""
    file = trainer.program + ".choices"
    data = ["--random", "1", "--json", trainer.program + ".json"]
    run(trainer.program, "--bench", "--tune", file, *data)
    with open(file) as handle:
        sizes = {len(line.split()[3]) for line in handle if line.startswith("cublaslt")}
    need(sizes, "no choices are written")
    run(trainer.program, "--bench", "--choices", file, *data)
    need(trainer.losses()[1] == bits, "the same program has other bits")
    return sizes


def smallest_budget(ullage, folder, words):
    """That no plan is known to go below: the one of a byte fails, and says it."""
    file = os.path.join(folder, "least.json")
    subprocess.run([ullage, "plan", os.path.join(folder, "net.onnx"), "--train", "--optimizer",
                    "momentum", *CUDA[:2], *words, "--budget", "1", "--json", file],
                   capture_output=True, check=False)
    with open(file) as handle:
        return json.load(handle)["smallest_budget_bytes"]


def check_losses(ullage, folder, words, limit, refused, quick):
    """Returns the trainer and the parameters after its steps."""
    want = Trainer(ullage, folder, "--target", "c", *words).losses()[0]
    trainer = Trainer(ullage, folder, *CUDA, *words)
    got, bits = trainer.losses()
    need(numpy.allclose(got, want, rtol=limit), f"{words}: losses {got}, of target c {want}")
    for environment in ({}, refused) if quick else ({}, refused, NO_CALLS):
        losses = trainer.losses(**environment)[0]
        need(numpy.allclose(losses, want, rtol=limit),
             f"{words}, {environment}: losses {losses}, of target c {want}")
        run(trainer.program, "--guard", "--random", "1", **environment)
    return trainer, bits


def check_plans(ullage, folder, words, bits):
    least = str(smallest_budget(ullage, folder, words))
    for options in (["--pack", "none"], ["--budget", least]):
        plain = Trainer(ullage, folder, *CUDA, *words, *options).losses()[1]
        need(plain == bits, f"{words}: {options} has other bits")


def check(ullage, folder, count, precision, limit, quick):
    words = ["--precision", precision]
    trainer, bits = check_losses(ullage, folder, words, limit, NO_SUMS, quick)
    check_launches(trainer, count, 2 * count, NO_SUMS)
    if quick:
        return
    sizes = check_choices(trainer, bits)
    need(len(sizes) == 2, f"choices are of {sizes} digits: none, or each, is of a call with sums")
    check_plans(ullage, folder, words, bits)


def main():
    ullage = os.path.abspath(sys.argv[1])
    os.environ.setdefault("NVCC", os.path.join(os.path.dirname(os.path.abspath(__file__)), "nvcc"))
    quick = "--quick" in sys.argv
    for make in (make_gemms, make_rows) if quick else (make_gemms, make_rows, make_tiles):
        with tempfile.TemporaryDirectory() as folder:
            count = make(folder)
            check(ullage, folder, count, "fp32", 1e-5, quick)
            if not quick:
                check(ullage, folder, count, "bf16", 2e-2, quick)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except AssertionError as error:
        print(f"bias_sums.py: {error}")
        sys.exit(1)
