# SPDX-License-Identifier: Apache-2.0
"""U-Net (Ronneberger et al. 2015) with padding and BatchNorm; up by transposed convolution."""

import numpy as np
from lib_conv import conv, conv_bn, image, max_pool


def double_conv(net, x, c_in, c_out, after="relu"):
    with net.scope("double_conv"):
        x = conv_bn(net, x, c_in, c_out, 3, ("0", "1", "2"), act="relu", after=after)
        return conv_bn(net, x, c_out, c_out, 3, ("3", "4", "5"), act="relu")


def up(net, x, skip, c):
    """Doubles the size, halves the channels, puts the skip connection in front."""
    with net.scope("up"):
        w = net.weight("weight", net.normal((c, c // 2, 2, 2), np.sqrt(2 / c)))
        b = net.weight("bias", net.normal(c // 2, 0.05))
        x = net.op("ConvTranspose", x, w, b, dilations=[1, 1], group=1, kernel_shape=[2, 2],
                   pads=[0, 0, 0, 0], strides=[2, 2])  # fmt: skip
    x = net.op("Concat", skip, x, axis=1)
    with net.scope("conv"):
        return double_conv(net, x, c, c // 2)


def build(net):
    width, levels, size, classes = (8, 2, 32, 2) if net.small else (64, 4, 256, 2)
    x = image(net, size)
    with net.scope("inc"):
        x = double_conv(net, x, 3, width, after="linear")
    skips, c = [], width
    for i in range(levels):
        skips.append(x)
        with net.scope(f"down{i + 1}", "maxpool_conv"):
            with net.scope(0):
                x = max_pool(net, x, 2, 2)
            with net.scope(1):
                x = double_conv(net, x, c, 2 * c)
        c *= 2
    for i in range(levels):
        with net.scope(f"up{i + 1}"):
            x = up(net, x, skips.pop(), c)
        c //= 2
    with net.scope("outc", "conv"):
        x = conv(net, x, c, classes, 1, bias=True)
    net.output(x, "logits", [net.batch, classes, size, size])
