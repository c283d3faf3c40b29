# SPDX-License-Identifier: Apache-2.0
"""ConvNeXt-T (Liu et al. 2022), as torchvision has it: channels last inside every block."""

import numpy as np
from lib_attention import layer_norm, mlp
from lib_conv import conv, image, linear


def layer_norm_2d(net, x, channels):
    x = net.op("Transpose", x, perm=[0, 2, 3, 1])
    x = layer_norm(net, x, channels, 1e-6)
    return net.op("Transpose", x, perm=[0, 3, 1, 2])


def block(net, x, c):
    with net.scope("block"):
        with net.scope(0):
            y = conv(net, x, c, c, 7, groups=c, bias=True, after="linear")
        with net.scope(1):
            y = net.op("Transpose", y, perm=[0, 2, 3, 1])
        with net.scope(2):
            y = layer_norm(net, y, c, 1e-6)
        y = mlp(net, y, c, 4 * c, ("3", "4", "5"))
        with net.scope(6):
            y = net.op("Transpose", y, perm=[0, 3, 1, 2])
    scale = net.rng.uniform(0.1, 0.4, (c, 1, 1)).astype(np.float32)
    return net.op("Add", net.op("Mul", net.weight("layer_scale", scale), y), x)


def build(net):
    widths, depths, size, classes = (96, 192, 384, 768), (3, 3, 9, 3), 224, 1000
    if net.small:
        widths, depths, size, classes = (16, 24, 32), (1, 1, 2), 64, 10
    x, c = image(net, size), widths[0]
    with net.scope("features"):
        with net.scope(0):
            with net.scope(0):
                x = conv(net, x, 3, c, 4, stride=4, pad=0, bias=True, after="linear")
            with net.scope(1):
                x = layer_norm_2d(net, x, c)
        for i, (width, depth) in enumerate(zip(widths, depths, strict=True)):
            if i > 0:
                with net.scope(2 * i):
                    with net.scope(0):
                        x = layer_norm_2d(net, x, c)
                    with net.scope(1):
                        x = conv(net, x, c, width, 2, stride=2, pad=0, bias=True, after="linear")
                c = width
            with net.scope(2 * i + 1):
                for j in range(depth):
                    with net.scope(j):
                        x = block(net, x, c)
    with net.scope("avgpool"):
        x = net.op("GlobalAveragePool", x)
    with net.scope("classifier"):
        with net.scope(0):
            x = layer_norm_2d(net, x, c)
        with net.scope(1):
            x = net.op("Flatten", x, axis=1)
        with net.scope(2):
            x = linear(net, x, c, classes)
    net.output(x, "output", [net.batch, classes])
