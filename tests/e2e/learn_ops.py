#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Gradients of operators through the whole compiler: what tests/gradient holds against finite
differences without one, here in compiled programs.

    learn_ops.py ULLAGE [--target c] [CASE]...

Each case is a network in double whose program takes one step of SGD with rate 1: what a parameter
loses is its gradient. It is held against differences of the program's own losses, along a random
direction for each parameter.
Exit: 0 ok, 1 a promise is broken, 77 a Python package is missing.
"""

import argparse
import os
import shutil
import sys
import tempfile

from learn import check_numbers, run, train  # exits with 77 where a package is missing

import numpy
from onnx import TensorProto, helper, numpy_helper, save

SAMPLES, CLASSES, STEP = 4, 5, 1e-6


class Net:
    def __init__(self, seed):
        self.random = numpy.random.default_rng(seed)
        self.nodes, self.weights, self.constants = [], {}, {}

    def node(self, op, inputs, outputs, **attributes):
        self.nodes.append(helper.make_node(op, inputs.split(), outputs.split(), **attributes))

    def weight(self, name, *shape):
        self.weights[name] = self.random.standard_normal(shape) * 0.4
        return name

    def ints(self, name, values):
        self.constants[name] = numpy.array(values, dtype=numpy.int64)
        return name


def images(net):
    """Windows, normalisations and attention."""
    w, ints = net.weight, net.ints
    net.constants["scales"] = numpy.array([1, 1, 2, 2], dtype=numpy.float32)
    net.node("Conv", f"x {w('c.w', 4, 2, 3, 3)} {w('c.b', 4)}", "c", pads=[1] * 4)
    net.node("GroupNormalization", f"c {w('g.s', 4)} {w('g.b', 4)}", "g", num_groups=2)
    net.nodes[-1].attribute.append(helper.make_attribute("epsilon", 0.1))
    net.node("MaxPool", "g", "m", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    net.nodes.append(helper.make_node("Resize", ["m", "", "scales"], ["r"], mode="linear"))
    net.node("AveragePool", "r", "a", kernel_shape=[2, 2], strides=[2, 2])
    net.node("Reshape", f"a {ints('tokens', [0, 16, 4])}", "t")
    net.node("LayerNormalization", f"t {w('l.s', 4)} {w('l.b', 4)}", "l", epsilon=0.1)
    for name in "qkv":
        net.node("MatMul", f"l {w(name + '.w', 4, 8)}", name)
    net.node("Attention", "q k v", "o", q_num_heads=2, kv_num_heads=2, is_causal=1)
    net.node("RMSNormalization", f"o {w('n.s', 8)}", "n", epsilon=0.1)
    net.node("Slice", f"n {ints('b', [0])} {ints('e', [16])} {ints('axis', [1])} {ints('by', [2])}", "s")
    net.node("Softmax", "s", "p", axis=1)
    net.node("Concat", "p s", "j", axis=2)
    net.node("Pad", f"j {ints('pads', [0, 1, 0, 0, 2, 0])}", "d", mode="reflect")
    net.node("Einsum", f"d {w('e.w', 16, CLASSES)}", "y", equation="btd,dc->bc")
    return [SAMPLES, 2, 8, 8]


def sequences(net):
    """Cells in both directions, and what reads by indexes."""
    w, ints = net.weight, net.ints
    net.node("Transpose", "x", "s", perm=[1, 0, 2])
    net.node("LSTM", f"s {w('l.w', 2, 40, 6)} {w('l.r', 2, 40, 10)} {w('l.b', 2, 80)}", "h hn cn",
             hidden_size=10, direction="bidirectional")
    net.node("Transpose", "h", "t", perm=[0, 2, 1, 3])
    net.node("Reshape", f"t {ints('flat', [0, 0, 20])}", "f")
    net.node("GRU", f"f {w('g.w', 1, 24, 20)} {w('g.r', 1, 24, 8)} {w('g.b', 1, 48)}", "gh gn",
             hidden_size=8, linear_before_reset=1)
    net.node("Squeeze", f"gn {ints('first', [0])}", "z")
    net.node("Gather", f"z {ints('picks', [7, 0, 3, 3])}", "k", axis=1)
    net.node("Concat", "z k", "j", axis=1)
    net.node("Gemm", f"j {w('y.w', 12, CLASSES)} {w('y.b', CLASSES)}", "y")
    return [SAMPLES, 7, 6]


def loops(net):
    """A loop of a known count, with a branch inside that depends on the data."""
    w = net.weight
    value, flag = TensorProto.DOUBLE, TensorProto.BOOL
    w("w", 6, 6)

    def graph(name, nodes, inputs, outputs):
        return helper.make_graph(
            nodes, name, [helper.make_tensor_value_info(*i) for i in inputs],
            [helper.make_tensor_value_info(*o) for o in outputs])

    yes = graph("yes", [helper.make_node("Tanh", ["p"], ["a"])], [], [("a", value, [SAMPLES, 6])])
    no = graph("no", [helper.make_node("Neg", ["p"], ["b"])], [], [("b", value, [SAMPLES, 6])])
    body = graph("body", [
        helper.make_node("MatMul", ["state", "w"], ["p"]),
        helper.make_node("ReduceSum", ["p"], ["sum"], keepdims=0),
        helper.make_node("Greater", ["sum", "zero"], ["positive"]),
        helper.make_node("If", ["positive"], ["next"], then_branch=yes, else_branch=no),
        helper.make_node("Identity", ["go"], ["again"])],
        [("i", TensorProto.INT64, []), ("go", flag, []), ("state", value, [SAMPLES, 6])],
        [("again", flag, []), ("next", value, [SAMPLES, 6])])
    net.constants["zero"] = numpy.array(0.0)
    net.constants["count"] = numpy.array(3, dtype=numpy.int64)
    net.constants["on"] = numpy.array(True)
    net.node("Loop", "count on x", "last", body=body)
    net.node("MatMul", f"last {w('y.w', 6, CLASSES)}", "y")
    return [SAMPLES, 6]


CASES = {"images": images, "sequences": sequences, "loops": loops}


def write(path, net, shape):
    values = {**net.weights, **net.constants}
    graph = helper.make_graph(
        net.nodes, "ops", [helper.make_tensor_value_info("x", TensorProto.DOUBLE, shape)],
        [helper.make_tensor_value_info("y", TensorProto.DOUBLE, [SAMPLES, CLASSES])],
        [numpy_helper.from_array(value, name) for name, value in values.items()])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10), path)


def check(args, name, folder):
    net = Net(sum(map(ord, name)))
    shape = CASES[name](net)
    model, program = os.path.join(folder, "m.onnx"), os.path.join(folder, "m")
    write(model, net, shape)
    run([args.ullage, "compile", model, "-o", program, "--target", args.target, "--train",
         "--optimizer", "sgd", "--lr", "1"])
    data, labels = net.random.standard_normal(shape), net.random.integers(0, CLASSES, SAMPLES)

    def step(weights):
        path = os.path.join(folder, "init.npz")
        numpy.savez(path, **weights)
        return train(program, folder, data, labels, 1, "--init", path)

    saved = step(net.weights)[1]
    for key, value in net.weights.items():
        direction = net.random.standard_normal(value.shape)
        sides = [step({**net.weights, key: value + h * direction})[0][0] for h in (STEP, -STEP)]
        check_numbers(f"{name}: gradient of {key}", ((value - saved[key]) * direction).sum(),
                      (sides[0] - sides[1]) / (2 * STEP), 1e-6)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ullage")
    parser.add_argument("--target", default="c")
    parser.add_argument("cases", nargs="*")
    args = parser.parse_args()
    failed = 0
    for name in args.cases or CASES:
        folder = tempfile.mkdtemp()
        try:
            check(args, name, folder)
            print(f"{name}: ok")
        except AssertionError as error:
            print(f"{name}: {error}")
            failed += 1
        finally:
            shutil.rmtree(folder)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
