#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What quantization saves, counted: weights of few bits as the model stores them, activations a quarter.

    quantized_bytes.py ULLAGE [--target c] [--small] [--networks NAME ...]      of models/quantized.py

Weights, by the plan and by the file that a program reads them from: those of networks of 2- and
4-bit layers, of products and of convolutions, at most 1 % above what the model has, and with --quantize int4 at most 0.57 bytes for
each that is quantized. Activations, the buffer without weights, of each network: at most 0.30 of
the same network's in float32.
Exit: 0 ok, 6 too many bytes, 77 no Python packages.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(ROOT, "models"))

try:
    import make
    import numpy as np
    import quantized
    from onnx.reference import ReferenceEvaluator
    from onnx import TensorProto, helper, numpy_helper, save
except ImportError as error:
    print(f"quantized_bytes.py: skipped: {error}")
    sys.exit(77)

WEIGHTS, QUANTIZED, ACTIVATIONS = 1.01, 0.57, 0.30
ERROR = 1e-5  # sums in another order
TRAILER = 256  # of the file of weights, and what aligns them
BLOCK = 32
TYPES = {"u2": (TensorProto.UINT2, 2), "i4": (TensorProto.INT4, 4), "f4": (TensorProto.FLOAT4E2M1, 4)}


def plan(ullage, path, options, folder):
    told = os.path.join(folder, "plan.json")
    subprocess.run([ullage, "plan", path, "--advice", "off", "--json", told, *options], check=True,
                   stdout=subprocess.DEVNULL)  # fmt: skip
    with open(told) as file:
        return json.load(file)


def weights_bytes(ullage, path, options, folder):
    """Bytes of weights in the buffer, and in the file beside a program."""
    program = os.path.join(folder, "program")
    subprocess.run([ullage, "compile", path, "-o", program, "--weights", "file", "--cflags", "-O0", *options],
                   check=True, stderr=subprocess.DEVNULL)  # fmt: skip
    stored = os.path.getsize(program + ".weights")
    return plan(ullage, path, options, folder)["rows"]["weights"], stored


def dequantized(rng, name, kind, shape, axis, zeros=False):
    """Random codes in blocks of 32 along the axis, with scales of 16 bits: tensors, a node."""
    dtype, bits = TYPES[kind]
    def packed(name, dims):
        count = int(np.prod(dims)) * bits // 8
        return TensorProto(name=name, data_type=dtype, dims=dims, raw_data=rng.bytes(count))
    blocks = [d // BLOCK if i == axis else d for i, d in enumerate(shape)]
    scales = numpy_helper.from_array(rng.uniform(0.01, 0.1, blocks).astype("f2"), name + "_s")
    tensors = [packed(name, shape), scales] + ([packed(name + "_z", blocks)] if zeros else [])
    node = helper.make_node("DequantizeLinear", [t.name for t in tensors], [name + "_f"], axis=axis,
                            block_size=BLOCK, output_dtype=TensorProto.FLOAT)  # fmt: skip
    return tensors, node


def few_bits():
    """A table, two products, and what an element of is read at a time."""
    rng = np.random.default_rng(1)
    layers = [("table", "i4", [1000, 256], 1, True), ("up", "i4", [256, 512], 0, True),
              ("down", "f4", [512, 256], 0, False), ("out", "u2", [256, 256], 0, True),
              ("gate", "u2", [64, 256], 1, False)]  # fmt: skip
    nodes, tensors = [], []
    for layer in layers:
        made, node = dequantized(rng, *layer)
        nodes.append(node)
        tensors += made
    nodes += [helper.make_node("Gather", ["table_f", "a"], ["t"]),
              helper.make_node("MatMul", ["t", "up_f"], ["u"]), helper.make_node("Relu", ["u"], ["r"]),
              helper.make_node("MatMul", ["r", "down_f"], ["d"]),
              helper.make_node("Mul", ["d", "gate_f"], ["g"]),
              helper.make_node("MatMul", ["g", "out_f"], ["y"])]  # fmt: skip
    graph = helper.make_graph(nodes, "few_bits", [helper.make_tensor_value_info("a", TensorProto.INT64, [64])],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, [64, 256])], tensors)  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=12)
    return model, sum(len(t.raw_data) for t in tensors)


def few_bits_convolutions(integers):
    """A convolution, a depthwise and a pointwise one, and a transposed one, between integers or floats."""
    rng = np.random.default_rng(4)
    layers = [("first", "i4", [64, 16, 3, 3], {}, False), ("deep", "u4", [64, 1, 3, 3], {"group": 64}, True),
              ("point", "u2", [96, 64, 1, 1], {"pads": [0] * 4}, True),
              ("up", "i4", [96, 32, 3, 3], {}, False)]  # fmt: skip
    types = {**TYPES, "u4": (TensorProto.UINT4, 4)}
    nodes, tensors, x = [], [], "x"
    steps = [numpy_helper.from_array(np.array(0.1, "f4"), "s"), numpy_helper.from_array(np.array(128, "u1"), "z")]
    for name, kind, shape, attributes, zeros in layers:
        (dtype, bits), axis = types[kind], 1 if name == "up" else 0
        def packed(name, dims):
            return TensorProto(name=name, data_type=dtype, dims=dims, raw_data=rng.bytes(int(np.prod(dims)) * bits // 8))
        scales = rng.uniform(0.01, 0.1, shape[axis]).astype("f4")
        bias = rng.integers(-999, 999, shape[axis]).astype("i4" if integers else "f4")
        own = [packed(name, shape), numpy_helper.from_array(scales, name + "_s")]
        own += [packed(name + "_z", [shape[axis]])] if zeros else []
        tensors += own + [numpy_helper.from_array(bias, name + "_b")]
        if integers:
            nodes += [helper.make_node("QuantizeLinear", [x, "s", "z"], [name + "_q"]),
                      helper.make_node("DequantizeLinear", [name + "_q", "s", "z"], [name + "_x"])]  # fmt: skip
            x = name + "_x"
            steps.append(numpy_helper.from_array(np.float32(0.1) * scales, name + "_bs"))
            nodes.append(helper.make_node("DequantizeLinear", [name + "_b", name + "_bs"], [name + "_bf"], axis=0))
        nodes += [helper.make_node("DequantizeLinear", [t.name for t in own], [name + "_f"], axis=axis),
                  helper.make_node("ConvTranspose" if name == "up" else "Conv", [x, name + "_f", name + ("_bf" if integers else "_b")],
                                   [name + "_y"], **{"pads": [1] * 4, **attributes})]  # fmt: skip
        x = name + "_y"
    if integers:
        nodes += [helper.make_node("QuantizeLinear", [x, "s", "z"], ["y"])]
    else:
        nodes += [helper.make_node("Relu", [x], ["y"])]
    result = TensorProto.UINT8 if integers else TensorProto.FLOAT
    graph = helper.make_graph(nodes, "few_bits_convolutions",
                              [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16, 24, 24])],
                              [helper.make_tensor_value_info("y", result, [1, 32, 24, 24])],
                              tensors + (steps if integers else []))  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=13)
    return model, sum(len(t.raw_data) for t in tensors)


def floats():
    """Five products, of which the inner ones are quantized: the model, and how many weights they have."""
    rng = np.random.default_rng(2)
    sizes = [64, 256, 512, 512, 256, 64]
    tensors = [numpy_helper.from_array(rng.normal(0, 1, (k, n)).astype("f4"), f"w{i}")
               for i, (k, n) in enumerate(zip(sizes, sizes[1:]))]  # fmt: skip
    nodes = [helper.make_node("MatMul", [f"h{i}", f"w{i}"], [f"h{i + 1}"]) for i in range(5)]
    graph = helper.make_graph(nodes, "floats", [helper.make_tensor_value_info("h0", TensorProto.FLOAT, [4, 64])],
                              [helper.make_tensor_value_info("h5", TensorProto.FLOAT, [4, 64])], tensors)  # fmt: skip
    inner = sum(k * n for k, n in list(zip(sizes, sizes[1:]))[1:-1])
    outer = sum(k * n for k, n in zip(sizes, sizes[1:])) - inner
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), inner, outer


def error(model, folder):
    """How far the program's result of such a model is from onnx's evaluation, which knows scales of
    the result's type alone."""
    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT16:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype("f4"), tensor.name))
    for node in model.graph.node:
        kept = [entry for entry in node.attribute if entry.name != "output_dtype"]
        del node.attribute[:]
        node.attribute.extend(kept)
    index, out = os.path.join(folder, "a.npy"), os.path.join(folder, "y.npy")
    np.save(index, np.random.default_rng(3).integers(0, 1000, 64))
    subprocess.run([os.path.join(folder, "program"), "--input", f"a={index}", "--output", f"y={out}"], check=True)
    want = ReferenceEvaluator(model).run(None, {"a": np.load(index)})[0]
    return float(np.linalg.norm(np.load(out) - want) / np.linalg.norm(want))


def check_weights(ullage, options, folder):
    path = os.path.join(folder, "model.onnx")
    model, stored = few_bits()
    save(model, path)
    found = weights_bytes(ullage, path, options, folder)
    wrong = error(model, folder)
    print(f"layers of 2 and 4 bits: {found} bytes of weights, {stored} in the model, error {wrong:.2g}")
    good = wrong <= ERROR and found[0] <= WEIGHTS * stored and found[1] <= WEIGHTS * stored + TRAILER
    for integers in (True, False):
        model, stored = few_bits_convolutions(integers)
        save(model, path)
        found = weights_bytes(ullage, path, options, folder)
        print(f"convolutions, {'integers' if integers else 'floats'}: {found} bytes of weights, {stored} in the model")
        good = good and found[0] <= WEIGHTS * stored and found[1] <= WEIGHTS * stored + TRAILER
    model, inner, outer = floats()
    save(model, path)
    found = weights_bytes(ullage, path, [*options, "--quantize", "int4"], folder)
    each = [(bytes_ - 4 * outer) / inner for bytes_ in found]
    print(f"--quantize int4: {each} bytes a weight")
    return good and each[0] <= QUANTIZED and each[1] <= QUANTIZED + TRAILER / inner


def check_activations(ullage, options, name, small, folder):
    network = quantized.NETWORKS[name][0]
    found = []
    for each in (name, network):
        path = os.path.join(folder, each + ".onnx")
        if each == name:
            quantized.make_quantized(name, path, small=small)
        else:
            make.save(make.make(network, 1, None, small), path)
        told = plan(ullage, path, options, folder)
        found.append(told["reserved_bytes"] - told["rows"]["weights"])
    print(f"{name}: {found[0]} bytes beside the weights, {found[1]} in float32: {found[0] / found[1]:.3f}")
    return found[0] <= ACTIVATIONS * found[1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ullage")
    parser.add_argument("--networks", nargs="*", default=[])
    parser.add_argument("--target", default="c")
    parser.add_argument("--small", action="store_true")
    arguments = parser.parse_args()
    ullage, options = os.path.abspath(arguments.ullage), ["--target", arguments.target]
    with tempfile.TemporaryDirectory() as folder:
        good = check_weights(ullage, options, folder)
        for name in arguments.networks:
            good = check_activations(ullage, options, name, arguments.small, folder) and good
    return 0 if good else 6


if __name__ == "__main__":
    sys.exit(main())
