#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""ullage plan --advice on --quantize for weights so large that a trial makes only their ends.

    advice_quantize.py ULLAGE

The trial's bytes and cost are those of the real plan, which makes all codes: where two weights are
equal, so that they are stored once, and where they differ in the middle alone.
What the real plan refuses, as a number in the middle has no scale, is not offered.
Exit: 0 ok, 1 a promise is broken, 77 a Python package is missing.
"""

import json
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    from onnx import TensorProto, helper, numpy_helper, save
except ImportError as error:
    print(f"advice_quantize: {error}")
    sys.exit(77)

ullage = sys.argv[1]
SIZE = 768


def plan(*words, code=0):
    done = subprocess.run([ullage, "plan", *words, "--json", "-"], capture_output=True, text=True, timeout=300)
    if done.returncode != code:
        sys.exit(f"advice_quantize: {words}: exit {done.returncode}, not {code}\n{done.stderr}")
    return json.loads(done.stdout) if code == 0 else None


def advised(path, *words):
    """What is saved by each kind of --quantize that is offered."""
    remedies = plan(path, *words, "--advice", "on")["remedies"]
    return {remedy["change"].split()[-1]: remedy for remedy in remedies if remedy["kind"] == "quantize"}


def make(path, weights, turned):
    """A chain of products; `turned`: Gemm with the weight transposed, else MatMul."""
    nodes, names = [], [f"w{i}" for i in range(len(weights))]
    for i, name in enumerate(names):
        read, made = ("x" if i == 0 else f"r{i}"), ("y" if i + 1 == len(names) else f"m{i}")
        nodes.append(helper.make_node("Gemm", [read, name], [made], transB=1) if turned else helper.make_node("MatMul", [read, name], [made]))
        if made != "y":
            nodes.append(helper.make_node("Relu", [made], [f"r{i + 1}"]))
    graph = helper.make_graph(nodes, "products", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, SIZE])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, SIZE])],
                              [numpy_helper.from_array(weight, name) for weight, name in zip(weights, names)])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


def check(path, what, *words):
    """The bytes that --quantize leaves, which are those of the real plan."""
    left, remedies = [], advised(path, *words)
    for kind in ("int8", "int4"):
        if kind not in remedies:
            sys.exit(f"advice_quantize: {what} {words}: --quantize {kind} is not offered")
        real = plan(path, *words, "--quantize", kind)
        for key in ("reserved_bytes", "process_bytes"):
            if real[key] != remedies[kind][key]:
                sys.exit(f"advice_quantize: {what} {words}: {kind}: {key} is {real[key]}, not {remedies[kind][key]}")
        left.append(real["reserved_bytes"])
    return left


numbers = np.random.default_rng(41)
first, last, weight, other = (numbers.standard_normal((SIZE, SIZE), dtype=np.float32) for _ in range(4))
near, endless = weight.copy(), weight.copy()
near[SIZE // 2, SIZE // 2] += 4
endless[SIZE // 2, SIZE // 2] = np.inf
with tempfile.TemporaryDirectory() as folder:
    path = os.path.join(folder, "products.onnx")
    for words in (("--target", "c"), ("--target", "cpu", "--threads", "1", "--isa", "avx2"), ("--target", "cuda")):
        for turned in (False, True):
            left = {}
            for what, middle in (("equal", weight), ("near", near), ("other", other)):
                make(path, [first, weight, middle, last], turned)
                left[what] = check(path, what, *words)
            if not left["equal"] < left["near"] == left["other"]:
                sys.exit(f"advice_quantize: {words}: {left}")
            make(path, [first, weight, endless, last], turned)
            plan(path, *words, "--quantize", "int8", code=3)
            if advised(path, *words):
                sys.exit(f"advice_quantize: {words}: what is refused is offered")
print("advice_quantize: ok")
