# SPDX-License-Identifier: Apache-2.0
"""A small residual convolution net, quantized as onnxruntime's static quantizer writes it.

Every convolution reads uint8 activations and int8 weights (a scale per output channel) through
DequantizeLinear, its int32 bias likewise, and every activation passes QuantizeLinear and
DequantizeLinear. Activations are about of unit variance, so their ranges are known.
"""

import numpy as np
from lib_conv import image


def quantized_value(net, x, low, high):
    """QuantizeLinear and DequantizeLinear to uint8 over [low, high], as calibration found it."""
    scale = np.float32((high - low) / 255)
    zero = np.uint8(round(-low / scale))
    s, z = net.weight("scale", np.array(scale)), net.weight("zero_point", np.array(zero))
    return net.op("DequantizeLinear", net.op("QuantizeLinear", x, s, z), s, z), scale


def quantized_weight(net, w):
    """int8, symmetric, one scale per output channel (axis 0)."""
    scales = (np.abs(w).reshape(len(w), -1).max(1) / 127).astype(np.float32)
    stored = np.rint(w / scales.reshape(-1, *[1] * (w.ndim - 1))).astype(np.int8)
    operands = [net.weight("weight_quantized", stored), net.weight("weight_scale", scales),
                net.weight("weight_zero_point", np.zeros(len(w), np.int8))]  # fmt: skip
    return net.op("DequantizeLinear", *operands, axis=0), scales


def quantized_bias(net, channels, scale):
    """int32 with scale = activation scale * weight scale, one per channel."""
    stored = np.rint(net.normal(channels, 0.1) / scale).astype(np.int32)
    operands = [net.weight("bias_quantized", stored), net.weight("bias_scale", scale),
                net.weight("bias_zero_point", np.zeros(channels, np.int32))]  # fmt: skip
    return net.op("DequantizeLinear", *operands, axis=0)


def conv(net, name, x, x_scale, c_in, c_out, kernel, stride=1, relu=True, groups=1):
    """Conv, Relu, quantization; returns the dequantized value and its scale."""
    with net.scope(name):
        fan_in = c_in // groups * kernel * kernel
        w = net.normal((c_out, c_in // groups, kernel, kernel), np.sqrt(2 / fan_in))
        w, w_scales = quantized_weight(net, w)
        b = quantized_bias(net, c_out, (x_scale * w_scales).astype(np.float32))
        pad = kernel // 2
        y = net.op("Conv", x, w, b, dilations=[1, 1], group=groups, kernel_shape=[kernel] * 2,
                   pads=[pad] * 4, strides=[stride] * 2)  # fmt: skip
        if relu:
            y = net.op("Relu", y)
        return quantized_value(net, y, 0.0 if relu else -4.0, 4.0)


def residual(net, x, x_scale, c):
    y, y_scale = conv(net, "conv1", x, x_scale, c, c, 3)
    y, _ = conv(net, "conv2", y, y_scale, c, c, 3, relu=False)
    with net.scope("add"):
        y = net.op("Relu", net.op("Add", x, y))
        return quantized_value(net, y, 0.0, 5.0)


def build(net):
    size, classes, c = (16, 10, 8) if net.small else (64, 100, 32)
    x = image(net, size)
    with net.scope("input"):
        x, scale = quantized_value(net, x, -4.0, 4.0)
    x, scale = conv(net, "stem", x, scale, 3, c, 3, stride=2)
    for i in range(2):
        with net.scope(f"layer{i + 1}"):
            with net.scope("0"):
                x, scale = residual(net, x, scale, c)
            with net.scope("1"):
                x, scale = conv(net, "depthwise", x, scale, c, c, 3, groups=c)
            with net.scope("2"):
                x, scale = conv(net, "down", x, scale, c, 2 * c, 3, stride=2)
        c *= 2
    x = net.op("GlobalAveragePool", x)
    with net.scope("pool"):
        x, scale = quantized_value(net, x, 0.0, 2.0)
    x = net.op("Flatten", x, axis=1)
    with net.scope("fc"):
        w, w_scales = quantized_weight(net, net.normal((classes, c), np.sqrt(1 / c)))
        b = quantized_bias(net, classes, (scale * w_scales).astype(np.float32))
        y = net.op("Gemm", x, w, b, alpha=1.0, beta=1.0, transB=1)
        y, _ = quantized_value(net, y, -4.0, 4.0)
    net.output(y, "output", [net.batch, classes])
