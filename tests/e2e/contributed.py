#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Operators of com.microsoft on random data: what onnxruntime computes.

    contributed.py [--target c] ULLAGE [FAMILY]...

Each case is one node with attributes, packings, masks and absent inputs that matter; the cases of a
family are one model, so that they are compiled together. Floats may differ by 1e-4 of the largest
number of their output (by as much as quantized inputs say, where an operator quantizes), integers
by one step. Exit: 0 ok, 1 results differ or a command failed, 77 a Python package is missing.
"""

import argparse
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnxruntime
    from onnx import TensorProto, helper, numpy_helper
except ImportError as error:
    print(f"contributed.py: skipped: {error}")
    sys.exit(77)

rng = np.random.default_rng(16)
FAMILIES = {}
F32, F16, I8, U8, I32, I64 = np.float32, np.float16, np.int8, np.uint8, np.int32, np.int64


def family(function):
    FAMILIES[function.__name__] = function
    return function


def random(*shape, scale=1.0):
    return (rng.standard_normal(shape) * scale).astype(F32)


def integers(dtype, *shape):
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max + 1, shape).astype(dtype)


class Case:
    """One node: `inputs` in order, (array, is_weight) or None where absent."""

    def __init__(self, name, op, inputs, outputs=1, limit=1e-4, domain="com.microsoft", rows=None,
                 like=None, free=(), version=1, steps=1, **attributes):
        self.name, self.op, self.inputs, self.limit = name, op, inputs, limit
        self.like = like  # what onnxruntime runs in its place, where it has no kernel on the CPU
        self.free = [f"{name}_{output}" for output in free]  # outputs that may be anything
        self.rows = rows  # of the first output, in each sequence, those that count
        self.outputs = ["y", *outputs] if isinstance(outputs, (list, tuple)) else [
            f"y{i}" for i in range(outputs)]
        self.domain, self.version, self.attributes = domain, version, attributes
        self.steps = steps  # that integers may differ by

    def reference(self):
        """The case itself, or its stand-in under its name."""
        if self.like is not None:
            self.like.name = self.name
        return self.like or self

    def parts(self):
        """The node, graph inputs and weights, under names of this case."""
        names, feeds, weights = [], {}, {}
        for i, value in enumerate(self.inputs):
            if value is None:
                names.append("")
                continue
            array, is_weight = value if isinstance(value, tuple) else (value, False)
            names.append(f"{self.name}_{i}")
            (weights if is_weight else feeds)[names[-1]] = np.asarray(array)
        outputs = [o and f"{self.name}_{o}" for o in self.outputs]
        node = helper.make_node(self.op, names, outputs, name=self.name, domain=self.domain,
                                **self.attributes)
        return node, feeds, weights


def weight(array):
    return (array, True)


def one(value, dtype=F32):
    return weight(np.asarray(value, dtype))


def build(cases):
    nodes, feeds, weights = [], {}, {}
    for case in cases:
        node, more, constants = case.parts()
        nodes.append(node)
        feeds.update(more)
        weights.update(constants)
    outputs = [o for node in nodes for o in node.output if o]
    graph = helper.make_graph(
        nodes, "contributed",
        [helper.make_tensor_value_info(k, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
         for k, v in feeds.items()],
        [helper.make_tensor_value_info(o, TensorProto.FLOAT, None) if o.endswith("_qk") else
         helper.make_empty_tensor_value_info(o) for o in outputs],
        [numpy_helper.from_array(v, k) for k, v in weights.items()])
    domains = {"": 17, "com.microsoft": 1}
    domains.update((case.domain, case.version) for case in cases if case.domain)
    model = helper.make_model(graph, ir_version=8, opset_imports=[
        helper.make_opsetid(domain, version) for domain, version in domains.items()])
    return model, feeds, outputs


def expect(model, feeds, outputs):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options,
                                           providers=["CPUExecutionProvider"])
    return dict(zip(outputs, session.run(outputs, feeds)))


def difference(case, got, want):
    """What is wrong, or ""."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype}{got.shape}, expected {want.dtype}{want.shape}"
    if want.size == 0:
        return ""
    if want.dtype.kind in "iu":
        steps = np.abs(got.astype(I64) - want.astype(I64)).max()
        return f"{steps} steps" if steps > case.steps else ""
    got, want = got.astype(np.float64), want.astype(np.float64)
    finite = np.isfinite(want)
    if not np.array_equal(np.isnan(got), np.isnan(want)):
        return "NaN in one of them"
    largest = np.abs(want[finite]).max(initial=1e-3)
    error = np.abs(got - want)[finite].max(initial=0) / largest
    return f"relative error {error:.2g}" if error > case.limit else ""


def run(ullage, target, cases):
    """A text for each case that is wrong."""
    model, feeds, _ = build(cases)
    try:
        want = expect(*build([case.reference() for case in cases]))
    except Exception as error:  # onnxruntime's own types have no common base
        if len(cases) > 1:
            return [text for case in cases for text in run(ullage, target, [case])]
        return [f"{cases[0].name}: onnxruntime refuses it: {error}"]
    for value in model.graph.output:
        array = want[value.name]
        value.CopyFrom(helper.make_tensor_value_info(
            value.name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape))
    with tempfile.TemporaryDirectory() as folder:
        path, program = os.path.join(folder, "m.onnx"), os.path.join(folder, "m")
        with open(path, "wb") as file:
            file.write(model.SerializeToString())
        done = subprocess.run([ullage, "compile", "--target", target, "--cflags", "-O1", path, "-o",
                               program], capture_output=True, text=True)
        if done.returncode == 0:
            command = [program, "--output-dir", os.path.join(folder, "out")]
            for i, (name, array) in enumerate(feeds.items()):
                np.save(os.path.join(folder, f"{i}.npy"), array)
                command += ["--input", f"{name}={folder}/{i}.npy"]
            done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            if len(cases) > 1:
                return [text for case in cases for text in run(ullage, target, [case])]
            return [f"{cases[0].name}: exit {done.returncode}: {done.stderr.strip()}"]
        wrong = []
        for case in cases:
            for output in case.parts()[0].output:
                if not output or output in case.free:
                    continue
                got, right = np.load(os.path.join(folder, "out", f"{output}.npy")), want[output]
                if case.rows is not None:
                    kept = [np.concatenate([np.moveaxis(array, -2, 1)[b, :n].ravel() for b, n in
                                            enumerate(case.rows)]) for array in (got, right)]
                    got, right = kept
                text = difference(case, got, right)
                if text:
                    wrong.append(f"{output} ({case.op}): {text}")
        return wrong


# ---- Families ----


@family
def fused():
    x, b = random(2, 3, 4), weight(random(4))
    yield Case("gelu", "Gelu", [x])
    yield Case("bias_gelu", "BiasGelu", [x, b])
    yield Case("fast_gelu", "FastGelu", [x])
    yield Case("fast_gelu_bias", "FastGelu", [x, b])
    yield Case("quick_gelu", "QuickGelu", [x])
    yield Case("quick_gelu_alpha", "QuickGelu", [x], alpha=0.7)
    for a, b in ((0, 0), (0, 1), (1, 0), (1, 1)):
        left = random(2, 5, 4, 3) if a else random(2, 5, 3, 4)
        right = random(2, 5, 6, 4) if b else random(2, 5, 4, 6)
        yield Case(f"matmul_{a}{b}", "FusedMatMul", [left, right], transA=a, transB=b, alpha=0.5)
        left, right = (np.ascontiguousarray(np.moveaxis(v, -2, 0)) if turn else v for v, turn in
                       ((random(2, 5, 3, 4), a), (random(2, 5, 4, 6), b)))
        yield Case(f"matmul_batch_{a}{b}", "FusedMatMul", [left, right], transBatchA=a,
                   transBatchB=b)
    yield Case("matmul_all", "FusedMatMul", [random(3, 2, 5, 4), random(6, 2, 5, 3)], transA=1,
               transBatchA=1, transB=1, transBatchB=1, alpha=2.0)
    image, kernel = random(1, 2, 5, 5), [weight(random(3, 2, 3, 3)), weight(random(3))]
    yield Case("conv_relu", "FusedConv", [image, *kernel], activation="Relu", pads=[1, 1, 1, 1])
    yield Case("conv_sum", "FusedConv", [image, *kernel, random(1, 3, 3, 3)],
               activation="LeakyRelu", activation_params=[0.25])
    yield Case("gemm", "FusedGemm", [random(2, 3), weight(random(4, 3)), weight(random(4))],
               transB=1, activation="Tanh")
    for metric in ("euclidean", "sqeuclidean"):
        yield Case(metric, "CDist", [random(5, 7), weight(random(4, 7))], metric=metric)
    yield Case("cdist", "CDist", [random(3, 2).astype(np.float64), random(1, 2).astype(np.float64)])
    grid = rng.uniform(-1.2, 1.2, (1, 4, 3, 2)).astype(F32)
    for mode, padding in (("bilinear", "zeros"), ("bicubic", "border"), ("nearest", "reflection")):
        yield Case(f"grid_{mode}", "GridSample", [image, grid], mode=mode, padding_mode=padding,
                   align_corners=int(mode == "bicubic"))
    yield Case("grid", "GridSample", [image, grid])


@family
def norm():
    x, scale, shift, bias = random(2, 3, 8), *(weight(random(8)) for _ in range(3))
    for name, skip in (("full", random(2, 3, 8)), ("rows", random(3, 8)), ("one", random(1, 3, 8))):
        yield Case(f"skip_{name}", "SkipLayerNormalization", [x, skip, scale, shift, bias],
                   ["", "", "sum"])
        yield Case(f"skip_rms_{name}", "SkipSimplifiedLayerNormalization", [x, skip, scale, bias],
                   ["", "", "sum"], epsilon=1e-5)
    yield Case("skip_no_shift", "SkipLayerNormalization", [x, random(2, 3, 8), scale])
    yield Case("skip_no_shift_bias", "SkipLayerNormalization", [x, random(2, 3, 8), scale, None,
                                                                bias], epsilon=1e-3)
    yield Case("skip_rms_plain", "SkipSimplifiedLayerNormalization", [x, random(2, 3, 8), scale])
    yield Case("rms", "SimplifiedLayerNormalization", [x, scale], domain="", axis=-1)
    ids, kinds = (rng.integers(0, n, (2, 5)).astype(I32) for n in (11, 2))
    words, places, segments = (weight(random(n, 8)) for n in (11, 7, 2))
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], I32)
    yield Case("embed", "EmbedLayerNormalization",
               [ids, kinds, words, places, segments, scale, shift, mask], ["mask", "sum"])
    yield Case("embed_no_segment", "EmbedLayerNormalization",
               [ids, None, words, places, None, scale, shift], ["mask"], epsilon=1e-3)
    yield Case("embed_positions", "EmbedLayerNormalization",
               [ids, kinds, words, places, segments, scale, shift, None,
                rng.integers(0, 7, (2, 5)).astype(I32)], ["", "sum"])
    yield Case("embed_positions_row", "EmbedLayerNormalization",
               [ids, kinds, words, places, segments, scale, shift, None,
                rng.integers(0, 7, (1, 5)).astype(I32)], ["mask"])
    tables = [weight(integers(U8, n, 8)) for n in (11, 7, 2)]
    row = [weight(integers(U8, 8)) for _ in range(2)]
    scales, zeros = [one(0.01 * (i + 1)) for i in range(5)], [one(100 + i, U8) for i in range(5)]
    yield Case("embed_quantized", "QEmbedLayerNormalization",
               [ids, kinds, *tables, *row, mask, *scales, *zeros], ["mask"])
    none = [None if i == 2 else v for i, v in enumerate(scales)]
    yield Case("embed_quantized_plain", "QEmbedLayerNormalization",
               [ids, None, *tables[:2], None, *row, None, *none,
                *(None if i == 2 else v for i, v in enumerate(zeros))], ["mask"])


@family
def qlinear():
    for dtype in (U8, I8):
        t, zero = dtype.__name__, 120 if dtype == U8 else -3
        x, y = integers(dtype, 1, 4, 6, 6), integers(dtype, 1, 4, 6, 6)
        a = [one(0.02), one(zero, dtype)]
        b = [one(0.013), one(zero + 5, dtype)]
        c = [one(0.0313), one(zero - 2, dtype)]
        bare = [one(0.02), None]
        for op in ("Add", "Mul"):
            yield Case(f"{t}_{op}", f"QLinear{op}", [x, *a, y, *b, *c])
            yield Case(f"{t}_{op}_row", f"QLinear{op}", [x, *a, weight(integers(dtype, 6)), *b, *c])
        yield Case(f"{t}_sigmoid", "QLinearSigmoid", [x, *a, one(1 / 256), one(zero, dtype)])
        yield Case(f"{t}_leaky", "QLinearLeakyRelu", [x, *a, *c], alpha=0.2)
        yield Case(f"{t}_leaky_bare", "QLinearLeakyRelu", [x, *bare, one(0.04), None])
        last = 0 if dtype == U8 else -128
        for axis, opset in ((-1, 13), (1, 13), (1, 12)):
            yield Case(f"{t}_softmax_{axis % 4}_{opset}", "QLinearSoftmax",
                       [x, *a, one(1 / 256), one(last, dtype)], axis=axis, opset=opset)
        yield Case(f"{t}_global", "QLinearGlobalAveragePool", [x, *a, *c])
        yield Case(f"{t}_global_last", "QLinearGlobalAveragePool", [x, *a, *c], channels_last=1)
        yield Case(f"{t}_pool", "QLinearAveragePool", [x, *a, *c], kernel_shape=[3, 2],
                   pads=[1, 0, 1, 1], strides=[2, 1])
        yield Case(f"{t}_pool_pad", "QLinearAveragePool", [x, *a, *c], kernel_shape=[3, 3],
                   pads=[1, 1, 1, 1], count_include_pad=1, strides=[2, 2])
        yield Case(f"{t}_pool_ceil", "QLinearAveragePool", [x, *a, *c], kernel_shape=[3, 3],
                   pads=[1, 1, 1, 1], ceil_mode=1, strides=[2, 2])
        yield Case(f"{t}_pool_last", "QLinearAveragePool", [x, *a, *c], kernel_shape=[2, 3],
                   channels_last=1, auto_pad="SAME_UPPER")
        yield Case(f"{t}_concat", "QLinearConcat", [*c, x, *a, y, *b], axis=1)
        yield Case(f"{t}_where", "QLinearWhere",
                   [rng.integers(0, 2, (1, 4, 1, 6)).astype(bool), x, *a, y, *b, *c])
        for keep, axes in ((1, [2, 3]), (1, [-1, 2])):
            yield Case(f"{t}_mean_{axes[0] % 4}", "QLinearReduceMean", [x, *a, *c], axes=axes,
                       keepdims=keep,
                       like=Case("", "QLinearGlobalAveragePool", [x, *a, *c]))
    image = integers(U8, 1, 5, 7, 4)
    a, c = [one(0.02), one(120, U8)], [one(0.3), one(128, U8)]
    kernel = [weight(integers(I8, 6, 4, 3, 3)), weight(np.abs(random(6, scale=0.01)) + F32(0.01)),
              weight(np.zeros(6, I8))]
    yield Case("conv_last", "QLinearConv", [image, *a, *kernel, *c,
                                            weight(integers(I8, 6).astype(I32))],
               channels_last=1, pads=[1, 1, 1, 1], strides=[2, 1])
    yield Case("conv", "QLinearConv", [np.ascontiguousarray(np.moveaxis(image, 3, 1)), *a, *kernel,
                                       *c])
    yield Case("max_pool", "NhwcMaxPool", [image], kernel_shape=[3, 3], strides=[2, 2],
               pads=[1, 1, 1, 1])


@family
def integer():
    for dtype in (U8, I8):
        t, zero = dtype.__name__, 120 if dtype == U8 else -3
        x, w = integers(U8, 5, 16), integers(dtype, 16, 6)
        a, columns = [one(0.02), one(120, U8)], weight(np.abs(random(6)) + F32(0.01))
        zeros = weight(integers(dtype, 6) // 8)
        bias = weight(rng.integers(-999, 999, 6).astype(I32))
        c = [one(0.7), one(128, U8)]
        for turn in (0, 1):
            b = weight(np.ascontiguousarray(w.T) if turn else w)
            yield Case(f"{t}_gemm_{turn}", "QGemm",
                       [x, *a, b, one(0.011), one(zero, dtype), bias, *c], transB=turn)
            yield Case(f"{t}_gemm_columns_{turn}", "QGemm",
                       [x, *a, b, columns, zeros, bias, *c], transB=turn, alpha=0.5)
            yield Case(f"{t}_gemm_float_{turn}", "QGemm",
                       [x, *a, b, columns, zeros], transB=turn, alpha=1.5)
        yield Case(f"{t}_gemm_turned", "QGemm",
                   [np.ascontiguousarray(x.T), *a, weight(w), one(0.011), one(zero, dtype), None,
                    *c], transA=1)
        more = integers(U8, 2, 5, 16)
        yield Case(f"{t}_to_float", "MatMulIntegerToFloat", [more, weight(w), a[0], one(0.011)])
        yield Case(f"{t}_to_float_all", "MatMulIntegerToFloat",
                   [more, weight(w), *[a[0], columns], a[1], zeros, weight(random(6))])
        floats = random(2, 5, 16)
        yield Case(f"{t}_dynamic", "DynamicQuantizeMatMul", [floats, weight(w), one(0.011)])
        yield Case(f"{t}_dynamic_all", "DynamicQuantizeMatMul",
                   [floats, weight(w), columns, zeros, weight(random(6))])


def masks(batch, queries, keys):
    """All forms that the CPU takes."""
    rows = rng.integers(0, 2, (batch, keys)).astype(I32)
    rows[:, 0] = 1
    each = rng.integers(0, 2, (batch, queries, keys)).astype(I32)
    each[:, :, 0] = 1
    ends = rng.integers(2, keys + 1, batch).astype(I32)
    begins = rng.integers(0, 2, batch).astype(I32)
    return {"row": rows, "each": each, "end": ends, "bounds": np.concatenate([ends, begins])}


@family
def attention():
    batch, length, width, heads = 2, 5, 16, 4
    x, w, b = random(batch, length, 12), weight(random(12, 48, scale=0.3)), weight(random(48))
    all_masks = masks(batch, length, length)
    yield Case("plain", "Attention", [x, w, b], num_heads=heads)
    yield Case("no_bias", "Attention", [x, w], num_heads=heads, scale=0.2)
    for name, mask in all_masks.items():
        yield Case(f"mask_{name}", "Attention", [x, w, b, mask], num_heads=heads)
        yield Case(f"mask_{name}_causal", "Attention", [x, w, b, mask], num_heads=heads,
                   unidirectional=1, mask_filter_value=-50.0)
    yield Case("mask_none", "Attention", [x, w, b, np.zeros((batch, length), I32)],
               num_heads=heads)
    bias = random(1, heads, length, length)
    yield Case("bias", "Attention", [x, w, b, None, None, bias], num_heads=heads)
    yield Case("bias_mask", "Attention",
               [x, w, b, all_masks["row"], None, random(batch, 1, length, length)],
               num_heads=heads, unidirectional=1)
    yield Case("sizes", "Attention", [x, weight(random(12, 40)), weight(random(40))],
               num_heads=heads, qkv_hidden_sizes=[16, 16, 8])
    yield Case("present", "Attention", [x, w, b], ["present"], num_heads=heads, unidirectional=1)
    past = random(2, batch, heads, 3, width // heads)
    longer = masks(batch, length, length + 3)
    yield Case("past", "Attention", [x, w, b, None, past], ["present"], num_heads=heads,
               unidirectional=1)
    yield Case("past_mask", "Attention", [x, w, b, longer["row"], past], ["present"],
               num_heads=heads)
    q, qw = integers(U8, batch, length, 12), weight(integers(I8, 12, 48))
    scales = [one(0.02), weight(np.abs(random(48, scale=0.01)))]
    yield Case("quantized", "QAttention",
               [q, qw, b, *scales, all_masks["end"], one(120, U8), weight(np.zeros(48, I8))],
               num_heads=heads)
    yield Case("quantized_plain", "QAttention", [q, qw, b, one(0.01), one(0.01)], num_heads=heads,
               unidirectional=1)
    yield Case("quantized_past", "QAttention",
               [q, qw, b, one(0.01), one(0.01), None, one(120, U8), one(0, I8), past], ["present"],
               num_heads=heads, unidirectional=1)


@family
def multi_head():
    batch, queries, keys, heads, size, value = 2, 4, 6, 3, 4, 5
    q = random(batch, queries, heads * size)
    k, v = random(batch, keys, heads * size), random(batch, keys, heads * value)
    bias = weight(random(heads * (2 * size + value)))
    op = "MultiHeadAttention"
    yield Case("flat", op, [q, k, v], num_heads=heads)
    yield Case("flat_bias", op, [q, k, v, bias], num_heads=heads, scale=0.3)
    for name, mask in masks(batch, queries, keys).items():
        if name != "bounds":
            yield Case(f"mask_{name}", op, [q, k, v, bias, mask], num_heads=heads)
    yield Case("score_bias", op, [q, k, v, None, None, random(1, heads, queries, keys)],
               num_heads=heads)
    yield Case("score_bias_mask", op,
               [q, k, v, None, masks(batch, queries, keys)["row"], random(batch, 1, queries, keys)],
               num_heads=heads)
    same = random(batch, queries, heads * size), random(batch, queries, heads * size)
    yield Case("causal", op, [q, *same], num_heads=heads, unidirectional=1)
    parts = [a.reshape(batch, queries, heads, size) for a in (q, *same)]
    short = weight(random(3 * heads * size))
    yield Case("packed", op, [np.stack(parts, 3)], num_heads=heads,
               like=Case("", op, [q, *same], num_heads=heads))
    yield Case("packed_bias", op, [np.stack(parts, 3), None, None, short], num_heads=heads,
               unidirectional=1,
               like=Case("", op, [q, *same, short], num_heads=heads, unidirectional=1))
    yield Case("packed_keys", op, [q, np.stack(parts[1:], 3)], num_heads=heads,
               like=Case("", op, [q, *same], num_heads=heads))
    split = random(batch, heads, keys, size), random(batch, heads, keys, size)
    yield Case("cross", op, [q, *split], num_heads=heads)
    yield Case("cross_bias", op, [q, *split, weight(random(3 * heads * size))], num_heads=heads)
    past = random(batch, heads, 3, size), random(batch, heads, 3, size)
    yield Case("past", op, [q, *same, None, None, None, *past], ["k", "v"], num_heads=heads,
               unidirectional=1)
    yield Case("past_bias", op, [q, *same, weight(random(3 * heads * size)),
                                 masks(batch, queries, queries + 3)["row"], None, *past],
               ["k", "v"], num_heads=heads)
    yield Case("present", op, [q, k, v], ["k", "v"], num_heads=heads)
    yield Case("scores", op, [q, *same], ["k", "v", "qk"], num_heads=heads)
    yield Case("scores_masked", op, [q, k, v, None, masks(batch, queries, keys)["row"],
                                     random(1, heads, queries, keys)], ["k", "v", "qk"],
               num_heads=heads)


def angles(positions, half):
    angle = np.arange(positions)[:, None] / 100 ** (np.arange(half) / half)
    return weight(np.cos(angle).astype(F32)), weight(np.sin(angle).astype(F32))


@family
def rotary():
    flat, split, op = random(2, 5, 24), random(2, 3, 5, 8), "RotaryEmbedding"
    each = rng.integers(0, 16, (2, 5)).astype(I64)
    for turn in (0, 1):
        yield Case(f"flat_{turn}", op, [flat, each, *angles(16, 4)], interleaved=turn)
        yield Case(f"flat_offset_{turn}", op, [flat, np.int64([3]), *angles(16, 4)],
                   interleaved=turn)
        yield Case(f"split_{turn}", op, [split, each, *angles(16, 4)], interleaved=turn)
        yield Case(f"split_offset_{turn}", op, [split, one([2], I64), *angles(16, 4)],
                   interleaved=turn, scale=2.0)
        yield Case(f"part_{turn}", op, [flat, each, *angles(16, 2)], interleaved=turn, num_heads=3,
                   rotary_embedding_dim=4)
        yield Case(f"part_split_{turn}", op, [split, each, *angles(16, 3)], interleaved=turn,
                   num_heads=3, rotary_embedding_dim=6)


@family
def group_query():
    batch, length, heads, groups, size = 2, 6, 4, 2, 32
    op = "GroupQueryAttention"
    q, k, v = (random(batch, length, n * size) for n in (heads, groups, groups))
    ends = np.int32([length - 1, 3])
    full, total = np.int32([length - 1] * batch), one(length, I32)
    rows = [length, 4]

    def case(name, inputs, outputs=("k", "v"), **attributes):
        return Case(name, op, inputs, outputs, num_heads=heads, kv_num_heads=groups, **attributes)

    yield case("plain", [q, k, v, None, None, full, total])
    yield case("padded", [q, k, v, None, None, ends, total], [], rows=rows)
    yield case("no_total", [q, k, v, None, None, full, np.int32(length)])
    yield case("scaled", [q, k, v, None, None, full, total], scale=0.3, softcap=2.0)
    yield case("packed", [np.concatenate([q, k, v], 2), None, None, None, None, full, total])
    for window in (1, 3, 6, 9):
        yield case(f"window_{window}", [q, k, v, None, None, full, total],
                   local_window_size=window)
    for turn in (0, 1):
        yield case(f"rotary_{turn}", [q, k, v, None, None, full, total, *angles(12, size // 2)],
                   do_rotary=1, rotary_interleaved=turn)
    yield case("rotary_part", [q, k, v, None, None, full, total, *angles(12, 8)], do_rotary=1)
    yield case("rotary_packed", [np.concatenate([q, k, v], 2), None, None, None, None, full, total,
                                 *angles(12, size // 2)], do_rotary=1)
    ids = np.arange(3, 3 + length, dtype=I64)[None].repeat(batch, 0)
    yield case("rotary_ids", [q, k, v, None, None, full, total, *angles(12, size // 2), ids],
               do_rotary=1)
    bias = random(1, heads, length, length)
    more = [None, None, None]
    yield case("bias", [q, k, v, None, None, full, total, *more, bias])
    yield case("bias_window", [q, k, v, None, None, full, total, *more, bias], local_window_size=2)
    yield case("smooth", [q, k, v, None, None, full, total], smooth_softmax=1)
    yield case("smooth_window", [q, k, v, None, None, full, total], smooth_softmax=1,
               local_window_size=2)
    sink = weight(random(heads))
    yield case("sink", [q, k, v, None, None, full, total, *more, None, sink])
    yield case("sink_window", [q, k, v, None, None, full, total, *more, None, sink],
               local_window_size=3)
    empty = [random(batch, groups, 0, size)] * 2
    yield case("empty_past", [q, k, v, *empty, full, total])
    new = [a[:, :1].copy() for a in (q, k, v)]
    past = [random(batch, groups, 5, size) for _ in range(2)]
    yield case("grown", [*new, *past, np.int32([5, 5]), one(6, I32)])
    yield case("grown_rotary", [*new, *past, np.int32([5, 5]), one(6, I32),
                                *angles(12, size // 2)], do_rotary=1)
    yield case("grown_window", [*new, *past, np.int32([5, 5]), one(6, I32)], local_window_size=3)
    yield case("grown_ragged", [*new, *past, np.int32([5, 3]), one(6, I32)], free=("k", "v"))
    yield case("grown_ragged_rotary", [*new, *past, np.int32([5, 3]), one(6, I32),
                                       *angles(12, size // 2)], do_rotary=1, free=("k", "v"))
    yield case("grown_ragged_window", [*new, *past, np.int32([5, 3]), one(6, I32)],
               free=("k", "v"), local_window_size=3)
    alone = [a[:1].copy() for a in (q, k, v)]
    first = [a[:1].copy() for a in past]
    yield case("chunk", [*alone, *first, np.int32([10]), one(11, I32), *angles(12, size // 2)],
               do_rotary=1)
    yield case("chunk_sink", [*alone, *first, np.int32([10]), one(11, I32), *more, None, sink])
    yield case("both_ways", [q, k, v, None, None, full, total], causal=0)


@family
def lstm():
    steps, batch, width, size = 4, 2, 5, 6
    op = "DynamicQuantizeLSTM"

    def inputs(directions, dtype=I8, columns=False, bias=True, lengths=None, states=True,
               peepholes=False, batch=batch):
        count = 4 * size
        shape = (directions, count) if columns else (directions,)
        scales = [weight(np.abs(random(*shape, scale=0.003)) + F32(0.001)) for _ in range(2)]
        zeros = [weight(np.full(shape, 128 if dtype == U8 else 0, dtype))] * 2
        state = [random(directions, batch, size, scale=0.5) for _ in range(2)]
        return [random(steps, batch, width), weight(integers(dtype, directions, width, count)),
                weight(integers(dtype, directions, size, count)),
                weight(random(directions, 8 * size, scale=0.2)) if bias else None, lengths,
                *(state if states else (None, None)),
                weight(random(directions, 3 * size, scale=0.3)) if peepholes else None,
                scales[0], zeros[0], scales[1], zeros[1]]

    def case(name, of, **attributes):
        return Case(name, op, of, 3, limit=2e-3, hidden_size=size, **attributes)

    yield case("plain", inputs(1, bias=False, states=False))
    yield case("bias", inputs(1))
    yield case("unsigned", inputs(1, dtype=U8))
    yield case("columns", inputs(1, columns=True))
    yield case("columns_unsigned", inputs(1, dtype=U8, columns=True))
    yield case("peepholes", inputs(1, peepholes=True))
    yield case("backward", inputs(1), direction="reverse")
    yield case("both", inputs(2), direction="bidirectional")
    yield case("both_columns", inputs(2, columns=True), direction="bidirectional")
    yield case("one", inputs(1, batch=1))
    yield case("clip", inputs(1), clip=0.3)
    yield case("coupled", inputs(1), input_forget=1)
    yield case("functions", inputs(1), activations=["HardSigmoid", "Relu", "Softsign"],
               activation_alpha=[0.3], activation_beta=[0.4])
    lengths = np.int32([4, 2])
    yield case("lengths", inputs(1, lengths=lengths))
    yield case("lengths_backward", inputs(1, lengths=lengths), direction="reverse")
    yield case("lengths_both", inputs(2, lengths=lengths), direction="bidirectional")


# ---- What is refused ----


def bad():
    """Cases with the exit code and what the message says."""
    x, w = random(2, 5, 12), weight(random(12, 48))
    q, u = random(2, 6, 32), integers(U8, 1, 4, 6, 6)
    full, total, scale, zero = np.int32([5, 5]), one(6, I32), one(0.1), one(3, U8)
    yield 2, "num_heads", Case("heads", "Attention", [x, w], num_heads=5)
    yield 2, "rows", Case("rows", "Attention", [x, weight(random(10, 48))], num_heads=4)
    yield 2, "mask", Case("mask", "Attention", [x, w, None, np.ones((2, 4), I32)], num_heads=4)
    yield 3, "total_sequence_length", Case("mask_4", "Attention", [
        x, w, None, np.ones((2, 1, 5, 5), I32)], num_heads=4)
    yield 3, "past_present_share_buffer", Case("shared", "Attention", [x, w], num_heads=4,
                                               past_present_share_buffer=1)
    yield 3, "do_rotary", Case("turned", "Attention", [x, w], num_heads=4, do_rotary=1)
    yield 2, "query, key and value", Case("no_key", "MultiHeadAttention", [q], num_heads=4)
    yield 2, "query, key and value", Case("wide", "MultiHeadAttention", [q, q, q], num_heads=5)
    yield 2, "bias", Case("bias", "MultiHeadAttention", [q, q, q, weight(random(95))], num_heads=4)
    yield 3, "in place", Case("beams", "MultiHeadAttention", [
        q, q, q, None, None, None, None, None, one(3, I32)], num_heads=4)
    most = dict(num_heads=1 << 62, kv_num_heads=1 << 62)
    yield 2, "num_heads", Case("huge", "GroupQueryAttention", [
        q, None, None, None, None, full, total], **most)
    most = dict(num_heads=2, kv_num_heads=1)
    some = [random(2, 6, 64), random(2, 6, 32), random(2, 6, 32)]
    past = [random(2, 1, 3, 32)] * 2
    yield 3, "--const", Case("total", "GroupQueryAttention", [*some, *past, full, np.int32(9)],
                             **most)
    yield 2, "together", Case("half", "GroupQueryAttention", [*some, past[0], None, full, total],
                              **most)
    yield 2, "seqlens_k", Case("ends", "GroupQueryAttention", [
        *some, None, None, np.int32([5] * 3), total], **most)
    yield 2, "cos_cache", Case("angles", "GroupQueryAttention", [
        *some, None, None, full, total], do_rotary=1, **most)
    yield 2, "wider", Case("wide_angles", "GroupQueryAttention", [
        *some, None, None, full, total, *angles(9, 17)], do_rotary=1, **most)
    yield 3, "qk_output", Case("qk", "GroupQueryAttention", [*some, None, None, full, total],
                               ["k", "v", "qk"], qk_output=1, **most)
    yield 3, "is_packed_batching", Case("ragged", "RotaryEmbedding", [
        q, np.int64([0]), *angles(9, 8)], is_packed_batching=1)
    yield 2, "heads", Case("rotary", "RotaryEmbedding", [q, np.int64([0]), *angles(9, 8)],
                           num_heads=3)
    ids = np.zeros((2, 9), I32)
    rows = [weight(random(7, 8))] * 2
    yield 2, "positions", Case("long", "EmbedLayerNormalization", [
        ids, None, *rows, None, weight(random(8)), weight(random(8))])
    yield 2, "together", Case("segments", "EmbedLayerNormalization", [
        ids, ids, *rows, None, weight(random(8)), weight(random(8))])
    yield 2, "inputs are missing", Case("few", "QLinearAdd", [u, scale, zero])
    yield 2, "scale and a zero point", Case("parts", "QLinearConcat", [
        scale, zero, u, scale, zero, u], axis=1)
    yield 2, "transpose", Case("vector", "FusedMatMul", [random(4), random(4, 3)], transA=1)
    gates = [random(3, 2, 5), weight(integers(I8, 1, 5, 24)), weight(integers(I8, 1, 6, 24))]
    none, numbers = [None] * 5, [one([0.1]), one([0], I8)]
    yield 2, "three functions", Case("names", "DynamicQuantizeLSTM", [
        *gates, *none, *numbers, *numbers], hidden_size=6, activations=["Tanh"])
    yield 3, "activation", Case("affine", "DynamicQuantizeLSTM", [
        *gates, *none, *numbers, *numbers], hidden_size=6, activations=["Affine", "Tanh", "Tanh"])
    yield 2, "direction", Case("sideways", "DynamicQuantizeLSTM", [
        *gates, *none, *numbers, *numbers], hidden_size=6, direction="up")
    yield 2, "input 1", Case("columns", "DynamicQuantizeLSTM", [
        gates[0], weight(integers(I8, 1, 4, 24)), gates[2], *none, *numbers, *numbers],
        hidden_size=6)
    yield 2, "scales", Case("scales", "DynamicQuantizeLSTM", [
        *gates, *none, one([0.1, 0.2]), *numbers[1:], *numbers], hidden_size=6)
    yield 3, "ORT_ENABLE_EXTENDED", Case("nchwc", "ReorderInput", [random(1, 8, 4, 4)],
                                         domain="com.microsoft.nchwc")
    yield 3, "BeamSearch", Case("search", "BeamSearch", [x])


def refused(ullage, code, text, case):
    """What is wrong with how a case is refused, or ""."""
    model, _, _ = build([case])
    for value in model.graph.output:
        value.type.tensor_type.elem_type = TensorProto.FLOAT
    model.opset_import.append(helper.make_opsetid("com.microsoft.nchwc", 1))
    done = subprocess.run([ullage, "plan", "--target", "c", "-"], input=model.SerializeToString(),
                          capture_output=True)
    message = done.stderr.decode()
    if done.returncode != code or text not in message or case.name not in message:
        return f"{case.name}: exit {done.returncode}, expected {code} with {text!r}: {message}"
    return ""


def has_reference(name, case):
    """False where onnxruntime adds bytes otherwise than ONNX says, as it does without VNNI."""
    from saturation import sums_saturate

    sums_bytes = name in ("qlinear", "integer", "lstm") or case.op == "QAttention"
    return not sums_bytes or not sums_saturate()


def main(families, bad, default=None):
    """`default` are the families that are run where none is named: all of them."""
    parser = argparse.ArgumentParser()
    parser.add_argument("ullage")
    parser.add_argument("--target", default="c")
    parser.add_argument("families", nargs="*")
    options = parser.parse_args()
    failed = count = 0
    for name in options.families or default or families:
        all_cases = list(families[name]())
        cases = [case for case in all_cases if has_reference(name, case)]
        count += len(cases)
        if len(cases) < len(all_cases):
            print(f"{name}: {len(all_cases) - len(cases)} cases left out, which hold on processors with VNNI")
        if not cases:
            continue
        for text in run(options.ullage, options.target, cases):
            failed += 1
            print(f"FAIL {name}/{text}")
    for code, text, case in [] if options.families else bad():
        wrong = refused(options.ullage, code, text, case)
        count += 1
        failed += wrong != ""
        print(f"FAIL bad/{wrong}\n" if wrong else "", end="")
    print(f"{count} cases, {failed} wrong")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main(FAMILIES, bad))
