# SPDX-License-Identifier: Apache-2.0
"""MobileNet-V2 (Sandler et al. 2018), as torchvision has it: ReLU6, linear bottlenecks."""

from lib_conv import conv_bn, head, image, scaled

# expansion, channels, blocks, stride of the first
SETTINGS = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1),
            (6, 160, 3, 2), (6, 320, 1, 1)]  # fmt: skip


def inverted_residual(net, x, c_in, c_out, stride, expansion):
    wide, y, at = c_in * expansion, x, 0
    with net.scope("conv"):
        if expansion != 1:
            with net.scope(at):
                y = conv_bn(net, y, c_in, wide, 1, ("0", "1", "2"), act="relu6", after="linear")
            at += 1
        with net.scope(at):
            y = conv_bn(net, y, wide, wide, 3, ("0", "1", "2"), act="relu6", stride=stride,
                        groups=wide, after="relu6")  # fmt: skip
        residual = stride == 1 and c_in == c_out
        names = (str(at + 1), str(at + 2))
        y = conv_bn(net, y, wide, c_out, 1, names, calm=residual, after="relu6")
    return net.op("Add", x, y) if residual else y


def build(net):
    size, classes = (64, 10) if net.small else (224, 1000)
    settings = SETTINGS[:4] if net.small else SETTINGS
    channels, last = scaled(net, 32), scaled(net, 1280)
    x = image(net, size)
    with net.scope("features"):
        with net.scope(0):
            x = conv_bn(net, x, 3, channels, 3, ("0", "1", "2"), act="relu6", stride=2,
                        after="linear")  # fmt: skip
        at = 1
        for expansion, c_out, count, stride in settings:
            for i in range(1 if net.small and count > 2 else count):
                with net.scope(at):
                    x = inverted_residual(net, x, channels, scaled(net, c_out),
                                          stride if i == 0 else 1, expansion)  # fmt: skip
                channels, at = scaled(net, c_out), at + 1
        with net.scope(at):
            x = conv_bn(net, x, channels, last, 1, ("0", "1", "2"), act="relu6", after="linear")
    x = head(net, x, last, classes, ("classifier", "1"))
    net.output(x, "output", [net.batch, classes])
