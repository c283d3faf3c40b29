# SPDX-License-Identifier: Apache-2.0
"""MobileNet-V3 large (Howard et al. 2019), as torchvision has it: HardSwish, squeeze-excite."""

from lib_conv import activate, conv_bn, image, linear, scaled, squeeze_excite

# kernel, expanded, out, squeeze-excite, activation, stride
BLOCKS = [
    (3, 16, 16, False, "relu", 1), (3, 64, 24, False, "relu", 2), (3, 72, 24, False, "relu", 1),
    (5, 72, 40, True, "relu", 2), (5, 120, 40, True, "relu", 1), (5, 120, 40, True, "relu", 1),
    (3, 240, 80, False, "hardswish", 2), (3, 200, 80, False, "hardswish", 1),
    (3, 184, 80, False, "hardswish", 1), (3, 184, 80, False, "hardswish", 1),
    (3, 480, 112, True, "hardswish", 1), (3, 672, 112, True, "hardswish", 1),
    (5, 672, 160, True, "hardswish", 2), (5, 960, 160, True, "hardswish", 1),
    (5, 960, 160, True, "hardswish", 1),
]  # fmt: skip
EPS = 1e-3


def rounded(value):
    """torchvision's _make_divisible by 8."""
    near = max(8, int(value + 4) // 8 * 8)
    return near + 8 if near < 0.9 * value else near


def block(net, x, c_in, kernel, wide, c_out, excite, act, stride):
    y, at = x, 0
    residual = stride == 1 and c_in == c_out
    with net.scope("block"):
        if wide != c_in:
            with net.scope(at):
                y = conv_bn(net, y, c_in, wide, 1, ("0", "1", "2"), act=act, after="linear",
                            eps=EPS)  # fmt: skip
            at += 1
        with net.scope(at):
            y = conv_bn(net, y, wide, wide, kernel, ("0", "1", "2"), act=act, stride=stride,
                        groups=wide, after=act, eps=EPS)  # fmt: skip
        at += 1
        if excite:
            with net.scope(at):
                y = squeeze_excite(net, y, wide, rounded(wide / 4), gate="hardsigmoid")
            at += 1
        with net.scope(at):
            y = conv_bn(net, y, wide, c_out, 1, calm=residual, after=act,
                        gain=4.0 if excite else 1.0, eps=EPS)  # fmt: skip
    return net.op("Add", y, x) if residual else y


def build(net):
    size, classes = (64, 10) if net.small else (224, 1000)
    blocks = [BLOCKS[i] for i in (0, 1, 3, 4, 6, 10, 11)] if net.small else BLOCKS
    x, channels = image(net, size), scaled(net, 16)
    with net.scope("features"):
        with net.scope(0):
            x = conv_bn(net, x, 3, channels, 3, ("0", "1", "2"), act="hardswish", stride=2,
                        after="linear", eps=EPS)  # fmt: skip
        for i, (kernel, wide, c_out, excite, act, stride) in enumerate(blocks):
            with net.scope(i + 1):
                x = block(net, x, channels, kernel, scaled(net, wide), scaled(net, c_out), excite,
                          act, stride)  # fmt: skip
            channels = scaled(net, c_out)
        with net.scope(len(blocks) + 1):
            x = conv_bn(net, x, channels, channels * 6, 1, ("0", "1", "2"), act="hardswish",
                        after="linear", eps=EPS)  # fmt: skip
    with net.scope("avgpool"):
        x = net.op("GlobalAveragePool", x)
    x = net.op("Flatten", x, axis=1)
    hidden = scaled(net, 1280)
    with net.scope("classifier"):
        with net.scope(0):
            x = linear(net, x, channels * 6, hidden, after="hardswish")
        with net.scope(1):
            x = activate(net, x, "hardswish")
        with net.scope(3):
            x = linear(net, x, hidden, classes, after="hardswish")
    net.output(x, "output", [net.batch, classes])
