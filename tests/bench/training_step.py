#!/usr/bin/env python3
"""One step of training on target cpu: where its time goes, and torch eager beside it.

    training_step.py [--ullage build/release/cli/ullage] [--threads 2] [--seconds 5] [NETWORK...]

Networks: resnet50 (8 images of 224x224, of models/make.py), mlp (four blocks of a transformer's MLP,
1024 rows of 256, GELU), made here. Each is compiled by --train with SGD and measured by --bench
--profile: seconds of a step, of the processor too, which tell more on a busy machine, and its parts by operator
and implementation, predicted times beside. Where this Python has torch, the same graph runs there,
operator by operator, forward, backward and update, in turns with ours.
"""

import argparse
import collections
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper

HERE = os.path.dirname(os.path.abspath(__file__))
MAKE = os.path.join(HERE, "..", "..", "models", "make.py")
ROUNDS, SHOWN = 3, 16

try:
    import torch
except ImportError:
    torch = None


def make_resnet50(path):
    subprocess.run([sys.executable, MAKE, "resnet50", "--batch", "8", "-o", path], check=True,
                   stdout=subprocess.DEVNULL)


def make_mlp(path, rows=1024, width=256, blocks=4, classes=512):
    rng, nodes, weights, last = numpy.random.default_rng(1), [], [], "x"

    def linear(name, x, ins, outs):
        values = (rng.standard_normal((ins, outs)) / ins**0.5).astype(numpy.float32)
        weights.append(numpy_helper.from_array(values, f"{name}.w"))
        weights.append(numpy_helper.from_array(numpy.zeros(outs, numpy.float32), f"{name}.b"))
        nodes.append(helper.make_node("MatMul", [x, f"{name}.w"], [f"{name}.xw"]))
        nodes.append(helper.make_node("Add", [f"{name}.xw", f"{name}.b"], [name]))
        return name

    for i in range(blocks):
        up = linear(f"up{i}", last, width, 4 * width)
        nodes.append(helper.make_node("Gelu", [up], [f"gelu{i}"], approximate="tanh"))
        down = linear(f"down{i}", f"gelu{i}", 4 * width, width)
        nodes.append(helper.make_node("Add", [last, down], [f"sum{i}"]))
        last = f"sum{i}"
    graph = helper.make_graph(
        nodes, "mlp", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, width])],
        [helper.make_tensor_value_info(linear("head", last, width, classes), TensorProto.FLOAT,
                                       [rows, classes])], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9),
              path)


NETWORKS = {"resnet50": make_resnet50, "mlp": make_mlp}


class TorchStep:
    """The graph in torch, and one step of SGD."""

    def __init__(self, path, threads):
        torch.set_num_threads(threads)
        self.graph = onnx.load(path).graph
        self.values = {t.name: torch.from_numpy(numpy_helper.to_array(t).copy())
                       for t in self.graph.initializer}
        dims = [d.dim_value for d in self.graph.input[0].type.tensor_type.shape.dim]
        self.x = torch.randn(dims)
        self.labels = torch.zeros(dims[0], dtype=torch.int64)
        self.trained = [v.requires_grad_() for n, v in self.values.items()
                        if v.is_floating_point() and "running" not in n]
        self.sgd = torch.optim.SGD(self.trained, 1e-3)

    def node(self, node, inputs):
        f, a = torch.nn.functional, {x.name: helper.get_attribute_value(x) for x in node.attribute}
        if node.op_type == "Conv":
            return f.conv2d(*inputs[:3], stride=a["strides"], padding=a["pads"][:2],
                            dilation=a["dilations"], groups=a["group"])
        if node.op_type == "BatchNormalization":
            x, scale, bias, mean, var = inputs
            return f.batch_norm(x, mean, var, scale, bias, True, 1 - a["momentum"], a["epsilon"])
        if node.op_type == "MaxPool":
            return f.max_pool2d(inputs[0], a["kernel_shape"], a["strides"], a["pads"][0])
        if node.op_type == "Gemm":
            return f.linear(inputs[0], inputs[1], inputs[2]) if a.get("transB") else torch.addmm(
                inputs[2], inputs[0], inputs[1])
        return {"Relu": f.relu, "Add": torch.add, "MatMul": torch.matmul,
                "Gelu": lambda x: f.gelu(x, approximate="tanh"),
                "GlobalAveragePool": lambda x: f.adaptive_avg_pool2d(x, 1),
                "Flatten": lambda x: x.flatten(1)}[node.op_type](*inputs)

    def run(self):
        values = dict(self.values, **{self.graph.input[0].name: self.x})
        for node in self.graph.node:
            values[node.output[0]] = self.node(node, [values[name] for name in node.input])
        self.sgd.zero_grad()
        torch.nn.functional.cross_entropy(values[node.output[0]], self.labels).backward()
        self.sgd.step()

    def measure(self, seconds):
        self.run()
        runs, wall, cpu = 0, time.monotonic(), time.process_time()
        while runs < 3 or time.monotonic() - wall < seconds:
            self.run()
            runs += 1
        return (time.monotonic() - wall) / runs, (time.process_time() - cpu) / runs


def measure(program, threads, seconds, report):
    subprocess.run([program, "--random", "1", "--threads", str(threads), "--bench", "--profile",
                    "--duration", str(seconds), "--json", report], check=True,
                   stdout=subprocess.DEVNULL)
    with open(report) as file:
        return json.load(file)


def show_parts(plan, bench):
    """Steps of the same operators and implementation, by their time."""
    named = dict(zip(plan["steps"]["name"], plan["steps"]["implementation"]))
    parts = collections.defaultdict(lambda: [0, 0, 0, 0])
    for step in bench["steps"]:
        part = parts[(step["op"], named.get(step["name"], ""))]
        for i, value in enumerate((1, step["least_seconds"], step["predicted_seconds"],
                                   step["flops"])):
            part[i] += value
    rows = sorted(parts.items(), key=lambda row: -row[1][1])
    print("      least ms  predicted   GFLOP/s  steps")
    for (op, name), (count, seconds, predicted, flops) in rows[:SHOWN]:
        rate = flops / seconds / 1e9 if seconds > 0 else 0
        print(f"    {seconds * 1e3:10.2f} {predicted * 1e3:10.2f} {rate:9.1f} {count:6d}  {op}, {name}")


def run(name, arguments, folder):
    model, program = os.path.join(folder, f"{name}.onnx"), os.path.join(folder, name)
    NETWORKS[name](model)
    subprocess.run([arguments.ullage, "compile", model, "--train", "--train-mode", "--target", "cpu",
                    "--threads", str(arguments.threads), "-o", program, "--json",
                    f"{program}.json"], check=True, stderr=subprocess.DEVNULL)
    peer = TorchStep(model, arguments.threads) if torch else None
    ours, theirs = [], []
    for _ in range(ROUNDS):
        bench = measure(program, arguments.threads, arguments.seconds, f"{program}.bench")
        ours.append((bench["latency_seconds"]["median"], bench["cpu_seconds"] / bench["runs"]))
        if peer:
            theirs.append(peer.measure(arguments.seconds))
    for who, times in (("ullage", ours), ("torch", theirs)):
        if times:
            wall, cpu = (statistics.median(column) for column in zip(*times))
            print(f"{name}: {who:6} {wall * 1e3:9.1f} ms a step, {cpu * 1e3:9.1f} ms of CPU time")
    if theirs:
        ratio = statistics.median(a[0] / b[0] for a, b in zip(ours, theirs))
        print(f"{name}: ullage / torch {ratio:.2f}")
    with open(f"{program}.json") as file:
        show_parts(json.load(file), bench)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--ullage", default="build/release/cli/ullage")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("networks", nargs="*", default=list(NETWORKS))
    arguments = parser.parse_args()
    if torch is None:
        print("torch is not installed: only ullage is measured")
    with tempfile.TemporaryDirectory() as folder:
        for name in arguments.networks:
            run(name, arguments, folder)


if __name__ == "__main__":
    main()
