# SPDX-License-Identifier: Apache-2.0
"""ResNet-50 (He et al. 2016, torchvision's v1.5: the stride sits in the 3x3 convolution)."""

from lib_conv import conv_bn, head, image, max_pool


def bottleneck(net, x, c_in, width, stride, dilation=1, groups=1, expansion=4):
    c_out = width * expansion
    y = conv_bn(net, x, c_in, width, 1, ("conv1", "bn1", "relu"), act="relu")
    y = conv_bn(net, y, width, width, 3, ("conv2", "bn2", "relu"), act="relu",
                stride=stride, dilation=dilation, groups=groups)  # fmt: skip
    y = conv_bn(net, y, width, c_out, 1, ("conv3", "bn3"), calm=True)
    if stride != 1 or c_in != c_out:
        with net.scope("downsample"):
            x = conv_bn(net, x, c_in, c_out, 1, stride=stride)
    y = net.op("Add", y, x)
    with net.scope("relu"):
        return net.op("Relu", y)


def stem(net, x, width):
    x = conv_bn(net, x, 3, width, 7, ("conv1", "bn1", "relu"), act="relu", stride=2, after="linear")
    with net.scope("maxpool"):
        return max_pool(net, x, 3, 2, 1)


def layer(net, x, index, c_in, width, count, stride, dilation=(1, 1)):
    """dilation: of the first block, of the others (the dilated backbones of segmentation)."""
    with net.scope(f"layer{index}"):
        for i in range(count):
            with net.scope(i):
                x = bottleneck(net, x, c_in, width, stride if i == 0 else 1, dilation[i > 0])
            c_in = width * 4
    return x, c_in


def build(net):
    width, counts, size, classes = (64, (3, 4, 6, 3), 224, 1000)
    if net.small:
        width, counts, size, classes = (8, (1, 2, 1, 1), 64, 10)
    x, c = stem(net, image(net, size), width), width
    for i, count in enumerate(counts):
        x, c = layer(net, x, i + 1, c, width << i, count, 1 if i == 0 else 2)
    net.output(head(net, x, c, classes), "output", [net.batch, classes])
