# SPDX-License-Identifier: Apache-2.0
"""Inception-V3 (Szegedy et al. 2016), as torchvision has it, without the auxiliary classifier."""

from lib_conv import avg_pool, conv_bn, head, image, max_pool


def unit(net, x, name, c_in, c_out, kernel, pad=0, stride=1, after="relu"):
    """BasicConv2d: Conv, BatchNorm, ReLU."""
    with net.scope(name):
        return conv_bn(net, x, c_in, c_out, kernel, ("conv", "bn"), act="relu", pad=pad,
                       stride=stride, after=after, eps=1e-3)  # fmt: skip


def transform_input(net, x):
    """Maps ImageNet's normalization to Inception's: x[:, i] * scale + shift, put back together."""
    channels = []
    for i, (scale, shift) in enumerate([(0.458, -0.03), (0.448, -0.088), (0.45, -0.188)]):
        y = net.op("Gather", x, net.const(i), axis=1)
        y = net.op("Unsqueeze", y, net.const([1]))
        y = net.op("Mul", y, net.const(scale))
        channels.append(net.op("Add", y, net.const(shift)))
    return net.op("Concat", *channels, axis=1)


def pooled(net, x, name, c_in, c_out):
    return unit(net, avg_pool(net, x, 3, 1, 1), name, c_in, c_out, 1)


def mixed_a(net, x, c, w, pool):
    a = unit(net, x, "branch1x1", c, w(64), 1)
    b = unit(net, x, "branch5x5_1", c, w(48), 1)
    b = unit(net, b, "branch5x5_2", w(48), w(64), 5, 2)
    d = unit(net, x, "branch3x3dbl_1", c, w(64), 1)
    d = unit(net, d, "branch3x3dbl_2", w(64), w(96), 3, 1)
    d = unit(net, d, "branch3x3dbl_3", w(96), w(96), 3, 1)
    e = pooled(net, x, "branch_pool", c, w(pool))
    return net.op("Concat", a, b, d, e, axis=1), 2 * w(64) + w(96) + w(pool)


def mixed_b(net, x, c, w):
    a = unit(net, x, "branch3x3", c, w(384), 3, stride=2)
    b = unit(net, x, "branch3x3dbl_1", c, w(64), 1)
    b = unit(net, b, "branch3x3dbl_2", w(64), w(96), 3, 1)
    b = unit(net, b, "branch3x3dbl_3", w(96), w(96), 3, stride=2)
    return net.op("Concat", a, b, max_pool(net, x, 3, 2), axis=1), w(384) + w(96) + c


def mixed_c(net, x, c, w, mid):
    m, out = w(mid), w(192)
    a = unit(net, x, "branch1x1", c, out, 1)
    b = unit(net, x, "branch7x7_1", c, m, 1)
    b = unit(net, b, "branch7x7_2", m, m, (1, 7), (0, 3))
    b = unit(net, b, "branch7x7_3", m, out, (7, 1), (3, 0))
    d = unit(net, x, "branch7x7dbl_1", c, m, 1)
    d = unit(net, d, "branch7x7dbl_2", m, m, (7, 1), (3, 0))
    d = unit(net, d, "branch7x7dbl_3", m, m, (1, 7), (0, 3))
    d = unit(net, d, "branch7x7dbl_4", m, m, (7, 1), (3, 0))
    d = unit(net, d, "branch7x7dbl_5", m, out, (1, 7), (0, 3))
    e = pooled(net, x, "branch_pool", c, out)
    return net.op("Concat", a, b, d, e, axis=1), 4 * out


def mixed_d(net, x, c, w):
    a = unit(net, x, "branch3x3_1", c, w(192), 1)
    a = unit(net, a, "branch3x3_2", w(192), w(320), 3, stride=2)
    b = unit(net, x, "branch7x7x3_1", c, w(192), 1)
    b = unit(net, b, "branch7x7x3_2", w(192), w(192), (1, 7), (0, 3))
    b = unit(net, b, "branch7x7x3_3", w(192), w(192), (7, 1), (3, 0))
    b = unit(net, b, "branch7x7x3_4", w(192), w(192), 3, stride=2)
    return net.op("Concat", a, b, max_pool(net, x, 3, 2), axis=1), w(320) + w(192) + c


def split_3x3(net, x, c, w, name):
    a = unit(net, x, name + "a", c, w(384), (1, 3), (0, 1))
    b = unit(net, x, name + "b", c, w(384), (3, 1), (1, 0))
    return net.op("Concat", a, b, axis=1)


def mixed_e(net, x, c, w):
    a = unit(net, x, "branch1x1", c, w(320), 1)
    b = unit(net, x, "branch3x3_1", c, w(384), 1)
    b = split_3x3(net, b, w(384), w, "branch3x3_2")
    d = unit(net, x, "branch3x3dbl_1", c, w(448), 1)
    d = unit(net, d, "branch3x3dbl_2", w(448), w(384), 3, 1)
    d = split_3x3(net, d, w(384), w, "branch3x3dbl_3")
    e = pooled(net, x, "branch_pool", c, w(192))
    return net.op("Concat", a, b, d, e, axis=1), w(320) + 4 * w(384) + w(192)


def stem(net, x, w):
    x = unit(net, x, "Conv2d_1a_3x3", 3, w(32), 3, stride=2, after="linear")
    x = unit(net, x, "Conv2d_2a_3x3", w(32), w(32), 3)
    x = unit(net, x, "Conv2d_2b_3x3", w(32), w(64), 3, 1)
    with net.scope("maxpool1"):
        x = max_pool(net, x, 3, 2)
    x = unit(net, x, "Conv2d_3b_1x1", w(64), w(80), 1)
    x = unit(net, x, "Conv2d_4a_3x3", w(80), w(192), 3)
    with net.scope("maxpool2"):
        return max_pool(net, x, 3, 2), w(192)


def build(net):
    size, classes = (107, 10) if net.small else (299, 1000)

    def w(channels):
        return max(4, channels // 8) if net.small else channels

    blocks = [("5b", mixed_a, 32), ("5c", mixed_a, 64), ("5d", mixed_a, 64), ("6a", mixed_b),
              ("6b", mixed_c, 128), ("6c", mixed_c, 160), ("6d", mixed_c, 160),
              ("6e", mixed_c, 192), ("7a", mixed_d), ("7b", mixed_e), ("7c", mixed_e)]  # fmt: skip
    if net.small:
        blocks = [blocks[i] for i in (0, 3, 4, 8, 9)]
    x, c = stem(net, transform_input(net, image(net, size)), w)
    for name, block, *rest in blocks:
        with net.scope("Mixed_" + name):
            x, c = block(net, x, c, w, *rest)
    net.output(head(net, x, c, classes), "output", [net.batch, classes])
