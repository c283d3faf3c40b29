# SPDX-License-Identifier: Apache-2.0
"""EfficientNet-B0 (Tan and Le 2019), as torchvision has it: SiLU, squeeze-excite everywhere."""

from lib_conv import conv_bn, head, image, scaled, squeeze_excite

# expansion, kernel, stride, channels, blocks
STAGES = [(1, 3, 1, 16, 1), (6, 3, 2, 24, 2), (6, 5, 2, 40, 2), (6, 3, 2, 80, 3), (6, 5, 1, 112, 3),
          (6, 5, 2, 192, 4), (6, 3, 1, 320, 1)]  # fmt: skip


def mbconv(net, x, c_in, c_out, expansion, kernel, stride):
    wide, y, at = c_in * expansion, x, 0
    residual = stride == 1 and c_in == c_out
    with net.scope("block"):
        if expansion != 1:
            with net.scope(at):
                y = conv_bn(net, y, c_in, wide, 1, ("0", "1", "2"), act="silu", after="linear")
            at += 1
        with net.scope(at):
            y = conv_bn(net, y, wide, wide, kernel, ("0", "1", "2"), act="silu", stride=stride,
                        groups=wide, after="silu")  # fmt: skip
        with net.scope(at + 1):
            y = squeeze_excite(net, y, wide, max(1, c_in // 4), inner="silu")
        with net.scope(at + 2):
            y = conv_bn(net, y, wide, c_out, 1, calm=residual, after="silu", gain=4.0)
    return net.op("Add", y, x) if residual else y


def build(net):
    size, classes = (64, 10) if net.small else (224, 1000)
    stages = STAGES[:4] if net.small else STAGES
    x, channels, last = image(net, size), scaled(net, 32), scaled(net, 1280)
    with net.scope("features"):
        with net.scope(0):
            x = conv_bn(net, x, 3, channels, 3, ("0", "1", "2"), act="silu", stride=2,
                        after="linear")  # fmt: skip
        for i, (expansion, kernel, stride, c_out, count) in enumerate(stages):
            with net.scope(i + 1):
                for j in range(count):
                    with net.scope(j):
                        x = mbconv(net, x, channels, scaled(net, c_out), expansion, kernel,
                                   stride if j == 0 else 1)  # fmt: skip
                    channels = scaled(net, c_out)
        with net.scope(len(stages) + 1):
            x = conv_bn(net, x, channels, last, 1, ("0", "1", "2"), act="silu", after="linear")
    x = head(net, x, last, classes, ("classifier", "1"))
    net.output(x, "output", [net.batch, classes])
