#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Optimizers whose state has 8 bits an element: --state-bits 8.

    train_bytes.py ULLAGE [--target c]

A network of three layers, made here, is trained by adam, adamw and lion. Losses, parameters and
codes are those of plain numpy in double, which has blocks, tables and rounding written out; the last
loss is within 1 % of the start's of training with 32 bits. Embeddings and small tensors keep 32 bits;
what the plan says of state is its bytes; a resumed training gives the bytes of an uninterrupted one.
Exit: 0 ok, 1 a promise is broken, 77 a Python package is missing.
"""

import argparse
import csv
import json
import os
import sys
import tempfile

import train  # and 77 where a package is missing
from train import check, numpy, numpy_helper, onnx, read, run
from onnx import TensorProto, helper

SAMPLES, BATCH, CLASSES, STEPS, RATE = 160, 16, 5, 24, 0.003
SIZES = [12, 300, 257, CLASSES]  # rows of 257 are blocks of 129 and 128


def save(nodes, inputs, start, path):
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, [BATCH, CLASSES])],
                              [numpy_helper.from_array(value, name) for name, value in start.items()])  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def make_model():
    draw, start, nodes, last = numpy.random.default_rng(1), {}, [], "x"
    for i, (rows, columns) in enumerate(zip(SIZES, SIZES[1:])):
        start[f"w{i}"] = (draw.normal(size=(rows, columns)) / rows**0.5).astype("f4")
        start[f"b{i}"] = numpy.zeros(columns, "f4")
        result = "y" if i + 2 == len(SIZES) else f"a{i}"
        nodes.append(helper.make_node("Gemm", [last, f"w{i}", f"b{i}"], [result]))
        if result != "y":
            nodes.append(helper.make_node("Relu", [result], [f"r{i}"]))
        last = f"r{i}"
    save(nodes, [helper.make_tensor_value_info("x", TensorProto.FLOAT, [BATCH, SIZES[0]])], start, "m.onnx")
    y = draw.integers(0, CLASSES, SAMPLES)
    x = draw.normal(size=(CLASSES, SIZES[0]))[y] + draw.normal(size=(SAMPLES, SIZES[0])) / 2
    numpy.save("x.npy", x.astype("f4"))
    numpy.save("y.npy", y.astype("i4"))
    return start, numpy.load("x.npy").astype("f8"), y


def gradients(p, x, y):
    layers, kept = len(SIZES) - 1, [x]
    for i in range(layers):
        z = kept[-1] @ p[f"w{i}"] + p[f"b{i}"]
        kept.append(numpy.maximum(z, 0) if i + 1 < layers else z)
    z = kept[-1] - kept[-1].max(1, keepdims=True)
    soft = numpy.exp(z) / numpy.exp(z).sum(1, keepdims=True)
    loss = -numpy.log(soft[numpy.arange(len(y)), y]).mean()
    d, g = (soft - numpy.eye(CLASSES)[y]) / len(y), {}
    for i in reversed(range(layers)):
        g[f"w{i}"], g[f"b{i}"] = kept[i].T @ d, d.sum(0)
        d = (d @ p[f"w{i}"].T) * (kept[i] > 0)
    return loss, g


def numbers_of(is_signed):
    """What codes stand for."""
    found = [0.0, 1.0]
    for decade in range(7):
        parts = 2 ** (decade if is_signed else decade + 1)
        edges = numpy.linspace(0.1, 1, parts + 1) * 10.0 ** (decade - 6)
        middles = (edges[1:] + edges[:-1]) / 2
        found += [*middles, *(-middles if is_signed else [])]
    return numpy.sort(found)


def blocks_of(p):
    """The block of each element: of 256 at most, along the last axis or of several rows."""
    rows, columns = p.shape
    if columns <= 256:
        each = 256 // columns
        each = -(-rows // -(-rows // each))
        return numpy.repeat(numpy.arange(rows) // each, columns).reshape(p.shape)
    count = -(-columns // 256)
    each = -(-columns // count)
    return numpy.arange(rows)[:, None] * count + numpy.arange(columns) // each


class State:
    """Codes and the largest magnitudes of blocks; of few elements the numbers themselves."""

    def __init__(self, p, is_signed):
        self.bytes = p.size >= 4096
        self.value = numpy.zeros(p.shape)
        if self.bytes:
            self.table, self.blocks = numbers_of(is_signed), blocks_of(p)

    def set(self, value):
        self.value = value
        if not self.bytes:
            return
        self.largest = numpy.zeros(self.blocks.max() + 1)
        numpy.maximum.at(self.largest, self.blocks, numpy.abs(value))
        part = value / numpy.maximum(self.largest, 1e-300)[self.blocks]
        self.codes = numpy.searchsorted((self.table[1:] + self.table[:-1]) / 2, part, side="right")
        self.value = self.table[self.codes] * self.largest[self.blocks]


def update(optimizer, p, m, v, g, t):
    if optimizer == "lion":
        p -= RATE * numpy.sign(0.9 * m.value + 0.1 * g)
        m.set(0.99 * m.value + 0.01 * g)
        return
    p *= 1 - RATE * 0.01 if optimizer == "adamw" else 1
    mean, square = 0.9 * m.value + 0.1 * g, 0.999 * v.value + 0.001 * g * g
    p -= RATE * (mean / (1 - 0.9**t)) / (numpy.sqrt(square / (1 - 0.999**t)) + 1e-8)
    m.set(mean)
    v.set(square)


def learn(optimizer, start, x, y):
    p = {name: value.astype("f8") for name, value in start.items()}
    states = {name: (State(value, True), State(value, False)) for name, value in p.items()}
    losses = []
    for t in range(1, STEPS + 1):
        at = (t - 1) % (SAMPLES // BATCH) * BATCH
        loss, g = gradients(p, x[at : at + BATCH], y[at : at + BATCH])
        losses.append(loss)
        for name, value in p.items():
            update(optimizer, value, *states[name], g[name], t)
    return losses, p, states


def run_trainer(ullage, target, optimizer, bits):
    run(ullage, "compile", "m.onnx", "--train", "--optimizer", optimizer, "--state-bits", str(bits), "--lr", str(RATE),
        "--target", target, "-o", "trainer", "--json", "plan.json")  # fmt: skip
    run("./trainer", "--data", "x.npy", "--labels", "y.npy", "--no-shuffle", "--steps", str(STEPS), "--metrics", "m.csv",
        "--save", "whole.npz")  # fmt: skip
    with open("m.csv", encoding="ascii") as file, open("plan.json", encoding="utf-8") as plan:
        return [float(row["loss"]) for row in csv.DictReader(file)], json.load(plan)["rows"]["optimizer_state"]


def check_optimizer(ullage, target, optimizer, start, x, y):
    plain, plain_bytes = run_trainer(ullage, target, optimizer, 32)
    os.rename("trainer", "plain")
    got, bytes_ = run_trainer(ullage, target, optimizer, 8)
    want, p, states = learn(optimizer, start, x, y)
    count = 1 if optimizer == "lion" else 2
    expected = sum(count * 4 * w.size if w.size < 4096 else count * w.size + 4 * count * (blocks_of(w).max() + 1)
                   for w in start.values())  # fmt: skip
    check(bytes_ == expected, f"{optimizer}: {bytes_} bytes of state, not {expected}")
    # A code that is next to a border may be its neighbour, and lion's sign, next to 0, the other one.
    worst = max(abs(a / b - 1) for a, b in zip(got[:4], want))
    check(len(got) == STEPS and worst < 1e-3, f"{optimizer}: a loss is {worst:.1e} away")
    worst = max(abs(a - b) for a, b in zip(got, want)) / want[0]
    check(optimizer == "lion" or worst < 5e-3, f"{optimizer}: a loss is {worst:.1e} of the first one away")
    check(abs(got[-1] - plain[-1]) < 0.01 * plain[0], f"{optimizer}: ends at {got[-1]}, with 32 bits at {plain[-1]}")
    with open("plan.json", encoding="utf-8") as file:
        trained = json.load(file)["training"]
    small = [w.size for w in start.values() if w.size < 4096]
    told = [trained[key] for key in ("state_bytes", "wide_tensors", "wide_parameters", "wide_bytes", "fixed")]
    check(told == [expected, len(small), sum(small), 4 * (1 + count) * sum(small), 0], f"{optimizer}: told {told}")
    check(plain_bytes == 4 * count * sum(w.size for w in start.values()), f"{optimizer}: {plain_bytes} bytes with 32 bits")
    saved = numpy.load("whole.npz")
    for name, state in (("exp_avg", 0), ("exp_avg_sq", 1))[:count]:
        codes = saved[f"w1/{name}"]
        check(codes.dtype == numpy.uint8 and saved[f"w1/{name}/absmax"].dtype == numpy.float32, f"{optimizer}: types of w1/{name}")
        if optimizer != "lion":
            far = numpy.abs(codes.astype(int) - states["w1"][state].codes)
            check((far > 0).mean() < 0.02 and numpy.quantile(far, 0.999) <= 2, f"{optimizer}: {(far > 0).mean():.3f} of codes of {name} differ")
    if optimizer != "lion":
        off = max(numpy.abs(saved[name] - p[name]).mean() for name in p) / RATE / STEPS
        check(off < 5e-3, f"{optimizer}: parameters are {off:.1e} of their way away")
    command = ["./trainer", "--data", "x.npy", "--labels", "y.npy"]
    run(*command, "--no-shuffle", "--steps", "11", "--save", "part.npz")
    run(*command, "--steps", str(STEPS), "--resume", "part.npz", "--save", "rest.npz")
    check(read("whole.npz") == read("rest.npz"), f"{optimizer}: a resumed training differs")
    told = run("./plain", *command[1:], "--steps", "1", "--resume", "whole.npz", code=2).stderr
    check("use --init" in told, f"{optimizer}: codes to 32 bits: {told}")
    run(ullage, "export", "m.onnx", "whole.npz", "-o", "t.onnx")  # which passes codes and scales over


def check_embedding(ullage):
    """A table that rows are looked up in keeps 32 bits; options are checked."""
    start = {"table": numpy.ones((900, 8), "f4"), "w": numpy.ones((8, CLASSES), "f4")}
    nodes = [helper.make_node("Gather", ["table", "x"], ["e"]), helper.make_node("MatMul", ["e", "w"], ["y"])]
    save(nodes, [helper.make_tensor_value_info("x", TensorProto.INT64, [BATCH])], start, "e.onnx")
    command = [ullage, "plan", "e.onnx", "--train", "--json", "e.json", "--target", "c"]
    run(*command, "--optimizer", "adam", "--state-bits", "8")
    with open("e.json", encoding="utf-8") as file:
        state = json.load(file)["rows"]["optimizer_state"]
    check(state == 8 * sum(value.size for value in start.values()), f"the embedding has {state} bytes of state")
    told = run(*command, "--state-bits", "8", code=1).stderr  # sgd has none
    check("adam, adamw and lion" in told, told)
    told = run(*command, "--optimizer", "adam", "--state-bits", "16", code=1).stderr
    check("32 or 8" in told, told)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ullage")
    parser.add_argument("--target", default="c")
    arguments = parser.parse_args()
    ullage = os.path.abspath(arguments.ullage)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        start, x, y = make_model()
        for optimizer in ("adam", "adamw", "lion"):
            check_optimizer(ullage, arguments.target, optimizer, start, x, y)
        check_embedding(ullage)
        os.chdir("/")
    return 1 if train.failures else 0


if __name__ == "__main__":
    sys.exit(main())
