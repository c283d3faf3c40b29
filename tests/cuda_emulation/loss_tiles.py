#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The loss over a vocabulary in tiles of classes (passes/training/loss_tiles.c), by the emulated cuBLASLt.

    loss_tiles.py ULLAGE [--quick]

ULLAGE is a compiler with small tiles. Networks of an embedding, a layer and a product with a
thousand classes train in 16 bits, with tiles and, by target c, without: with a table that the
embedding and the product share, with weights that lie the other way and a bias, with labels that
are ignored, with micro-batches, with a loss scale. Losses, shares of right answers and evaluations
are those of target c; another plan has the same bits.
--quick: the shared table in bf16 alone.
Exit: 0 ok, 1 a promise is broken, 77 a Python package or g++ is missing.
"""

import os
import re
import subprocess
import sys
import tempfile

import accumulated
from accumulated import need, numpy

from onnx import TensorProto, helper, numpy_helper, save

ROWS, DEPTH, CLASSES = 64, 24, 1000
IGNORED = 7


def make(folder, is_tied):
    random = numpy.random.default_rng(3)
    table = (random.standard_normal((CLASSES, DEPTH)) * 0.5).astype(numpy.float32)
    square = (random.standard_normal((DEPTH, DEPTH)) * DEPTH ** -0.5).astype(numpy.float32)
    weights = [numpy_helper.from_array(table, "table"), numpy_helper.from_array(square, "w")]
    nodes = [helper.make_node("Gather", ["table", "x"], ["e"]),
             helper.make_node("MatMul", ["e", "w"], ["a"]), helper.make_node("Tanh", ["a"], ["h"])]
    if is_tied:
        nodes += [helper.make_node("Transpose", ["table"], ["t"], perm=[1, 0]),
                  helper.make_node("MatMul", ["h", "t"], ["y"])]
    else:
        weights += [numpy_helper.from_array(table.T.copy(), "head"),
                    numpy_helper.from_array(numpy.linspace(-1, 1, CLASSES, dtype=numpy.float32),
                                            "bias")]
        nodes += [helper.make_node("Gemm", ["h", "head", "bias"], ["y"])]
    inputs = [helper.make_tensor_value_info("x", TensorProto.INT64, [ROWS])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [ROWS, CLASSES])]
    graph = helper.make_graph(nodes, "net", inputs, outputs, weights)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
         os.path.join(folder, "net.onnx"))
    x = random.integers(0, CLASSES, 3 * ROWS)
    labels = numpy.where(random.random(3 * ROWS) < 0.5, x, random.integers(0, CLASSES, 3 * ROWS))
    labels[::9] = IGNORED
    numpy.save(os.path.join(folder, "x.npy"), x)
    numpy.save(os.path.join(folder, "y.npy"), labels)


def evaluate(trainer):
    """Losses and shares of right answers that two epochs print, with those of an evaluation."""
    paths = [os.path.join(trainer.folder, name) for name in ("x.npy", "y.npy")]
    done = subprocess.run([trainer.program, "--data", paths[0], "--labels", paths[1], "--val",
                           *paths, "--epochs", "2", "--seed", "1"], capture_output=True, text=True,
                          check=True)  # fmt: skip
    text = done.stdout + done.stderr
    losses = numpy.array(re.findall(r"loss (\d+\.\d+)", text), float)
    shares = numpy.array(re.findall(r"(\d+\.\d+) % right", text), float)
    need(len(losses) == len(shares) == 4, f"no evaluation in {text}")
    return losses, shares


def check(ullage, folder, *words, tiles=8):
    words = ["--ignore-index", str(IGNORED), "--lr", "0.5", *words]
    plain = accumulated.Trainer(ullage, folder, "--target", "c", *words)
    want, (losses, shares) = plain.losses()[0], evaluate(plain)
    trainer = accumulated.Trainer(ullage, folder, *accumulated.CUDA, *words)
    count = sum("ClassStatistics" in op for op, _, _ in trainer.steps())
    need(count == tiles, f"{words}: {count} tiles, {trainer.steps()}")
    got, bits = trainer.losses()
    need(numpy.allclose(got, want, rtol=2e-2), f"{words}: losses {got}, of target c {want}")
    need(want[-1] < want[0], f"{words}: nothing is learned: {want}")
    found = evaluate(trainer)
    need(numpy.allclose(found[0], losses, rtol=2e-2) and
         numpy.allclose(found[1], shares, atol=1.5),  # equal scores are many in 16 bits
         f"{words}: {found}, of target c {losses}, {shares}")
    own = trainer.losses(UL_EMULATE_NO_ALGORITHMS="1")[0]
    need(numpy.allclose(own, want, rtol=2e-2), f"{words}: losses {own} by kernels of ours")
    other = accumulated.Trainer(ullage, folder, *accumulated.CUDA, *words, "--pack", "none")
    need(other.losses()[1] == bits, f"{words}: --pack none has other bits")


def main():
    ullage = os.path.abspath(sys.argv[1])
    os.environ.setdefault("NVCC", os.path.join(os.path.dirname(os.path.abspath(__file__)), "nvcc"))
    with tempfile.TemporaryDirectory() as folder:
        make(folder, True)
        check(ullage, folder, "--precision", "bf16")
        if "--quick" in sys.argv:
            return 0
        check(ullage, folder, "--precision", "bf16", "--micro-batches", "4", tiles=2)
        check(ullage, folder, "--precision", "amp-fp16")
        make(folder, False)
        check(ullage, folder, "--precision", "bf16")
        check(ullage, folder, "--precision", "bf16", "--optimizer", "adamw", "--lr", "0.01",
              "--clip-norm", "1")  # fmt: skip
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except AssertionError as error:
        print(f"loss_tiles.py: {error}")
        sys.exit(1)
