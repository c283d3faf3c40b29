# SPDX-License-Identifier: Apache-2.0
"""DeepLabV3 with a dilated ResNet-50 (Chen et al. 2017), as torchvision has it."""

from lib_conv import bilinear, conv, conv_bn, image
from resnet50 import layer, stem


def dilated_resnet(net, x):
    """ResNet whose last two stages keep the size and dilate instead; returns value, channels."""
    width, counts = (8, (1, 1, 2, 2)) if net.small else (64, (3, 4, 6, 3))
    with net.scope("backbone"):
        x, c = stem(net, x, width), width
        x, c = layer(net, x, 1, c, width, counts[0], 1)
        x, c = layer(net, x, 2, c, width * 2, counts[1], 2)
        x, c = layer(net, x, 3, c, width * 4, counts[2], 1, dilation=(1, 2))
        return layer(net, x, 4, c, width * 8, counts[3], 1, dilation=(2, 4))


def pooling(net, x, c_in, c_out):
    """Image-level features, spread over the map again."""
    h, w = net.dim(x, 2), net.dim(x, 3)
    with net.scope(0):
        y = net.op("GlobalAveragePool", x)
    y = conv_bn(net, y, c_in, c_out, 1, ("1", "2", "3"), act="relu")
    return bilinear(net, y, h, w)


def aspp(net, x, c_in, c_out, rates):
    with net.scope("convs"):
        with net.scope(0):
            maps = [conv_bn(net, x, c_in, c_out, 1, ("0", "1", "2"), act="relu")]
        for i, rate in enumerate(rates):
            with net.scope(i + 1):
                maps.append(conv_bn(net, x, c_in, c_out, 3, ("0", "1", "2"), act="relu",
                                    dilation=rate))  # fmt: skip
        with net.scope(4):
            maps.append(pooling(net, x, c_in, c_out))
    y = net.op("Concat", *maps, axis=1)
    with net.scope("project"):
        return conv_bn(net, y, 5 * c_out, c_out, 1, ("0", "1", "2"), act="relu")


def build(net):
    size, middle, rates, classes = 224, 256, (12, 24, 36), 21
    if net.small:
        size, middle, rates, classes = 64, 16, (2, 3, 4), 5
    image_value = image(net, size)
    h, w = net.dim(image_value, 2), net.dim(image_value, 3)
    x, c = dilated_resnet(net, image_value)
    with net.scope("classifier"):
        with net.scope(0):
            x = aspp(net, x, c, middle, rates)
        x = conv_bn(net, x, middle, middle, 3, ("1", "2", "3"), act="relu")
        with net.scope(4):
            x = conv(net, x, middle, classes, 1, bias=True)
    net.output(bilinear(net, x, h, w), "out", [net.batch, classes, size, size])
