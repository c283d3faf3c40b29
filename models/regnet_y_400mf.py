# SPDX-License-Identifier: Apache-2.0
"""RegNetY-400MF (Radosavovic et al. 2020), as torchvision has it: group width 8, squeeze-excite."""

from lib_conv import conv_bn, head, image, squeeze_excite

GROUP_WIDTH = 8


def block(net, x, c_in, c_out, stride):
    y = x
    with net.scope("f"):
        with net.scope("a"):
            y = conv_bn(net, y, c_in, c_out, 1, ("0", "1", "2"), act="relu")
        with net.scope("b"):
            y = conv_bn(net, y, c_out, c_out, 3, ("0", "1", "2"), act="relu", stride=stride,
                        groups=c_out // GROUP_WIDTH)  # fmt: skip
        with net.scope("se"):
            y = squeeze_excite(net, y, c_out, max(1, round(0.25 * c_in)))
        with net.scope("c"):
            y = conv_bn(net, y, c_out, c_out, 1, calm=True, gain=4.0)
    if stride != 1 or c_in != c_out:
        with net.scope("proj"):
            x = conv_bn(net, x, c_in, c_out, 1, stride=stride)
    y = net.op("Add", x, y)
    with net.scope("activation"):
        return net.op("Relu", y)


def build(net):
    widths, depths, c, size, classes = (48, 104, 208, 440), (1, 3, 6, 6), 32, 224, 1000
    if net.small:
        widths, depths, c, size, classes = (16, 24, 40), (1, 1, 2), 8, 64, 10
    x = image(net, size)
    with net.scope("stem"):
        x = conv_bn(net, x, 3, c, 3, ("0", "1", "2"), act="relu", stride=2, after="linear")
    with net.scope("trunk_output"):
        for i, (width, depth) in enumerate(zip(widths, depths, strict=True)):
            with net.scope(f"block{i + 1}"):
                for j in range(depth):
                    with net.scope(f"block{i + 1}-{j}"):
                        x = block(net, x, c, width, 2 if j == 0 else 1)
                    c = width
    net.output(head(net, x, c, classes), "output", [net.batch, classes])
