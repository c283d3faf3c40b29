# SPDX-License-Identifier: Apache-2.0
"""BERT-base (Devlin et al. 2019), as Hugging Face's implementation exports.

bert_base is at opset 14, its LayerNorms taken apart; bert_base_ln at opset 17 has the operator.
"""

import numpy as np
from lib_attention import gelu_erf, layer_norm, linear_nd
from lib_conv import linear

LOWEST = float(np.finfo(np.float32).min)


def table(net, name, rows, width, std):
    return net.weight(name + ".weight", net.normal((rows, width), std))


def embeddings(net, ids, kinds, vocabulary, positions, width):
    """Words, kinds and positions added; the positions are a slice of a buffer of indices."""
    length = net.dim(ids, 1)
    count = net.op("Unsqueeze", length, net.const([0]))
    buffer = net.weight("position_ids", np.arange(positions, dtype=np.int64)[None])
    place = net.op("Slice", buffer, net.const([0]), count, net.const([1]), net.const([1]))
    words = net.op("Gather", table(net, "word_embeddings", vocabulary, width, 0.6), ids)
    kinds = net.op("Gather", table(net, "token_type_embeddings", 2, width, 0.3), kinds)
    x = net.op("Add", words, kinds)
    place = net.op("Gather", table(net, "position_embeddings", positions, width, 0.3), place)
    with net.scope("LayerNorm"):
        x = layer_norm(net, net.op("Add", x, place), width, 1e-12)
    with net.scope("dropout"):
        return net.dropout(x)


def extended_mask(net, mask, batch, length):
    """[B,1,L,L]: 0 where a token may be seen, the lowest float where not."""
    m = net.op("Unsqueeze", net.op("Unsqueeze", mask, net.const([1])), net.const([2]))
    m = net.op("Cast", net.expand(m, net.dims([batch, 1, length, length])), to=1)
    inverted = net.op("Sub", net.const(1.0), m)
    return net.op("Where", net.op("Cast", inverted, to=9), net.const(LOWEST), inverted)


def split_heads(net, x, batch, length, heads, depth, perm=(0, 2, 1, 3)):
    return net.op("Transpose", net.reshape(x, batch, length, heads, depth), perm=list(perm))


def attention(net, x, mask, sizes, width, heads):
    batch, length, depth = *sizes, width // heads
    parts = []
    with net.scope("self"):
        for name in ("query", "key", "value"):
            with net.scope(name):
                y = linear_nd(net, x, width, width, gain=1.5)
            perm = (0, 2, 3, 1) if name == "key" else (0, 2, 1, 3)
            parts.append(split_heads(net, y, batch, length, heads, depth, perm))
        scores = net.op("Div", net.op("MatMul", parts[0], parts[1]), net.const(depth**0.5))
        scores = net.dropout(net.op("Softmax", net.op("Add", scores, mask), axis=-1))
        y = net.op("Transpose", net.op("MatMul", scores, parts[2]), perm=[0, 2, 1, 3])
        y = net.reshape(y, batch, length, width)
    return add_norm(net, y, x, width, width)


def add_norm(net, y, x, c_in, width, after="linear"):
    """Dense, residual, LayerNorm: BertSelfOutput and BertOutput."""
    with net.scope("output"):
        with net.scope("dense"):
            y = linear_nd(net, y, c_in, width, after=after)
        with net.scope("dropout"):
            y = net.dropout(y)
        y = net.op("Add", y, x)
        with net.scope("LayerNorm"):
            return layer_norm(net, y, width, 1e-12)


def layer(net, x, mask, sizes, width, heads):
    with net.scope("attention"):
        x = attention(net, x, mask, sizes, width, heads)
    with net.scope("intermediate"):
        with net.scope("dense"):
            y = linear_nd(net, x, width, 4 * width)
        with net.scope("intermediate_act_fn"):
            y = gelu_erf(net, y)
    return add_norm(net, y, x, 4 * width, width, after="gelu")


def build(net, width=768, heads=12, layers=12):
    vocabulary, positions = 30522, 512
    length = net.seq or 128
    if net.small:
        width, heads, layers, vocabulary, positions = 32, 4, 2, 100, 64
        length = net.seq or 16
    shape = [net.batch, length]
    ids = net.input("input_ids", shape, np.int64, upper=vocabulary)
    mask = net.input("attention_mask", shape, np.int64, upper=2)
    kinds = net.input("token_type_ids", shape, np.int64, upper=2)
    batch, count = net.dim(ids, 0), net.dim(ids, 1)
    mask = extended_mask(net, mask, batch, count)
    with net.scope("embeddings"):
        x = embeddings(net, ids, kinds, vocabulary, positions, width)
    with net.scope("encoder"):
        for i in range(layers):
            with net.scope(f"layer.{i}"):
                x = layer(net, x, mask, (batch, count), width, heads)
    with net.scope("pooler"):
        first = net.op("Gather", x, net.const(0), axis=1)
        with net.scope("dense"):
            first = linear(net, first, width, width)
        with net.scope("activation"):
            first = net.op("Tanh", first)
    net.output(x, "last_hidden_state", [*shape, width])
    net.output(first, "pooler_output", [net.batch, width])
