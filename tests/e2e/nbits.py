#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Weights of 2 to 8 bits: products, tables and other constants against numpy, and against onnxruntime where it has them.

    nbits.py ULLAGE [--target c] [--count 12] [--seed 1]

Random shapes, block sizes, kinds of zero points, biases and group indexes; each program gives what
the unpacked weights give, to rounding, and with --pack none, its weights read-only data, the same bits. Where accuracy_level is 4
and the plan says int8, that is so of the input rounded to bytes, a scale for each block.
Exit: 0 ok, 1 outputs differ or a command failed, 77 a Python package is missing.
"""

import argparse
import collections
import itertools
import json
import os
import subprocess
import sys
import tempfile

try:
    import ml_dtypes
    import numpy
    import onnx
    from onnx import TensorProto, helper
except ImportError as error:
    print(f"nbits.py: skipped: {error}")
    sys.exit(77)
try:
    import onnxruntime
except ImportError:
    onnxruntime = None

NEAR = 3e-6  # of the sum of the products' sizes: sums are in another order
PEER = 1e-2  # it may round the input to 8 bits
STORED = 1.4  # bytes of weights in the buffer, of those in the model: the last block may be cut there
INT8 = "ullage nbits int8"


# `rounded` is wanted where a plan says int8; None: none may.
Case = collections.namedtuple("Case", "model input want size text rounded", defaults=[None])


def pack(values, bits):
    """Along the last axis, the first in the lowest bits, from a byte on."""
    planes = (values[..., None] >> numpy.arange(bits)) & 1
    flat = planes.reshape(*values.shape[:-1], -1).astype("u1")
    return numpy.packbits(flat, axis=-1, bitorder="little")


def tensor(name, array):
    return onnx.numpy_helper.from_array(numpy.ascontiguousarray(array), name)


def round_rows(a, block):
    """As onnxruntime rounds them where accuracy_level is 4."""
    k = a.shape[-1]
    rows = numpy.zeros((*a.shape[:-1], -(-k // block) * block), "f4")
    rows[..., :k] = a
    blocks = rows.reshape(*a.shape[:-1], -1, block)
    most = numpy.abs(blocks).max(-1, keepdims=True)
    factor = numpy.divide(numpy.float32(127), most, out=numpy.zeros_like(most), where=most > 0)
    scales = most / numpy.float32(127)
    return (numpy.rint(blocks * factor).astype("f8") * scales).reshape(rows.shape)[..., :k]


def product(rng):
    """A MatMulNBits: the model, its input, the weights as floats, and the bias."""
    bits = int(rng.choice([2, 3, 4, 4, 4, 5, 6, 7, 8]))
    level = int(rng.choice([0, 1, 4, 4]))
    block = int(rng.choice([16, 32, 64, 128]))
    k, n = int(rng.integers(1, 300)), int(rng.integers(1, 90))
    if rng.random() < 0.5:
        k, n = -(-k // block) * block, -(-n // 16) * 16
    lead = [int(rng.integers(1, 20)) for _ in range(int(rng.integers(0, 3)))]
    blocks = -(-k // block)
    codes = rng.integers(0, 1 << bits, (n, blocks * block))
    codes[:, k:] = 0
    scales = rng.uniform(0.01, 0.1, (n, blocks)).astype("f4")
    kind = str(rng.choice(["none", "packed", "float"]))
    zeros = numpy.full((n, blocks), 1 << (bits - 1), "f4")
    flat = bool(rng.integers(0, 2))
    weights = [tensor("b", pack(codes.reshape(n, blocks, block), bits)),
               tensor("s", scales.reshape(-1) if flat else scales)]
    names = ["a", "b", "s", "", "", ""]
    if kind == "packed":
        points = rng.integers(0, 1 << bits, (n, blocks))
        zeros = points.astype("f4")
        packed = pack(points, bits)
        weights.append(tensor("z", packed.reshape(-1) if flat else packed))
        names[3] = "z"
    elif kind == "float":
        zeros = rng.uniform(0, 1 << bits, (n, blocks)).astype("f4")
        weights.append(tensor("z", zeros.reshape(-1) if flat else zeros))
        names[3] = "z"
    groups = numpy.arange(k, dtype="i4") // block
    if rng.random() < 0.2:
        groups = rng.integers(0, blocks, k).astype("i4")
        weights.append(tensor("g", groups))
        names[4] = "g"
    bias = numpy.zeros(n, "f4")
    if rng.random() < 0.5:
        bias = rng.normal(0, 1, n).astype("f4")
        weights.append(tensor("bias", bias))
        names[5] = "bias"
    node = helper.make_node("MatMulNBits", names, ["y"], domain="com.microsoft", K=k, N=n, bits=bits, block_size=block,
                            accuracy_level=level)  # fmt: skip
    return finish(rng, [node], weights, [*lead, k], [*lead, n], (codes[:, :k] - zeros[:, groups]) * scales[:, groups], bias,
                  f"{bits} bits, blocks of {block}, {kind} zeros, level {level}, {lead}x{k}x{n}", block if level == 4 else None)  # fmt: skip


def finish(rng, nodes, weights, a_shape, y_shape, matrix, bias, text, block=None):
    """With a map after it half of the time; block: of rows that may be rounded."""
    model, last = behind(rng, nodes, weights, TensorProto.FLOAT, a_shape, y_shape)
    a = rng.normal(0, 1, a_shape).astype("f4")
    want = a.astype("f8") @ matrix.astype("f8").T + bias
    size = numpy.abs(a) @ numpy.abs(matrix).T + numpy.abs(bias)
    rounded = None
    if block is not None:
        rounded = round_rows(a, block) @ matrix.astype("f8").T + bias
        rounded = numpy.maximum(rounded, 0) if last == "r" else rounded
    return Case(model, a, numpy.maximum(want, 0) if last == "r" else want, size, text, rounded)


def behind(rng, nodes, weights, dtype, a_shape, y_shape):
    last = "y"
    if rng is not None and rng.random() < 0.5:
        nodes.append(helper.make_node("Relu", ["y"], ["r"]))
        last = "r"
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("a", dtype, a_shape)],
                              [helper.make_tensor_value_info(last, TensorProto.FLOAT, y_shape)], weights)  # fmt: skip
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), last


# name -> (number in TensorProto.DataType, bits of an element, its type in ml_dtypes or numpy)
TYPES = {"u2": (25, 2, "uint2"), "i2": (26, 2, "int2"), "u4": (21, 4, "uint4"), "i4": (22, 4, "int4"),
         "u8": (2, 8, "uint8"), "i8": (3, 8, "int8"), "f4e2m1": (23, 4, "float4_e2m1fn"),
         "f8e4m3fn": (17, 8, "float8_e4m3fn"), "f8e4m3fnuz": (18, 8, "float8_e4m3fnuz"),
         "f8e5m2": (19, 8, "float8_e5m2"), "f8e5m2fnuz": (20, 8, "float8_e5m2fnuz")}  # fmt: skip


def random_codes(rng, kind, shape):
    """Random elements of a type but for what is no finite number: a tensor of it, as a function of
    its name, and the numbers."""
    dtype, bits, name = TYPES[kind]
    every = numpy.arange(1 << bits, dtype="u1").view(getattr(ml_dtypes, name, name)).astype("f4")
    codes = rng.choice(numpy.flatnonzero(numpy.isfinite(every)), shape)
    raw = pack(codes.reshape(-1), bits).tobytes()
    return lambda name: TensorProto(name=name, data_type=dtype, dims=shape, raw_data=raw), every[codes]


SCALES = {"f32": (TensorProto.FLOAT, "f4"), "f16": (TensorProto.FLOAT16, "f2"), "bf16": (TensorProto.BFLOAT16, ml_dtypes.bfloat16)}


def dequantized(rng, shape, axis, block, kinds=TYPES, floats="f32", name=""):
    """A constant after a DequantizeLinear: nodes that make `m`, weights, its floats."""
    kind = str(rng.choice(list(kinds)))
    if block:
        scale_shape = [-(-d // block) if i == axis else d for i, d in enumerate(shape)]
    else:
        scale_shape = [] if axis is None else [shape[axis]]
    make, codes = random_codes(rng, kind, shape)
    scales = rng.uniform(0.01, 0.1, scale_shape).astype("f4").astype(SCALES[floats][1])
    make_zeros, zeros = random_codes(rng, kind, scale_shape)
    weights = [make(f"w{name}"),
               TensorProto(name=f"s{name}", data_type=SCALES[floats][0], dims=scale_shape, raw_data=scales.tobytes())]  # fmt: skip
    scales = scales.astype("f4")
    names = [f"w{name}", f"s{name}"]
    if rng.random() < 0.5:
        if "f" in kind:  # ONNX has no others of floats
            data_type, bits, _ = TYPES[kind]
            make_zeros = lambda of: TensorProto(name=of, data_type=data_type, dims=scale_shape, raw_data=bytes(-(-zeros.size * bits // 8)))
        weights.append(make_zeros(f"z{name}"))
        names.append(f"z{name}")
    if len(names) == 2 or "f" in kind:
        zeros = zeros * 0
    options = {"block_size": block} if block else {}
    node = helper.make_node("DequantizeLinear", names, [f"m{name}"], axis=axis or 0, **options)
    def spread(x):
        if block:
            return numpy.take(numpy.repeat(x, block, axis), range(shape[axis]), axis)
        return x if axis is None else x.reshape([-1 if i == axis else 1 for i in range(len(shape))])
    matrix = ((codes - spread(zeros)) * spread(scales)).astype("f4")
    return [node], weights, matrix, f"{kind} {'blocks of %d' % block if block else 'whole'} along {axis}, {len(names) - 2} zeros"


CASTS = {"f16": (TensorProto.FLOAT16, "f2"), "bf16": (TensorProto.BFLOAT16, ml_dtypes.bfloat16),
         "i8": (TensorProto.INT8, "i1"), "u8": (TensorProto.UINT8, "u1"),
         "f8e4m3fn": (TensorProto.FLOAT8E4M3FN, ml_dtypes.float8_e4m3fn), "f8e5m2": (TensorProto.FLOAT8E5M2, ml_dtypes.float8_e5m2)}  # fmt: skip


def cast(rng, kind, shape, axis, name):
    """A constant after a Cast, and after a Mul by a scale for each index of an axis, or for all where
    that is -1; None: there is no Mul. As `dequantized` has it."""
    dtype, numbers = CASTS[kind]
    if kind[0] in "iu":
        codes = rng.integers(-128 if kind == "i8" else 0, 128, shape).astype(numbers)
    else:
        codes = rng.normal(0, 1, shape).astype("f4").astype(numbers)
    weights = [TensorProto(name=f"w{name}", data_type=dtype, dims=shape, raw_data=codes.tobytes())]
    nodes = [helper.make_node("Cast", [f"w{name}"], [f"m{name}"], to=TensorProto.FLOAT)]
    floats = codes.astype("f4")
    if axis is not None:
        scales = rng.uniform(0.01, 0.1, [shape[d] if d == axis else 1 for d in range(len(shape))] if axis >= 0 else []).astype("f4")
        nodes[0].output[0] = f"v{name}"
        factors = [f"v{name}", f"s{name}"] if rng.random() < 0.5 else [f"s{name}", f"v{name}"]
        nodes.append(helper.make_node("Mul", factors, [f"m{name}"]))
        weights.append(tensor(f"s{name}", scales))
        floats *= scales
    return nodes, weights, floats, f"Cast of {kind}, scales along {axis}"


def behind_product(rng):
    """MatMul, Gemm, or either with a Transpose in between."""
    k, n = int(rng.integers(40, 300)), int(rng.integers(40, 90))
    if rng.random() < 0.6:
        k, n = -(-k // 32) * 32, -(-n // 16) * 16
    rows = int(rng.integers(1, 20))
    turned = bool(rng.integers(0, 2))
    block = int(rng.choice([0, 16, 32]))
    axis = (1 if turned else 0) if block else [None, 0 if turned else 1][int(rng.integers(0, 2))]
    nodes, weights, floats, text = dequantized(rng, [n, k] if turned else [k, n], axis, block)
    bias, names, kind = numpy.zeros(n, "f4"), ["a", "m"], "MatMul"
    if rng.random() < 0.5:
        kind = "Gemm"
        if rng.random() < 0.5:
            bias = rng.normal(0, 1, n).astype("f4")
            weights.append(tensor("bias", bias))
            names.append("bias")
        nodes.append(helper.make_node("Gemm", names, ["y"], transB=int(turned)))
    else:
        if turned:
            nodes.append(helper.make_node("Transpose", ["m"], ["t"], perm=[1, 0]))
            names[1] = "t"
        nodes.append(helper.make_node("MatMul", names, ["y"]))
    case = finish(rng, nodes, weights, [rows, k], [rows, n], floats if turned else floats.T, bias, f"{kind}, {text}, {rows}x{k}x{n}")
    return case


def behind_others(rng):
    """Scales for each of k or for blocks along n; weights in front; several matrices; a whole Gemm."""
    k, n, rows = 8 * int(rng.integers(12, 24)), 8 * int(rng.integers(5, 12)), int(rng.integers(1, 9))
    way = str(rng.choice(["rows", "left", "matrices", "gemm"]))
    turned, block = bool(rng.integers(0, 2)), int(rng.choice([0, 16, 32]))
    shape, k_axis = ([n, k], 1) if turned else ([k, n], 0)
    axis = [0, 1, None][int(rng.integers(0, 2 if block else 3))]
    a_shape, y_shape, count = [rows, k], [rows, n], 0
    if way == "rows":
        axis = k_axis if block == 0 else 1 - k_axis
    elif way == "matrices":
        count = int(rng.integers(1, 4))
        shape, axis = [count, *shape], None if axis is None else axis + 1
        if block == 0 and rng.random() < 0.3:
            axis = 0
        a_shape = [[rows, k], [count, rows, k], [2, 1, rows, k], [2, count, rows, k]][int(rng.integers(0, 4))]
        y_shape = [*a_shape[:-3], count, rows, n]
    elif way == "left":
        a_shape = [[k], [k, rows], [3, k, rows]][int(rng.integers(0, 3))]
        y_shape = [*a_shape[:-2], n, *a_shape[-1:]] if len(a_shape) > 1 else [n]
    nodes, weights, floats, text = dequantized(rng, shape, axis, block)
    matrix = numpy.swapaxes(floats, -1, -2) if turned else floats  # [.., k, n]
    swapped = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
    if way != "gemm" and turned != (way == "left"):
        nodes.append(helper.make_node("Transpose", ["m"], ["t"], perm=swapped))
    m = nodes[-1].output[0]
    a = rng.normal(0, 1, a_shape).astype("f4")
    if way == "left":
        nodes.append(helper.make_node("MatMul", [m, "a"], ["y"]))
        want, size = (x(matrix.T.astype("f8")) @ x(a) for x in (lambda v: v, numpy.abs))
    elif way == "gemm":
        alpha, beta = 0.5, 1.5
        c = rng.normal(0, 1, [[n], [rows, n], [rows, 1], [1]][int(rng.integers(0, 4))]).astype("f4")
        a = numpy.ascontiguousarray(a.T)
        weights.append(tensor("c", c))
        nodes.append(helper.make_node("Gemm", ["a", m, "c"], ["y"], transA=1, transB=int(turned), alpha=alpha, beta=beta))
        want, size = (x(a.T.astype("f8")) @ x(matrix) * alpha + x(c) * beta for x in (lambda v: v, numpy.abs))
    else:
        nodes.append(helper.make_node("MatMul", ["a", m], ["y"]))
        want, size = (x(a.astype("f8")) @ x(matrix) for x in (lambda v: v, numpy.abs))
    model, last = behind(rng, nodes, weights, TensorProto.FLOAT, list(a.shape), y_shape)
    want = numpy.maximum(want, 0) if last == "r" else want
    return Case(model, a, want, size, f"{way}, {text}, {a.shape} by {shape}{', turned' if turned else ''}")


def rows_of(rng):
    """Gather of a dequantized table, or GatherBlockQuantized."""
    rows, width = int(rng.integers(60, 200)), 2 * int(rng.integers(20, 100))
    count = int(rng.integers(1, 9))
    if rng.random() < 0.5:
        block = int(rng.choice([0, 16, 32]))
        axis = int(rng.integers(0, 2)) if block else [0, 1, None][int(rng.integers(0, 3))]
        nodes, weights, floats, text = dequantized(rng, [rows, width], axis, block)
        nodes.append(helper.make_node("Gather", ["m", "a"], ["y"], axis=0))
    else:
        bits, block = int(rng.choice([2, 4, 8])), int(rng.choice([16, 32]))
        width = -(-width // 4) * 4
        blocks = -(-width // block)
        codes = rng.integers(0, 1 << bits, (rows, width))
        scales = rng.uniform(0.01, 0.1, (rows, blocks)).astype("f4")
        zeros = numpy.full((rows, blocks), 1 << (bits - 1))
        names, weights = ["w", "a", "s"], [tensor("w", pack(codes, bits)), tensor("s", scales)]
        if rng.random() < 0.5:
            zeros = rng.integers(0, 1 << bits, (rows, blocks))
            weights.append(tensor("z", pack(zeros, bits)))
            names.append("z")
        nodes = [helper.make_node("GatherBlockQuantized", names, ["y"], domain="com.microsoft",
                                  gather_axis=0, quantize_axis=1, bits=bits, block_size=block)]  # fmt: skip
        floats = ((codes - numpy.repeat(zeros, block, 1)[:, :width]) * numpy.repeat(scales, block, 1)[:, :width]).astype("f4")
        text = f"GatherBlockQuantized, {bits} bits, blocks of {block}, {len(names) - 3} zeros"
    model, last = behind(rng, nodes, weights, TensorProto.INT64, [count], [count, width])
    a = rng.integers(-rows, rows, count)
    want = floats[a]
    return Case(model, a, numpy.maximum(want, 0) if last == "r" else want, numpy.abs(want), f"{text}, {rows}x{width}")


# Where a constant stands in a product: its shape, the axis and the length of its blocks (0: a scale
# for each index of the axis; axis None: for all), the type of its scales, and what is around it.
PRODUCT_FORMS = [
    ((256, 96), 0, 32, "f32", {}), ((256, 96), 1, 32, "f32", {}), ((256, 96), 0, 0, "f32", {}), ((256, 96), 1, 0, "f32", {}),
    ((256, 96), None, 0, "f32", {}), ((256, 96), 0, 24, "f32", {}), ((250, 96), 0, 32, "f32", {}), ((256, 90), 1, 32, "f16", {"cast": True}),
    ((256, 96), 0, 32, "f16", {"cast": True}), ((256, 96), 1, 32, "bf16", {"cast": True}),
    ((96, 256), 1, 32, "bf16", {"cast": True, "turned": True}), ((96, 256), 0, 32, "f32", {"turned": True}),
    ((256, 96), 0, 32, "f32", {"left": True}), ((96, 256), 1, 32, "f32", {"left": True}), ((96, 256), 0, 0, "f32", {"left": True}),
    ((3, 96, 256), 2, 32, "f32", {"left": True}),
    ((256, 96), 0, 32, "f32", {"gemm": {}}), ((96, 256), 1, 32, "f32", {"gemm": {"transB": 1}}),
    ((256, 96), 0, 32, "f32", {"gemm": {"alpha": 0.5, "beta": 2.0}, "bias": (96,)}),
    ((256, 96), 1, 32, "f32", {"gemm": {"transA": 1, "beta": 0.25}, "bias": (5, 1)}),
    ((256, 96), 0, 32, "f32", {"gemm": {}, "bias": (1, 96)}), ((256, 96), 0, 0, "f32", {"gemm": {}, "bias": (5, 96)}),
    ((4, 256, 96), 1, 32, "f32", {"a": (4, 5, 256)}), ((4, 256, 96), 2, 32, "f32", {"a": (5, 256)}),
    ((4, 256, 96), 0, 0, "f32", {"a": (2, 4, 5, 256)}), ((4, 96, 256), 2, 16, "f32", {"a": (2, 1, 5, 256), "turned": True}),
    ((2, 1, 3, 256, 96), 3, 32, "f16", {"a": (2, 4, 1, 5, 256), "cast": True}), ((4, 256, 96), None, 0, "f32", {"a": (4, 1, 256)}),
    ((1, 256, 96), 1, 64, "f32", {"a": (3, 5, 256)}), ((256, 96), 0, 32, "f32", {"a": (256,)}),
    ((256, 96), None, 0, "f16", {"stored": True}), ((255, 96), None, 0, "bf16", {"stored": True, "a": (1, 255)}),
    ((96, 256), None, 0, "f16", {"stored": True, "turned": True}), ((96, 255), None, 0, "bf16", {"stored": True, "turned": True, "a": (1, 255)}),
    ((96, 256), None, 0, "f16", {"stored": True, "gemm": {"transB": 1}, "bias": (96,)}),
    ((256, 90), None, 0, "f16", {"stored": True}), ((90, 256), None, 0, "bf16", {"stored": True, "turned": True, "a": (3, 256)}),
    ((256, 96), 1, 0, "f16", {"stored": True}), ((256, 96), -1, 0, "bf16", {"stored": True, "gemm": {"alpha": 0.5}, "a": (70, 256)}),
    ((4, 256, 96), None, 0, "f16", {"stored": True, "a": (4, 5, 256)}),
    ((3, 96, 256), 1, 0, "bf16", {"stored": True, "turned": True, "a": (2, 1, 1, 256)}),
    ((256, 96), 1, 0, "i8", {"stored": True}), ((96, 256), 0, 0, "i8", {"stored": True, "turned": True, "a": (1, 256)}),
    ((96, 256), 0, 0, "u8", {"stored": True, "gemm": {"transB": 1}}), ((256, 96), -1, 0, "i8", {"stored": True}),
    ((96, 254), 0, 0, "i8", {"stored": True, "turned": True}), ((256, 96), None, 0, "u8", {"stored": True}),
    ((4, 256, 96), 0, 0, "i8", {"stored": True, "a": (4, 5, 256)}),
    ((256, 96), None, 0, "f8e4m3fn", {"stored": True, "a": (1, 256)}), ((256, 96), 1, 0, "f8e5m2", {"stored": True, "a": (70, 256)}),
    ((96, 256), None, 0, "f8e5m2", {"stored": True, "turned": True, "a": (2, 256)}),
]  # fmt: skip


def product_form(rng, name, form):
    """As PRODUCT_FORMS has it: nodes, weights, the input, what is wanted, and the products' sizes."""
    shape, axis, block, kind, around = form
    if around.get("stored"):
        rng = numpy.random.default_rng(int(name))
        nodes, weights, b, text = cast(rng, kind, list(shape), axis, name)
    else:
        nodes, weights, b, text = dequantized(rng, list(shape), axis, block, floats=kind, name=name)
    b_name, turned = f"m{name}", around.get("turned", False)
    if around.get("cast"):
        nodes.append(helper.make_node("Cast", [b_name], [f"c{name}"], to=TensorProto.FLOAT))
        b_name = f"c{name}"
    if turned:
        perm = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
        nodes.append(helper.make_node("Transpose", [b_name], [f"t{name}"], perm=perm))
        b, b_name = numpy.swapaxes(b, -1, -2), f"t{name}"
    gemm = around.get("gemm")
    wide = b.T if gemm and gemm.get("transB") else b
    a_shape = (wide.shape[-1], 7) if around.get("left") else around.get("a", (5, wide.shape[-2]))
    a = rng.normal(0, 1, a_shape).astype("f4")
    names = [b_name, f"a{name}"] if around.get("left") else [f"a{name}", b_name]
    left, right = (wide, a) if around.get("left") else (a, wide)
    want, size = left.astype("f8") @ right, numpy.abs(left) @ numpy.abs(right)
    if gemm is None:
        nodes.append(helper.make_node("MatMul", names, [f"y{name}"]))
        return nodes, weights, a, want, size, f"{form}: {text}"
    want, size = want * gemm.get("alpha", 1), size * gemm.get("alpha", 1)
    if "bias" in around:
        bias = rng.normal(0, 1, around["bias"]).astype("f4")
        weights.append(tensor(f"b{name}", bias))
        names.append(f"b{name}")
        want, size = want + bias * gemm.get("beta", 1), size + numpy.abs(bias) * gemm.get("beta", 1)
    nodes.append(helper.make_node("Gemm", names, [f"y{name}"], **gemm))
    return nodes, weights, numpy.ascontiguousarray(a.T) if gemm.get("transA") else a, want, size, f"{form}: {text}"


# The same of a Gather: shape, axis and length of blocks, type of scales, the axis that is gathered
# along, and how a Transpose in front has the axes, if there is one.
TABLE_FORMS = [
    ((64, 96), 1, 32, "f32", 0, None), ((64, 96), 0, 32, "f32", 0, None), ((64, 96), 0, 32, "bf16", 1, None),
    ((64, 96), 0, 0, "f32", 1, None), ((64, 96), 1, 32, "f32", 0, (1, 0)), ((64, 96), 1, 32, "f16", 1, (1, 0)),
    ((4, 32, 64), 2, 32, "f32", 0, None), ((4, 32, 64), 1, 16, "f32", 1, None), ((4, 32, 64), 0, 0, "f32", 2, None),
    ((64, 96), None, 0, "stored f16", 0, None), ((64, 96), None, 0, "stored bf16", 0, (1, 0)), ((64, 96), 0, 0, "stored i8", 0, None),
    ((64, 96), None, 0, "stored u8", 1, None), ((64, 96), 1, 0, "stored i8", 0, None),
    ((4, 32, 64), 2, 16, "f32", 1, (2, 1, 0)), ((4, 32, 64), 1, 16, "f32", 0, (1, 2, 0)), ((4, 32, 64), None, 0, "f32", 1, None),
]  # fmt: skip


def table_form(rng, name, form):
    shape, axis, block, kind, along, perm = form
    if kind.startswith("stored"):
        rng = numpy.random.default_rng(int(name))
        nodes, weights, table, text = cast(rng, kind.split()[1], list(shape), axis, name)
        kind = "f32"
    else:
        nodes, weights, table, text = dequantized(rng, list(shape), axis, block, floats=kind, name=name)
    read = f"m{name}"
    if perm is not None:
        nodes.append(helper.make_node("Transpose", [read], [f"t{name}"], perm=perm))
        table, read = table.transpose(perm), f"t{name}"
    nodes.append(helper.make_node("Gather", [read, f"a{name}"], [f"g{name}"], axis=along))
    nodes.append(helper.make_node("Cast", [f"g{name}"], [f"y{name}"], to=TensorProto.FLOAT))
    a = rng.integers(-table.shape[along], table.shape[along], (2, 3))
    want = numpy.take(table, a, along)
    return nodes, weights, a, want, numpy.abs(want) * (1 if kind == "f32" else 4e3), f"{form}: {text}"


WHOLE = 12  # cases of a run that leaves nothing out

# Two convolutions, one after the other: the shape of what they read, channels in between and of the
# result, how each constant is stored (by `cast`, or `dequantized` where that is said), with a scale
# for each channel of the result (0), for all (-1) or none (None), and what is around. The last have
# a form that cpu widens in every run: few channels, groups of few, floats without a -0.
CONV_FORMS = [
    ((1, 16, 9, 7), 48, 32, 3, "f16", None, {"pads": [1, 1, 1, 1]}), ((2, 32, 7, 9), 32, 48, 3, "bf16", None, {"pads": [0, 1, 2, 1], "bias": True}),
    ((1, 16, 8, 8), 32, 64, 1, "i8", 0, {"bias": True, "residual": True}), ((2, 20, 6, 5), 80, 16, 3, "u8", -1, {"strides": [2, 1], "pads": [1, 1, 1, 1]}),
    ((1, 16, 30), 96, 16, 5, "i8", -1, {"dilations": [2], "pads": [4, 4], "after": "Swish"}), ((3, 48, 17), 16, 80, 3, "f16", 0, {"strides": [3]}),
    ((1, 16, 5, 6, 4), 16, 32, 3, "bf16", 0, {"pads": [1] * 6, "strides": [1, 2, 1]}), ((2, 16, 3, 4, 5), 32, 16, 2, "i8", 0, {}),
    ((1, 32, 8, 8), 64, 64, 3, "f16", None, {"group": 2, "pads": [1, 1, 1, 1], "residual": True}),
    ((1, 64, 6, 6), 128, 128, 3, "i8", 0, {"group": 4, "pads": [1, 1, 1, 1], "bias": True}),
    ((1, 300, 4, 4), 288, 16, 3, "u8", 0, {"pads": [1, 1, 1, 1]}), ((1, 272, 1, 1), 32, 16, 1, "i8", 0, {"bias": True}),
    ((1, 32, 1, 3), 48, 16, 1, "f16", 0, {"after": "HardSwish"}), ((3, 16, 15, 15), 16, 32, 3, "bf16", None, {"pads": [1, 1, 1, 1], "after": "Clip"}),
    ((1, 16, 9, 9), 32, 32, 3, "dequantized i8", 0, {"pads": [1, 1, 1, 1], "bias": True}), ((1, 16, 1, 1), 32, 32, 1, "dequantized u8", 0, {}),
    ((1, 16, 9, 9), 32, 32, 3, "dequantized u8", 0, {"pads": [2, 2, 2, 2], "dilations": [2, 2]}),
    ((1, 16, 9, 9), 32, 32, 3, "dequantized i8", None, {"residual": True}), ((2, 16, 9, 9), 16, 16, 3, "f16", None, {"pads": [1, 1, 1, 1], "factor": True}),
    ((1, 16, 9, 9), 32, 32, 3, "f16", None, {"pads": [1, 1, 1, 1], "turned": (2, 0, 3, 1)}), ((1, 16, 20), 32, 48, 3, "i8", 0, {"turned": (2, 1, 0)}),
    ((1, 3, 9, 9), 24, 8, 3, "f16", None, {"pads": [1, 1, 1, 1], "widened": True}), ((1, 32, 9, 9), 32, 32, 3, "i8", 0, {"group": 32, "widened": True}),
    ((1, 24, 7), 48, 24, 3, "bf16", 0, {"group": 6, "widened": True}), ((1, 16, 9, 9), 32, 16, 3, "dequantized f8e4m3fn", 0, {}),
    ((1, 16, 1, 1), 32, 32, 1, "dequantized f8e4m3fn", 0, {}), ((1, 16, 1, 2), 32, 32, 1, "dequantized f8e5m2", 0, {}),
    ((1, 16, 9, 9), 24, 16, 3, "dequantized f8e4m3fnuz", 0, {"widened": True}), ((2, 16, 9, 9), 32, 48, 3, "f8e4m3fn", None, {"pads": [1, 1, 1, 1]}), ((1, 32, 20), 32, 16, 3, "f8e5m2", 0, {"bias": True}),
    ((1, 16, 6, 6), 32, 16, 3, "f16", None, {"transposed": True, "widened": True, "strides": [2, 2]}),
    ((1, 16, 6, 6), 32, 16, 3, "i8", 0, {"transposed": True, "widened": True, "pads": [1, 1, 1, 1], "bias": True}),
]  # fmt: skip


ONCE = 1 / 32  # of the weights, that those may grow by which pass once computes


def convolve(x, w, bias, options):
    """Conv and ConvTranspose in double, tap by tap."""
    axes, groups = x.ndim - 2, options.get("group", 1)
    strides, dilations = options.get("strides", [1] * axes), options.get("dilations", [1] * axes)
    pads, transposed = options.get("pads", [0] * 2 * axes), options.get("transposed", False)
    kernel, x, w = w.shape[2:], x.astype("f8"), w.astype("f8")
    if transposed:
        wide = numpy.zeros((*x.shape[:2], *[(d - 1) * s + 1 for d, s in zip(x.shape[2:], strides)]))
        wide[(slice(None), slice(None), *[slice(None, None, s) for s in strides])] = x
        x, w, strides = wide, numpy.flip(w.swapaxes(0, 1), range(2, w.ndim)), [1] * axes
        pads = [(kernel[i % axes] - 1) * dilations[i % axes] - pad for i, pad in enumerate(pads)]
        pads = [pad + (options.get("output_padding", [0] * axes)[i - axes] if i >= axes else 0) for i, pad in enumerate(pads)]
    x = numpy.pad(x, [(0, 0), (0, 0), *zip(pads[:axes], pads[axes:])])
    out = [(x.shape[2 + a] - (kernel[a] - 1) * dilations[a] - 1) // strides[a] + 1 for a in range(axes)]
    y = numpy.zeros((x.shape[0], w.shape[0], *out))
    step, per = w.shape[0] // groups, w.shape[1]
    for tap in itertools.product(*map(range, kernel)):
        places = tuple(slice(t * d, t * d + (o - 1) * s + 1, s) for t, d, o, s in zip(tap, dilations, out, strides))
        for g in range(groups):
            part = x[(slice(None), slice(g * per, (g + 1) * per), *places)]
            y[:, g * step : (g + 1) * step] += numpy.einsum("nc...,oc->no...", part, w[(slice(g * step, (g + 1) * step), slice(None), *tap)])
    return y if bias is None else y + bias.reshape([-1] + [1] * axes)


AFTER = {"Relu": lambda y: numpy.maximum(y, 0), "Swish": lambda y: y / (1 + numpy.exp(-numpy.maximum(y, -700))), "Clip": lambda y: numpy.clip(y, -1, 1),
         "HardSwish": lambda y: y * numpy.clip(y / 6 + 0.5, 0, 1)}  # fmt: skip


def conv_layer(rng, name, x, channels, form, last):
    """One of them: nodes, weights, and of the result the numbers and the sizes of what is added up."""
    width, kind, axis, around = form
    groups, transposed = around.get("group", 1), around.get("transposed", False)
    shape = [x[0].shape[1], channels // groups] if transposed else [channels, x[0].shape[1] // groups]
    shape += [width] * (x[0].ndim - 2)
    turned = around.get("turned", tuple(range(len(shape))))
    if kind.startswith("dequantized"):
        nodes, weights, w, _ = dequantized(rng, shape, axis, 0, kinds=[kind.split()[1]], name=name)
    else:
        axis = 1 if transposed and axis == 0 else axis
        nodes, weights, w, _ = cast(rng, kind, [shape[d] for d in turned], turned.index(axis) if axis in (0, 1) else axis, name)
    bias, names = None, [f"x{name}", f"m{name}"]
    if "turned" in around:
        perm = [turned.index(d) for d in range(len(shape))]
        nodes.append(helper.make_node("Transpose", [f"m{name}"], [f"t{name}"], perm=perm))
        names[1], w = f"t{name}", w.transpose(perm)
    if around.get("bias"):
        bias = rng.normal(0, 1, channels).astype("f4")
        weights.append(tensor(f"b{name}", bias))
        names.append(f"b{name}")
    options = {key: around[key] for key in ("strides", "dilations", "pads", "group", "output_padding") if key in around}
    nodes.append(helper.make_node("ConvTranspose" if transposed else "Conv", names, [f"c{name}"], **options))
    y, size = convolve(x[0], w, bias, around), convolve(x[1], numpy.abs(w), None if bias is None else numpy.abs(bias), around)
    result, after = f"c{name}", around.get("after", "Relu")
    if around.get("factor"):
        factor = rng.uniform(0.5, 2, (1, channels, *[1] * (y.ndim - 2))).astype("f4")
        weights.append(tensor(f"f{name}", factor))
        nodes.append(helper.make_node("Mul", [result, f"f{name}"], [f"p{name}"]))
        y, size, result = y * factor, size * factor, f"p{name}"
    if around.get("residual") and y.shape == x[0].shape:
        nodes.append(helper.make_node("Add", [result, f"x{name}"], [f"r{name}"]))
        y, size, result = y + x[0], size + x[1], f"r{name}"
    low_high = ["low", "high"] if after == "Clip" else []
    nodes.append(helper.make_node(after, [result, *low_high], [last]))
    return nodes, weights, (AFTER[after](y), size)


def conv_form(rng, name, form):
    (shape, between, channels, width, kind, axis, around) = form
    a = rng.normal(0, 1, shape).astype("f4")
    around = {**around, "residual": False}
    nodes, weights, middle = conv_layer(rng, f"{name}a", (a, numpy.abs(a)), between, (width, kind, axis, around), f"x{name}b")
    nodes[[node.op_type for node in nodes].index("ConvTranspose" if around.get("transposed") else "Conv")].input[0] = f"a{name}"
    second = {**around, **{key: form[6][key] for key in ("residual",) if key in form[6]}}
    if min(middle[0].shape[2:]) < width:
        second.update({key: [(width - 1) // 2] * 2 * (len(shape) - 2) for key in ("pads",)})
    more, stored, (want, size) = conv_layer(rng, f"{name}b", (middle[0], middle[1]), channels, (width, kind, axis, second), f"y{name}")
    return nodes + more, weights + stored, a, want, size, f"{form}"


def every_convolution(ullage, options):
    """The same of convolutions."""
    forms = [conv_form(numpy.random.default_rng(i), f"{i:02}", form) for i, form in enumerate(CONV_FORMS)]
    bounds = [tensor("low", numpy.array(-1, "f4")), tensor("high", numpy.array(1, "f4"))]
    widened = () if options[1] == "c" else tuple(f"{i:02}" for i, form in enumerate(CONV_FORMS) if form[6].get("widened"))
    run_forms(ullage, options, forms, bounds, [f"{letter}{i}{layer}" for letter in "mv" for i in widened for layer in "ab"], 1.05)


# Shape of the input, channels, width of the kernel, the kind of the weights, where the scale lies, and around.
LONE_FORMS = [
    ((1, 3, 24, 24), 32, 7, "f16", None, {"strides": [2, 2], "pads": [3] * 4}),
    ((1, 3, 24, 24), 16, 3, "bf16", None, {"bias": True}),
    ((1, 32, 12, 12), 32, 3, "i8", 0, {"group": 32, "pads": [1] * 4}),
    ((1, 32, 12, 12), 32, 3, "f16", None, {"group": 4}),
    ((1, 32, 12, 12), 32, 3, "dequantized f8e4m3fnuz", 0, {}),
    ((1, 32, 8, 8), 32, 3, "f16", None, {"transposed": True, "strides": [2, 2], "pads": [1] * 4}),
    ((1, 32, 8, 8), 24, 4, "dequantized i8", 0, {"transposed": True, "bias": True}),
    ((1, 16, 40), 32, 5, "i8", 0, {"transposed": True, "strides": [3]}),
    ((1, 32, 8, 8), 24, 4, "dequantized i8", 0, {"transposed": True, "strides": [2, 2], "bias": True}),
    ((1, 128, 14, 14), 32, 4, "f16", None, {"transposed": True, "strides": [2, 2], "pads": [1] * 4, "bias": True, "phases": True}),
    ((1, 96, 12, 12), 16, 6, "dequantized i8", 1, {"transposed": True, "strides": [3, 2], "pads": [1, 2, 3, 0], "phases": True}),
    ((1, 128, 20), 64, 6, "dequantized u8", 1, {"transposed": True, "strides": [3], "pads": [4, 1], "output_padding": [2], "bias": True, "phases": True}),
    ((1, 64, 20), 64, 16, "bf16", None, {"transposed": True, "strides": [8], "pads": [4, 4], "phases": True}),
    ((1, 64, 9, 9), 96, 3, "i8", 0, {"transposed": True, "dilations": [2, 1], "pads": [1, 2, 3, 0], "phases": True}),
    ((1, 128, 14, 1, 14), 16, 4, "f16", None, {"transposed": True, "strides": [2, 1, 2], "pads": [1, 0, 1, 1, 0, 1], "phases": True}),
    ((1, 512, 14, 14), 3, 4, "f16", None, {"transposed": True, "strides": [2, 2], "pads": [1] * 4}),
    ((1, 64, 14, 14), 80, 3, "dequantized f8e4m3fnuz", 0, {"transposed": True, "pads": [1] * 4}),
    ((1, 64, 2, 2), 64, 4, "i8", 0, {"transposed": True, "strides": [2, 2], "pads": [1] * 4}),
    ((1, 128, 6, 6), 128, 2, "f16", None, {"transposed": True, "strides": [2, 2], "turned": (2, 3, 0, 1), "phases": True}),
    ((1, 128, 6, 6), 96, 2, "i8", 0, {"transposed": True, "strides": [2, 2], "phases": True, "factor": True}),
    ((1, 32, 6, 6), 32, 2, "f16", None, {"transposed": True, "strides": [2, 2]}),
]


def lone_convolutions(ullage, options):
    """One network each. No step of a run makes floats of the weights, and the bits are those of the program in which
    one does; nor does it take more bytes than that. On cpu transposed ones with phases read the codes."""
    for i, (shape, channels, width, kind, axis, around) in enumerate(LONE_FORMS):
        rng = numpy.random.default_rng([17, i])
        a = rng.normal(0, 1, shape).astype("f4")
        nodes, weights, (want, size) = conv_layer(rng, "", (a, numpy.abs(a)), channels, (width, kind, axis, around), "y")
        graph = helper.make_graph(
            nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, want.shape)], weights)  # fmt: skip
        model, told, got = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10), [], []
        with tempfile.TemporaryDirectory() as folder:
            program, out, plan, path, feed = (os.path.join(folder, name) for name in ("program", "out", "plan.json", "m.onnx", "x.npy"))
            onnx.save(model, path)
            numpy.save(feed, a)
            for more in ([], ["--no-pass", "once"]):
                run([ullage, "compile", path, "-o", program, "--cflags", "-O1", "--json", plan, *options, *more])
                run([program, "--input", f"x={feed}", "--output-dir", out])
                got.append(numpy.load(os.path.join(out, "y.npy")))
                with open(plan) as file:
                    told.append(json.load(file))
        text = f"{shape} {channels} {width} {kind} {around}"
        worst = float(numpy.max(numpy.abs(got[0] - want) / (size + 1e-30)))
        if not worst <= NEAR or got[0].tobytes() != got[1].tobytes():
            raise RuntimeError(f"{text}: differs by {worst:.2g} of the products' sizes, or in bits from --no-pass once")
        reads = any(("Cast" in op or "Dequantize" in op) and "Conv" in op for op in told[0]["steps"]["op"])
        if options[1] == "cpu" and around.get("phases") and not reads:
            raise RuntimeError(f"{text}: {told[0]['steps']['op']}")
        if any(("Cast" in op or "Dequantize" in op) and "Conv" not in op for op in told[0]["steps"]["op"]) or told[0]["reserved_bytes"] > told[1]["reserved_bytes"]:
            raise RuntimeError(f"{text}: {told[0]['steps']['op']}, {told[0]['reserved_bytes']} bytes, not {told[1]['reserved_bytes']}")


def either_fits(ullage, options):
    """Where constants that pass once would compute take more bytes than steps that make them, a plan is that without
    the pass, with a budget of its bytes and without one; and it says so."""
    rng = numpy.random.default_rng(19)
    nodes = [helper.make_node("Cast", ["w"], ["a"], to=TensorProto.FLOAT), helper.make_node("Transpose", ["a"], ["t"]),
             helper.make_node("Add", ["t", "a"], ["b"]), helper.make_node("MatMul", ["x", "a"], ["m"]), helper.make_node("MatMul", ["m", "b"], ["y"])]  # fmt: skip
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, (40, 40))], [helper.make_tensor_value_info("y", TensorProto.FLOAT, (40, 40))],
        [tensor("w", rng.normal(0, 1, (40, 40)).astype("f2"))])  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path, plan = (os.path.join(folder, name) for name in ("m.onnx", "plan.json"))
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10), path)
        run([ullage, "plan", path, *options, "--no-pass", "once", "--json", plan])
        with open(plan) as file:
            bytes_without = json.load(file)["reserved_bytes"]
        run([ullage, "plan", path, *options, "--json", plan])
        with open(plan) as file:
            if (reserved := json.load(file)["reserved_bytes"]) > bytes_without * (1 + ONCE):
                raise RuntimeError(f"either fits: {reserved} bytes, {bytes_without} without pass once")
        run([ullage, "compile", path, *options, "--budget-of", "arena", "--budget", str(bytes_without), "--json", plan, "-o", os.path.join(folder, "p")])
        run([ullage, "check", path, plan])
        run([ullage, "compile", path, "--plan", plan, "-o", os.path.join(folder, "p")])


def either_in_pieces(ullage, options):
    """Where no budget is met, the program with pass once and that without it are both computed in pieces: the plan is
    the smaller one, and with a budget of its bytes a program comes of it."""
    rng = numpy.random.default_rng(19)
    nodes = [helper.make_node("Cast", ["w"], ["a"], to=TensorProto.FLOAT),
             helper.make_node("ConvTranspose", ["x", "a"], ["u"], strides=[2, 2], kernel_shape=[4, 4], pads=[1] * 4),
             helper.make_node("Conv", ["u", "k"], ["c"], pads=[3] * 4), helper.make_node("Relu", ["c"], ["r"]),
             helper.make_node("Conv", ["r", "l"], ["d"], pads=[3] * 4), helper.make_node("GlobalMaxPool", ["d"], ["y"])]  # fmt: skip
    weights = {"w": rng.normal(0, 1, (32, 8, 4, 4)).astype("f2"), "k": rng.normal(0, 1, (160, 8, 7, 7)).astype("f4"), "l": rng.normal(0, 1, (4, 160, 7, 7)).astype("f4")}
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 32, 8, 8))], [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 4, 1, 1))],
        [tensor(name, weight) for name, weight in weights.items()])  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path, plan = (os.path.join(folder, name) for name in ("m.onnx", "plan.json"))
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
        told = []
        for more in ([], ["--no-pass", "once"]):
            done = subprocess.run([ullage, "plan", path, *options, *more, "--budget-of", "arena", "--budget", "1KiB", "--json", plan], capture_output=True, text=True, timeout=600)
            if done.returncode != 4:
                raise RuntimeError(f"either in pieces: exit {done.returncode}, not 4: {done.stderr}")
            with open(plan) as file:
                told.append(json.load(file))
        if told[0]["reserved_bytes"] > told[1]["reserved_bytes"] or not all("split" in json.dumps(one["options"]) for one in told):
            raise RuntimeError(f"either in pieces: {[(one['reserved_bytes'], one['options']) for one in told]}")
        run([ullage, "compile", path, *options, "--budget-of", "arena", "--budget", str(told[0]["reserved_bytes"]), "--json", plan, "-o", os.path.join(folder, "p")])
        run([ullage, "check", path, plan])


def every_form(ullage, options):
    """Wherever a dequantized constant, or one after a Cast, stands in a product or a Gather, it is read
    packed: no step unfolds it, and the weights of the plan are the bytes that are stored."""
    rng = numpy.random.default_rng(11)
    forms = [product_form(rng, f"{i:02}", form) for i, form in enumerate(PRODUCT_FORMS)]
    forms += [table_form(rng, f"{i:02}", form) for i, form in enumerate(TABLE_FORMS, len(forms))]
    run_forms(ullage, options, forms, [], [], 1.01)


def run_forms(ullage, options, forms, more_weights, may_unfold, stored_times):
    """All forms in one model. Steps of these names may unfold a constant; weights take at most so many
    times their bytes: small ones are unfolded when the model is compiled."""
    inputs = {node.input[i]: form[2] for form in forms for node in form[0] for i in range(len(node.input)) if node.input[i][0] == "a"}
    kinds = {name: TensorProto.INT64 if a.dtype == "i8" else TensorProto.FLOAT for name, a in inputs.items()}
    weights = more_weights + [weight for form in forms for weight in form[1]]
    graph = helper.make_graph(
        [node for form in forms for node in form[0]], "g",
        [helper.make_tensor_value_info(name, kinds[name], a.shape) for name, a in inputs.items()],
        [helper.make_tensor_value_info(f"y{i:02}", TensorProto.FLOAT, form[3].shape) for i, form in enumerate(forms)], weights)  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=10)
    got = []
    with tempfile.TemporaryDirectory() as folder:
        program, out, plan, path = (os.path.join(folder, name) for name in ("program", "out", "plan.json", "m.onnx"))
        onnx.save(model, path)
        feeds = []
        for name, a in inputs.items():
            numpy.save(os.path.join(folder, f"{name}.npy"), a)
            feeds += ["--input", f"{name}={os.path.join(folder, name)}.npy"]
        for more in (["--pack", "none"], ["--json", plan]):
            run([ullage, "compile", path, "-o", program, "--cflags", "-O1", *options, *more])
            run([program, *feeds, "--output-dir", out])
            got.append([numpy.load(os.path.join(out, f"y{i:02}.npy")) for i in range(len(forms))])
        with open(plan) as file:
            told = json.load(file)
        run([ullage, "plan", path, *options, "--no-pass", "once", "--json", plan])
        with open(plan) as file:
            narrow = json.load(file)
    for plain, y, (_, _, _, want, size, text) in zip(*got, forms):
        worst = float(numpy.max(numpy.abs(y - want) / (size + 1e-30)))
        if y.shape != want.shape or not worst <= NEAR:
            raise RuntimeError(f"{text}: {y.shape} differs by {worst:.2g} of the products' sizes")
        if y.tobytes() != plain.tobytes():
            raise RuntimeError(f"{text}: --pack none gives other bits")
    # One with its product in a kernel unpacks what it loads.
    unfolded = [(op, name) for op, name in zip(told["steps"]["op"], told["steps"]["name"])
                if ("Dequantize" in op or ("Cast" in op and name[0] in "mvt")) and not any(k in op for k in ("NBits", "MatMul", "Gemm", "Gather", "Conv"))
                and name.split()[0] not in may_unfold]
    if unfolded:
        raise RuntimeError(f"every form: steps of {unfolded}")
    stored = sum(len(weight.raw_data) for weight in weights)
    for bytes_of, times in ((narrow["rows"]["weights"], stored_times), (told["rows"]["weights"], stored_times + ONCE)):
        if bytes_of > times * stored:
            raise RuntimeError(f"every form: {bytes_of} bytes of weights, {stored} in the model")


def tied(ullage, options):
    """A Gather and a product of one constant read the same bytes; on cpu the product has codes of its own."""
    rng, rows, width = numpy.random.default_rng(13), 480, 192
    for kinds, axis, block in ((["u4"], 1, 32), (["i8"], 1, 64), (["i4"], 0, 0), (["u2"], 1, 32)):
        nodes, weights, table, text = dequantized(rng, [rows, width], axis, block, kinds)
        nodes += [helper.make_node("Gather", ["m", "a"], ["g"]), helper.make_node("Transpose", ["m"], ["t"]),
                  helper.make_node("MatMul", ["g", "t"], ["y"])]  # fmt: skip
        model, last = behind(rng, nodes, weights, TensorProto.INT64, [5], [5, rows])
        a = rng.integers(-rows, rows, 5)
        want, size = table[a].astype("f8") @ table.T, numpy.abs(table[a]) @ numpy.abs(table.T)
        with tempfile.TemporaryDirectory() as folder:
            feed = os.path.join(folder, "a.npy")
            onnx.save(model, os.path.join(folder, "m.onnx"))
            numpy.save(feed, a)
            got, plan = outputs(ullage, folder, options, feed)
            plain, _ = outputs(ullage, folder, [*options, "--pack", "none"], feed)
        if not numpy.all(numpy.abs(got - (numpy.maximum(want, 0) if last == "r" else want)) <= NEAR * size):
            raise RuntimeError(f"tied {text}: other results")
        if got.tobytes() != plain.tobytes():
            raise RuntimeError(f"tied {text}: --pack none gives other bits")
        stored = sum(len(weight.raw_data) for weight in weights) + ("cpu" in options) * len(weights[0].raw_data)
        if plan["rows"]["weights"] > 1.01 * stored:
            raise RuntimeError(f"tied {text}: {plan['rows']['weights']} bytes of weights, of {stored}")


def kernels_of(rng):
    """What is no product and no table of rows: maps that unpack what they load."""
    rank = int(rng.integers(1, 4))
    shape = [int(rng.integers(1, 14)) for _ in range(rank - 1)]
    shape.append(1100 // int(numpy.prod(shape)) + int(rng.integers(10, 50)))  # more than is folded
    weights, floats, nodes = [], None, []
    way = str(rng.choice(["scaled", "cast", "gathered"]))
    if way == "scaled":
        block, axis = int(rng.choice([0, 16])), int(rng.integers(0, rank))
        nodes, weights, floats, text = dequantized(rng, shape, axis, block)
    else:
        kind = str(rng.choice(["u2", "i2", "u4", "i4", "f4e2m1"]))
        make, floats = random_codes(rng, kind, shape)
        weights, text = [make("w")], kind
        nodes = [helper.make_node("Cast", ["w"], ["m"], to=TensorProto.FLOAT)]
    if way == "gathered":
        axis, count = int(rng.integers(0, rank)), int(rng.integers(1, 20))
        nodes = [helper.make_node("Gather", ["w", "a"], ["g"], axis=axis),
                 helper.make_node("Cast", ["g"], ["y"], to=TensorProto.FLOAT)]
        a = rng.integers(-shape[axis], shape[axis], count)
        want, dtype = numpy.take(floats, a, axis), TensorProto.INT64
    else:
        nodes.append(helper.make_node("Mul", ["a", "m"], ["y"]))
        a = rng.normal(0, 1, shape).astype("f4")
        want, dtype = a * floats, TensorProto.FLOAT
    model, last = behind(rng, nodes, weights, dtype, list(a.shape), list(want.shape))
    want = numpy.maximum(want, 0) if last == "r" else want
    return Case(model, a, want, numpy.abs(want), f"{way} {text}, {shape}")


def asked_for(ullage, options):
    """--quantize of a float32 model: less bytes, small errors, and refusals in a line."""
    rng = numpy.random.default_rng(7)
    sizes = [128, 256, 320, 256, 128]
    weights = [tensor(f"w{i}", rng.normal(0, 1 / numpy.sqrt(k), (k, n)).astype("f4"))
               for i, (k, n) in enumerate(zip(sizes, sizes[1:]))]  # fmt: skip
    names = ["a", "h0", "h1", "h2", "y"]
    nodes = [helper.make_node("MatMul", [names[i], f"w{i}"], [names[i + 1]], f"layer{i}") for i in range(4)]
    model = helper.make_model(helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("a", TensorProto.FLOAT, [5, 128])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [5, 128])], weights),
        opset_imports=[helper.make_opsetid("", 21)], ir_version=10)  # fmt: skip
    a = rng.normal(0, 1, (5, 128)).astype("f4")
    want = a
    for weight in weights:
        want = want @ onnx.numpy_helper.to_array(weight)
    inner, outer = 256 * 320 * 2, 128 * 256 * 2
    with tempfile.TemporaryDirectory() as folder:
        feed, path = os.path.join(folder, "a.npy"), os.path.join(folder, "m.onnx")
        numpy.save(feed, a)
        onnx.save(model, path)
        cases = [(["int4"], 4 * outer + 0.57 * inner, 0.12), (["int8"], 4 * outer + 1.07 * inner, 0.01),
                 (["int4:*"], 0.57 * (inner + outer), 0.2),
                 (["int8", "int4:layer1"], 4 * outer + 0.82 * inner, 0.1)]  # fmt: skip
        for texts, bytes_max, error_max in cases:
            words = [word for text in texts for word in ("--quantize", text)]
            got, _ = outputs(ullage, folder, [*options, *words], feed)
            with open(os.path.join(folder, "plan.json")) as file:
                stored = json.load(file)["rows"]["weights"]
            error = float(numpy.linalg.norm(got - want) / numpy.linalg.norm(want))
            print(f"--quantize {' '.join(texts)}: {stored} bytes of weights, error {error:.4f}")
            if stored > bytes_max or not 0 < error <= error_max:
                raise RuntimeError(f"--quantize {texts}: {stored} bytes of {bytes_max}, error {error}")
        # A weight of one number, which is stored as such.
        del model.graph.initializer[1]
        model.graph.initializer.append(onnx.numpy_helper.from_array(numpy.array([256, 320]), "sizes"))
        model.graph.node.insert(0, helper.make_node(
            "ConstantOfShape", ["sizes"], ["w1"], value=tensor("one", numpy.full(1, 0.01, "f4"))))  # fmt: skip
        onnx.save(model, path)
        same, _ = outputs(ullage, folder, options, feed)
        got, _ = outputs(ullage, folder, [*options, "--quantize", "int8:layer1"], feed)
        if not numpy.allclose(got, same, rtol=1e-3, atol=1e-3 * numpy.abs(same).max()):
            raise RuntimeError("--quantize: a weight of one number has other results")
        for text, code in (("int3", 1), ("int4:", 1), ("int4:other", 1)):
            done = subprocess.run([ullage, "plan", path, "--quantize", text], capture_output=True, text=True)  # fmt: skip
            if done.returncode != code or done.stderr.count("\n") != 1:
                raise RuntimeError(f"--quantize {text}: exit {done.returncode}: {done.stderr}")


def refusals(ullage):
    """What cannot be: exit code 2 and one line that names the node and what is wrong."""
    k, n = 64, 32
    codes, scales = numpy.zeros((n, 2, 16), "u1"), numpy.ones((n, 2), "f4")
    broken = scales.copy()
    broken[3, 1] = numpy.nan
    cases = [("bits must be 2 to 8", {"bits": 9}, codes, scales), ("block_size", {"block_size": 0}, codes, scales),
             ("block_size", {"block_size": -32}, codes, scales), ("B must be", {}, codes[:, :, :15], scales),
             ("B must be", {"K": 96}, codes, scales), ("scales must be", {}, codes, scales[:, :1]),
             ("scale 7 is no finite number", {}, codes, broken), ("K and N", {"N": 0}, codes, scales)]  # fmt: skip
    for text, changed, b, s in cases:
        options = {"K": k, "N": n, "bits": 4, "block_size": 32, **changed}
        node = helper.make_node("MatMulNBits", ["a", "b", "s"], ["y"], "layer", domain="com.microsoft", **options)
        graph = helper.make_graph([node], "g", [helper.make_tensor_value_info("a", TensorProto.FLOAT, [2, options["K"]])],
                                  [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, n])],
                                  [tensor("b", b), tensor("s", s)])  # fmt: skip
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "m.onnx")
            onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), path)
            refuse(ullage, path, text)
    refusals_of_types(ullage)


def refuse(ullage, path, text):
    done = subprocess.run([ullage, "plan", path], capture_output=True, text=True)
    lines = done.stderr.strip().split("\n")
    if done.returncode != 2 or len(lines) != 1 or text not in lines[0] or "layer" not in lines[0]:
        raise RuntimeError(f"{text}: exit {done.returncode}: {done.stderr}")


def refusals_of_types(ullage):
    """The same of a dequantized matrix of every type below 8 bits and of floats."""
    ones = numpy.ones((2, 32), "f4")
    broken = {name: ones.copy() for name in ("nan", "inf")}
    for name, scales in broken.items():
        scales[1, 3] = float(name)
    for kind in ("u2", "i2", "u4", "i4", "f4e2m1", "f8e4m3fn", "f8e5m2"):
        dtype, bits, _ = TYPES[kind]
        size = 64 * 32 * bits // 8
        cases = [(f"{size - 1} bytes of data", size - 1, ones, 32, dtype),
                 (f"{size + 1} bytes of data", size + 1, ones, 32, dtype),
                 ("scale 35 is nan", size, broken["nan"], 32, dtype),
                 ("scale 35 is inf", size, broken["inf"], 32, dtype), ("block_size is negative", size, ones, -32, dtype),
                 ("one number for each block", size, ones, 24, dtype),
                 ("one number for each block", size, ones[:, :31], 32, dtype),
                 ("zero-point must have the type", size, ones, 32, TensorProto.UINT8)]  # fmt: skip
        for text, count, scales, block, zero in cases:
            weights = [TensorProto(name="layer_w", data_type=dtype, dims=[64, 32], raw_data=bytes(count)),
                       tensor("s", scales)]  # fmt: skip
            names = ["layer_w", "s"]
            if zero != dtype:
                weights.append(TensorProto(name="z", data_type=zero, dims=[2, 32], raw_data=bytes(64)))
                names.append("z")
            nodes = [helper.make_node("DequantizeLinear", names, ["m"], "layer", axis=0, block_size=block),
                     helper.make_node("MatMul", ["a", "m"], ["y"])]  # fmt: skip
            model, _ = behind(numpy.random.default_rng(1), nodes, weights, TensorProto.FLOAT, [2, 64], [2, 32])
            with tempfile.TemporaryDirectory() as folder:
                path = os.path.join(folder, "m.onnx")
                onnx.save(model, path)
                refuse(ullage, path, text)


def rounded_ones(ullage, options):
    """Products whose rows may be rounded to int8, of every kind, in one model: those that cpu can
    multiply so run so, the others in float32."""
    rng, k, n = numpy.random.default_rng(9), 384, 48
    a = rng.normal(0, 1, (2, 3, k)).astype("f4")
    nodes, weights, wanted, int8 = [], [], [], 0
    for bits, block, kind in itertools.product((2, 4, 8), (16, 32, 128, 256, 384), ("none", "packed", "float", "groups")):
        i, blocks = len(nodes), -(-k // block)
        codes = rng.integers(0, 1 << bits, (n, blocks * block))
        scales, zeros = rng.uniform(0.01, 0.1, (n, blocks)).astype("f4"), numpy.full((n, blocks), 1 << (bits - 1))
        groups, names = numpy.arange(k, dtype="i4") // block, ["a", f"b{i}", f"s{i}", "", "", ""]
        weights += [tensor(f"b{i}", pack(codes.reshape(n, blocks, block), bits)), tensor(f"s{i}", scales)]
        if kind == "packed":
            zeros = rng.integers(0, 1 << bits, (n, blocks))
            weights.append(tensor(f"z{i}", pack(zeros, bits)))
        elif kind == "float":
            zeros = rng.uniform(0, 1 << bits, (n, blocks)).astype("f4")
            weights.append(tensor(f"z{i}", zeros))
        elif kind == "groups":
            groups = rng.integers(0, blocks, k).astype("i4")
            weights.append(tensor(f"g{i}", groups))
        names[3], names[4] = f"z{i}" if kind in ("packed", "float") else "", f"g{i}" if kind == "groups" else ""
        bias = rng.normal(0, 1, n).astype("f4") * (i % 2)
        if i % 2:
            weights.append(tensor(f"bias{i}", bias))
            names[5] = f"bias{i}"
        nodes.append(helper.make_node("MatMulNBits", names, [f"y{i:02}"], domain="com.microsoft", K=k, N=n, bits=bits,
                                      block_size=block, accuracy_level=4))  # fmt: skip
        rounds = "cpu" in options and k % block == 0 and kind != "groups"
        matrix = ((codes[:, :k] - zeros[:, groups]) * scales[:, groups]).astype("f8").T
        wanted.append(((round_rows(a, block) if rounds else a) @ matrix + bias, numpy.abs(a) @ numpy.abs(matrix) + numpy.abs(bias)))
        int8 += rounds
    graph = helper.make_graph(nodes, "g", [helper.make_tensor_value_info("a", TensorProto.FLOAT, a.shape)],
                              [helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, [2, 3, n]) for node in nodes], weights)  # fmt: skip
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    with tempfile.TemporaryDirectory() as folder:
        feed, out = os.path.join(folder, "a.npy"), os.path.join(folder, "out")
        numpy.save(feed, a)
        onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=10), os.path.join(folder, "m.onnx"))
        _, plan = outputs(ullage, folder, options, feed)
        for node, (want, size) in zip(nodes, wanted):
            got = numpy.load(os.path.join(out, node.output[0] + ".npy"))
            if not numpy.all(numpy.abs(got - want) <= NEAR * size):
                raise RuntimeError(f"rows in int8, {node.output[0]}: {numpy.max(numpy.abs(got - want) / size):.2g} of the products' sizes")
    ways = plan["steps"]["implementation"]
    if ways.count(INT8) != int8:
        raise RuntimeError(f"rows in int8: {ways.count(INT8)} products of {int8}")


def verified(ullage, options):
    """A model that lets its products round to int8 is as right as that is, from either side."""
    rng = numpy.random.default_rng(5)
    weights = [tensor("b", rng.integers(0, 256, (64, 8, 16)).astype("u1")),
               tensor("s", rng.uniform(0.01, 0.1, (64, 8)).astype("f4"))]
    node = helper.make_node("MatMulNBits", ["a", "b", "s"], ["y"], domain="com.microsoft", K=256, N=64, block_size=32,
                            accuracy_level=4)  # fmt: skip
    model, _ = behind(None, [node], weights, TensorProto.FLOAT, [3, 256], [3, 64])
    environment = {**os.environ, "ULLAGE_PYTHON": sys.executable if onnxruntime is not None else ""}
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "m.onnx")
        onnx.save(model, path)
        done = subprocess.run([ullage, "verify", path, "--cflags", "-O1", *options], capture_output=True, text=True, env=environment)  # fmt: skip
    if done.returncode != 0 or "rounded to int8: " not in done.stdout:
        raise RuntimeError(f"verify: exit {done.returncode}: {done.stdout}{done.stderr}")


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command[:3]))}: exit {done.returncode}: {done.stderr[-600:]}")


def outputs(ullage, folder, options, feed):
    program, out, plan = (os.path.join(folder, name) for name in ("program", "out", "plan.json"))
    model = os.path.join(folder, "m.onnx")
    run([ullage, "compile", model, "-o", program, "--cflags", "-O1", "--json", plan, *options])
    run([program, "--input", f"a={feed}", "--output-dir", out])
    with open(plan) as file:
        told = json.load(file)
    return numpy.load(os.path.join(out, os.listdir(out)[0])), told


def check(ullage, options, case):
    """What runs the model."""
    with tempfile.TemporaryDirectory() as folder:
        feed = os.path.join(folder, "a.npy")
        onnx.save(case.model, os.path.join(folder, "m.onnx"))
        numpy.save(feed, case.input)
        got, plan = outputs(ullage, folder, options, feed)
        read_only = ["--weights", "rom"] if "cuda" not in options else []
        plain, _ = outputs(ullage, folder, [*options, "--pack", "none", *read_only], feed)
    if got.shape != case.want.shape:
        raise RuntimeError(f"{case.text}: gives {got.shape}, not {case.want.shape}")
    way = plan["steps"]["implementation"][0]
    if way.startswith("ullage nbits") and (way == INT8) != (case.rounded is not None):
        raise RuntimeError(f"{case.text}: runs by {way}")
    want = case.rounded if way == INT8 else case.want
    worst = float(numpy.max(numpy.abs(got - want) / (case.size + 1e-30)))
    if not worst <= NEAR:
        raise RuntimeError(f"{case.text}: differs by {worst:.2g} of the products' sizes")
    if got.tobytes() != plain.tobytes():
        raise RuntimeError(f"{case.text}: {' '.join(['--pack none', *read_only])} gives other bits")
    model = sum(len(weight.raw_data) for weight in case.model.graph.initializer)
    if plan["rows"]["weights"] > STORED * model + 64:
        raise RuntimeError(f"{case.text}: {plan['rows']['weights']} bytes of weights, {model} in the model")
    if not any("NBits" in op or "quantize" in op.lower() or "Unpack" in op for op in plan["steps"]["op"]):
        raise RuntimeError(f"{case.text}: runs as {plan['steps']['op']}")
    return way


def check_peer(case):
    """What onnxruntime has to say of the same model, where it takes it."""
    if len(case.model.graph.node[0].input) > 4 and case.model.graph.node[0].input[4] != "":
        return 0  # of zero points and group indexes it takes the latter alone
    if case.text.startswith("left") and case.input.ndim == 1:
        return 0  # 1.32 multiplies a turned matrix by a vector as if it were not turned
    try:
        onnxruntime.set_default_logger_severity(4)
        session = onnxruntime.InferenceSession(case.model.SerializeToString(), providers=["CPUExecutionProvider"])  # fmt: skip
        peer = session.run(None, {"a": case.input})[0]
    except Exception:  # bits and zero points that its kernels have not
        return 0
    if float(numpy.max(numpy.abs(peer - case.want) / (case.size + 1e-30))) > PEER:
        raise RuntimeError(f"{case.text}: onnxruntime computes something else")
    return 1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ullage")
    parser.add_argument("--target", default="c")
    parser.add_argument("--count", type=int, default=WHOLE)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    options = ["--target", arguments.target]
    options += ["--threads", "2"] if arguments.target == "cpu" else []
    peers, ways = 0, collections.Counter()
    for i in range(arguments.count):
        rng = numpy.random.default_rng([arguments.seed, i])
        case = (product, kernels_of, behind_product, rows_of, behind_others, product)[i % 6](rng)
        print(f"{i}: {case.text}", flush=True)
        peers += check_peer(case) if onnxruntime is not None else 0
        ways[check(os.path.abspath(arguments.ullage), options, case)] += 1
    refusals(os.path.abspath(arguments.ullage))
    every_form(os.path.abspath(arguments.ullage), options)
    every_convolution(os.path.abspath(arguments.ullage), options)
    lone_convolutions(os.path.abspath(arguments.ullage), options)
    either_fits(os.path.abspath(arguments.ullage), options)
    either_in_pieces(os.path.abspath(arguments.ullage), options)
    rounded_ones(os.path.abspath(arguments.ullage), options)
    verified(os.path.abspath(arguments.ullage), options)
    if arguments.count >= WHOLE:
        tied(os.path.abspath(arguments.ullage), options)
        asked_for(os.path.abspath(arguments.ullage), options)
    print(f"{arguments.count} cases, {peers} of them by onnxruntime too; {dict(ways)}")
    if arguments.target == "cpu" and arguments.count >= WHOLE and not ways["ullage nbits"] * ways[INT8]:
        raise RuntimeError("nothing ran by the runtime's own product")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except RuntimeError as error:
        print(f"nbits.py: {error}", file=sys.stderr)
        sys.exit(1)
