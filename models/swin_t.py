# SPDX-License-Identifier: Apache-2.0
"""Swin-T (Liu et al. 2021), exported the long way.

Everything that the Python of the model computes on sizes is in the graph: windows are cut by
Reshape to shapes of eight Shape/Gather/Div/Concat nodes each, torch.roll is Slice and Concat, the
mask of shifted windows is written region by region with ScatterND, and the relative position bias
is gathered through an index table. All of that is constant once the shapes are known: a compiler
that propagates constants is left with about a tenth of the nodes.
"""

import numpy as np
from lib_attention import layer_norm, linear_nd, mlp
from lib_conv import conv, image, linear


def divided(net, value, by):
    return net.op("Div", value, net.const(by))


def roll(net, x, shift):
    """torch.roll(x, (shift, shift), (1, 2)): what leaves at one end comes in at the other."""
    far = 2**63 - 1
    for axis in (1, 2):
        tail = net.slice(x, axis, -shift, far)
        rest = net.slice(x, axis, 0, -shift)
        x = net.op("Concat", tail, rest, axis=axis)
    return x


def window_partition(net, x, window, channels):
    """[B,H,W,C] -> [B*windows, window*window, C]"""
    b, h, w = (net.dim(x, axis) for axis in (0, 1, 2))
    x = net.reshape(x, b, divided(net, h, window), window, divided(net, w, window), window,
                    channels)  # fmt: skip
    x = net.op("Transpose", x, perm=[0, 1, 3, 2, 4, 5])
    x = net.reshape(x, -1, window, window, channels)
    return net.reshape(x, -1, window * window, channels)


def window_reverse(net, windows, window, h, w, channels):
    """The inverse; the batch is found by dividing the number of windows by those of one picture."""
    windows = net.reshape(windows, -1, window, window, channels)
    rows, columns = divided(net, h, window), divided(net, w, window)
    batch = net.op("Div", net.dim(windows, 0), net.op("Mul", rows, columns))
    x = net.reshape(windows, batch, rows, columns, window, window, channels)
    x = net.op("Transpose", x, perm=[0, 1, 3, 2, 4, 5])
    return net.reshape(x, batch, h, w, channels)


def fill_region(net, mask, rows, columns, value):
    """mask[rows, columns] = value, as the exporter writes an assignment to a slice."""
    size = net.op("Gather", net.op("Shape", mask), net.const([0]), axis=0)
    size = net.op("Squeeze", size, net.const([0]))
    index = net.op("Range", net.const(0), size, net.const(1))
    row = net.reshape(net.slice(index, 0, *rows), -1, 1)
    column = net.slice(index, 0, *columns)
    shape = net.op("Shape", net.op("Add", row, column))
    pairs = [net.op("Unsqueeze", net.expand(part, shape), net.const([-1]))
             for part in (row, column)]  # fmt: skip
    updates = net.expand(net.const(float(value)), shape)
    return net.op("ScatterND", mask, net.op("Concat", *pairs, axis=-1), updates)


def shifted_mask(net, h, w, window, shift, side):
    """[windows, L, L]: 0 between tokens of one region, -100 between regions that met by the roll.

    side is the height and width of the map in tokens, known when the model is traced."""
    zeros = net.op("ConstantOfShape", net.dims([h, w]))
    mask, far, value = zeros, side, 0
    spans = ((0, side - window), (side - window, side - shift), (side - shift, far))
    for rows in spans:
        for columns in spans:
            mask = fill_region(net, mask, rows, columns, value)
            value += 1
    mask = net.reshape(mask, divided(net, h, window), window, divided(net, w, window), window)
    mask = net.op("Transpose", mask, perm=[0, 2, 1, 3])
    mask = net.reshape(mask, -1, window * window)
    difference = net.op("Sub", net.op("Unsqueeze", mask, net.const([1])),
                        net.op("Unsqueeze", mask, net.const([2])))  # fmt: skip
    same = net.op("Equal", difference, net.const(0.0))
    blocked = net.op("Where", net.op("Not", same), net.const(-100.0), difference)
    return net.op("Where", same, net.const(0.0), blocked)


def position_bias(net, window, heads):
    """[1, heads, L, L] from a table of (2 window - 1)^2 rows; the index is a buffer."""
    length, span = window * window, 2 * window - 1
    table = net.weight("relative_position_bias_table", net.normal((span * span, heads), 0.2))
    y, x = np.divmod(np.arange(length), window)
    index = (y[:, None] - y + window - 1) * span + (x[:, None] - x + window - 1)
    flat = net.reshape(net.weight("relative_position_index", index.astype(np.int64)), -1)
    bias = net.reshape(net.op("Gather", table, flat, axis=0), length, length, -1)
    bias = net.op("Transpose", bias, perm=[2, 0, 1])
    return net.op("Unsqueeze", bias, net.const([0]))


def attention(net, x, width, heads, window, mask):
    depth = width // heads
    rows, length = net.dim(x, 0), net.dim(x, 1)
    with net.scope("qkv"):
        y = linear_nd(net, x, width, 3 * width)
    y = net.op("Transpose", net.reshape(y, rows, length, 3, heads, depth), perm=[2, 0, 3, 1, 4])
    q, k, v = (net.op("Gather", y, net.const(i), axis=0) for i in range(3))
    q = net.op("Mul", q, net.const(depth**-0.5))
    scores = net.op("MatMul", q, net.op("Transpose", k, perm=[0, 1, 3, 2]))
    scores = net.op("Add", scores, position_bias(net, window, heads))
    if mask:
        count = net.dim(mask, 0)
        pictures = net.op("Div", rows, count)
        scores = net.reshape(scores, pictures, count, heads, length, length)
        apart = net.op("Unsqueeze", net.op("Unsqueeze", mask, net.const([1])), net.const([0]))
        scores = net.op("Add", scores, apart)
        scores = net.reshape(scores, -1, heads, length, length)
    y = net.op("MatMul", net.op("Softmax", scores, axis=-1), v)
    y = net.op("Transpose", y, perm=[0, 2, 1, 3])
    y = net.reshape(y, rows, length, width)
    with net.scope("proj"):
        return linear_nd(net, y, width, width)


def block(net, x, width, heads, window, shift, side):
    """x [B, side*side, C]"""
    root = net.op("Cast", net.op("Sqrt", net.op("Cast", net.dim(x, 1), to=1)), to=7)
    h, w, b = root, root, net.dim(x, 0)
    with net.scope("norm1"):
        y = layer_norm(net, x, width)
    y = net.reshape(y, b, h, w, width)
    mask = None
    if shift:
        y = roll(net, y, -shift)
        mask = shifted_mask(net, h, w, window, shift, side)
    y = window_partition(net, y, window, width)
    with net.scope("attn"):
        y = attention(net, y, width, heads, window, mask)
    y = window_reverse(net, y, window, h, w, width)
    if shift:
        y = roll(net, y, shift)
    y = net.reshape(y, b, net.op("Mul", h, w), width)
    x = net.op("Add", x, y)
    with net.scope("norm2"):
        y = layer_norm(net, x, width)
    with net.scope("mlp"):
        y = mlp(net, y, width, 4 * width, ("fc1", "act", "fc2"), gain=0.3)
    return net.op("Add", x, y)


def patch_merging(net, x, width, side):
    """Every 2x2 patch becomes one token of 4C, reduced to 2C."""
    b, length, far = net.dim(x, 0), net.dim(x, 1), 2**63 - 1
    grid = net.reshape(x, b, side, side, width)
    parts = []
    for column in (0, 1):
        for row in (0, 1):
            part = net.slice(grid, 1, row, far, 2)
            parts.append(net.slice(part, 2, column, far, 2))
    y = net.op("Concat", *parts, axis=-1)
    y = net.reshape(y, b, divided(net, length, 4), 4 * width)
    with net.scope("norm"):
        y = layer_norm(net, y, 4 * width)
    with net.scope("reduction"):
        return linear_nd(net, y, 4 * width, 2 * width, bias=False)


def build(net):
    width, depths, heads, window, side, classes = 96, (2, 2, 6, 2), (3, 6, 12, 24), 7, 56, 1000
    if net.small:
        width, depths, heads, window, side, classes = 16, (2, 2), (2, 4), 4, 16, 10
    x = image(net, side * 4)
    with net.scope("patch_embed"):
        with net.scope("proj"):
            x = conv(net, x, 3, width, 4, stride=4, pad=0, bias=True, after="linear")
        b, c = net.dim(x, 0), net.dim(x, 1)
        x = net.op("Transpose", net.reshape(x, b, c, -1), perm=[0, 2, 1])
        with net.scope("norm"):
            x = layer_norm(net, x, width)
    with net.scope("layers"):
        for i, depth in enumerate(depths):
            with net.scope(f"layers.{i}"):
                for j in range(depth):
                    with net.scope("blocks", j):
                        shift = window // 2 if j % 2 and side > window else 0
                        x = block(net, x, width, heads[i], window, shift, side)
                if i + 1 < len(depths):
                    with net.scope("downsample"):
                        x = patch_merging(net, x, width, side)
                    width, side = width * 2, side // 2
    with net.scope("norm"):
        x = layer_norm(net, x, width)
    x = net.op("Transpose", x, perm=[0, 2, 1])
    with net.scope("avgpool"):
        x = net.op("GlobalAveragePool", x)
    x = net.op("Flatten", x, axis=1)
    with net.scope("head"):
        x = linear(net, x, width, classes)
    net.output(x, "output", [net.batch, classes])
