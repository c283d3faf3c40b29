#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Attention that drops weights in training, against the same network with a Dropout of its own.

    attention_drop.py [--target cuda] ULLAGE [NAME]...

The first cases are single layers, whose gradients are held against those of the spelled-out network
in double (gradient_cases.py says how): both drop the same weights, or nothing would agree. The others
are small GPTs: their losses, of training and of held-out samples, must be those of the spelled-out
network, in micro-batches too, and, bit for bit, those under a budget in which steps run again.
Exit: 0 ok, 1 something differs, 77 a Python package is missing.
"""

import os
import subprocess
import sys

import gradient_cases  # exits with 77 where a package is missing
from learn import check_numbers, run

import numpy
from onnx import TensorProto, helper, numpy_helper, save

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "models"))

import make as models  # noqa: E402

# batch, heads, groups of heads, queries, keys, elements of keys and of values
LAYERS = {
    "small": dict(sizes=(2, 2, 2, 16, 16, 8, 8)),
    "causal": dict(sizes=(2, 2, 2, 70, 70, 32, 32), is_causal=True),
    "odd": dict(sizes=(2, 3, 3, 37, 53, 20, 12), has_mask=True),
    "grouped": dict(sizes=(2, 4, 2, 40, 40, 16, 24), is_causal=True),
    "tiles": dict(sizes=(1, 2, 2, 40, 300, 16, 16)),
}
NETWORKS = {"gpt": [], "gpt-micro": ["--micro-batches", "2"]}
RATIO, STEPS, BATCH, LENGTH = 0.25, 5, 4, 24


class Layer:
    """The network of one case, in the parts that exporters write."""

    def __init__(self, case, weights, dtype):
        self.case, self.dtype, self.nodes = case, dtype, []
        self.weights = dict(weights)

    def number(self, value, dtype=numpy.int64):
        name = f"c{len(self.weights)}"
        self.weights[name] = numpy.array(value, dtype)
        return name

    def op(self, kind, *inputs, **attributes):
        name = f"n{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def split(self, x, count, size, perm):
        batch, heads, groups = self.case["sizes"][:3]
        x = self.op("Reshape", x, self.number([batch, -1, count, size]))
        x = self.op("Transpose", x, perm=[0, 2, 1, 3])
        if count < heads:
            length = self.case["sizes"][4]
            x = self.op("Unsqueeze", x, self.number([2]))
            x = self.op("Expand", x, self.number([batch, groups, heads // groups, length, size]))
            x = self.op("Reshape", x, self.number([batch, heads, length, size]))
        return self.op("Transpose", x, perm=[0, 1, 3, 2]) if perm else x

    def scores(self, q, k):
        batch, heads, groups, queries, keys, size, value_size = self.case["sizes"]
        scores = self.op("Mul", self.op("MatMul", q, k), self.number(size**-0.5, self.dtype))
        if self.case.get("is_causal"):
            see = self.number(numpy.tril(numpy.ones((1, 1, queries, keys), bool)), bool)
            scores = self.op("Where", see, scores, self.number(-numpy.inf, self.dtype))
        if self.case.get("has_mask"):
            mask = numpy.where(numpy.arange(batch * keys) % 7 < 5, 0, -numpy.inf)
            scores = self.op("Add", scores, self.number(mask.reshape(batch, 1, 1, keys), self.dtype))
        return scores

    def build(self):
        batch, heads, groups, queries, keys, size, value_size = self.case["sizes"]
        mean = self.op("Slice", "x", self.number([0]), self.number([1]), self.number([1]))
        q = self.split(self.op("Mul", "x", "wq"), heads, size, False)
        k = self.split(self.op("Mul", mean, "wk"), groups, size, True)
        v = self.split(self.op("Mul", mean, "wv"), groups, value_size, False)
        weights = self.op("Softmax", self.scores(q, k), axis=-1)
        weights = self.op("Dropout", weights, self.number(RATIO, self.dtype), self.number(True, bool))
        y = self.op("Transpose", self.op("MatMul", weights, v), perm=[0, 2, 1, 3])
        y = self.op("Reshape", y, self.number([batch, queries, heads * value_size]))
        self.nodes.append(helper.make_node("Mul", [y, "wy"], ["y"]))


def write(case, path, weights, dtype):
    batch, heads, groups, queries, keys, size, value_size = case["sizes"]
    kind = TensorProto.DOUBLE if dtype == numpy.float64 else TensorProto.FLOAT
    layer = Layer(case, weights, dtype)
    layer.build()
    graph = helper.make_graph(
        layer.nodes, "layer", [helper.make_tensor_value_info("x", kind, [batch, queries, 1])],
        [helper.make_tensor_value_info("y", kind, [batch, queries, heads * value_size])],
        [numpy_helper.from_array(value, name) for name, value in layer.weights.items()])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)


def make_case(name):
    case, random = LAYERS[name], numpy.random.default_rng(sum(map(ord, name)))
    batch, heads, groups, queries, keys, size, value_size = case["sizes"]
    weights = {"wq": random.standard_normal((1, queries, heads * size)),
               "wk": random.standard_normal((1, keys, groups * size)),
               "wv": random.standard_normal((1, keys, groups * value_size)),
               "wy": random.standard_normal(heads * value_size)}
    data = random.standard_normal((batch, queries, 1)) + 1
    labels = random.standard_normal((batch, queries, heads * value_size))
    return gradient_cases.Case(lambda *args: write(case, *args), weights, data, labels,
                               ["--no-pass", "pattern"])


def check_found(args, model, count, *options):
    """The pass found so many, and no Dropout of weights is left."""
    plan = subprocess.run([args.ullage, "plan", model, "--target", args.target, *options,
                           "--print-after", "pattern"], capture_output=True, text=True, check=True)
    lines = (plan.stdout + plan.stderr).splitlines()
    found = sum("FusedAttention" in line and "ratio=" in line for line in lines)
    if found != count:
        raise AssertionError(f"{found} of {count} attentions drop weights themselves")


def check_layer(args, name, precision, folder):
    check_found(args, os.path.join(folder, "m.onnx"), 1, *gradient_cases.options_of(precision))


def losses_of(args, folder, *options):
    """Losses of each step, the one of held-out samples, and bytes reserved."""
    program = os.path.join(folder, "m")
    paths = {name: os.path.join(folder, name) for name in ("x.npy", "y.npy", "m.csv")}
    random = numpy.random.default_rng(3)
    for name in ("x.npy", "y.npy"):
        numpy.save(paths[name], random.integers(0, 100, (STEPS * BATCH, LENGTH)))
    made = subprocess.run([args.ullage, "compile", os.path.join(folder, "m.onnx"), "-o", program,
                           "--target", args.target, *options], stderr=subprocess.PIPE, text=True, check=True)
    said = run([program, "--data", paths["x.npy"], "--labels", paths["y.npy"], "--steps", str(STEPS),
                "--no-shuffle", "--metrics", paths["m.csv"], "--val", paths["x.npy"], paths["y.npy"]])
    with open(paths["m.csv"], encoding="utf-8") as file:
        losses = [float(line.split(",")[2]) for line in file.readlines()[1:]]
    held_out = said.split("held out: loss ")[1].split(",")[0]
    reserved = int(made.stderr.split(" bytes; ")[0].split()[-1])
    return losses, float(held_out), reserved


def check_network(args, name, folder):
    options = ["--train", "--class-axis", "-1", "--optimizer", "sgd", "--lr", "0.1", *NETWORKS[name]]
    model = models.make("gpt2", batch=BATCH, seq=LENGTH, small=True, dropout=RATIO)
    models.save(model, os.path.join(folder, "m.onnx"))
    check_found(args, os.path.join(folder, "m.onnx"), 2, *options)
    losses, held_out, reserved = losses_of(args, folder, *options)
    parts = losses_of(args, folder, *options, "--no-pass", "pattern")
    check_numbers(f"{name}: losses", losses, parts[0], 2e-6)
    check_numbers(f"{name}: loss of held-out samples", held_out, parts[1], 2e-5)
    if not reserved < parts[2]:
        raise AssertionError(f"{name}: reserves {reserved} bytes, and {parts[2]} with the parts")
    again = losses_of(args, folder, *options, "--budget-of", "arena", "--budget",
                      str(reserved * 9 // 10))
    if again[:2] != (losses, held_out):
        raise AssertionError(f"{name}: losses {losses}, {held_out}; under a budget {again[:2]}")


if __name__ == "__main__":
    networks = dict.fromkeys(NETWORKS, check_network)
    sys.exit(gradient_cases.main(LAYERS, make_case, check_layer, networks))
