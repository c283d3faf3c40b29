# SPDX-License-Identifier: Apache-2.0
"""Layers of transformers over a Net, written as PyTorch's exporter writes them."""

import numpy as np
from lib_conv import GAIN


def layer_norm(net, x, width, eps=1e-5):
    """One LayerNormalization from opset 17 on, the decomposition before it."""
    gamma = net.weight("weight", net.rng.uniform(0.8, 1.2, width).astype(np.float32))
    beta = net.weight("bias", net.normal(width, 0.1))
    if net.opset >= 17:
        return net.op("LayerNormalization", x, gamma, beta, axis=-1, epsilon=eps)
    centred = net.op("Sub", x, net.op("ReduceMean", x, axes=[-1]))
    square = net.op("Pow", centred, net.const(2.0))
    variance = net.op("Add", net.op("ReduceMean", square, axes=[-1]), net.const(eps))
    normal = net.op("Div", centred, net.op("Sqrt", variance))
    return net.op("Add", net.op("Mul", normal, gamma), beta)


def linear_nd(net, x, c_in, c_out, after="linear", bias=True, gain=1.0):
    """nn.Linear on more than two dimensions: MatMul with the weight transposed, then Add."""
    std = np.sqrt(gain * GAIN[after] / c_in)
    saved = net.modules
    net.modules = []  # the exporter loses the module's name when it transposes the weight
    w = net.weight(f"onnx::MatMul_{len(net.initializers)}", net.normal((c_in, c_out), std))
    net.modules = saved
    y = net.op("MatMul", x, w)
    if not bias:
        return y
    return net.op("Add", net.weight("bias", net.normal(c_out, 0.05)), y)


def gelu_erf(net, x):
    """0.5 x (1 + erf(x / sqrt 2))"""
    y = net.op("Erf", net.op("Div", x, net.const(1.4142135381698608)))
    y = net.op("Mul", x, net.op("Add", y, net.const(1.0)))
    return net.op("Mul", y, net.const(0.5))


def gelu_tanh(net, x):
    """0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))"""
    half = net.op("Mul", x, net.const(0.5))
    cube = net.op("Mul", net.op("Pow", x, net.const(3.0)), net.const(0.044715))
    inner = net.op("Mul", net.op("Add", x, cube), net.const(0.7978845608028654))
    return net.op("Mul", half, net.op("Add", net.op("Tanh", inner), net.const(1.0)))


def mlp(net, x, width, hidden, names, gelu=gelu_erf, gain=1.0):
    """Linear, GELU, Linear; names of the three modules."""
    with net.scope(names[0]):
        x = linear_nd(net, x, width, hidden)
    with net.scope(names[1]):
        x = gelu(net, x)
    with net.scope(names[2]):
        return linear_nd(net, x, hidden, width, after="gelu", gain=gain)
