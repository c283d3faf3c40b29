# SPDX-License-Identifier: Apache-2.0
"""DenseNet-121 (Huang et al. 2017), as torchvision has it.

Every layer concatenates all maps of its block anew, as the exporter writes it: even the first
layer, whose Concat has one operand. A planner that lets the producers write into one buffer saves
most of this network's memory.
"""

from lib_conv import avg_pool, batch_norm, conv, head, image, max_pool


def norm_relu_conv(net, x, c_in, c_out, kernel, suffix, pad=0):
    with net.scope("norm" + suffix):
        x = batch_norm(net, x, c_in)
    with net.scope("relu" + suffix):
        x = net.op("Relu", x)
    with net.scope("conv" + suffix):
        return conv(net, x, c_in, c_out, kernel, pad=pad)


def dense_block(net, x, c_in, growth, count):
    maps = [x]
    for i in range(count):
        with net.scope(f"denselayer{i + 1}"):
            y = net.op("Concat", *maps, axis=1)
            y = norm_relu_conv(net, y, c_in + i * growth, 4 * growth, 1, "1")
            maps.append(norm_relu_conv(net, y, 4 * growth, growth, 3, "2", pad=1))
    return net.op("Concat", *maps, axis=1), c_in + count * growth


def build(net):
    growth, counts, c, size, classes = 32, (6, 12, 24, 16), 64, 224, 1000
    if net.small:
        growth, counts, c, size, classes = 8, (2, 3, 3), 16, 64, 10
    x = image(net, size)
    with net.scope("features"):
        with net.scope("conv0"):
            x = conv(net, x, 3, c, 7, stride=2, after="linear")
        with net.scope("norm0"):
            x = batch_norm(net, x, c)
        with net.scope("relu0"):
            x = net.op("Relu", x)
        with net.scope("pool0"):
            x = max_pool(net, x, 3, 2, 1)
        for i, count in enumerate(counts):
            with net.scope(f"denseblock{i + 1}"):
                x, c = dense_block(net, x, c, growth, count)
            if i + 1 < len(counts):
                with net.scope(f"transition{i + 1}"):
                    x, c = norm_relu_conv(net, x, c, c // 2, 1, ""), c // 2
                    with net.scope("pool"):
                        x = avg_pool(net, x, 2, 2)
        with net.scope("norm5"):
            x = batch_norm(net, x, c)
    x = net.op("Relu", x)
    net.output(head(net, x, c, classes, ("classifier",)), "output", [net.batch, classes])
