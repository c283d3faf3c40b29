# SPDX-License-Identifier: Apache-2.0
"""ShuffleNet-V2 x1.0 (Ma et al. 2018), as torchvision has it: channel split and shuffle."""

from lib_conv import conv_bn, image, linear, max_pool


def branch_pointwise(net, x, at, c_in, c_out, after):
    """Conv 1x1, BatchNorm, ReLU as children at, at+1, at+2 of a Sequential."""
    names = (str(at), str(at + 1), str(at + 2))
    return conv_bn(net, x, c_in, c_out, 1, names, act="relu", after=after)


def branch_depthwise(net, x, at, c, stride):
    return conv_bn(net, x, c, c, 3, (str(at), str(at + 1)), stride=stride, groups=c)


def shuffle(net, x, channels):
    """Channels as 2 groups, transposed: the exporter asks the tensor for its sizes."""
    n, h, w = (net.dim(x, axis) for axis in (0, 2, 3))
    x = net.reshape(x, n, 2, channels // 2, h, w)
    x = net.op("Transpose", x, perm=[0, 2, 1, 3, 4])
    return net.reshape(x, n, channels, h, w)


def block(net, x, c_in, c_out, stride):
    half = c_out // 2
    if stride == 1:
        sizes = net.const([half, half])
        left, right = net.op("Split", x, sizes, outputs=2, axis=1)
        c_right = half
    else:
        with net.scope("branch1"):
            left = branch_depthwise(net, x, 0, c_in, stride)
            left = branch_pointwise(net, left, 2, c_in, half, "linear")
        right, c_right = x, c_in
    with net.scope("branch2"):
        right = branch_pointwise(net, right, 0, c_right, half, "relu")
        right = branch_depthwise(net, right, 3, half, stride)
        right = branch_pointwise(net, right, 5, half, half, "linear")
    return shuffle(net, net.op("Concat", left, right, axis=1), c_out)


def build(net):
    counts, channels, size, classes = (4, 8, 4), (24, 116, 232, 464, 1024), 224, 1000
    if net.small:
        counts, channels, size, classes = (2, 2), (8, 16, 32, 64), 64, 10
    x, c = image(net, size), channels[0]
    with net.scope("conv1"):
        x = conv_bn(net, x, 3, c, 3, ("0", "1", "2"), act="relu", stride=2, after="linear")
    with net.scope("maxpool"):
        x = max_pool(net, x, 3, 2, 1)
    for i, count in enumerate(counts):
        with net.scope(f"stage{i + 2}"):
            for j in range(count):
                with net.scope(j):
                    x = block(net, x, c, channels[i + 1], 2 if j == 0 else 1)
                c = channels[i + 1]
    with net.scope("conv5"):
        x = conv_bn(net, x, c, channels[-1], 1, ("0", "1", "2"), act="relu")
    x = net.op("ReduceMean", x, axes=[2, 3], keepdims=0)
    with net.scope("fc"):
        x = linear(net, x, channels[-1], classes)
    net.output(x, "output", [net.batch, classes])
