# SPDX-License-Identifier: Apache-2.0
"""Random small networks, of floats and quantized as onnxruntime's quantizers do, for process.py."""

import os

import numpy as np
from onnx import TensorProto, helper, numpy_helper, save
from onnxruntime.quantization import (CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic,
                                      quantize_static)  # fmt: skip

FORMS = ("float", "static", "channels", "dynamic", "int4")  # and in large buffers: wide, of int4, and large
BLOCK = 32  # of weights of 4 bits


class Samples(CalibrationDataReader):
    def __init__(self, shape, rng):
        self.rest = iter([{"x": rng.normal(0, 1, shape).astype("f4")} for _ in range(2)])

    def get_next(self):
        return next(self.rest, None)


def tensor(rng, name, *shape):
    return numpy_helper.from_array(rng.normal(0, 0.1, shape).astype("f4"), name)


def finish(nodes, tensors, shape, result, domains=()):
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
                              [helper.make_tensor_value_info("y", TensorProto.FLOAT, result)], tensors)  # fmt: skip
    opsets = [helper.make_opsetid("", 17), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def windows(rng, layers, channels, size, kernel, batch):
    """Convolutions, a mean, a product."""
    nodes, tensors, last, depth = [], [], "x", 3
    for i in range(layers):
        tensors += [tensor(rng, f"w{i}", channels, depth, kernel, kernel), tensor(rng, f"b{i}", channels)]
        nodes += [helper.make_node("Conv", [last, f"w{i}", f"b{i}"], [f"c{i}"], pads=[kernel // 2] * 4),
                  helper.make_node("Relu", [f"c{i}"], [f"r{i}"])]  # fmt: skip
        last, depth = f"r{i}", channels
    nodes += [helper.make_node("GlobalAveragePool", [last], ["mean"]),
              helper.make_node("Flatten", ["mean"], ["flat"]),
              helper.make_node("MatMul", ["flat", "last"], ["y"])]  # fmt: skip
    return finish(nodes, [*tensors, tensor(rng, "last", channels, 10)], [batch, 3, size, size], [batch, 10])


def products(rng, layers, width, rows):
    nodes, tensors, last = [], [], "x"
    for i in range(layers):
        name = "y" if i + 1 == layers else f"r{i}"
        tensors.append(tensor(rng, f"w{i}", width, width))
        nodes += [helper.make_node("MatMul", [last, f"w{i}"], [f"m{i}"]),
                  helper.make_node("Relu", [f"m{i}"], [name])]  # fmt: skip
        last = name
    return finish(nodes, tensors, [rows, width], [rows, width])


def few_bits(rng, layers, width, rows):
    nodes, tensors, last = [], [], "x"
    for i in range(layers):
        name = "y" if i + 1 == layers else f"m{i}"
        codes = rng.integers(0, 255, (width, width // BLOCK, BLOCK // 2)).astype("u1")
        scales = rng.uniform(0.01, 0.1, width * width // BLOCK).astype("f4")
        tensors += [numpy_helper.from_array(codes, f"q{i}"), numpy_helper.from_array(scales, f"s{i}")]
        nodes.append(helper.make_node("MatMulNBits", [last, f"q{i}", f"s{i}"], [name], domain="com.microsoft",
                                      K=width, N=width, bits=4, block_size=BLOCK))  # fmt: skip
        last = name
    return finish(nodes, tensors, [rows, width], [rows, width], ["com.microsoft"])


def make(seed, form, path):
    """Writes the network of a seed, in a form of FORMS; says what it is."""
    rng = np.random.default_rng(seed)
    layers, rows = int(rng.integers(1, 7)), int(rng.choice([1, 4, 16]))
    width = int(rng.choice([32, 64, 128]))
    channels, kernel, size = int(rng.choice([8, 16, 32, 48])), int(rng.choice([1, 3])), int(rng.integers(6, 33))
    if form == "large":
        model, said = products(rng, 3, 512, 768), "3 products of 768 x 512"
    elif form == "wide":
        model, said = few_bits(rng, 12, 1024, rows), f"12 products of {rows} x 1024"
    elif form == "int4":
        model, said = few_bits(rng, layers, width, rows), f"{layers} products of {rows} x {width}"
    elif rng.integers(0, 3) == 0:
        model, said = products(rng, layers, width, rows), f"{layers} products of {rows} x {width}"
    else:
        model = windows(rng, layers, channels, size, kernel, min(rows, 4))
        said = f"{layers} convolutions of {kernel} x {kernel}, {channels} channels, {size} x {size}, batch {min(rows, 4)}"
    source = path if form in ("float", "int4", "wide", "large") else os.path.splitext(path)[0] + "_float.onnx"
    save(model, source)
    if form == "dynamic":
        quantize_dynamic(source, path, weight_type=QuantType.QUInt8)
    elif source != path:
        shape = [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim]
        quantize_static(source, path, Samples(shape, rng), quant_format=QuantFormat.QDQ,
                        per_channel=form == "channels", activation_type=QuantType.QUInt8,
                        weight_type=QuantType.QInt8)  # fmt: skip
    return f"{form}, {said}"
