# SPDX-License-Identifier: Apache-2.0
"""Layers of convolution networks over a Net.

Weights are scaled so that a signal of unit variance stays of the order of one through any depth:
a convolution of what an activation leaves divides by that activation's mean square (GAIN), the
statistics of BatchNorm are those of such a signal, and the last BatchNorm of a residual branch has
a small gamma (calm=True), as trained networks do. A filter that sums what a ReLU leaves has mean 0:
else the mean, the same for every input, would drown the signal after a few layers.
"""

import numpy as np

# 1 / E[f(z)^2] for z of unit variance: what a weight's variance is multiplied by.
GAIN = {"linear": 1.0, "relu": 2.0, "relu6": 2.0, "hardswish": 2.9, "silu": 2.8, "gelu": 2.35}


def conv(net, x, c_in, c_out, kernel, stride=1, pad=None, groups=1, dilation=1, bias=False,
         after="relu", gain=1.0):  # fmt: skip
    """kernel, stride, pad, dilation: an int or a pair. pad None keeps the size at stride 1."""
    kh, kw = kernel if isinstance(kernel, tuple) else (kernel, kernel)
    dil = dilation if isinstance(dilation, tuple) else (dilation, dilation)
    if pad is None:
        pad = (dil[0] * (kh - 1) // 2, dil[1] * (kw - 1) // 2)
    ph, pw = pad if isinstance(pad, tuple) else (pad, pad)
    strides = stride if isinstance(stride, tuple) else (stride, stride)
    fan_in = c_in // groups * kh * kw
    std = np.sqrt(gain * GAIN[after] / fan_in)
    weight = net.normal((c_out, c_in // groups, kh, kw), std)
    if groups == 1 and after != "linear" and not net.hollow:
        weight -= weight.mean((1, 2, 3), keepdims=True)
    operands = [x, net.weight("weight", weight)]
    if bias:
        operands.append(net.weight("bias", net.normal(c_out, 0.05)))
    return net.op("Conv", *operands, dilations=list(dil), group=groups, kernel_shape=[kh, kw],
                  pads=[ph, pw, ph, pw], strides=list(strides))  # fmt: skip


def batch_norm(net, x, channels, eps=1e-5, calm=False):
    rng = net.rng
    gamma = rng.uniform(0.15, 0.3, channels) if calm else rng.uniform(0.8, 1.2, channels)
    parts = {
        "weight": gamma,
        "bias": rng.normal(0, 0.1, channels),
        "running_mean": rng.normal(0, 0.1, channels),
        "running_var": rng.uniform(0.7, 1.3, channels),
    }
    operands = [net.weight(name, value.astype(np.float32)) for name, value in parts.items()]
    return net.op("BatchNormalization", x, *operands, epsilon=eps, momentum=0.9)


def activate(net, x, kind):
    if kind == "relu":
        return net.op("Relu", x)
    if kind == "relu6":
        return net.op("Clip", x, net.const(0.0), net.const(6.0))
    if kind == "hardswish":
        return net.op("HardSwish", x)
    if kind == "silu":
        return net.op("Mul", x, net.op("Sigmoid", x))
    return x


def conv_bn(net, x, c_in, c_out, kernel, names=("0", "1"), act=None, calm=False, eps=1e-5, **rest):
    """Conv, BatchNorm and perhaps an activation, in submodules names[0], names[1], names[2]."""
    with net.scope(names[0]):
        x = conv(net, x, c_in, c_out, kernel, **rest)
    with net.scope(names[1]):
        x = batch_norm(net, x, c_out, eps, calm)
    if act:
        with net.scope(*names[2:3]):
            x = activate(net, x, act)
    return x


def max_pool(net, x, kernel, stride, pad=0, ceil=False):
    return net.op("MaxPool", x, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[pad] * 4,
                  ceil_mode=int(ceil))  # fmt: skip


def avg_pool(net, x, kernel, stride, pad=0):
    """PyTorch's AvgPool2d counts the padding."""
    return net.op("AveragePool", x, kernel_shape=[kernel] * 2, strides=[stride] * 2,
                  pads=[pad] * 4, ceil_mode=0, count_include_pad=1)  # fmt: skip


def linear(net, x, c_in, c_out, after="linear"):
    """nn.Linear on a matrix: Gemm with a transposed weight."""
    w = net.weight("weight", net.normal((c_out, c_in), np.sqrt(GAIN[after] / c_in)))
    b = net.weight("bias", net.normal(c_out, 0.05))
    return net.op("Gemm", x, w, b, alpha=1.0, beta=1.0, transB=1)


def squeeze_excite(net, x, channels, squeezed, inner="relu", gate="sigmoid"):
    """x * gate(fc2(act(fc1(mean(x))))), with 1x1 convolutions as torchvision has it."""
    with net.scope("avgpool"):
        s = net.op("GlobalAveragePool", x)
    with net.scope("fc1"):
        s = conv(net, s, channels, squeezed, 1, bias=True, after="linear")
    with net.scope("activation"):
        s = activate(net, s, inner)
    with net.scope("fc2"):
        s = conv(net, s, squeezed, channels, 1, bias=True, after=inner)
    with net.scope("scale_activation"):
        if gate == "hardsigmoid":
            s = net.op("HardSigmoid", s, alpha=1 / 6, beta=0.5)
        else:
            s = net.op("Sigmoid", s)
    return net.op("Mul", s, x)


def head(net, x, c_in, classes, scope=("fc",)):
    """Global average, flatten, fully connected."""
    with net.scope("avgpool"):
        x = net.op("GlobalAveragePool", x)
    x = net.op("Flatten", x, axis=1)
    with net.scope(*scope):
        return linear(net, x, c_in, classes)


def scaled(net, channels, multiple=8):
    """The channel count of a --small network: a quarter, in multiples of 8."""
    return max(multiple, channels // 4 // multiple * multiple) if net.small else channels


def image(net, size, channels=3, name="input"):
    return net.input(name, [net.batch, channels, size, size])


def bilinear(net, x, out_h, out_w):
    """F.interpolate(mode="bilinear"): Shape, Slice, Concat, Resize with sizes."""
    kept = net.op("Slice", net.op("Shape", x), net.const([0]), net.const([2]), net.const([0]))
    sizes = net.op("Concat", kept, net.dims([out_h, out_w]), axis=0)
    return net.op("Resize", x, "", "", sizes, mode="linear", cubic_coeff_a=-0.75,
                  coordinate_transformation_mode="half_pixel", nearest_mode="floor")  # fmt: skip
