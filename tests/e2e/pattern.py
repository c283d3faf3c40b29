#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Operators that a model spells out: found, or left alone, and the results are those of the parts.

    pattern.py ULLAGE [--target c] [--threads N] [--keep DIR] [CASE ...]

All cases stand side by side in one model, each with outputs of its own. It is compiled as it is and
with --no-pass pattern; both run on the same random inputs, the first also with --guard. Outputs must
agree, NaN for NaN, with each other and with onnxruntime's where it is installed; and what the pass
makes of each case must be what the case says. Exit: 0 ok, 1 not, 77 a Python package is missing.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ImportError as error:
    print(f"pattern.py: skipped: {error}")
    sys.exit(77)

LOWEST = float(np.finfo(np.float32).min)


class Model:
    def __init__(self):
        self.nodes, self.weights, self.inputs, self.outputs = [], [], [], []
        self.feeds, self.cases, self.case = {}, {}, ""
        self.rng = np.random.default_rng(5)

    def name(self):
        return f"{self.case}_{len(self.nodes) + len(self.weights) + len(self.inputs)}"

    def x(self, *shape, values=None, scale=1.0):
        """An input, of random numbers where none are given."""
        name = self.name()
        if values is None:
            values = self.rng.normal(0, scale, shape).astype(np.float32)
        self.feeds[name] = values
        kind = helper.np_dtype_to_tensor_dtype(values.dtype)
        self.inputs.append(helper.make_tensor_value_info(name, kind, list(values.shape)))
        return name

    def c(self, values, dtype=np.float32):
        name = self.name()
        self.weights.append(numpy_helper.from_array(np.array(values, dtype), name))
        return name

    def op(self, kind, *inputs, **attributes):
        inputs = [v if isinstance(v, str) else self.c(v) for v in inputs]
        name = self.name()
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    def reshape(self, x, *shape):
        return self.op("Reshape", x, self.c(shape, np.int64))

    def t(self, x, *perm):
        return self.op("Transpose", x, perm=list(perm))

    def out(self, value):
        # by a node of its own, so that no case ends in the name of an output
        name = f"{self.case}_out{len(self.outputs)}"
        self.nodes.append(helper.make_node("Neg", [value], [name], name=name))
        self.outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, None))

    def save(self, path):
        graph = helper.make_graph(self.nodes, "patterns", self.inputs, self.outputs, self.weights)
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9
        )
        onnx.save(onnx.shape_inference.infer_shapes(model), path)


CASES = {}


def case(found, count=1):
    """What the pass must make of the function's nodes: `count` nodes `found`, or none."""

    def register(function):
        CASES[function.__name__] = (function, found, count)
        return function

    return register


def softmax(m, scores):
    return m.op("Softmax", scores, axis=-1)


def qkv(m, batch, heads, queries, keys, depth, value_depth=None):
    q, k = m.x(batch, heads, queries, depth), m.x(batch, heads, keys, depth)
    return q, k, m.x(batch, heads, keys, value_depth or depth)


@case("FusedAttention")
def plain(m):
    q, k, v = qkv(m, 2, 3, 5, 7, 8, 6)
    scores = m.op("Div", m.op("MatMul", q, m.t(k, 0, 1, 3, 2)), 8**0.5)
    m.out(m.op("MatMul", softmax(m, scores), v))


@case("FusedAttention")
def long(m):
    """Several tiles of keys, several blocks of queries, the last ones shorter."""
    q, k, v = qkv(m, 1, 2, 300, 523, 16, 24)
    scores = m.op("Mul", 0.25, m.op("MatMul", q, m.t(k, 0, 1, 3, 2)))
    m.out(m.t(m.op("MatMul", softmax(m, scores), v), 0, 2, 1, 3))


def causal_where(m, length, low, inverse=False):
    q, k, v = qkv(m, 1, 2, length, length, 8)
    scores = m.op("Mul", m.op("MatMul", q, m.t(k, 0, 1, 3, 2)), 0.3)
    see = np.tril(np.ones((1, 1, length, length), bool))
    if inverse:
        scores = m.op("Where", m.c(~see, bool), low, scores)
    else:
        scores = m.op("Where", m.c(see, bool), scores, low)
    m.out(m.t(m.op("MatMul", softmax(m, scores), v), 0, 2, 1, 3))


@case("FusedAttention")
def causal(m):
    causal_where(m, 9, LOWEST)


@case("FusedAttention")
def causal_long(m):
    causal_where(m, 600, -np.inf, inverse=True)


@case("FusedAttention")
def causal_added(m):
    q, k, v = qkv(m, 1, 2, 9, 9, 8)
    added = np.triu(np.full((9, 9), -1e5, np.float32), 1)
    scores = m.op("Add", m.c(added), m.op("MatMul", q, m.t(k, 0, 1, 3, 2)))
    m.out(m.op("MatMul", softmax(m, scores), v))


@case("FusedAttention")
def key_mask(m):
    """As BERT has it: a mask of the keys, from an input; scaled queries."""
    q, k, v = qkv(m, 2, 2, 6, 6, 4)
    seen = m.x(values=np.array([[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 1]], np.float32))
    seen = m.op("Unsqueeze", seen, m.c([1, 2], np.int64))
    mask = m.op("Mul", m.op("Sub", 1.0, seen), LOWEST)
    scores = m.op("MatMul", m.op("Mul", q, 0.5), m.t(k, 0, 1, 3, 2))
    m.out(m.op("MatMul", softmax(m, m.op("Add", scores, mask)), v))


@case("FusedAttention")
def hidden_rows(m):
    """No key is seen by some queries: NaN by -inf, the mean of all values by the lowest float."""
    for low in (-np.inf, LOWEST):
        q, k, v = qkv(m, 1, 1, 6, 300, 4)
        seen = np.ones((1, 1, 6, 300), bool)
        seen[:, :, 2] = seen[:, :, 4] = False
        seen[:, :, 1, :270] = False
        scores = m.op("MatMul", q, m.t(k, 0, 1, 3, 2))
        scores = m.op("Where", m.x(values=seen), scores, low)
        m.out(m.op("MatMul", softmax(m, scores), v))


CASES["hidden_rows"] = (hidden_rows, "FusedAttention", 2)


@case("FusedAttention", 3)
def causal_and_padded(m):
    """As GPT-2 has it: the lowest float hides later keys and, on the left, the padding. Rows that the
    two hide together are means of the values that only one of them hides."""
    see = np.tril(np.ones((1, 1, 40, 40), bool))
    for low, pad in ((LOWEST, LOWEST), (LOWEST, -1e4), (-np.inf, LOWEST)):
        q, k, v = qkv(m, 1, 2, 40, 40, 8)
        scores = m.op("Where", m.c(see, bool), m.op("MatMul", q, m.t(k, 0, 1, 3, 2)), low)
        padding = np.where(np.arange(40) < 5, pad, 0).astype(np.float32)
        scores = m.op("Add", scores, m.x(values=padding.reshape(1, 1, 1, 40)))
        m.out(m.op("MatMul", softmax(m, scores), v))


@case("FusedAttention", 0)
def replaced_scores(m):
    """A Where of a finite number is no addition: scores may be as low, or were hidden before."""
    see = np.tril(np.ones((1, 1, 40, 40), bool))
    seen = np.broadcast_to(np.arange(40) >= 5, (1, 1, 40, 40)).copy()
    for low in (-1e4, LOWEST):
        q, k, v = qkv(m, 1, 2, 40, 40, 8)
        scores = m.op("MatMul", m.op("Mul", q, 3e3), m.t(k, 0, 1, 3, 2))
        if low == LOWEST:
            scores = m.op("Where", m.x(values=seen), scores, low)
        scores = m.op("Where", m.c(see, bool), scores, low)
        m.out(m.op("MatMul", softmax(m, scores), v))


@case("FusedAttention", 3)
def lowest_of_f16(m):
    """In a model of f16 what stands for its lowest number hides keys whose scores are as large."""
    keys = np.arange(40)
    large = np.where(keys % 2 == 0, 6000.0, -6000.0) + 32.0 * keys
    some = np.broadcast_to(keys % 2 == 1, (40, 40))
    for low, see in ((-1e4, some), (-65504.0, some), (-1e4, np.tril(np.ones((40, 40), bool)))):
        q, k, v = (np.zeros((1, 2, 40, 8), np.float32) for _ in range(3))
        q[..., 0], k[..., 0], v[..., 1] = 1, large, keys
        q, k, v = (m.op("Cast", m.x(values=x), to=TensorProto.FLOAT16) for x in (q, k, v))
        scores = m.op("MatMul", q, m.t(k, 0, 1, 3, 2))
        scores = m.op("Where", m.c(see, bool), scores, m.c(low, np.float16))
        m.out(m.op("Cast", m.op("MatMul", softmax(m, scores), v), to=TensorProto.FLOAT))


@case("FusedAttention", 2)
def added_numbers(m):
    """Numbers that hide nothing: scores are larger; NaN."""
    for nan in (False, True):
        q, k, v = qkv(m, 1, 2, 40, 40, 8)
        added = np.triu(np.full((1, 1, 40, 40), -1e4, np.float32), 1)
        if nan:
            added[..., 7, 3] = np.nan
        scores = m.op("MatMul", m.op("Mul", q, 3e3), m.t(k, 0, 1, 3, 2))
        m.out(m.op("MatMul", softmax(m, m.op("Add", scores, m.c(added))), v))


@case("FusedAttention", 2)
def empty_rows(m):
    """As torch exports a boolean mask: a query that sees no key gives zeros; one tile, several."""
    for keys in (9, 300):
        q, k, v = qkv(m, 2, 2, 6, keys, 4)
        seen = m.rng.random((2, 1, 6, keys)) < 0.6
        seen[0, :, 2] = seen[1, :, 4] = seen[1, :, 5] = False
        seen[:, :, 1, : keys - 2] = False
        mask = m.op("Where", m.x(values=seen), 0.0, -np.inf)
        scores = m.op("MatMul", m.op("Mul", q, 0.7), m.op("Mul", m.t(k, 0, 1, 3, 2), 0.7))
        weights = softmax(m, m.op("Add", scores, mask))
        weights = m.op("Where", m.op("IsNaN", weights), 0.0, weights)
        m.out(m.op("MatMul", weights, v))


@case("FusedAttention")
def repeated_keys(m):
    """Keys and values of three heads for six, repeated by Expand as Llama has it."""
    q, k, v = m.x(2, 6, 5, 8), m.x(2, 3, 7, 8), m.x(2, 3, 7, 8)

    def repeated(x):
        wide = m.op("Unsqueeze", x, m.c([2], np.int64))
        wide = m.op("Expand", wide, m.c([2, 3, 2, 7, 8], np.int64))
        return m.reshape(wide, 2, 6, 7, 8)

    scores = m.op("Mul", m.op("MatMul", q, m.t(repeated(k), 0, 1, 3, 2)), 0.35)
    m.out(m.op("MatMul", softmax(m, scores), repeated(v)))


@case("FusedAttention")
def windows(m):
    """As Swin has it: a bias of each head, and a mask of each window in five dimensions."""
    q, k, v = qkv(m, 4, 3, 10, 10, 8)
    bias = m.op("Gather", m.x(31, 3), m.c(m.rng.integers(0, 31, 100), np.int64), axis=0)
    bias = m.op("Unsqueeze", m.t(m.reshape(bias, 10, 10, 3), 2, 0, 1), m.c([0], np.int64))
    scores = m.op("Add", m.op("MatMul", m.op("Mul", q, 0.3), m.t(k, 0, 1, 3, 2)), bias)
    mask = m.reshape(m.x(4, 10, 10), 1, 4, 1, 10, 10)
    scores = m.op("Add", m.reshape(scores, 1, 4, 3, 10, 10), mask)
    weights = softmax(m, m.reshape(scores, 4, 3, 10, 10))
    m.out(m.reshape(m.t(m.op("MatMul", weights, v), 0, 2, 1, 3), 4, 10, 24))


@case("FusedAttention")
def folded_heads(m):
    """Heads in the batch, told apart for the mask only (BART, T5)."""
    q, k, v = m.x(6, 5, 8), m.x(6, 7, 8), m.x(6, 7, 8)
    scores = m.op("MatMul", q, m.t(k, 0, 2, 1))
    scores = m.op("Add", m.reshape(scores, 2, 3, 5, 7), m.x(2, 1, 5, 7))
    weights = softmax(m, m.reshape(scores, 6, 5, 7))
    m.out(m.t(m.op("MatMul", weights, v), 1, 0, 2))


@case("FusedAttention")
def one_head(m):
    q, k, v = m.x(5, 8), m.x(7, 8), m.x(7, 6)
    m.out(m.op("MatMul", softmax(m, m.op("MatMul", q, m.t(k, 1, 0))), v))


@case("FusedAttention")
def shared_keys(m):
    """One head of keys and values for all (MQA)."""
    q, k, v = m.x(2, 4, 5, 8), m.x(2, 1, 7, 8), m.x(2, 1, 7, 8)
    m.out(m.op("MatMul", softmax(m, m.op("MatMul", q, m.t(k, 0, 1, 3, 2))), v))


@case("FusedAttention")
def from_projection(m):
    """Q, K and V are views of one matrix; keys come transposed in one go."""
    parts = m.reshape(m.x(2, 6, 3 * 4 * 8), 2, 6, 3, 4, 8)
    parts = m.t(parts, 2, 0, 3, 1, 4)
    q, k, v = (m.op("Gather", parts, m.c(i, np.int64), axis=0) for i in range(3))
    scores = m.op("MatMul", q, m.op("Mul", m.t(k, 0, 1, 3, 2), 0.35))
    y = m.op("MatMul", softmax(m, scores), v)
    m.out(m.reshape(m.t(y, 0, 2, 1, 3), 2, 6, 32))


@case("FusedAttention")
def softmax_spelled_out(m):
    q, k, v = qkv(m, 1, 2, 5, 5, 4)
    scores = m.op("MatMul", q, m.t(k, 0, 1, 3, 2))
    e = m.op("Exp", m.op("Sub", scores, m.op("ReduceMax", scores, m.c([-1], np.int64))))
    m.out(m.op("MatMul", m.op("Div", e, m.op("ReduceSum", e, m.c([-1], np.int64))), v))


@case("FusedAttention")
def einsums_of_attention(m):
    q, k, v = m.x(2, 5, 3, 8), m.x(2, 7, 3, 8), m.x(2, 7, 3, 6)
    scores = m.op("Div", m.op("Einsum", q, k, equation="bqhd,bkhd->bhqk"), 8**0.5)
    m.out(m.op("Einsum", softmax(m, scores), v, equation="bhqk,bkhd->bqhd"))


@case("Einsum", 2)
def einsums(m):
    """Products, labels joined and turned; no product: columns apart, a label of one operand."""
    for equation, a, b in (
        ("...i,ihd->...hd", (2, 5, 7), (7, 3, 4)),
        ("bqhd,hdo->bqo", (2, 5, 3, 4), (3, 4, 7)),
        ("...ij, ...kj -> ...ki", (2, 3, 5, 4), (2, 3, 6, 4)),
        ("kji,bkjn->bin", (4, 3, 5), (2, 4, 3, 6)),
        ("ij,kj->ki", (5, 4), (6, 4)),
        ("cij,jk->ik", (2, 5, 4), (4, 3)),
    ):
        m.out(m.op("Einsum", m.x(*a), m.x(*b), equation=equation))


@case("FusedAttention", 0)
def scaled_mask(m):
    """The scale comes after the mask, so it counts for the mask as well."""
    q, k, v = qkv(m, 1, 2, 5, 5, 4)
    scores = m.op("Add", m.op("MatMul", q, m.t(k, 0, 1, 3, 2)), m.x(1, 1, 5, 5))
    m.out(m.op("MatMul", softmax(m, m.op("Mul", scores, 0.5)), v))


@case("FusedAttention", 0)
def other_axis(m):
    q, k, v = qkv(m, 1, 2, 5, 5, 4)
    scores = m.op("MatMul", q, m.t(k, 0, 1, 3, 2))
    m.out(m.op("MatMul", m.op("Softmax", scores, axis=2), v))


@case("FusedAttention", 0)
def weights_wanted(m):
    q, k, v = qkv(m, 1, 2, 5, 5, 4)
    weights = softmax(m, m.op("MatMul", q, m.t(k, 0, 1, 3, 2)))
    m.out(weights)
    m.out(m.op("MatMul", weights, v))


@case("FusedAttention", 0)
def shallow_hiding(m):
    """A number that a score can reach hides nothing; rows may be hidden altogether."""
    for low in (-5.0, -1e4):
        q, k, v = qkv(m, 1, 2, 5, 5, 4)
        scores = m.op("MatMul", q, m.t(k, 0, 1, 3, 2))
        seen = m.rng.random((1, 1, 5, 5)) < 0.5
        seen[:, :, 1] = False
        scores = m.op("Where", m.x(values=seen), scores, low)
        m.out(m.op("MatMul", softmax(m, scores), v))


@case("Gelu", 2)
def gelu(m):
    x = m.x(3, 40, scale=3)
    gate = m.op("Add", m.op("Erf", m.op("Div", x, 2**0.5)), 1.0)
    m.out(m.op("Mul", m.op("Mul", x, gate), 0.5))
    cube = m.op("Mul", m.op("Pow", x, 3.0), 0.044715)
    inner = m.op("Mul", m.op("Add", x, cube), (2 / np.pi) ** 0.5)
    m.out(m.op("Mul", m.op("Mul", x, 0.5), m.op("Add", m.op("Tanh", inner), 1.0)))


@case("Swish", 2)
def swish(m):
    x = m.x(3, 40, scale=5)
    m.out(m.op("Mul", x, m.op("Sigmoid", m.op("Mul", x, 1.702))))
    m.out(m.op("Div", x, m.op("Add", 1.0, m.op("Exp", m.op("Neg", x)))))


@case("HardSwish", 2)
def hard_swish(m):
    x = m.x(3, 40, scale=5)
    clipped = m.op("Clip", m.op("Add", x, 3.0), 0.0, 6.0)
    m.out(m.op("Div", m.op("Mul", x, clipped), 6.0))
    m.out(m.op("Mul", x, m.op("HardSigmoid", x, alpha=1 / 6, beta=0.5)))


@case("LayerNormalization", 2)
def layer_norm(m):
    x = m.op("Add", m.x(3, 5, 24, scale=2), 4.0)
    for axes in ([-1], [1, 2]):
        axes = m.c(axes, np.int64)
        centred = m.op("Sub", x, m.op("ReduceMean", x, axes))
        variance = m.op("ReduceMean", m.op("Pow", centred, 2.0), axes)
        root = m.op("Sqrt", m.op("Add", variance, 1e-5))
        scaled = m.op("Mul", m.x(24), m.op("Div", centred, root))
        m.out(m.op("Add", scaled, m.x(24)))


@case("FusedRotary", 3)
def rotary(m):
    """Halves, as Llama has it, of a part of each head's elements; neighbours, as GPT-J has it; and
    the halves apart, with one angle for each pair."""
    whole = m.x(2, 3, 5, 10)

    def part(x, begin, end, step=1):
        ints = ([begin], [end], [-1], [step])
        return m.op("Slice", x, *(m.c(i, np.int64) for i in ints))

    x = part(whole, 0, 8)
    angles = m.op("Unsqueeze", m.x(2, 5, 8), m.c([1], np.int64))
    turned = m.op("Concat", m.op("Neg", part(x, 4, 2**62)), part(x, 0, 4), axis=-1)
    y = m.op("Add", m.op("Mul", x, m.op("Cos", angles)), m.op("Mul", turned, m.op("Sin", angles)))
    m.out(m.op("Concat", y, part(whole, 8, 2**62), axis=-1))
    x, last = m.x(2, 5, 3, 8), m.c([-1], np.int64)
    first = m.op("Unsqueeze", m.op("Neg", part(x, 1, 2**62, 2)), last)
    second = m.op("Unsqueeze", part(x, 0, 2**62, 2), last)
    turned = m.reshape(m.op("Concat", first, second, axis=-1), 2, 5, 3, 8)
    m.out(m.op("Add", m.op("Mul", m.x(5, 1, 8), turned), m.op("Mul", x, m.x(1, 5, 1, 8))))
    x, c, s = m.x(2, 3, 5, 8), m.x(5, 4), m.x(2, 1, 5, 4)
    low, high = part(x, 0, 4), part(x, 4, 8)
    first = m.op("Sub", m.op("Mul", low, c), m.op("Mul", s, high))
    second = m.op("Add", m.op("Mul", low, s), m.op("Mul", c, high))
    m.out(m.op("Concat", first, second, axis=-1))


@case("RMSNormalization")
def rms_norm(m):
    x = m.x(3, 5, 24)
    mean = m.op("ReduceMean", m.op("Mul", x, x), m.c([-1], np.int64))
    inverse = m.op("Reciprocal", m.op("Sqrt", m.op("Add", mean, 1e-6)))
    m.out(m.op("Mul", m.x(24), m.op("Mul", x, inverse)))


@case("LayerNormalization", 0)
def norm_of_its_parts(m):
    """Scale or bias is a value that the chain makes."""
    for kind, part in (("Add", "mean"), ("Mul", "root"), ("Mul", "centred")):
        x = m.x(1, 8, scale=2)
        mean = m.op("ReduceMean", x, m.c([-1], np.int64))
        centred = m.op("Sub", x, mean)
        variance = m.op("ReduceMean", m.op("Mul", centred, centred), m.c([-1], np.int64))
        root = m.op("Sqrt", m.op("Add", variance, 1e-5))
        parts = {"mean": mean, "centred": centred, "root": root}
        m.out(m.op(kind, m.op("Div", centred, root), parts[part]))


@case("FusedAttention", 0)
def attention_of_its_parts(m):
    """Scores that are their own mask, or the values as well."""
    for part in ("mask", "scores", "scaled"):
        q, k, v = qkv(m, 1, 2, 40, 40, 16)
        scores = values = m.op("MatMul", q, m.t(k, 0, 1, 3, 2))
        if part == "mask":
            scores, values = m.op("Add", scores, scores), v
        elif part == "scaled":
            scores = values = m.op("Mul", scores, 0.25)
        m.out(m.op("MatMul", softmax(m, scores), values))


@case("FusedAttention", 0)
def more_rows(m):
    """A number for each of many queries, where there is a product for one."""
    q, k, v = qkv(m, 1, 2, 1, 40, 16)
    numbers = m.op("ConstantOfShape", m.c([40, 1], np.int64),
                   value=helper.make_tensor("v", TensorProto.FLOAT, [1], [0.25]))  # fmt: skip
    scores = m.op("Mul", m.op("MatMul", q, m.t(k, 0, 1, 3, 2)), numbers)
    m.out(m.op("MatMul", softmax(m, scores), v))


@case("Swish", 0)
def swish_of_more_rows(m):
    x = m.x(1, 8)
    ones = m.op("ConstantOfShape", m.c([3, 1], np.int64),
                value=helper.make_tensor("v", TensorProto.FLOAT, [1], [1.0]))  # fmt: skip
    m.out(m.op("Div", x, m.op("Add", m.op("Exp", m.op("Neg", x)), ones)))


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"pattern.py: {' '.join(command)}: exit {done.returncode}\n{done.stderr}")
    return done.stdout


def peer_results(model, feeds):
    """What onnxruntime computes, without its own rewriting; nothing where it is missing."""
    try:
        import onnxruntime
    except ImportError:
        return {}
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, feeds), strict=True))


def results(args, folder, model, feeds, *options, guard=False):
    program = os.path.join(folder, "program")
    options = [*options, "--target", args.target]
    if args.threads:
        options += ["--threads", args.threads]
    run(args.ullage, "compile", model, "-o", program, "--cflags", "-O2", *options)
    given = []
    for name, values in feeds.items():
        path = os.path.join(folder, name + ".npy")
        np.save(path, values)
        given += ["--input", f"{name}={path}"]
    if guard:
        run(program, *given, "--guard")
    found = os.path.join(folder, "found.npz")
    run(program, *given, "--output-npz", found)
    with np.load(found) as loaded:
        return dict(loaded)


def check(args, folder):
    m, failed = Model(), 0
    chosen = {n: CASES[n] for n in args.case or CASES}
    for m.case, (function, _, _) in chosen.items():
        function(m)
    path = os.path.join(folder, "model.onnx")
    m.save(path)
    text = run(args.ullage, "plan", path, "--target", args.target, "--stop-after", "pattern")
    for name, (_, found, count) in chosen.items():
        line = rf'^%\d+ "{name}_\d+".* = (?:ullage::)?{found} '
        seen = len(re.findall(line, text, re.MULTILINE))
        if seen != count:
            failed += 1
            print(f"FAIL {name}: {seen} nodes {found}, not {count}")
    got = results(args, folder, path, m.feeds, guard=True)
    parts = results(args, folder, path, m.feeds, "--no-pass", "pattern")
    for what, wanted in (("the parts", parts), ("onnxruntime", peer_results(path, m.feeds))):
        for name, values in wanted.items():
            if np.allclose(got[name], values, rtol=1e-4, atol=2e-6, equal_nan=True):
                continue
            failed += 1
            difference = np.nanmax(np.abs(got[name] - values))
            print(f"FAIL {name}: largest difference from {what} {difference}")
    print(f"{len(chosen)} cases, {len(parts)} outputs, {failed} failed")
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("ullage")
    parser.add_argument("case", nargs="*")
    parser.add_argument("--target", default="c")
    parser.add_argument("--threads")
    parser.add_argument("--keep")
    args = parser.parse_intermixed_args()
    folder = args.keep or tempfile.mkdtemp()
    os.makedirs(folder, exist_ok=True)
    failed = check(args, folder)
    if not args.keep:
        shutil.rmtree(folder)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
