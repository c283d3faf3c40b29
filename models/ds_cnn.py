# SPDX-License-Identifier: Apache-2.0
"""DS-CNN (Zhang et al. 2017) in the shape that MLPerf Tiny gives it: keywords in a second of sound.

Ten MFCC of 49 frames, a convolution of 10x4, four depthwise-separable blocks of 64 channels, the
mean over what is left and twelve classes: 24,000 parameters, what microcontrollers are asked to run.
"""

import numpy as np
from lib_conv import activate, batch_norm, conv_bn, linear


def stem(net, x, channels):
    """Tensorflow's SAME at stride 2: 49x10 become 25x5, with a row more below than above."""
    with net.scope("conv1"):
        w = net.normal((channels, 1, 10, 4), np.sqrt(1 / 40))
        x = net.op("Conv", x, net.weight("weight", w), dilations=[1, 1], group=1,
                   kernel_shape=[10, 4], pads=[4, 1, 5, 1], strides=[2, 2])  # fmt: skip
    with net.scope("bn1"):
        x = batch_norm(net, x, channels)
    return activate(net, x, "relu")


def build(net):
    channels, classes = (16, 12) if net.small else (64, 12)
    x = stem(net, net.input("input", [net.batch, 1, 49, 10]), channels)
    for i in range(4):
        with net.scope("blocks", i):
            x = conv_bn(net, x, channels, channels, 3, ("dw", "dw_bn", "dw_relu"), "relu",
                        groups=channels)  # fmt: skip
            x = conv_bn(net, x, channels, channels, 1, ("pw", "pw_bn", "pw_relu"), "relu")
    with net.scope("pool"):
        x = net.op("AveragePool", x, kernel_shape=[25, 5], strides=[25, 5])
    x = net.op("Flatten", x, axis=1)
    with net.scope("fc"):
        x = linear(net, x, channels, classes)
    net.output(net.op("Softmax", x, axis=1), "output", [net.batch, classes])
