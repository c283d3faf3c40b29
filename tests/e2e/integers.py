#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Quantized operators: computed with integers, and within one step of the reference.

    integers.py ULLAGE [--target c] [--march NAME] [--no-float] [--keep DIR] [CASE ...]

All cases stand side by side in one model, each with outputs of its own. It is compiled, run on
random inputs, and held against onnxruntime without its optimizations, which evaluates operator by
operator: integers may be one step away, floats as far as f32 rounds. The program without reuse of memory has the same bits, and
what a case says must not be left in floats is not. --no-float: the same with no floats at all, of the
cases that have such a form; the others must be refused with the name of a node. Exit: 0 ok, 1 not, 77 a Python package is missing.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
    import onnxruntime
    from onnx import helper, numpy_helper
except ImportError as error:
    print(f"integers.py: skipped: {error}")
    sys.exit(77)

RANGES = {np.uint8: (0, 255), np.int8: (-128, 127), np.int16: (-32768, 32767), np.uint16: (0, 65535)}


class Model:
    def __init__(self):
        self.nodes, self.weights, self.inputs, self.outputs = [], [], [], []
        self.feeds, self.case, self.integer, self.others = {}, "", [], []
        self.rng = np.random.default_rng(7)

    def name(self):
        return f"{self.case}_{len(self.nodes) + len(self.weights) + len(self.inputs)}"

    def c(self, values, dtype=np.float32):
        name = self.name()
        self.weights.append(numpy_helper.from_array(np.array(values, dtype), name))
        return name

    def op(self, kind, *inputs, outputs=1, **attributes):
        names = [self.name() + (f"_{i}" if i else "") for i in range(outputs)]
        self.nodes.append(helper.make_node(kind, inputs, names, name=names[0], **attributes))
        return names[0] if outputs == 1 else names

    def input(self, values):
        name = self.name()
        self.feeds[name] = values
        kind = helper.np_dtype_to_tensor_dtype(values.dtype)
        self.inputs.append(helper.make_tensor_value_info(name, kind, list(values.shape)))
        return name

    def scaled(self, shape, dtype=np.uint8, scale=0.05, zero=None, constant=False):
        """Random integers after DequantizeLinear: an input, or a constant."""
        low, high = RANGES[dtype]
        zero = int(self.rng.integers(low // 2, high // 2 + 1)) if zero is None else zero
        values = self.rng.integers(low, high + 1, shape).astype(dtype)
        x = self.c(values, dtype) if constant else self.input(values)
        return self.op("DequantizeLinear", x, self.c(scale), self.c(zero, dtype))

    def weights_of(self, shape, axis=0, dtype=np.int8, channels=True, zero=0):
        low, high = RANGES[dtype]
        count = shape[axis] if channels else 1
        scale = self.rng.uniform(0.01, 0.03, count).astype(np.float32)
        zeros = np.full(count, zero, dtype) if zero is not None else self.rng.integers(100, 150, count)
        values = self.rng.integers(low, high + 1, shape).astype(dtype)
        shaped = scale if channels else scale[0]
        return self.op("DequantizeLinear", self.c(values, dtype), self.c(shaped),
                       self.c(zeros if channels else zeros[0], dtype), axis=axis)

    def few(self, shape, axis=0, signed=True, zero=None):
        """Weights of 4 bits, two to a byte; `zero`: of every channel, or "channels": each has one."""
        low, high, kind = (-8, 7, onnx.TensorProto.INT4) if signed else (0, 15, onnx.TensorProto.UINT4)

        def packed(values):
            codes = np.append(values.reshape(-1) & 15, np.zeros(values.size % 2, np.int64))
            data = (codes[::2] | codes[1::2] << 4).astype(np.uint8).tobytes()
            name = self.name()
            self.weights.append(onnx.TensorProto(name=name, data_type=kind, dims=values.shape, raw_data=data))
            return name

        inputs = [packed(self.rng.integers(low, high + 1, shape)),
                  self.c(self.rng.uniform(0.1, 0.3, shape[axis]))]
        if zero == "channels":
            inputs.append(packed(self.rng.integers(low, high + 1, shape[axis])))
        elif zero is not None:
            inputs.append(packed(np.full(shape[axis], zero)))
        return self.op("DequantizeLinear", *inputs, axis=axis)

    def quantized(self, x, scale, zero=0, dtype=np.uint8, integer=True):
        """The output: x as integers."""
        y = self.op("QuantizeLinear", x, self.c(scale), self.c(zero, dtype))
        self.output(y, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
        if integer:
            self.integer.append(self.case)

    def output(self, y, kind=1):
        self.outputs.append(helper.make_tensor_value_info(y, kind, None))

    def build(self):
        graph = helper.make_graph(self.nodes, "integers", self.inputs, self.outputs, self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


# ---- cases: products ----

def conv(m):
    x = m.scaled((2, 6, 9, 8), zero=0)
    w = m.weights_of((5, 6, 3, 3))
    m.quantized(m.op("Relu", m.op("Conv", x, w, pads=[1, 1, 1, 1])), 0.4)


def conv_padded(m):
    """Padding of an input without a zero-point, a bias of whole steps, strides and dilations."""
    x = m.scaled((1, 3, 11, 10), zero=77)
    w = m.weights_of((4, 3, 3, 3), channels=False)
    scale = numpy_helper.to_array(m.weights[-2]) * np.float32(0.05)
    b = m.op("DequantizeLinear", m.c([100, -2000, 3, 40], np.int32), m.c(scale))
    y = m.op("Conv", x, w, b, pads=[2, 1, 0, 2], strides=[2, 1], dilations=[1, 2])
    m.quantized(y, 0.3, 128)


def conv_signed(m):
    x = m.scaled((1, 4, 7, 7), np.int8, zero=-20)
    w = m.weights_of((6, 4, 1, 1))
    b = m.c(m.rng.normal(0, 1, 6))
    m.quantized(m.op("Clip", m.op("Conv", x, w, b), m.c(0.0), m.c(6.0)), 6 / 255, -128, np.int8)


def conv_depthwise(m):
    x = m.scaled((1, 20, 12, 12), zero=3)
    w = m.weights_of((20, 1, 3, 3))
    m.quantized(m.op("Conv", x, w, group=20, pads=[1, 1, 1, 1], strides=[2, 2]), 0.1, 120)


def conv_groups(m):
    x = m.scaled((2, 4, 9), np.int8)
    m.quantized(m.op("Conv", x, m.weights_of((6, 2, 3)), group=2), 0.1, 4, np.int8)


def conv_3d(m):
    x = m.scaled((1, 2, 4, 5, 6))
    m.quantized(m.op("Conv", x, m.weights_of((3, 2, 2, 2, 2)), pads=[1, 0, 0, 0, 1, 0]), 0.1, 99)


def conv_3d_zero(m):
    x = m.scaled((2, 4, 9, 8, 4), np.int8, zero=4)
    w = m.weights_of((4, 4, 3, 3, 3))
    m.quantized(m.op("Conv", x, w, pads=[0, 0, 0, 0, 1, 1]), 0.2, 7, np.int8)


def conv_asymmetric(m):
    x = m.scaled((1, 5, 8, 8))
    w = m.weights_of((4, 5, 3, 3), dtype=np.uint8, zero=None)
    m.quantized(m.op("Conv", x, w, pads=[1, 1, 1, 1]), 0.6, 110)


def conv_middle(m):
    x = m.scaled((1, 5, 8, 8))
    w = m.weights_of((4, 5, 3, 3), dtype=np.uint8, zero=128)
    m.quantized(m.op("Conv", x, w), 0.6, 110)


def conv_16(m):
    x = m.scaled((1, 8, 6, 6), np.int16, 0.001, 0)
    m.quantized(m.op("Conv", x, m.weights_of((4, 8, 3, 3)), pads=[1, 1, 1, 1]), 0.01, 0, np.int16)


def conv_residual(m):
    """The chain of a residual network: both sums are rounded, then added."""
    x = m.scaled((1, 8, 6, 6), zero=0)
    y = m.op("Conv", x, m.weights_of((8, 8, 3, 3)), pads=[1, 1, 1, 1])
    s, z = m.c(0.5), m.c(100, np.uint8)
    y = m.op("DequantizeLinear", m.op("QuantizeLinear", y, s, z), s, z)
    m.quantized(m.op("Relu", m.op("Add", y, x)), 0.3)


def conv_to_float(m):
    x = m.scaled((1, 5, 8, 8))
    y = m.op("Conv", x, m.weights_of((4, 5, 3, 3)), m.c(m.rng.normal(0, 1, 4)))
    m.output(m.op("Sigmoid", y))
    m.integer.append(m.case)


def mixed(m):
    """Weights in floats: the plan says that this one is left, and why."""
    x = m.scaled((1, 5, 8, 8))
    m.quantized(m.op("Conv", x, m.c(m.rng.normal(0, 0.3, (4, 5, 3, 3)))), 0.1, 128, integer=False)


def conv_chain(m):
    """Each written over what it reads, where the schedule of the kernel has read that before."""
    x = m.scaled((2, 70, 9, 7), zero=0)
    for i in range(4):
        depth = dict(group=70, pads=[1, 1, 1, 1]) if i % 2 == 0 else {}
        w = m.weights_of((70, 1, 3, 3) if depth else (70, 70, 1, 1))
        y = m.op("Relu", m.op("Conv", x, w, **depth))
        s, z = m.c([0.2, 1.5, 0.8, 2.5][i]), m.c([0, 9, 0, 3][i], np.uint8)
        x = m.op("DequantizeLinear", m.op("QuantizeLinear", y, s, z), s, z)
    m.quantized(m.op("Abs", x), 2.5, 3)


def conv_transpose(m):
    x = m.scaled((1, 4, 5, 6))
    w = m.weights_of((4, 3, 3, 3), axis=1)
    y = m.op("ConvTranspose", x, w, strides=[2, 1], pads=[1, 0, 0, 1], output_padding=[1, 0])
    m.quantized(y, 0.3, 128)


def conv_transpose_groups(m):
    x = m.scaled((2, 4, 5), np.int8)
    w = m.weights_of((4, 2, 3), channels=False)
    m.quantized(m.op("ConvTranspose", x, w, strides=[2], group=2), 0.1, 0, np.int8)


def conv_few(m):
    """Weights of 4 bits stay packed: of tiles, and of a window."""
    x = m.scaled((1, 7, 13, 12), zero=90)
    y = m.op("Relu", m.op("Conv", x, m.few((9, 7, 3, 3)), pads=[1, 1, 1, 1]))
    m.quantized(y, 2.0, 3)
    x = m.scaled((1, 40, 10, 9), np.int8, zero=-5)
    m.quantized(m.op("Conv", x, m.few((40, 1, 3, 3)), group=40, pads=[1, 1, 1, 1]), 0.5, 9, np.int8)


def conv_few_zeros(m):
    """And have zero-points: one for each channel, or the middle of all numbers."""
    x = m.scaled((1, 8, 13, 12), zero=90)
    m.quantized(m.op("Conv", x, m.few((6, 8, 3, 3), signed=False, zero="channels")), 3.0, 120)
    m.quantized(m.op("Conv", x, m.few((6, 8, 1, 1), signed=False, zero=8)), 1.0, 120)
    m.quantized(m.op("Conv", x, m.few((6, 4, 3, 3), zero="channels"), group=2, strides=[2, 1]), 2.0, 120)
    m.quantized(m.op("Conv", x, m.few((8, 1, 3, 3), signed=False, zero="channels"), group=8), 1.0, 120)


def conv_few_16(m):
    x = m.scaled((1, 8, 6, 6), np.int16, 0.001, 0)
    m.quantized(m.op("Conv", x, m.few((4, 8, 3, 3)), pads=[1, 1, 1, 1]), 0.05, 0, np.int16)


def floats_few(m):
    """Weights of few bits beside activations in floats."""
    x = m.input(m.rng.normal(0, 1, (1, 7, 13, 12)).astype(np.float32))
    m.output(m.op("Conv", x, m.few((9, 7, 3, 3), signed=False, zero="channels"), pads=[1, 1, 1, 1]))
    m.output(m.op("ConvTranspose", x, m.few((7, 5, 3, 3), axis=1)))


def conv_transpose_few(m):
    x = m.scaled((1, 4, 5, 6))
    y = m.op("ConvTranspose", x, m.few((4, 3, 3, 3), 1, False, "channels"), strides=[2, 1], pads=[1, 0, 0, 1])
    m.quantized(y, 2.0, 128)
    m.quantized(m.op("ConvTranspose", x, m.few((4, 2, 2, 2), 1), strides=[2, 2]), 0.5, 128)


def zeros_transposed(m):
    """A zero-point of the weights for each channel: in floats."""
    x = m.scaled((1, 4, 5, 6))
    w = m.weights_of((4, 3, 3, 3), axis=1, dtype=np.uint8, zero=None)
    m.quantized(m.op("ConvTranspose", x, w), 0.6, 128, integer=False)


def gemm_full(m):
    """A sum that fills 32 bits by itself, and a bias."""
    one = m.c(0.01)
    x = m.op("DequantizeLinear", m.input(np.full((1, 32768), 255, np.uint8)), one, m.c(0, np.uint8))
    w = m.op("DequantizeLinear", m.c(np.full((32768, 2), 255), np.uint8), one, m.c(0, np.uint8))
    m.quantized(m.op("Gemm", x, w, m.c([1e5, -1e5])), 4000.0)


def matmul(m):
    x = m.scaled((2, 7, 40), zero=131)
    y = m.op("MatMul", x, m.weights_of((40, 9), axis=1))
    m.quantized(m.op("Add", y, m.c(m.rng.normal(0, 3, 9))), 0.3, 128)


def matmul_turned(m):
    x = m.scaled((3, 40), np.int8)
    w = m.op("Transpose", m.weights_of((9, 40)), perm=[1, 0])
    m.quantized(m.op("MatMul", x, w), 0.3, 5, np.int8)


def matmul_activations(m):
    a, b = m.scaled((2, 3, 5, 8)), m.scaled((2, 3, 8, 6), np.int8)
    m.quantized(m.op("MatMul", a, b), 0.5, 100)


def matmul_deep(m):
    x = m.scaled((2, 40000), scale=0.01, zero=200)
    m.quantized(m.op("MatMul", x, m.weights_of((40000, 3), axis=1)), 4.0, 128)


def gemm(m):
    x = m.scaled((4, 33), zero=10)
    w = m.weights_of((7, 33))
    m.quantized(m.op("Gemm", x, w, m.c(m.rng.normal(0, 2, 7)), transB=1), 0.2, 128)


def gemm_16(m):
    x = m.scaled((4, 33), np.uint16, 0.0003, 30000)
    m.quantized(m.op("Gemm", x, m.weights_of((33, 7), axis=1)), 0.001, 30000, np.uint16)


def qlinear_conv(m):
    low = m.input(m.rng.integers(0, 256, (1, 3, 8, 8)).astype(np.uint8))
    w = m.c(m.rng.integers(-128, 128, (4, 3, 3, 3)), np.int8)
    b = m.c(m.rng.integers(-5000, 5000, 4), np.int32)
    y = m.op("QLinearConv", low, m.c(0.02), m.c(100, np.uint8), w, m.c([0.01, 0.02, 0.03, 0.04]),
             m.c([0, 0, 0, 0], np.int8), m.c(0.1), m.c(120, np.uint8), b, pads=[1, 1, 1, 1])
    m.output(y, 2)
    m.integer.append(m.case)


def qlinear_matmul(m):
    a = m.input(m.rng.integers(0, 256, (5, 12)).astype(np.uint8))
    b = m.c(m.rng.integers(-128, 128, (12, 6)), np.int8)
    y = m.op("QLinearMatMul", a, m.c(0.02), m.c(100, np.uint8), b, m.c(0.03), m.c(0, np.int8),
             m.c(0.05), m.c(120, np.uint8))
    m.output(y, 2)
    m.integer.append(m.case)


def dynamic(m):
    x = m.input(m.rng.normal(0, 1, (6, 30)).astype(np.float32))
    q, s, z = m.op("DynamicQuantizeLinear", x, outputs=3)
    w = m.c(m.rng.integers(0, 256, (30, 8)), np.uint8)
    y = m.op("MatMulInteger", q, w, z, m.c(128, np.uint8))
    y = m.op("Mul", m.op("Cast", y, to=1), m.op("Mul", s, m.c(0.02)))
    m.output(m.op("Add", y, m.c(m.rng.normal(0, 1, 8))))


def unsigned_bytes(m):
    a, b = (m.input(m.rng.integers(0, 256, (37, 37)).astype(np.uint8)) for _ in range(2))
    m.output(m.op("MatMulInteger", a, b), 6)


def conv_integer(m):
    x = m.input(m.rng.integers(0, 256, (1, 3, 8, 8)).astype(np.uint8))
    w = m.c(m.rng.integers(-128, 128, (4, 3, 3, 3)), np.int8)
    m.output(m.op("ConvInteger", x, w, m.c(9, np.uint8), pads=[1, 1, 1, 1]), 6)


# ---- cases: the others ----

def add(m):
    a, b = m.scaled((2, 3, 5)), m.scaled((3, 1), np.int8, 0.02)
    m.quantized(m.op("Add", a, b), 0.06, 100)


def sub_clip(m):
    a, b = m.scaled((2, 30)), m.scaled((2, 30), scale=0.07)
    m.quantized(m.op("Clip", m.op("Sub", a, b), m.c(-3.0), m.c(4.0)), 0.03, 110)


def add_16(m):
    a, b = m.scaled((50,), np.int16, 0.001), m.scaled((50,), np.int16, 0.002)
    m.quantized(m.op("Add", a, b), 0.003, 5, np.int16)


def mul(m):
    a, b = m.scaled((2, 30)), m.scaled((2, 30), np.int8)
    m.quantized(m.op("Mul", a, b), 0.3, 128)


def rescaled(m):
    m.quantized(m.scaled((2, 30), np.int8, 0.05), 0.03, 90)


def concat(m):
    a, b = m.scaled((1, 2, 4, 4), scale=0.05, zero=7), m.scaled((1, 3, 4, 4), scale=0.02)
    m.quantized(m.op("Concat", a, b, axis=1), 0.05, 7)


def movements(m):
    x = m.scaled((1, 8, 4, 6), zero=9)
    x = m.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = m.op("Transpose", x, perm=[0, 2, 3, 1])
    x = m.op("Reshape", x, m.c([1, 6, 8], np.int64))
    m.quantized(m.op("Slice", x, m.c([1], np.int64), m.c([4], np.int64), m.c([1], np.int64)), 0.05, 9)


def resize(m):
    x = m.scaled((1, 3, 4, 5), zero=9)
    y = m.op("Resize", x, "", m.c([1, 1, 2, 2]), mode="nearest")
    m.quantized(y, 0.05, 9)


def resize_fraction(m):
    """Places found in floats, of integers."""
    x = m.scaled((1, 2, 5, 5), zero=9)
    m.quantized(m.op("Resize", x, "", m.c([1, 1, 1.7, 2.3]), mode="nearest"), 0.05, 9)


def resize_linear(m):
    y = m.op("Resize", m.scaled((1, 3, 4, 5)), "", m.c([1, 1, 2, 2]), mode="linear")
    m.quantized(y, 0.05, 9)


def resize_cubic(m):
    x = m.scaled((1, 2, 5, 6), np.int8, 0.05, 3)
    y = m.op("Resize", x, "", "", m.c([1, 2, 9, 8], np.int64), mode="cubic", cubic_coeff_a=-0.5, exclude_outside=1,
             coordinate_transformation_mode="pytorch_half_pixel")
    m.quantized(y, 0.05, 3, np.int8)


def resize_corners(m):
    """To another scale, along three axes, with weights that are no whole parts."""
    x = m.scaled((1, 1, 4, 5, 6), np.int8, 0.05, -7)
    y = m.op("Resize", x, "", "", m.c([1, 1, 7, 11, 3], np.int64), mode="linear",
             coordinate_transformation_mode="align_corners")
    m.quantized(y, 0.043, 5)


def resize_shrinking(m):
    x = m.scaled((1, 2, 12, 9), zero=100)
    y = m.op("Resize", x, "", m.c([1, 1, 0.5, 0.4]), mode="linear", antialias=1)
    m.quantized(y, 0.05, 100)


def resize_axes(m):
    """Scales of the named axes alone, of which one stays; and many channels."""
    x = m.scaled((1, 3, 40, 40), zero=100)
    m.quantized(m.op("Resize", x, "", m.c([1.05, 1]), mode="linear", axes=[-2, 3]), 0.05, 100)
    m.quantized(m.op("Resize", m.scaled((1, 1700, 3, 2), zero=7), "", m.c([1, 1, 2, 2]), mode="linear"), 0.05, 7)


def resize_crop(m):
    """Looks outside, where there is another number."""
    x = m.scaled((1, 1, 6, 6), zero=9)
    y = m.op("Resize", x, m.c([0, 0, -0.2, 0.1, 1, 1, 0.8, 1.3]), "", m.c([1, 1, 4, 5], np.int64), mode="linear",
             coordinate_transformation_mode="tf_crop_and_resize", extrapolation_value=1.5)
    m.quantized(y, 0.05, 9)


def pools(m):
    m.others.append(m.case)
    x = m.scaled((1, 6, 9, 9), np.int8, zero=-5)
    y = m.op("AveragePool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    m.quantized(y, 0.05, -5, np.int8)
    m.quantized(m.op("GlobalAveragePool", x), 0.01, -5, np.int8)


def means(m):
    m.others.append(m.case)
    x = m.scaled((2, 5, 6, 7), zero=200)
    y = m.op("AveragePool", x, kernel_shape=[3, 2], strides=[2, 2], pads=[1, 0, 1, 1], count_include_pad=1)
    m.quantized(y, 0.04, 128)
    m.quantized(m.op("AveragePool", x, kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1), 0.04, 128)
    m.quantized(m.op("ReduceMean", x, m.c([2, 3], np.int64)), 0.04, 128)
    m.quantized(m.op("ReduceMean", x, m.c([-1], np.int64), keepdims=0), 0.04, 128)


def unary(m):
    m.others.append(m.case)
    x = m.scaled((3, 40), scale=0.04)
    for op, attributes in (("Sigmoid", {}), ("Tanh", {}), ("HardSwish", {}), ("Gelu", {}), ("LeakyRelu", {}),
                           ("Elu", {}), ("Exp", {}), ("Sqrt", {}), ("Softplus", {}), ("Abs", {})):
        y = m.op("Abs", x) if op == "Sqrt" else x
        m.quantized(m.op(op, y, **attributes), 0.02, 100)


def silu(m):
    """x * Sigmoid(x), rounded in between: a function of one byte, though of two steps."""
    m.others.append(m.case)
    for dtype in (np.uint8, np.int8):
        x = m.scaled((2, 5, 9, 11), dtype, scale=0.04)
        s, z = m.c(1 / 256), m.c(RANGES[dtype][0], dtype)
        y = m.op("QuantizeLinear", m.op("Sigmoid", x), s, z)
        m.quantized(m.op("Mul", x, m.op("DequantizeLinear", y, s, z)), 0.03, 10, dtype)


def rows(m):
    x = m.scaled((3, 40), scale=0.04)
    m.quantized(m.op("Softmax", x, axis=-1), 1 / 256)


def layer_norm(m):
    x = m.scaled((3, 40), scale=0.04)
    m.quantized(m.op("LayerNormalization", x, m.c(np.ones(40)), m.c(np.zeros(40))), 0.03, 120)
    x = m.scaled((2, 5, 6, 8), np.int8, scale=0.003)  # epsilon is a large part, rows are of two axes
    scale, bias = m.rng.normal(1, 0.5, (6, 8)), m.rng.normal(0, 1, (6, 8))
    y = m.op("LayerNormalization", x, m.c(scale), m.c(bias), axis=2, epsilon=0.01)
    m.quantized(y, 0.05, -5, np.int8)
    x = m.input(np.full((2, 1000), 9, np.uint8))  # rows of one number
    x = m.op("DequantizeLinear", x, m.c(0.04), m.c(128, np.uint8))
    m.quantized(m.op("LayerNormalization", x, m.c(np.full(1000, 2.0))), 0.05, 7)


def columns_norm(m):
    x = m.scaled((2, 4, 4), np.int8, 0.04)
    scale = m.c(np.arange(1, 5).reshape(4, 1))  # along the first axis of a row
    m.quantized(m.op("LayerNormalization", x, scale, axis=1), 0.05, 3, np.int8)


def mean_of_norm(m):
    x = m.scaled((4, 30), np.int8, 0.04)
    _, mean = m.op("LayerNormalization", x, m.c(np.ones(30)), outputs=2)
    m.quantized(mean, 0.01, 3, np.int8)


def pads(m):
    """The value of a Pad is an integer: of x, or where that has none of the result."""
    x = m.scaled((2, 3, 5, 6), zero=9)
    sizes = m.c([0, 0, 1, 2, 0, 0, 2, 1], np.int64)
    w = m.weights_of((4, 3, 3, 3))
    m.quantized(m.op("Conv", m.op("Pad", x, sizes), w), 0.4, 100)
    m.quantized(m.op("Pad", x, sizes, m.c(-0.33)), 0.07, 20)
    m.quantized(m.op("Pad", x, sizes, mode="reflect"), 0.05, 9)


def parts(m):
    x = m.scaled((2, 6, 4), np.int8, zero=-3)
    a, b = m.op("Split", x, m.c([2, 4], np.int64), outputs=2, axis=1)
    m.quantized(m.op("Relu", a), 0.04, -128, np.int8)
    m.quantized(m.op("Tile", b, m.c([1, 2, 1], np.int64)), 0.05, -3, np.int8)


def extremes(m):
    x, z = m.scaled((2, 3, 5, 4), zero=9), m.scaled((2, 3, 5, 4), np.int8, 0.08, -30)
    m.quantized(m.op("Max", x, z), 0.07, 40)
    m.quantized(m.op("Min", x, m.c(m.rng.normal(0, 3, (3, 1, 1)))), 0.05, 9)
    m.quantized(m.op("Max", x, m.c(1.5)), 0.05, 9)
    m.quantized(m.op("GlobalMaxPool", x), 0.05, 9)
    m.quantized(m.op("ReduceMax", z, m.c([1, 3], np.int64), keepdims=0), 0.08, -30, np.int8)
    m.quantized(m.op("ReduceMin", z, m.c([-1], np.int64)), 0.09, -20, np.int8)
    m.output(m.op("ArgMax", m.scaled((3, 40)), axis=1, keepdims=0), 7)
    m.output(m.op("ArgMin", z, axis=1, select_last_index=1), 7)


def where(m):
    choice = m.input(m.rng.integers(0, 2, (2, 1, 6)).astype(bool))
    x, z = m.scaled((2, 4, 6), zero=9), m.scaled((4, 1), np.int8, 0.08, -30)
    m.quantized(m.op("Where", choice, x, z), 0.07, 40)
    m.quantized(m.op("Where", choice, m.c(-1.0), x), 0.05, 20)


def scaled_channels(m):
    """Numbers of each channel, as a BatchNormalization that follows no convolution has."""
    x = m.scaled((2, 3, 5, 4), np.int8, zero=9)
    of = [m.c(m.rng.uniform(0.5, 2, 3)) for _ in range(4)]
    m.quantized(m.op("Relu", m.op("BatchNormalization", x, *of)), 0.043, -128, np.int8)
    factor, offset = m.c(m.rng.normal(0, 1, (3, 1, 1))), m.c(m.rng.normal(0, 1, (1, 3, 1, 1)))
    m.quantized(m.op("Sub", offset, m.op("Mul", x, factor)), 0.047, 3, np.int8)
    m.quantized(m.op("Clip", m.op("Neg", m.op("Div", x, factor)), m.c(-2.0), m.c(3.0)), 0.031, 100)
    m.quantized(m.op("Mul", x, m.scaled((3, 1, 1), np.int8, 0.02, 5, constant=True)), 0.033, 0, np.int8)


def channels(m):
    """A scale for each channel of an activation: elementwise, in floats."""
    values = m.rng.integers(0, 256, (2, 3, 8)).astype(np.uint8)
    x = m.op("DequantizeLinear", m.input(values), m.c([0.01, 0.02, 0.03]), m.c([1, 2, 3], np.uint8), axis=1)
    y = m.op("QuantizeLinear", m.op("Relu", x), m.c([0.03, 0.02, 0.01]), m.c([3, 2, 1], np.uint8), axis=1)
    m.output(y, 2)


CASES = [conv, conv_padded, conv_signed, conv_depthwise, conv_groups, conv_3d, conv_3d_zero, conv_asymmetric,
         conv_middle, conv_16, conv_residual, conv_chain, conv_to_float, mixed, conv_transpose,
         conv_transpose_groups, zeros_transposed, gemm_full,
         matmul, matmul_turned, matmul_activations, matmul_deep, gemm, gemm_16, qlinear_conv,
         qlinear_matmul, dynamic, unsigned_bytes, conv_integer, add, sub_clip, add_16, mul, rescaled, concat,
         movements, resize, resize_fraction, resize_linear, resize_cubic,
         resize_corners, resize_shrinking, resize_axes, resize_crop, pads, parts, extremes, where, pools, means, unary, silu, rows,
         layer_norm, columns_norm, mean_of_norm, scaled_channels, channels, conv_few, conv_few_zeros, conv_few_16, floats_few,
         conv_transpose_few]


def evaluate(path, feeds):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(path, options).run(None, feeds)


# With --no-float: refused, since something is left in floats.
FLOATS = {conv_to_float, floats_few, zeros_transposed, mixed, dynamic, resize_crop, columns_norm, mean_of_norm,
          channels}


def check_refused(ullage, folder):
    """Each by itself ends with exit 3 and the name of what is left."""
    faults = []
    for case in CASES:
        if case not in FLOATS:
            continue
        model = Model()
        model.case = case.__name__
        case(model)
        path = os.path.join(folder, "refused.onnx")
        onnx.save(model.build(), path)
        done = subprocess.run([ullage, "plan", path, "--target", "c", "--no-float"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        if done.returncode != 3 or case.__name__ not in done.stderr or "--no-float" not in done.stderr:
            faults.append(f"{case.__name__}: exit {done.returncode}, {done.stderr.strip()}")
    return faults


def check_plan(ullage, path, folder, model, arguments):
    """The plan says what weights are, and which product is left in floats and why."""
    saved = os.path.join(folder, "plan.json")
    subprocess.run([ullage, "plan", path, "--advice", "off", "--json", saved, *arguments], check=True,
                   stdout=subprocess.DEVNULL)
    with open(saved) as file:
        plan = json.load(file)
    faults = [] if plan["weights_by_type"]["i8"] > 0 else ["plan.json: no weights are i8"]
    has_mixed = any(output.name.startswith("mixed") for output in model.outputs)
    left = [(f["node"], f["why"]) for f in plan.get("in_floats", [])]
    if has_mixed and not any(node.startswith("mixed") and "second operand" in why for node, why in left):
        faults.append(f"plan.json: mixed is not named: {left}")
    return faults + [f"{node} is left in floats" for node, _ in left if not node.startswith(("mixed", "zeros_transposed", "floats_few"))]


def check_object(ullage, path, folder):
    """The library compiles where floats are refused altogether."""
    if platform.machine() != "x86_64":
        return []
    emitted = os.path.join(folder, "emitted")
    subprocess.run([ullage, "compile", path, "--target", "c", "--no-float", "--emit", emitted],
                   check=True, stdout=subprocess.DEVNULL)
    done = subprocess.run(["gcc", "-O2", "-std=c99", "-mgeneral-regs-only", "-c", "model.c"],
                          cwd=emitted, stderr=subprocess.PIPE, text=True)
    return [f"model.c holds floats: {done.stderr}"] if done.returncode != 0 else []


def run(ullage, path, folder, feeds, arguments):
    program = os.path.join(folder, "program")
    subprocess.run([ullage, "compile", path, "-o", program, *arguments], check=True,
                   stdout=subprocess.DEVNULL)
    inputs = os.path.join(folder, "inputs.npz")
    np.savez(inputs, **feeds)
    out = os.path.join(folder, "out")
    command = [program, "--output-dir", out]
    for name, values in feeds.items():
        np.save(os.path.join(folder, f"{name}.npy"), values)
        command += ["--input", f"{name}={os.path.join(folder, name)}.npy"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return {f[:-4]: np.load(os.path.join(out, f)) for f in os.listdir(out) if f.endswith(".npy")}


def compare(name, got, want, share):
    """The defect, or None; `share`: of the integers, may be a step away."""
    if got.dtype != want.dtype or got.shape != want.shape:
        return f"{name}: {got.dtype}{got.shape}, not {want.dtype}{want.shape}"
    if got.dtype in (np.int32, np.int64):
        return None if np.array_equal(got, want) else f"{name}: sums or indices differ"
    if got.dtype == np.float32:
        far = np.abs(got - want) > 1e-5 * np.abs(want).max() + 1e-5 * np.abs(want)
        return f"{name}: {far.sum()} of {far.size} numbers differ" if far.any() else None
    steps = np.abs(got.astype(np.int64) - want.astype(np.int64))
    if steps.max() > 1:
        return f"{name}: {steps.max()} steps away, {np.count_nonzero(steps)} of {steps.size} elements"
    if np.count_nonzero(steps) > max(3, steps.size * share):
        return f"{name}: {np.count_nonzero(steps)} of {steps.size} elements are a step away"
    return None


def left_in_floats(ullage, path, model, arguments):
    """Cases of which pass integers left a product, a function of one byte or a mean, and must not."""
    text = subprocess.run([ullage, "plan", path, "--stop-after", "no_float", *arguments], check=True,
                          stdout=subprocess.PIPE, text=True).stdout
    products = (" Conv n", " ConvTranspose n", " MatMul n", " Gemm n", " QLinearConv n",
                " QLinearMatMul n")
    functions = (" Sigmoid n", " Tanh n", " HardSwish n", " Gelu n", " LeakyRelu n", " Elu n", " Exp n",
                 " Sqrt n", " Softplus n", " Abs n", " AveragePool n", " GlobalAveragePool n",
                 " ReduceMean n")
    found = []
    for cases, operators in ((model.integer, products), (model.others, functions)):
        lines = [line for line in text.splitlines() if any(o in line for o in operators)]
        found += [case for case in cases if any(f'"{case}_' in line for line in lines)]
    return found


def main():
    from saturation import skip_where_sums_saturate

    skip_where_sums_saturate("integers.py")
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("ullage")
    parser.add_argument("--target", default="c")
    parser.add_argument("--march")
    parser.add_argument("--no-float", action="store_true")
    parser.add_argument("--keep", help="a folder for the model and its outputs")
    parser.add_argument("cases", nargs="*")
    arguments = parser.parse_args()
    model = Model()
    for case in CASES:
        if arguments.no_float and case in FLOATS:
            continue
        if not arguments.cases or case.__name__ in arguments.cases:
            model.case = case.__name__
            case(model)
    options = ["--target", arguments.target]
    if arguments.march:
        options += ["--march", arguments.march]
    if arguments.no_float:
        options.append("--no-float")
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or temporary
        os.makedirs(folder, exist_ok=True)
        path = os.path.join(folder, "integers.onnx")
        proto = model.build()
        onnx.save(proto, path)
        wanted = evaluate(path, model.feeds)
        got = run(arguments.ullage, path, folder, model.feeds, options)
        plain = run(arguments.ullage, path, folder, model.feeds, options + ["--pack", "none"])
        faults = []
        steps = total = 0
        share = 0.06 if arguments.no_float else 0.05  # a mean of six lies in the middle of two once in six times
        for output, want in zip(model.outputs, wanted):
            faults.append(compare(output.name, got[output.name], want, share))
            if got[output.name].tobytes() != plain[output.name].tobytes():
                faults.append(f"{output.name}: other bits without reuse of memory")
            if want.dtype != np.float32:
                steps += np.count_nonzero(got[output.name] != want)
                total += want.size
        faults = [fault for fault in faults if fault]
        faults += [f"{case}: left in floats"
                   for case in left_in_floats(arguments.ullage, path, model, options[:2])]
        if not arguments.cases:
            faults += check_plan(arguments.ullage, path, folder, model, options)
        if arguments.no_float:
            faults += check_refused(arguments.ullage, folder)
            faults += check_object(arguments.ullage, path, folder)
    for fault in faults:
        print(f"FAIL {fault}")
    print(f"{len(model.outputs)} outputs, {len(faults)} faults; {steps} of {total} integers are a step away")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
