#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Programs that train in 16 bits (--precision bf16): RNN, GRU and LSTM; networks on all targets.

    halves.py ULLAGE [--target c|cpu|cuda] [CASE...]

exact: of an RNN with Relu, numbers are chosen so that rounding X, W, R, the state and what flows back
to 16 bits, and nothing else, gives this very loss and these very gradients. The others: the loss of
a first step is that of numpy, which rounds so; losses and parameters have the same bits whatever is
asked for. gpt, digits: losses are near those of target c, whose own are near those of float32.
Exit: 0 ok, 1 a promise is broken, 77 a Python package is missing.
"""

import argparse
import os
import subprocess
import sys

import learn
import numpy
from onnx import TensorProto, helper

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
STEPS, BATCH, WIDTH, HIDDEN = 5, 4, 6, 7
# name -> operator, gates, attributes
CELLS = {"rnn": ("RNN", 1, {}), "gru": ("GRU", 3, {}), "gru-linear": ("GRU", 3, {"linear_before_reset": 1}),
         "lstm": ("LSTM", 4, {})}


def rounded(x):
    """To bf16, ties to even."""
    bits = numpy.asarray(x, numpy.float32).view(numpy.uint32).astype(numpy.uint64)
    bits = (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000
    return bits.astype(numpy.uint32).view(numpy.float32)


def sigmoid(x):
    return 1 / (1 + numpy.exp(-x))


def last_state(case, w, x):
    """h after the last step, as it is stored between steps."""
    h = numpy.zeros((len(x), HIDDEN), numpy.float32)
    c = h.copy()
    rows = slice(0, HIDDEN), slice(HIDDEN, 2 * HIDDEN), slice(2 * HIDDEN, 3 * HIDDEN), slice(3 * HIDDEN, None)
    W, R = rounded(w["w"][0]), rounded(w["r"][0])
    bias, inner = numpy.split(w["b"][0], 2)
    for step in range(STEPS):
        gates = rounded(x[:, step]) @ W.T + bias
        if case == "gru":
            z, r = (sigmoid(gates[:, g] + h @ R[g].T + inner[g]) for g in rows[:2])
            n = numpy.tanh(gates[:, rows[2]] + rounded(r * h) @ R[rows[2]].T + inner[rows[2]])
            h = rounded((1 - z) * n + z * h)
            continue
        seen = h @ R.T + inner
        if case == "gru-linear":
            z, r = (sigmoid(gates[:, g] + seen[:, g]) for g in rows[:2])
            n = numpy.tanh(gates[:, rows[2]] + r * seen[:, rows[2]])
            h = rounded((1 - z) * n + z * h)
        elif case == "lstm":
            i, o, f = (sigmoid(gates[:, g] + seen[:, g]) for g in rows[:3])
            c = f * c + i * numpy.tanh(gates[:, rows[3]] + seen[:, rows[3]])
            h = rounded(o * numpy.tanh(c))
        else:
            h = rounded(numpy.tanh(gates + seen))
    return h


def make_cell(path, op, attributes, w, x_shape, width):
    nodes = [helper.make_node(op, ["x", "w", "r", *(["b"] if "b" in w else [])], ["", "last"], layout=1,
                              hidden_size=w["r"].shape[-1], **attributes),
             helper.make_node("Flatten", ["last"], ["y"])]
    learn.make_model(path, nodes, w, [("x", x_shape)], ("y", [x_shape[0], width]), TensorProto.FLOAT)


def words_of(args, *more):
    return ["--target", args.target, "--train", "--precision", "bf16", "--loss", "mse", *more]


def check_exact(args, folder):
    width, hidden, near, rate = 257, 5, 1 + 2 ** -10, 2.0 ** -10
    model, program = os.path.join(folder, "m.onnx"), os.path.join(folder, "m")
    w = {"w": numpy.full((1, hidden, width), near), "r": numpy.full((1, hidden, hidden), near)}
    make_cell(model, "RNN", {"activations": ["Relu"]}, w, [BATCH, 2, width], hidden)
    learn.run([args.ullage, "compile", model, "-o", program, *words_of(args, "--optimizer", "sgd")])
    losses, saved = learn.train(program, folder, numpy.full((BATCH, 2, width), near, numpy.float32),
                                numpy.zeros((BATCH, hidden), numpy.float32), 1, "--lr", str(rate))
    h = 1536  # of 257 + 5 * 256, which the 257 of the first step is to R
    g = float(rounded(2 * h / (BATCH * hidden)))
    back = float(rounded(hidden * g))
    want = {"w": BATCH * (g + back), "r": BATCH * g * 256}
    if losses[0] != h * h:
        raise AssertionError(f"loss {losses[0]}, not {h * h}")
    for name, gradient in want.items():
        learn.check_numbers(name, saved[name], numpy.full(saved[name].shape, near - rate * gradient), 1e-6)


def check_cell(args, folder, case):
    op, gates, attributes = CELLS[case]
    model, program = os.path.join(folder, "m.onnx"), os.path.join(folder, "m")
    random = numpy.random.default_rng(5)
    w = {"w": (1, gates * HIDDEN, WIDTH), "r": (1, gates * HIDDEN, HIDDEN), "b": (1, 2 * gates * HIDDEN)}
    w = {name: (random.standard_normal(shape) * 0.6).astype(numpy.float32) for name, shape in w.items()}
    make_cell(model, op, attributes, w, [BATCH, STEPS, WIDTH], HIDDEN)
    data = random.standard_normal((3 * BATCH, STEPS, WIDTH)).astype(numpy.float32)
    labels = numpy.zeros((3 * BATCH, HIDDEN), numpy.float32)
    words, want = words_of(args, "--optimizer", "adamw"), None
    for more in ([], ["--pack", "none"], ["--checkpoint", "products"]):
        learn.run([args.ullage, "compile", model, "-o", program, *words, *more])
        losses, saved = learn.train(program, folder, data, labels, 3)
        want = want or (losses, saved)
        if losses != want[0] or any(saved[k].tobytes() != v.tobytes() for k, v in want[1].items()):
            raise AssertionError(f"{more}: other bits than without")
    loss = (last_state(case, w, data[:BATCH]).astype(float) ** 2).mean()
    learn.check_numbers("first loss", want[0][0], loss, 2e-5)


def check_network(args, folder, name):
    """Other orders of sums round now and then to another number of 16 bits."""
    model, program = os.path.join(folder, "m.onnx"), os.path.join(folder, "m")
    random = numpy.random.default_rng(5)
    if name == "gpt":
        make = os.path.join(ROOT, "models", "make.py")
        subprocess.run([sys.executable, make, "gpt2", "--small", "--batch", "2", "--seq", "16", "-o", model],
                       check=True, stdout=subprocess.DEVNULL)
        words = ["--class-axis", "-1", "--optimizer", "adamw"]
        data, labels = (random.integers(0, 100, (8, 16)) for _ in range(2))
    else:
        model = os.path.join(ROOT, "models", "digits", "digits.onnx")
        words = ["--dim", "N=64", "--output", "/fc/Gemm_output_0", "--train-mode", "--optimizer", "momentum"]
        data = random.standard_normal((256, 1, 8, 8)).astype(numpy.float32)
        labels = random.integers(0, 10, 256)
    other = ("c", "fp32") if args.target == "c" else ("c", "bf16")
    losses = []
    for target, precision in ((args.target, "bf16"), other):
        learn.run([args.ullage, "compile", model, "-o", program, "--target", target, "--train", "--precision",
                   precision, *words])
        losses.append(learn.train(program, folder, data, labels, 4)[0])
    learn.check_numbers(f"{name}: losses", *losses, 2e-3)
    if losses[0] == losses[1] and args.target == "c":
        raise AssertionError(f"{name}: bf16 has the losses of float32")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ullage")
    parser.add_argument("--target", default="c")
    parser.add_argument("cases", nargs="*", metavar="CASE")
    args = parser.parse_args()
    args.ullage = os.path.abspath(args.ullage)

    def check(name, folder):
        if name == "exact":
            check_exact(args, folder)
        elif name in CELLS:
            check_cell(args, folder, name)
        else:
            check_network(args, folder, name)

    sys.exit(learn.run_cases(args.cases or ["exact", *CELLS, "gpt", "digits"], check))


main()
