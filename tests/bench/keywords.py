#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""DS-CNN for keywords, as microcontrollers run it: its arena beside TFLite Micro's, its time.

    keywords.py --ullage build/release/ullage [--seconds 2] [MODEL.onnx] [-- COMPILE OPTIONS]

The network is models/quantized.py's ds_cnn_qdq, of the shape of MLPerf Tiny's keyword benchmark,
on target c with weights in read-only memory. Beside what the plan reserves stands what TFLite
Micro's GreedyMemoryPlanner would make of the same graph: every tensor of integers between two
operators is a buffer, largest first and of equal ones the earlier first, each at the lowest offset
where no buffer that lives at the same time is in the way, 16 bytes aligned
(tensorflow/lite/micro/memory_planner). What TFLite Micro keeps besides (its structures of tensors
and nodes, scratch of its kernels) is not counted. The bytes and the time of the same network in
float32 stand beside, time as a ratio in one run; --seconds 0 leaves these out.
Exit: 0, 6 when the arena is larger than TFLite Micro's.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "models"))
sys.path.insert(0, os.path.join(ROOT, "scripts"))

import environment  # noqa: E402

environment.need("onnx", "onnxruntime")

import make  # noqa: E402
import onnx  # noqa: E402
import quantized  # noqa: E402
from onnx import helper, shape_inference  # noqa: E402

ALIGN = 16
FUSED = {"Relu", "Clip"}  # TFLite's converter makes them limits of the operator before
ROUNDS = 7


def integer_operators(model):
    """[(input tensors, output tensor)] of the graph that a converter to integers makes: each node
    between DequantizeLinear and QuantizeLinear; {tensor: bytes}."""
    model = shape_inference.infer_shapes(model)
    graph = model.graph
    types = {value.name: value.type.tensor_type
             for value in (*graph.value_info, *graph.input, *graph.output)}  # fmt: skip
    constant = {tensor.name for tensor in graph.initializer}
    tensor_of, operators, pending = {}, [], {}
    for node in graph.node:
        first, result = node.input[0] if node.input else "", node.output[0]
        if node.op_type == "Constant" or ("uantizeLinear" in node.op_type and first in constant):
            constant.add(result)
        elif node.op_type == "DequantizeLinear":
            tensor_of[result] = tensor_of.get(first, first)
        elif node.op_type == "QuantizeLinear":
            tensor_of[result] = result
            if first in pending:
                operators.append((pending.pop(first), result))
        elif node.op_type in FUSED and first in pending:
            pending[result] = pending.pop(first)
        else:
            pending[result] = [tensor_of.get(name, name) for name in node.input
                               if name and name not in constant]  # fmt: skip
    if pending:
        sys.exit(f"keywords.py: not quantized: {', '.join(pending)}")
    names = [name for inputs, output in operators for name in (*inputs, output)]
    return operators, {name: tensor_bytes(types[name]) for name in names}


def tensor_bytes(kind):
    size = helper.tensor_dtype_to_np_dtype(kind.elem_type).itemsize
    return size * math.prod(dim.dim_value for dim in kind.shape.dim)


def lifetimes(operators):
    """{tensor: (first operator, last operator)}, both inclusive, as TFLite Micro has them: inputs
    of the network are there from the first operator on, results stay to the last."""
    first, last = {}, {}
    for i, (inputs, output) in enumerate(operators):
        first.setdefault(output, i)
        for name in inputs:
            first.setdefault(name, 0)
            last[name] = i
    return {name: (first[name], last.get(name, len(operators) - 1)) for name in first}


def greedy_bytes(sizes, lives):
    """GreedyMemoryPlanner::CalculateOffsetsIfNeeded: the arena's bytes."""
    rounded = {name: -(-size // ALIGN) * ALIGN for name, size in sizes.items()}
    placed, most = [], 0
    for name in sorted(rounded, key=lambda name: -rounded[name]):
        begin, end = lives[name]
        offset = 0
        for other_offset, other in sorted(placed):
            if lives[other][0] > end or lives[other][1] < begin:
                continue
            if other_offset - offset >= rounded[name]:
                break
            offset = max(offset, other_offset + rounded[other])
        placed.append((offset, name))
        most = max(most, offset + rounded[name])
    return most


def compiled(args, model, folder, name):
    """(plan.json, program)"""
    plan, program = os.path.join(folder, name + ".json"), os.path.join(folder, name)
    command = [args.ullage, "compile", model, "-o", program, "--target", "c", "--weights", "rom",
               "--json", plan, *args.options]  # fmt: skip
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          check=False)  # fmt: skip
    if done.returncode != 0:
        print(f"keywords.py: compiling {name}: {done.stderr.strip()}", file=sys.stderr)
        sys.exit(done.returncode)
    with open(plan, encoding="utf-8") as f:
        return json.load(f), program


def seconds(program, duration):
    command = [program, "--bench", "--random", "1", "--duration", str(duration), "--json", "-"]
    done = subprocess.run(command, capture_output=True, check=True)
    return json.loads(done.stdout)["latency_seconds"]["median"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model", nargs="?", help="another QDQ model, quantized throughout")
    parser.add_argument("--ullage", required=True)
    parser.add_argument("--seconds", type=float, default=2, help="of running, for each program")
    argv = sys.argv[1:]
    at = argv.index("--") if "--" in argv else len(argv)
    args = parser.parse_args(argv[:at])
    args.options = argv[at + 1 :]
    with tempfile.TemporaryDirectory(prefix="ullage-keywords-") as folder:
        model = args.model or os.path.join(folder, "ds_cnn.onnx")
        whole = os.path.join(folder, "float.onnx")
        if not args.model:
            quantized.make_quantized("ds_cnn_qdq", model)
        operators, sizes = integer_operators(onnx.load(model))
        theirs = greedy_bytes(sizes, lifetimes(operators))
        plan, program = compiled(args, model, folder, "integers")
        ours = plan["reserved_bytes"]
        print(f"{len(operators)} operators: arena {ours} bytes, TFLite Micro's planner {theirs}: "
              f"{ours / theirs:.2f}{'!' if ours > theirs else ''}")  # fmt: skip
        if not args.model and args.seconds > 0:
            make.save(make.make("ds_cnn"), whole)
            args.options = [option for option in args.options if option != "--no-float"]
            other, float_program = compiled(args, whole, folder, "float")
            each = args.seconds / ROUNDS
            times = [(seconds(program, each), seconds(float_program, each)) for _ in range(ROUNDS)]
            a, b = (statistics.median(pair[i] for pair in times) for i in range(2))
            print(f"in float32: arena {other['reserved_bytes']} bytes; "
                  f"{a * 1e6:.1f} us for {b * 1e6:.1f} in float32: {a / b:.2f}")  # fmt: skip
    sys.exit(6 if ours > theirs else 0)


if __name__ == "__main__":
    main()
