# SPDX-License-Identifier: Apache-2.0
"""GPT-2 small (Radford et al. 2019), as Hugging Face's implementation exports, without a cache.

The causal mask is a slice of a boolean buffer, chosen by Where; the language head is the token
table transposed, which a compiler should not store a second time.
"""

import numpy as np
from lib_attention import gelu_tanh, layer_norm

LOWEST = float(np.finfo(np.float32).min)


def conv1d(net, x, sizes, c_in, c_out, std):
    """GPT-2's Conv1D: Gemm on [B*L, C] with an untransposed weight, and back."""
    w = net.weight("weight", net.normal((c_in, c_out), std))
    b = net.weight("bias", net.normal(c_out, 0.05))
    flat = net.op("Reshape", x, net.const([-1, c_in]))
    y = net.op("Gemm", flat, w, b, alpha=1.0, beta=1.0)
    return net.reshape(y, *sizes, c_out)


def causal(net, scores, positions):
    """Where the buffer's [L,L] corner is false, the lowest float."""
    buffer = np.tril(np.ones((positions, positions), bool))[None, None]
    corner = net.weight("bias", buffer)
    keys = net.op("Unsqueeze", net.dim(scores, 3), net.const([0]))
    queries = net.op("Unsqueeze", net.dim(scores, 2), net.const([0]))
    start = net.op("Sub", keys, queries)
    corner = net.op("Slice", corner, start, keys, net.const([2]), net.const([1]))
    corner = net.op("Slice", corner, net.const([0]), keys, net.const([3]), net.const([1]))
    return net.op("Where", corner, scores, net.const(LOWEST))


def attention(net, x, sizes, width, heads, positions):
    depth = width // heads
    with net.scope("c_attn"):
        y = conv1d(net, x, sizes, width, 3 * width, np.sqrt(1.5 / width))
    parts = net.op("Split", y, net.const([width] * 3), outputs=3, axis=2)
    perms = ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
    q, k, v = (
        net.op("Transpose", net.reshape(part, *sizes, heads, depth), perm=perm)
        for part, perm in zip(parts, perms, strict=True)
    )
    scores = net.op("Div", net.op("MatMul", q, k), net.const(depth**0.5))
    scores = net.dropout(net.op("Softmax", causal(net, scores, positions), axis=3))
    y = net.op("Transpose", net.op("MatMul", scores, v), perm=[0, 2, 1, 3])
    y = net.reshape(y, *sizes, width)
    with net.scope("c_proj"):
        y = conv1d(net, y, sizes, width, width, np.sqrt(1 / width))
    with net.scope("resid_dropout"):
        return net.dropout(y)


def block(net, x, sizes, width, heads, positions):
    with net.scope("ln_1"):
        y = layer_norm(net, x, width)
    with net.scope("attn"):
        y = attention(net, y, sizes, width, heads, positions)
    x = net.op("Add", y, x)
    with net.scope("ln_2"):
        y = layer_norm(net, x, width)
    with net.scope("mlp"):
        with net.scope("c_fc"):
            y = conv1d(net, y, sizes, width, 4 * width, np.sqrt(1 / width))
        with net.scope("act"):
            y = gelu_tanh(net, y)
        with net.scope("c_proj"):
            y = conv1d(net, y, sizes, 4 * width, width, np.sqrt(0.6 / (4 * width)))
        with net.scope("dropout"):
            y = net.dropout(y)
    return net.op("Add", x, y)


def build(net, width=768, heads=12, layers=12):
    vocabulary, positions = 50257, 1024
    length = net.seq or 64
    if net.small:
        width, heads, layers, vocabulary, positions = 32, 4, 2, 100, 64
        length = net.seq or 16
    ids = net.input("input_ids", [net.batch, length], np.int64, upper=vocabulary)
    with net.scope("transformer"):
        sizes = [net.dim(ids, 0), net.dim(ids, 1)]
        place = net.op("Range", net.const(0), sizes[1], net.const(1))
        place = net.op("Reshape", net.op("Unsqueeze", place, net.const([0])),
                       net.op("Concat", net.const([-1]),
                              net.op("Unsqueeze", sizes[1], net.const([0])), axis=0))  # fmt: skip
        words = net.weight("wte.weight", net.normal((vocabulary, width), 0.14))
        places = net.weight("wpe.weight", net.normal((positions, width), 0.1))
        x = net.op("Add", net.op("Gather", words, ids), net.op("Gather", places, place))
        with net.scope("drop"):
            x = net.dropout(x)
        for i in range(layers):
            with net.scope(f"h.{i}"):
                x = block(net, x, sizes, width, heads, positions)
        with net.scope("ln_f"):
            x = layer_norm(net, x, width)
    with net.scope("lm_head"):
        x = net.op("MatMul", x, net.op("Transpose", words, perm=[1, 0]))
    net.output(x, "logits", [net.batch, length, vocabulary])
