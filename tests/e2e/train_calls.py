#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Training steps by calls of oneDNN: those of target cpu against those of target c.

    train_calls.py ULLAGE [NETWORK...]

Networks made here, of convolutions and products whose weights are trained, are trained three steps
by both programs: losses and parameters are the same to rounding, with one thread and with two. With
AVX-512 all their convolutions and gradients of these are calls, --guard finds no step that touches
what is not its own, and under a budget every bit is the same.
Exit: 0 ok, 1 a promise is broken, 77 a Python package is missing.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile

try:
    import numpy
    from onnx import TensorProto, helper, numpy_helper, save
except ImportError as error:
    print(f"train_calls.py: skipped: {error}")
    sys.exit(77)

STEPS, CLASSES = 3, 7
NEAR = 1e-4  # norm of a difference over the norm: sums are in another order
THREADS = 2
TRAINING = ["--train", "--optimizer", "momentum", "--lr", "0.05"]

# The first network has so many samples that the library keeps less for a call than it reads and writes.
# Shape of the input; then layers: operator, output channels, attributes. `k` is the kernel. Add: what
# the layer of that number gave, on top.
NETWORKS = {
    "plain": ([48, 3, 17, 19], [
        ("Conv", 24, {"k": [5, 5], "strides": [2, 2], "pads": [2, 1, 2, 2]}),
        ("Conv", 40, {"k": [3, 3], "pads": [1, 1, 1, 1]}),
        ("Conv", 37, {"k": [1, 1]}),
        ("Conv", 48, {"k": [3, 3], "dilations": [2, 1], "pads": [2, 1, 2, 1]}),
        ("Conv", 33, {"k": [3, 3], "strides": [2, 2]}),
        ("Conv", 32, {"k": [1, 1], "strides": [2, 1]})]),
    "groups": ([2, 16, 18, 15], [
        ("Conv", 32, {"k": [3, 3], "group": 2, "pads": [1, 1, 1, 1]}),
        ("Conv", 32, {"k": [3, 3], "group": 32, "pads": [1, 1, 1, 1]}),
        ("Conv", 64, {"k": [5, 5], "group": 32, "strides": [2, 2], "pads": [2, 2, 2, 2]}),
        ("Conv", 64, {"k": [3, 3], "group": 64, "strides": [2, 2], "pads": [1, 1, 0, 0]}),
        ("Conv", 48, {"k": [1, 1], "group": 4})]),
    "transposed": ([2, 16, 7, 9], [
        ("ConvTranspose", 24, {"k": [2, 2], "strides": [2, 2]}),
        ("ConvTranspose", 32, {"k": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1],
                               "output_padding": [1, 1]}),
        ("ConvTranspose", 16, {"k": [3, 3], "group": 2, "pads": [1, 1, 1, 1]})]),
    "residual": ([4, 16, 13, 11], [
        ("Conv", 64, {"k": [1, 1]}),
        ("Conv", 16, {"k": [1, 1]}),
        ("Conv", 16, {"k": [3, 3], "pads": [1, 1, 1, 1]}),
        ("Conv", 64, {"k": [1, 1]}),
        ("Add", 0, {}),
        ("Conv", 64, {"k": [3, 3], "pads": [1, 1, 1, 1]}),
        ("Add", 4, {})]),
    "row": ([3, 16, 50], [
        ("Conv", 64, {"k": [7], "strides": [3], "pads": [3, 3]}),
        ("Conv", 32, {"k": [3], "pads": [1, 1]})]),
    "space": ([2, 8, 6, 7, 8], [
        ("Conv", 16, {"k": [3, 3, 3], "pads": [1, 1, 1, 1, 1, 1]}),
        ("Conv", 32, {"k": [3, 3, 3], "strides": [2, 2, 2]})]),
}


def weight(rng, name, shape, terms):
    values = rng.standard_normal(shape) / numpy.sqrt(terms)
    return numpy_helper.from_array(values.astype(numpy.float32), name)


def make_network(shape, layers, rng, path):
    """Each layer has a bias and Relu after it; means over space and a product are the end."""
    nodes, weights, last, channels = [], [], "x", shape[1]
    for i, (op, outs, attributes) in enumerate(layers):
        nodes.append(helper.make_node("Relu", [f"c{i}"], [f"r{i}"], f"relu{i}"))
        if op == "Add":
            nodes.insert(-1, helper.make_node(op, [last, f"r{outs}"], [f"c{i}"], f"add{i}"))
            last = f"r{i}"
            continue
        attributes = dict(attributes)
        kernel, groups = attributes.pop("k"), attributes.get("group", 1)
        wide = [channels, outs // groups] if op == "ConvTranspose" else [outs, channels // groups]
        terms = channels // groups * numpy.prod(kernel)
        weights += [weight(rng, f"w{i}", wide + kernel, terms), weight(rng, f"b{i}", [outs], 100)]
        nodes.insert(-1, helper.make_node(op, [last, f"w{i}", f"b{i}"], [f"c{i}"], f"conv{i}",
                                          **attributes))
        last, channels = f"r{i}", outs
    weights += [weight(rng, "wf", [channels, CLASSES], channels), weight(rng, "bf", [CLASSES], 100)]
    nodes += [helper.make_node("ReduceMean", [last], ["mean"], axes=list(range(2, len(shape))),
                               keepdims=0),
              helper.make_node("Gemm", ["mean", "wf", "bf"], ["y"], "fc")]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [shape[0], CLASSES])], weights)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def run(command, fails=False):
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode != 0 and not fails:
        raise RuntimeError(f"{' '.join(command[:3])}: exit {done.returncode}: {done.stderr[-600:]}")


def compile_program(ullage, folder, name, options):
    """The program, and its plan."""
    program, plan = os.path.join(folder, name), os.path.join(folder, f"{name}.json")
    run([ullage, "compile", os.path.join(folder, "model.onnx"), *TRAINING, *options, "--cflags", "-O1", "-o", program, "--json", plan])
    with open(plan) as file:
        return program, json.load(file)


def smallest_budget(ullage, folder, options):
    plan = os.path.join(folder, "smallest.json")
    run([ullage, "plan", os.path.join(folder, "model.onnx"), *TRAINING, *options, "--budget", "1",
         "--budget-of", "arena", "--json", plan], fails=True)
    with open(plan) as file:
        return str(json.load(file)["smallest_budget_bytes"])


def train(program, options=()):
    """Losses and parameters after some steps."""
    folder = os.path.dirname(program)
    metrics, saved = os.path.join(folder, "metrics.csv"), os.path.join(folder, "saved.npz")
    run([program, "--data", os.path.join(folder, "x.npy"), "--labels",
         os.path.join(folder, "labels.npy"), "--steps", str(STEPS), "--no-shuffle", "--metrics",
         metrics, "--save", saved, *options])
    with open(metrics) as file:
        losses = numpy.array([float(row["loss"]) for row in csv.DictReader(file)])
    with numpy.load(saved) as values:
        return {"loss": losses, **{name: values[name] for name in values.files}}


def different(a, b):
    """What differs by more than rounding."""
    far = []
    for name, value in a.items():
        value, other = value.astype(float), b[name].astype(float)
        if not numpy.linalg.norm(value - other) <= NEAR * numpy.linalg.norm(value):
            far.append(name)
    return far


def check_steps(plan):
    """Convolutions and their gradients that are no calls; older machines have fewer of them."""
    steps = plan["steps"]
    if not dict(plan["options"])["isa"].startswith("avx512"):
        return []
    return [name for name, ops, by in zip(steps["name"], steps["op"], steps["implementation"])
            if any(op.startswith("Conv") for op in ops.split("+")) and not by.startswith("onednn")]


def check(ullage, shape, layers, folder):
    rng = numpy.random.default_rng(11)
    make_network(shape, layers, rng, os.path.join(folder, "model.onnx"))
    samples = [shape[0] * STEPS] + shape[1:]
    numpy.save(os.path.join(folder, "x.npy"), rng.standard_normal(samples).astype(numpy.float32))
    numpy.save(os.path.join(folder, "labels.npy"), rng.integers(0, CLASSES, samples[0]))
    reference = train(compile_program(ullage, folder, "c", ["--target", "c"])[0])
    options = ["--target", "cpu", "--threads", str(THREADS)]
    program, plan = compile_program(ullage, folder, "cpu", options)
    first = train(program)
    failures = [f"{name} differs from target c's" for name in different(reference, first)]
    failures += [f"{name} differs with one thread"
                 for name in different(reference, train(program, ["--threads", "1"]))]
    failures += [f"{name} is no call" for name in check_steps(plan)]
    run([program, "--random", "3", "--guard"])
    small, _ = compile_program(ullage, folder, "small", [
        *options, "--budget", smallest_budget(ullage, folder, options), "--budget-of", "arena"])
    failures += [f"{name} has other bits under a budget" for name, value in train(small).items()
                 if value.tobytes() != first[name].tobytes()]
    return failures


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ullage")
    parser.add_argument("networks", nargs="*")
    arguments = parser.parse_args()
    failed = False
    for name in arguments.networks or NETWORKS:
        with tempfile.TemporaryDirectory() as folder:
            failures = check(arguments.ullage, *NETWORKS[name], folder)
        print(f"{name}: {'; '.join(failures) or 'ok'}")
        failed = failed or bool(failures)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
