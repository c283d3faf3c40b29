# SPDX-License-Identifier: Apache-2.0
"""A small net with integer arithmetic, as onnxruntime's dynamic quantizer writes it.

Activations are quantized by what they hold (DynamicQuantizeLinear), multiplied as integers
(ConvInteger, MatMulInteger), cast to float and scaled by the product of both scales.
"""

import numpy as np
from lib_conv import image


def quantize(w):
    """int8 with one symmetric scale."""
    scale = np.float32(np.abs(w).max() / 127)
    return np.rint(w / scale).astype(np.int8), scale


def rescale(net, integers, x_scale, w_scale):
    scale = net.op("Mul", x_scale, net.weight("weight_scale", np.array(w_scale)))
    return net.op("Mul", net.op("Cast", integers, to=1), scale)


def conv(net, name, x, c_in, c_out, stride=1):
    with net.scope(name):
        w, w_scale = quantize(net.normal((c_out, c_in, 3, 3), np.sqrt(2 / (c_in * 9))))
        q, x_scale, x_zero = net.op("DynamicQuantizeLinear", x, outputs=3)
        operands = [q, net.weight("weight_quantized", w), x_zero,
                    net.weight("weight_zero_point", np.array(np.int8(0)))]  # fmt: skip
        y = net.op("ConvInteger", *operands, dilations=[1, 1], group=1, kernel_shape=[3, 3],
                   pads=[1, 1, 1, 1], strides=[stride, stride])  # fmt: skip
        y = rescale(net, y, x_scale, w_scale)
        bias = net.weight("bias", net.normal((1, c_out, 1, 1), 0.1))
        return net.op("Relu", net.op("Add", y, bias))


def dense(net, name, x, c_in, c_out):
    with net.scope(name):
        w, w_scale = quantize(net.normal((c_in, c_out), np.sqrt(2 / c_in)))
        q, x_scale, x_zero = net.op("DynamicQuantizeLinear", x, outputs=3)
        operands = [q, net.weight("weight_quantized", w), x_zero,
                    net.weight("weight_zero_point", np.array(np.int8(0)))]  # fmt: skip
        y = rescale(net, net.op("MatMulInteger", *operands), x_scale, w_scale)
        return net.op("Add", y, net.weight("bias", net.normal(c_out, 0.1)))


def build(net):
    size, classes, c = (12, 10, 8) if net.small else (32, 100, 32)
    x = image(net, size)
    x = conv(net, "conv1", x, 3, c)
    x = conv(net, "conv2", x, c, 2 * c, stride=2)
    x = net.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = conv(net, "conv3", x, 2 * c, 2 * c)
    x = net.op("Flatten", x, axis=1)
    x = net.op("Relu", dense(net, "fc1", x, 2 * c * (size // 4) ** 2, 4 * c))
    net.output(dense(net, "fc2", x, 4 * c, classes), "output", [net.batch, classes])
